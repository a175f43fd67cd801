#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predictions of zpp for models of real sizes, by the speed of the links.

    python bench/real_sizes.py [7b] [70b] [--forms layers scan jit] [--links N ...]

A step of the example GPT on H100s (`zpp plan`), in ms: as FSDP, with zpp's
default options, and what these leave to reach. `busy` is the compute, or the time
for which the busiest links send, whichever is longer; `bound` is what no schedule
is below, with the resource that is most of it. The links' speed is that of one GPU
between nodes, in Gbit/s. No GPU is needed.
"""

import argparse
from typing import Any

from lab.tables import Table

#: Name -> the model, the tokens per GPU and the mesh.
SIZES: dict[str, tuple[dict[str, Any], int, tuple]] = {
    "7b": ({"layers": 32, "width": 4096, "heads": 32, "vocab": 51200,
            "context": 1024}, 2, (("node", 8), ("gpu", 8))),
    "70b": ({"layers": 80, "width": 8192, "heads": 64, "vocab": 32000,
             "context": 4096}, 1, (("node", 16), ("gpu", 8))),
}
FORMS: dict[str, dict[str, Any]] = {
    "layers": {}, "scan": {"scan": True}, "jit": {"collectives": "xla"}}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=["7b"], metavar="SIZE",
                        help="7b or 70b")
    parser.add_argument("--forms", nargs="+", default=["layers", "scan"],
                        choices=FORMS)
    parser.add_argument("--links", nargs="+", type=float, metavar="N",
                        default=[12.5, 25, 50, 100, 400])
    parser.add_argument("--prefetch-bytes", type=int, metavar="N",
                        help="in place of the default")
    parser.add_argument("--micro-batches", type=int, default=1, metavar="N",
                        help="steps of so many micro-batches, each of the size's "
                             "tokens, whose\ngradients cross the nodes once")
    parser.add_argument("--differences", action="store_true",
                        help="weights=i4:delta in place of the default")
    parser.add_argument("--optimizer", default="adam", choices=("adam", "muon"),
                        help="of the step; momenta of muon travel as i8")
    args = parser.parse_args()
    for size in args.sizes:
        if size not in SIZES:
            parser.error(f"expected a size 7b or 70b, but got {size}")
    return args


def main():
    args = parse_arguments()
    import jax
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 128)
    import gpt
    import zpp

    table = Table(["step", "Gbit/s", "FSDP", "default", "busy", "bound",
                   "above the bound", "which is"])
    for size in args.sizes:
        model, sequences, mesh = SIZES[size]
        devices = mesh[0][1] * mesh[1][1]
        for form in args.forms:
            trainer = gpt.Trainer(gpt.Config(
                **model, mesh=mesh, accumulate=args.micro_batches,
                optimizer=args.optimizer, **FORMS[form]))
            step = zpp.export(
                jax.jit(trainer.step, donate_argnums=0),
                trainer.abstract_state(),
                trainer.abstract_batch(
                    devices * sequences * args.micro_batches))
            for link in args.links:
                plan = zpp.plan(
                    step, mesh=",".join(f"{name}:{count}"
                                        for name, count in mesh),
                    device="h100", links=f"node={link}gbit,gpu=400gbyte",
                    weights="i4:delta" if args.differences else None,
                    moments="i8" if args.optimizer == "muon" else None,
                    tuning=zpp.Tuning(prefetch_bytes=args.prefetch_bytes))
                row = "differences" if args.differences else "ZeRO++"
                if args.micro_batches > 1:
                    row += ", once per update"
                fsdp, default = plan["FSDP"], plan[row]
                busy = max(default.compute, *default.busy.values())
                table.row([f"{size}, {form}", f"{link:g}",
                           f"{fsdp.seconds * 1e3:.0f}",
                           f"{default.seconds * 1e3:.0f}",
                           f"{busy * 1e3:.0f}", f"{default.bound * 1e3:.0f}",
                           f"{default.above:+.1%}",
                           default.binding])


if __name__ == "__main__":
    main()
