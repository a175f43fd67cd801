# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compile time of zpp-opt's whole pipeline.

    python bench/compile_time.py [--layers 12 24 48 96] [--partitioned 48]
        [--runs 5] [--tables model shapes]

The first table has the example GPT with that many layers, unrolled and
checkpointed; its last rows are steps that XLA has partitioned. Dims are small,
because only the number of operations matters. These processes run in turn:

  mlir-opt   parses and prints the export, in generic form, with locations. It
             does not know `sdy`, so it cannot verify a `func.call` inside a
             `sdy.manual_computation`; it runs without the verifier, which works
             in its favor.
  parse      zpp-opt without passes: parses, verifies and prints.
  portable   zpp-opt with the whole pipeline: all techniques and the report.
  cuda       the same with target=cuda.

The second table has programs that consist of one shape that is easy to compile
in exponential time by mistake.

Times are medians of processor time. "exponent" tells how the pipeline's time
grows from one row to the next, beyond that of an empty module: 1 where twice the
size takes twice the time, 2 where it takes four times as long.
"""

import argparse
import math
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import jax
import lab  # noqa: F401 (finds gpt and zpp)
from lab.tables import Table

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

import gpt  # noqa: E402
import zpp  # noqa: E402

#: The pipeline may take this many times as long as mlir-opt.
LIMIT = 3.0
LIMIT_SECONDS = 120
OPTIONS = ("mesh=node:2,gpu:4 weights=i8 gradients=i8:i4 secondary=gpu "
           "tuning.block=128")
PRINTING = ["--mlir-print-op-generic", "--mlir-print-debuginfo", "-o",
            os.devnull]


# Programs --------------------------------------------------------------------


def export(layers: int, collectives: str) -> str:
    """The example GPT's step.

    collectives: "step" if it names them, "xla" if XLA's partitioner makes them.
    """
    trainer = gpt.Trainer(gpt.Config(
        layers=layers, width=64, heads=2, vocab=64, context=16,
        optimizer="adam", collectives=collectives))
    return zpp.export(jax.jit(trainer.step, donate_argnums=0),
                      trainer.abstract_state(),
                      trainer.abstract_batch(8)).complete_text


def gather(result: str, operand: str, rows: int) -> str:
    """An all-gather of `rows` rows of 256 elements over all 8 devices."""
    return (f'{result} = "stablehlo.all_gather"({operand}) <{{all_gather_dim = '
            f'0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : '
            f'tensor<1x8xi64>}}> : (tensor<{rows}x256xf32>) -> '
            f'tensor<{8 * rows}x256xf32>')


def product(result: str, weight: str, rows: int) -> str:
    """A matrix product of %x with a gathered weight of `rows` rows."""
    return (f'{result} = "stablehlo.dot_general"(%x, {weight}) <{{'
            'dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions '
            '= [1], rhs_contracting_dimensions = [0]>}> : '
            f'(tensor<{rows}x{rows}xf32>, tensor<{rows}x256xf32>) -> '
            f'tensor<{rows}x256xf32>')


def function(name: str, arguments: list[str], results: list[str],
             body: list[str], visibility: str = "") -> str:
    """A function; `arguments` and `results` are names with types."""
    types = ", ".join(result.partition(": ")[2] for result in results)
    names = ", ".join(result.partition(": ")[0] for result in results)
    lines = "\n".join(f"  {line}" for line in [
        *body, f"return {names} : {types}"])
    return (f"func.func {visibility}@{name}({', '.join(arguments)}) -> "
            f"({types}) {{\n{lines}\n}}\n")


def step(weights: list[str], x: str, result: str, body: list[str]) -> str:
    """The function @main. It returns weights updated, as a training step does:
    that tells them from data."""
    updates, results = [], [result]
    for index, weight in enumerate(weights):
        name, _, kind = weight.partition(": ")
        updates.append(f'%u{index} = "stablehlo.negate"({name}) : ({kind}) -> '
                       f'{kind}')
        results.append(f"%u{index}: {kind}")
    return function("main", [*weights, x], results, [*body, *updates])


def concatenations(size: int) -> str:
    """A weight that is joined with itself and sliced `size` times, gathered."""
    body = []
    for index in range(size):
        body += [
            f'%j{index} = "stablehlo.concatenate"(%w{index}, %w{index}) '
            '<{dimension = 0 : i64}> : (tensor<1x256xf32>, tensor<1x256xf32>) '
            '-> tensor<2x256xf32>',
            f'%w{index + 1} = "stablehlo.slice"(%j{index}) <{{start_indices = '
            'array<i64: 0, 0>, limit_indices = array<i64: 1, 256>, strides = '
            'array<i64: 1, 1>}> : (tensor<2x256xf32>) -> tensor<1x256xf32>']
    body += [gather("%all", f"%w{size}", 1), product("%p", "%all", 8)]
    return step(["%w0: tensor<1x256xf32>"], "%x: tensor<8x8xf32>",
                "%p: tensor<8x256xf32>", body)


def squarings(size: int) -> str:
    """A constant that is squared `size` times, added to a gathered weight."""
    kind = "tensor<64x256xf32>"
    body = [gather("%all", "%w", 8),
            f'%c0 = "stablehlo.constant"() <{{value = dense<1.0> : {kind}}}> : '
            f'() -> {kind}']
    body += [f'%c{index + 1} = "stablehlo.multiply"(%c{index}, %c{index}) : '
             f'({kind}, {kind}) -> {kind}' for index in range(size)]
    body += [f'%sum = "stablehlo.add"(%all, %c{size}) : ({kind}, {kind}) -> '
             f'{kind}',
             product("%p", "%sum", 64)]
    return step(["%w: tensor<8x256xf32>"], "%x: tensor<64x64xf32>",
                f"%p: {kind}", body)


def small_weights(size: int) -> str:
    """`size` small weights that are gathered at the same time."""
    weights = [f"%w{index}: tensor<1x256xf32>" for index in range(size)]
    body = [gather(f"%g{index}", f"%w{index}", 1) for index in range(size)]
    body.append('%s0 = "stablehlo.negate"(%g0) : (tensor<8x256xf32>) -> '
                'tensor<8x256xf32>')
    body += [f'%s{index} = "stablehlo.add"(%s{index - 1}, %g{index}) : '
             "(tensor<8x256xf32>, tensor<8x256xf32>) -> tensor<8x256xf32>"
             for index in range(1, size)]
    body.append(product("%p", f"%s{size - 1}", 8))
    return step(weights, "%x: tensor<8x8xf32>", "%p: tensor<8x256xf32>", body)


def collectives(size: int) -> str:
    """A chain of products with `size` / 2 gathered weights, and as many
    gradients that are scattered."""
    weight, whole = "tensor<32x256xf32>", "tensor<256x256xf32>"
    x = "tensor<8x256xf32>"
    count = size // 2
    body, results = [], [f"%x{count}: {x}"]
    for index in range(count):
        body += [
            gather(f"%g{index}", f"%w{index}", 32),
            f'%x{index + 1} = "stablehlo.dot_general"(%x{index}, %g{index}) <{{'
            'dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions '
            '= [1], rhs_contracting_dimensions = [0]>}> : '
            f'({x}, {whole}) -> {x}']
    for index in reversed(range(count)):
        body += [
            f'%p{index} = "stablehlo.dot_general"(%x{index}, %x{index + 1}) <{{'
            'dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions '
            '= [0], rhs_contracting_dimensions = [0]>}> : '
            f'({x}, {x}) -> {whole}',
            f'%s{index} = "stablehlo.reduce_scatter"(%p{index}) <{{'
            'replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : '
            'tensor<1x8xi64>, scatter_dimension = 0 : i64}> ({',
            "^bb0(%a: tensor<f32>, %b: tensor<f32>):",
            '%sum = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> '
            'tensor<f32>',
            '"stablehlo.return"(%sum) : (tensor<f32>) -> ()',
            f'}}) : ({whole}) -> {weight}',
            f'%u{index} = "stablehlo.subtract"(%w{index}, %s{index}) : '
            f'({weight}, {weight}) -> {weight}']
        results.append(f"%u{index}: {weight}")
    return function("main", [*(f"%w{index}: {weight}"
                               for index in range(count)), f"%x0: {x}"],
                    results, body)


def calls(size: int) -> str:
    """`size` functions, each of which calls the next one twice, and a weight
    that is gathered for them."""
    kind = "tensor<8x256xf32>"
    functions = []
    for index in range(size):
        if index + 1 < size:
            body = [f"%1 = func.call @f{index + 1}(%0) : ({kind}) -> {kind}",
                    f"%2 = func.call @f{index + 1}(%1) : ({kind}) -> {kind}"]
        else:
            body = [f'%2 = "stablehlo.negate"(%0) : ({kind}) -> {kind}']
        functions.append(function(f"f{index}", [f"%0: {kind}"], [f"%2: {kind}"],
                                  body, "private "))
    return "".join(functions) + step(
        ["%w: tensor<1x256xf32>"], "%x: tensor<8x8xf32>", f"%r: {kind}",
        [gather("%all", "%w", 1), product("%p", "%all", 8),
         f"%r = func.call @f0(%p) : ({kind}) -> {kind}"])


#: Program and sizes.
SHAPES = {
    "weight joined with itself": (concatenations, (500, 1000, 2000)),
    "squarings of a constant": (squarings, (500, 1000, 2000)),
    "small weights in one buffer": (small_weights, (500, 1000, 2000)),
    "functions that call the next one twice": (calls, (250, 500, 1000)),
    "gathers and scatters": (collectives, (25000, 50000, 100000)),
}


# Measuring -------------------------------------------------------------------


def find_mlir_opt() -> str:
    for place in ("/usr/lib/llvm-22/bin/mlir-opt", "mlir-opt-22", "mlir-opt"):
        if found := shutil.which(place):
            return found
    raise FileNotFoundError("expected mlir-opt 22 in PATH, but got none")


def pipeline(target: str) -> list[str]:
    """zpp-opt with all passes and the report."""
    return [zpp.find_compiler(), "--verify-each=false",
            f"--zeropp={OPTIONS} target={target}",
            f"--zero-report=mesh=node:2,gpu:4 format=json output={os.devnull}",
            *PRINTING]


def seconds(command: list) -> float:
    """Processor time of one run, on which the load of the machine has little
    influence; infinity after LIMIT_SECONDS."""
    process = subprocess.Popen(list(map(str, command)),
                               stderr=subprocess.DEVNULL)
    resource.prlimit(process.pid, resource.RLIMIT_CPU,
                     (LIMIT_SECONDS, LIMIT_SECONDS + 1))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    taken = usage.ru_utime + usage.ru_stime
    if process.returncode == -signal.SIGXCPU:
        return math.inf
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return taken


def measure(commands: dict, runs: int) -> dict:
    """The median of the processor time of each command, in seconds. The commands
    take turns."""
    times: dict[Any, list[float]] = {key: [] for key in commands}
    for _ in range(runs):
        for key, command in commands.items():
            if math.inf not in times[key]:
                times[key].append(seconds(command))
    return {key: math.inf if math.inf in of else statistics.median(of)
            for key, of in times.items()}


def describe(taken: float) -> str:
    return (f"> {LIMIT_SECONDS} s" if taken == math.inf
            else f"{1000 * taken:.0f} ms")


def exponent(small: tuple[int, float], large: tuple[int, float], empty: float
             ) -> str:
    """How the time grows with the size, each a pair of both."""
    times = small[1] - empty, large[1] - empty
    if math.inf in times:
        return "-"
    # Below this, the noise would decide.
    if times[1] < 0.005:
        return "< 5 ms in all"
    growth = times[1] / max(times[0], 0.001)
    return f"{math.log(growth) / math.log(large[0] / small[0]):.1f}"


def print_model(arguments, folder: pathlib.Path, empty: float) -> bool:
    """The first table. Returns whether the largest model that names its
    collectives is in the limit."""
    tools = {
        "mlir-opt": [find_mlir_opt(), "--allow-unregistered-dialect",
                     "--mlir-very-unsafe-disable-verifier-on-parsing",
                     "--verify-each=false", *PRINTING],
        "parse": [zpp.find_compiler(), *PRINTING],
        "portable": pipeline("portable"), "cuda": pipeline("cuda")}
    table = Table(["layers", "MiB", *tools, "portable / mlir-opt",
                   "exponent of portable", "exponent of cuda"])
    previous, is_fast = None, True
    rows = [(layers, "step") for layers in arguments.layers]
    rows += [(layers, "xla") for layers in arguments.partitioned]
    for layers, collectives in rows:
        path = folder / f"gpt-{layers}-{collectives}.mlir"
        path.write_text(export(layers, collectives))
        times = measure({tool: [*command, path]
                         for tool, command in tools.items()}, arguments.runs)
        ratio = times["portable"] / times["mlir-opt"]
        if previous is not None and previous[0] != collectives:
            previous = None
        growth = ["", ""] if previous is None else [
            exponent((previous[1], previous[2][tool]), (layers, times[tool]),
                     empty) for tool in ("portable", "cuda")]
        table.row([f"{layers}{', partitioned' * (collectives == 'xla')}",
                   f"{path.stat().st_size / 2**20:.1f}",
                   *map(describe, times.values()), f"{ratio:.2f}", *growth])
        if collectives == "step":
            is_fast = ratio <= LIMIT
        previous = collectives, layers, times
    print(f"\nThe limit of portable is {LIMIT:.0f} times mlir-opt.\n",
          flush=True)
    return is_fast


def print_shapes(arguments, folder: pathlib.Path, empty: float):
    """The second table."""
    tools = {"portable": pipeline("portable"), "cuda": pipeline("cuda")}
    table = Table(["shape", "n", *tools, *(f"exponent of {tool}"
                                           for tool in tools)])
    for number, (name, (program, sizes)) in enumerate(SHAPES.items()):
        previous = None
        for size in sizes:
            path = folder / f"shape-{number}-{size}.mlir"
            path.write_text(program(size))
            # A tool that took too long is not tried with more.
            times = measure(
                {tool: [*command, path] for tool, command in tools.items()
                 if previous is None or previous[1][tool] < math.inf},
                arguments.runs)
            times = {tool: times.get(tool, math.inf) for tool in tools}
            growth = [""] * len(tools) if previous is None else [
                exponent((previous[0], previous[1][tool]), (size, times[tool]),
                         empty) for tool in tools]
            table.row([name, size, *map(describe, times.values()), *growth])
            previous = size, times


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", metavar="N",
                        default=[12, 24, 48, 96])
    parser.add_argument("--partitioned", type=int, nargs="*", metavar="N",
                        default=[48])
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--tables", nargs="+", choices=("model", "shapes"),
                        default=["model", "shapes"])
    arguments = parser.parse_args()
    is_fast = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "empty.mlir"
        path.write_text("module {}\n")
        empty = measure({"": [*pipeline("portable"), path]}, 5)[""]
        if "model" in arguments.tables:
            is_fast = print_model(arguments, folder, empty)
        if "shapes" in arguments.tables:
            print_shapes(arguments, folder, empty)
    return 0 if is_fast else 1


if __name__ == "__main__":
    sys.exit(main())
