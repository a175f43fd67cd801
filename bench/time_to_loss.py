#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a GPT on real text as FSDP and as ZeRO++, each for the same time.

    python bench/time_to_loss.py --export DIR --text PACKAGE.deb ...  # with zpp-opt
    python bench/time_to_loss.py --run DIR --link 50gbit --minutes 2  # GPUs, root
    python bench/time_to_loss.py --table DIR [--plot FILE]

The same in one command, where zpp-opt and the GPUs are, on the files of tokens of a
public speedrun (GPT-2's, such as fineweb_train_000001.bin and fineweb_val_000000.bin):

    python bench/time_to_loss.py --data fineweb*.bin --gpus-per-node 4 \\
      --link 100gbit --minutes 10 --seeds 0 1 2 --target 3.6

The question is not how fast a step is or what a step learns, but which loss on
held-out text a training has after so many minutes. Every row is timed first.
Its warm-up and its cosine are then those of as many steps as fit into its
minutes, so that every row ends with a learning rate of zero. The clock stands
still in validations, which are those of the step as it is written.

FSDP is the step that jax.jit makes of shardings. "FSDP, gathered once" is what else
can be had with exact bytes where memory is left: whole weights stay until the
backward pass, and with micro-batches until the update.

The model has 0.35 B weights (--model), and each GPU takes 8192 tokens of the text
that bench/convergence.py describes. Two GPUs are two nodes (bench/lab/links.py), or more with --gpus-per-node.
Where the machine has one GPU, both ranks share it, and each has about half its
rate. Rows "k = 4" take four micro-batches of as many tokens in a step, ZeRO++
with accumulate=gpu. Their learning rate is that of the others: with twice as much,
0.35 B weights stop learning for a while.

--run trains what is missing in results/, and --table prints what has been found
and draws it, each link and number of micro-batches by itself. A host with four GPUs can
train two rows at a time, each between devices of its own (--rows):

    CUDA_VISIBLE_DEVICES=2,3 unshare --net --mount sh -c \\
      'mount -t sysfs sysfs /sys; ip link set lo up; python bench/time_to_loss.py ...'
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import sys
import time
from typing import Any

import numpy as np

from lab import curves, launch, links, peer, stages, steps, text, worker
from lab.tables import Table

#: Models -> the learning rate, tokens of a sequence, and sequences per GPU.
MODELS = {"0.35 B": (3e-4, 1024, 8), "0.09 B": (6e-4, 512, 16), "0.88 B": (2e-4, 2048, 2)}
#: Rows in PyTorch, which are peers of `lab.peer`.
TORCH = ("FSDP2", "FSDP2 + zpp", "FSDP2 + zpp, i4:delta")
#: Rows of the table: name -> micro-batches, and the step of `lab.steps`, or the peer.
#: Each number of micro-batches has a folder of steps.
ROWS = {
    "FSDP": (1, steps.JITTED),
    "FSDP, gathered once": (1, steps.KEPT),
    "ZeRO++": (1, steps.RUNTIME),
    "ZeRO++, i4:delta": (1, steps.DIFFERENCES),
    "FSDP, k = 4": (4, steps.JITTED),
    "FSDP, gathered once, k = 4": (4, steps.KEPT),
    "ZeRO++, k = 4": (4, steps.RUNTIME),
    "ZeRO++, i4:delta, k = 4": (4, steps.DIFFERENCES),
} | {name: (1, name) for name in TORCH}
#: The steps that are exported.
EXPORTED = (steps.KEPT, steps.RUNTIME, steps.DIFFERENCES)
#: Steps before the timed ones; and the most and the fewest timed steps, from
#: which the number of steps of a training follows, and their seconds in between.
WARM_UP, TIMED, FEWEST_TIMED, TIMED_SECONDS = 5, 25, 5, 10
#: Validations in a training, and batches of each.
LOOKS, BATCHES = 12, 4
#: Time of a row to start and to compile, time of a training for its validations;
#: and the same on a machine that is busy with other things.
START_SECONDS, LOOK_SECONDS, LIMIT_SECONDS = 90, 30, 1500


# Export ------------------------------------------------------------------


def export(args):
    """Writes the steps, for each number of micro-batches, and the text."""
    args.export.mkdir(parents=True, exist_ok=True)
    check_results(args)
    if args.data:
        text.name_files(args.export, args.data)
    else:
        text.write(args.export, text.read(args.text))
    rate, context, sequences = MODELS[args.model]
    vocabulary = text.vocabulary(args.data)
    narrow: dict[str, Any] = {"width": 128} if args.tiny else {}
    for micro_batches in {ROWS[row][0] for row in args.rows}:
        of = steps.describe(
            args.model, args.gpus_per_node, args.platform, tiny=args.tiny,
            sequences=2 if args.tiny else sequences, micro_batches=micro_batches,
            vocab=vocabulary,
            context=64 if args.tiny else context,
            learning_rate=rate, is_scheduled=True, **narrow)
        # Nodes of one GPU keep whole weights, or send them twice.
        whole = {"secondary": 1} if args.gpus_per_node == 1 else {}
        of["variants"] = {name: of["variants"][name] | whole for name in EXPORTED}
        # Hops that round nothing, but are the runtime's.
        of["variants"][steps.KEPT]["gradients"] = "none:none"
        steps.export(of, args.export / f"k{micro_batches}")


def check_results(args):
    """Writes down what is trained. Exits if the folder has results of something else,
    which would count as those of this."""
    about = {"data": [[str(path.resolve()), path.stat().st_size]
                      for path in args.data or args.text],
             "model": args.model, "gpus_per_node": args.gpus_per_node}
    file = args.export / "experiment.json"
    known = json.loads(file.read_text()) if file.exists() else about
    if known != about and list((args.export / "results").glob("*.json")):
        sys.exit(f"{args.export}: expected results of {about}, but got those of {known}; "
                 f"take another folder, or remove results/")
    file.write_text(json.dumps(about))


# Run ---------------------------------------------------------------------


def result_path(folder: pathlib.Path, row: str, link: str, seed: int
                ) -> pathlib.Path:
    label = re.sub(r"[^0-9A-Za-z]+", "-", row).strip("-")
    return folder / "results" / f"{label}-{link}-{seed}.json"


def is_trained(path: pathlib.Path, minutes: float) -> bool:
    return path.exists() and json.loads(path.read_text())["minutes"] == minutes


def run(args):
    """Trains the rows that are missing, each in processes of its own."""
    launch.prepare()
    links.check(args.tc, [args.link])
    end = time.monotonic() + args.seconds
    (args.run / "results").mkdir(exist_ok=True)
    for row, (micro_batches, _) in ROWS.items():
        if row not in args.rows:
            continue
        seeds = [seed for seed in args.seeds if not is_trained(result_path(
            args.run, row, args.link, seed), args.minutes)]
        needed = len(seeds) * (args.minutes * 60 + LOOK_SECONDS) + START_SECONDS
        if not seeds or time.monotonic() + needed > end:
            continue
        exported = steps.read(args.run / f"k{micro_batches}")
        # The runtime's back end for CPU devices works within one process.
        on_cpu = exported.of["platform"] == "cpu"
        count = 1 if on_cpu and row not in TORCH else exported.ranks
        command = [sys.executable, __file__, "--run", args.run, "--row", row,
                   "--link", args.link, "--minutes", args.minutes,
                   "--seeds", *seeds, "--tc", args.tc,
                   "--port", launch.free_port()]
        processes = [launch.Process(
            [*command, "--rank", rank],
            launch.environment(on_cpu) | links.environment(
                rank, count, exported.mesh[-1][1], args.link),
            result_path(args.run, row, args.link, seeds[0]).with_suffix(
                f".{rank}.txt")) for rank in range(count)]
        try:
            launch.run(processes, needed + LIMIT_SECONDS, launch.show)
        except RuntimeError as error:
            # The other rows say more than none.
            print(f"{row}: {error}", flush=True)
        finally:
            if links.rate(args.link):
                links.shape(args.tc, None)


class Training:
    """One row on one link with each order of the data, in the process of one rank."""

    def __init__(self, args):
        self.args = args
        self.micro_batches, self.name = ROWS[args.row]
        self.folder = args.run / f"k{self.micro_batches}"
        self.exported = steps.read(self.folder)
        self.on_cpu = self.exported.of["platform"] == "cpu"
        context = self.exported.of["config"]["context"]
        self.tokens = text.Tokens(args.run, context, self.exported.sequences)
        # The same sequences for all rows, whatever their batch is.
        self.held_out = text.Tokens(
            args.run, context, self.exported.sequences // self.micro_batches)

    def start(self, last_step: int):
        """Returns the initial state of a training of so many steps."""
        raise NotImplementedError

    def step(self, state, tokens: np.ndarray):
        """Trains a step, and returns the next state; may return before its end."""
        raise NotImplementedError

    def validate(self, state, tokens: np.ndarray) -> float:
        """Returns the loss on a batch, the mean of all devices."""
        raise NotImplementedError

    def wait(self, state):
        """Waits until all that makes `state` has ended."""
        raise NotImplementedError

    def agree(self, count: float) -> int:
        """Returns what rank 0 has, since the processes measure different times; all
        processes wait for each other."""
        raise NotImplementedError

    def peak_bytes(self) -> int:
        raise NotImplementedError

    def advance(self, state, seed: int, first: int, last: int):
        """Trains steps `first` to `last` - 1; returns state and seconds."""
        began = time.perf_counter()
        for number in range(first, last):
            state = self.step(state, self.tokens.batch(seed, number))
        self.wait(state)
        return state, time.perf_counter() - began

    def loss(self, state) -> float:
        """The mean of some batches of held-out text."""
        return statistics.mean(self.validate(state, self.held_out.validation(number))
                               for number in range(BATCHES))

    def run(self):
        args = self.args
        if args.rank == 0 and links.rate(args.link):
            links.shape(args.tc, args.link)
        self.agree(0)
        seed = args.seeds[0]
        state, first_call = self.advance(self.start(2**30), seed, 0, 1)
        state, seconds = self.advance(state, seed, 1, WARM_UP)
        timed = self.agree(min(TIMED, max(
            FEWEST_TIMED, TIMED_SECONDS * (WARM_UP - 1) / seconds)))
        # As steps of the training: none waits for the one before.
        state, seconds = self.advance(state, seed, WARM_UP, WARM_UP + timed)
        del state
        count = self.agree(max(LOOKS, args.minutes * 60 * timed / seconds))
        for seed in args.seeds:
            result = self.train(seed, count)
            if args.rank == 0:
                result_path(args.run, args.row, args.link, seed).write_text(
                    json.dumps(result | {"first": first_call}))
        self.agree(0)

    def train(self, seed: int, count: int) -> dict:
        """Trains so many steps from the first state; returns what is measured."""
        args = self.args
        state = self.start(count)
        curve, clock, sent = [(0.0, 0, self.loss(state))], 0.0, 0
        for look in range(LOOKS):
            done, next_look = (count * part // LOOKS
                               for part in (look, look + 1))
            before = links.sent_bytes()
            state, spent = self.advance(state, seed, done, next_look)
            sent += links.sent_bytes() - before
            clock += spent
            curve.append((clock, next_look, self.loss(state)))
            if args.rank == 0:
                print(f"[{time.strftime('%H:%M:%S')}] {args.row}, {args.link}, "
                      f"order {seed}: step {next_look} of {count}, {clock:.0f} s, "
                      f"held-out loss {curve[-1][2]:.4f}", flush=True)
        return {"row": args.row, "link": args.link, "seed": seed, "minutes": args.minutes,
                "curve": curve, "sent": sent / count, "step": clock / count,
                "tokens": count * self.exported.sequences
                * self.exported.of["config"]["context"],
                "peak": self.peak_bytes()}


class JaxTraining(Training):
    """An exported step, or the one that jax.jit makes."""

    def __init__(self, args):
        super().__init__(args)
        import jax
        import zpp
        self.jax = jax
        if self.on_cpu:
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_num_cpu_devices", self.exported.ranks)
        else:
            jax.distributed.initialize(
                f"localhost:{args.port}", self.exported.ranks, args.rank,
                local_device_ids=[launch.device_of(args.rank)])
        self.trainer = self.exported.trainer()
        variant = self.exported.variants[self.name]
        self.loaded = zpp.load(self.folder / variant.path) if variant.path else None
        self.call = self.loaded or jax.jit(self.trainer.step, donate_argnums=0)
        self.init, _ = worker.on_device(self.trainer, self.exported.sequences)
        validator = self.exported.trainer(accumulate=1)
        self.measure = jax.jit(lambda state, batch: validator.step(state, batch)[1])

    def place(self, value: np.ndarray, leaf):
        """An array of all processes from one that each of them has whole."""
        return self.jax.make_array_from_callback(
            value.shape, leaf.sharding, lambda index: value[index])

    def batch(self, tokens: np.ndarray):
        return self.place(tokens, self.trainer.abstract_batch(len(tokens)))

    def start(self, last_step: int) -> dict:
        if self.loaded is not None:
            self.loaded.state = None
        state = self.init()
        leaf = self.trainer.abstract_state()["last_step"]
        return state | {"last_step": self.place(np.int32(last_step), leaf)}

    def step(self, state, tokens):
        return self.call(state, self.batch(tokens))[0]

    def validate(self, state, tokens):
        return float(self.measure(state, self.batch(tokens)))

    def wait(self, state):
        self.jax.block_until_ready(state)

    def agree(self, count):
        from jax.experimental import multihost_utils
        return int(multihost_utils.broadcast_one_to_all(np.int32(count)))

    def peak_bytes(self):
        memory = self.jax.local_devices()[0].memory_stats() or {}
        return memory.get("peak_bytes_in_use", 0)


class TorchTraining(Training):
    """The same model and schedule under FSDP2; its state is model and optimizer."""

    def __init__(self, args):
        super().__init__(args)
        import torch
        self.torch = torch
        self.config = self.exported.of["config"]
        self.device = peer.join_group(args.rank, self.exported.ranks, args.port,
                                      self.on_cpu)

    def start(self, last_step):
        model = peer.make_model(self.config, self.device)
        peer.shard(model, peer.PEERS[self.name], self.config, self.device.type)
        optimizer = self.torch.optim.Adam(
            model.parameters(), self.config["learning_rate"], betas=(0.9, 0.99), fused=True)
        warm_up = max(1, last_step / 8)

        def part(done: int) -> float:
            """That of examples/gpt.py, whose first step has number one."""
            fall = (done + 1 - warm_up) / (last_step - warm_up)
            return min((done + 1) / warm_up, 0.5 + 0.5 * math.cos(math.pi * fall))
        return model, optimizer, self.torch.optim.lr_scheduler.LambdaLR(optimizer, part)

    def loss_of(self, model, tokens: np.ndarray):
        own = len(tokens) // self.exported.ranks
        return model(self.torch.from_numpy(
            tokens[self.args.rank * own:][:own].astype(np.int64)).to(self.device))

    def step(self, state, tokens):
        model, optimizer, schedule = state
        self.loss_of(model, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        return state

    def validate(self, state, tokens):
        with self.torch.no_grad():
            loss = self.loss_of(state[0], tokens)
        self.torch.distributed.all_reduce(loss)
        return loss.item() / self.exported.ranks

    def wait(self, state):
        if not self.on_cpu:
            self.torch.cuda.synchronize()

    def agree(self, count):
        said = self.torch.tensor(int(count), device=self.device)
        self.torch.distributed.broadcast(said, 0)
        return int(said)

    def peak_bytes(self):
        return 0 if self.on_cpu else self.torch.cuda.max_memory_allocated()


# Table -------------------------------------------------------------------


def read_results(folder: pathlib.Path) -> dict[str, dict[str, list[dict]]]:
    """Link -> row -> the runs of all orders of the data."""
    found: dict[str, dict[str, list[dict]]] = {}
    for path in sorted((folder / "results").glob("*.json")):
        result = json.loads(path.read_text())
        found.setdefault(result["link"], {}).setdefault(
            result["row"], []).append(result)
    return {link: {row: rows[row] for row in ROWS if row in rows}
            for link, rows in found.items()}


def seconds_until(curve: list, loss: float) -> float | None:
    """The time at which a curve has reached a loss; None if it has not."""
    for (start, _, before), (end, _, after) in zip(curve, curve[1:]):
        if after <= loss:
            part = (before - loss) / (before - after) if after < before else 1
            return start + max(0.0, part) * (end - start)
    return None


def beside(row: str, step: str) -> str:
    """The row of a step with as many micro-batches as `row` has; empty if none is like
    it."""
    if row in TORCH:
        return TORCH[0] if step == steps.JITTED else ""
    return next(name for name, of in ROWS.items() if of == (ROWS[row][0], step))


def seconds_to(runs: list[dict], others: list[dict]) -> float | None:
    """The mean time after which `runs` have the last loss of `others`; None if one of
    them never has, or if there are no others."""
    if not others:
        return None
    goal = statistics.mean(run["curve"][-1][2] for run in others)
    times = [seconds for run in runs if (
        seconds := seconds_until(run["curve"], goal)) is not None]
    return statistics.mean(times) if len(times) == len(runs) else None


def print_tables(results: dict[str, dict[str, list[dict]]], target: float = 0):
    """Prints a table for each link. With a target, it has by how much the mean is below
    it, times the root of the number of trainings, as public speedruns ask for."""
    for link, rows in results.items():
        print(f"\n{link}\n")
        claim = [f"({target} - mean) * sqrt(n)"] if target else []
        table = Table(["training", "ms per step", "steps", "M tokens",
                       "GB between nodes per step", "seconds", "held-out loss",
                       "smallest, largest", "sigma", *claim,
                       "has FSDP's last loss after", "that of FSDP, gathered once"])
        for row, runs in rows.items():
            def mean(value, runs=runs):
                return statistics.mean(map(value, runs))
            last = [run["curve"][-1][2] for run in runs]
            reached = [seconds_to(runs, rows.get(beside(row, step), []))
                       for step in (steps.JITTED, steps.KEPT)]
            table.row([
                row, f"{mean(lambda run: run['step']) * 1e3:.1f}",
                f"{mean(lambda run: run['curve'][-1][1]):.0f}",
                f"{mean(lambda run: run['tokens']) / 1e6:.1f}",
                f"{mean(lambda run: run['sent']) / 1e9:.2f}",
                f"{mean(lambda run: run['curve'][-1][0]):.0f}",
                f"{statistics.mean(last):.3f}",
                *((f"{min(last):.3f}, {max(last):.3f}", f"{statistics.stdev(last):.4f}")
                  if len(last) > 1 else ("", "")),
                *(f"{(target - statistics.mean(last)) * len(last) ** 0.5:.4f}"
                  for _ in claim),
                *("" if seconds is None else f"{seconds:.0f} s"
                  for seconds in reached)])


def picture(row: str) -> str:
    """The name of the picture that a row is in."""
    return "torch" if row in TORCH else f"k{ROWS[row][0]}"


def draw(results: dict[str, dict[str, list[dict]]], path: pathlib.Path) -> list[pathlib.Path]:
    """Draws the losses of each link and number of micro-batches over the time of the
    training. Returns the files."""
    written = []
    for link, rows in results.items():
        for name in sorted({picture(row) for row in rows}):
            file = path.with_name(f"{path.stem}-{link}-{name}.svg")
            file.write_text(curves.draw(
                f"Loss by seconds of training, {link}", {
                    row: [[(seconds, loss) for seconds, _, loss in run["curve"][1:]]
                          for run in runs]
                    for row, runs in rows.items() if picture(row) == name}))
            written.append(file)
    return written


def main():
    parser = stages.parser(__doc__, needs_stage=False)
    parser.add_argument("--data", type=pathlib.Path, nargs="+", default=[],
                        metavar="FILE", help="files of GPT-2's tokens instead of --text;\n"
                        "those with \"val\" in their name are held out.\nWithout a "
                        "stage: all three, in ./time-to-loss")
    parser.add_argument("--platform", choices=("cuda", "cpu"), default="cuda",
                        help="export for these devices")
    parser.add_argument("--model", default="0.35 B", choices=MODELS,
                        help="export the example model in this size")
    parser.add_argument("--gpus-per-node", type=int, default=1, metavar="N",
                        help="export for two nodes of so many")
    parser.add_argument("--link", default="50gbit",
                        help="Ngbit, shared or nvlink")
    parser.add_argument("--minutes", type=float, default=2,
                        help="of training, for each row and order")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N",
                        help="of the order of the data: a training for each")
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="ROW",
                        default=list(ROWS), help="train or show these rows")
    parser.add_argument("--target", type=float, default=0, metavar="LOSS",
                        help="say how surely the held-out loss is below")
    parser.add_argument("--tc", default="tc", help="the program, with options")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE")
    # The process of a rank.
    for name, kind in (("row", str), ("rank", int), ("port", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    links.rate(args.link)  # Exits if there is no such link.
    if args.row:
        training = TorchTraining if args.row in TORCH else JaxTraining
        launch.run_rank(lambda: training(args).run())
        return
    if not (args.export or args.run or args.table):
        if not args.data:
            parser.error("expected --export, --run, --table or --data, but got none")
        args.export = args.run = args.table = pathlib.Path("time-to-loss")
    if args.export and not (args.data or args.text):
        parser.error("expected --data or --text to train on, but got neither")
    if args.export:
        export(args)
    if args.run:
        run(args)
    if args.table:
        results = {link: {row: runs for row, runs in rows.items()
                          if row in args.rows}
                   for link, rows in read_results(args.table).items()}
        print_tables(results, args.target)
        path = args.plot or args.table / "time-to-loss.svg"
        print("\nplots:", *draw(results, path))


if __name__ == "__main__":
    main()
