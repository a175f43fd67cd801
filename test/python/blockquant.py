# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""include/zpp/Support/BlockQuant.h in numpy: an oracle of its own."""

import numpy as np

MAX_CODE = {"i8": 127, "i4": 7}
ELEMENT_BITS = {"i8": 8, "i4": 4}
ROTATION = 32
SIGNS = np.array([-1 if 0xFA36F5C6 >> i & 1 else 1
                  for i in range(ROTATION)], np.float32)


def chunk_bytes(elements: int, form: str, block: int) -> int:
    """Payload, then bf16 scales, each padded to 16 bytes."""
    def align(size):
        return -(-size // 16) * 16

    payload = -(-elements * ELEMENT_BITS[form] // 8)
    return align(align(payload) + 2 * -(-elements // block))


def _enter(groups: np.ndarray, factor) -> np.ndarray:
    return np.where(np.abs(groups) < 2.0**-100,
                    np.copysign(np.float32(0), groups), groups * factor)


def _of_whole_groups(values: np.ndarray, function) -> np.ndarray:
    """A chunk (flat, f32) with `function` of its groups, one in each row."""
    whole = values.size // ROTATION * ROTATION
    with np.errstate(all="ignore"):
        groups = function(values[:whole].reshape(-1, ROTATION))
    return np.concatenate([groups.reshape(-1), values[whole:]]).astype(
        np.float32)


def rotate(values: np.ndarray) -> np.ndarray:
    """A chunk (flat, f32) as it is quantized: signs, then the matrix."""
    def forward(groups):
        groups = _enter(groups, SIGNS * np.float32(1 / 8))
        for h in (1, 2, 4, 8, 16):
            pairs = groups.reshape(-1, ROTATION // (2 * h), 2, h)
            groups = np.stack([pairs[:, :, 0] + pairs[:, :, 1],
                               pairs[:, :, 0] - pairs[:, :, 1]], 2)
            groups = groups.reshape(-1, ROTATION)
        return groups

    return _of_whole_groups(values, forward)


def rotate_back(values: np.ndarray) -> np.ndarray:
    """The inverse of rotate(), after quantization: the matrix, then signs."""
    def back(groups):
        groups = _enter(groups, np.float32(1 / 4))
        for h in (16, 8, 4, 2, 1):
            pairs = groups.reshape(-1, ROTATION // (2 * h), 2, h)
            first = np.arange(0, ROTATION, 2 * h)
            is_reversed = (SIGNS[first] != SIGNS[first + h])[:, None]
            lower, upper = pairs[:, :, 0], pairs[:, :, 1]
            groups = np.stack([lower + upper, np.where(
                is_reversed, upper - lower, lower - upper)], 2)
            groups = groups.reshape(-1, ROTATION)
        return groups

    return _of_whole_groups(values, back)


def transport(values: np.ndarray, form: str, block: int) -> np.ndarray:
    """The values that arrive, as f32, of one chunk (flat, f32) sent as `form`."""
    values = np.ravel(values).astype(np.float32)
    if form == "none":
        return values
    elements = values.size
    padded = np.zeros(-(-elements // block) * block, np.float32)
    padded[:elements] = values
    padded = padded.reshape(-1, block)

    magnitude = padded.view(np.uint32) & np.uint32(0x7FFFFFFF)
    magnitude[magnitude < 0x00800000] = 0
    amax = magnitude.max(axis=1)
    with np.errstate(all="ignore"):
        exact = amax.view(np.float32) / np.float32(MAX_CODE[form])
        # bf16, rounded up, at least the smallest normal.
        bits = (exact.view(np.uint32).astype(np.uint64) + 0xFFFF) >> 16
        bits = np.maximum(bits, 0x0080)
        bits[amax == 0] = 0
        bits[amax >= 0x7F800000] = 0x7FC0
        scale = (bits << 16).astype(np.uint32).view(np.float32)
        usable = scale > 0
        inverse = np.where(usable, np.float32(1) / np.where(
            usable, scale, np.float32(1)), np.float32(0)).astype(np.float32)
        codes = np.rint(padded * inverse[:, None])
        codes[(magnitude == 0) | (inverse[:, None] == 0)] = 0
        assert not np.any(np.abs(codes) > MAX_CODE[form])
        # Convert to int32, so that -0.0 does not survive the wire.
        received = (codes.astype(np.int32).astype(np.float32)
                    * scale[:, None]).astype(np.float32)
    return received.reshape(-1)[:elements]


def all_gather(shards, form: str, block: int, dim: int, dtype) -> np.ndarray:
    """qwZ of the ranks' `shards`, as every rank gets it."""
    received = [transport(shard.astype(np.float32), form, block)
                .reshape(shard.shape) for shard in shards]
    return np.concatenate(received, axis=dim).astype(dtype)


def hops_of(tiers, forms) -> list[tuple[int, str]]:
    """Size and format of each hop, the innermost first.

    `tiers` are the mesh's sizes, slowest first. One format is one hop over all
    tiers. Otherwise the last format is that of the outermost tier, and the one
    before it that of all tiers in between. There is no hop over one device.
    """
    if len(forms) == 1:
        return [(int(np.prod(tiers)), forms[0])]
    inner = [forms[min(hop, len(forms) - 2)] for hop in range(len(tiers) - 1)]
    return [(size, form) for size, form in zip(
        reversed(tiers), [*inner, forms[-1]]) if size > 1]


def reduce_scatter(operands, tiers, forms, block: int, dim: int, dtype,
                   rotates: bool = True):
    """qgZ: the slice that each rank gets of the sum over all of them.

    `operands` are the ranks' f32 arrays; `tiers` the mesh's sizes, slowest
    first; `forms` as for hops_of. Where it `rotates`, sums of rotated values
    stay rotated up to the next hop if its slices are whole groups.
    """
    hops = hops_of(tiers, forms)
    tiers = [size for size, _ in reversed(hops)]
    ranks = np.array(list(np.ndindex(*tiers)))
    ordered = [tuple(rank) for rank in ranks]

    # [tiers..., unit, rest...] of each rank: the slices along `dim`.
    held = {}
    for rank, operand in zip(ordered, operands):
        moved = np.moveaxis(np.asarray(operand, np.float32), dim, 0)
        held[rank] = moved.reshape(*tiers, -1, *moved.shape[1:])
    # A chunk lies as the tensor does: the cut dim where it was, with the slices
    # that remain in their order.
    def lay(chunk, axis):
        front = np.reshape(chunk, (-1, *chunk.shape[axis + 1:]))
        lying = np.moveaxis(front, 0, dim)
        return lying.reshape(-1), lying.shape

    def take_up(flat, lying, chunk):
        return np.moveaxis(flat.reshape(lying), dim, 0).reshape(chunk)

    # Of a slice, from its first row to its last.
    shape = np.asarray(operands[0]).shape
    run = (shape[dim] // int(np.prod(tiers))
           * int(np.prod(shape[dim + 1:], dtype=int)))
    is_rotated = False
    for hop, (_, form) in enumerate(hops):
        axis = len(tiers) - 1 - hop
        quantizes = rotates and form != "none"
        after = hops[hop + 1][1] if hop + 1 < len(hops) else "none"
        stays = quantizes and after != "none" and run % ROTATION == 0
        result = {}
        for rank in ordered:
            total = None
            for source in range(tiers[axis]):
                peer = rank[:axis] + (source,) + rank[axis + 1:]
                chunk = np.take(held[peer], rank[axis], axis=axis)
                sent, lying = lay(chunk, axis)
                if quantizes and not is_rotated:
                    sent = rotate(sent)
                arrived = transport(sent, form, block)
                total = arrived if total is None else (
                    total + arrived).astype(np.float32)
            if quantizes and not stays:
                total = rotate_back(total)
            result[rank] = take_up(total, lying, chunk.shape)
        held = result
        is_rotated = stays
    return [np.moveaxis(held[rank], 0, dim).astype(dtype) for rank in ordered]
