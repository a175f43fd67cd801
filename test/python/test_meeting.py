# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the processes of a world find each other, without other processes."""

import collections
import types

import jax
import pytest
from jax._src.distributed import global_state
from zpp.jax import _processes, _runtime

DEVICES = [types.SimpleNamespace(id=4 + process, process_index=process)
           for process in range(2)]


class Client:
    """JAX's coordination service: a key is set once."""

    def __init__(self):
        self.values = {}

    def key_value_set(self, name, value):
        assert name not in self.values
        self.values[name] = value

    def blocking_key_value_get(self, name, timeout_msec):
        assert timeout_msec == 300_000
        return self.values[name]


@pytest.fixture
def meet(monkeypatch):
    """Calls `_meet` as one of two processes."""
    monkeypatch.setattr(global_state, "client", Client())
    monkeypatch.setattr(global_state, "coordinator_address", "127.0.0.1:1234")
    meetings = [collections.Counter(), collections.Counter()]

    def call(process):
        monkeypatch.setattr(jax, "process_index", lambda: process)
        monkeypatch.setattr(_processes, "_meetings", meetings[process])
        desc = _runtime._WorldDesc(mesh=b"gpu:2")
        _runtime._meet(desc, DEVICES)
        return desc

    return call


def test_the_library_finds_the_port(meet):
    desc = meet(0)
    assert desc.rendezvous == b"127.0.0.1:0"
    desc.on_listening(None, b"127.0.0.1:5678")
    other = meet(1)
    assert other.rendezvous == b"127.0.0.1:5678"
    assert not other.on_listening
    assert other.token == desc.token and len(desc.token) == 64


def test_a_second_world_of_the_same_devices_meets_elsewhere(meet):
    tokens = set()
    for endpoint in (b"127.0.0.1:5678", b"127.0.0.1:6789"):
        first = meet(0)
        first.on_listening(None, endpoint)
        second = meet(1)
        assert second.rendezvous == endpoint
        assert second.token == first.token
        tokens.add(first.token)
    assert len(tokens) == 2


def test_several_processes_need_the_coordination_service(meet, monkeypatch):
    monkeypatch.setattr(global_state, "client", None)
    with pytest.raises(RuntimeError, match="expected jax.distributed to be"):
        meet(0)
