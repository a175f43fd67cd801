# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps as XLA compiles them for a GPU that is only described.

As a program, it compiles a form of a step for an H200, for which JAX's CUDA plugin must
be found, rewritten with the options of each further argument. For each it prints a line
of JSON: what is not in place, what touches memory of a transfer that is on its way, and
which transfers XLA has left without the compute that the schedule put under them. With
--trace it also prints the order of starts, waits and products in what XLA runs.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import hlo
import races

BITS = {"pred": 8, "s8": 8, "u8": 8, "s32": 32, "u32": 32, "bf16": 16, "f32": 32}
SHAPE = r"(\w+)\[([\d,]*)\]\S*"
COPY = re.compile(rf"(%?[\w.-]+) = {SHAPE} copy\(")
START = 'custom_call_target="zpp.start"'


def count_starts(text: str) -> int:
    return text.count(START)


def faults(text: str, most_bytes: int) -> list[str]:
    """Faults of a module that XLA has optimized for GPUs: starts in fusions, whose tied
    operands are views, and copies of more than `most_bytes`."""
    parts = hlo.computations(text)
    fused = set(re.findall(r"calls=%?([\w.-]+)", text))
    found = [f"{name} has a start in a fusion" for name, lines in parts.items()
             if name in fused and any(START in line for line in lines)]
    for name, lines in parts.items():
        if name in fused:
            continue
        for line in lines:
            if match := COPY.search(line):
                size = math.prod(map(int, filter(None, match[3].split(",")))) * (
                    BITS[match[2]] // 8)
                if size > most_bytes:
                    found.append(f"{name} copies {size} bytes: {line[:160]}")
    return found


PRODUCT = re.compile(r' (?:dot|convolution)\(|custom_call_target="__cu(?:blas|dnn)')


def trace(text: str) -> list[tuple[str, str]]:
    """The order of a scheduled module, with each loop once: ("start", function),
    ("wait", function) and ("product", instruction)."""
    parts = hlo.computations(text)
    events: list[tuple[str, str]] = []

    def visit(name: str):
        for line in parts.get(name, []):
            called = re.search(r"(?:calls|body|to_apply)=%?([\w.-]+)", line)
            if call := hlo.CALL.search(line):
                events.append((call[1], hlo.FUNCTION.search(line)[1]))
            elif PRODUCT.search(line):
                events.append(("product", line.split(" = ")[0]))
            elif called and re.search(r" (?:fusion|while|call)\(", line):
                visit(called[1])

    visit(hlo.entry(text))
    return events


def products_under(events: list[tuple[str, str]]) -> list[tuple[str, int]]:
    """Per wait, in order: its function, and the products since its start."""
    begun: dict[str, list[int]] = {}
    products, found = 0, []
    for event, name in events:
        if event == "product":
            products += 1
        elif event == "start":
            begun.setdefault(name, []).append(products)
        else:
            found.append((name, products - begun[name].pop(0)))
    return found


def undone(schedule: list[dict], text: str) -> list[str]:
    """Differences between a schedule as reported and what XLA runs: calls in another
    order, and transfers that have lost all products under them."""
    events = trace(text)
    calls = [event for event in events if event[0] != "product"]
    wanted = [(event["event"], event["function"]) for event in schedule]
    if calls != wanted:
        return [f"expected the calls {wanted}, but got {calls}"]
    heavy = [event["heavy_ops"] for event in schedule if event["event"] == "wait"]
    return [f"{name} has nothing to hide under, but {before} heavy ops before"
            for (name, products), before in zip(products_under(events), heavy)
            if before > 0 and products == 0]


#: The example GPT: more layers than a copy may have bytes of, so that stacks of all
#: of them are found.
MODEL: dict[str, Any] = {"layers": 24, "width": 256, "heads": 4, "vocab": 512, "context": 128,
         "mesh": (("node", 2), ("gpu", 2))}
#: One for each device and micro-batch.
SEQUENCES = 4
#: The ends of the names of XLA's files about a module: its text, in which no names of
#: computations are left out, and the places of its values.
MODULE = "gpu_after_optimizations.txt"
PLACES = "gpu_after_optimizations-buffer-assignment.txt"


def take(folder: pathlib.Path, ending: str) -> str:
    """The text of the only file of a folder whose name ends so, which is removed."""
    (path,) = folder.glob(f"*{ending}")
    text = path.read_text()
    path.unlink()
    return text


#: XLA is done with a step before LLVM begins, which does as little as it can. Products
#: are cuBLAS's: XLA has no GPU to time its own kernels on, and they take long to compile.
FLAGS = ("--xla_backend_optimization_level=0 --xla_gpu_enable_triton_gemm=false "
         "--xla_dump_hlo_as_text --xla_dump_to=")
#: Machine code takes a fourth of the time, and nobody runs it: compiling ends here.
ASSEMBLER = """#!/bin/sh
case "$*" in *--version*) PATH=${PATH#*:} exec ptxas --version;; esac
echo no machine code >&2; exit 1
"""


def refuse_machine_code(folder: pathlib.Path) -> None:
    path = folder / "ptxas"
    path.write_text(ASSEMBLER)
    path.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def main(form: dict, options: list[dict], prints_trace: bool = False) -> None:
    with tempfile.TemporaryDirectory(prefix="zpp-") as folder:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}{folder}"
        refuse_machine_code(pathlib.Path(folder))
        for found in compiled(form, options, prints_trace, pathlib.Path(folder)):
            print(json.dumps(found))


def compiled(form: dict, options: list[dict], prints_trace: bool,
             dumps: pathlib.Path) -> Iterator[dict]:
    """Looks for all that is wrong in the modules of a step with each of these options,
    which XLA dumps into a folder."""
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    sys.path[:0] = [str(root / folder) for folder in ("bench", "examples", "python")]
    import step_memory
    devices = step_memory.describe_devices(4)
    import gpt
    import jax
    import numpy as np
    import zpp
    from jax.sharding import Mesh, NamedSharding
    from zpp.jax import _load

    # JSON has no tuples.
    trainer = gpt.Trainer(gpt.Config(**MODEL | {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in form.items()}))
    given = trainer.abstract_state(), trainer.abstract_batch(
        SEQUENCES * trainer.config.accumulate)
    step = zpp.export(jax.jit(trainer.step, donate_argnums=0), *given,
                      platforms=("cuda",))
    mesh = Mesh(np.array(devices).reshape(2, 2), ("node", "gpu"))

    def describe(array):
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=NamedSharding(
            mesh, array.sharding.spec))

    layer = 4 * MODEL["width"]**2 * 4
    for words in options:
        result = zpp.rewrite(step, mesh="node:2,gpu:2", target="cuda", **words)
        found: dict = {"starts": 0, "faults": [], "undone": [], "followed": 0,
                       "races": []}
        for each in filter(None, (result.step, result.step.start)):
            state = each.state.arguments if each.state else ()
            leaves = [describe(leaf) for leaf in (*jax.tree.leaves(given), *state)]
            lowered = _load.load_flat(each).trace(*leaves).lower(
                lowering_platforms=("cuda",))
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                lowered.compile()
            text = take(dumps, MODULE)
            found["starts"] += count_starts(text)
            found["faults"] += faults(text, layer)
            touched, followed = races.races(text, take(dumps, PLACES))
            found["followed"] += followed
            found["races"] += touched
            if each is result.step:
                found["undone"] += undone(result.report["schedule"], text)
                if prints_trace:
                    print(*(" ".join(event) for event in trace(text)), sep="\n")
        yield found


if __name__ == "__main__":
    form, *options = (json.loads(word) for word in sys.argv[1:] if word != "--trace")
    main(form, options, "--trace" in sys.argv)
