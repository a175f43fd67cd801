// RUN: zpp-opt %s --zero-pipeline-chunks --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-pipeline-chunks --zero-pipeline-chunks | FileCheck %s
// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:2 links=node=400gbyte,gpu=400gbyte" --zero-pipeline-chunks | FileCheck %s --check-prefix=FAST

#mesh = #zero.mesh<"node" = 2, "gpu" = 2>
#other = #zero.mesh<"host" = 2, "gpu" = 2>

// The origins of a start follow the order of its exchanges.
// CHECK-LABEL: func @step
// CHECK: origins = [{id = 1 : i64}, {id = 3 : i64}, {id = 2 : i64}, {id = 4 : i64}]
func.func @step(%g: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
  %0 = zero.start @zpp_host::@stages(%g) {origins = [{id = 1}, {id = 2}, {id = 3}, {id = 4}]}
      : (tensor<4096x4096xf32>) -> tensor<1024x4096xf32>
  %1 = zero.wait %0 from(%g : tensor<4096x4096xf32>) : tensor<1024x4096xf32>
  return %1 : tensor<1024x4096xf32>
}

module @zpp_host {
  // Two stages, written one after the other: the second one is quantized and goes
  // between the gpus while the first one goes between the nodes.

  // CHECK-LABEL: func @stages
  // CHECK: %[[Q0:.*]] = zero.quantize {{.*}}stage = 0 of 2
  // CHECK: %[[Q1:.*]] = zero.quantize {{.*}}stage = 1 of 2
  // CHECK: %[[A0:.*]] = zero.all_to_all %[[Q0]] along ["gpu"]
  // CHECK: %[[A1:.*]] = zero.all_to_all %[[Q1]] along ["gpu"]
  // CHECK: %[[R0:.*]] = zero.dequantize_reduce_quantize sum %[[A0]]
  // CHECK: %[[B0:.*]] = zero.all_to_all %[[R0]] along ["node"]
  // CHECK: %[[R1:.*]] = zero.dequantize_reduce_quantize sum %[[A1]]
  // CHECK: %[[B1:.*]] = zero.all_to_all %[[R1]] along ["node"]
  // CHECK: %[[C0:.*]] = zero.dequantize_reduce sum %[[B0]]
  // CHECK: %[[C1:.*]] = zero.dequantize_reduce sum %[[B1]]
  // CHECK: tensor.concat dim(0) %[[C0]], %[[C1]]

  // FAST-LABEL: func @stages
  // FAST: zero.quantize
  // FAST: zero.quantize
  // FAST: return
  func.func @stages(%g: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
    %e0 = tensor.empty() : tensor<2x4259840xi8>
    %e1 = tensor.empty() : tensor<2x1081344xi8>
    %e2 = tensor.empty() : tensor<512x4096xf32>
    %0 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors = [2, 2], chunk = [1], stage = 0 of 2> into %e0
        : tensor<4096x4096xf32> into tensor<2x4259840xi8> -> tensor<2x4259840xi8>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e0
        : tensor<2x4259840xi8> into tensor<2x4259840xi8> -> tensor<2x4259840xi8>
    %2 = zero.dequantize_reduce_quantize sum %1 quant <i8, block = 128> partial tensor<1024x4096xf32> to <i4, block = 128>
        slices <dim = 0, factors = [2], chunk = [0]> into %e1 : tensor<2x4259840xi8> into tensor<2x1081344xi8> -> tensor<2x1081344xi8>
    %3 = zero.all_to_all %2 along ["node"] on #mesh into %e1
        : tensor<2x1081344xi8> into tensor<2x1081344xi8> -> tensor<2x1081344xi8>
    %4 = zero.dequantize_reduce sum %3 quant <i4, block = 128> into %e2
        : tensor<2x1081344xi8> into tensor<512x4096xf32> -> tensor<512x4096xf32>
    %5 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors = [2, 2], chunk = [1], stage = 1 of 2> into %e0
        : tensor<4096x4096xf32> into tensor<2x4259840xi8> -> tensor<2x4259840xi8>
    %6 = zero.all_to_all %5 along ["gpu"] on #mesh into %e0
        : tensor<2x4259840xi8> into tensor<2x4259840xi8> -> tensor<2x4259840xi8>
    %7 = zero.dequantize_reduce_quantize sum %6 quant <i8, block = 128> partial tensor<1024x4096xf32> to <i4, block = 128>
        slices <dim = 0, factors = [2], chunk = [0]> into %e1 : tensor<2x4259840xi8> into tensor<2x1081344xi8> -> tensor<2x1081344xi8>
    %8 = zero.all_to_all %7 along ["node"] on #mesh into %e1
        : tensor<2x1081344xi8> into tensor<2x1081344xi8> -> tensor<2x1081344xi8>
    %9 = zero.dequantize_reduce sum %8 quant <i4, block = 128> into %e2
        : tensor<2x1081344xi8> into tensor<512x4096xf32> -> tensor<512x4096xf32>
    %10 = tensor.concat dim(0) %4, %9 : (tensor<512x4096xf32>, tensor<512x4096xf32>) -> tensor<1024x4096xf32>
    return %10 : tensor<1024x4096xf32>
  }

  // On buffers the order is that of memory, and stays.
  // CHECK-LABEL: func @buffers
  // CHECK: zero.all_to_all %arg0
  // CHECK-NEXT: zero.reduce sum %arg1
  // CHECK-NEXT: zero.all_to_all %arg0
  func.func @buffers(%x: memref<2x8xf32>, %y: memref<2x8xf32>, %z: memref<8xf32>) {
    zero.all_to_all %x along ["gpu"] on #mesh into %y : memref<2x8xf32> into memref<2x8xf32>
    zero.reduce sum %y into %z : memref<2x8xf32> into memref<8xf32>
    zero.all_to_all %x along ["node"] on #mesh into %y : memref<2x8xf32> into memref<2x8xf32>
    return
  }

  // One link is not compared with another of another mesh.
  // CHECK-LABEL: func @meshes
  // CHECK: zero.all_to_all %arg0 along ["gpu"]
  // CHECK-NEXT: zero.reduce
  // CHECK-NEXT: zero.all_to_all %arg0 along ["host"]
  // CHECK-NEXT: zero.reduce
  // expected-remark@+1 {{its exchanges stay in their order: they are on several meshes}}
  func.func @meshes(%x: tensor<2x8xf32>, %y: tensor<2x8xf32>, %z: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = zero.all_to_all %x along ["gpu"] on #mesh into %y : tensor<2x8xf32> into tensor<2x8xf32> -> tensor<2x8xf32>
    %1 = zero.reduce sum %0 into %z : tensor<2x8xf32> into tensor<8xf32> -> tensor<8xf32>
    %2 = zero.all_to_all %x along ["host"] on #other into %y : tensor<2x8xf32> into tensor<2x8xf32> -> tensor<2x8xf32>
    %3 = zero.reduce sum %2 into %z : tensor<2x8xf32> into tensor<8xf32> -> tensor<8xf32>
    return %1, %3 : tensor<8xf32>, tensor<8xf32>
  }
}
