// RUN: zpp-opt %s --split-input-file --verify-diagnostics

// Functions are named after the constraint in the documentation of the op that
// they violate.

//===----------------------------------------------------------------------===//
// Logical ops
//===----------------------------------------------------------------------===//

func.func @from_local_c1(%w: tensor<64x64xbf16>) {
  // expected-error@+1 {{'zero.from_local' op expected the local type 'tensor<32x64xbf16>', but got 'tensor<64x64xbf16>'}}
  %0 = zero.from_local %w : tensor<64x64xbf16> to
      !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #zero.mesh<"node" = 2, "gpu" = 4>>
  return
}

// -----

// Padding belongs to what a device holds of a partitioned tensor.
func.func @from_local_c1_padding(%w: tensor<7xf32>) {
  // expected-error@+1 {{'zero.from_local' op expected the local type 'tensor<8xf32>', but got 'tensor<7xf32>'}}
  %0 = zero.from_local %w : tensor<7xf32> to
      !zero.shard<15xf32, dim 0 = ("node", 4) on #zero.mesh<"node" = 2>>
  return
}

// -----

func.func @to_local_c1(%p: !zero.shard<256xf32, dim 0 = ("gpu") on #zero.mesh<"gpu" = 4>>) {
  // expected-error@+1 {{'zero.to_local' op expected the local type 'tensor<64xf32>', but got 'tensor<64xbf16>'}}
  %0 = zero.to_local %p
      : !zero.shard<256xf32, dim 0 = ("gpu") on #zero.mesh<"gpu" = 4>> to tensor<64xbf16>
  return
}

// -----

func.func @to_local_c1_encoded(%p: !zero.shard<256xf32, dim 0 = ("gpu") on #zero.mesh<"gpu" = 4>, #zero.quant<i8, block = 32>>) {
  // expected-error@+1 {{'zero.to_local' op expected the local type 'tensor<1x80xi8>', but got 'tensor<64xf32>'}}
  %0 = zero.to_local %p
      : !zero.shard<256xf32, dim 0 = ("gpu") on #zero.mesh<"gpu" = 4>, #zero.quant<i8, block = 32>> to tensor<64xf32>
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @all_gather_c1(%p: !zero.shard<64xf32, dim 0 = (2, "gpu") on #mesh>) {
  // expected-error@+1 {{'zero.all_gather' op expected an operand partitioned over #zero.axis<"node">, but got '!zero.shard<64xf32, dim 0 = (2, "gpu")}}
  %0 = zero.all_gather %p along ["node"]
      : !zero.shard<64xf32, dim 0 = (2, "gpu") on #mesh> to
        !zero.shard<64xf32, dim 0 = (2, 4) on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// Half of an axis cannot be gathered where the whole axis is one factor.
func.func @all_gather_c1_part(%p: !zero.shard<64xf32, dim 0 = (2, "gpu") on #mesh>) {
  // expected-error@+1 {{'zero.all_gather' op expected an operand partitioned over #zero.axis<"gpu":(2)2>}}
  %0 = zero.all_gather %p along ["gpu":(2)2]
      : !zero.shard<64xf32, dim 0 = (2, "gpu") on #mesh> to
        !zero.shard<64xf32, dim 0 = (2, "gpu":(1)2, 2) on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @all_gather_c2(%p: !zero.shard<64xf32, dim 0 = ("node", "gpu") on #mesh>) {
  // expected-error@+1 {{'zero.all_gather' op expected the result type '!zero.shard<64xf32, dim 0 = (2, "gpu") on}}
  %0 = zero.all_gather %p along ["node"]
      : !zero.shard<64xf32, dim 0 = ("node", "gpu") on #mesh> to
        !zero.shard<64xf32, dim 0 = ("gpu", 2) on #mesh>
  return
}

// -----

func.func @reduce_scatter_no_kind(%g: tensor<4xf32>) {
  // expected-error@+1 {{expected sum or mean}}
  %0 = zero.reduce_scatter %g along ["gpu"]
  return
}

// -----

func.func @reduce_scatter_other_kind(%g: tensor<4xf32>) {
  // expected-error@+1 {{expected sum or mean, but got 'max'}}
  %0 = zero.reduce_scatter max %g along ["gpu"]
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @reduce_scatter_c1(%g: !zero.shard<64xf32, dim 0 = (2, 4) on #mesh>) {
  // expected-error@+1 {{'zero.reduce_scatter' op expected a result partitioned over #zero.axis<"node">}}
  %0 = zero.reduce_scatter sum %g along ["node"]
      : !zero.shard<64xf32, dim 0 = (2, 4) on #mesh> to
        !zero.shard<64xf32, dim 0 = (2, "gpu") on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @reduce_scatter_c1_other_factor(%g: !zero.shard<64xf32, dim 0 = (2, 4) on #mesh>) {
  // expected-error@+1 {{'zero.reduce_scatter' op expected the operand type '!zero.shard<64xf32, dim 0 = (4, 2)}}
  %0 = zero.reduce_scatter sum %g along ["gpu"]
      : !zero.shard<64xf32, dim 0 = (2, 4) on #mesh> to
        !zero.shard<64xf32, dim 0 = ("gpu", 2) on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// The paper's gradient misplacement: two hops without slice reordering leave the
// slices in the order ("gpu", "node").
func.func @reduce_scatter_c1_misplaced(%g: !zero.shard<64xf32, dim 0 = (4, 2) on #mesh>)
    -> !zero.shard<64xf32, dim 0 = ("node", "gpu") on #mesh> {
  %0 = zero.reduce_scatter sum %g along ["gpu"]
      : !zero.shard<64xf32, dim 0 = (4, 2) on #mesh> to
        !zero.shard<64xf32, dim 0 = ("gpu", 2) on #mesh>
  // expected-error@+1 {{'zero.reduce_scatter' op expected the operand type '!zero.shard<64xf32, dim 0 = (2, "gpu") on}}
  %1 = zero.reduce_scatter sum %0 along ["node"]
      : !zero.shard<64xf32, dim 0 = ("gpu", 2) on #mesh> to
        !zero.shard<64xf32, dim 0 = ("node", "gpu") on #mesh>
  return %1 : !zero.shard<64xf32, dim 0 = ("node", "gpu") on #mesh>
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @reduce_scatter_c2(%g: !zero.shard<64xf16, dim 0 = (4) on #mesh>) {
  // expected-error@+1 {{'zero.reduce_scatter' op expected the result element type 'f16' or f32, but got 'bf16'}}
  %0 = zero.reduce_scatter sum %g along ["gpu"]
      : !zero.shard<64xf16, dim 0 = (4) on #mesh> to
        !zero.shard<64xbf16, dim 0 = ("gpu") on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @reduce_scatter_c3(%g: !zero.shard<64xf32, dim 0 = (4) on #mesh, #zero.quant<i8, block = 32>>) {
  // expected-error@+1 {{'zero.reduce_scatter' op expected tensors that are not encoded, but got '!zero.shard<64xf32, dim 0 = (4) on #zero.mesh<"gpu" = 4>, #zero.quant<i8, block = 32>>'}}
  %0 = zero.reduce_scatter sum %g along ["gpu"]
      : !zero.shard<64xf32, dim 0 = (4) on #mesh, #zero.quant<i8, block = 32>> to
        !zero.shard<64xf32, dim 0 = ("gpu") on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @reduce_scatter_c4(%g: !zero.shard<64xi32, dim 0 = (4) on #mesh>) {
  // expected-error@+1 {{'zero.reduce_scatter' op expected f32, bf16 or f16 elements of the operand, but got 'i32'}}
  %0 = zero.reduce_scatter sum %g along ["gpu"]
      : !zero.shard<64xi32, dim 0 = (4) on #mesh> to
        !zero.shard<64xi32, dim 0 = ("gpu") on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @all_reduce_c1(%g: !zero.shard<64xf32, dim 0 = ("gpu") on #mesh>) {
  // expected-error@+1 {{'zero.all_reduce' op expected an operand that no axis of the sum partitions, but got '!zero.shard<64xf32, dim 0 = ("gpu")}}
  %0 = zero.all_reduce sum %g along ["node", "gpu"]
      : !zero.shard<64xf32, dim 0 = ("gpu") on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @all_reduce_c2(%g: !zero.shard<64xf32, dim 0 = (4) on #mesh>) {
  // expected-error@+1 {{'zero.all_reduce' op requires the same type for all operands and results}}
  %0 = "zero.all_reduce"(%g) <{along = [#zero.axis<"gpu">], kind = #zero<reduce_kind sum>}>
      : (!zero.shard<64xf32, dim 0 = (4) on #mesh>) ->
        !zero.shard<64xbf16, dim 0 = (4) on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @all_reduce_c3(%g: !zero.shard<64xf32, dim 0 = (4) on #mesh, #zero.quant<i8, block = 32>>) {
  // expected-error@+1 {{'zero.all_reduce' op expected a tensor that is not encoded, but got '!zero.shard<64xf32}}
  %0 = zero.all_reduce sum %g along ["gpu"]
      : !zero.shard<64xf32, dim 0 = (4) on #mesh, #zero.quant<i8, block = 32>>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @all_reduce_c4(%g: !zero.shard<64xi32, dim 0 = (4) on #mesh>) {
  // expected-error@+1 {{'zero.all_reduce' op expected f32, bf16 or f16 elements of the operand, but got 'i32'}}
  %0 = zero.all_reduce sum %g along ["gpu"]
      : !zero.shard<64xi32, dim 0 = (4) on #mesh>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @encode_c1(%p: !zero.shard<64xf32, dim 0 = ("gpu") on #mesh>) {
  // expected-error@+1 {{'zero.encode' op expected the same partitioned tensor with and without quantization, but got}}
  %0 = zero.encode %p : !zero.shard<64xf32, dim 0 = ("gpu") on #mesh> to
      !zero.shard<64xf32, dim 0 = (4) on #mesh, #zero.quant<i8, block = 32>>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @decode_c1(%p: !zero.shard<64xf32, dim 0 = ("gpu") on #mesh>) {
  // expected-error@+1 {{'zero.decode' op expected the same partitioned tensor with and without quantization, but got}}
  %0 = zero.decode %p : !zero.shard<64xf32, dim 0 = ("gpu") on #mesh> to
      !zero.shard<64xf32, dim 0 = ("gpu") on #mesh>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Common to collectives
//===----------------------------------------------------------------------===//

func.func @collective_k1(%w: tensor<8xf32>, %e: tensor<4x8xf32>) {
  // expected-error@+1 {{'zero.all_gather_chunks' op expected an axis of the mesh gpu:4 (or a part of one), but got #zero.axis<"node">}}
  %0 = zero.all_gather_chunks %w along ["node"] on <"gpu" = 4> into %e
      : tensor<8xf32> into tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @collective_k1_part(%w: tensor<8xf32>, %e: tensor<3x8xf32>) {
  // expected-error@+1 {{'zero.all_gather_chunks' op expected an axis of the mesh gpu:4 (or a part of one), but got #zero.axis<"gpu":(1)3>}}
  %0 = zero.all_gather_chunks %w along ["gpu":(1)3] on <"gpu" = 4> into %e
      : tensor<8xf32> into tensor<3x8xf32> -> tensor<3x8xf32>
  return
}

// -----

func.func @collective_k2(%w: tensor<8xf32>, %e: tensor<16x8xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected distinct axes, but got #zero.axis<"gpu"> twice}}
  %0 = zero.all_to_all %e along ["gpu", "gpu"] on <"gpu" = 4> into %e
      : tensor<16x8xf32> into tensor<16x8xf32> -> tensor<16x8xf32>
  return
}

// -----

func.func @collective_k2_size_one(%e: tensor<1x8xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected distinct axes, but got #zero.axis<"gpu"> twice}}
  %0 = zero.all_to_all %e along ["gpu", "gpu"] on <"gpu" = 1> into %e
      : tensor<1x8xf32> into tensor<1x8xf32> -> tensor<1x8xf32>
  return
}

// -----

func.func @collective_k2_part(%e: tensor<8x8xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected separate parts of axis 'gpu', but got "gpu":(2)4 and "gpu":(1)4}}
  %0 = zero.all_to_all %e along ["gpu":(2)4, "gpu":(1)4] on <"gpu" = 8> into %e
      : tensor<8x8xf32> into tensor<8x8xf32> -> tensor<8x8xf32>
  return
}

// -----

func.func @collective_k3(%e: tensor<1x8xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected at least 1 axis, but got 0}}
  %0 = zero.all_to_all %e along [] on <"gpu" = 4> into %e
      : tensor<1x8xf32> into tensor<1x8xf32> -> tensor<1x8xf32>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @collective_k3_logical(%p: !zero.shard<64xf32, dim 0 = ("gpu") on #mesh>) {
  // expected-error@+1 {{'zero.all_gather' op expected at least 1 axis, but got 0}}
  %0 = zero.all_gather %p along [] : !zero.shard<64xf32, dim 0 = ("gpu") on #mesh> to
      !zero.shard<64xf32, dim 0 = ("gpu") on #mesh>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Common to decomposed ops
//===----------------------------------------------------------------------===//

func.func @dynamic_shape(%w: tensor<?xf32>, %e: tensor<4x8xf32>) {
  // expected-error@+1 {{'zero.all_gather_chunks' op operand #0 must be statically shaped tensor of any type values or statically shaped memref of any type values, but got 'tensor<?xf32>'}}
  %0 = zero.all_gather_chunks %w along ["gpu"] on <"gpu" = 4> into %e
      : tensor<?xf32> into tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @unranked(%w: tensor<4x8xf32>, %e: tensor<*xi8>) {
  // expected-error@+1 {{'zero.quantize' op operand #1 must be statically shaped tensor of any type values or statically shaped memref of any type values, but got 'tensor<*xi8>'}}
  zero.quantize %w quant <i8, block = 32> into %e : tensor<4x8xf32> into tensor<*xi8>
  return
}

// -----

func.func @tensor_and_buffer(%w: memref<4x8xf32>, %e: tensor<8xf32>) {
  // expected-error@+1 {{'zero.reduce' op failed to verify that input and destination are both tensors or both buffers}}
  %0 = zero.reduce sum %w into %e : memref<4x8xf32> into tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @no_result(%w: tensor<4x8xf32>, %e: tensor<8xf32>) {
  // expected-error@+1 {{'zero.reduce' op expected the number of tensor results (0) to be equal to the number of output tensors (1)}}
  zero.reduce sum %w into %e : tensor<4x8xf32> into tensor<8xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Decomposed ops
//===----------------------------------------------------------------------===//

func.func @pack_slices_c1(%g: tensor<8xf32>, %e: tensor<4x2xf32>) {
  // expected-error@+1 {{'zero.pack_slices' op expected a dim of slices below the rank 1, but got 1}}
  %0 = zero.pack_slices %g slices <dim = 1, factors = [4], chunk = [0]> into %e
      : tensor<8xf32> into tensor<4x2xf32> -> tensor<4x2xf32>
  return
}

// -----

func.func @pack_slices_c1_overflow(%g: tensor<2x2xf32>, %e: tensor<4x2xf32>) {
  // expected-error@+1 {{'zero.pack_slices' op slices do not fit 'tensor<2x2xf32>': expected fewer than 2^63 elements, but got 1 x 4611686018427387904 x 1 x 2}}
  %0 = zero.pack_slices %g slices <dim = 0, factors = [4611686018427387904], chunk = [0]> into %e
      : tensor<2x2xf32> into tensor<4x2xf32> -> tensor<4x2xf32>
  return
}

// -----

func.func @pack_slices_c2(%g: tensor<7x3xf32>, %e: tensor<4x2xf32>) {
  // expected-error@+1 {{'zero.pack_slices' op expected the shape [4, 2, 3] of the destination, but got 'tensor<4x2xf32>'}}
  %0 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<7x3xf32> into tensor<4x2xf32> -> tensor<4x2xf32>
  return
}

// -----

func.func @pack_slices_c2_element(%g: tensor<8xf32>, %e: tensor<4x2xbf16>) {
  // expected-error@+1 {{'zero.pack_slices' op expected the element type 'f32' of the destination, but got 'bf16'}}
  %0 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<8xf32> into tensor<4x2xbf16> -> tensor<4x2xbf16>
  return
}

// -----

func.func @unpack_slices_c1(%c: tensor<4x1xf32>, %e: tensor<8xf32>) {
  // expected-error@+1 {{'zero.unpack_slices' op expected 1 stage, but got 2}}
  %0 = zero.unpack_slices %c slices <dim = 0, factors = [4], chunk = [0], stage = 0 of 2> into %e
      : tensor<4x1xf32> into tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @unpack_slices_c1_dim(%c: tensor<4x2xf32>, %e: tensor<8xf32>) {
  // expected-error@+1 {{'zero.unpack_slices' op expected a dim of slices below the rank 1, but got 3}}
  %0 = zero.unpack_slices %c slices <dim = 3, factors = [4], chunk = [0]> into %e
      : tensor<4x2xf32> into tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @unpack_slices_c2(%c: tensor<4x1xf32>, %e: tensor<7xf32>) {
  // expected-error@+1 {{'zero.unpack_slices' op expected an input with the elements of [4, 2], but got 'tensor<4x1xf32>'}}
  %0 = zero.unpack_slices %c slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<4x1xf32> into tensor<7xf32> -> tensor<7xf32>
  return
}

// -----

func.func @unpack_slices_c2_element(%c: tensor<4x2xf16>, %e: tensor<8xf32>) {
  // expected-error@+1 {{'zero.unpack_slices' op expected the element type 'f16' of the destination, but got 'f32'}}
  %0 = zero.unpack_slices %c slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<4x2xf16> into tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @quantize_c1(%g: tensor<4x8xi32>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.quantize' op expected f32, bf16 or f16 elements of the input, but got 'i32'}}
  %0 = zero.quantize %g quant <i8, block = 32> into %e
      : tensor<4x8xi32> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @quantize_c1_f64(%g: tensor<4x8xf64>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.quantize' op expected f32, bf16 or f16 elements of the input, but got 'f64'}}
  %0 = zero.quantize %g quant <i8, block = 32> into %e
      : tensor<4x8xf64> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @quantize_c2(%g: tensor<4x8xf32>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.quantize' op expected a dim of slices below the rank 2, but got 2}}
  %0 = zero.quantize %g quant <i8, block = 32> slices <dim = 2, factors = [4], chunk = [0]> into %e
      : tensor<4x8xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @quantize_c3(%g: tensor<4x100xf32>, %e: tensor<4x100xi8>) {
  // expected-error@+1 {{'zero.quantize' op expected 4 chunks of 128 bytes in the destination, but got 'tensor<4x100xi8>'}}
  %0 = zero.quantize %g quant <i8, block = 32> into %e
      : tensor<4x100xf32> into tensor<4x100xi8> -> tensor<4x100xi8>
  return
}

// -----

func.func @quantize_c3_rank(%g: tensor<4x100xf32>, %e: tensor<2x2x128xi8>) {
  // expected-error@+1 {{'zero.quantize' op expected 4 chunks of 128 bytes in the destination, but got 'tensor<2x2x128xi8>'}}
  %0 = zero.quantize %g quant <i8, block = 32> into %e
      : tensor<4x100xf32> into tensor<2x2x128xi8> -> tensor<2x2x128xi8>
  return
}

// -----

func.func @quantize_c3_element(%g: tensor<4x100xf32>, %e: tensor<4x128xf32>) {
  // expected-error@+1 {{'zero.quantize' op expected i8 elements of the destination, but got 'f32'}}
  %0 = zero.quantize %g quant <i8, block = 32> into %e
      : tensor<4x100xf32> into tensor<4x128xf32> -> tensor<4x128xf32>
  return
}

// -----

func.func @quantize_c3_no_chunks(%g: tensor<f32>, %e: tensor<1x32xi8>) {
  // expected-error@+1 {{'zero.quantize' op expected a leading dim of chunks, but got 'tensor<f32>'}}
  %0 = zero.quantize %g quant <i8, block = 32> into %e
      : tensor<f32> into tensor<1x32xi8> -> tensor<1x32xi8>
  return
}

// -----

func.func @quantize_difference_c1(%g: tensor<4x8xf32>, %h: tensor<8x4xf32>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.quantize_difference' op expected what is held to have the shape and elements of 'tensor<4x8xf32>', but got 'tensor<8x4xf32>'}}
  %0 = zero.quantize_difference %g minus %h quant <i8, block = 32> into %e
      : tensor<4x8xf32>, tensor<8x4xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @quantize_difference_c1_input(%g: tensor<4x8xi32>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.quantize_difference' op expected f32, bf16 or f16 elements of the input, but got 'i32'}}
  %0 = zero.quantize_difference %g minus %g quant <i8, block = 32> into %e
      : tensor<4x8xi32>, tensor<4x8xi32> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @quantize_difference_buffer(%g: tensor<4x8xf32>, %h: memref<4x8xf32>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.quantize_difference' op expected what is held to have the shape and elements of 'tensor<4x8xf32>', but got 'memref<4x8xf32>'}}
  %0 = zero.quantize_difference %g minus %h quant <i8, block = 32> into %e
      : tensor<4x8xf32>, memref<4x8xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @quantize_difference_c2(%g: tensor<4x8xf32>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.quantize_difference' op expected a dim of slices below the rank 2, but got 2}}
  %0 = zero.quantize_difference %g minus %g quant <i8, block = 32> slices <dim = 2, factors = [4], chunk = [0]> into %e
      : tensor<4x8xf32>, tensor<4x8xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @quantize_difference_c3(%g: tensor<4x100xf32>, %e: tensor<4x100xi8>) {
  // expected-error@+1 {{'zero.quantize_difference' op expected 4 chunks of 128 bytes in the destination, but got 'tensor<4x100xi8>'}}
  %0 = zero.quantize_difference %g minus %g quant <i8, block = 32> into %e
      : tensor<4x100xf32>, tensor<4x100xf32> into tensor<4x100xi8> -> tensor<4x100xi8>
  return
}

// -----

func.func @quantize_difference_c4(%g: tensor<4x8xf32>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.quantize_difference' op expected a format that does not rotate, but got #zero.quant<i8, block = 32, rotate = 32>}}
  %0 = zero.quantize_difference %g minus %g quant <i8, block = 32, rotate = 32> into %e
      : tensor<4x8xf32>, tensor<4x8xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @dequantize_add_c1(%b: tensor<4x32xi8>, %h: tensor<4x8xbf16>, %e: tensor<4x8xf32>) {
  // expected-error@+1 {{'zero.dequantize_add' op expected what is held to have the shape and elements of 'tensor<4x8xf32>', but got 'tensor<4x8xbf16>'}}
  %0 = zero.dequantize_add %b plus %h quant <i8, block = 32> into %e
      : tensor<4x32xi8>, tensor<4x8xbf16> into tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_add_c2(%b: tensor<4x32xi8>, %e: tensor<32xf32>) {
  // expected-error@+1 {{'zero.dequantize_add' op expected 1 stage, but got 2}}
  %0 = zero.dequantize_add %b plus %e quant <i8, block = 32> slices <dim = 0, factors = [4], chunk = [0], stage = 1 of 2> into %e
      : tensor<4x32xi8>, tensor<32xf32> into tensor<32xf32> -> tensor<32xf32>
  return
}

// -----

func.func @dequantize_add_c3(%b: tensor<4x48xi8>, %e: tensor<4x8xf32>) {
  // expected-error@+1 {{'zero.dequantize_add' op expected 4 chunks of 32 bytes in the input, but got 'tensor<4x48xi8>'}}
  %0 = zero.dequantize_add %b plus %e quant <i8, block = 32> into %e
      : tensor<4x48xi8>, tensor<4x8xf32> into tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_add_c4(%b: tensor<4x48xi8>, %e: tensor<4x32xf32>) {
  // expected-error@+1 {{'zero.dequantize_add' op expected a format that does not rotate, but got #zero.quant<i8, block = 32, rotate = 32>}}
  %0 = zero.dequantize_add %b plus %e quant <i8, block = 32, rotate = 32> into %e
      : tensor<4x48xi8>, tensor<4x32xf32> into tensor<4x32xf32> -> tensor<4x32xf32>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>
!part = !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (4) on #mesh>
!sent = !zero.shard<16xf32, dim 0 = ("gpu") on #mesh, #zero.quant<i4, block = 32>>
func.func @decode_c2(%s: !sent, %w: !whole) {
  // expected-error@+1 {{'zero.decode' op expected the type '!zero.shard<16xf32, dim 0 = ("gpu") on #zero.mesh<"gpu" = 4>>' of what is held, but got '!zero.shard<16xf32, dim 0 = (4) on #zero.mesh<"gpu" = 4>>'}}
  %0 = "zero.decode"(%s, %w) : (!sent, !whole) -> !part
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>
!part = !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>
func.func @encode_c2(%p: !part, %h: !part) {
  // expected-error@+1 {{'zero.encode' op expected a format that does not rotate, but got #zero.quant<i4, block = 32, rotate = 32>}}
  %0 = zero.encode %p minus %h : !part to !zero.shard<16xf32, dim 0 = ("gpu") on #mesh, #zero.quant<i4, block = 32, rotate = 32>>
  return
}

// -----

func.func @dequantize_c1(%b: tensor<4x32xi8>, %e: tensor<4x8xi8>) {
  // expected-error@+1 {{'zero.dequantize' op expected f32, bf16 or f16 elements of the destination, but got 'i8'}}
  %0 = zero.dequantize %b quant <i8, block = 32> into %e
      : tensor<4x32xi8> into tensor<4x8xi8> -> tensor<4x8xi8>
  return
}

// -----

func.func @dequantize_c2(%b: tensor<4x32xi8>, %e: tensor<32xf32>) {
  // expected-error@+1 {{'zero.dequantize' op expected 1 stage, but got 2}}
  %0 = zero.dequantize %b quant <i8, block = 32> slices <dim = 0, factors = [4], chunk = [0], stage = 1 of 2> into %e
      : tensor<4x32xi8> into tensor<32xf32> -> tensor<32xf32>
  return
}

// -----

func.func @dequantize_c3(%b: tensor<4x48xi8>, %e: tensor<4x8xf32>) {
  // expected-error@+1 {{'zero.dequantize' op expected 4 chunks of 32 bytes in the input, but got 'tensor<4x48xi8>'}}
  %0 = zero.dequantize %b quant <i8, block = 32> into %e
      : tensor<4x48xi8> into tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_c3_chunks(%b: tensor<3x2x32xi8>, %e: tensor<4x8xf32>) {
  // expected-error@+1 {{'zero.dequantize' op expected 4 chunks of 32 bytes in the input, but got 'tensor<3x2x32xi8>'}}
  %0 = zero.dequantize %b quant <i8, block = 32> into %e
      : tensor<3x2x32xi8> into tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @dequantize_c3_no_chunks(%b: tensor<1x32xi8>, %e: tensor<f32>) {
  // expected-error@+1 {{'zero.dequantize' op expected a leading dim of chunks, but got 'tensor<f32>'}}
  %0 = zero.dequantize %b quant <i8, block = 32> into %e
      : tensor<1x32xi8> into tensor<f32> -> tensor<f32>
  return
}

// -----

func.func @reduce_c1(%c: tensor<4x8xi32>, %e: tensor<8xf32>) {
  // expected-error@+1 {{'zero.reduce' op expected f32, bf16 or f16 elements of the input, but got 'i32'}}
  %0 = zero.reduce sum %c into %e : tensor<4x8xi32> into tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @reduce_c1_destination(%c: tensor<4x8xf32>, %e: tensor<8xf64>) {
  // expected-error@+1 {{'zero.reduce' op expected f32, bf16 or f16 elements of the destination, but got 'f64'}}
  %0 = zero.reduce sum %c into %e : tensor<4x8xf32> into tensor<8xf64> -> tensor<8xf64>
  return
}

// -----

func.func @reduce_c2(%c: tensor<4x8xf32>, %e: tensor<4x8xf32>) {
  // expected-error@+1 {{'zero.reduce' op expected the shape [8] of the destination, but got 'tensor<4x8xf32>'}}
  %0 = zero.reduce sum %c into %e : tensor<4x8xf32> into tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @reduce_c2_no_sources(%c: tensor<0x8xf32>, %e: tensor<8xf32>) {
  // expected-error@+1 {{'zero.reduce' op expected an input of at least 1 source, but got 'tensor<0x8xf32>'}}
  %0 = zero.reduce mean %c into %e : tensor<0x8xf32> into tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @reduce_c2_scalar(%c: tensor<f32>, %e: tensor<f32>) {
  // expected-error@+1 {{'zero.reduce' op expected an input of at least 1 source, but got 'tensor<f32>'}}
  %0 = zero.reduce mean %c into %e : tensor<f32> into tensor<f32> -> tensor<f32>
  return
}

// -----

func.func @dequantize_reduce_c1(%b: tensor<4x32xi8>, %e: tensor<8xi32>) {
  // expected-error@+1 {{'zero.dequantize_reduce' op expected f32, bf16 or f16 elements of the destination, but got 'i32'}}
  %0 = zero.dequantize_reduce sum %b quant <i8, block = 32> into %e
      : tensor<4x32xi8> into tensor<8xi32> -> tensor<8xi32>
  return
}

// -----

func.func @dequantize_reduce_c2(%b: tensor<4x32xi8>, %e: tensor<33xf32>) {
  // expected-error@+1 {{'zero.dequantize_reduce' op expected 4 chunks of 64 bytes in the input, but got 'tensor<4x32xi8>'}}
  %0 = zero.dequantize_reduce sum %b quant <i8, block = 32> into %e
      : tensor<4x32xi8> into tensor<33xf32> -> tensor<33xf32>
  return
}

// -----

func.func @dequantize_reduce_c2_no_sources(%b: tensor<0x32xi8>, %e: tensor<8xf32>) {
  // expected-error@+1 {{'zero.dequantize_reduce' op expected an input of at least 1 chunk, but got 'tensor<0x32xi8>'}}
  %0 = zero.dequantize_reduce sum %b quant <i8, block = 32> into %e
      : tensor<0x32xi8> into tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @dequantize_reduce_quantize_c1(%b: tensor<4x64xi8>, %e: tensor<2x32xi8>) {
  // expected-error@+1 {{'zero.dequantize_reduce_quantize' op expected 4 chunks of 32 bytes in the input, but got 'tensor<4x64xi8>'}}
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 32> partial tensor<8xf32>
      to <i4, block = 32> slices <dim = 0, factors = [2], chunk = [0]> into %e
      : tensor<4x64xi8> into tensor<2x32xi8> -> tensor<2x32xi8>
  return
}

// -----

func.func @dequantize_reduce_quantize_c1_partial(%b: tensor<4x32xi8>, %e: tensor<2x32xi8>) {
  // expected-error@+1 {{'zero.dequantize_reduce_quantize' op attribute 'partial' failed to satisfy constraint}}
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 32> partial tensor<8xi32>
      to <i4, block = 32> slices <dim = 0, factors = [2], chunk = [0]> into %e
      : tensor<4x32xi8> into tensor<2x32xi8> -> tensor<2x32xi8>
  return
}

// -----

func.func @dequantize_reduce_quantize_c2(%b: tensor<4x32xi8>, %e: tensor<2x32xi8>) {
  // expected-error@+1 {{'zero.dequantize_reduce_quantize' op expected a dim of slices below the rank 1, but got 1}}
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 32> partial tensor<8xf32>
      to <i4, block = 32> slices <dim = 1, factors = [2], chunk = [0]> into %e
      : tensor<4x32xi8> into tensor<2x32xi8> -> tensor<2x32xi8>
  return
}

// -----

func.func @dequantize_reduce_quantize_c3(%b: tensor<4x32xi8>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.dequantize_reduce_quantize' op expected 2 chunks of 32 bytes in the destination, but got 'tensor<4x32xi8>'}}
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 32> partial tensor<8xf32>
      to <i4, block = 32> slices <dim = 0, factors = [2], chunk = [0]> into %e
      : tensor<4x32xi8> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @dequantize_reduce_quantize_c4(%b: tensor<4x80xi8>, %e: tensor<2x32xi8>) {
  // expected-error@+1 {{'zero.dequantize_reduce_quantize' op expected both formats to rotate or none, but got #zero.quant<i8, block = 32, rotate = 32> and #zero.quant<i4, block = 32>}}
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 32, rotate = 32> partial tensor<64xf32>
      to <i4, block = 32> slices <dim = 0, factors = [2], chunk = [0]> into %e
      : tensor<4x80xi8> into tensor<2x32xi8> -> tensor<2x32xi8>
  return
}

// -----

func.func @dequantize_reduce_quantize_c4_groups(%b: tensor<4x80xi8>, %e: tensor<4x32xi8>) {
  // expected-error@+1 {{'zero.dequantize_reduce_quantize' op expected slices of whole groups of 32 elements, but got #zero.slices<dim = 0, factors = [4], chunk = [0]> of 'tensor<64xf32>'}}
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 32, rotate = 32> partial tensor<64xf32>
      to <i4, block = 32, rotate = 32> slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<4x80xi8> into tensor<4x32xi8> -> tensor<4x32xi8>
  return
}

// -----

func.func @all_to_all_c1(%b: tensor<2x8xf32>, %e: tensor<2x8xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected a chunk for each of 4 devices, but got 2}}
  %0 = zero.all_to_all %b along ["gpu"] on <"gpu" = 4> into %e
      : tensor<2x8xf32> into tensor<2x8xf32> -> tensor<2x8xf32>
  return
}

// -----

func.func @all_to_all_c1_scalar(%b: tensor<f32>, %e: tensor<f32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected a leading dim of chunks, but got 'tensor<f32>'}}
  %0 = zero.all_to_all %b along ["gpu"] on <"gpu" = 1> into %e
      : tensor<f32> into tensor<f32> -> tensor<f32>
  return
}

// -----

func.func @all_to_all_c1_slices(%b: tensor<8xf32>, %e: tensor<2x4xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected a chunk for each of 4 devices, but got 2}}
  %0 = zero.all_to_all %b along ["gpu"] on <"gpu" = 4> slices <dim = 0, factors = [2, 4], chunk = [0]> into %e
      : tensor<8xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @all_to_all_c1_slices_dim(%b: tensor<8xf32>, %e: tensor<4x2xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected a dim of slices below the rank 1, but got 1}}
  %0 = zero.all_to_all %b along ["gpu"] on <"gpu" = 4> slices <dim = 1, factors = [4], chunk = [0]> into %e
      : tensor<8xf32> into tensor<4x2xf32> -> tensor<4x2xf32>
  return
}

// -----

func.func @all_to_all_c2(%b: tensor<4x8xf32>, %e: tensor<8x4xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected the shape [4, 8] of the destination, but got 'tensor<8x4xf32>'}}
  %0 = zero.all_to_all %b along ["gpu"] on <"gpu" = 4> into %e
      : tensor<4x8xf32> into tensor<8x4xf32> -> tensor<8x4xf32>
  return
}

// -----

func.func @all_to_all_c3(%b: tensor<4x8xbf16>, %e: tensor<4x8xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected the element type 'bf16' of the destination, but got 'f32'}}
  %0 = zero.all_to_all %b along ["gpu"] on <"gpu" = 4> into %e
      : tensor<4x8xbf16> into tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @all_to_all_c3_wire(%b: tensor<4x8xi32>, %e: tensor<4x8xf32>) {
  // expected-error@+1 {{'zero.all_to_all' op expected f32, bf16 or f16 elements of the input, but got 'i32'}}
  %0 = zero.all_to_all %b along ["gpu"] on <"gpu" = 4> wire <i8, block = 32> into %e
      : tensor<4x8xi32> into tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @all_gather_chunks_c1(%w: tensor<8xf32>, %e: tensor<2x8xf32>) {
  // expected-error@+1 {{'zero.all_gather_chunks' op expected the shape [4, 8] of the destination, but got 'tensor<2x8xf32>'}}
  %0 = zero.all_gather_chunks %w along ["gpu"] on <"gpu" = 4> into %e
      : tensor<8xf32> into tensor<2x8xf32> -> tensor<2x8xf32>
  return
}

// -----

func.func @all_gather_chunks_c1_element(%w: tensor<8xf32>, %e: tensor<4x8xbf16>) {
  // expected-error@+1 {{'zero.all_gather_chunks' op expected the element type 'f32' of the destination, but got 'bf16'}}
  %0 = zero.all_gather_chunks %w along ["gpu"] on <"gpu" = 4> into %e
      : tensor<8xf32> into tensor<4x8xbf16> -> tensor<4x8xbf16>
  return
}

// -----

func.func @pack_slices_c2_bytes(%g: tensor<8x3xbf16>, %b: tensor<4x6xi8>) {
  // expected-error@+1 {{'zero.pack_slices' op expected the shape [4, 12] of the destination, but got 'tensor<4x6xi8>'}}
  %0 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %b
      : tensor<8x3xbf16> into tensor<4x6xi8> -> tensor<4x6xi8>
  return
}

// -----

func.func @unpack_slices_c2_bytes(%g: tensor<8x3xbf16>, %b: tensor<2x24xi8>) {
  // expected-error@+1 {{'zero.unpack_slices' op expected 4 chunks of 12 bytes in the input, but got 'tensor<2x24xi8>'}}
  %0 = zero.unpack_slices %b slices <dim = 0, factors = [4], chunk = [0]> into %g
      : tensor<2x24xi8> into tensor<8x3xbf16> -> tensor<8x3xbf16>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Ops of the schedule
//===----------------------------------------------------------------------===//

func.func @start_c1_callee(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.start' op expected a function as the callee, but got @zpp_host::@f}}
  %y = zero.start @zpp_host::@f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  return
}

// -----

func.func private @f(tensor<4xf32>) -> tensor<2xf32>
func.func @start_c1_type(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.start' op expected a callee of type '(tensor<4xf32>) -> tensor<4xf32>', or that on buffers, but got '(tensor<4xf32>) -> tensor<2xf32>'}}
  %y = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  return
}

// -----

func.func private @f(memref<4xf32>, memref<4xf32>, memref<8xf32>)
func.func @start_c1_workspace(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.start' op expected a callee of type '(tensor<4xf32>) -> tensor<4xf32>', or that on buffers, but got '(memref<4xf32>, memref<4xf32>, memref<8xf32>) -> ()'}}
  %y = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  return
}

// -----

func.func private @f(tensor<4xf32>)
func.func @start_c2(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.start' op expected at least 1 output, but got 0}}
  zero.start @f(%x) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func private @f(tensor<4xf32>) -> tensor<2xf32>
zero.instance @g of @f from [] to []
func.func @start_c1_instance(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.start' op expected a callee of type '(tensor<4xf32>) -> tensor<4xf32>', or that on buffers, but got '(tensor<4xf32>) -> tensor<2xf32>'}}
  %y = zero.start @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  return
}

// -----

// expected-error@+1 {{'zero.instance' op expected a function of its module, but got @f}}
zero.instance @instance_c1 of @f from [] to []

// -----

func.func private @f()
zero.instance @g of @f from [] to []
// expected-error@+1 {{'zero.instance' op expected a function of its module, but got @g}}
zero.instance @instance_c1_instance of @g from [] to []

// -----

func.func private @f()
// expected-error@+1 {{'zero.instance' op expected as many locations to put in place as to replace, 2, but got 1}}
zero.instance @instance_c2 of @f from [loc("a"), loc("b")] to [loc("c")]

// -----

func.func private @f()
// expected-error@+1 {{'zero.instance' op expected locations, but got "c"}}
zero.instance @instance_c2_location of @f from [loc("a")] to ["c"]

// -----

func.func @wait_c1(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.wait' op expected at least 1 output to wait for, but got 0}}
  "zero.wait"() <{operandSegmentSizes = array<i32: 0, 0, 0>, resultSegmentSizes = array<i32: 0, 0>}> : () -> ()
  return
}

// -----

func.func @sizes(%x: tensor<4611686018427387904x4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'zero.reduce' op expected fewer than 2^57 elements, but got 'tensor<4611686018427387904x4xf32>'}}
  %0 = zero.reduce sum %x into %y
      : tensor<4611686018427387904x4xf32> into tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Bytes have no sign.
func.func @wire_sign(%x: tensor<4x64xf32>, %y: tensor<4x80xui8>) -> tensor<4x80xui8> {
  // expected-error@+1 {{'zero.quantize' op expected i8 elements of the destination, but got 'ui8'}}
  %0 = zero.quantize %x quant <i8, block = 64> into %y
      : tensor<4x64xf32> into tensor<4x80xui8> -> tensor<4x80xui8>
  return %0 : tensor<4x80xui8>
}
