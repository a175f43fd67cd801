// RUN: zpp-opt %s --convert-zero-to-runtime --split-input-file --verify-diagnostics

#mesh = #zero.mesh<"gpu" = 4>
func.func @tensors(%x: tensor<3xf32>, %y: tensor<4x3xf32>) -> tensor<4x3xf32> {
  // expected-error@below {{failed to legalize 'zero.all_gather_chunks': expected buffers, but got tensors of type 'tensor<4x3xf32>'; run one-shot-bufferize first}}
  %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : tensor<3xf32> into tensor<4x3xf32> -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

#mesh = #zero.mesh<"gpu" = 4>
!shard = !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>
func.func @logical(%x: tensor<4xf32>) -> !shard {
  // expected-error@below {{failed to legalize 'zero.from_local': run zero-decompose-all-gather and zero-decompose-reduce-scatter first}}
  %0 = zero.from_local %x : tensor<4xf32> to !shard
  return %0 : !shard
}

// -----

#mesh = #zero.mesh<"gpu" = 4>
func.func @strided(%x: memref<3xf32, strided<[2]>>, %y: memref<4x3xf32>) {
  // expected-error@below {{failed to legalize 'zero.all_gather_chunks': expected a dense buffer, but got 'memref<3xf32, strided<[2]>>'}}
  zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : memref<3xf32, strided<[2]>> into memref<4x3xf32>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>
func.func @bits(%x: memref<8xi4>, %y: memref<4x8xi4>) {
  // expected-error@below {{failed to legalize 'zero.all_gather_chunks': expected elements of 1, 2, 4 or 8 bytes, but got 'i4'}}
  zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : memref<8xi4> into memref<4x8xi4>
  return
}

// As wide in memory as the next power of two.
func.func @padded(%x: memref<8xi24>, %y: memref<4x8xi24>) {
  // expected-error@below {{expected elements of 1, 2, 4 or 8 bytes, but got 'i24'}}
  zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : memref<8xi24> into memref<4x8xi24>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>
func.func @with_slices(%x: memref<8xf32>, %y: memref<4x2xf32>) {
  // expected-error@below {{failed to legalize 'zero.all_to_all': run zero-reorder-slices first}}
  zero.all_to_all %x along ["gpu"] on #mesh
      slices <dim = 0, factors = [4], chunk = [0]> into %y
      : memref<8xf32> into memref<4x2xf32>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>
func.func @with_wire(%x: memref<4x2xf32>, %y: memref<4x2xf32>) {
  // expected-error@below {{failed to legalize 'zero.all_to_all': run zero-quantize-all-to-all first}}
  zero.all_to_all %x along ["gpu"] on #mesh wire <i8, block = 32> into %y
      : memref<4x2xf32> into memref<4x2xf32>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>
func.func @callee(%x: memref<3xf32>, %y: memref<4x3xf32>) {
  zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : memref<3xf32> into memref<4x3xf32>
  return
}
func.func @reference() -> ((memref<3xf32>, memref<4x3xf32>) -> ()) {
  // expected-error@below {{expected only calls of 'callee', which gets the rank as an argument, but got a reference}}
  %0 = func.constant @callee : (memref<3xf32>, memref<4x3xf32>) -> ()
  return %0 : (memref<3xf32>, memref<4x3xf32>) -> ()
}

// -----

func.func @misaligned(%x: memref<4x8xf32>, %q: memref<4x32xi8, strided<[40, 1]>>) {
  // expected-error@below {{failed to legalize 'zero.quantize': expected chunks at multiples of 16 bytes, but got 'memref<4x32xi8, strided<[40, 1]>>'}}
  zero.quantize %x quant <i8, block = 32> into %q
      : memref<4x8xf32> into memref<4x32xi8, strided<[40, 1]>>
  return
}

// -----

func.func @unequal(%x: memref<2x2x32xi8, strided<[96, 32, 1]>>, %y: memref<4x8xf32>) {
  // expected-error@below {{failed to legalize 'zero.dequantize': expected dense chunks at equal distances, but got 'memref<2x2x32xi8, strided<[96, 32, 1]>>'}}
  zero.dequantize %x quant <i8, block = 32> into %y
      : memref<2x2x32xi8, strided<[96, 32, 1]>> into memref<4x8xf32>
  return
}

// -----

func.func @strided_tensor(%x: memref<4x8xf32, strided<[16, 1]>>, %q: memref<4x32xi8>) {
  // expected-error@below {{failed to legalize 'zero.quantize': expected a dense buffer, but got 'memref<4x8xf32, strided<[16, 1]>>'}}
  zero.quantize %x quant <i8, block = 32> into %q
      : memref<4x8xf32, strided<[16, 1]>> into memref<4x32xi8>
  return
}

// -----

func.func @far(%x: memref<4x3xf32, strided<[4611686018427387904, 1]>>, %y: memref<3xf32>) {
  // expected-error@below {{failed to legalize 'zero.reduce': expected dense chunks at equal distances, but got 'memref<4x3xf32, strided<[4611686018427387904, 1]>>'}}
  zero.reduce sum %x into %y : memref<4x3xf32, strided<[4611686018427387904, 1]>> into memref<3xf32>
  return
}

// -----

func.func @f(%x: memref<4xf32>) {
  return
}
// expected-error@below {{failed to legalize 'zero.instance': expected a public function on device memory, but got 'f' without the option device-memory}}
zero.instance @g of @f from [] to []
