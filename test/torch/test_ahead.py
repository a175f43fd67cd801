# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hops between nodes that begin one module ahead of FSDP2, on four ranks."""

import pytest

import hops
from training import ZEROPP
from zpp.torch._ahead import Order

HELD = {**ZEROPP, "secondary": "gpu"}
DELTA = {**ZEROPP, "weights": "i4:delta"}


@pytest.mark.parametrize("prefetch, gathers", [
    (0, ["inner root", "outer 1", "inner 0", "inner 1"]),
    # FSDP2 gathers the first block while it runs the root, and the second too.
    (1, ["inner root", "outer 1", "inner 0", "inner 1"]),
    (2, ["inner root", "outer 1", "inner 0", "inner 1"])])
def test_order(pool, prefetch, gathers):
    for first, second in pool(hops.order_of_hops, DELTA, prefetch):
        # Nothing is known of the first pass.
        assert [hop for hop in first if "outer" in hop] == [
            "outer root", "outer 0", "outer 1"]
        assert first.index("inner root") < first.index("outer 0")
        assert second[:6] == ["outer root", "outer 0", *gathers]
        # The backward pass has what is held.
        assert not any("outer" in hop for hop in second[6:])


@pytest.mark.parametrize("options", [HELD, DELTA], ids=["i8", "i4:delta"])
@pytest.mark.parametrize("more", [
    {}, {"reshard": False}, {"reshard": 2}, {"prefetch": 2}, {"evaluates": True},
    {"micro_batches": 2}, {"micro_batches": 2, "keeps_unsharded": True},
    {"frozen": True}, {"adapters": True}, {"checkpointed": True},
    {"compiled": True}, {"shared": True}, {"fails": True},
    {"rows": ((0, 2), (1, 3))}],
    ids=lambda more: " ".join(more) or "plain")
def test_the_same_bits_and_bytes(pool, options, more):
    assert all(pool(hops.train_both_ways, options, **more))


def test_nodes_of_one_device(pool):
    """There the inner hop is a copy."""
    assert all(pool(hops.train_both_ways, {**DELTA, "secondary": 1}))


def test_slices_on_the_host_are_not_read_early(pool):
    """With CPU offload a copy to the device would be under way while the optimizer
    writes. On the CPU they are on the device."""
    parameters = pool(hops.has_next_slice, offloaded=True)
    assert parameters == 4 * [hops.device().type == "cpu"]


def test_hops_in_vain_are_counted(pool):
    for first, second, third in pool(hops.bytes_in_vain):
        # From the second pass on, the hop of the block that was used before it.
        assert first < second == third < 2 * first


def test_groups_have_orders_of_their_own():
    order = Order()
    for _ in range(2):
        for name, group in (("a", 1), ("x", 2), ("b", 1), ("y", 2)):
            order.follow(name, group)
    assert order.follow("a", 1) == "b" and order.follow("x", 2) == "y"
    assert order.follow("b", 1) == "a"


def test_order_changes():
    order = Order()
    assert [order.follow(name, 1) for name in "abacab"] == [
        None, None, "b", None, "c", "a"]
    assert order.follow("a", 1) == "b"


def test_who_leaves_is_not_next():
    order = Order()
    for name in "abcabc":
        order.follow(name, 1)
    order.leave("b")
    assert order.follow("a", 1) is None
    assert order.follow("c", 1) == "a"
    order.leave("c")
    assert order.follow("a", 1) is None
