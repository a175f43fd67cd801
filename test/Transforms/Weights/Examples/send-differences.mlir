// What `zero-send-differences` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-send-differences=block=32 --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!node = !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func public @main(%w: tensor<256x64xbf16>) -> (tensor<256x64xbf16>,
    tensor<2048x64xbf16>) {
  %0:2 = sdy.manual_computation(%w) in_shardings=[<@mesh, [{"node", "gpu"}, {} ]>] out_shardings=[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh, [{"node", "gpu"}, {} ]>] manual_axes={"node", "gpu"} (%a: tensor<32x64xbf16>) {
    %1 = zero.from_local %a : tensor<32x64xbf16> to !primary
    %2 = zero.all_gather %1 along ["node"] {zpp.keep} : !primary to !node
    %3 = zero.all_gather %2 along ["gpu"] : !node to !whole
    %4 = zero.to_local %3 : !whole to tensor<256x64xbf16>
    %b = stablehlo.add %a, %a : tensor<32x64xbf16>
    sdy.return %b, %4 : tensor<32x64xbf16>, tensor<256x64xbf16>
  } : (tensor<256x64xbf16>) -> (tensor<256x64xbf16>, tensor<2048x64xbf16>)
  return %0#0, %0#1 : tensor<256x64xbf16>, tensor<2048x64xbf16>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
module attributes {zpp.state = [{dim = 0 : i64, factors = array<i64: 2, 4, 4, 1>, kind = "own", shape = array<i64: 256, 64>, source = 0 : i64, type = tensor<16384xbf16>}, {dim = 0 : i64, factors = array<i64: 2, 0, 4, 1>, kind = "held", shape = array<i64: 256, 64>, source = 0 : i64, type = tensor<32768xbf16>}]} {
  sdy.mesh @mesh = <["node"=2, "gpu"=4]>
  func.func public @main(%arg0: tensor<256x64xbf16>, %arg1: tensor<16384xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}, %arg2: tensor<32768xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}) -> (tensor<256x64xbf16>, tensor<2048x64xbf16>, tensor<16384xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}, tensor<32768xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}) {
    %0:4 = sdy.manual_computation(%arg0, %arg1, %arg2) in_shardings=[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh, [{"node", "gpu"}]>, <@mesh, [{"node", "gpu"}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh, [{"node", "gpu"}, {} ]>, <@mesh, [{"node", "gpu"}]>, <@mesh, [{"node", "gpu"}]>] manual_axes={"node", "gpu"} (%arg3: tensor<32x64xbf16>, %arg4: tensor<2048xbf16>, %arg5: tensor<4096xbf16>) {
      %1 = stablehlo.reshape %arg4 : (tensor<2048xbf16>) -> tensor<32x64xbf16>
      %2 = stablehlo.reshape %arg5 : (tensor<4096xbf16>) -> tensor<64x64xbf16>
      %3 = zero.from_local %arg3 : tensor<32x64xbf16> to <256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
      %4 = zero.from_local %1 : tensor<32x64xbf16> to <256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
      %5 = zero.encode %3 minus %4 : <256x64xbf16, dim 0 = ("node", "gpu") on #mesh>  to <256x64xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i4, block = 32>>
      %6 = zero.all_gather %5 along ["node"] : <256x64xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i4, block = 32>> to <256x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i4, block = 32>>
      %7 = zero.from_local %2 : tensor<64x64xbf16> to <256x64xbf16, dim 0 = (2, "gpu") on #mesh>
      %8 = zero.decode %6 plus %7 : <256x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i4, block = 32>> to <256x64xbf16, dim 0 = (2, "gpu") on #mesh> 
      %9 = zero.to_local %8 : <256x64xbf16, dim 0 = (2, "gpu") on #mesh> to tensor<64x64xbf16>
      %10 = zero.decode %5 plus %4 : <256x64xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i4, block = 32>> to <256x64xbf16, dim 0 = ("node", "gpu") on #mesh> 
      %11 = zero.to_local %10 : <256x64xbf16, dim 0 = ("node", "gpu") on #mesh> to tensor<32x64xbf16>
      %12 = zero.from_local %9 : tensor<64x64xbf16> to <256x64xbf16, dim 0 = (2, "gpu") on #mesh>
      %13 = zero.all_gather %12 along ["gpu"] : <256x64xbf16, dim 0 = (2, "gpu") on #mesh> to <256x64xbf16, dim 0 = (2, 4) on #mesh>
      %14 = zero.to_local %13 : <256x64xbf16, dim 0 = (2, 4) on #mesh> to tensor<256x64xbf16>
      %15 = stablehlo.add %arg3, %arg3 : tensor<32x64xbf16>
      %16 = stablehlo.reshape %11 : (tensor<32x64xbf16>) -> tensor<2048xbf16>
      %17 = stablehlo.reshape %9 : (tensor<64x64xbf16>) -> tensor<4096xbf16>
      sdy.return %15, %14, %16, %17 : tensor<32x64xbf16>, tensor<256x64xbf16>, tensor<2048xbf16>, tensor<4096xbf16>
    } : (tensor<256x64xbf16>, tensor<16384xbf16>, tensor<32768xbf16>) -> (tensor<256x64xbf16>, tensor<2048x64xbf16>, tensor<16384xbf16>, tensor<32768xbf16>)
    return %0#0, %0#1, %0#2, %0#3 : tensor<256x64xbf16>, tensor<2048x64xbf16>, tensor<16384xbf16>, tensor<32768xbf16>
  }
}
