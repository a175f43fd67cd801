#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains rewritten steps on GPUs: target cuda beside target portable.

    check_steps.py --export DIR [--devices N] [--platform cpu]
    check_steps.py --run DIR [--processes N]

--export needs the compiler and no GPU, --run GPUs and no compiler. It runs all
devices in one process, or as many processes as there are devices; one of them
can be made to die, and the others must end with an error that names the loss.

Checked are: every loss within 0.1 % of the portable step's, two runs bit-equal,
a trace with every stream, and the time until a lost process is noticed. The
last line is PASS. With --platform cpu the same runs in one process on CPU
devices, to check the script.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "python")]

ALL_ON = {"weights": "i8", "gradients": "i8:i4", "secondary": "gpu"}
#: Ways to write the step.
MODELS = {"layers": {}, "scan": {"scan": True}, "f16": {"dtype": "float16"}}
STEPS = 8
#: How long the others may take to notice that a process is gone.
LIMIT_SECONDS = 60


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    stage = parser.add_mutually_exclusive_group(required=True)
    stage.add_argument("--export", type=pathlib.Path, metavar="DIR")
    stage.add_argument("--run", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lose", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.export:
        export(args)
    elif args.processes > 1 and args.rank is None:
        check_processes(args)
    else:
        run(args)


# Compile here ----------------------------------------------------------------


def config_of(devices: int, model: str):
    import gpt
    nodes = 2 if devices > 2 else 1
    return gpt.Config(
        layers=2, width=256, heads=4, vocab=500, context=64,
        mesh=(("node", nodes), ("gpu", devices // nodes)), **MODELS[model])


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
            trainer.abstract_batch(args.devices), platforms=[args.platform])
        for target in ("portable", args.platform):
            rewritten = zpp.rewrite(step, target=target, **ALL_ON)
            zpp.save(rewritten, args.export / model / f"{target}.zpp")
            print(f"{model}, {target}: {len(rewritten.left_alone)} collectives "
                  f"left as they are", flush=True)
    (args.export / "check.json").write_text(json.dumps(
        {"devices": args.devices, "platform": args.platform}))


# Run there -------------------------------------------------------------------


def run(args):
    import jax
    about = json.loads((args.run / "check.json").read_text())
    devices, target = about["devices"], about["platform"]
    if target == "cpu":
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", devices)
    if args.rank is not None:
        jax.distributed.initialize(
            f"localhost:{args.port}", args.processes, args.rank,
            local_device_ids=[args.rank])
    import gpt
    import numpy as np
    import zpp

    failures = []

    def check(is_right, text):
        if not args.rank:
            print(("ok: " if is_right else "FAILED: ") + text, flush=True)
        if not is_right:
            failures.append(text)

    for model in MODELS:
        trainer = gpt.Trainer(config_of(devices, model))

        def train(step):
            state, losses = trainer.init(), []
            for index in range(STEPS):
                # Sequences that count up: there is much to learn.
                first = np.arange(devices)[:, None] * 31 + index
                tokens = first + np.arange(trainer.config.context + 1)
                state, loss = step(state, trainer.batch(
                    tokens % trainer.config.vocab))
                losses.append(float(loss))
                if args.lose and index == 2 and args.rank == args.processes - 1:
                    os._exit(0)
            return losses

        steps = {name: zpp.load(args.run / model / f"{name}.zpp")
                 for name in ("portable", target)}
        start = time.perf_counter()
        first = train(steps[target])
        seconds = time.perf_counter() - start
        again, portable = train(steps[target]), train(steps["portable"])
        check(np.allclose(first, portable, rtol=1e-3),
              f"{model}: losses {first[0]:.4f} to {first[-1]:.4f}, portable "
              f"{portable[0]:.4f} to {portable[-1]:.4f}, {seconds:.1f} s")
        check(first == again, f"{model}: two runs are bit-equal")
        check(np.isfinite(first).all() and first[-1] < first[0],
              f"{model}: it learns")

    path = args.run / "trace.json"
    with zpp.trace(path):
        train(steps[target])
    if args.rank is not None:
        path = args.run / f"trace.{args.rank}.json"
    events = json.loads(path.read_text())["traceEvents"]
    rows = {event["args"]["name"] for event in events if event["ph"] == "M"}
    slices = [event for event in events if event["ph"] == "X"]
    check(slices and all("gpt.py:" in event["name"] for event in slices),
          f"trace: {len(slices)} slices in {len(rows)} rows, {sorted(rows)[:3]}")
    if failures:
        sys.exit(1)
    if args.rank is None:
        print("PASS")


def check_processes(args):
    results = _launch(args, lose=False)
    print(results[0][1])
    if any(code != 0 for code, _ in results):
        sys.exit("FAILED: " + "\n".join(text[-2000:] for _, text in results))
    start = time.monotonic()
    results = _launch(args, lose=True)
    print(f"ended {time.monotonic() - start:.0f} s after the start")
    for rank, (code, text) in enumerate(results[:-1]):
        last = [line for line in text.splitlines() if "rank" in line][-1:]
        print(f"process {rank} ended with {code}: {last}")
        if code == 0 or "lost" not in text and "left" not in text:
            sys.exit(f"FAILED: expected an error about the lost rank, but got\n"
                     f"{text[-2000:]}")
    print("PASS")


def _launch(args, lose: bool) -> list[tuple[int, str]]:
    """Exit status and output of each process."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    processes = [subprocess.Popen(
        [sys.executable, __file__, "--run", args.run, "--processes",
         str(args.processes), "--rank", str(rank), "--port", str(port),
         *(["--lose"] if lose else [])],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(args.processes)]
    limit = LIMIT_SECONDS if lose else None
    results = []
    for process in processes:
        try:
            text, _ = process.communicate(timeout=limit and 2 * limit)
        except subprocess.TimeoutExpired:
            process.kill()
            text = "TIMEOUT\n" + process.communicate()[0]
        results.append((process.returncode, text))
    return results


if __name__ == "__main__":
    main()
