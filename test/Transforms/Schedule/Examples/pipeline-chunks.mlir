// What `zero-pipeline-chunks` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-pipeline-chunks --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 2>
func.func @step(%g: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
  %0 = zero.start @zpp_host::@stages(%g) {origins = [{id = 1}, {id = 2}, {id
      = 3}, {id = 4} ]} : (tensor<4096x4096xf32>) -> tensor<1024x4096xf32>
  %1 = zero.wait %0 from(%g : tensor<4096x4096xf32>) : tensor<1024x4096xf32>
  return %1 : tensor<1024x4096xf32>
}
module @zpp_host {
  func.func @stages(%g: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
    %e0 = tensor.empty() : tensor<2x4259840xi8>
    %e1 = tensor.empty() : tensor<2x1081344xi8>
    %e2 = tensor.empty() : tensor<512x4096xf32>
    %0 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors =
        [2, 2], chunk = [1], stage = 0 of 2> into %e0
        : tensor<4096x4096xf32> into tensor<2x4259840xi8> ->
            tensor<2x4259840xi8>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e0
        : tensor<2x4259840xi8> into tensor<2x4259840xi8> ->
            tensor<2x4259840xi8>
    %2 = zero.dequantize_reduce_quantize sum %1 quant <i8, block = 128>
        partial tensor<1024x4096xf32> to <i4, block = 128>
        slices <dim = 0, factors = [2], chunk = [0]> into %e1 :
            tensor<2x4259840xi8> into tensor<2x1081344xi8> ->
            tensor<2x1081344xi8>
    %3 = zero.all_to_all %2 along ["node"] on #mesh into %e1
        : tensor<2x1081344xi8> into tensor<2x1081344xi8> ->
            tensor<2x1081344xi8>
    %4 = zero.dequantize_reduce sum %3 quant <i4, block = 128> into %e2
        : tensor<2x1081344xi8> into tensor<512x4096xf32> ->
            tensor<512x4096xf32>
    %5 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors =
        [2, 2], chunk = [1], stage = 1 of 2> into %e0
        : tensor<4096x4096xf32> into tensor<2x4259840xi8> ->
            tensor<2x4259840xi8>
    %6 = zero.all_to_all %5 along ["gpu"] on #mesh into %e0
        : tensor<2x4259840xi8> into tensor<2x4259840xi8> ->
            tensor<2x4259840xi8>
    %7 = zero.dequantize_reduce_quantize sum %6 quant <i8, block = 128>
        partial tensor<1024x4096xf32> to <i4, block = 128>
        slices <dim = 0, factors = [2], chunk = [0]> into %e1 :
            tensor<2x4259840xi8> into tensor<2x1081344xi8> ->
            tensor<2x1081344xi8>
    %8 = zero.all_to_all %7 along ["node"] on #mesh into %e1
        : tensor<2x1081344xi8> into tensor<2x1081344xi8> ->
            tensor<2x1081344xi8>
    %9 = zero.dequantize_reduce sum %8 quant <i4, block = 128> into %e2
        : tensor<2x1081344xi8> into tensor<512x4096xf32> ->
            tensor<512x4096xf32>
    %10 = tensor.concat dim(0) %4, %9 : (tensor<512x4096xf32>,
        tensor<512x4096xf32>) -> tensor<1024x4096xf32>
    return %10 : tensor<1024x4096xf32>
  }
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 2>
func.func @step(%arg0: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
  %outputs = zero.start @zpp_host::@stages(%arg0) {origins = [{id = 1 :
      i64}, {id = 3 : i64}, {id = 2 : i64}, {id = 4 : i64} ]} :
      (tensor<4096x4096xf32>) -> tensor<1024x4096xf32>
  %outputs_0 = zero.wait %outputs from(%arg0 : tensor<4096x4096xf32>) :
      tensor<1024x4096xf32>
  return %outputs_0 : tensor<1024x4096xf32>
}
module @zpp_host {
  func.func @stages(%arg0: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
    %0 = tensor.empty() : tensor<2x4259840xi8>
    %1 = zero.quantize %arg0 quant <i8, block = 128> slices <dim = 0,
        factors = [2, 2], chunk = [1], stage = 0 of 2> into %0 :
        tensor<4096x4096xf32> into tensor<2x4259840xi8> ->
        tensor<2x4259840xi8>
    %2 = zero.quantize %arg0 quant <i8, block = 128> slices <dim = 0,
        factors = [2, 2], chunk = [1], stage = 1 of 2> into %0 :
        tensor<4096x4096xf32> into tensor<2x4259840xi8> ->
        tensor<2x4259840xi8>
    %3 = zero.all_to_all %1 along ["gpu"] on #mesh into %0 :
        tensor<2x4259840xi8> into tensor<2x4259840xi8> ->
        tensor<2x4259840xi8>
    %4 = zero.all_to_all %2 along ["gpu"] on #mesh into %0 :
        tensor<2x4259840xi8> into tensor<2x4259840xi8> ->
        tensor<2x4259840xi8>
    %5 = tensor.empty() : tensor<2x1081344xi8>
    %6 = zero.dequantize_reduce_quantize sum %3 quant <i8, block = 128>
        partial tensor<1024x4096xf32> to <i4, block = 128> slices <dim = 0,
        factors = [2], chunk = [0]> into %5 : tensor<2x4259840xi8> into
        tensor<2x1081344xi8> -> tensor<2x1081344xi8>
    %7 = zero.all_to_all %6 along ["node"] on #mesh into %5 :
        tensor<2x1081344xi8> into tensor<2x1081344xi8> ->
        tensor<2x1081344xi8>
    %8 = zero.dequantize_reduce_quantize sum %4 quant <i8, block = 128>
        partial tensor<1024x4096xf32> to <i4, block = 128> slices <dim = 0,
        factors = [2], chunk = [0]> into %5 : tensor<2x4259840xi8> into
        tensor<2x1081344xi8> -> tensor<2x1081344xi8>
    %9 = zero.all_to_all %8 along ["node"] on #mesh into %5 :
        tensor<2x1081344xi8> into tensor<2x1081344xi8> ->
        tensor<2x1081344xi8>
    %10 = tensor.empty() : tensor<512x4096xf32>
    %11 = zero.dequantize_reduce sum %7 quant <i4, block = 128> into %10 :
        tensor<2x1081344xi8> into tensor<512x4096xf32> ->
        tensor<512x4096xf32>
    %12 = zero.dequantize_reduce sum %9 quant <i4, block = 128> into %10 :
        tensor<2x1081344xi8> into tensor<512x4096xf32> ->
        tensor<512x4096xf32>
    %concat = tensor.concat dim(0) %11, %12 : (tensor<512x4096xf32>,
        tensor<512x4096xf32>) -> tensor<1024x4096xf32>
    return %concat : tensor<1024x4096xf32>
  }
}
