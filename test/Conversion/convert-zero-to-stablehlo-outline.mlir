// RUN: zpp-opt %s --convert-zero-to-stablehlo=outline=true | FileCheck %s
// RUN: zpp-opt %s --convert-zero-to-stablehlo=outline=true \
// RUN:   | zpp-opt --convert-zero-to-stablehlo=outline=true | FileCheck %s

// Ops of one kind, format and shape share a function; what is no more than a
// reshape, and collectives, stay where they are.

#mesh = #zero.mesh<"gpu" = 4>

// CHECK-LABEL: func @layers
func.func @layers(%a: tensor<8x64xbf16>, %b: tensor<8x64xbf16>, %c: tensor<16x64xbf16>)
    -> (tensor<4x144xi8>, tensor<4x272xi8>, tensor<4x144xi8>, tensor<4x2x64xbf16>) {
  // CHECK: call @zero_quantize(%arg0)
  // CHECK: %[[SENT:.*]] = call @zero_quantize(%arg1)
  // CHECK: call @[[OTHER:zero_quantize_[0-9]+]](%arg2)
  // CHECK: "stablehlo.all_to_all"(%[[SENT]])
  // CHECK: stablehlo.reshape %arg0
  // CHECK: return
  %e = tensor.empty() : tensor<4x144xi8>
  %f = tensor.empty() : tensor<4x272xi8>
  %g = tensor.empty() : tensor<4x2x64xbf16>
  %0 = zero.quantize %a quant <i8, block = 128> slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<8x64xbf16> into tensor<4x144xi8> -> tensor<4x144xi8>
  %1 = zero.quantize %b quant <i8, block = 128> slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<8x64xbf16> into tensor<4x144xi8> -> tensor<4x144xi8>
  %2 = zero.quantize %c quant <i8, block = 128> slices <dim = 0, factors = [4], chunk = [0]> into %f
      : tensor<16x64xbf16> into tensor<4x272xi8> -> tensor<4x272xi8>
  %3 = zero.all_to_all %1 along ["gpu"] on #mesh into %e
      : tensor<4x144xi8> into tensor<4x144xi8> -> tensor<4x144xi8>
  %4 = zero.pack_slices %a slices <dim = 0, factors = [4], chunk = [0]> into %g
      : tensor<8x64xbf16> into tensor<4x2x64xbf16> -> tensor<4x2x64xbf16>
  return %0, %2, %3, %4 : tensor<4x144xi8>, tensor<4x272xi8>, tensor<4x144xi8>, tensor<4x2x64xbf16>
}

// CHECK: func.func private @zero_quantize(%arg0: tensor<8x64xbf16>) -> tensor<4x144xi8>
// CHECK: func.func private @[[OTHER]](%arg0: tensor<16x64xbf16>) -> tensor<4x272xi8>
// CHECK-NOT: func.func
