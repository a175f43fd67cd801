// A rewritten step becomes a folder; its library runs without LLVM.

// UNSUPPORTED: sanitizer
// RUN: rm -rf %t && mkdir %t
// RUN: zpp-opt %s --pass-pipeline='builtin.module(builtin.module(zero-bufferize-host),convert-zero-to-xla-ffi)' --mlir-print-debuginfo -o %t/fast.mlir
// RUN: zpp-bundle %t/fast.mlir -o %t/step.zpp
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t/step.zpp/bundle.json
// RUN: FileCheck %s --check-prefix=STEP --input-file=%t/step.zpp/step.mlir
// RUN: cat %t/step.zpp/bundle.json %t/step.zpp/step.mlir | FileCheck %s --check-prefix=NAMED

// RUN: %cxx -x c -std=c99 -pedantic -Wall -Wextra -Wno-missing-field-initializers -Werror -I%zpp_src/include %S/Inputs/zpp-bundle.c -o %t/main -L%zpp_obj/lib -lzpp_rt -Wl,-rpath,%zpp_obj/lib -lpthread -ldl
// RUN: %t/main %t/step.zpp/libstep.so cpu | FileCheck %s --check-prefix=RESULT
// RUN: %if simulated-gpu %{ %simulated-gpu %t/main %t/step.zpp/libstep.so cuda | FileCheck %s --check-prefix=RESULT %}

// The same input gives the same bytes, from wherever; a bundle is replaced.
// RUN: mkdir %t/elsewhere && cp %t/fast.mlir %t/elsewhere
// RUN: zpp-bundle %t/elsewhere/fast.mlir -o %t/elsewhere/copy.zpp/
// RUN: diff -r %t/step.zpp %t/elsewhere/copy.zpp
// RUN: zpp-bundle - -o %t/step.zpp < %t/fast.mlir
// RUN: diff -r %t/step.zpp %t/elsewhere/copy.zpp
// RUN: ls -A %t | FileCheck %s --check-prefix=FILES
// FILES: elsewhere
// FILES-NEXT: fast.mlir
// FILES-NEXT: main
// FILES-NEXT: step.zpp
// FILES-NOT: {{.}}

// A bundle for another processor has another id.
// RUN: zpp-bundle %t/fast.mlir -o %t/native.zpp --mcpu=generic --linker=ld.lld
// RUN: grep '"id"' %t/step.zpp/bundle.json > %t/id
// RUN: grep -f %t/id %t/native.zpp/bundle.json
// RUN: zpp-bundle %t/fast.mlir -o %t/arm.zpp --target-triple=aarch64-linux-gnu
// RUN: not grep -f %t/id %t/arm.zpp/bundle.json
// RUN: llvm-objdump -d %t/arm.zpp/libstep.so | FileCheck %s --check-prefix=ARM
// ARM: file format elf64-littleaarch64
// ARM: <gather>:

// JSON:      "version": 5,
// JSON-NEXT: "digest": "{{[0-9a-f]+}}",
// JSON-NEXT: "id": "[[HASH:[0-9a-f]+]]",
// JSON-NEXT: "sha256": {
// JSON-NEXT:   "libstep.so": "{{[0-9a-f]+}}",
// JSON-NEXT:   "step.mlir": "{{[0-9a-f]+}}"
// JSON-NEXT: },
// JSON-NEXT: "mesh": "node:2,gpu:2",
// JSON-NEXT: "functions": [
// JSON-NEXT:   {
// JSON-NEXT:     "name": "gather",
// JSON-NEXT:     "title": "train.py:7:3",
// JSON-NEXT:     "inputs": [
// JSON-NEXT:       60
// JSON-NEXT:     ],
// JSON-NEXT:     "outputs": [
// JSON-NEXT:       240
// JSON-NEXT:     ],
// JSON-NEXT:     "arguments": [
// JSON-NEXT:       0
// JSON-NEXT:     ],
// JSON-NEXT:     "results": [
// JSON-NEXT:       0
// JSON-NEXT:     ],
// JSON-NEXT:     "workspace": 512,
// JSON-NEXT:     "bytes": {
// JSON-NEXT:       "node": 32,
// JSON-NEXT:       "gpu": 64
// JSON-NEXT:     }
// JSON-NEXT:   },
// JSON-NEXT:   {
// JSON-NEXT:     "name": "scatter",
// JSON-NEXT:     "title": "train.py:9:3",
// JSON:          "workspace": 512,
// JSON-NEXT:     "bytes": {
// JSON-NEXT:       "node": 64,
// JSON-NEXT:       "gpu": 32
// JSON-NEXT:     }

// Starts and waits name the bundle.
// NAMED: "id": "[[HASH:[0-9a-f]+]]"
// NAMED: backend_config = {bundle = "[[HASH]]", function = "gather"
// NAMED: backend_config = {bundle = "[[HASH]]", function = "scatter"

// In the generic form, without the host functions, with the places of the source.
// STEP:     "func.func"()
// STEP:     "stablehlo.custom_call"({{.*}}workspace = 1 : i64}, call_target_name = "zpp.start"
// STEP:     loc("train.py":
// STEP-NOT: zpp_host

// RESULT: rank 0: gathered 127 254 508 1016 scattered 508 508
// RESULT: rank 1: gathered 127 254 508 1016 scattered 1016 1016
// RESULT: rank 2: gathered 127 254 508 1016 scattered 2032 2032
// RESULT: rank 3: gathered 127 254 508 1016 scattered 4064 4064

#mesh = #zero.mesh<"node" = 2, "gpu" = 2>
func.func public @main(%w: tensor<3x5xf32>, %g: tensor<12x5xf32>)
    -> (tensor<12x5xf32>, tensor<3x5xf32>) {
  %y = zero.start @zpp_host::@gather(%w) : (tensor<3x5xf32>) -> tensor<12x5xf32> loc("train.py":7:3)
  %0 = zero.wait %y from(%w : tensor<3x5xf32>) : tensor<12x5xf32> loc("train.py":7:3)
  %z = zero.start @zpp_host::@scatter(%g) : (tensor<12x5xf32>) -> tensor<3x5xf32> loc("train.py":9:3)
  %1 = zero.wait %z from(%g : tensor<12x5xf32>) : tensor<3x5xf32> loc("train.py":9:3)
  return %0, %1 : tensor<12x5xf32>, tensor<3x5xf32>
}
module @zpp_host {
  func.func @gather(%w: tensor<3x5xf32>) -> tensor<12x5xf32> {
    %0 = tensor.empty() : tensor<1x32xi8>
    %1 = zero.quantize %w quant <i8, block = 32> slices <dim = 0, factors = [], chunk = []> into %0
        : tensor<3x5xf32> into tensor<1x32xi8> -> tensor<1x32xi8>
    %2 = tensor.empty() : tensor<4x1x32xi8>
    %3 = zero.all_gather_chunks %1 along ["node", "gpu"] on #mesh into %2
        : tensor<1x32xi8> into tensor<4x1x32xi8> -> tensor<4x1x32xi8>
    %4 = tensor.empty() : tensor<12x5xf32>
    %5 = zero.dequantize %3 quant <i8, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %4
        : tensor<4x1x32xi8> into tensor<12x5xf32> -> tensor<12x5xf32>
    return %5 : tensor<12x5xf32>
  } loc("train.py":7:3)
  func.func @scatter(%g: tensor<12x5xf32>) -> tensor<3x5xf32> {
    %0 = tensor.empty() : tensor<4x32xi8>
    %1 = zero.quantize %g quant <i8, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %0
        : tensor<12x5xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
    %2 = tensor.empty() : tensor<4x32xi8>
    %3 = zero.all_to_all %1 along ["node", "gpu"] on #mesh into %2
        : tensor<4x32xi8> into tensor<4x32xi8> -> tensor<4x32xi8>
    %4 = func.call @sum(%3) : (tensor<4x32xi8>) -> tensor<3x5xf32>
    return %4 : tensor<3x5xf32>
  } loc("train.py":9:3)
  func.func private @sum(%c: tensor<4x32xi8>) -> tensor<3x5xf32> {
    %0 = tensor.empty() : tensor<3x5xf32>
    %1 = zero.dequantize_reduce sum %c quant <i8, block = 32> into %0
        : tensor<4x32xi8> into tensor<3x5xf32> -> tensor<3x5xf32>
    return %1 : tensor<3x5xf32>
  }
}
