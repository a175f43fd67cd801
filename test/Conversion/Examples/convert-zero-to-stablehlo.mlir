// What `convert-zero-to-stablehlo` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --convert-zero-to-stablehlo --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%x: tensor<4x272xi8>) -> tensor<4x272xi8> {
  %e = tensor.empty() : tensor<4x272xi8>
  %0 = zero.all_to_all %x along ["gpu"] on #mesh into %e
      : tensor<4x272xi8> into tensor<4x272xi8> -> tensor<4x272xi8>
  return %0 : tensor<4x272xi8>
}

//--- output.mlir
func.func @step(%arg0: tensor<4x272xi8>) -> tensor<4x272xi8> {
  %0 = "stablehlo.all_to_all"(%arg0)
      <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
      concat_dimension = 0 : i64, replica_groups =
      dense<[[0, 1, 2, 3], [4, 5, 6, 7]]>
      : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 0
      : i64}> : (tensor<4x272xi8>) -> tensor<4x272xi8>
  return %0 : tensor<4x272xi8>
}
