# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized collectives beside NCCL's own, on two nodes.

    python bench/collectives.py [--zpp-perf build/bin/zpp-perf] [--links ...]

runs zpp-perf with one process for each GPU of a host. The GPUs play two nodes of
--gpus-per-node (bench/lab/links.py); with fewer GPUs, processes share them. Prints
one table.

Times are those of zpp-perf: the mean of the iterations, of the slowest rank, the
median of five. NCCL's time is measured in the same processes, directly
afterwards. "host" is the time until everything is queued. Cases that fail are
reported at the end, after the table.
"""

import argparse
import json
import pathlib
import re
import secrets
import sys
import tempfile

import lab
from lab import launch, links
from lab.tables import Table

#: The measurements: collective, options of zpp-perf.
CASES = {
    "reduce_scatter i8:i4": ["reduce_scatter", "--format=i8:i4"],
    "reduce_scatter i8:i4, 4 stages": ["reduce_scatter", "--format=i8:i4",
                                       "--stages=4"],
    "reduce_scatter i8, one hop": ["reduce_scatter", "--format=i8"],
    "all_gather i8": ["all_gather", "--format=i8"],
    "all_reduce i8:i4, back i8": ["all_reduce", "--format=i8:i4"],
    "all_reduce i8:i4, back i8, 4 stages": ["all_reduce", "--format=i8:i4",
                                            "--stages=4"],
    "all_reduce i8:i4, back i4": ["all_reduce", "--format=i8:i4",
                                  "--reduced=i4"],
    "all_reduce i4, one hop, back i8": ["all_reduce", "--format=i4"],
    "all_reduce i8, one hop, back i8": ["all_reduce", "--format=i8"],
}
LIMIT_SECONDS = 300


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--zpp-perf", type=pathlib.Path,
                        default=lab.ROOT / "build" / "bin" / "zpp-perf")
    parser.add_argument("--gpus-per-node", type=int, default=2, metavar="N")
    parser.add_argument("--links", nargs="+", default=["100gbit", "nvlink"],
                        metavar="LINK", help="Ngbit, shared or nvlink")
    parser.add_argument("--cases", nargs="+", metavar="WORD",
                        help="measure those whose name has one of these words")
    parser.add_argument("--bytes", default="64M:256M")
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--trace", type=pathlib.Path, metavar="DIR",
                        help="write timelines for Perfetto there; slower")
    parser.add_argument("--tc", default="tc", help="the program, with options")
    parser.add_argument("--output", type=pathlib.Path, help="write JSON there")
    args = parser.parse_args()

    launch.prepare()
    links.check(args.tc, args.links)
    failures = []
    cases = {name: case for name, case in CASES.items()
             if not args.cases or any(word in name for word in args.cases)}
    rows = []
    table = Table(["link, collective", "bytes", "usec", "host usec",
                   "NCCL usec", "ratio", "error"])
    for link in args.links:
        try:
            if links.rate(link):
                links.shape(args.tc, link)
            for name, case in cases.items():
                try:
                    measured = measure(args, link, name, case)
                except RuntimeError as error:
                    failures.append(f"{link}, {name}: {error}")
                    continue
                for row in measured:
                    rows.append({"link": link, "case": name} | row)
                    table.row([
                        f"{link}, {name}", row["bytes"], f"{row['usec']:.1f}",
                        f"{row['host_usec']:.1f}", f"{row['plain_usec']:.1f}",
                        f"{row['ratio']:.2f}", f"{row['error']:.2e}"])
        finally:
            if links.rate(link):
                links.shape(args.tc, None)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1))
    if failures:
        sys.exit("\n".join(failures))


def measure(args, link: str, name: str, case: list[str]) -> list[dict]:
    """The rows of zpp-perf's table."""
    command = [
        args.zpp_perf, *case, "--backend=cuda",
        f"--mesh=node:{links.NODES},gpu:{args.gpus_per_node}",
        f"--bytes={args.bytes}", f"--block={args.block}",
        f"--iterations={args.iterations}",
        f"--rendezvous=127.0.0.1:{launch.free_port()}",
        "--time-limit-usec=30000000"]
    if args.trace:
        args.trace.mkdir(parents=True, exist_ok=True)
        word = re.sub("[^a-zA-Z0-9]", "-", f"{link}-{name}")
        command.append(f"--trace={args.trace / word}.json")
    ranks = links.NODES * args.gpus_per_node
    token = secrets.token_hex(32)
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            launch.Process(
                command, links.environment(rank, ranks, args.gpus_per_node, link) |
                {"RANK": str(rank), "LOCAL_RANK": str(launch.device_of(rank)),
                 "WORLD_SIZE": str(ranks), "ZPP_TOKEN": token},
                pathlib.Path(folder) / f"{rank}.txt")
            for rank in range(ranks)]
        launch.run(processes, LIMIT_SECONDS)
        output = processes[0].log.read_text()
    rows = []
    # With NCCL_DEBUG, NCCL writes between these lines.
    for line in output.splitlines():
        words = line.split()
        if len(words) != 8 or not words[0].isdigit():
            continue
        count, usec, host, _, _, error, plain, ratio = words
        rows.append({"bytes": int(count), "usec": float(usec),
                     "host_usec": float(host), "plain_usec": float(plain),
                     "ratio": float(ratio), "error": float(error)})
    return rows


if __name__ == "__main__":
    main()
