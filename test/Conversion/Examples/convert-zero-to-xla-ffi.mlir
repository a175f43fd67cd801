// What `convert-zero-to-xla-ffi` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --convert-zero-to-xla-ffi --remarks-filter=none | diff %t/expected.mlir -

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
  %0 = zero.start @zpp_host::@gather(%x) : (tensor<4xf32>) ->
      tensor<2x4xf32>
  %1 = zero.wait %0 from(%x : tensor<4xf32>) : tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"gpu" = 2>
module {
  module @zpp_host {
    func.func @gather(%arg0: tensor<4xf32>) -> tensor<2x4xf32> {
      %0 = tensor.empty() : tensor<2x4xf32>
      %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0 : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
      return %1 : tensor<2x4xf32>
    }
  }
  func.func @step(%arg0: tensor<4xf32>) -> tensor<2x4xf32> {
    %0 = stablehlo.constant dense<0> : tensor<1xi8>
    %1:2 = stablehlo.custom_call @zpp.start(%arg0, %0) {api_version = 4 : i32, backend_config = {bundle = "", deferrable = false, function = "gather", inputs = 1 : i64, outputs = 1 : i64, workspace = 0 : i64}, operand_layouts = [dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 1, operand_tuple_indices = []>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]} : (tensor<4xf32>, tensor<1xi8>) -> (tensor<2x4xf32>, tensor<1xi8>)
    %2:2 = stablehlo.custom_call @zpp.wait(%arg0, %1#0, %1#1) {api_version = 4 : i32, backend_config = {bundle = "", function = "gather", inputs = 1 : i64, outputs = 1 : i64, workspace = 0 : i64}, operand_layouts = [dense<0> : tensor<1xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 1, operand_tuple_indices = []>, #stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 2, operand_tuple_indices = []>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]} : (tensor<4xf32>, tensor<2x4xf32>, tensor<1xi8>) -> (tensor<2x4xf32>, tensor<1xi8>)
    return %2#0 : tensor<2x4xf32>
  }
}
