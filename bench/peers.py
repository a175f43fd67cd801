#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training step with zpp beside what else there is: JAX FSDP, PyTorch's FSDP2,
DeepSpeed ZeRO-3, DeepSpeed ZeRO++ and the latter on zpp's exchanges.

    python bench/peers.py [--links 50gbit nvlink] [--peers FSDP2]

trains the example GPT (examples/gpt.py, and the same in PyTorch) with each of them
on two nodes, and prints a table. All have bf16 weights and gradients on the wire,
where nothing is quantized, f32 master weights, Adam, and a checkpoint around each
layer. Nobody compiles the model in PyTorch.

--kind HSDP does the same with weights that are replicated between the nodes, without
DeepSpeed.

The GPUs of one host play two nodes (bench/lab/links.py); each GPU has its own
process. With fewer GPUs than ranks, ranks share a GPU. Shaped links need root. What
is not installed is skipped; the last lines say what and why. zpp needs its wheel, or
$ZPP_OPT, $ZPP_RT and $ZPP_XLA.
DeepSpeed compiles kernels when it is first used, for TORCH_CUDA_ARCH_LIST.

Each step is timed separately, on rank 0, from the call until all its results are
there. A peer trains on the links in turn. The table has for each link the median,
and for those of two nodes what the loopback device counted per step; then the peak
of a GPU's memory, as the framework counts what is allocated, and the loss on one
batch, the mean over all GPUs, after the steps on the first link.

--platform cpu does the same on CPU devices, to check the script: with PyTorch and
gloo in as many processes, with JAX in one, and without DeepSpeed.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

from lab import launch, links, results
from lab.peer import PEERS, Peer
from lab.steps import REPLICATED
from lab.tables import Table

LIMIT_SECONDS = 400
#: Times as many steps on NVLink, where they are short.
NVLINK_STEPS = 3
#: Peers that the others are compared with, by framework.
BASELINES = {"jax": "JAX FSDP", "torch": "FSDP2"}
MODEL = {"layers": 16, "width": 2048, "heads": 16, "vocab": 32000,
          "context": 2048, "learning_rate": 1e-4}
#: The width of a head where --width is given.
HEAD = 128
TINY = {"layers": 2, "width": 128, "heads": 4, "vocab": 512, "context": 64}


def main():
    args = parse_arguments()
    launch.prepare()
    links.check(args.tc, args.links)
    args.log.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in PEERS
              if not args.peers or any(word in name for word in args.peers)]
    absent = {name: reason for name in chosen
              if (reason := why_absent(args, PEERS[name]))}
    rounds: dict[str, dict[str, list]] = {link: {} for link in args.links}
    failed = []
    for _ in range(args.rounds):
        for name in chosen:
            if name in absent or name in failed:
                continue
            try:
                for link, result in run_peer(args, name):
                    rounds[link].setdefault(name, []).append(result)
            except RuntimeError as error:
                failed.append(name)
                print(f"{name}: {error}", flush=True)
    measured = {link: {name: results.join(runs) for name, runs in named.items()}
                for link, named in rounds.items()}
    (args.log / "results.json").write_text(json.dumps(measured, indent=1))
    if any(measured.values()):
        show(args, measured)
    for name, reason in absent.items():
        print(f"{name}: skipped; {reason}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if not any(measured.values()):
        sys.exit("expected a peer to run on one of the links, but got none")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true",
                        help="a model of two narrow layers")
    parser.add_argument("--layers", type=int, metavar="N",
                        help="default: 16")
    parser.add_argument("--width", type=int, metavar="N",
                        help=f"a multiple of {HEAD}, with heads of {HEAD}; default: "
                        f"2048.\nWith 6 layers, 4096 is a model of 1.35 B")
    parser.add_argument("--kind", default="FSDP", choices=("FSDP", "HSDP"),
                        help="how weights lie")
    parser.add_argument("--gpus-per-node", type=int, default=1, metavar="N")
    parser.add_argument("--sequences", type=int, default=1, metavar="N",
                        help="per device")
    parser.add_argument("--micro-batches", type=int, default=1, metavar="N",
                        help="of a step; with PyTorch's FSDP2 only")
    parser.add_argument("--links", nargs="+",
                        default=["50gbit", "100gbit", "nvlink"], metavar="LINK",
                        help="Ngbit, shared or nvlink")
    parser.add_argument("--peers", nargs="+", metavar="WORD",
                        help="run the peers whose name has one of these words:"
                        f"\n{', '.join(PEERS)}")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N",
                        help="steps before the timed ones")
    parser.add_argument("--steps", type=int, default=10, metavar="N",
                        help=f"timed steps; {NVLINK_STEPS} times as many on "
                        "NVLink")
    parser.add_argument("--rounds", type=int, default=1, metavar="N",
                        help="train with all N times, in turn; the table shows"
                        "\nhow much the speed-ups of the rounds differ")
    parser.add_argument("--tc", default="tc", help="the program, with options")
    parser.add_argument("--torch-python", default=sys.executable,
                        metavar="PYTHON", help="the Python that has PyTorch")
    parser.add_argument("--log", type=pathlib.Path, default="peers-log",
                        metavar="DIR",
                        help="folder for the ranks' output and raw numbers")
    args = parser.parse_args()
    for link in args.links:
        links.rate(link)  # Exits if there is no such link.
    args.ranks = links.NODES * args.gpus_per_node
    args.config = MODEL | (TINY if args.tiny else {}) | {
        "mesh": [["node", links.NODES], ["gpu", args.gpus_per_node]],
        "replicated": REPLICATED[args.kind]}
    if args.layers:
        args.config["layers"] = args.layers
    if args.width:
        if args.width % HEAD:
            sys.exit(f"--width: expected a multiple of {HEAD}, but got {args.width}")
        args.config |= {"width": args.width, "heads": args.width // HEAD}
    return args


def python_of(args, peer: Peer) -> str:
    return args.torch_python if peer.framework == "torch" else sys.executable


def why_absent(args, peer: Peer) -> str:
    """Why a peer cannot run here; empty if it can."""
    if args.platform == "cpu" and peer.zero:
        return "DeepSpeed is not run on CPU devices"
    if args.kind == "HSDP" and peer.zero:
        return "it is trained with FSDP only here"
    if args.kind == "HSDP" and (peer.options or {}).get("secondary"):
        return "with HSDP no weights cross the nodes"
    if args.micro_batches > 1 and (peer.framework == "jax" or peer.zero):
        return "it is trained without micro-batches here"
    for module in (peer.framework, *peer.needs):
        code = (f"import importlib.util as u, sys; "
                f"sys.exit(u.find_spec('{module}') is None)")
        if subprocess.run([python_of(args, peer), "-c", code],
                          check=False).returncode != 0:
            return f"{module} is not installed"
    return ""


def run_peer(args, name: str) -> Iterator[tuple[str, dict]]:
    """Trains on each link. Returns links and results."""
    for on_links in links.by_kind(
            link for link in args.links if link in (PEERS[name].link or args.links)):
        yield from run_processes(args, name, on_links).items()


def run_processes(args, name: str, on_links: list[str]) -> dict[str, dict]:
    """Trains on links of one kind in processes of their own. Returns the results by
    link."""
    peer = PEERS[name]
    on_cpu = args.platform == "cpu"
    count = 1 if on_cpu and peer.framework == "jax" else args.ranks
    where = links.kind(on_links[0])
    label = re.sub("[^a-zA-Z0-9]+", "-", f"{name} {where}")
    written = args.log / f"{label}.json"
    command = [
        python_of(args, peer), "-m", "lab.peer", "--peer", name, "--config",
        json.dumps(args.config), "--sequences", args.sequences, "--platform",
        args.platform, "--micro-batches", args.micro_batches, "--links", *on_links,
        "--warm-up", args.warm_up, "--timed",
        args.steps * (NVLINK_STEPS if where == "nvlink" else 1), "--tc", args.tc, "--port",
        launch.free_port(), "--ranks", args.ranks, "--processes", count, "--results", written]
    environment = launch.environment(on_cpu) | {
        "JAX_COMPILATION_CACHE_DIR": str(args.log / "cache")}
    processes = [
        launch.Process(
            [*command, "--rank", rank], environment | links.environment(
                rank, count, args.gpus_per_node, on_links[0]),
            args.log / f"{label}-{rank}.txt")
        for rank in range(count)]
    try:
        launch.run(processes, LIMIT_SECONDS, launch.show)
    finally:
        if any(map(links.rate, on_links)):
            links.shape(args.tc, None)
    return json.loads(written.read_text())


def show(args, measured: dict[str, dict[str, dict]]):
    gpu = launch.describe_gpu(args.ranks) if args.platform == "cuda" else "CPU"
    versions = ", ".join(filter(None, map(
        lambda package: version_of(package, args),
        ("jax", "torch", "deepspeed"))))
    print(f"\n{args.config['layers']} layers of width {args.config['width']}, "
          f"{args.sequences} x {args.config['context']} tokens per device"
          f"{f', {args.micro_batches} times' if args.micro_batches > 1 else ''}, "
          f"{args.kind}, {links.NODES} nodes x {args.gpus_per_node}; {gpu}; {versions}; "
          f"median of {args.steps} steps after {args.warm_up}, on NVLink of "
          f"{NVLINK_STEPS * args.steps}"
          f"{f', in {args.rounds} rounds' if args.rounds > 1 else ''}\n")
    names = [name for name in PEERS
             if any(name in runs for runs in measured.values())]
    header = ["step", "measured"]
    for link in measured:
        header += [link, "speed-up"]
    table = Table(header + ["peak memory", "loss, first",
                            f"after {args.warm_up + args.steps}"])
    for name in names:
        baseline = BASELINES[PEERS[name].framework]
        runs = {link: found[name] for link, found in measured.items()
                if name in found}
        between = [run for link, run in runs.items() if link != "nvlink"]
        row = [name, f"{between[0]['bytes'] / 1e9:.2f} GB" if between else "-"]
        for found in measured.values():
            row += ([f"{results.median(found[name]) * 1e3:.1f} ms",
                     results.speed_up(found, name, [baseline]) or "-"]
                    if name in found else ["-", "-"])
        first = next(iter(runs.values()))
        table.row(row + [
            f"{max(run['peak'] for run in runs.values()) / 2**30:.2f} GiB",
            f"{first['losses'][0]:.4f}", f"{first['losses'][-1]:.4f}"])
    results.print_lost(names, measured)


def version_of(package: str, args) -> str:
    code = f"import importlib.metadata as m; print(m.version('{package}'))"
    python = sys.executable if package == "jax" else args.torch_python
    process = subprocess.run([python, "-c", code], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True, check=False)
    return f"{package} {process.stdout.strip()}" if process.stdout else ""


if __name__ == "__main__":
    main()
