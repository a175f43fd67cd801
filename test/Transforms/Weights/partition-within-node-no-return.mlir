// UNSUPPORTED: registered-ops
// A manual computation that does not end in a return is not one that can be
// extended by what its gathers leave to others.
// RUN: zpp-opt %s --zero-partition-within-node 2>&1 | FileCheck %s

// CHECK-COUNT-2: left alone
// CHECK-NOT: zpp.keep

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
"builtin.module"() ({
  sdy.mesh @mesh = <["node"=2, "gpu"=4]>
  "func.func"() <{function_type = (tensor<256x64xf32>, tensor<8xf32>) -> (tensor<2048x64xbf16>, tensor<2048x64xbf16>), sym_name = "two_computations"}> ({
  ^bb0(%arg3: tensor<256x64xf32>, %arg4: tensor<8xf32>):
    %10 = sdy.manual_computation(%arg3) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>] manual_axes={"node", "gpu"} (%arg7: tensor<32x64xf32>) {
      %18 = stablehlo.convert %arg7 : (tensor<32x64xf32>) -> tensor<32x64xbf16>
      %19 = "zero.from_local"(%18) : (tensor<32x64xbf16>) -> !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
      %20 = "zero.all_gather"(%19) <{along = [#zero.axis<"node">, #zero.axis<"gpu">]}> : (!zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>) -> !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
      %21 = "zero.to_local"(%20) : (!zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>) -> tensor<256x64xbf16>
    } : (tensor<256x64xf32>) -> tensor<2048x64xbf16>
    %11 = sdy.manual_computation(%arg3, %arg4) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>] manual_axes={"node", "gpu"} (%arg5: tensor<32x64xf32>, %arg6: tensor<1xf32>) {
      %12:2 = stablehlo.optimization_barrier %arg5, %arg6 : tensor<32x64xf32>, tensor<1xf32>
      %13 = stablehlo.convert %12#0 : (tensor<32x64xf32>) -> tensor<32x64xbf16>
      %14 = "zero.from_local"(%13) : (tensor<32x64xbf16>) -> !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
      %15 = "zero.all_gather"(%14) <{along = [#zero.axis<"node">, #zero.axis<"gpu">]}> : (!zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>) -> !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
      %16 = "zero.to_local"(%15) : (!zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>) -> tensor<256x64xbf16>
      %17 = stablehlo.custom_call @read(%16, %12#1) : (tensor<256x64xbf16>, tensor<1xf32>) -> tensor<256x64xbf16>
      sdy.return %17 : tensor<256x64xbf16>
    } : (tensor<256x64xf32>, tensor<8xf32>) -> tensor<2048x64xbf16>
    "func.return"(%10, %11) : (tensor<2048x64xbf16>, tensor<2048x64xbf16>) -> ()
  }) : () -> ()
}) : () -> ()
