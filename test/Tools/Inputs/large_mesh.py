# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a step of unrolled layers on 2048 nodes of 8 devices: products with seven weights each, forward and backward.

    large_mesh.py LAYERS axes|lists
"""

import sys

NODES, GPUS = 2048, 8
DEVICES = NODES * GPUS
#: Rows of a device's part, rows of a whole weight, columns.
PART, WHOLE, COLUMNS = 16, 16 * DEVICES, 1024
WEIGHTS = 7


def groups(spelling: str) -> str:
    if spelling == "axes":
        axes = ", ".join(f'#stablehlo.axis_ref<name = "{name}">' for name in ("node", "gpu"))
        return f"#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [{axes}]>"
    return f"dense<[{list(range(DEVICES))}]> : tensor<1x{DEVICES}xi64>"


def step(layers: int, spelling: str) -> list[str]:
    part, whole, x = (
        f"tensor<{rows}x{COLUMNS}xf32>" if rows else f"tensor<16x{columns}xf32>"
        for rows, columns in ((PART, 0), (WHOLE, 0), (0, WHOLE))
    )
    y = f"tensor<16x{COLUMNS}xf32>"
    count = layers * WEIGHTS
    common = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #groups, use_global_device_ids"
    lines = [
        f"#groups = {groups(spelling)}",
        f"module attributes {{mhlo.num_partitions = {DEVICES} : i32, mhlo.num_replicas = 1 : i32}} {{",
        f'"sdy.mesh"() <{{mesh = #sdy.mesh<["node"={NODES}, "gpu"={GPUS}]>, sym_name = "mesh"}}> : () -> ()',
        f"func.func public @main(%x: {x}, {', '.join(f'%w{i}: {part}' for i in range(count))}) -> ({', '.join([part] * count)}) {{",
    ]
    for i in range(count):
        lines += [
            f'%g{i} = "stablehlo.all_gather"(%w{i}) <{{all_gather_dim = 0 : i64, {common}}}> : ({part}) -> {whole}',
            f'%y{i} = "stablehlo.dot_general"(%x, %g{i}) <{{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}}> : ({x}, {whole}) -> {y}',
        ]
    for i in reversed(range(count)):
        lines += [
            f'%d{i} = "stablehlo.dot_general"(%x, %y{i}) <{{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}}> : ({x}, {y}) -> {whole}',
            f'%s{i} = "stablehlo.reduce_scatter"(%d{i}) <{{{common}, scatter_dimension = 0 : i64}}> ({{',
            "^bb0(%a: tensor<f32>, %b: tensor<f32>):",
            '%c = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>',
            '"stablehlo.return"(%c) : (tensor<f32>) -> ()',
            f"}}) : ({whole}) -> {part}",
            f'%n{i} = "stablehlo.subtract"(%w{i}, %s{i}) : ({part}, {part}) -> {part}',
        ]
    lines += [
        f"return {', '.join(f'%n{i}' for i in range(count))} : {', '.join([part] * count)}",
        "}",
        "}",
    ]
    return lines


print(*step(int(sys.argv[1]), sys.argv[2]), sep="\n")
