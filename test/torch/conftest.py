# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Four ranks, as processes that all tests share."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
for folder in (pathlib.Path(__file__).parent, ROOT / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import ranks  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A cache of compiled buckets for this run alone."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def pool(cache):
    """Call it with a function and its arguments: a result per rank."""
    pool = ranks.Pool(4)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def known(pool):
    """As `pool`, for results that others are compared with: it runs once for equal
    arguments."""
    results = {}

    def call(function, *args, **kwargs):
        key = function.__module__, function.__name__, repr(args), repr(sorted(kwargs.items()))
        if key not in results:
            results[key] = pool(function, *args, **kwargs)
        return results[key]

    return call


@pytest.fixture(scope="session")
def plain(known):
    """FSDP2 as it is: `plain(training.train, ...)`."""
    return lambda function, **options: known(function, None, **options)
