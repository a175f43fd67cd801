// RUN: zpp-opt %s --cse --canonicalize | FileCheck %s

// Collectives have effects: all ranks have to agree on them, so that none is
// dropped, merged or moved. Local work on tensors has none.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @collectives_stay
func.func @collectives_stay(%p: !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>,
                            %g: !zero.shard<16xf32, dim 0 = (4) on #mesh>,
                            %c: tensor<4x8xi8>, %e: tensor<4x8xi8>, %f: tensor<4x4x8xi8>) {
  // CHECK-COUNT-2: zero.all_gather %
  %0 = zero.all_gather %p along ["gpu"]
      : !zero.shard<16xf32, dim 0 = ("gpu") on #mesh> to !zero.shard<16xf32, dim 0 = (4) on #mesh>
  %1 = zero.all_gather %p along ["gpu"]
      : !zero.shard<16xf32, dim 0 = ("gpu") on #mesh> to !zero.shard<16xf32, dim 0 = (4) on #mesh>
  // CHECK-COUNT-2: zero.reduce_scatter sum %
  %2 = zero.reduce_scatter sum %g along ["gpu"]
      : !zero.shard<16xf32, dim 0 = (4) on #mesh> to !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>
  %3 = zero.reduce_scatter sum %g along ["gpu"]
      : !zero.shard<16xf32, dim 0 = (4) on #mesh> to !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>
  // CHECK-COUNT-2: zero.all_to_all %
  %4 = zero.all_to_all %c along ["gpu"] on #mesh into %e : tensor<4x8xi8> into tensor<4x8xi8> -> tensor<4x8xi8>
  %5 = zero.all_to_all %c along ["gpu"] on #mesh into %e : tensor<4x8xi8> into tensor<4x8xi8> -> tensor<4x8xi8>
  // CHECK-COUNT-2: zero.all_gather_chunks %
  %6 = zero.all_gather_chunks %c along ["gpu"] on #mesh into %f
      : tensor<4x8xi8> into tensor<4x4x8xi8> -> tensor<4x4x8xi8>
  %7 = zero.all_gather_chunks %c along ["gpu"] on #mesh into %f
      : tensor<4x8xi8> into tensor<4x4x8xi8> -> tensor<4x4x8xi8>
  // CHECK-NEXT: return
  return
}

func.func private @f(tensor<4xf32>) -> tensor<4xf32>

// CHECK-LABEL: func @starts_and_waits_stay
func.func @starts_and_waits_stay(%x: tensor<4xf32>) {
  // CHECK-COUNT-2: zero.start
  // CHECK-COUNT-2: zero.wait
  // CHECK-NEXT: return
  %0 = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = zero.wait %0 from(%x : tensor<4xf32>) : tensor<4xf32>
  %3 = zero.wait %1 from(%x : tensor<4xf32>) : tensor<4xf32>
  return
}

// CHECK-LABEL: func @local_work_is_merged
func.func @local_work_is_merged(%g: tensor<16xf32>, %e: tensor<4x4xf32>, %q: tensor<4x32xi8>)
    -> (tensor<4x32xi8>, tensor<4x32xi8>) {
  // CHECK-NEXT: %[[PACKED:.*]] = zero.pack_slices
  // CHECK-NEXT: %[[SENT:.*]] = zero.quantize %[[PACKED]]
  // CHECK-NEXT: return %[[SENT]], %[[SENT]]
  %0 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<16xf32> into tensor<4x4xf32> -> tensor<4x4xf32>
  %1 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<16xf32> into tensor<4x4xf32> -> tensor<4x4xf32>
  %2 = zero.quantize %0 quant <i8, block = 32> into %q : tensor<4x4xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
  %3 = zero.quantize %1 quant <i8, block = 32> into %q : tensor<4x4xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
  return %2, %3 : tensor<4x32xi8>, tensor<4x32xi8>
}

// CHECK-LABEL: func @local_work_is_dropped
func.func @local_work_is_dropped(%b: tensor<4x32xi8>, %e: tensor<4x8xf32>, %f: tensor<8xf32>, %q: tensor<2x32xi8>,
                                 %w: tensor<32xf32>, %p: !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>) {
  // CHECK-NEXT: return
  %0 = zero.dequantize %b quant <i8, block = 32> into %e : tensor<4x32xi8> into tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = zero.reduce sum %0 into %f : tensor<4x8xf32> into tensor<8xf32> -> tensor<8xf32>
  %2 = zero.dequantize_reduce sum %b quant <i8, block = 32> into %f
      : tensor<4x32xi8> into tensor<8xf32> -> tensor<8xf32>
  %3 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 32> partial tensor<8xf32> to <i4, block = 32>
      slices <dim = 0, factors = [2], chunk = [0]> into %q : tensor<4x32xi8> into tensor<2x32xi8> -> tensor<2x32xi8>
  %4 = zero.unpack_slices %0 slices <dim = 0, factors = [4], chunk = [0]> into %w
      : tensor<4x8xf32> into tensor<32xf32> -> tensor<32xf32>
  %5 = zero.encode %p : !zero.shard<16xf32, dim 0 = ("gpu") on #mesh> to
      !zero.shard<16xf32, dim 0 = ("gpu") on #mesh, #zero.quant<i8, block = 32>>
  %6 = zero.decode %5 : !zero.shard<16xf32, dim 0 = ("gpu") on #mesh, #zero.quant<i8, block = 32>> to
      !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>
  return
}

// Buffers are memory: what is written there is seen by others.
// CHECK-LABEL: func @buffers_stay
func.func @buffers_stay(%c: memref<4x8xf32>, %p: memref<8xf32>) {
  // CHECK-COUNT-2: zero.reduce
  zero.reduce sum %c into %p : memref<4x8xf32> into memref<8xf32>
  zero.reduce sum %c into %p : memref<4x8xf32> into memref<8xf32>
  return
}
