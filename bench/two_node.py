# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training step as FSDP and as ZeRO++, on two nodes.

    python bench/two_node.py [--tiny] [--platform cpu] [--links 50gbit nvlink]

exports the step of the example GPT for a mesh of 2 nodes x 2 GPUs
(--gpus-per-node) as it is, rewritten with all of ZeRO++ in portable StableHLO
(a), and rewritten for the runtime (b) with each technique and with all of them.
"0.52 M (b)" has weights=i4:delta besides, whose first step sends whole weights.
Gradients are int4 on the slow links, also with one GPU per node, where these are the
only hop of a scatter; "0.77 M (b)" keeps whole weights there. "jit (b)" is the step
with shardings alone, whose collectives XLA makes. Then it trains all of these from
the same weights on the same batch, and prints a table. Steps that were exported into
--log before, with the same options and at the same commit, are used again.

--model wide has layers four times as large, 6 of 0.4 GB, and four times as many
tokens; --scan has them in a loop.

--kind HSDP and --kind DDP do the same with weights that are replicated between
the nodes, or on all GPUs: what crosses the links is the gradients' all-reduce.
With --kind ZeRO-1 and ZeRO-2 weights are replicated, and each device updates a
slice, which is then gathered ("updated i8": as by how much it has changed).

--kind TP splits heads and hidden units over the GPUs of a node, whose activations XLA
sums there; weights are partitioned between the nodes.

--kind MoE has eight experts in each layer, which lie on all GPUs, and two of which each
token goes to: its row is exchanged ("exchanges i8": in int8). "0.09 B" has 0.49 B
weights then.

--optimizer muon gathers momenta besides, which "moments i8" has in int8.

--micro-batches has ZeRO++ cross the slow links once per update: accumulate=gpu,
and secondary=1 where nodes have one GPU, or with TP. Replicated weights need this
for "jit (b)" only: the other steps sum the gradients of all micro-batches before
they all-reduce them.

If the compiler and the GPUs are on different machines:

    python bench/two_node.py --export DIR    # needs zpp-opt, but no GPU
    python bench/two_node.py --run DIR       # needs GPUs and the runtime library

Both need the same version of JAX, with `flatbuffers`. Shaped links need root.

The GPUs of one host play two nodes (bench/lab/links.py); each GPU has its own
process. With fewer GPUs than ranks, ranks share a GPU. Other NCCL_* variables and
XLA_FLAGS are taken from the environment. The
output of the ranks, traces and the raw numbers go to --log.

--platform cpu does the same on CPU devices, to check the script. It uses as many
processes, but only one for steps in which the runtime communicates, because the
runtime's back end for CPU devices works within one process.

Each step is timed separately, on rank 0, from the call until all its results are
there. The table has for each link:

  speed-up   compared with FSDP (or the kind of the step)
  busy       the part of the step that the measured bytes take at the link's rate
  exposed    how long the device's compute stood still in waits for collectives:
             the mean of all devices, in a few additional steps that are traced,
             and as a part of the step. There is no such trace if XLA
             communicates; "~" marks an estimate, the time by which the step
             exceeds the compute of "all (b)", which is that step without its
             exposed communication.

  planned    what `zpp plan` says, of steps that were exported with --plan

"reported" is what all devices together send between the nodes per step as
zpp-opt's report counts it, "measured" is what the loopback device counted.
"""

import argparse
import json
import pathlib
import re
import sys

from lab import launch, links, results, steps

LIMIT_SECONDS = 540


def main():
    args = parse_arguments()
    if args.run:
        exported = steps.read(args.run)
    else:
        of = steps.describe(
            args.model, args.gpus_per_node, args.platform, layers=args.layers,
            sequences=args.sequences, scan=args.scan, tiny=args.tiny,
            kind=args.kind, micro_batches=args.micro_batches,
            words=args.variants, optimizer=args.optimizer, plan={
                "device": args.plan, "scale": args.compute_scale,
                "links": args.links} if args.plan else None)
        if args.export:
            steps.export(of, args.export)
            return
        exported = steps.export_once(of, args.log / "steps")
    measured = run_all(args, exported)
    if not any(measured.values()):
        sys.exit("expected a step to run on one of the links, but got none")
    of = exported.of
    gpu = launch.describe_gpu(exported.ranks) if of["platform"] == "cuda" else "CPU"
    print(f"\n{exported.parameters / 1e9:.2f} B parameters, "
          f"{of['sequences']} x {of['config']['context']} tokens per device; "
          f"{gpu}; JAX {of['jax']}; steps exported at {of['commit']}; median "
          f"of {args.steps} steps after {args.warm_up}"
          f"{f', in {args.rounds} rounds' if args.rounds > 1 else ''}\n")
    results.print_tables(exported, measured)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    stage = parser.add_mutually_exclusive_group()
    stage.add_argument("--export", type=pathlib.Path, metavar="DIR",
                       help="only export, to this folder")
    stage.add_argument("--run", type=pathlib.Path, metavar="DIR",
                       help="only run what was exported to this folder")
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"),
                        help="export for these devices")
    parser.add_argument("--tiny", action="store_true",
                        help="export a model of two narrow layers")
    parser.add_argument("--model", default="0.88 B", choices=steps.MODELS,
                        help="export the example model in this size")
    parser.add_argument("--scan", action="store_true",
                        help="export a step whose layers are a lax.scan")
    parser.add_argument("--layers", type=int, metavar="N",
                        help="export a model of N layers")
    parser.add_argument("--kind", default="FSDP", choices=steps.REPLICATED,
                        help="export a step that is parallel so")
    parser.add_argument("--optimizer", default="adam", choices=("adam", "muon"),
                        help="export a step that updates weights so")
    parser.add_argument("--gpus-per-node", type=int, default=2, metavar="N",
                        help="export for two nodes of N GPUs")
    parser.add_argument("--sequences", type=int, metavar="N",
                        help="export for N sequences per device")
    parser.add_argument("--links", nargs="+", default=[
        "25gbit", "50gbit", "100gbit", "shared", "nvlink"], metavar="LINK",
        help="Ngbit, shared or nvlink")
    parser.add_argument("--micro-batches", type=int, default=1, metavar="N",
                        help="export steps of N micro-batches, each of so many "
                             "sequences")
    parser.add_argument("--variants", nargs="+", metavar="WORD",
                        help="export or run the steps whose name has one of "
                             "these words,\nbeside FSDP when exporting")
    parser.add_argument("--plan", metavar="DEVICE",
                        help="export with the times of this device that are predicted"
                        "\nfor --links, but not for shared, which nobody knows")
    parser.add_argument("--compute-scale", type=float, default=1.0, metavar="F",
                        help="factor on the predicted time of compute")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N",
                        help="steps before the timed ones")
    parser.add_argument("--steps", type=int, default=10, metavar="N",
                        help="timed steps")
    parser.add_argument("--rounds", type=int, default=1, metavar="N",
                        help="train all steps N times, in turn; the table shows"
                        "\nhow much the speed-ups of the rounds differ")
    parser.add_argument("--tc", default="tc", help="the program, with options")
    parser.add_argument("--log", type=pathlib.Path, default="two-node-log",
                        metavar="DIR",
                        help="folder for the ranks' output and raw numbers")
    args = parser.parse_args()
    for link in args.links:
        links.rate(link)  # Exits if there is no such link.
    return args


def run_all(args, exported: steps.Steps) -> dict[str, dict[str, dict]]:
    """Trains the chosen steps on all links; see lab.results."""
    launch.prepare()
    links.check(args.tc, args.links)
    args.log.mkdir(parents=True, exist_ok=True)
    rounds: dict[str, dict[str, list[dict]]] = {link: {} for link in args.links}
    for _ in range(args.rounds):
        for name, variant in exported.chosen(args.variants).items():
            suited = [link for link in args.links
                      if link in (variant.links or args.links)]
            for on_links in links.by_kind(suited):
                found = run_step(args, exported, name, on_links)
                for link, result in found.items():
                    rounds[link].setdefault(name, []).append(result)
    measured = {link: {name: results.join(runs) for name, runs in named.items()}
                for link, named in rounds.items()}
    for runs in measured.values():
        results.add_exposed(exported, runs)
    (args.log / "results.json").write_text(json.dumps(measured, indent=1))
    return measured


def run_step(args, exported: steps.Steps, name: str, on_links: list[str]
             ) -> dict[str, dict]:
    """Trains a step on links of one kind, in processes of its own, so that the peak
    of memory is its own too. Returns the results by link."""
    on_cpu = exported.of["platform"] == "cpu"
    is_one_process = on_cpu and exported.variants[name].is_runtime
    count = 1 if is_one_process else exported.ranks
    label = re.sub("[^a-zA-Z0-9]+", "-", f"{name} {links.kind(on_links[0])}")
    written = args.log / f"{label}.json"
    command = [
        sys.executable, "-m", "lab.worker", "--steps-folder", exported.folder,
        "--variant", name, "--links", *on_links, "--warm-up", args.warm_up,
        "--timed", args.steps, "--tc", args.tc, "--port", launch.free_port(),
        "--processes", count, "--results", written,
        "--traces", args.log / label]
    environment = launch.environment(on_cpu) | {
        "JAX_COMPILATION_CACHE_DIR": str(args.log / "cache")}
    processes = [
        launch.Process(
            [*command, "--rank", rank], environment | links.environment(
                rank, count, exported.ranks // links.NODES, on_links[0]),
            args.log / f"{label}-{rank}.txt")
        for rank in range(count)]
    try:
        launch.run(processes, LIMIT_SECONDS, launch.show)
    except RuntimeError as error:
        sys.exit(str(error))
    finally:
        if any(map(links.rate, on_links)):
            links.shape(args.tc, None)
    return json.loads(written.read_text())


if __name__ == "__main__":
    main()
