// RUN: zpp-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" --split-input-file | FileCheck %s

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// Every decomposed op: the destination is overwritten in place, its old content
// is not copied.
// CHECK-LABEL: func.func @ops
// CHECK-NOT:     memref.copy
func.func @ops(%g: tensor<61x7xf32>, %packed: tensor<4x16x7xf32>,
               %wire: tensor<4x128xi8>, %wire2: tensor<4x128xi8>,
               %sent: tensor<2x80xi8>, %all: tensor<8x4x128xi8>,
               %slice: tensor<16x7xf32>)
    -> (tensor<4x16x7xf32>, tensor<61x7xf32>, tensor<4x128xi8>,
        tensor<2x80xi8>, tensor<8x4x128xi8>, tensor<16x7xf32>) {
  // CHECK: zero.pack_slices %{{.*}} slices {{.*}} into %{{.*}} : memref<61x7xf32> into memref<4x16x7xf32>{{$}}
  %0 = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [1]>
      into %packed : tensor<61x7xf32> into tensor<4x16x7xf32> -> tensor<4x16x7xf32>
  // CHECK: zero.quantize {{.*}} : memref<4x16x7xf32> into memref<4x128xi8>{{$}}
  %1 = zero.quantize %0 quant <i8, block = 32> into %wire
      : tensor<4x16x7xf32> into tensor<4x128xi8> -> tensor<4x128xi8>
  // CHECK: zero.all_to_all {{.*}} : memref<4x128xi8> into memref<4x128xi8>{{$}}
  %2 = zero.all_to_all %1 along ["gpu"] on #mesh into %wire2
      : tensor<4x128xi8> into tensor<4x128xi8> -> tensor<4x128xi8>
  // CHECK: zero.dequantize_reduce_quantize {{.*}} : memref<4x128xi8> into memref<2x80xi8>{{$}}
  %3 = zero.dequantize_reduce_quantize sum %2 quant <i8, block = 32>
      partial tensor<16x7xf32> to <i8, block = 32>
      slices <dim = 0, factors = [2], chunk = [0]> into %sent
      : tensor<4x128xi8> into tensor<2x80xi8> -> tensor<2x80xi8>
  // CHECK: zero.all_gather_chunks {{.*}} : memref<4x128xi8> into memref<8x4x128xi8>{{$}}
  %4 = zero.all_gather_chunks %2 along ["node", "gpu"] on #mesh into %all
      : tensor<4x128xi8> into tensor<8x4x128xi8> -> tensor<8x4x128xi8>
  // CHECK: zero.dequantize_reduce mean {{.*}} : memref<4x128xi8> into memref<16x7xf32>{{$}}
  %5 = zero.dequantize_reduce mean %2 quant <i8, block = 32> into %slice
      : tensor<4x128xi8> into tensor<16x7xf32> -> tensor<16x7xf32>
  // The reads of %g are over: what it held may go.
  // CHECK: zero.unpack_slices {{.*}} into %arg0 : memref<4x16x7xf32> into memref<61x7xf32>{{$}}
  %6 = zero.unpack_slices %0 slices <dim = 0, factors = [2, 4], chunk = [1]>
      into %g : tensor<4x16x7xf32> into tensor<61x7xf32> -> tensor<61x7xf32>
  return %0, %6, %2, %3, %4, %5 : tensor<4x16x7xf32>, tensor<61x7xf32>,
      tensor<4x128xi8>, tensor<2x80xi8>, tensor<8x4x128xi8>, tensor<16x7xf32>
}

// CHECK-LABEL: func.func @more_ops
// CHECK-NOT:     memref.copy
func.func @more_ops(%wire: tensor<4x128xi8>, %values: tensor<4x16x7xbf16>,
                    %sum: tensor<16x7xf32>, %held: tensor<4x16x7xbf16>,
                    %sent: tensor<4x128xi8>, %after: tensor<4x16x7xbf16>)
    -> (tensor<4x16x7xbf16>, tensor<16x7xf32>, tensor<4x128xi8>,
        tensor<4x16x7xbf16>) {
  // CHECK: zero.dequantize %arg0 {{.*}} into %arg1 : memref<4x128xi8> into memref<4x16x7xbf16>{{$}}
  %0 = zero.dequantize %wire quant <i8, block = 32> into %values
      : tensor<4x128xi8> into tensor<4x16x7xbf16> -> tensor<4x16x7xbf16>
  // CHECK: zero.reduce sum %arg1 into %arg2 : memref<4x16x7xbf16> into memref<16x7xf32>{{$}}
  %1 = zero.reduce sum %0 into %sum
      : tensor<4x16x7xbf16> into tensor<16x7xf32> -> tensor<16x7xf32>
  // CHECK: zero.quantize_difference %arg1 minus %arg3 {{.*}} into %arg4 : memref<4x16x7xbf16>, memref<4x16x7xbf16> into memref<4x128xi8>{{$}}
  %2 = zero.quantize_difference %0 minus %held quant <i8, block = 32> into %sent
      : tensor<4x16x7xbf16>, tensor<4x16x7xbf16> into tensor<4x128xi8> -> tensor<4x128xi8>
  // CHECK: zero.dequantize_add %arg4 plus %arg3 {{.*}} into %arg5 : memref<4x128xi8>, memref<4x16x7xbf16> into memref<4x16x7xbf16>{{$}}
  %3 = zero.dequantize_add %2 plus %held quant <i8, block = 32> into %after
      : tensor<4x128xi8>, tensor<4x16x7xbf16> into tensor<4x16x7xbf16> -> tensor<4x16x7xbf16>
  return %0, %1, %2, %3 : tensor<4x16x7xbf16>, tensor<16x7xf32>,
      tensor<4x128xi8>, tensor<4x16x7xbf16>
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

// Input and destination of an op are different buffers, even where the input is
// dead afterwards.
// CHECK-LABEL: func.func @not_in_place
// CHECK-SAME:    (%[[X:.*]]: memref<4x128xi8>)
// CHECK:         %[[NEW:.*]] = memref.alloc() {{.*}} : memref<4x128xi8>
// CHECK-NOT:     memref.copy
// CHECK:         zero.all_to_all %[[X]] along ["gpu"] on {{.*}} into %[[NEW]]
// CHECK:         return %[[NEW]]
func.func @not_in_place(%x: tensor<4x128xi8>) -> tensor<4x128xi8> {
  %0 = zero.all_to_all %x along ["gpu"] on #mesh into %x
      : tensor<4x128xi8> into tensor<4x128xi8> -> tensor<4x128xi8>
  return %0 : tensor<4x128xi8>
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

// A destination whose old content is still read is not overwritten.
// CHECK-LABEL: func.func @live_destination
// CHECK-SAME:    (%[[X:.*]]: memref<128xi8>, %[[OLD:.*]]: memref<4x128xi8>)
// CHECK:         %[[NEW:.*]] = memref.alloc()
// CHECK-NOT:     memref.copy
// CHECK:         zero.all_gather_chunks %[[X]] {{.*}} into %[[NEW]]
// CHECK:         return %[[NEW]], %[[OLD]]
func.func @live_destination(%x: tensor<128xi8>, %old: tensor<4x128xi8>)
    -> (tensor<4x128xi8>, tensor<4x128xi8>) {
  %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %old
      : tensor<128xi8> into tensor<4x128xi8> -> tensor<4x128xi8>
  return %0, %old : tensor<4x128xi8>, tensor<4x128xi8>
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

// Ops on buffers stay.
// CHECK-LABEL: func.func @buffers
// CHECK-NEXT:    zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %arg1 : memref<128xi8> into memref<4x128xi8>
// CHECK-NEXT:    return
func.func @buffers(%x: memref<128xi8>, %y: memref<4x128xi8>) {
  zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : memref<128xi8> into memref<4x128xi8>
  return
}
