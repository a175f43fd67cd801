# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eight virtual devices, and where the package, examples and scripts are."""

import os
import pathlib
import sys

# OpenBLAS's threads wait for each other on cores that the tests beside them need.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the time goes into compiling programs that run for milliseconds. XLA's MLIR
# emitters take two thirds of it; its older ones are many times faster. Tests run beside
# each other, so one thread for each compiles with less work.
os.environ["XLA_FLAGS"] = " ".join([
    "--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1", os.environ.get("XLA_FLAGS", "")])

import jax
import pytest
import selection

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
for folder in ("examples", "python", "scripts"):
    if str(ROOT / folder) not in sys.path:
        sys.path.insert(0, str(ROOT / folder))


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "compiler: needs zpp-opt (deselect: -m 'not compiler')")
    config.addinivalue_line(
        "markers", "slow: runs in `make test-all`, not in `make test`")
    config.addinivalue_line(
        "markers", "matrix: cases off the diagonal of its parameters are slow, and those "
        "that add no pair of values do not run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items, config):
    if repeated := selection.mark_matrices(items):
        config.hook.pytest_deselected(items=repeated)
        items[:] = [item for item in items if item not in repeated]
