// What `zero-defer-starts` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-defer-starts --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"gpu" = 2>
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e :
        tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
func.func @step(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %r = "sdy.manual_computation"(%x) <{in_shardings =
      #sdy.sharding_per_value<[<@mesh, [{"gpu"} ]>]>, out_shardings =
      #sdy.sharding_per_value<[<@mesh, [{}, {} ]>]>}> ({
  ^bb0(%a: tensor<4xf32>):
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) ->
        tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  }) : (tensor<4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"gpu" = 2>
module @zpp_host {
  func.func @gather(%arg0: tensor<4xf32>) -> tensor<2x4xf32> {
    %0 = tensor.empty() : tensor<2x4xf32>
    %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0 :
        tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %1 : tensor<2x4xf32>
  }
}
func.func @step(%arg0: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = "sdy.manual_computation"(%arg0) <{in_shardings =
      #sdy.sharding_per_value<[<@mesh, [{"gpu"} ]>]>, out_shardings =
      #sdy.sharding_per_value<[<@mesh, [{}, {} ]>]>}> ({
  ^bb0(%arg1: tensor<4xf32>):
    %outputs = zero.start @zpp_host::@gather(%arg1) {deferrable} :
        (tensor<4xf32>) -> tensor<2x4xf32>
    %outputs_0 = zero.wait %outputs from(%arg1 : tensor<4xf32>) :
        tensor<2x4xf32>
    sdy.return %outputs_0 : tensor<2x4xf32>
  }) : (tensor<4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
