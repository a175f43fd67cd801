"""Prints a program that gathers N small weights, in wire chunks (@quantized) and
as they are (@plain).

    python many_parts.py N
"""

import sys

COUNT = int(sys.argv[1])
PART, WHOLE = "tensor<2x64xf32>", "tensor<8x64xf32>"
SHARD = "!zero.shard<8x64xf32, dim 0 = {} on #mesh{}>"


def gather(index, quant):
    wire = ", #zero.quant<i8, block = 64>" if quant else ""
    shard = SHARD.format('("node", "gpu")', "")
    sent = SHARD.format('("node", "gpu")', wire)
    moved = SHARD.format("(2, 2)", wire)
    whole = SHARD.format("(2, 2)", "")
    value = f"%s{index}"
    print(f"  {value} = zero.from_local %w{index} : {PART} to {shard}")
    if quant:
        print(f"  %q{index} = zero.encode {value} : {shard} to {sent}")
        value = f"%q{index}"
    print(f'  %g{index} = zero.all_gather {value} along ["node", "gpu"] '
          f'{{zpp.origin = {{id = {index}, role = "weight"}}}} : '
          f'{sent} to {moved}')
    value = f"%g{index}"
    if quant:
        print(f"  %d{index} = zero.decode {value} : {moved} to {whole}")
        value = f"%d{index}"
    print(f"  %l{index} = zero.to_local {value} : {whole} to {WHOLE}")


print('#mesh = #zero.mesh<"node" = 2, "gpu" = 2>')
for name in ("quantized", "plain"):
    arguments = ", ".join(f"%w{i}: {PART}" for i in range(COUNT))
    types = ", ".join([WHOLE] * COUNT)
    print(f"func.func @{name}({arguments}) -> ({types}) {{")
    for i in range(COUNT):
        gather(i, name == "quantized")
    print(f"  return {', '.join(f'%l{i}' for i in range(COUNT))} : {types}")
    print("}")
