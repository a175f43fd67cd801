// A slice per runtime call, with the source location of the collective.

// RUN: zpp-run %s --trace=%t.json --print | FileCheck %s
// RUN: FileCheck %s --check-prefix=TRACE < %t.json

// CHECK: result 0 on rank 0: [[VALUES:.*]]
// CHECK: result 0 on rank 1: [[VALUES]]
// TRACE: "name": "rank 0 (gpu 0)"
// TRACE: "name": "rank 1 (gpu 1)"
// TRACE-COUNT-2: "name": "all_gather_chunks train.py:42:7", "cat": "all_gather_chunks",{{.*}}"args": {"input_bytes": 8, "output_bytes": 16, "along": "gpu"}

#mesh = #zero.mesh<"gpu" = 2>
func.func @main(%w: tensor<2xf32>) -> tensor<2x2xf32> {
  %0 = tensor.empty() : tensor<2x2xf32>
  %1 = zero.all_gather_chunks %w along ["gpu"] on #mesh into %0
      : tensor<2xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
      loc("train.py":42:7)
  return %1 : tensor<2x2xf32>
}
