// What `zero-keep-frozen` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-keep-frozen --remarks-filter=none | diff %t/expected.mlir -

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
    sdy.return %a, %4 : tensor<32x64xbf16>, tensor<256x64xbf16>
  } : (tensor<256x64xbf16>) -> (tensor<256x64xbf16>, tensor<2048x64xbf16>)
  return %0#0, %0#1 : tensor<256x64xbf16>, tensor<2048x64xbf16>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
module attributes {zpp.state = [{arguments = array<i64: 0>, kind = "frozen", results = array<i64: 0>, type = tensor<32768xbf16>}]} {
  sdy.mesh @mesh = <["node"=2, "gpu"=4]>
  func.func public @main(%arg0: tensor<256x64xbf16>, %arg1: tensor<32768xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}) -> (tensor<256x64xbf16>, tensor<2048x64xbf16>, tensor<32768xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}) {
    %0:3 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh, [{"node", "gpu"}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh, [{"node", "gpu"}, {} ]>, <@mesh, [{"node", "gpu"}]>] manual_axes={"node", "gpu"} (%arg2: tensor<32x64xbf16>, %arg3: tensor<4096xbf16>) {
      %1 = stablehlo.reshape %arg3 : (tensor<4096xbf16>) -> tensor<64x64xbf16>
      %2 = zero.from_local %1 : tensor<64x64xbf16> to <256x64xbf16, dim 0 = (2, "gpu") on #mesh>
      %3 = zero.all_gather %2 along ["gpu"] : <256x64xbf16, dim 0 = (2, "gpu") on #mesh> to <256x64xbf16, dim 0 = (2, 4) on #mesh>
      %4 = zero.to_local %3 : <256x64xbf16, dim 0 = (2, 4) on #mesh> to tensor<256x64xbf16>
      %5 = stablehlo.reshape %1 : (tensor<64x64xbf16>) -> tensor<4096xbf16>
      sdy.return %arg2, %4, %5 : tensor<32x64xbf16>, tensor<256x64xbf16>, tensor<4096xbf16>
    } : (tensor<256x64xbf16>, tensor<32768xbf16>) -> (tensor<256x64xbf16>, tensor<2048x64xbf16>, tensor<32768xbf16>)
    return %0#0, %0#1, %0#2 : tensor<256x64xbf16>, tensor<2048x64xbf16>, tensor<32768xbf16>
  }
}
