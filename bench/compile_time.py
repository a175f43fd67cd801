# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compile time: zpp-opt's whole pipeline against parsing and printing.

    python bench/compile_time.py [--layers 12 24 48 96] [--runs 5]

Exports the example GPT with that many layers (unrolled, checkpointed; small
dims, because only the number of operations matters) and times, as processes
that run in turn:

  mlir-opt  parses and prints the export, generic form, with locations. It knows
            no `sdy`, so that it cannot verify the `func.call`s inside a
            `sdy.manual_computation`; it runs without the verifier, which
            favours it.
  parse     zpp-opt without passes: parses, verifies and prints.
  zeropp    zpp-opt with the whole pipeline: all techniques and the report.

Medians of processor time. "per layer" is the slope from one row to the next; a pipeline that is
linear in the number of layers has the same slope everywhere.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "python")]

import gpt  # noqa: E402
import zpp  # noqa: E402

LIMIT = 3.0
OPTIONS = ("mesh=node:2,gpu:4 weights=i8 gradients=i8:i4 secondary=gpu "
           "block=128")


def find_mlir_opt() -> str:
    for place in ("/usr/lib/llvm-22/bin/mlir-opt", "mlir-opt-22", "mlir-opt"):
        if found := shutil.which(place):
            return found
    raise FileNotFoundError("expected mlir-opt 22 in PATH, but got none")


def export(layers: int, folder: pathlib.Path) -> pathlib.Path:
    trainer = gpt.Trainer(gpt.Config(
        layers=layers, width=64, heads=2, vocab=64, context=16,
        optimizer="adam"))
    step = zpp.export(jax.jit(trainer.step, donate_argnums=0),
                      trainer.abstract_state(), trainer.abstract_batch(8))
    path = folder / f"gpt-{layers}.mlir"
    path.write_text(step.text())
    return path


def seconds(command: list) -> float:
    """Processor time of one run, which a busy machine does not stretch."""
    process = subprocess.Popen(list(map(str, command)),
                               stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+",
                        default=[12, 24, 48, 96])
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    zpp_opt, mlir_opt = zpp.find_compiler(), find_mlir_opt()
    printing = ["--mlir-print-op-generic", "--mlir-print-debuginfo", "-o",
                os.devnull]
    tools = {
        "mlir-opt": [mlir_opt, "--allow-unregistered-dialect",
                     "--mlir-very-unsafe-disable-verifier-on-parsing",
                     "--verify-each=false", *printing],
        "parse": [zpp_opt, *printing],
        "zeropp": [zpp_opt, f"--zeropp={OPTIONS}", f"--zero-report=mesh="
                   f"node:2,gpu:4 format=json output={os.devnull}", *printing],
    }
    with tempfile.TemporaryDirectory() as folder:
        files = {layers: export(layers, pathlib.Path(folder))
                 for layers in arguments.layers}
        times = {(layers, tool): [] for layers in files for tool in tools}
        for _ in range(arguments.runs):
            for layers, tool in times:
                times[layers, tool].append(
                    seconds([*tools[tool], files[layers]]))
        sizes = {layers: path.stat().st_size for layers, path in files.items()}

    median = {key: 1000 * statistics.median(runs)
              for key, runs in times.items()}
    print(f"{'layers':>6}{'MiB':>7}" + "".join(
        f"{tool + ' ms':>13}" for tool in tools)
        + f"{'zeropp / mlir-opt':>20}{'zeropp ms per layer':>22}")
    previous = None
    for layers in files:
        slope = "" if previous is None else "{:.2f}".format(
            (median[layers, "zeropp"] - median[previous, "zeropp"])
            / (layers - previous))
        ratio = median[layers, "zeropp"] / median[layers, "mlir-opt"]
        print(f"{layers:6}{sizes[layers] / 2**20:7.1f}" + "".join(
            f"{median[layers, tool]:13.0f}" for tool in tools)
            + f"{ratio:20.2f}{slope:>22}")
        previous = layers
    first = next(iter(files))
    print(f"{layers / first:.0f} times the layers: " + ", ".join(
        f"{tool} {median[layers, tool] / median[first, tool]:.1f}x"
        for tool in tools) + f". Limit: {LIMIT:.0f}x mlir-opt.")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
