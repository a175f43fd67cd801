# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Notes between processes, through JAX's coordination service."""

import collections
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import jax

#: How often this process has had each topic: the service takes each key once.
_meetings: collections.Counter[str] = collections.Counter()
_lock = threading.Lock()


def get_service() -> Any:
    """JAX's coordination service. Raises RuntimeError where there is none."""
    from jax._src.distributed import global_state
    if global_state.client is None:
        raise RuntimeError("expected jax.distributed to be initialized, as the "
                           "devices are of several processes, but it is not")
    return global_state.client


def next_key(topic: str, members: Iterable[int]) -> str:
    """Returns the key for the next meeting about a topic, which all members count."""
    key = f"zpp/{topic}/{','.join(map(str, members))}"
    with _lock:
        _meetings[key] += 1
        return f"{key}/{_meetings[key]}"


def exchange_between(devices: Sequence[jax.Device], topic: str, text: str,
                     seconds: float = 300.0) -> list[str]:
    """Returns what the processes of these devices, which all call it, say in order. Raises
    RuntimeError if one of them says nothing in time."""
    processes = sorted({device.process_index for device in devices})
    if len(processes) == 1:
        return [text]
    service, me, key = get_service(), jax.process_index(), next_key(topic, processes)
    # The service takes no empty values.
    service.key_value_set(f"{key}/{me}", f"-{text}")
    said = []
    for process in processes:
        try:
            said.append(text if process == me else service.blocking_key_value_get(
                f"{key}/{process}", round(seconds * 1e3))[1:])
        except Exception as error:
            raise RuntimeError(
                f"expected process {process} to take part in {topic!r} too within "
                f"{seconds:g} s, but got nothing from it") from error
    return said
