# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Speeds of links that are measured once and then known (links="measured")."""

import contextlib
import hashlib
import json
import math
import os
import socket
from collections.abc import Callable, Mapping

from zpp._cache import cache_folder
from zpp._files import write_file
from zpp._release import find_version


def describe_host(devices: list[str]) -> str:
    """This process's host and devices, and what changes the speed between them."""
    libraries = {name: value for name, value in sorted(os.environ.items())
                 if name.startswith("NCCL_") or name == "CUDA_VISIBLE_DEVICES"}
    return json.dumps([socket.gethostname(), devices, libraries])


def agree_on_links(host: str, tiers: str,
                   exchange: Callable[[str], list[str]],
                   measure: Callable[[], Mapping[str, float]]) -> str:
    """Returns the links of the tiers, as `Options.links` has them, the same in all
    processes, which call it together. They are kept; where a process does not know them
    from an earlier run, `measure` returns Gbit/s by tier, as it sees them. `exchange`
    returns what all processes pass, in their order."""
    hosts = exchange(host)
    name = hashlib.sha256(json.dumps(
        [find_version(), tiers, hosts]).encode()).hexdigest()
    path = cache_folder() / f"{name}.links"
    known = ""
    with contextlib.suppress(OSError, ValueError):
        known = path.read_text()
    first, *others = exchange(known)
    if first and all(other == first for other in others):
        return first
    seen = [json.loads(text) for text in exchange(json.dumps(dict(measure())))]
    # The slowest group of a tier counts.
    links = ",".join(f"{tier}={_round(min(each[tier] for each in seen)):.3g}gbit"
                     for tier in seen[0])
    # Without the file the next run measures again.
    with contextlib.suppress(OSError):
        write_file(path, links.encode())
    return links


def _round(number: float) -> float:
    """Rounds to one of two steps per doubling, so that most runs find the same."""
    return 2 ** (round(2 * math.log2(number)) / 2)
