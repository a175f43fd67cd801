// RUN: zpp-opt %s --zero-import-compiled=mesh=node:2,gpu:2 --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-import-compiled=mesh=node:2,gpu:2 --split-input-file \
// RUN:   2>/dev/null > %t.once
// RUN: zpp-opt %s --zero-import-compiled=mesh=node:2,gpu:2 --split-input-file \
// RUN:   2>/dev/null | zpp-opt --zero-import-compiled=mesh=node:2,gpu:2 \
// RUN:   --split-input-file | diff %t.once -
// RUN: not zpp-opt %s --zero-import-compiled=mesh=node --split-input-file 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MALFORMED
// RUN: not zpp-opt %s --zero-import-compiled --split-input-file 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MISSING
// RUN: zpp-opt %s --zero-import-compiled=mesh=node:2,gpu:2 \
// RUN:   --zero-import-partitioned --zero-import-collectives=mesh=node:2,gpu:2 \
// RUN:   --split-input-file | FileCheck %s --check-prefix=ROLES

// MALFORMED: error: in mesh 'node': expected NAME:SIZE, but got 'node'
// MISSING: error: in mesh ''

// A loop as HLO has it: its body and the sum of its all-reduce are functions,
// too. Weights are read from a stack, and gradients are written to another.

// CHECK: module attributes {mhlo.is_dynamic = false, mhlo.num_partitions = 4 : i32}
// CHECK-NOT: func.func private @body
// CHECK-NOT: func.func private @sum
// CHECK: func.func private @called
// CHECK-LABEL: func.func @main
// ROLES-LABEL: func.func @main
// ROLES: zero.all_gather
// ROLES-SAME: role = "weight", rule = "R4", trips = 3
// ROLES: zero.reduce_scatter
// ROLES-SAME: role = "gradient", rule = "R9", trips = 3
module attributes {mhlo.is_dynamic = false} {
  func.func private @sum(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %a, %b : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @body(%w: tensor<3x2x8xf32>) -> tensor<3x2x8xf32> {
    %0 = func.call @inner(%w) : (tensor<3x2x8xf32>) -> tensor<3x2x8xf32>
    return %0 : tensor<3x2x8xf32>
  }
  func.func private @inner(%w: tensor<3x2x8xf32>) -> tensor<3x2x8xf32> {
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<3x2x8xf32>) -> tensor<3x8x8xf32>
    %1 = stablehlo.slice %0 [0:3, 0:2, 0:8] : (tensor<3x8x8xf32>) -> tensor<3x2x8xf32>
    return %1 : tensor<3x2x8xf32>
  }
  func.func private @called(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = stablehlo.tanh %x : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
  func.func @main(%w: tensor<3x2x8xf32>, %x: tensor<8x8xf32>) -> (tensor<3x2x8xf32>, tensor<8x8xf32>) {
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %c1 = stablehlo.constant dense<1> : tensor<i32>
    %c2 = stablehlo.constant dense<2> : tensor<i32>
    %c3 = stablehlo.constant dense<3> : tensor<i32>
    %f0 = stablehlo.constant dense<0.0> : tensor<3x2x8xf32>
    %id = stablehlo.partition_id : tensor<ui32>
    %device = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
    %offset = stablehlo.multiply %device, %c2 : tensor<i32>
    %loop:5 = "stablehlo.while"(%c0, %x, %w, %f0, %offset) ({
    ^bb0(%i: tensor<i32>, %y: tensor<8x8xf32>, %ws: tensor<3x2x8xf32>, %gs: tensor<3x2x8xf32>, %at: tensor<i32>):
      %0 = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %0 : tensor<i1>
    }, {
    ^bb0(%i: tensor<i32>, %y: tensor<8x8xf32>, %ws: tensor<3x2x8xf32>, %gs: tensor<3x2x8xf32>, %at: tensor<i32>):
      %next = stablehlo.add %i, %c1 : tensor<i32>
      %row = stablehlo.dynamic_slice %ws, %i, %c0, %c0, sizes = [1, 2, 8] : (tensor<3x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
      %part = stablehlo.reshape %row : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
      %whole = "stablehlo.all_gather"(%part) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<2x8xf32>) -> tensor<8x8xf32>
      %product = stablehlo.dot %y, %whole : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %out = func.call @called(%product) : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %own = stablehlo.dot_general %y, %out, contracting_dims = [0] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %all = "stablehlo.all_reduce"(%own) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %grad = stablehlo.dynamic_slice %all, %at, %c0, sizes = [2, 8] : (tensor<8x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
      %line = stablehlo.reshape %grad : (tensor<2x8xf32>) -> tensor<1x2x8xf32>
      %grads = stablehlo.dynamic_update_slice %gs, %line, %i, %c0, %c0 : (tensor<3x2x8xf32>, tensor<1x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x2x8xf32>
      stablehlo.return %next, %out, %ws, %grads, %at : tensor<i32>, tensor<8x8xf32>, tensor<3x2x8xf32>, tensor<3x2x8xf32>, tensor<i32>
    }) : (tensor<i32>, tensor<8x8xf32>, tensor<3x2x8xf32>, tensor<3x2x8xf32>, tensor<i32>) -> (tensor<i32>, tensor<8x8xf32>, tensor<3x2x8xf32>, tensor<3x2x8xf32>, tensor<i32>)
    %new = stablehlo.subtract %w, %loop#3 : tensor<3x2x8xf32>
    return %new, %loop#1 : tensor<3x2x8xf32>, tensor<8x8xf32>
  }
}

// -----

// The module knows on how many devices it runs.

// CHECK: module attributes {mhlo.is_dynamic = false, mhlo.num_partitions = 4 : i32}
// CHECK: func.func private @kept
module attributes {mhlo.is_dynamic = false, mhlo.num_partitions = 4 : i32} {
  func.func private @kept(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
}

// -----

// It was not HLO, so it is a step of one device.

// CHECK: module {
// CHECK: func.func private @kept
module {
  func.func private @kept(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
}

// -----

// CHECK: module attributes {mhlo.is_dynamic = false} {
// CHECK: func.func private @kept
module attributes {mhlo.is_dynamic = false} {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func private @kept(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, []>] out_shardings=[<@mesh, []>] manual_axes={"node", "gpu"} (%arg0: tensor<f32>) {
      sdy.return %arg0 : tensor<f32>
    } : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
}
