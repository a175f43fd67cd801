# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules whose parameters have several types: one message for each, on four ranks."""

import pytest
import torch

import adapted
from test_fsdp import HELD, HYBRID, check_losses
from training import ZEROPP
from zpp.torch._bucket import Bucket, compile_bucket
from zpp.torch._layout import Layout, Segment
from zpp.torch import Options

DELTA = {**ZEROPP, "weights": "i4:delta"}
ACROSS = ((0, 2), (1, 3))


BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("segments", [
    [(BF16, 300, False), (F32, 5, True), (BF16, 128, False), (BF16, 1, False),
     (F32, 0, False), (F16, 7, False), (torch.uint8, 3, True)],
    [(F32, 2, True), (BF16, 8, True), (F32, 4, False)],
    [(BF16, 2560, False), (BF16, 1280, False)],
    [(BF16, 130, False), (BF16, 16000, False), (BF16, 40, True)],
    [(BF16, 12800, False), (BF16, 128, True), (BF16, 129, False), (BF16, 127, True)],
    [(F32, 12800 - 64, False), (F32, 64, True)], [(F16, 9, True)]])
def test_packing(segments, slices, pieces):
    """Each parameter that is quantized begins a block, and no other is in it."""
    layout = Layout(tuple(Segment(*each) for each in segments), 128, pieces)
    expected = [[torch.randn(count).to(dtype) for dtype, count, _ in segments]
                for _ in range(slices)]
    content = torch.cat([part.view(torch.uint8) for parts in expected
                         for part in parts])
    assert content.numel() == slices * layout.bytes
    exact, result = layout.pack_exact(content), content.clone()
    for part in exact:
        assert layout.exact_part == (part.dtype, part.numel() // slices)
    quantized = {(dtype, place): torch.stack([parts[place] for parts in expected])
                 for place, (dtype, count, is_exact) in enumerate(segments)
                 if count and not is_exact}
    packed = layout.pack(result)
    if layout.is_in_place:
        packed = [packed[0].view(layout.parts[0][0])]
    else:
        result.zero_()
    for (dtype, count), part in zip(layout.parts, packed, strict=True):
        assert part.dtype == dtype and part.numel() == slices * count
        assert count % (128 * pieces) == 0
        blocks = part.view(slices, -1, 128)
        for (of, _), values in quantized.items():
            if of == dtype:
                used = -(-values.size(1) // 128)
                found = [first for first in range(blocks.size(1)) if torch.equal(
                    blocks[:, first:first + used].reshape(slices, -1)[
                        :, :values.size(1)], values)]
                assert len(found) == 1
                # What else is in the last block are zeros.
                assert not blocks[:, found[0]:found[0] + used].reshape(slices, -1)[
                    :, values.size(1):].any()
    layout.unpack(packed, result)
    layout.unpack_exact(exact, result)
    assert torch.equal(result, content)


@pytest.mark.parametrize("most, turn", [(1 << 62, 0), (128, 0), (256, 7), (1, 3)])
def test_samples_are_whole_blocks(most, turn):
    segments = [(F32, 1000, False), (F32, 10, True), (F32, 100, False)]
    layout = Layout(tuple(Segment(*each) for each in segments), 128)
    content = torch.arange(3 * 1110, dtype=F32)
    blocks = layout.sample(most, turn)
    assert [each.place for each in blocks] == [0, 2]
    for each, values in zip(blocks, layout.read(content, blocks), strict=True):
        elements = segments[each.place][1]
        first = int(values[0, 0]) - (0, 1010)[each.place > 0]
        assert values.shape == (3, min(elements, max(most, 128))) and first % 128 == 0
        assert 0 <= first <= elements - values.size(1)
        assert torch.equal(values[1] - values[0], torch.full_like(values[0], 1110))


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
    of = joined.function
    assert of["inputs"] == [sizes[place] for place in of["arguments"]]
    assert of["outputs"] == [4 * sizes[place] for place in of["results"]]
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
    """What is held is the same with sums and with evaluation in between: whole weights
    are sent once. Then both frozen matrices are in 14 blocks with scales of two bytes,
    and the adapters, of less than a block each, as they are."""
    for result in pool(adapted.train_adapted, DELTA):
        sent = {entry["after"]["node"]: entry["calls"]
                for entry in result["report"]["collectives"]
                if entry["kind"] == "all_gather" and entry["module"] == "0"}
        adapters = 4 * (64 + 125 + 8 + 8 + 1)
        assert sent == {2 * (800 + 776) + adapters: 1, 0: 6,
                        14 * (64 + 2) + adapters + 12: 6}


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
