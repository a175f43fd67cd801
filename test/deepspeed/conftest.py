# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Four ranks, as those of test/torch, with DeepSpeed on the CPU."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
for folder in (pathlib.Path(__file__).parent, ROOT / "test" / "torch", ROOT / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_SIZE": "4", "OMP_NUM_THREADS": "1",
               "ACCELERATE_TORCH_DEVICE": "cpu", "HF_HUB_OFFLINE": "1"}

import ranks  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: left out by `make test-torch`")


@pytest.fixture(scope="session")
def pool(tmp_path_factory):
    """Call it with a function and its arguments: a result per rank."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    ranks.PRELOADED += ("deepspeed",)
    # Trainers take long to import.
    pool = ranks.Pool(4, limit=300, exchange_limit=300)
    yield pool
    pool.close()
