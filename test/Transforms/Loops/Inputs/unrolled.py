# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a loop over 128 weights, each of which so many ops read.

    python unrolled.py OPS
"""

import sys

LAYER = "tensor<16xf32>"
SHARD = '16xf32, dim 0 = ("node", "gpu") on #mesh'
WHOLE = "16xf32, dim 0 = (2, 4) on #mesh"
print(f"""#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%w: tensor<128x2xf32>, %x: {LAYER}) -> {LAYER} {{
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<128> : tensor<i32>
  %r:3 = stablehlo.while(%i = %c0, %v = %w, %h0 = %x) : tensor<i32>, tensor<128x2xf32>, {LAYER}
  cond {{
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %1 = stablehlo.dynamic_slice %v, %i, %c0, sizes = [1, 2] : (tensor<128x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to <{SHARD}>
    %4 = zero.all_gather %3 along ["node", "gpu"] {{zpp.origin = {{id = 0, role = "weight"}}}} : <{SHARD}> to <{WHOLE}>
    %5 = zero.to_local %4 : <{WHOLE}> to {LAYER}""")
count = int(sys.argv[1])
for number in range(count):
    print(f"    %h{number + 1} = stablehlo.multiply %h{number}, %5 : {LAYER}")
print(f"""    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %h{count} : tensor<i32>, tensor<128x2xf32>, {LAYER}
  }}
  return %r#2 : {LAYER}
}}""")
