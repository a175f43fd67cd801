// The manual computation of a shard_map as XLA's HLO has it where Shardy partitions: a
// call between two custom calls, with shardings as text.
// RUN: zpp-opt %s --zero-import-collectives=mesh=node:2,gpu:4 --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-report="mesh=node:2,gpu:4 format=json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=REPORT
// What is put together otherwise stays as it is.
// RUN: sed 's/LocalToGlobalShape/SomethingElse/' %s | zpp-opt --zero-import-collectives=mesh=node:2,gpu:4 --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=OTHER
// OTHER: stablehlo.custom_call @xla.sdy.GlobalToLocalShape(
// OTHER-NOT: sdy.manual_computation

// REPORT: "role": "weight"
// REPORT: "role": "gradient"

// CHECK: sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK: func.func {{.*}}@main({{.*}}sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}, {}]>
// CHECK: %[[OUT:.*]] = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>] manual_axes={"node", "gpu"}
// CHECK: zero.all_gather {{.*}}role = "weight"
// CHECK: zero.reduce_scatter {{.*}}role = "gradient"
// CHECK: sdy.return
// CHECK: return %[[OUT]] : tensor<512x256xf32>
// CHECK-NOT: custom_call

"builtin.module"() <{sym_name = "jit_local"}> ({
  "func.func"() <{function_type = (tensor<f32>, tensor<f32>) -> tensor<f32>, sym_name = "region_0.1", sym_visibility = "private"}> ({
  ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
    %22 = stablehlo.add %arg6, %arg7 : tensor<f32>
    "func.return"(%22) : (tensor<f32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<64x256xf32>, tensor<8x512xf32>) -> tensor<64x256xf32>, sym_name = "xla.sdy.manual_computation_body.2", sym_visibility = "private"}> ({
  ^bb0(%arg2: tensor<64x256xf32>, %arg3: tensor<8x512xf32>):
    %6 = "stablehlo.all_gather"(%arg2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<64x256xf32>) -> tensor<512x256xf32>
    %7 = stablehlo.dot %arg3, %6, precision = [DEFAULT, DEFAULT] : (tensor<8x512xf32>, tensor<512x256xf32>) -> tensor<8x256xf32>
    %8 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<8x256xf32>
    %10 = stablehlo.multiply %7, %9 : tensor<8x256xf32>
    %11 = stablehlo.constant dense<4.8828125E-4> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [] : (tensor<f32>) -> tensor<8x256xf32>
    %13 = stablehlo.multiply %10, %12 : tensor<8x256xf32>
    %14 = stablehlo.dot_general %13, %arg3, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<8x256xf32>, tensor<8x512xf32>) -> tensor<256x512xf32>
    %15 = stablehlo.transpose %14, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[512,256]{0,1}"} : (tensor<256x512xf32>) -> tensor<512x256xf32>
    %16 = "stablehlo.reduce_scatter"(%15) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
    ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
      %21 = stablehlo.add %arg4, %arg5 : tensor<f32>
      stablehlo.return %21 : tensor<f32>
    }) {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[64,256]{0,1}"} : (tensor<512x256xf32>) -> tensor<64x256xf32>
    %17 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<64x256xf32>
    %19 = stablehlo.multiply %16, %18 {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[64,256]{0,1}"} : tensor<64x256xf32>
    %20 = stablehlo.subtract %arg2, %19 : tensor<64x256xf32>
    "func.return"(%20) : (tensor<64x256xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{\22node\22, \22gpu\22}, {}]>"}, mhlo.sharding = "{devices=[8,1]<=[8]}"}, {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{\22node\22, \22gpu\22}, {}]>"}, mhlo.sharding = "{devices=[8,1]<=[8]}"}], function_type = (tensor<512x256xf32>, tensor<64x512xf32>) -> tensor<512x256xf32>, res_attrs = [{mhlo.sharding = "{devices=[8,1]<=[8]}"}], sym_name = "main"}> ({
  ^bb0(%arg0: tensor<512x256xf32>, %arg1: tensor<64x512xf32>):
    %0 = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%arg0, %arg1) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {xla.sdy.in_shardings = "#sdy.sharding_per_value<[<@mesh, [{\22node\22, \22gpu\22}, {}]>, <@mesh, [{\22node\22, \22gpu\22}, {}]>]>", xla.sdy.manual_axes = "#sdy<manual_axes{\22node\22, \22gpu\22}>"}, xla_shape = "(f32[64,256]{1,0}, f32[8,512]{1,0})"} : (tensor<512x256xf32>, tensor<64x512xf32>) -> tuple<tensor<64x256xf32>, tensor<8x512xf32>>
    %1 = stablehlo.get_tuple_element %0[0] : (tuple<tensor<64x256xf32>, tensor<8x512xf32>>) -> tensor<64x256xf32>
    %2 = stablehlo.get_tuple_element %0[1] : (tuple<tensor<64x256xf32>, tensor<8x512xf32>>) -> tensor<8x512xf32>
    %3 = "func.call"(%1, %2) <{callee = @xla.sdy.manual_computation_body.2}> {mhlo.frontend_attributes = {inlineable = "false"}} : (tensor<64x256xf32>, tensor<8x512xf32>) -> tensor<64x256xf32>
    %4 = stablehlo.custom_call @xla.sdy.LocalToGlobalShape(%3) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {xla.sdy.manual_axes = "#sdy<manual_axes{\22node\22, \22gpu\22}>", xla.sdy.out_shardings = "#sdy.sharding_per_value<[<@mesh, [{\22node\22, \22gpu\22}, {}]>]>"}} : (tensor<64x256xf32>) -> tensor<512x256xf32>
    %5 = stablehlo.custom_call @xla.sdy.FuncResultSharding(%4) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{\22node\22, \22gpu\22}, {}]>]>"}} : (tensor<512x256xf32>) -> tensor<512x256xf32>
    "func.return"(%5) : (tensor<512x256xf32>) -> ()
  }) : () -> ()
}) {mhlo.cross_program_prefetches = [], mhlo.frontend_attributes = {xla.sdy.meshes = "{mesh = #sdy.mesh<[\22node\22=2, \22gpu\22=4]>}"}, mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} : () -> ()
