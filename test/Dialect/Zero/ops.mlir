// RUN: zpp-opt %s | zpp-opt | FileCheck %s
// RUN: zpp-opt %s --mlir-print-op-generic | zpp-opt | FileCheck %s

// CHECK: #[[MESH:.*]] = #zero.mesh<"node" = 2, "gpu" = 4>
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!secondary = !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

//===----------------------------------------------------------------------===//
// Logical ops
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @from_local
func.func @from_local(%w: tensor<32x64xbf16>) -> !primary {
  // CHECK: zero.from_local %{{.*}} : tensor<32x64xbf16> to <256x64xbf16, dim 0 = ("node", "gpu") on #[[MESH]]>
  %p = zero.from_local %w : tensor<32x64xbf16> to !primary
  return %p : !primary
}

// The part of a device is padded, but the whole tensor is not.
// CHECK-LABEL: func @to_local
func.func @to_local(%part: !zero.shard<3x7xf32, dim 1 = ("node", 4) on #mesh>,
                    %whole: !zero.shard<3x7xf32, dim 1 = (2, 4) on #mesh>,
                    %encoded: !zero.shard<3x7xf32, dim 1 = ("node", 4) on #mesh, #zero.quant<i4, block = 32>>) {
  // CHECK: zero.to_local %{{.*}} : <3x7xf32, dim 1 = ("node", 4) on #[[MESH]]> to tensor<3x4xf32>
  %0 = zero.to_local %part : !zero.shard<3x7xf32, dim 1 = ("node", 4) on #mesh> to tensor<3x4xf32>
  // CHECK: zero.to_local %{{.*}} : <3x7xf32, dim 1 = (2, 4) on #[[MESH]]> to tensor<3x7xf32>
  %1 = zero.to_local %whole : !zero.shard<3x7xf32, dim 1 = (2, 4) on #mesh> to tensor<3x7xf32>
  // CHECK: zero.to_local %{{.*}} to tensor<4x32xi8>
  %2 = zero.to_local %encoded : !zero.shard<3x7xf32, dim 1 = ("node", 4) on #mesh, #zero.quant<i4, block = 32>> to tensor<4x32xi8>
  return
}

// CHECK-LABEL: func @all_gather
func.func @all_gather(%p: !primary) -> (!secondary, !whole) {
  // CHECK: zero.all_gather %{{.*}} along ["node"] : <256x64xbf16, dim 0 = ("node", "gpu") on #[[MESH]]> to <256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]]>
  %0 = zero.all_gather %p along ["node"] : !primary to !secondary
  // CHECK: zero.all_gather %{{.*}} along ["gpu", "node"]
  %1 = zero.all_gather %p along ["gpu", "node"] : !primary to !whole
  return %0, %1 : !secondary, !whole
}

// CHECK-LABEL: func @all_gather_part
func.func @all_gather_part(%p: !zero.shard<12xf32, dim 0 = ("gpu":(1)2, "gpu":(2)2) on #mesh>) {
  // CHECK: zero.all_gather %{{.*}} along ["gpu":(2)2]
  %0 = zero.all_gather %p along ["gpu":(2)2]
      : !zero.shard<12xf32, dim 0 = ("gpu":(1)2, "gpu":(2)2) on #mesh> to
        !zero.shard<12xf32, dim 0 = ("gpu":(1)2, 2) on #mesh>
  return
}

// CHECK-LABEL: func @reduce_scatter
func.func @reduce_scatter(%g: !whole) -> !primary {
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["gpu"] wire <i8, block = 128> : <256x64xbf16, dim 0 = (2, 4) on #[[MESH]]> to <256x64xf32, dim 0 = (2, "gpu") on #[[MESH]]>
  %0 = zero.reduce_scatter sum %g along ["gpu"] wire <i8, block = 128>
      : !whole to !zero.shard<256x64xf32, dim 0 = (2, "gpu") on #mesh>
  // CHECK: zero.reduce_scatter mean %{{.*}} along ["node", "gpu"] : <
  %1 = zero.reduce_scatter mean %g along ["node", "gpu"] : !whole to !primary
  return %1 : !primary
}

// CHECK-LABEL: func @all_reduce
func.func @all_reduce(%g: !whole, %p: !zero.shard<256x64xbf16, dim 0 = ("gpu") on #mesh>) {
  // CHECK: zero.all_reduce mean %{{.*}} along ["node", "gpu"] : <256x64xbf16, dim 0 = (2, 4) on #[[MESH]]>
  %0 = zero.all_reduce mean %g along ["node", "gpu"] : !whole
  // CHECK: zero.all_reduce sum %{{.*}} along ["node"] : <256x64xbf16, dim 0 = ("gpu") on #[[MESH]]>
  %1 = zero.all_reduce sum %p along ["node"] : !zero.shard<256x64xbf16, dim 0 = ("gpu") on #mesh>
  return
}

// CHECK-LABEL: func @encode_decode
func.func @encode_decode(%p: !secondary) -> !secondary {
  // CHECK: zero.encode %{{.*}} : <256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]]> to <256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]], #zero.quant<i8, block = 128>>
  %0 = zero.encode %p : !secondary to
      !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i8, block = 128>>
  // CHECK: zero.decode %{{.*}} : <256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]], #zero.quant<i8, block = 128>> to <256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]]>
  %1 = zero.decode %0 : !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i8, block = 128>> to
      !secondary
  return %1 : !secondary
}

//===----------------------------------------------------------------------===//
// Decomposed ops on tensors
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @pack_slices
func.func @pack_slices(%g: tensor<256x64xbf16>, %e: tensor<4x64x64xbf16>) -> tensor<4x64x64xbf16> {
  // CHECK: zero.pack_slices %{{.*}} slices <dim = 0, factors = [2, 4], chunk = [1]> into %{{.*}} : tensor<256x64xbf16> into tensor<4x64x64xbf16> -> tensor<4x64x64xbf16>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [1]> into %e
      : tensor<256x64xbf16> into tensor<4x64x64xbf16> -> tensor<4x64x64xbf16>
  return %0 : tensor<4x64x64xbf16>
}

// A dim of 7 is padded to 8; a stage is a part of every unit.
// CHECK-LABEL: func @pack_stage
func.func @pack_stage(%g: tensor<3x23x2xf32>, %e: tensor<4x3x2x2xf32>) -> tensor<4x3x2x2xf32> {
  // CHECK: zero.pack_slices %{{.*}} slices <dim = 1, factors = [2, 4], chunk = [1], stage = 2 of 3>
  %0 = zero.pack_slices %g slices <dim = 1, factors = [2, 4], chunk = [1], stage = 2 of 3> into %e
      : tensor<3x23x2xf32> into tensor<4x3x2x2xf32> -> tensor<4x3x2x2xf32>
  return %0 : tensor<4x3x2x2xf32>
}

// CHECK-LABEL: func @unpack_slices
func.func @unpack_slices(%c: tensor<8x1xi8>, %e: tensor<7xi8>) -> tensor<7xi8> {
  // CHECK: zero.unpack_slices %{{.*}} slices <dim = 0, factors = [8], chunk = [0]> into %{{.*}} : tensor<8x1xi8> into tensor<7xi8> -> tensor<7xi8>
  %0 = zero.unpack_slices %c slices <dim = 0, factors = [8], chunk = [0]> into %e
      : tensor<8x1xi8> into tensor<7xi8> -> tensor<7xi8>
  return %0 : tensor<7xi8>
}

// CHECK-LABEL: func @encode_decode_difference
func.func @encode_decode_difference(%p: !secondary, %held: !secondary) -> !secondary {
  // CHECK: zero.encode %{{.*}} minus %{{.*}} : <256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]]> to <256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]], #zero.quant<i4, block = 128>>
  %0 = zero.encode %p minus %held : !secondary to
      !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i4, block = 128>>
  // CHECK: zero.decode %{{.*}} plus %{{.*}} : <256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]], #zero.quant<i4, block = 128>> to <256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]]>
  %1 = zero.decode %0 plus %held : !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i4, block = 128>> to
      !secondary
  return %1 : !secondary
}

// CHECK-LABEL: func @quantize_difference
func.func @quantize_difference(%g: tensor<4x1001xf16>, %h: tensor<4x1001xf16>, %e: tensor<4x1024xi8>, %f: tensor<2x1072xi8>) {
  // CHECK: zero.quantize_difference %{{.*}} minus %{{.*}} quant <i8, block = 128> into %{{.*}} : tensor<4x1001xf16>, tensor<4x1001xf16> into tensor<4x1024xi8> -> tensor<4x1024xi8>
  %0 = zero.quantize_difference %g minus %h quant <i8, block = 128> into %e
      : tensor<4x1001xf16>, tensor<4x1001xf16> into tensor<4x1024xi8> -> tensor<4x1024xi8>
  // CHECK: zero.quantize_difference %{{.*}} minus %{{.*}} quant <i4, block = 64> slices <dim = 1, factors = [2], chunk = [0]> into
  %1 = zero.quantize_difference %g minus %h quant <i4, block = 64> slices <dim = 1, factors = [2], chunk = [0]> into %f
      : tensor<4x1001xf16>, tensor<4x1001xf16> into tensor<2x1072xi8> -> tensor<2x1072xi8>
  return
}

// CHECK-LABEL: func @dequantize_add
func.func @dequantize_add(%b: tensor<2x2x1024xi8>, %h: tensor<4004xf32>, %f: tensor<4004xf32>,
                          %c: memref<4x32xi8>, %held: memref<4x8xbf16>) {
  // CHECK: zero.dequantize_add %{{.*}} plus %{{.*}} quant <i8, block = 128> slices <dim = 0, factors = [4], chunk = [0]> into %{{.*}} : tensor<2x2x1024xi8>, tensor<4004xf32> into tensor<4004xf32> -> tensor<4004xf32>
  %0 = zero.dequantize_add %b plus %h quant <i8, block = 128> slices <dim = 0, factors = [4], chunk = [0]> into %f
      : tensor<2x2x1024xi8>, tensor<4004xf32> into tensor<4004xf32> -> tensor<4004xf32>
  // In place.
  // CHECK: zero.dequantize_add %arg3 plus %[[HELD:.*]] quant <i8, block = 32> into %[[HELD]] : memref<4x32xi8>, memref<4x8xbf16> into memref<4x8xbf16>{{$}}
  zero.dequantize_add %c plus %held quant <i8, block = 32> into %held
      : memref<4x32xi8>, memref<4x8xbf16> into memref<4x8xbf16>
  return
}

// CHECK-LABEL: func @quantize
func.func @quantize(%g: tensor<4x1001xf16>, %e: tensor<4x1024xi8>, %f: tensor<2x1072xi8>) {
  // CHECK: zero.quantize %{{.*}} quant <i8, block = 128> into %{{.*}} : tensor<4x1001xf16> into tensor<4x1024xi8> -> tensor<4x1024xi8>
  %0 = zero.quantize %g quant <i8, block = 128> into %e
      : tensor<4x1001xf16> into tensor<4x1024xi8> -> tensor<4x1024xi8>
  // CHECK: zero.quantize %{{.*}} quant <i4, block = 64> slices <dim = 1, factors = [2], chunk = [0]> into
  %1 = zero.quantize %g quant <i4, block = 64> slices <dim = 1, factors = [2], chunk = [0]> into %f
      : tensor<4x1001xf16> into tensor<2x1072xi8> -> tensor<2x1072xi8>
  return
}

// CHECK-LABEL: func @dequantize
func.func @dequantize(%b: tensor<2x2x1024xi8>, %e: tensor<4x1001xf32>, %f: tensor<4004xf32>) {
  // CHECK: zero.dequantize %{{.*}} quant <i8, block = 128> into %{{.*}} : tensor<2x2x1024xi8> into tensor<4x1001xf32> -> tensor<4x1001xf32>
  %0 = zero.dequantize %b quant <i8, block = 128> into %e
      : tensor<2x2x1024xi8> into tensor<4x1001xf32> -> tensor<4x1001xf32>
  // CHECK: zero.dequantize %{{.*}} quant <i8, block = 128> slices <dim = 0, factors = [4], chunk = [0]> into
  %1 = zero.dequantize %b quant <i8, block = 128> slices <dim = 0, factors = [4], chunk = [0]> into %f
      : tensor<2x2x1024xi8> into tensor<4004xf32> -> tensor<4004xf32>
  return
}

// CHECK-LABEL: func @reduce
func.func @reduce(%c: tensor<3x5x7xbf16>, %e: tensor<5x7xf32>) -> tensor<5x7xf32> {
  // CHECK: zero.reduce mean %{{.*}} into %{{.*}} : tensor<3x5x7xbf16> into tensor<5x7xf32> -> tensor<5x7xf32>
  %0 = zero.reduce mean %c into %e : tensor<3x5x7xbf16> into tensor<5x7xf32> -> tensor<5x7xf32>
  return %0 : tensor<5x7xf32>
}

// CHECK-LABEL: func @dequantize_reduce
func.func @dequantize_reduce(%b: tensor<4x80xi8>, %e: tensor<8x8xbf16>) -> tensor<8x8xbf16> {
  // CHECK: zero.dequantize_reduce sum %{{.*}} quant <i8, block = 128> into %{{.*}} : tensor<4x80xi8> into tensor<8x8xbf16> -> tensor<8x8xbf16>
  %0 = zero.dequantize_reduce sum %b quant <i8, block = 128> into %e
      : tensor<4x80xi8> into tensor<8x8xbf16> -> tensor<8x8xbf16>
  return %0 : tensor<8x8xbf16>
}

// CHECK-LABEL: func @dequantize_reduce_quantize
func.func @dequantize_reduce_quantize(%b: tensor<4x80xi8>, %e: tensor<2x32xi8>) -> tensor<2x32xi8> {
  // CHECK: zero.dequantize_reduce_quantize sum %{{.*}} quant <i8, block = 128> partial tensor<8x8xf32> to <i4, block = 32> slices <dim = 1, factors = [2], chunk = [0]> into %{{.*}} : tensor<4x80xi8> into tensor<2x32xi8> -> tensor<2x32xi8>
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 128> partial tensor<8x8xf32>
      to <i4, block = 32> slices <dim = 1, factors = [2], chunk = [0]> into %e
      : tensor<4x80xi8> into tensor<2x32xi8> -> tensor<2x32xi8>
  return %0 : tensor<2x32xi8>
}

// CHECK-LABEL: func @all_to_all
func.func @all_to_all(%b: tensor<4x80xi8>, %e: tensor<4x80xi8>,
                      %g: tensor<16x3xbf16>, %f: tensor<4x4x3xf32>) {
  // CHECK: zero.all_to_all %{{.*}} along ["gpu"] on #[[MESH]] into %{{.*}} : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
  %0 = zero.all_to_all %b along ["gpu"] on #mesh into %e
      : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
  // CHECK: zero.all_to_all %{{.*}} along ["node", "gpu":(1)2] on #[[MESH]] into
  %1 = zero.all_to_all %b along ["node", "gpu":(1)2] on #mesh into %e
      : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
  // CHECK: zero.all_to_all %{{.*}} along ["gpu"] on #[[MESH]] slices <dim = 0, factors = [2, 4], chunk = [1]> wire <i4, block = 64> into %{{.*}} : tensor<16x3xbf16> into tensor<4x4x3xf32> -> tensor<4x4x3xf32>
  %2 = zero.all_to_all %g along ["gpu"] on #mesh slices <dim = 0, factors = [2, 4], chunk = [1]>
      wire <i4, block = 64> into %f : tensor<16x3xbf16> into tensor<4x4x3xf32> -> tensor<4x4x3xf32>
  return
}

// CHECK-LABEL: func @all_gather_chunks
func.func @all_gather_chunks(%w: tensor<2x80xi8>, %e: tensor<8x2x80xi8>) -> tensor<8x2x80xi8> {
  // CHECK: zero.all_gather_chunks %{{.*}} along ["node", "gpu"] on #[[MESH]] into %{{.*}} : tensor<2x80xi8> into tensor<8x2x80xi8> -> tensor<8x2x80xi8>
  %0 = zero.all_gather_chunks %w along ["node", "gpu"] on #mesh into %e
      : tensor<2x80xi8> into tensor<8x2x80xi8> -> tensor<8x2x80xi8>
  return %0 : tensor<8x2x80xi8>
}

//===----------------------------------------------------------------------===//
// Decomposed ops on buffers
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @buffers
func.func @buffers(%g: memref<8x3xbf16>, %c: memref<4x2x3xbf16>, %b: memref<4x32xi8>,
                   %r: memref<4x32xi8>, %p: memref<2x3xbf16>, %q: memref<2x32xi8>,
                   %a: memref<4x2x32xi8>) {
  // CHECK: zero.pack_slices %{{.*}} slices <dim = 0, factors = [4], chunk = [0]> into %{{.*}} : memref<8x3xbf16> into memref<4x2x3xbf16>{{$}}
  zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %c : memref<8x3xbf16> into memref<4x2x3xbf16>
  // CHECK: zero.unpack_slices %{{.*}} : memref<4x2x3xbf16> into memref<8x3xbf16>{{$}}
  zero.unpack_slices %c slices <dim = 0, factors = [4], chunk = [0]> into %g : memref<4x2x3xbf16> into memref<8x3xbf16>
  // CHECK: zero.quantize %{{.*}} : memref<4x2x3xbf16> into memref<4x32xi8>{{$}}
  zero.quantize %c quant <i8, block = 32> into %b : memref<4x2x3xbf16> into memref<4x32xi8>
  // CHECK: zero.all_to_all %{{.*}} : memref<4x32xi8> into memref<4x32xi8>{{$}}
  zero.all_to_all %b along ["gpu"] on #mesh into %r : memref<4x32xi8> into memref<4x32xi8>
  // CHECK: zero.dequantize %{{.*}} : memref<4x32xi8> into memref<4x2x3xbf16>{{$}}
  zero.dequantize %r quant <i8, block = 32> into %c : memref<4x32xi8> into memref<4x2x3xbf16>
  // CHECK: zero.reduce sum %{{.*}} : memref<4x2x3xbf16> into memref<2x3xbf16>{{$}}
  zero.reduce sum %c into %p : memref<4x2x3xbf16> into memref<2x3xbf16>
  // CHECK: zero.dequantize_reduce sum %{{.*}} : memref<4x32xi8> into memref<2x3xbf16>{{$}}
  zero.dequantize_reduce sum %r quant <i8, block = 32> into %p : memref<4x32xi8> into memref<2x3xbf16>
  // CHECK: zero.dequantize_reduce_quantize sum %{{.*}} : memref<4x32xi8> into memref<2x32xi8>{{$}}
  zero.dequantize_reduce_quantize sum %r quant <i8, block = 32> partial tensor<2x3xf32> to <i4, block = 32>
      slices <dim = 0, factors = [2], chunk = [0]> into %q : memref<4x32xi8> into memref<2x32xi8>
  // CHECK: zero.all_gather_chunks %{{.*}} : memref<2x32xi8> into memref<4x2x32xi8>{{$}}
  zero.all_gather_chunks %q along ["gpu"] on #mesh into %a : memref<2x32xi8> into memref<4x2x32xi8>
  return
}

//===----------------------------------------------------------------------===//
// Degenerate meshes and shapes
//===----------------------------------------------------------------------===//

#one = #zero.mesh<"node" = 1, "gpu" = 3>

// CHECK-LABEL: func @one_node
func.func @one_node(%p: !zero.shard<10xf32, dim 0 = ("node", "gpu") on #one>) {
  // CHECK: zero.all_gather %{{.*}} along ["node"]
  %0 = zero.all_gather %p along ["node"]
      : !zero.shard<10xf32, dim 0 = ("node", "gpu") on #one> to
        !zero.shard<10xf32, dim 0 = (1, "gpu") on #one>
  // CHECK: zero.to_local %{{.*}} to tensor<4xf32>
  %1 = zero.to_local %0 : !zero.shard<10xf32, dim 0 = (1, "gpu") on #one> to tensor<4xf32>
  return
}

// CHECK-LABEL: func @three_gpus
func.func @three_gpus(%g: tensor<10xf32>, %e: tensor<3x4xf32>, %f: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = zero.pack_slices %g slices <dim = 0, factors = [3], chunk = [0]> into %e
      : tensor<10xf32> into tensor<3x4xf32> -> tensor<3x4xf32>
  // CHECK: zero.all_to_all %{{.*}} along ["node", "gpu"]
  %1 = zero.all_to_all %0 along ["node", "gpu"] on #one into %f
      : tensor<3x4xf32> into tensor<3x4xf32> -> tensor<3x4xf32>
  return %1 : tensor<3x4xf32>
}

// Fewer elements than devices, and none.
// CHECK-LABEL: func @small
func.func @small(%g: tensor<2xf32>, %e: tensor<3x1xf32>, %n: tensor<0x4xf32>, %m: tensor<3x0x4xf32>,
                 %q: tensor<3x0xi8>) {
  %0 = zero.pack_slices %g slices <dim = 0, factors = [3], chunk = [0]> into %e
      : tensor<2xf32> into tensor<3x1xf32> -> tensor<3x1xf32>
  %1 = zero.pack_slices %n slices <dim = 0, factors = [3], chunk = [0]> into %m
      : tensor<0x4xf32> into tensor<3x0x4xf32> -> tensor<3x0x4xf32>
  // CHECK: zero.quantize %{{.*}} : tensor<3x0x4xf32> into tensor<3x0xi8>
  %2 = zero.quantize %1 quant <i8, block = 32> into %q : tensor<3x0x4xf32> into tensor<3x0xi8> -> tensor<3x0xi8>
  return
}

// Tensors of several types share a buffer of bytes.
// CHECK-LABEL: func @bytes
func.func @bytes(%g: tensor<8x3xbf16>, %b: tensor<4x12xi8>) -> tensor<8x3xbf16> {
  // CHECK: zero.pack_slices %{{.*}} : tensor<8x3xbf16> into tensor<4x12xi8> -> tensor<4x12xi8>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %b
      : tensor<8x3xbf16> into tensor<4x12xi8> -> tensor<4x12xi8>
  // CHECK: zero.unpack_slices %{{.*}} : tensor<4x12xi8> into tensor<8x3xbf16> -> tensor<8x3xbf16>
  %1 = zero.unpack_slices %0 slices <dim = 0, factors = [4], chunk = [0]> into %g
      : tensor<4x12xi8> into tensor<8x3xbf16> -> tensor<8x3xbf16>
  return %1 : tensor<8x3xbf16>
}

//===----------------------------------------------------------------------===//
// Ops of the schedule
//===----------------------------------------------------------------------===//

module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["node"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
  func.func @gather_buffers(%x: memref<4xf32>, %y: memref<2x4xf32>, %workspace: memref<64xi8>) {
    zero.all_gather_chunks %x along ["node"] on #mesh into %y : memref<4xf32> into memref<2x4xf32>
    return
  }
  // CHECK: zero.instance @gather_next of @gather from [#[[FIRST:loc[0-9]*]], #[[LINE:loc[0-9]*]]] to [#[[SECOND:loc[0-9]*]], #[[NEXT:loc[0-9]*]]]
  zero.instance @gather_next of @gather from [loc("first"), loc("step.py":3:1)]
      to [loc(callsite("second" at "step.py":3:1)), loc("step.py":4:1)]
}

// CHECK-LABEL: func @start_wait
func.func @start_wait(%x: tensor<4xf32>, %t: tensor<8xf32>, %z: tensor<16xbf16>) -> (tensor<2x4xf32>, tensor<8xf32>) {
  // CHECK: %[[Y:.*]], %[[U:.*]] = zero.start @zpp_host::@gather(%arg0) ties(%arg1 : tensor<8xf32>) : (tensor<4xf32>) -> tensor<2x4xf32>
  %y, %u = zero.start @zpp_host::@gather(%x) ties(%t : tensor<8xf32>) : (tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK: zero.wait %[[Y]] from(%arg0 : tensor<4xf32>) ties(%[[U]], %arg2 : tensor<8xf32>, tensor<16xbf16>) : tensor<2x4xf32>
  %w, %v:2 = zero.wait %y from(%x : tensor<4xf32>) ties(%u, %z : tensor<8xf32>, tensor<16xbf16>) : tensor<2x4xf32>
  return %w, %v#0 : tensor<2x4xf32>, tensor<8xf32>
}

// The callee on buffers, an origin for its exchange, no ties.
// CHECK-LABEL: func @start_wait_buffers
func.func @start_wait_buffers(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK: %[[Y:.*]] = zero.start @zpp_host::@gather_buffers(%arg0) {origins = [{id = 3 : i64}]} : (tensor<4xf32>) -> tensor<2x4xf32>
  %y = zero.start @zpp_host::@gather_buffers(%x) {origins = [{id = 3}]} : (tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK: zero.wait %[[Y]] from(%arg0 : tensor<4xf32>) : tensor<2x4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<2x4xf32>
  return %w : tensor<2x4xf32>
}

// The callee is an instance.
// CHECK-LABEL: func @start_instance
func.func @start_instance(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK: zero.start @zpp_host::@gather_next(%arg0) {origins = [{id = 3 : i64}]} : (tensor<4xf32>) -> tensor<2x4xf32>
  %y = zero.start @zpp_host::@gather_next(%x) {origins = [{id = 3}]} : (tensor<4xf32>) -> tensor<2x4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<2x4xf32>
  return %w : tensor<2x4xf32>
}
