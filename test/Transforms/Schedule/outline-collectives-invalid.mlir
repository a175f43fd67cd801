// RUN: zpp-opt %s --zero-outline-collectives --verify-diagnostics

#mesh = #zero.mesh<"gpu" = 2>

// expected-error@+1 {{expected @zpp_host to be a module of host functions, but got 'func.func'}}
func.func @zpp_host(%x: tensor<32xf32>) -> tensor<2x32xf32> {
  %e = tensor.empty() : tensor<2x32xf32>
  %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  return %0 : tensor<2x32xf32>
}
