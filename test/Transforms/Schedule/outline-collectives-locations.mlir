// RUN: zpp-opt %s --zero-outline-collectives --remarks-filter=none --mlir-print-local-scope | FileCheck %s
// RUN: zpp-opt %s --zero-outline-collectives --zero-outline-collectives --remarks-filter=none \
// RUN:   --mlir-print-local-scope | FileCheck %s
// RUN: zpp-opt %s --zero-outline-collectives --remarks-filter=none --mlir-print-debuginfo \
// RUN:   --mlir-print-local-scope | FileCheck %s

// Chains that differ in locations only share a function, whether or not the
// output has locations. An instance says which ones are in place of which.

// CHECK-LABEL: func.func @layers
// CHECK: zero.start @zpp_host::@zpp_collective_0
// The same chain at the same locations.
// CHECK: zero.start @zpp_host::@zpp_collective_0
// Another layer, twice.
// CHECK: zero.start @zpp_host::@zpp_collective_1
// CHECK: zero.start @zpp_host::@zpp_collective_1
// Two locations where the function has one.
// CHECK: zero.start @zpp_host::@zpp_collective_2
// The parts of a fused location are replaced, since passes take it apart.
// CHECK: zero.start @zpp_host::@zpp_collective_3
// CHECK: zero.start @zpp_host::@zpp_collective_4
// No location is not a location: passes drop it.
// CHECK: zero.start @zpp_host::@zpp_collective_5

// CHECK: module @zpp_host
// CHECK: func.func @zpp_collective_0
// CHECK: zero.instance @zpp_collective_1 of @zpp_collective_0 from [loc("weight #1"("step.py":3:7))] to [loc("weight #9"("step.py":3:7))]
// CHECK: func.func @zpp_collective_2
// CHECK: func.func @zpp_collective_3
// CHECK: zero.instance @zpp_collective_4 of @zpp_collective_3 from [loc("a"), loc("b")] to [loc("c"), loc("d")]
// CHECK: func.func @zpp_collective_5
// CHECK-NOT: func.func

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @layers(%x: tensor<4x64xbf16>) -> (tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>) {
  %e0 = tensor.empty() : tensor<1x272xi8> loc("weight #1"("step.py":3:7))
  %f0 = tensor.empty() : tensor<4x1x272xi8> loc("weight #1"("step.py":3:7))
  %q0 = zero.quantize %x quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e0
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8> loc("weight #1"("step.py":3:7))
  %g0 = zero.all_gather_chunks %q0 along ["gpu"] on #mesh into %f0
      : tensor<1x272xi8> into tensor<4x1x272xi8> -> tensor<4x1x272xi8> loc("weight #1"("step.py":3:7))
  %e1 = tensor.empty() : tensor<1x272xi8> loc("weight #1"("step.py":3:7))
  %f1 = tensor.empty() : tensor<4x1x272xi8> loc("weight #1"("step.py":3:7))
  %q1 = zero.quantize %x quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e1
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8> loc("weight #1"("step.py":3:7))
  %g1 = zero.all_gather_chunks %q1 along ["gpu"] on #mesh into %f1
      : tensor<1x272xi8> into tensor<4x1x272xi8> -> tensor<4x1x272xi8> loc("weight #1"("step.py":3:7))
  %e2 = tensor.empty() : tensor<1x272xi8> loc("weight #9"("step.py":3:7))
  %f2 = tensor.empty() : tensor<4x1x272xi8> loc("weight #9"("step.py":3:7))
  %q2 = zero.quantize %x quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e2
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8> loc("weight #9"("step.py":3:7))
  %g2 = zero.all_gather_chunks %q2 along ["gpu"] on #mesh into %f2
      : tensor<1x272xi8> into tensor<4x1x272xi8> -> tensor<4x1x272xi8> loc("weight #9"("step.py":3:7))
  %e3 = tensor.empty() : tensor<1x272xi8> loc("weight #9"("step.py":3:7))
  %f3 = tensor.empty() : tensor<4x1x272xi8> loc("weight #9"("step.py":3:7))
  %q3 = zero.quantize %x quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e3
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8> loc("weight #9"("step.py":3:7))
  %g3 = zero.all_gather_chunks %q3 along ["gpu"] on #mesh into %f3
      : tensor<1x272xi8> into tensor<4x1x272xi8> -> tensor<4x1x272xi8> loc("weight #9"("step.py":3:7))
  %e4 = tensor.empty() : tensor<1x272xi8> loc("weight #2"("step.py":3:7))
  %f4 = tensor.empty() : tensor<4x1x272xi8> loc("weight #2"("step.py":3:7))
  %q4 = zero.quantize %x quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e4
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8> loc("weight #2"("step.py":3:7))
  %g4 = zero.all_gather_chunks %q4 along ["gpu"] on #mesh into %f4
      : tensor<1x272xi8> into tensor<4x1x272xi8> -> tensor<4x1x272xi8> loc("weight #3"("step.py":3:7))
  %e5 = tensor.empty() : tensor<1x272xi8> loc(fused["a", "b"])
  %f5 = tensor.empty() : tensor<4x1x272xi8> loc(fused["a", "b"])
  %q5 = zero.quantize %x quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e5
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8> loc(fused["a", "b"])
  %g5 = zero.all_gather_chunks %q5 along ["gpu"] on #mesh into %f5
      : tensor<1x272xi8> into tensor<4x1x272xi8> -> tensor<4x1x272xi8> loc(fused["a", "b"])
  %e6 = tensor.empty() : tensor<1x272xi8> loc(fused["c", "d"])
  %f6 = tensor.empty() : tensor<4x1x272xi8> loc(fused["c", "d"])
  %q6 = zero.quantize %x quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e6
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8> loc(fused["c", "d"])
  %g6 = zero.all_gather_chunks %q6 along ["gpu"] on #mesh into %f6
      : tensor<1x272xi8> into tensor<4x1x272xi8> -> tensor<4x1x272xi8> loc(fused["c", "d"])
  %e7 = tensor.empty() : tensor<1x272xi8> loc(unknown)
  %f7 = tensor.empty() : tensor<4x1x272xi8> loc(unknown)
  %q7 = zero.quantize %x quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e7
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8> loc(unknown)
  %g7 = zero.all_gather_chunks %q7 along ["gpu"] on #mesh into %f7
      : tensor<1x272xi8> into tensor<4x1x272xi8> -> tensor<4x1x272xi8> loc("e")
  return %g0, %g1, %g2, %g3, %g4, %g5, %g6, %g7 : tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>, tensor<4x1x272xi8>
}
