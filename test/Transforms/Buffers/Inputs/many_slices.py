# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a function that decodes N tensors that arrive in one buffer.

    python many_slices.py N [whole | slice]

With a second argument it also returns the whole or the first slice.
"""

import sys

count, also = int(sys.argv[1]), sys.argv[2:]
chunks = f"tensor<4x1x{80 * count}xi8>"
names = [f"%y{i}" for i in range(count)]
types = ["tensor<4x64xf32>"] * count
if also == ["whole"]:
    names.append("%all")
    types.append(chunks)
elif also == ["slice"]:
    names.append("%s0")
    types.append("tensor<4x80xi8>")
print('#mesh = #zero.mesh<"gpu" = 4>')
print(f"func.func @parts(%x: tensor<1x{80 * count}xi8>) -> ({', '.join(types)}) {{")
print(f"  %e = tensor.empty() : {chunks}")
print('  %all = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : '
      f"tensor<1x{80 * count}xi8> into {chunks} -> {chunks}")
for i in range(count):
    print(f"  %s{i} = tensor.extract_slice %all[0, 0, {80 * i}] [4, 1, 80] "
          f"[1, 1, 1] : {chunks} to tensor<4x80xi8>")
    print(f"  %e{i} = tensor.empty() : tensor<4x64xf32>")
    print(f"  %y{i} = zero.dequantize %s{i} quant <i8, block = 64> into %e{i} : "
          "tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>")
print(f"  return {', '.join(names)} : {', '.join(types)}")
print("}")
