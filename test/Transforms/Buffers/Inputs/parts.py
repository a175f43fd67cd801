"""Prints a function that quantizes N tensors into the buffer of one exchange.

    python parts.py N
"""

import sys

count = int(sys.argv[1])
arguments = ", ".join(f"%x{i}: tensor<1x64xf32>" for i in range(count))
names = ", ".join(f"%p{i}" for i in range(count))
types = ", ".join(["tensor<1x80xi8>"] * count)
whole = f"tensor<1x{80 * count}xi8>"
chunks = f"tensor<4x1x{80 * count}xi8>"
print('#mesh = #zero.mesh<"gpu" = 4>')
print(f"func.func @parts({arguments}) -> {chunks} {{")
for i in range(count):
    print(f"  %e{i} = tensor.empty() : tensor<1x80xi8>")
    print(f"  %p{i} = zero.quantize %x{i} quant <i8, block = 64> into %e{i} : "
          "tensor<1x64xf32> into tensor<1x80xi8> -> tensor<1x80xi8>")
print(f"  %whole = tensor.concat dim(1) {names} : ({types}) -> {whole}")
print(f"  %e = tensor.empty() : {chunks}")
print('  %all = zero.all_gather_chunks %whole along ["gpu"] on #mesh into %e : '
      f"{whole} into {chunks} -> {chunks}")
print(f"  return %all : {chunks}")
print("}")
