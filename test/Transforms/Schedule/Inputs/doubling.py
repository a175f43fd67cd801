"""Prints a step in which the number of paths doubles with each of N ops.

    python doubling.py KIND N

constants: what is gathered is scaled by N squarings of a constant.
calls: N functions without compute, of which each calls the next one twice.
collectives: such functions, the last one with an all_gather.
recursion: two functions call each other, and one of them has a product.
"""

import sys

HOST = """
#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
  func.func @scatter(%x: tensor<16x32xf32>) -> tensor<2x32xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 2, 32] : tensor<16x32xf32> into tensor<8x2x32xf32>
    %e = tensor.empty() : tensor<8x2x32xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<8x2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %f = tensor.empty() : tensor<2x32xf32>
    %2 = zero.reduce sum %1 into %f : tensor<8x2x32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
    return %2 : tensor<2x32xf32>
  }
}
"""

MATRIX = "tensor<16x32xf32>"


def squarings(start: str, count: int, type: str) -> str:
    """The squarings of `start`; the last one is `%q`."""
    names = [start] + [f"%q{i}" for i in range(1, count)] + ["%q"]
    return "".join(
        f'    {names[i + 1]} = "stablehlo.multiply"({names[i]}, {names[i]})'
        f" : ({type}, {type}) -> {type}\n" for i in range(count))


def gather_and(use: str) -> str:
    return f"""
func.func @step(%x: tensor<2x32xf32>, %y: {MATRIX}) -> {MATRIX} {{
  %s = zero.start @zpp_host::@gather(%x) {{origins = [{{role = "weight"}}]}} : (tensor<2x32xf32>) -> {MATRIX}
  %w = zero.wait %s from(%x : tensor<2x32xf32>) : {MATRIX}
{use}}}
"""


def constants(count: int) -> str:
    return HOST + gather_and(f"""\
  %c = "stablehlo.constant"() <{{value = dense<1.0> : {MATRIX}}}> : () -> {MATRIX}
{squarings("%c", count, MATRIX)}\
  %0 = "stablehlo.multiply"(%w, %q) : ({MATRIX}, {MATRIX}) -> {MATRIX}
  %1 = "stablehlo.dot_general"(%y, %y) : ({MATRIX}, {MATRIX}) -> {MATRIX}
  %2 = "stablehlo.dot_general"(%1, %0) : ({MATRIX}, {MATRIX}) -> {MATRIX}
  return %2 : {MATRIX}
""")


def calls(functions: str) -> str:
    return HOST + gather_and(f"""\
  %0 = func.call @f0(%y) : ({MATRIX}) -> {MATRIX}
  %1 = "stablehlo.add"(%0, %w) : ({MATRIX}, {MATRIX}) -> {MATRIX}
  return %1 : {MATRIX}
""") + functions


def function(name: str, body: str) -> str:
    return (f"func.func private @{name}(%x: {MATRIX}) -> {MATRIX} {{\n{body}"
            f"  return %r : {MATRIX}\n}}\n")


def call(result: str, name: str, operand: str) -> str:
    return f"  {result} = func.call @{name}({operand}) : ({MATRIX}) -> {MATRIX}\n"


PRODUCT = (f'  %p = "stablehlo.dot_general"(%x, %x) : ({MATRIX}, {MATRIX}) -> '
           f"{MATRIX}\n")


def doubling_calls(count: int, last: str) -> str:
    return "".join(
        function(f"f{i}", call("%0", f"f{i + 1}", "%x")
                 + call("%r", f"f{i + 1}", "%0")) for i in range(count)
    ) + function(f"f{count}", last)


def main(kind: str, count: int) -> None:
    if kind == "constants":
        print(constants(count))
    elif kind == "calls":
        print(calls(doubling_calls(
            count, f'  %r = "stablehlo.negate"(%x) : ({MATRIX}) -> {MATRIX}\n')))
    elif kind == "collectives":
        gather = (
            '  %g = "stablehlo.slice"(%x) <{start_indices = array<i64: 0, 0>, '
            "limit_indices = array<i64: 2, 32>, strides = array<i64: 1, 1>}> : "
            f"({MATRIX}) -> tensor<2x32xf32>\n"
            '  %r = "stablehlo.all_gather"(%g) <{all_gather_dim = 0 : i64, '
            "replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : "
            "tensor<1x8xi64>, use_global_device_ids}> : (tensor<2x32xf32>) -> "
            f"{MATRIX}\n")
        print(f"func.func public @step(%x: {MATRIX}) -> {MATRIX} {{\n"
              + call("%0", "f0", "%x") + f"  return %0 : {MATRIX}\n}}\n"
              + doubling_calls(count, gather))
    elif kind == "recursion":
        print(calls(function("f0", call("%r", "f1", "%x"))
                    + function("f1", call("%r", "f0", "%x") + PRODUCT)))
    else:
        raise SystemExit(f"expected a kind of step, but got {kind}")


main(sys.argv[1], int(sys.argv[2]))
