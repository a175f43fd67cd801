// RUN: zpp-opt %s --convert-zero-to-xla-ffi | FileCheck %s
// RUN: zpp-opt %s --convert-zero-to-xla-ffi --convert-zero-to-xla-ffi | FileCheck %s
// RUN: zpp-opt %s --convert-zero-to-xla-ffi=bundle=1234 | FileCheck %s --check-prefix=BUNDLE

#mesh = #zero.mesh<"gpu" = 2>

func.func @order(%x: tensor<4xf32>, %t: tensor<8x3xbf16>, %z: tensor<f32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<8x3xbf16>, tensor<f32>) {

  %y, %u = zero.start @zpp_host::@gather(%x) ties(%t : tensor<8x3xbf16>) {origins = [{id = 3}]} : (tensor<4xf32>) -> tensor<2x4xf32>

  %y2 = zero.start @zpp_host::@gather(%x) {deferrable} : (tensor<4xf32>) -> tensor<2x4xf32>

  %w, %v = zero.wait %y from(%x : tensor<4xf32>) ties(%z : tensor<f32>) : tensor<2x4xf32>

  %w2 = zero.wait %y2 from(%x : tensor<4xf32>) : tensor<2x4xf32>

  return %w, %w2, %u, %v : tensor<2x4xf32>, tensor<2x4xf32>, tensor<8x3xbf16>, tensor<f32>
}

func.func @workspace(%x: tensor<4xf32>) {

  %y = zero.start @zpp_host::@gather_buffers(%x) : (tensor<4xf32>) -> tensor<2x4xf32>

  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<2x4xf32>
  return
}

func.func @loop(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2x4xf32>) {

  %r = "stablehlo.while"(%x) <{a = 1 : i64}> ({

  ^bb0(%a: tensor<4xf32>):
    %true = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>
    "stablehlo.return"(%true) : (tensor<i1>) -> ()
  }, {

  ^bb0(%a: tensor<4xf32>):

    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>

    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    %s = "stablehlo.first"(%w) : (tensor<2x4xf32>) -> tensor<4xf32>

    "stablehlo.return"(%s) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>

  %y = zero.start @zpp_host::@gather(%x) : (tensor<4xf32>) -> tensor<2x4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<2x4xf32>

  return %r, %w : tensor<4xf32>, tensor<2x4xf32>
}

func.func @manual(%x: tensor<4xf32>) -> tensor<2x4xf32> {

  %r = "sdy.manual_computation"(%x) ({
  ^bb0(%a: tensor<4xf32>):

    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>

    "sdy.return"(%w) : (tensor<2x4xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
  func.func @gather_buffers(%x: memref<4xf32>, %y: memref<2x4xf32>, %workspace: memref<64xi8>) {
    zero.all_gather_chunks %x along ["gpu"] on #mesh into %y : memref<4xf32> into memref<2x4xf32>
    return
  }
}
