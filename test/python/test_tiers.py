# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""No rewrite makes a device send more over the slowest tier of a collective's
group, whatever the tensors, the mesh and the formats are.

But where the user asks for it: one format alone means one hop, in which every
pair of devices exchanges its part.
"""

import itertools
import math

import pytest
import zpp

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:zpp left all")]

#: Elements of one device's part, from one to many blocks, in odd numbers too.
PARTS = [(1,), (3,), (16,), (33,), (100,), (1, 1), (1, 7), (1, 64), (1, 65),
         (2, 40), (1, 129), (3, 85), (1, 256), (1, 500), (8, 64), (5, 333),
         (16, 256)]
#: Meshes, and the groups along which tensors are sharded.
MESHES = {
    "node:2,gpu:4": (("node", "gpu"), ("gpu",), ("node",)),
    "node:4,gpu:2": (("node", "gpu"),),
    "node:2,gpu:3": (("node", "gpu"),),
    "node:1,gpu:8": (("node", "gpu"),),
    "node:8,gpu:1": (("node", "gpu"),),
    "pod:2,node:2,gpu:2": (("pod", "node", "gpu"), ("node", "gpu"),
                           ("pod", "gpu")),
    "pod:2,node:4,gpu:2": (("pod", "node", "gpu"),),
    "site:2,pod:2,node:2,gpu:2": (("site", "pod", "node", "gpu"),),
}
#: Weights, gradients, secondary partition and block.
FORMATS = [("i8", "i8:i4", "gpu", 128), ("i4", "i4:i4", "node", 32),
           ("none", "i8:i8", "gpu", 128), ("i8", "i4:i8", "none", 2048),
           ("i8", "i8:i8:i4", "gpu", 256)]


def axes(mesh: str) -> dict[str, int]:
    return {name: int(size) for name, _, size in
            (axis.partition(":") for axis in mesh.split(","))}


def groups(mesh: dict[str, int], group: tuple[str, ...]) -> list[list[int]]:
    """The devices of each group, in the order of the mesh."""
    known = {}
    for device, place in enumerate(itertools.product(*map(range,
                                                          mesh.values()))):
        outside = tuple(index for index, name in zip(place, mesh, strict=True)
                        if name not in group)
        known.setdefault(outside, []).append(device)
    return list(known.values())


def module(mesh: dict[str, int], group: tuple[str, ...], kind: str) -> str:
    """A step with a weight of each shape: gathered for the forward and for the
    backward pass, and its gradient scattered."""
    of_group = groups(mesh, group)
    count = len(of_group[0])
    text = ("channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, "
            f"use_global_device_ids, replica_groups = dense<{of_group}> : "
            f"tensor<{len(of_group)}x{count}xi64>")
    body, arguments, results, types = [], [], [], []

    def tensor(shape):
        return f"tensor<{'x'.join(map(str, shape))}x{kind}>"

    for index, part in enumerate(PARTS):
        own, all_of = tensor(part), tensor((count * part[0], *part[1:]))
        scalar = f"tensor<{kind}>"
        arguments.append(f"%w{index}: {own}")
        body += [
            f'%f{index} = "stablehlo.all_gather"(%w{index}) <{{all_gather_dim '
            f"= 0 : i64, {text}}}> : ({own}) -> {all_of}",
            f'%y{index} = "stablehlo.dot"(%f{index}, %f{index}) : ({all_of}, '
            f"{all_of}) -> {all_of}",
            f'%o{index} = "stablehlo.optimization_barrier"(%w{index}) : '
            f"({own}) -> {own}",
            f'%b{index} = "stablehlo.all_gather"(%o{index}) <{{all_gather_dim '
            f"= 0 : i64, {text}}}> : ({own}) -> {all_of}",
            f'%d{index} = "stablehlo.dot"(%y{index}, %b{index}) : ({all_of}, '
            f"{all_of}) -> {all_of}",
            f'%g{index} = "stablehlo.reduce_scatter"(%d{index}) <{{'
            f"scatter_dimension = 0 : i64, {text}}}> ({{",
            f"^bb0(%a: {scalar}, %b: {scalar}):",
            f'  %s = "stablehlo.add"(%a, %b) : ({scalar}, {scalar}) -> '
            f"{scalar}",
            f'  "stablehlo.return"(%s) : ({scalar}) -> ()',
            f"}}) : ({all_of}) -> {own}",
            f'%n{index} = "stablehlo.subtract"(%w{index}, %g{index}) : '
            f"({own}, {own}) -> {own}"]
        results.append(f"%n{index}")
        types.append(own)
    lines = "\n".join(f"  {line}" for line in body)
    return (f"module attributes {{mhlo.num_partitions = "
            f"{math.prod(mesh.values())} : i32, mhlo.num_replicas = 1 : i32}} "
            f"{{\nfunc.func @main({', '.join(arguments)}) -> "
            f"({', '.join(types)}) {{\n{lines}\n  return {', '.join(results)} : "
            f"{', '.join(types)}\n}}\n}}\n")


@pytest.mark.parametrize("name, group", [
    (name, group) for name, of_mesh in MESHES.items() for group in of_mesh])
def test_the_slowest_tier_carries_no_more(name, group):
    mesh = axes(name)
    slowest = next(tier for tier in group if mesh[tier] > 1)
    for number, (weights, gradients, secondary, block) in enumerate(FORMATS):
        if secondary == "node" and "node" not in mesh:
            continue
        kind = ("f32", "bf16")[number % 2]
        report = zpp.rewrite(
            module(mesh, group, kind), mesh=name, weights=weights,
            gradients=gradients, secondary=secondary,
            tuning=zpp.Tuning(block=block), target="portable").report
        entries = report["collectives"]
        assert len(entries) == 3 * len(PARTS)
        assert {entry["role"] for entry in entries} == {"weight", "gradient"}
        worse = [entry for entry in entries
                 if entry["after"][slowest] > entry["before"][slowest]]
        assert not worse, (weights, gradients, secondary, block)
