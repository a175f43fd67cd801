// Two tensors that share the buffer of an exchange.
func.func @chunks(%x: tensor<4x40xf32>, %y: tensor<4x24xf32>) -> tensor<4x112xi8> {
  %0 = tensor.empty() : tensor<4x48xi8>
  %1 = zero.quantize %y quant <i8, block = 32> into %0
      : tensor<4x24xf32> into tensor<4x48xi8> -> tensor<4x48xi8>
  %2 = tensor.empty() : tensor<4x64xi8>
  %3 = zero.quantize %x quant <i8, block = 64> into %2
      : tensor<4x40xf32> into tensor<4x64xi8> -> tensor<4x64xi8>
  %4 = tensor.concat dim(1) %3, %1
      : (tensor<4x64xi8>, tensor<4x48xi8>) -> tensor<4x112xi8>
  return %4 : tensor<4x112xi8>
}
