"""Prints a step whose weight passes through functions that call each other.

    python nested_calls.py N

N functions, of which each calls the next one twice. The last one negates.
"""

import sys

MATRIX = "tensor<8x256xf32>"


def function(index: int, count: int) -> str:
    if index + 1 < count:
        body = f"""  %1 = func.call @f{index + 1}(%0) : ({MATRIX}) -> {MATRIX}
  %2 = func.call @f{index + 1}(%1) : ({MATRIX}) -> {MATRIX}"""
    else:
        body = f'  %2 = "stablehlo.negate"(%0) : ({MATRIX}) -> {MATRIX}'
    return f"""func.func private @f{index}(%0: {MATRIX}) -> {MATRIX} {{
{body}
  return %2 : {MATRIX}
}}"""


count = int(sys.argv[1])
print(*(function(index, count) for index in range(count)), sep="\n")
print(f"""
func.func @step(%w: tensor<1x256xf32>, %x: tensor<8x8xf32>) -> ({MATRIX}, tensor<1x256xf32>) {{
  %all = "stablehlo.all_gather"(%w) <{{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}}> : (tensor<1x256xf32>) -> {MATRIX}
  %p = "stablehlo.dot_general"(%x, %all) <{{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}}> : (tensor<8x8xf32>, {MATRIX}) -> {MATRIX}
  %r = func.call @f0(%p) : ({MATRIX}) -> {MATRIX}
  %u = "stablehlo.negate"(%w) : (tensor<1x256xf32>) -> tensor<1x256xf32>
  return %r, %u : {MATRIX}, tensor<1x256xf32>
}}""")
