# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts the bytes of the collectives in a module, independently of zpp.

Read with the StableHLO of jaxlib and counted device by device from the groups
themselves.
"""

import collections
import itertools
import math
import re

import numpy as np
from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all",
         "collective_permute", "collective_broadcast")

_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "ui8": 1, "i8": 1, "i32": 4, "ui32": 4,
          "f64": 8, "i64": 8}


def parse(text: str):
    """The module, with the context that has to outlive it."""
    context = make_ir_context()
    with context:
        return ir.Module.parse(text, context), context


def count(text: str) -> collections.Counter:
    """Collectives in `text`, by kind; a loop's body counts once."""
    return collections.Counter(
        re.findall(rf'"?stablehlo\.({"|".join(KINDS)})\b', text))


def sent_bytes(text: str, tiers: dict[str, int]) -> dict[str, int]:
    """Bytes that a device sends over each tier in one run of the module."""
    return {tier: sum(entry[tier] for _, entry in each(text, tiers))
            for tier in tiers}


def each(text: str, tiers: dict[str, int]):
    """[(kind, {tier: bytes})] of every collective, as often as it runs."""
    module, _ = parse(text)
    functions = {}
    meshes = {}
    for operation in module.body.operations:
        name = operation.operation.name
        if name == "func.func":
            functions[operation.attributes["sym_name"].value] = operation
        elif name == "sdy.mesh":
            meshes[ir.StringAttr(operation.attributes["sym_name"]).value] = {
                axis: int(size) for axis, size in re.findall(
                    r'"(\w+)"=(\d+)', str(operation.attributes["mesh"]))}
    found = []

    def visit(operation, times):
        operation = operation.operation
        name = operation.name
        if name == "func.call":
            callee = ir.FlatSymbolRefAttr(
                operation.attributes["callee"]).value
            visit(functions[callee], times)
        elif name.startswith("stablehlo.") and name[10:] in KINDS:
            found.extend([(name[10:], _cost(operation, meshes, tiers))] * times)
        if name == "stablehlo.while":
            times *= _trip_count(operation)
        for region in operation.regions:
            for block in region:
                for inner in block:
                    visit(inner, times)

    visit(functions["main"], 1)
    return found


def _trip_count(loop) -> int:
    """Trip count of `for (i = 0; i < constant; ++i)`, as lax.scan makes them."""
    *_, compare, _ = loop.regions[0].blocks[0].operations
    assert compare.operation.name == "stablehlo.compare"
    bound = compare.operation.operands[1].owner
    return int(np.array(ir.DenseIntElementsAttr(
        bound.attributes["value"])).item())


def _cost(operation, meshes, tiers: dict[str, int]) -> dict[str, int]:
    kind = operation.name[10:]
    size = 0
    for operand in operation.operands:
        type_ = ir.RankedTensorType(operand.type)
        size += math.prod(type_.shape) * _BYTES[str(type_.element_type)]
    coordinates = list(itertools.product(*map(range, tiers.values())))
    names = list(tiers)
    costs = set()
    for group in _groups(operation, meshes, len(coordinates)):
        for device in group:
            cost = dict.fromkeys(names, 0)
            for tier, sent in _device_cost(
                    kind, size, device, group, coordinates):
                cost[names[tier]] += sent
            costs.add(tuple(cost.values()))
    assert len(costs) == 1, f"devices send different amounts: {costs}"
    return dict(zip(names, costs.pop()))


def _device_cost(kind, size, device, group, coordinates):
    """[(tier, bytes)] that `device` sends."""
    def border(peer):
        """The slowest tier in which two devices differ."""
        return next(tier for tier, pair in enumerate(
            zip(coordinates[device], coordinates[peer])) if len(set(pair)) == 2)

    if kind == "all_to_all":
        for peer in group:
            if peer != device:
                yield border(peer), size // len(group)
        return
    if kind in ("all_reduce", "reduce_scatter"):
        size = -(-size // len(group))
    assert kind in ("all_gather", "all_reduce", "reduce_scatter"), kind
    # A gather goes tier by tier, the slowest first: over each, a device passes
    # on what it has to every peer that differs in that tier only, and has as
    # many times more afterwards. A scatter is the reverse.
    have = size
    for tier in range(len(coordinates[0])):
        members = {coordinates[peer][tier] for peer in group}
        yield tier, (len(members) - 1) * have * (1 + (kind == "all_reduce"))
        have *= len(members)


def _groups(operation, meshes, devices: int) -> list[list[int]]:
    attribute = operation.attributes["replica_groups"]
    text = str(attribute)
    if text.startswith("dense"):
        return np.array(ir.DenseIntElementsAttr(attribute)).tolist()
    mesh = meshes[re.search(r"mesh = @(\w+)", text).group(1)]
    grid = np.arange(devices).reshape(list(mesh.values()))
    names = list(mesh)
    axes = [names.index(name) for name in
            re.findall(r'axis_ref<name = "(\w+)">', text)]
    assert len(axes) == text.count("axis_ref"), f"sub-axes: {text}"
    rest = [axis for axis in range(len(names)) if axis not in axes]
    return np.transpose(grid, rest + axes).reshape(
        -1, math.prod(grid.shape[axis] for axis in axes)).tolist()
