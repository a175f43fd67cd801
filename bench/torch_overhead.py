#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost of zpp.torch on fast links: FSDP2's step without and with it, in
the same processes.

    python bench/torch_overhead.py [--gpus N] [--steps N] [--rounds N]

trains the GPT of bench/peers.py on the GPUs of one host, with NVLink. In each round
zpp is switched on and off between a few steps, so that what differs between
processes, machines and seconds does not matter. A round begins and ends with FSDP2:
a time is compared with the mean of both, and their own ratio shows how exact that
is. Prints a table of the medians over all rounds, the middle half of the ratios, and
the fastest rounds, which other work on the host disturbed least.

--platform cpu does the same with gloo on the CPU, to check the script.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

from lab import launch, links
from lab.peer import PEERS, TorchTrainer
from lab.tables import Table
from peers import MODEL, TINY

LIMIT_SECONDS = 400
OFF = {"weights": "none", "gradients": "none"}
#: Options of zpp.
VARIANTS: dict[str, dict[str, Any]] = {
    "FSDP2": OFF, "FSDP2 + zpp, defaults": {},
    "FSDP2 + zpp, everything": {"links": "none"},
    "FSDP2 + zpp, links": {"links": "gpu=400gbyte"},
    "FSDP2 again": OFF}


def main():
    args = parse_arguments()
    if args.rank is not None:
        measure(args)
        return
    launch.prepare()
    port = launch.free_port()
    with tempfile.TemporaryDirectory(prefix="zpp-") as name:
        folder = pathlib.Path(name)
        written = folder / "results.json"
        try:
            launch.run([
                launch.Process(
                    [sys.executable, __file__, *sys.argv[1:], "--rank", rank,
                     "--port", port, "--results", written],
                    launch.environment(args.platform == "cpu") | links.environment(
                        rank, args.gpus, args.gpus, "nvlink"),
                    folder / f"{rank}.txt")
                for rank in range(args.gpus)], LIMIT_SECONDS, launch.show)
        except RuntimeError as error:
            sys.exit(str(error))
        measured = json.loads(written.read_text())
    gpu = launch.describe_gpu(args.gpus) if args.platform == "cuda" else "CPU"
    print(f"\n{gpu}; {args.sequences} x {args.config['context']} tokens per "
          f"device; medians of {args.rounds} rounds of {args.steps} steps\n")
    table = Table(["step", "time", "of FSDP2's", "half of the rounds",
                   "fastest round"])
    plain = list(zip(measured["FSDP2"], measured["FSDP2 again"]))
    for name, rounds in measured.items():
        spread = ["-", "-"]
        if name != "FSDP2":
            ratios = [seconds / (before if name == "FSDP2 again" else
                                 (before + after) / 2)
                      for seconds, (before, after) in zip(rounds, plain)]
            low, ratio, high = statistics.quantiles(ratios, n=4)
            spread = [f"{ratio:.1%}", f"{low:.1%} to {high:.1%}"]
        table.row([name, f"{statistics.median(rounds) * 1e3:.2f} ms", *spread,
                   f"{min(rounds) * 1e3:.2f} ms"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true",
                        help="a model of two narrow layers")
    parser.add_argument("--gpus", type=int, default=2, metavar="N")
    parser.add_argument("--sequences", type=int, default=1, metavar="N",
                        help="per GPU; with one, the host may be slower than a GPU")
    parser.add_argument("--steps", type=int, default=5, metavar="N")
    parser.add_argument("--warm-up", type=int, default=2, metavar="N",
                        help="steps after each switch that are not timed")
    parser.add_argument("--rounds", type=int, default=15, metavar="N")
    for hidden, kind in (("rank", int), ("port", int),
                         ("results", pathlib.Path)):
        parser.add_argument(f"--{hidden}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.ranks = args.gpus
    args.config = MODEL | (TINY if args.tiny else {}) | {
        "mesh": [["node", 1], ["gpu", args.gpus]], "replicated": []}
    return args


def measure(args):
    """As one of the ranks."""
    import zpp.torch
    trainer = TorchTrainer(PEERS["FSDP2"], args)
    measured: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for number in range(args.rounds):
        for name, options in VARIANTS.items():
            zpp.torch.compress(trainer.model, mesh=f"gpu:{args.gpus}",
                               **options)
            seconds = []
            for _ in range(args.warm_up + args.steps):
                start = time.perf_counter()
                trainer.step()
                seconds.append(time.perf_counter() - start)
            measured[name].append(statistics.median(seconds[args.warm_up:]))
        if args.rank == 0:
            print(f"[{time.strftime('%H:%M:%S')}] round {number}: " + ", ".join(
                f"{rounds[-1] * 1e3:.2f}" for rounds in measured.values()),
                flush=True)
    if args.rank == 0:
        args.results.write_text(json.dumps(measured))
    trainer.close()


if __name__ == "__main__":
    main()
