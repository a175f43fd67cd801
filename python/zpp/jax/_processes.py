# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Notes between processes, through JAX's coordination service."""

import collections
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import jax

#: How often this process has had each topic with the same others: the service takes
#: each key once.
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
    """The key for the next meeting about a topic of some processes, or devices, which all
    count their meetings."""
    key = f"zpp/{topic}/{','.join(map(str, members))}"
    with _lock:
        _meetings[key] += 1
        return f"{key}/{_meetings[key]}"


def exchange(topic: str, own: str, processes: Sequence[int], seconds: float
             ) -> dict[int, str]:
    """Tells each of these processes `own`, and returns what each says about the topic,
    by its number. Raises RuntimeError if one of them says nothing in time."""
    service, me, key = get_service(), jax.process_index(), next_key(topic, processes)
    service.key_value_set(f"{key}/{me}", own)
    said = {me: own}
    for process in processes:
        if process == me:
            continue
        try:
            said[process] = service.blocking_key_value_get(
                f"{key}/{process}", round(seconds * 1e3))
        except Exception as error:
            raise RuntimeError(
                f"expected process {process} to take part in {topic!r} too within "
                f"{seconds:g} s, but got nothing from it") from error
    return said


def exchange_between(devices: Sequence[jax.Device], topic: str, text: str) -> list[str]:
    """Returns what the processes of these devices say, which all call it, in the order of
    their numbers."""
    processes = sorted({device.process_index for device in devices})
    if len(processes) == 1:
        return [text]
    # The service takes no empty values.
    said = exchange(topic, f"-{text}", processes, 300.0)
    return [said[process][1:] for process in processes]
