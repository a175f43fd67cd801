# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torchtitan's own trainer, with one line at the end of the model's function, beside
itself without it.

    python bench/torchtitan_losses.py [--gpus N] [--write]

needs torchtitan 0.3 (pip install torchtitan), or 0.2.2, which runs with PyTorch 2.11 as
well; zpp-opt and the runtime of the wheel or of $ZPP_OPT and $ZPP_RT. Its Trainer
trains its Llama 3 "debugmodel" on four ranks, as two nodes of two, on text of numbers
that count up.

With --gpus, ranks have GPUs, which they may share, and nothing of torchtitan is
changed. Otherwise they are processes with gloo, a smaller model, and these changes,
without which torchtitan does not run on CPUs: it takes "cpu" for the device that there
is, with the number 0; attention is PyTorch's scaled_dot_product_attention, as it is in
0.2.2 anyway, because flex_attention has no backward pass there; gradients are sums, as
gloo knows no others; no memory of the device is watched.

The table has the losses of the last step, the largest difference of a step, and what
a rank sends between nodes. --write puts it into docs/data/training-code.md, which has one of CPUs
and one of GPUs.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import sys
import tempfile
from typing import Any

import lab
from lab import launch, links, titan
from lab.tables import describe_commit, write_between
from trainers import tokens

RANKS = 4
LIMIT_SECONDS = 900

#: Words of `zpp.torch.compress` by how the table names them.
OPTIONS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "i8, i8:i4": {"weights": "i8", "gradients": "i8:i4"},
    "i4:delta, i8:i4": {"weights": "i4:delta", "gradients": "i8:i4"}}
#: Fields of torchtitan's parallelism, and the micro-batches.
SETUPS = {
    "FSDP": {},
    "FSDP between nodes, tensor parallelism within": {"tensor_parallel_degree": 2},
    "FSDP, two micro-batches": {"micro_batches": 2},
    "HSDP": {"data_parallel_replicate_degree": 2}}


# A rank ----------------------------------------------------------------------------


def work(args) -> None:
    """Trains with one of --options after the other; the first rank writes what it
    found after each."""
    if not args.gpus:
        titan.run_on_cpu()
    from torchtitan.tools.logging import init_logger
    init_logger()
    found = {}
    for name in args.options:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = train(args, OPTIONS[name], folder)
        if os.environ["RANK"] == "0":
            args.result.write_text(json.dumps(found))


def train(args, options: dict[str, Any] | None, folder: str) -> dict:
    """Losses of all ranks' batches by step, and the bytes that this one sent."""
    import torch
    from torch.distributed.fsdp import FSDPModule

    import zpp.torch
    parallelism = dict(SETUPS[args.setup])
    micro_batches = parallelism.pop("micro_batches", 1)
    ranks = RANKS // parallelism.get("tensor_parallel_degree", 1)

    def finish(model):
        for module in model.modules():
            if not args.gpus and isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
        if options is not None:
            # The line.
            zpp.torch.compress(model, mesh="node:2,gpu:2", links="none",
                               **options)

    def batch_of(number):
        return tokens(number, (args.batch, args.length + 1), titan.VOCABULARY)

    trainer, attention = titan.make_trainer(titan.Run(
        batch_of, args.steps, args.length, args.batch, args.batch * ranks * micro_batches,
        parallelism, folder, None if args.gpus else args.layers), finish)
    losses = []
    log = trainer.metrics_processor.log

    def note(step, global_avg_loss, *rest, **named):
        losses.append(global_avg_loss)
        return log(step, global_avg_loss, *rest, **named)

    trainer.metrics_processor.log = note
    trainer.train()
    sent = None
    if options is not None:
        (model,) = trainer.model_parts
        total = zpp.torch.report(model)["total"]
        sent = [total[side]["node"] / args.steps for side in ("before", "after")]
    trainer.close()
    torch.distributed.barrier()
    return {"losses": losses, "sent": sent,
            "of": f"torchtitan {titan.version()}, PyTorch {torch.__version__}, "
                  f"{attention}"}


# All of them -----------------------------------------------------------------------


def run(args, setup: str, options: list[str], folder: pathlib.Path
        ) -> dict[str, dict | str]:
    """The result of the first rank for each of `options`, or why there is none."""
    port = launch.free_port()
    name = re.sub(r"\W+", "_", f"{setup}-{options[0]}")
    result = folder / f"{name}.json"
    processes = []
    for rank in range(RANKS):
        # A process sees one device, as under Slurm.
        environment = launch.environment(not args.gpus) | {
            "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(lab.ROOT / "python"), environment["PYTHONPATH"]])
        if args.gpus:
            environment |= links.environment(rank, RANKS, min(args.gpus, 2), "shared") | {
                "CUDA_VISIBLE_DEVICES": str(rank % args.gpus)}
        processes.append(launch.Process(
            [sys.executable, __file__, *sys.argv[1:], "--setup", setup,
             "--options", *options, "--result", result],
            environment, folder / f"{name}-{rank}.txt"))
    failed = ""
    try:
        launch.run(processes, LIMIT_SECONDS)
    except RuntimeError as error:
        failed = str(error)
        print(failed, flush=True)
    found = json.loads(result.read_text()) if result.exists() else {}
    return {name: found.get(name, failed) for name in options}


def row(setup: str, options: str, found: dict | str, plain: dict | str) -> str:
    if isinstance(found, str) or isinstance(plain, str):
        failed = found if isinstance(found, str) else "FSDP2 fails"
        return f"| {setup} | {options} | {failed.splitlines()[0]} | | | |"
    off = max(abs(ours - theirs) for ours, theirs in
              zip(found["losses"], plain["losses"], strict=True))
    before, after = (bytes_ / 1e6 for bytes_ in found["sent"])
    return (f"| {setup} | {options} | {plain['losses'][-1]:.4f} | {found['losses'][-1]:.4f} | "
            f"{off:.4f} | {before:.2f} -> {after:.2f} MB |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4,
                        help="sequences of a rank in a micro-batch")
    parser.add_argument("--layers", type=int, default=2,
                        help="without --gpus")
    parser.add_argument("--setups", nargs="+", choices=SETUPS,
                        default=list(SETUPS))
    parser.add_argument("--write", action="store_true",
                        help="put the table into docs/data/training-code.md")
    parser.add_argument("--setup", help=argparse.SUPPRESS)
    parser.add_argument("--options", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.result:
        work(args)
        return 0
    launch.prepare()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="zpp-"))
    lines, versions, is_complete = [], set(), True
    groups = ([list(OPTIONS)] if titan.makes_several()
              else [[options] for options in OPTIONS])
    for setup in args.setups:
        found: dict[str, Any] = {}
        for group in groups:
            found |= run(args, setup, group, folder)
        for options, result in found.items():
            if isinstance(result, str):
                is_complete = False
            else:
                versions.add(result["of"])
            if OPTIONS[options] is not None:
                lines.append(row(setup, options, result, found["none"]))
                print(lines[-1], flush=True)
    version = describe_commit() or "a copy without git"
    where = (f"{args.gpus} GPUs ({launch.describe_gpu(args.gpus)})" if args.gpus
             else "CPU processes with gloo")
    table = "\n".join([
        "| setup | weights, gradients | loss of FSDP2 | with zpp | off by at most | "
        "between nodes |", "| --- | --- | ---: | ---: | ---: | ---: |", *lines, "",
        f"{datetime.date.today()}, {version}, {', '.join(sorted(versions))}, {RANKS} "
        f"ranks as two nodes of two on {where}, Llama 3 \"debugmodel\""
        f"{'' if args.gpus else f' with {args.layers} layers'}, step {args.steps}; "
        "bytes of a rank per step."])
    print(table)
    if args.write and is_complete:
        write_between(lab.ROOT / "docs" / "data" / "training-code.md",
                      "torchtitan gpus" if args.gpus else "torchtitan", table)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
