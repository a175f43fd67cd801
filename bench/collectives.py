# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized collectives beside NCCL's own, on two nodes.

    python bench/collectives.py [--zpp-perf build/bin/zpp-perf] [--links ...]

starts zpp-perf with a process for each of a host's GPUs, which play two nodes
of --gpus-per-node (bench/links.py), and prints one table. Times are zpp-perf's:
means over iterations, the slowest rank, the median of five. NCCL's time is from
the same processes, just after. "host" is until all is queued. A case that fails
is told in the end, after the others.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import links

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: What is measured: collective, options of zpp-perf.
CASES = {
    "reduce_scatter i8:i4": ["reduce_scatter", "--format=i8:i4"],
    "reduce_scatter i8:i4, 4 stages": ["reduce_scatter", "--format=i8:i4",
                                       "--stages=4"],
    "reduce_scatter i8, one hop": ["reduce_scatter", "--format=i8"],
    "all_gather i8": ["all_gather", "--format=i8"],
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--zpp-perf", type=pathlib.Path,
                        default=ROOT / "build" / "bin" / "zpp-perf")
    parser.add_argument("--gpus-per-node", type=int, default=2, metavar="N")
    parser.add_argument("--links", nargs="+", default=["100gbit", "nvlink"])
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

    links.prepare_launch()
    failures = []
    cases = {name: case for name, case in CASES.items()
             if not args.cases or any(word in name for word in args.cases)}
    rows = []
    print(f"{'link':8} {'collective':32} {'bytes':>11} {'usec':>10} "
          f"{'host usec':>10} {'NCCL usec':>10} {'ratio':>6} {'error':>9}",
          flush=True)
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
                    print(f"{link:8} {name:32} {row['bytes']:11d} "
                          f"{row['usec']:10.1f} {row['host_usec']:10.1f} "
                          f"{row['plain_usec']:10.1f} "
                          f"{row['ratio']:6.2f} {row['error']:9.2e}",
                          flush=True)
        finally:
            if links.rate(link):
                links.shape(args.tc, None)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1))
    if failures:
        sys.exit("\n".join(failures))


def measure(args, link: str, name: str, case: list[str]) -> list[dict]:
    """The rows of zpp-perf's table."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(args.zpp_perf), *case, "--backend=cuda",
        f"--mesh=node:{links.NODES},gpu:{args.gpus_per_node}",
        f"--bytes={args.bytes}", f"--block={args.block}",
        f"--iterations={args.iterations}", f"--rendezvous=127.0.0.1:{port}",
        "--time-limit-usec=30000000"]
    if args.trace:
        args.trace.mkdir(parents=True, exist_ok=True)
        word = "".join(c if c.isalnum() else "-" for c in f"{link}-{name}")
        command.append(f"--trace={args.trace / word}.json")
    ranks = links.NODES * args.gpus_per_node
    processes = [
        subprocess.Popen(
            command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ |
            links.environment(rank, args.gpus_per_node, link != "nvlink") |
            {"RANK": str(rank), "LOCAL_RANK": str(rank),
             "WORLD_SIZE": str(ranks)})
        for rank in range(ranks)]
    end = time.monotonic() + 300
    try:
        texts = [process.communicate(timeout=max(1, end - time.monotonic()))
                 for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise RuntimeError(
            f"expected zpp-perf to end with 0, but got "
            f"{[process.returncode for process in processes]}\n" +
            "".join(output + error for output, error in texts))
    rows = []
    # NCCL_DEBUG writes among them.
    for line in texts[0][0].splitlines():
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
