// A weight to which zero is added is as it came: optax.set_to_zero, in apply_if_finite
// and where bf16 is cast to f32 for it.
// RUN: zpp-opt %s --zero-partition-within-node=between-steps=frozen --zero-keep-frozen --remarks-filter=none | FileCheck %s
// CHECK: zpp.state = [{arguments = array<i64: 0>, kind = "frozen", results = array<i64: 0>, type = tensor<32768xbf16>}, {arguments = array<i64: 1>, kind = "frozen", results = array<i64: 1>, type = tensor<32768xbf16>}]

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// To the last one, something else is added where the condition does not hold.
func.func private @where(%c: tensor<i1>, %a: tensor<32x64xf32>, %b: tensor<32x64xf32>) -> tensor<32x64xf32> {
  %0 = stablehlo.select %c, %a, %b : tensor<i1>, tensor<32x64xf32>
  return %0 : tensor<32x64xf32>
}
func.func public @main(%cast: tensor<256x64xbf16>, %frozen: tensor<256x64xbf16>, %moved: tensor<256x64xbf16>, %finite: tensor<i1>) -> (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<256x64xbf16>) {
  %0:4 = sdy.manual_computation(%cast, %frozen, %moved, %finite) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, []>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{}, {}]>] manual_axes={"node", "gpu"} (%a: tensor<32x64xbf16>, %b: tensor<32x64xbf16>, %c: tensor<32x64xbf16>, %is: tensor<i1>) {
    %1 = zero.from_local %a : tensor<32x64xbf16> to !primary
    %2 = zero.all_gather %1 along ["node", "gpu"] : !primary to !whole
    %3 = zero.to_local %2 : !whole to tensor<256x64xbf16>
    %4 = zero.from_local %b : tensor<32x64xbf16> to !primary
    %5 = zero.all_gather %4 along ["node", "gpu"] : !primary to !whole
    %6 = zero.to_local %5 : !whole to tensor<256x64xbf16>
    %7 = zero.from_local %c : tensor<32x64xbf16> to !primary
    %8 = zero.all_gather %7 along ["node", "gpu"] : !primary to !whole
    %9 = zero.to_local %8 : !whole to tensor<256x64xbf16>
    %10 = stablehlo.add %3, %6 : tensor<256x64xbf16>
    %11 = stablehlo.add %10, %9 : tensor<256x64xbf16>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<32x64xf32>
    %update = func.call @where(%is, %zeros, %zeros) : (tensor<i1>, tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x64xf32>
    %wide = stablehlo.convert %a : (tensor<32x64xbf16>) -> tensor<32x64xf32>
    %sum = stablehlo.add %wide, %update : tensor<32x64xf32>
    %same = stablehlo.convert %sum : (tensor<32x64xf32>) -> tensor<32x64xbf16>
    %branches = "stablehlo.if"(%is) ({
      %negated = stablehlo.negate %zeros : tensor<32x64xf32>
      stablehlo.return %negated : tensor<32x64xf32>
    }, {
      stablehlo.return %zeros : tensor<32x64xf32>
    }) : (tensor<i1>) -> tensor<32x64xf32>
    %narrow = stablehlo.convert %branches : (tensor<32x64xf32>) -> tensor<32x64xbf16>
    %same2 = stablehlo.subtract %b, %narrow : tensor<32x64xbf16>
    %one = stablehlo.constant dense<1.0> : tensor<32x64xf32>
    %some = func.call @where(%is, %zeros, %one) : (tensor<i1>, tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x64xf32>
    %some2 = stablehlo.convert %some : (tensor<32x64xf32>) -> tensor<32x64xbf16>
    %other = stablehlo.add %c, %some2 : tensor<32x64xbf16>
    sdy.return %same, %same2, %other, %11 : tensor<32x64xbf16>, tensor<32x64xbf16>, tensor<32x64xbf16>, tensor<256x64xbf16>
  } : (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<i1>) -> (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<256x64xbf16>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<256x64xbf16>
}
