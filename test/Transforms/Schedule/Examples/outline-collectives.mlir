// What `zero-outline-collectives` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-outline-collectives --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%x: tensor<4x272xi8>) -> tensor<4x272xi8> {
  %e = tensor.empty() : tensor<4x272xi8>
  %0 = zero.all_to_all %x along ["gpu"] on #mesh into %e
      : tensor<4x272xi8> into tensor<4x272xi8> -> tensor<4x272xi8>
  return %0 : tensor<4x272xi8>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<4x272xi8>) -> tensor<4x272xi8> {
  %outputs = zero.start @zpp_host::@zpp_collective_0(%arg0)
      {origins = [[]]} : (tensor<4x272xi8>) -> tensor<4x272xi8>
  %outputs_0 = zero.wait %outputs from(%arg0 : tensor<4x272xi8>)
      : tensor<4x272xi8>
  return %outputs_0 : tensor<4x272xi8>
}
module @zpp_host {
  func.func @zpp_collective_0(%arg0: tensor<4x272xi8>)
      -> tensor<4x272xi8> {
    %0 = tensor.empty() : tensor<4x272xi8>
    %1 = zero.all_to_all %arg0 along ["gpu"] on #mesh into %0
        : tensor<4x272xi8> into tensor<4x272xi8> -> tensor<4x272xi8>
    return %1 : tensor<4x272xi8>
  }
}
