// RUN: zpp-opt %s --zero-import-collectives --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-import-collectives --zero-import-collectives \
// RUN:   --split-input-file --verify-diagnostics | FileCheck %s

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @step(%w: tensor<4x64xf32>) -> tensor<4x64xf32> {

  %0 = "stablehlo.convert"(%w) : (tensor<4x64xf32>) -> tensor<4x64xbf16>
  %1 = "stablehlo.all_gather"(%0) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x64xbf16>) -> tensor<32x64xbf16>

  %2 = "stablehlo.convert"(%1) : (tensor<32x64xbf16>) -> tensor<32x64xf32>

  %3 = "stablehlo.reduce_scatter"(%2) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%add) : (tensor<f32>) -> ()
  }) {mhlo.mark} : (tensor<32x64xf32>) -> tensor<4x64xf32>

  return %3 : tensor<4x64xf32>
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @groups(%w: tensor<4x8xf32>) {

  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>

  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[3, 7], [0, 4], [2, 6], [1, 5]]> : tensor<4x2xi64>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>

  %2 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 4, 1, 5, 2, 6, 3, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>

  %3 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1], [2, 3], [4, 5], [6, 7]]> : tensor<4x2xi64>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>

  %4 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "gpu", sub_axis_info = (1)2>]>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>

  %5 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu", sub_axis_info = (2)2>]>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>

  %6 = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<4x32xf32>
  return
}

// -----

module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
  "sdy.mesh"() <{mesh = #sdy.mesh<["data"=8]>, sym_name = "mesh"}> : () -> ()
  "sdy.mesh"() <{mesh = #sdy.mesh<["data"=8], device_ids=[0, 4, 1, 5, 2, 6, 3, 7]>, sym_name = "crossed"}> : () -> ()

  func.func @one_axis(%w: tensor<4xf16>) {

    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "data">]>}> : (tensor<4xf16>) -> tensor<32xf16>

    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @crossed, axes = [#stablehlo.axis_ref<name = "data">]>}> : (tensor<4xf16>) -> tensor<32xf16>

    %2 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "data", sub_axis_info = (4)2>]>}> : (tensor<4xf16>) -> tensor<8xf16>
    return
  }
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["rack"=2, "node"=2, "tensor"=2, "gpu"=3]>, sym_name = "mesh"}> : () -> ()

func.func @tiers(%w: tensor<5xbf16>) -> tensor<60xbf16> {

  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "rack">, #stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<5xbf16>) -> tensor<60xbf16>
  return %0 : tensor<60xbf16>
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=1, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @one_node(%w: tensor<4xf32>) {

  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xf32>) -> tensor<16xf32>

  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">]>}> : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @provenance(%w: tensor<8x8xf32>, %v: tensor<2xbf16>, %u: tensor<3xbf16>, %i: tensor<i32>) {
  %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %zero = "stablehlo.constant"() <{value = dense<0.0> : tensor<bf16>}> : () -> tensor<bf16>
  %0:2 = "stablehlo.optimization_barrier"(%v, %w) : (tensor<2xbf16>, tensor<8x8xf32>) -> (tensor<2xbf16>, tensor<8x8xf32>)

  %1 = "stablehlo.transpose"(%0#1) <{permutation = array<i64: 1, 0>}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<8x8xf32>) -> tensor<64x8xf32>

  %3 = "stablehlo.slice"(%w) <{limit_indices = array<i64: 4, 8>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 1>}> : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %4 = "stablehlo.all_gather"(%3) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>

  %5 = "stablehlo.slice"(%w) <{limit_indices = array<i64: 8, 8>, start_indices = array<i64: 4, 0>, strides = array<i64: 1, 1>}> : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %6 = "stablehlo.all_gather"(%5) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>

  %7 = "stablehlo.slice"(%0#1) <{limit_indices = array<i64: 4, 8>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 1>}> : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %8 = "stablehlo.all_gather"(%7) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>

  %9 = "stablehlo.dynamic_slice"(%w, %i, %c0) <{slice_sizes = array<i64: 1, 8>}> : (tensor<8x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
  %10 = "stablehlo.all_gather"(%9) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>

  %11 = "stablehlo.dynamic_slice"(%w, %c0, %c0) <{slice_sizes = array<i64: 1, 8>}> : (tensor<8x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
  %12 = "stablehlo.all_gather"(%11) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>

  %13 = "stablehlo.concatenate"(%v, %u) <{dimension = 0 : i64}> : (tensor<2xbf16>, tensor<3xbf16>) -> tensor<5xbf16>
  %14 = "stablehlo.all_gather"(%13) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<5xbf16>) -> tensor<40xbf16>

  %15 = "stablehlo.concatenate"(%v, %v) <{dimension = 0 : i64}> : (tensor<2xbf16>, tensor<2xbf16>) -> tensor<4xbf16>
  %16 = "stablehlo.all_gather"(%15) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xbf16>) -> tensor<32xbf16>

  %17 = "stablehlo.pad"(%u, %zero) <{edge_padding_high = array<i64: 1>, edge_padding_low = array<i64: 0>, interior_padding = array<i64: 0>}> : (tensor<3xbf16>, tensor<bf16>) -> tensor<4xbf16>
  %18 = "stablehlo.all_gather"(%17) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xbf16>) -> tensor<32xbf16>

  %new = "stablehlo.broadcast_in_dim"(%u) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xbf16>) -> tensor<1x3xbf16>
  %stacked = "stablehlo.all_gather"(%new) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x3xbf16>) -> tensor<8x3xbf16>

  %more = "stablehlo.broadcast_in_dim"(%u) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xbf16>) -> tensor<2x3xbf16>

  %copies = "stablehlo.all_gather"(%more) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x3xbf16>) -> tensor<16x3xbf16>

  %19 = "stablehlo.add"(%v, %v) : (tensor<2xbf16>, tensor<2xbf16>) -> tensor<2xbf16>
  %20 = "stablehlo.concatenate"(%v, %19) <{dimension = 0 : i64}> : (tensor<2xbf16>, tensor<2xbf16>) -> tensor<4xbf16>

  %21 = "stablehlo.all_gather"(%20) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xbf16>) -> tensor<32xbf16>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @others(%w: tensor<4x8xf32>, %i: tensor<4xi32>, %d: tensor<?xf32>, %x: tensor<4x8xf64>) {

  %0 = "stablehlo.all_gather"(%i) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xi32>) -> tensor<32xi32>

  %1 = "stablehlo.all_gather"(%d) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<?xf32>) -> tensor<?xf32>

  %2 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf64>) -> tensor<32x8xf64>

  %3:2 = "stablehlo.all_gather"(%w, %w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<32x8xf32>, tensor<32x8xf32>)

  %4 = "stablehlo.all_reduce"(%w) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%add) : (tensor<f32>) -> ()
  }) : (tensor<4x8xf32>) -> tensor<4x8xf32>

  %5 = "stablehlo.collective_permute"(%w) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>

  %6 = "stablehlo.all_to_all"(%w) <{concat_dimension = 1 : i64, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 0 : i64}> : (tensor<4x8xf32>) -> tensor<1x32xf32>

  %7 = "stablehlo.collective_broadcast"(%w) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>

  %8 = "stablehlo.all_to_all"(%w) <{concat_dimension = 1 : i64, replica_groups = dense<[[0, 3, 2, 1], [4, 5, 6, 7]]> : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 0 : i64}> : (tensor<4x8xf32>) -> tensor<1x32xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @scatters(%w: tensor<4x8xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>

  %1 = "stablehlo.convert"(%0) : (tensor<32x8xf32>) -> tensor<32x8xbf16>
  %2 = "stablehlo.reduce_scatter"(%1) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %add = "stablehlo.add"(%a, %b) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
    "stablehlo.return"(%add) : (tensor<bf16>) -> ()
  }) : (tensor<32x8xbf16>) -> tensor<4x8xbf16>

  %named = "stablehlo.reduce_scatter"(%1) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %add = "stablehlo.add"(%a, %b) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
    %constrained = "sdy.sharding_constraint"(%add) <{sharding = #sdy.sharding<@mesh, []>}> : (tensor<bf16>) -> tensor<bf16>
    "stablehlo.return"(%constrained) : (tensor<bf16>) -> ()
  }) : (tensor<32x8xbf16>) -> tensor<4x8xbf16>

  %3 = "stablehlo.reduce_scatter"(%0) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %max = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%max) : (tensor<f32>) -> ()
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>

  %4 = "stablehlo.reduce_scatter"(%0) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %half = "stablehlo.constant"() <{value = dense<0.5> : tensor<f32>}> : () -> tensor<f32>
    %sum = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %mean = "stablehlo.multiply"(%sum, %half) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%mean) : (tensor<f32>) -> ()
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>

  %5 = "stablehlo.reduce_scatter"(%0) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %twice = "stablehlo.add"(%a, %a) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%twice) : (tensor<f32>) -> ()
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>

  %6 = "stablehlo.reduce_scatter"(%0) <{scatter_dimension = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%add) : (tensor<f32>) -> ()
  }) : (tensor<32x8xf32>) -> tensor<32x1xf32>

  %7 = "stablehlo.reduce_scatter"(%0) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 4, 1, 5, 2, 6, 3, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%add) : (tensor<f32>) -> ()
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %8 = "stablehlo.convert"(%0) : (tensor<32x8xf32>) -> tensor<32x8xi32>

  %9 = "stablehlo.reduce_scatter"(%8) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %add = "stablehlo.add"(%a, %b) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%add) : (tensor<i32>) -> ()
  }) : (tensor<32x8xi32>) -> tensor<4x8xi32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @layers(%w: tensor<4x8xf32>, %v: tensor<4x8xf32>) -> (tensor<32x8xf32>, tensor<32x8xf32>) {

  %0 = call @layer(%w) : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %1 = call @layer(%v) : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %2 = call @activate(%1) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %3 = call @first_row(%v) : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %4 = "stablehlo.all_gather"(%3) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  return %0, %2 : tensor<32x8xf32>, tensor<32x8xf32>
}

func.func private @layer(%w: tensor<4x8xf32>) -> tensor<32x8xf32> {
  %0 = func.call @gather(%w) : (tensor<4x8xf32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}
func.func private @gather(%w: tensor<4x8xf32>) -> tensor<32x8xf32> {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}

func.func private @activate(%x: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %0 = "stablehlo.tanh"(%x) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}

func.func private @first_row(%w: tensor<4x8xf32>) -> tensor<1x8xf32> {
  %0 = "stablehlo.slice"(%w) <{limit_indices = array<i64: 1, 8>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 1>}> : (tensor<4x8xf32>) -> tensor<1x8xf32>
  return %0 : tensor<1x8xf32>
}

// -----

module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32, zpp.machine = {mesh = "node:2,gpu:4"}} {

  func.func @gspmd(%w: tensor<32x8xf32>) -> tensor<256x8xf32> {

    %0 = "stablehlo.custom_call"(%w) <{call_target_name = "Sharding"}> {mhlo.sharding = "{devices=[8,1]<=[8]}"} : (tensor<32x8xf32>) -> tensor<32x8xf32>
    %1 = "stablehlo.custom_call"(%0) <{call_target_name = "SPMDFullToShardShape"}> {mhlo.sharding = "{manual}"} : (tensor<32x8xf32>) -> tensor<4x8xf32>
    %2 = call @shmap_body(%1) : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %3 = "stablehlo.custom_call"(%2) <{call_target_name = "Sharding"}> {mhlo.sharding = "{manual}"} : (tensor<32x8xf32>) -> tensor<32x8xf32>
    %4 = "stablehlo.custom_call"(%3) <{call_target_name = "SPMDShardToFullShape"}> {mhlo.sharding = "{devices=[8,1]<=[8]}"} : (tensor<32x8xf32>) -> tensor<256x8xf32>
    return %4 : tensor<256x8xf32>
  }

  func.func private @shmap_body(%w: tensor<4x8xf32>) -> tensor<32x8xf32> {
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    return %0 : tensor<32x8xf32>
  }
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @loops(%w: tensor<4x8xf32>, %stack: tensor<5x4x8xf32>, %n: tensor<i32>) {
  %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
  %c5 = "stablehlo.constant"() <{value = dense<5> : tensor<i32>}> : () -> tensor<i32>
  %0:4 = "stablehlo.while"(%c0, %w, %w, %stack) ({
  ^bb0(%i: tensor<i32>, %same: tensor<4x8xf32>, %changing: tensor<4x8xf32>, %s: tensor<5x4x8xf32>):
    %more = "stablehlo.compare"(%i, %c5) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %same: tensor<4x8xf32>, %changing: tensor<4x8xf32>, %s: tensor<5x4x8xf32>):

    %1 = "stablehlo.all_gather"(%same) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>

    %2 = "stablehlo.all_gather"(%changing) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>

    %3 = "stablehlo.dynamic_slice"(%s, %i, %c0, %c0) <{slice_sizes = array<i64: 1, 4, 8>}> : (tensor<5x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %4 = "stablehlo.reshape"(%3) : (tensor<1x4x8xf32>) -> tensor<4x8xf32>

    %5 = "stablehlo.all_gather"(%4) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %next = "stablehlo.add"(%i, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>

    %6 = "stablehlo.dynamic_slice"(%s, %next, %c0, %c0) <{slice_sizes = array<i64: 1, 4, 8>}> : (tensor<5x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %7 = "stablehlo.reshape"(%6) : (tensor<1x4x8xf32>) -> tensor<4x8xf32>

    %8 = "stablehlo.all_gather"(%7) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %other = "stablehlo.negate"(%changing) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    "stablehlo.return"(%next, %same, %other, %s) : (tensor<i32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<5x4x8xf32>) -> ()
  }) : (tensor<i32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<5x4x8xf32>) -> (tensor<i32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<5x4x8xf32>)

  %9 = "stablehlo.all_gather"(%0#1) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %10 = "stablehlo.while"(%n) ({
  ^bb0(%i: tensor<i32>):
    %more = "stablehlo.compare"(%i, %c5) <{comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>):
    %11 = "stablehlo.dynamic_slice"(%0#3, %i, %c0, %c0) <{slice_sizes = array<i64: 1, 4, 8>}> : (tensor<5x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %12 = "stablehlo.reshape"(%11) : (tensor<1x4x8xf32>) -> tensor<4x8xf32>

    %13 = "stablehlo.all_gather"(%12) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %next = "stablehlo.subtract"(%i, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%next) : (tensor<i32>) -> ()
  }) : (tensor<i32>) -> tensor<i32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @branches(%which: tensor<i32>, %w: tensor<4x8xf32>) -> tensor<32x8xf32> {

  %0 = "stablehlo.case"(%which) ({
    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    "stablehlo.return"(%1) : (tensor<32x8xf32>) -> ()
  }, {
    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    "stablehlo.return"(%1) : (tensor<32x8xf32>) -> ()
  }) : (tensor<i32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}

// -----

module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
  shard.grid @grid(shape = 2x4)

  func.func @shard(%w: tensor<4x8xf32>) -> tensor<4x8xf32> {

    %0 = shard.all_gather %w on @grid grid_axes = [0, 1] gather_axis = 0 : tensor<4x8xf32> -> tensor<32x8xf32>

    %1 = shard.reduce_scatter %0 on @grid grid_axes = [0, 1] reduction = sum scatter_axis = 0 : tensor<32x8xf32> -> tensor<4x8xf32>

    %2 = shard.all_gather %w on @grid grid_axes = [1] gather_axis = 1 : tensor<4x8xf32> -> tensor<4x32xf32>

    %3 = shard.reduce_scatter %0 on @grid grid_axes = [0, 1] reduction = max scatter_axis = 0 : tensor<32x8xf32> -> tensor<4x8xf32>

    %4 = shard.all_reduce %w on @grid grid_axes = [1] : tensor<4x8xf32> -> tensor<4x8xf32>
    return %1 : tensor<4x8xf32>
  }
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @empty(%w: tensor<0x8xf32>) -> tensor<0x8xf32> {

  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<0x8xf32>) -> tensor<0x8xf32>
  return %0 : tensor<0x8xf32>
}
func.func private @dead(%w: tensor<4x8xf32>) -> tensor<32x8xf32> {

  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

func.func @recursive(%w: tensor<4x8xf32>) {
  call @even(%w) : (tensor<4x8xf32>) -> ()
  return
}
func.func private @even(%w: tensor<4x8xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  call @odd(%w) : (tensor<4x8xf32>) -> ()
  return
}
func.func private @odd(%w: tensor<4x8xf32>) {
  call @even(%w) : (tensor<4x8xf32>) -> ()
  return
}

// -----

module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 4 : i32, zpp.machine = {mesh = "node:4,gpu:2"}} {

  func.func @replicas(%w: tensor<4x8xf32>) {

    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>

    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
    return
  }
}
