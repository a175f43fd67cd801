// What `zero-coalesce-collectives` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-coalesce-collectives --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%x: tensor<4x64xi8>, %y: tensor<4x32xi8>)
    -> (tensor<4x64xi8>, tensor<4x32xi8>) {
  %e = tensor.empty() : tensor<4x64xi8>
  %0 = zero.all_to_all %x along ["gpu"] on #mesh
      into %e {zpp.origin = {id = 0}} : tensor<4x64xi8>
      into tensor<4x64xi8> -> tensor<4x64xi8>
  %f = tensor.empty() : tensor<4x32xi8>
  %1 = zero.all_to_all %y along ["gpu"] on #mesh
      into %f {zpp.origin = {id = 1}} : tensor<4x32xi8>
      into tensor<4x32xi8> -> tensor<4x32xi8>
  return %0, %1 : tensor<4x64xi8>, tensor<4x32xi8>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<4x64xi8>, %arg1: tensor<4x32xi8>)
    -> (tensor<4x64xi8>, tensor<4x32xi8>) {
  %concat = tensor.concat dim(1) %arg0, %arg1
      : (tensor<4x64xi8>, tensor<4x32xi8>) -> tensor<4x96xi8>
  %0 = tensor.empty() : tensor<4x96xi8>
  %1 = zero.all_to_all %concat along ["gpu"] on #mesh
      into %0 {zpp.origin = [{before = [], group = "", id = 0 : i64,
      kind = "", model_bytes = 0 : i64, phase = "", role = "", share = 64
      : i64, trips = 0 : i64, weight = 0
      : i64}, {before = [], group = "", id = 1
      : i64, kind = "", model_bytes = 0
      : i64, phase = "", role = "", share = 32 : i64, trips = 0
      : i64, weight = 0 : i64} ]} : tensor<4x96xi8> into tensor<4x96xi8> ->
      tensor<4x96xi8>
  %extracted_slice = tensor.extract_slice %1[0, 0] [4, 64] [1, 1]
      : tensor<4x96xi8> to tensor<4x64xi8>
  %extracted_slice_0 = tensor.extract_slice %1[0, 64] [4, 32] [1, 1]
      : tensor<4x96xi8> to tensor<4x32xi8>
  return %extracted_slice, %extracted_slice_0
      : tensor<4x64xi8>, tensor<4x32xi8>
}
