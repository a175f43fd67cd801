# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules whose parameters have several types: one message for each, on four ranks."""

import pytest
import torch

import adapted
from test_fsdp import HELD, HYBRID, check_losses
from training import ZEROPP
from zpp.torch._bucket import Bucket, compile_bucket
from zpp.torch._layout import Layout
from zpp.torch import Options

DELTA = {**ZEROPP, "weights": "i4:delta"}
ACROSS = ((0, 2), (1, 3))


@pytest.mark.parametrize("segments", [
    ((torch.bfloat16, 3), (torch.float32, 5), (torch.bfloat16, 2),
     (torch.bfloat16, 1), (torch.float32, 0), (torch.float16, 7)),
    ((torch.float32, 2), (torch.bfloat16, 8), (torch.float32, 4))])
@pytest.mark.parametrize("slices", [1, 3])
def test_packing(segments, slices):
    layout = Layout(segments)
    expected = [[torch.randn(count).to(dtype) for dtype, count in segments]
                for _ in range(slices)]
    content = torch.cat([part.view(torch.uint8) for parts in expected
                         for part in parts])
    assert content.numel() == slices * layout.bytes
    packed = layout.pack(content)
    for (dtype, count), part in zip(layout.parts, packed, strict=True):
        assert part.dtype == dtype and part.numel() == slices * count
        assert torch.equal(part, torch.cat([
            each for parts in expected for each in parts if each.dtype == dtype]))
    result = torch.empty_like(content)
    layout.unpack(packed, result)
    assert torch.equal(result, content)


def test_one_function_for_several_types():
    """It sends what the parts send alone; what does not shrink travels along."""
    tiers = (("node", 2), ("gpu", 2))
    options = Options(weights="i8")

    def compiled(bucket):
        return compile_bucket(bucket, bucket.options(options))

    alone = [compiled(Bucket("all_gather", dtype, count, tiers))
             for dtype, count in (("bf16", 10000), ("f16", 3000))]
    joined = compiled(Bucket("all_gather", "bf16", 10000, tiers,
                             also=(("f32", 8), ("f16", 3000))))
    # The compiler has an order of its own.
    sizes = [20000, 32, 6000]
    assert joined.input_bytes == tuple(sizes[place] for place in joined.inputs)
    assert joined.output_bytes == tuple(4 * sizes[place] for place in joined.outputs)
    assert joined.sent == {
        tier: alone[0].sent[tier] + alone[1].sent[tier] + count * 32
        for tier, count in (("node", 1), ("gpu", 2))}
    tiny = Bucket("all_gather", "bf16", 4, tiers, also=(("f32", 4),))
    assert compiled(tiny).reason.startswith("a slice of 8 bytes would take 32")


@pytest.mark.parametrize("options", [ZEROPP, HELD, DELTA],
                         ids=["i8", "held", "i4:delta"])
@pytest.mark.parametrize("more", [
    {}, {"rows": HYBRID}, {"rows": ACROSS}, {"compiled": True},
    {"frozen": torch.float16}],
    ids=["plain", "HSDP", "HSDP across", "compiled", "f16"])
def test_losses_are_those_of_fsdp2(pool, options, more):
    results = pool(adapted.train_adapted, options, **more)
    check_losses(results, pool(adapted.train_adapted, None, **more))
    assert len({result["digest"] for result in results}) == 1
    gathers = [entry for entry in results[0]["report"]["collectives"]
               if entry["kind"] == "all_gather" and entry["module"]]
    name = "f16" if "frozen" in more else "bf16"
    assert {entry["type"] for entry in gathers} == {f"f32+{name}"}
    # Differences are added to what was sent whole.
    assert all(entry["rewritten"] or entry["calls"] == 1 and entry["reason"] ==
               "there is nothing that differences could be added to"
               for entry in gathers)


def test_differences_cross_nodes(pool):
    """What is held is the same with sums and with evaluation in between."""
    whole, differences = (
        pool(adapted.train_adapted, options)[0]["bytes"]
        for options in ({**HELD, "weights": "none"}, DELTA))
    # Of six steps, the first sends whole weights.
    assert differences < 0.35 * whole


def test_one_message(pool):
    for options in (ZEROPP, HELD):
        for several, one in pool(adapted.messages, options):
            assert several == one > 0


def test_each_parameter_comes_to_its_place(pool):
    for gathered, expected in pool(adapted.gathered_once, ZEROPP):
        for value, other in zip(gathered, expected, strict=True):
            assert value.dtype == other.dtype and value.shape == other.shape
            # Half a step of i8.
            bound = float(other.abs().max()) / 127
            torch.testing.assert_close(value, other, rtol=0.01, atol=bound)
    exact = {**HELD, "weights": "none"}
    for gathered, expected in pool(adapted.gathered_once, exact):
        assert all(map(torch.equal, gathered, expected))


@pytest.mark.parametrize("options", [ZEROPP, HELD, DELTA],
                         ids=["i8", "held", "i4:delta"])
def test_compress_compiles_everything(pool, options):
    assert all(pool(adapted.compiles_adapted_early, options))
