// RUN: zpp-opt %s --convert-zero-to-stablehlo | FileCheck %s --implicit-check-not=zero. --implicit-check-not=tensor.
// RUN: zpp-opt %s --convert-zero-to-stablehlo --mlir-print-debuginfo | FileCheck %s --check-prefix=LOC

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @pack_slices(%g: tensor<15x3xbf16>) -> tensor<4x4x3xbf16> {

  %e = tensor.empty() : tensor<4x4x3xbf16>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [1]> into %e
      : tensor<15x3xbf16> into tensor<4x4x3xbf16> -> tensor<4x4x3xbf16>
  return %0 : tensor<4x4x3xbf16>
}

func.func @pack_stage(%g: tensor<5x24x2xf32>) -> tensor<4x5x2x2xf32> {

  %e = tensor.empty() : tensor<4x5x2x2xf32>
  %0 = zero.pack_slices %g slices <dim = 1, factors = [2, 4], chunk = [1], stage = 2 of 3> into %e
      : tensor<5x24x2xf32> into tensor<4x5x2x2xf32> -> tensor<4x5x2x2xf32>
  return %0 : tensor<4x5x2x2xf32>
}

func.func @pack_contiguous(%g: tensor<16x3xbf16>) -> tensor<8x2x3xbf16> {

  %e = tensor.empty() : tensor<8x2x3xbf16>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [0, 1]> into %e
      : tensor<16x3xbf16> into tensor<8x2x3xbf16> -> tensor<8x2x3xbf16>
  return %0 : tensor<8x2x3xbf16>
}

func.func @unpack_slices(%c: tensor<4x4x3xbf16>) -> tensor<15x3xbf16> {

  %e = tensor.empty() : tensor<15x3xbf16>
  %0 = zero.unpack_slices %c slices <dim = 0, factors = [2, 4], chunk = [1]> into %e
      : tensor<4x4x3xbf16> into tensor<15x3xbf16> -> tensor<15x3xbf16>
  return %0 : tensor<15x3xbf16>
}

func.func @quantize_i8(%g: tensor<256x64xbf16>) -> tensor<4x4160xi8> {

  %e = tensor.empty() : tensor<4x4160xi8>
  %0 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1]> into %e
      : tensor<256x64xbf16> into tensor<4x4160xi8> -> tensor<4x4160xi8>
  return %0 : tensor<4x4160xi8>
}

func.func @quantize_i4(%g: tensor<4x1001xf32>) -> tensor<4x528xi8> {

  %e = tensor.empty() : tensor<4x528xi8>
  %0 = zero.quantize %g quant <i4, block = 128> into %e
      : tensor<4x1001xf32> into tensor<4x528xi8> -> tensor<4x528xi8>
  return %0 : tensor<4x528xi8>
}

func.func @quantize_short(%g: tensor<2x5xf16>) -> tensor<2x32xi8> {

  %e = tensor.empty() : tensor<2x32xi8>
  %0 = zero.quantize %g quant <i8, block = 128> into %e
      : tensor<2x5xf16> into tensor<2x32xi8> -> tensor<2x32xi8>
  return %0 : tensor<2x32xi8>
}

func.func @dequantize_i8(%b: tensor<2x2x1024xi8>) -> tensor<4x1001xbf16> {

  %e = tensor.empty() : tensor<4x1001xbf16>
  %0 = zero.dequantize %b quant <i8, block = 128> into %e
      : tensor<2x2x1024xi8> into tensor<4x1001xbf16> -> tensor<4x1001xbf16>
  return %0 : tensor<4x1001xbf16>
}

func.func @dequantize_i4(%b: tensor<4x528xi8>) -> tensor<77x52xf32> {

  %e = tensor.empty() : tensor<77x52xf32>
  %0 = zero.dequantize %b quant <i4, block = 128> slices <dim = 1, factors = [4], chunk = [0]> into %e
      : tensor<4x528xi8> into tensor<77x52xf32> -> tensor<77x52xf32>
  return %0 : tensor<77x52xf32>
}

func.func @empty(%g: tensor<2x0xf32>) -> tensor<2x0xi8> {

  %e = tensor.empty() : tensor<2x0xi8>
  %0 = zero.quantize %g quant <i8, block = 128> into %e : tensor<2x0xf32> into tensor<2x0xi8> -> tensor<2x0xi8>
  return %0 : tensor<2x0xi8>
}

func.func @mean(%c: tensor<3x5x7xbf16>) -> tensor<5x7xbf16> {

  %e = tensor.empty() : tensor<5x7xbf16>
  %0 = zero.reduce mean %c into %e : tensor<3x5x7xbf16> into tensor<5x7xbf16> -> tensor<5x7xbf16>
  return %0 : tensor<5x7xbf16>
}

func.func @mean_of_power_of_two(%c: tensor<2x5xf32>) -> tensor<5xf32> {

  %e = tensor.empty() : tensor<5xf32>
  %0 = zero.reduce mean %c into %e : tensor<2x5xf32> into tensor<5xf32> -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

func.func @sum_to_f16(%c: tensor<1x5xf32>) -> tensor<5xf16> {

  %e = tensor.empty() : tensor<5xf16>
  %0 = zero.reduce sum %c into %e : tensor<1x5xf32> into tensor<5xf16> -> tensor<5xf16>
  return %0 : tensor<5xf16>
}

func.func @dequantize_reduce(%b: tensor<2x80xi8>) -> tensor<8x8xf32> {

  %e = tensor.empty() : tensor<8x8xf32>
  %0 = zero.dequantize_reduce sum %b quant <i8, block = 128> into %e
      : tensor<2x80xi8> into tensor<8x8xf32> -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

func.func @dequantize_reduce_quantize(%b: tensor<2x80xi8>) -> tensor<2x32xi8> {

  %e = tensor.empty() : tensor<2x32xi8>
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 128> partial tensor<8x8xf32>
      to <i4, block = 32> slices <dim = 1, factors = [2], chunk = [0]> into %e
      : tensor<2x80xi8> into tensor<2x32xi8> -> tensor<2x32xi8>
  return %0 : tensor<2x32xi8>
}

func.func @round_partial(%b: tensor<2x80xi8>) -> tensor<1x48xi8> {

  %e = tensor.empty() : tensor<1x48xi8>
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 128> partial tensor<8x8xbf16>
      to <i4, block = 32> slices <dim = 1, factors = [], chunk = []> into %e
      : tensor<2x80xi8> into tensor<1x48xi8> -> tensor<1x48xi8>
  return %0 : tensor<1x48xi8>
}

func.func @all_to_all(%b: tensor<4x80xi8>) -> tensor<4x80xi8> {

  %e = tensor.empty() : tensor<4x80xi8>
  %0 = zero.all_to_all %b along ["gpu"] on #mesh into %e {test.other, zpp.origin = 7 : i64}
      : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8> loc("gradient")
  return %0 : tensor<4x80xi8>
}

func.func @all_to_all_order(%b: tensor<8x16xi8>) -> tensor<8x16xi8> {

  %e = tensor.empty() : tensor<8x16xi8>
  %0 = zero.all_to_all %b along ["gpu", "node"] on #mesh into %e
      : tensor<8x16xi8> into tensor<8x16xi8> -> tensor<8x16xi8>
  return %0 : tensor<8x16xi8>
}

func.func @all_to_all_part(%b: tensor<2x16xi8>) -> tensor<2x16xi8> {

  %e = tensor.empty() : tensor<2x16xi8>
  %0 = zero.all_to_all %b along ["gpu":(1)2] on #mesh into %e
      : tensor<2x16xi8> into tensor<2x16xi8> -> tensor<2x16xi8>
  return %0 : tensor<2x16xi8>
}

func.func @all_gather_chunks(%b: tensor<2x80xi8>) -> tensor<2x2x80xi8> {

  %e = tensor.empty() : tensor<2x2x80xi8>
  %0 = zero.all_gather_chunks %b along ["node"] on #mesh into %e {zpp.keep}
      : tensor<2x80xi8> into tensor<2x2x80xi8> -> tensor<2x2x80xi8>
  return %0 : tensor<2x2x80xi8>
}

func.func @one_device(%b: tensor<1x16xi8>) -> (tensor<1x16xi8>, tensor<1x1x16xi8>) {

  %e = tensor.empty() : tensor<1x16xi8>
  %f = tensor.empty() : tensor<1x1x16xi8>
  %0 = zero.all_to_all %b along ["node"] on <"node" = 1, "gpu" = 3> into %e
      : tensor<1x16xi8> into tensor<1x16xi8> -> tensor<1x16xi8>
  %1 = zero.all_gather_chunks %b along ["node"] on <"node" = 1, "gpu" = 3> into %f
      : tensor<1x16xi8> into tensor<1x1x16xi8> -> tensor<1x1x16xi8>
  return %0, %1 : tensor<1x16xi8>, tensor<1x1x16xi8>
}

func.func @three_gpus(%b: tensor<3x16xi8>) -> tensor<3x16xi8> {

  %e = tensor.empty() : tensor<3x16xi8>
  %0 = zero.all_to_all %b along ["gpu"] on <"node" = 1, "gpu" = 3> into %e
      : tensor<3x16xi8> into tensor<3x16xi8> -> tensor<3x16xi8>
  return %0 : tensor<3x16xi8>
}

func.func @plain_scatter(%g: tensor<3x16xbf16>) -> tensor<3x2xbf16> {

  %0 = zero.from_local %g : tensor<3x16xbf16> to !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["node", "gpu"] {zpp.origin = 1 : i64}
      : !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh> to !zero.shard<3x16xbf16, dim 1 = ("node", "gpu") on #mesh>
  %2 = zero.to_local %1 : !zero.shard<3x16xbf16, dim 1 = ("node", "gpu") on #mesh> to tensor<3x2xbf16>
  return %2 : tensor<3x2xbf16>
}

func.func @source_of_scatter(%g: tensor<3x16xbf16>) -> tensor<3x2xbf16> {

  %0 = zero.from_local %g : tensor<3x16xbf16> to !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["node", "gpu"] {zpp.origin = 1 : i64, zpp.source = {
        attributes = {mhlo.mark = 2 : i64}, properties = {replica_groups = #stablehlo<some groups>, scatter_dimension = 1 : i64}}}
      : !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh> to !zero.shard<3x16xbf16, dim 1 = ("node", "gpu") on #mesh>
  %2 = zero.to_local %1 : !zero.shard<3x16xbf16, dim 1 = ("node", "gpu") on #mesh> to tensor<3x2xbf16>
  return %2 : tensor<3x2xbf16>
}

func.func @source_of_gather(%w: tensor<3x2xbf16>) -> tensor<3x16xbf16> {

  %e = tensor.empty() : tensor<8x3x2xbf16>
  %f = tensor.empty() : tensor<3x16xbf16>
  %0 = zero.all_gather_chunks %w along ["node", "gpu"] on #mesh into %e {zpp.origin = 1 : i64, zpp.source = {
        attributes = {mhlo.mark = 2 : i64}, properties = {all_gather_dim = 1 : i64, replica_groups = #stablehlo<some groups>}}}
      : tensor<3x2xbf16> into tensor<8x3x2xbf16> -> tensor<8x3x2xbf16>
  %1 = zero.unpack_slices %0 slices <dim = 1, factors = [2, 4], chunk = [0, 1]> into %f
      : tensor<8x3x2xbf16> into tensor<3x16xbf16> -> tensor<3x16xbf16>
  return %1 : tensor<3x16xbf16>
}

func.func @source_of_chunks(%w: tensor<3x2xbf16>) -> (tensor<8x3x2xbf16>, tensor<3x16xbf16>) {

  %e = tensor.empty() : tensor<8x3x2xbf16>
  %f = tensor.empty() : tensor<3x16xbf16>
  %0 = zero.all_gather_chunks %w along ["node", "gpu"] on #mesh into %e {zpp.source = {
        attributes = {}, properties = {all_gather_dim = 1 : i64, replica_groups = #stablehlo<some groups>}}}
      : tensor<3x2xbf16> into tensor<8x3x2xbf16> -> tensor<8x3x2xbf16>
  %1 = zero.unpack_slices %0 slices <dim = 1, factors = [2, 4], chunk = [0, 1]> into %f
      : tensor<8x3x2xbf16> into tensor<3x16xbf16> -> tensor<3x16xbf16>
  return %0, %1 : tensor<8x3x2xbf16>, tensor<3x16xbf16>
}

func.func @concat(%a: tensor<2x3xf32>, %b: tensor<2x4xf32>) -> tensor<2x7xf32> {

  %0 = tensor.concat dim(1) %a, %b : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
  return %0 : tensor<2x7xf32>
}

func.func @in_region(%x: tensor<8x8xf32>) -> tensor<16x4xf32> {

  %0 = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>]>}> ({
  ^bb0(%y: tensor<1x8xf32>):

    %1 = "stablehlo.reshape"(%y) : (tensor<1x8xf32>) -> tensor<8xf32>
    %e = tensor.empty() : tensor<2x4xf32>
    %2 = zero.pack_slices %1 slices <dim = 0, factors = [2], chunk = [0]> into %e
        : tensor<8xf32> into tensor<2x4xf32> -> tensor<2x4xf32>

    "sdy.return"(%2) : (tensor<2x4xf32>) -> ()
  }) : (tensor<8x8xf32>) -> tensor<16x4xf32>
  return %0 : tensor<16x4xf32>
}

// -----

func.func @bytes(%g: tensor<8x3xbf16>, %q: tensor<4x16xi8>) -> (tensor<4x32xi8>, tensor<8x3xbf16>, tensor<4x4x4xi8>) {

  %e = tensor.empty() : tensor<4x12xi8>
  %pad = tensor.empty() : tensor<4x4xi8>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<8x3xbf16> into tensor<4x12xi8> -> tensor<4x12xi8>
  %1 = tensor.concat dim(1) %q, %0, %pad : (tensor<4x16xi8>, tensor<4x12xi8>, tensor<4x4xi8>) -> tensor<4x32xi8>

  %2 = tensor.extract_slice %1[0, 16] [4, 12] [1, 1] : tensor<4x32xi8> to tensor<4x12xi8>
  %f = tensor.empty() : tensor<8x3xbf16>
  %3 = zero.unpack_slices %2 slices <dim = 0, factors = [4], chunk = [0]> into %f
      : tensor<4x12xi8> into tensor<8x3xbf16> -> tensor<8x3xbf16>

  %4 = tensor.expand_shape %q [[0], [1, 2]] output_shape [4, 4, 4] : tensor<4x16xi8> into tensor<4x4x4xi8>
  return %1, %3, %4 : tensor<4x32xi8>, tensor<8x3xbf16>, tensor<4x4x4xi8>
}
