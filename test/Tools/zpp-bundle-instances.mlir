// Layers that differ in the names of their weights are compiled once. Each has
// a function of its own in the library, and a row of the manifest.

// UNSUPPORTED: sanitizer
// RUN: rm -rf %t && mkdir %t
// RUN: zpp-opt %s --pass-pipeline='builtin.module(zero-outline-collectives,builtin.module(zero-bufferize-host),convert-zero-to-xla-ffi)' \
// RUN:   --remarks-filter=none --mlir-print-debuginfo -o %t/fast.mlir
// RUN: FileCheck %s --check-prefix=HOST --input-file=%t/fast.mlir
// RUN: zpp-bundle %t/fast.mlir -o %t/step.zpp
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t/step.zpp/bundle.json
// RUN: llvm-nm -D --defined-only %t/step.zpp/libstep.so | FileCheck %s --check-prefix=SYMBOLS
// RUN: llvm-objdump -d --no-show-raw-insn %t/step.zpp/libstep.so | FileCheck %s --check-prefix=CODE
// RUN: llvm-strings %t/step.zpp/libstep.so | FileCheck %s --check-prefix=NAMES

// HOST: func.func @zpp_collective_0
// HOST: zero.instance @zpp_collective_1 of @zpp_collective_0
// HOST-NOT: func.func

// JSON:      "name": "zpp_collective_0"
// JSON-NEXT: "title": "weight #1 at step.py:3:7"
// JSON:      "inputs": [
// JSON-NEXT:   60
// JSON:      "name": "zpp_collective_1"
// JSON-NEXT: "title": "weight #9 at step.py:3:7"
// JSON:      "inputs": [
// JSON-NEXT:   60
// JSON:      "bytes": {
// JSON-NEXT:   "node": 32,
// JSON-NEXT:   "gpu": 64

// SYMBOLS-NOT: shared
// SYMBOLS: zpp_collective_0
// SYMBOLS: zpp_collective_1
// SYMBOLS-NOT: shared

// The collective is called from one place.
// CODE-COUNT-1: zpp_rt_all_gather_chunks@plt>{{$}}
// CODE-NOT: zpp_rt_all_gather_chunks@plt>{{$}}

// NAMES-DAG: weight #1 at step.py:3:7
// NAMES-DAG: weight #9 at step.py:3:7

#mesh = #zero.mesh<"node" = 2, "gpu" = 2>
func.func public @main(%v: tensor<3x5xf32>, %w: tensor<3x5xf32>)
    -> (tensor<4x1x32xi8>, tensor<4x1x32xi8>) {
  %0 = tensor.empty() : tensor<1x32xi8> loc("weight #1"("step.py":3:7))
  %1 = zero.quantize %v quant <i8, block = 32> slices <dim = 0, factors = [], chunk = []> into %0
      : tensor<3x5xf32> into tensor<1x32xi8> -> tensor<1x32xi8> loc("weight #1"("step.py":3:7))
  %2 = tensor.empty() : tensor<4x1x32xi8> loc("weight #1"("step.py":3:7))
  %3 = zero.all_gather_chunks %1 along ["node", "gpu"] on #mesh into %2
      : tensor<1x32xi8> into tensor<4x1x32xi8> -> tensor<4x1x32xi8> loc("weight #1"("step.py":3:7))
  %4 = tensor.empty() : tensor<1x32xi8> loc("weight #9"("step.py":3:7))
  %5 = zero.quantize %w quant <i8, block = 32> slices <dim = 0, factors = [], chunk = []> into %4
      : tensor<3x5xf32> into tensor<1x32xi8> -> tensor<1x32xi8> loc("weight #9"("step.py":3:7))
  %6 = tensor.empty() : tensor<4x1x32xi8> loc("weight #9"("step.py":3:7))
  %7 = zero.all_gather_chunks %5 along ["node", "gpu"] on #mesh into %6
      : tensor<1x32xi8> into tensor<4x1x32xi8> -> tensor<4x1x32xi8> loc("weight #9"("step.py":3:7))
  return %3, %7 : tensor<4x1x32xi8>, tensor<4x1x32xi8>
}
