#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains rewritten steps on GPUs: target cuda (b) beside target portable (a) and
the step as it was written (FSDP).

    check_steps.py --export DIR [--devices N] [--platform cpu]
    check_steps.py --run DIR [--processes N] [--steps N]

--export needs the compiler and no GPU, --run GPUs and no compiler. It runs all
devices in one process, or as many processes as there are devices. These are two nodes
(bench/lab/links.py), and may share a GPU (bench/lab/launch.py).

Checked are: at every step (b)'s loss is within 0.1 % of (a)'s and 1 % of FSDP's,
two trainings with (b) are bit-equal in losses and weights, where XLA is asked for
deterministic ops: its scatters add in any order; and a trace has slices of every
rank. One model is trained for --steps, other ways to write it for a few,
without FSDP. Of several processes the last one is lost in another training: the
others must end by themselves in time, with an error that names the collective
and the lost rank.

The last line is PASS, or what failed. With --platform cpu the same runs on CPU
devices, to check the script. The runtime's back end for these is of one process:
of several, (a) takes the place of (b), there is no trace, and it is JAX that
notices the lost process.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("examples", "python", "bench")]

ALL_ON = {"weights": "i8", "gradients": "i8:i4", "secondary": "gpu"}
#: Ways to write the step; the first is trained for long. Loops of 17 layers
#: scatter in their next iteration.
MODELS: dict[str, dict[str, Any]] = {
    "layers": {}, "scan": {"scan": True}, "f16": {"dtype": "float16"},
    "state": {}, "state-scan": {"scan": True, "layers": 17},
    "state-short-scan": {"scan": True},
    "micro-batches": {"accumulate": 4}, "state-micro-batches": {"accumulate": 4},
    "state-micro-batches-scan": {"accumulate": 4, "scan": True},
    "replicated-micro-batches": {"accumulate": 4, "replicated": ("node",)},
    "replicated-micro-batches-scan": {
        "accumulate": 4, "replicated": ("node",), "scan": True}}
#: Other options than ALL_ON: differences to what is kept from step to step; and
#: weights and gradients that cross the slow links once for all micro-batches. On these
#: links the first and the last of them stand outside of the loop.
_STATE: dict[str, Any] = {"weights": "i4:delta", "tuning": {"rotate": 32}}
_SLOW: dict[str, Any] = {"links": "node=0.1gbit,gpu=1gbit"}
_ONCE: dict[str, Any] = {"secondary": 1, "accumulate": "gpu"} | _SLOW
_REPLICATED: dict[str, Any] = {"secondary": "none"} | _SLOW
OPTIONS: dict[str, dict[str, Any]] = {
    "state": _STATE, "state-scan": _STATE, "state-short-scan": _STATE,
    "micro-batches": _ONCE,
    "state-micro-batches": _STATE | _ONCE,
    "state-micro-batches-scan": _STATE | _ONCE | {"secondary": "gpu"},
    "replicated-micro-batches": _REPLICATED,
    "replicated-micro-batches-scan": _REPLICATED}
LONG = "layers"
SHORT_STEPS = 8
#: Steps of a training before a process of it is lost.
STEPS_BEFORE_LOSS = 3
#: A process that fails waits at its end for those that JAX believes to be
#: alive. JAX's own limit is 100 s.
HEARTBEAT_SECONDS = 30
#: How long the others may take to end when a process is lost.
LIMIT_SECONDS = 60
#: For everything that needs no limit of its own.
LONG_LIMIT_SECONDS = 540


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    stage = parser.add_mutually_exclusive_group(required=True)
    stage.add_argument("--export", type=pathlib.Path, metavar="DIR")
    stage.add_argument("--run", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lose", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.export:
        export(args)
        return
    is_part = args.rank is not None
    failures = (check_processes if args.processes > 1 and not is_part else
                run_part)(args)
    if failures:
        sys.exit("FAILED: " + "; ".join(failures))
    if not is_part:
        print("PASS")


# Compile here ----------------------------------------------------------------


def config_of(devices: int, model: str):
    import gpt
    nodes = 2 if devices > 2 else 1
    return gpt.Config(**{
        "layers": 2, "width": 256, "heads": 4, "vocab": 500, "context": 64,
        "learning_rate": 3e-4,
        "mesh": (("node", nodes), ("gpu", devices // nodes)), **MODELS[model]})


def export(args):
    import jax
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", args.devices)
    import gpt
    import zpp

    for model in MODELS:
        trainer = gpt.Trainer(config_of(args.devices, model))
        step = zpp.export(
            jax.jit(trainer.step, donate_argnums=0), trainer.abstract_state(),
            trainer.abstract_batch(_sequences(trainer.config, args.devices)),
            platforms=[args.platform])
        for target in ("portable", args.platform):
            rewritten = zpp.rewrite(step, target=target, **{
                **ALL_ON, **OPTIONS.get(model, {})})
            zpp.save(rewritten, args.export / model / f"{target}.zpp")
            print(f"{model}, {target}: {len(rewritten.left_alone)} collectives "
                  f"left as they are", flush=True)
    (args.export / "check.json").write_text(json.dumps(
        {"devices": args.devices, "platform": args.platform}))


# Run there -------------------------------------------------------------------


def run_part(args) -> list[str]:
    """Runs the checks of this process, of one or of many; returns what fails."""
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") +
                               " --xla_gpu_deterministic_ops=true")
    import jax
    from lab import launch
    about = json.loads((args.run / "check.json").read_text())
    devices, target = about["devices"], about["platform"]
    if args.processes not in (1, devices):
        sys.exit(f"expected 1 process or {devices}, but got {args.processes}")
    # Steps that are compiled again, and kernels that XLA has tuned before.
    jax.config.update("jax_compilation_cache_dir", str(args.run / "cache"))
    if target == "cpu":
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", devices // args.processes)
        if args.processes > 1:
            target = "portable"
    if args.rank is not None:
        jax.distributed.initialize(
            f"localhost:{args.port}", args.processes, args.rank,
            local_device_ids=None if about["platform"] == "cpu" else
            [launch.device_of(args.rank)],
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    import gpt
    import numpy as np
    import zpp

    failures = []

    def check(is_right, text):
        if not is_right:
            failures.append(text)
        if not is_right or not args.rank:
            print(("ok: " if is_right else "FAILED: ") + text, flush=True)

    def train(trainer, step, steps):
        """The losses, and the bytes of the final weights."""
        state, losses = trainer.init(), []
        for index in range(steps):
            state, loss = step(state, trainer.batch(
                _tokens(trainer.config, devices, index)))
            losses.append(float(loss))
        return np.array(losses), [
            np.asarray(shard.data).tobytes()
            for leaf in jax.tree.leaves(state["params"])
            for shard in leaf.addressable_shards]

    def compare(model, name, losses, others, limit):
        difference = np.max(np.abs(losses / others - 1))
        check(difference <= limit,
              f"{model}: {len(losses)} losses within {limit:.1%} of {name}'s, "
              f"at most {difference:.4%} apart, the last {losses[-1]:.4f} and "
              f"{others[-1]:.4f}")

    def trainer_and_step(model, name):
        return (gpt.Trainer(config_of(devices, model)),
                zpp.load(args.run / model / f"{name}.zpp"))

    if args.lose:
        trainer, step = trainer_and_step(LONG, target)
        train(trainer, step, STEPS_BEFORE_LOSS)
        if args.rank == args.processes - 1:
            os._exit(0)
        train(trainer, step, args.steps)
        return ["expected an error about the lost process, but got none"]

    for model in MODELS:
        steps = args.steps if model == LONG else SHORT_STEPS
        trainer, step = trainer_and_step(model, target)
        start = time.perf_counter()
        losses, weights = train(trainer, step, steps)
        seconds = time.perf_counter() - start
        check(np.isfinite(losses).all() and losses[-1] < losses[0],
              f"{model}: learns, from {losses[0]:.4f} to {losses[-1]:.4f} in "
              f"{seconds:.1f} s")
        again, same_weights = train(trainer, step, steps)
        check(losses.tobytes() == again.tobytes() and weights == same_weights,
              f"{model}: two trainings are bit-equal")
        _, portable = trainer_and_step(model, "portable")
        compare(model, "(a)", losses, train(trainer, portable, steps)[0], 1e-3)
        if model == LONG:
            fsdp = jax.jit(trainer.step, donate_argnums=0)
            compare(model, "FSDP", losses, train(trainer, fsdp, steps)[0], 1e-2)

    if target != "portable":
        trainer, step = trainer_and_step(LONG, target)
        path = args.run / "trace.json"
        with zpp.trace(path):
            train(trainer, step, SHORT_STEPS)
        if args.rank is not None:
            path = path.with_suffix(f".{args.rank}.json")
        _check_trace(path, devices // args.processes, target, check)
    return failures


def _sequences(config, devices: int) -> int:
    """One for each device and micro-batch."""
    return devices * config.accumulate


def _tokens(config, devices: int, index: int):
    """Half of the tokens follow the one before, half are drawn, few of them
    often: there is something to learn at once and later, and a part of the loss
    that nobody can."""
    import numpy as np
    rng = np.random.default_rng(index)
    shape = _sequences(config, devices), config.context + 1
    weights = 1 / np.arange(1, config.vocab + 1)
    tokens = rng.choice(config.vocab, shape, p=weights / weights.sum())
    is_drawn = rng.random(shape) < 0.5
    for place in range(1, shape[1]):
        tokens[:, place] = np.where(is_drawn[:, place], tokens[:, place],
                                    tokens[:, place - 1] + 1)
    return tokens % config.vocab


def _check_trace(path, devices: int, target: str, check):
    events = json.loads(path.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    rows = {event["tid"]: event["args"]["name"] for event in events
            if event["ph"] == "M"}
    ranks = {re.match(r"rank \d+", rows[event["tid"]])[0] for event in slices}
    check(len(ranks) == devices and
          all("gpt.py:" in event["name"] for event in slices),
          f"trace: {len(slices)} slices of {len(ranks)} ranks in {len(rows)} "
          f"rows, named after source lines")
    if target == "cuda":
        stalls = [event for event in slices if event["cat"] == "stall"]
        check(stalls, f"trace: {len(stalls)} waits of compute")


# Processes -------------------------------------------------------------------


def check_processes(args) -> list[str]:
    """Runs all of it in many processes, and then loses one."""
    ends = _run_processes(args, lose=False)
    print(ends[0].text, end="", flush=True)
    failures = [f"process {rank}: {end.about}" for rank, end in enumerate(ends)
                if end.code != 0]
    for rank, end in enumerate(ends):
        if rank > 0 and end.code != 0:
            print(f"--- process {rank}\n{end.text[-2000:]}", flush=True)
    if failures:
        return failures

    about = json.loads((args.run / "check.json").read_text())
    lost = args.processes - 1
    # The error of the runtime, or that of JAX if there is no runtime.
    pattern = (rf"zpp(: |\.start |\.wait ).*\brank {lost} was lost"
               if about["platform"] == "cuda" else rf"[Tt]ask:? {lost}\b.*")
    ends = _run_processes(args, lose=True)
    for rank, end in enumerate(ends[:lost]):
        found = re.search(pattern, end.text)
        if end.code not in (0, None) and found:
            print(f"ok: process {rank} ended {end.seconds:.0f} s after process "
                  f"{lost} was lost: {found[0][:300]}", flush=True)
        else:
            failures.append(f"process {rank} when process {lost} was lost: "
                            f"{end.about}" if end.code in (0, None) else
                            f"process {rank} did not say what was lost")
            print(f"--- process {rank}\n{end.text[-3000:]}", flush=True)
    return failures


class End:
    """How a process ended."""

    def __init__(self, code: int | None, seconds: float, text: str):
        #: None: it had to be killed.
        self.code = code
        #: After the last process.
        self.seconds = seconds
        self.text = text
        self.about = (f"expected it to end, but got nothing for {seconds:.0f} s"
                      if code is None else f"ended with {code}")


def _run_processes(args, lose: bool) -> list[End]:
    """Starts them and waits for all. When the last one is lost, the others have
    LIMIT_SECONDS."""
    from lab import launch, links
    count = args.processes
    # If this process is ended, the others end too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    port = launch.free_port()
    logs = [args.run / f"process{rank}{'-lose' * lose}.txt"
            for rank in range(count)]
    processes: list[subprocess.Popen] = []
    seconds: dict[int, float] = {}
    start = time.monotonic()
    lost_at = None
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(launch.service(count))
        stack.callback(_kill, processes)
        for rank, log in enumerate(logs):
            with open(log, "w") as output:
                processes.append(subprocess.Popen(
                    [sys.executable, "-u", __file__, "--run", args.run,
                     "--processes", str(count), "--steps",
                     str(args.steps), "--rank", str(rank), "--port", str(port),
                     *(["--lose"] if lose else [])],
                    env=os.environ | service | links.environment(
                        rank, count, max(1, count // 2), "shared"),
                    stdout=output, stderr=subprocess.STDOUT))
        while len(seconds) < len(processes):
            now = time.monotonic()
            for rank, process in enumerate(processes):
                if rank not in seconds and process.poll() is not None:
                    seconds[rank] = now
            if lost_at is None and (lose and len(processes) - 1 in seconds or
                                    not lose and any(process.returncode
                                                     for process in processes)):
                lost_at = now
            if (now > start + LONG_LIMIT_SECONDS or
                    lost_at is not None and now > lost_at + LIMIT_SECONDS):
                break
            time.sleep(0.1)
    end = time.monotonic()
    lost_at = start if lost_at is None else lost_at
    return [End(process.poll() if rank in seconds else None,
                seconds.get(rank, end) - lost_at, log.read_text())
            for rank, (process, log) in enumerate(zip(processes, logs))]


def _kill(processes: list[subprocess.Popen]):
    for process in processes:
        if process.poll() is None:
            process.kill()


if __name__ == "__main__":
    main()
