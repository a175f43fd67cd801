# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""indices.py KIND COUNT: two loops that gather the layers of one weight.

The second one chooses the layer by COUNT ops: a chain of them, or as many that
read the one before twice, so that the number of paths doubles with each.
"""

import sys

INDEX = "(tensor<i32>, tensor<i32>) -> tensor<i32>"
HEAD = """\
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>
func.func @loops(%w: tensor<3x2xf32>, %s: tensor<3xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
  %c3 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>"""
LOOP = """\
  %NAME:2 = "stablehlo.while"(%c0, %START) ({
  ^bb0(%i: tensor<i32>, %h: tensor<16xf32>):
    %more = "stablehlo.compare"(%i, %c3) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %h: tensor<16xf32>):
OPS
    %f = "stablehlo.dynamic_slice"(%w, %INDEX, %c0) <{slice_sizes = array<i64: 1, 2>}> : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %f1 = "stablehlo.reshape"(%f) : (tensor<1x2xf32>) -> tensor<2xf32>
    %f2 = "stablehlo.dynamic_slice"(%s, %INDEX) <{slice_sizes = array<i64: 1>}> : (tensor<3xf32>, tensor<i32>) -> tensor<1xf32>
    %f3 = "stablehlo.broadcast_in_dim"(%f2) <{broadcast_dimensions = array<i64: 0>}> : (tensor<1xf32>) -> tensor<2xf32>
    %f4 = "stablehlo.multiply"(%f1, %f3) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %f5 = zero.from_local %f4 : tensor<2xf32> to !primary
    %f6 = zero.all_gather %f5 along ["node", "gpu"] : !primary to !whole
    %f7 = zero.to_local %f6 : !whole to tensor<16xf32>
    %y = "stablehlo.multiply"(%h, %f7) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    %next = "stablehlo.add"(%i, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%next, %y) : (tensor<i32>, tensor<16xf32>) -> ()
  }) : (tensor<i32>, tensor<16xf32>) -> (tensor<i32>, tensor<16xf32>)"""

kind, count = sys.argv[1], int(sys.argv[2])
ops, last = [], "i" if kind == "chain" else "c0"
for number in range(count):
    other = "c0" if kind == "chain" else last
    ops.append(f'    %n{number} = "stablehlo.add"(%{last}, %{other}) : {INDEX}')
    last = f"n{number}"
ops.append(f'    %index = "stablehlo.add"(%i, %{last if kind != "chain" else "c0"})'
           f" : {INDEX}")


def loop(name, start, index, body):
    text = LOOP.replace("NAME", name).replace("START", start)
    return text.replace("INDEX", index).replace("OPS", "\n".join(body))


print(HEAD)
print(loop("forward", "x", "i", []))
print(loop("backward", "forward#1", last if kind == "chain" else "index", ops))
print("  return %backward#1 : tensor<16xf32>\n}")
