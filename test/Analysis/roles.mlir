// RUN: zpp-opt %s --zero-import-collectives --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s

// The role of a collective depends on where its value comes from and where it
// goes. Each step below differs from the usual one in one point.

// The usual step: gather, compute, scatter, update the own slice.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @usual
func.func @usual(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// State: the whole weight is updated, and the own slice of it returned.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @update_whole
func.func @update_whole(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // expected-remark@+1 {{it gathers state, which is not rounded: result 0 of the step is made of it element by element}}
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_reduce {{.*}} role = "gradient"
  %sum = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %all = stablehlo.subtract %whole, %sum : tensor<32x8xf32>
  %new = stablehlo.slice %all [0:4, 0:8] : (tensor<32x8xf32>) -> tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// The same where a scatter makes the slice: what it sums is state too.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @scatter_state
func.func @scatter_state(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // expected-remark@+1 {{it gathers state}}
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  %all = stablehlo.subtract %whole, %g : tensor<32x8xf32>
  // expected-remark@+1 {{it sums state, not a gradient: its operand is made of an input of the step element by element}}
  %new = "stablehlo.reduce_scatter"(%all) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// An average of whole weights, and whole weights for an evaluation.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @average
func.func @average(%w: tensor<4x8xf32>, %ema: tensor<32x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<32x8xf32>) {
  // expected-remark@+1 {{it gathers state, which is not rounded: result 1 of the step}}
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %average = stablehlo.add %ema, %whole : tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight"
  %again = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %again : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new, %average : tensor<4x8xf32>, tensor<32x8xf32>
}

// -----

// A batch is data: no gradient of its shape is reduced, nothing returns it.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @batch
func.func @batch(%w: tensor<4x8xf32>, %batch: tensor<2x32xf32>) -> tensor<4x8xf32> {
  // expected-remark@+1 {{step input 1 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight; weights-of names weights}}
  %tokens = "stablehlo.all_gather"(%batch) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x32xf32>) -> tensor<16x32xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Images that are cast to float are data, whatever their shape.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @images
func.func @images(%w: tensor<4x8xf32>, %image: tensor<4x8xui8>) -> tensor<4x8xf32> {
  %pixels = stablehlo.convert %image : (tensor<4x8xui8>) -> tensor<4x8xf32>
  // expected-remark@+1 {{it gathers data, not a weight: step input 1 has elements of type ui8}}
  %images = "stablehlo.all_gather"(%pixels) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %y = stablehlo.dot %images, %whole : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  %g = stablehlo.dot %images, %y : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// If only gradients are returned, the weight is what a gradient has for its
// partner, whatever else has its shape.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @partner_tells
func.func @partner_tells(%w: tensor<4x8xf32>, %batch: tensor<4x8xf32>, %labels: tensor<32x8xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{step input 1 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight; weights-of names weights (R4)}}
  %rows = "stablehlo.all_gather"(%batch) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %y = stablehlo.dot %rows, %whole : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  %target = stablehlo.convert %labels : (tensor<32x8xi32>) -> tensor<32x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<32x8xf32>
  %g = stablehlo.dot %rows, %e : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  return %mine : tensor<4x8xf32>
}

// -----

// ZeRO-1 and 2: a gradient that mirrors no gather; the weights that are gathered
// after the update are state.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @zero_2
func.func @zero_2(%whole: tensor<32x8xf32>, %w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<32x8xf32>, tensor<4x8xf32>) {
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  // expected-remark@+1 {{it gathers state, which is not rounded: result 0 of the step}}
  %all = "stablehlo.all_gather"(%new) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  return %all, %new : tensor<32x8xf32>, tensor<4x8xf32>
}

// -----

// Optimizer statistics: no gradient is computed from what is gathered.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @statistics
func.func @statistics(%w: tensor<4x8xf32>, %stats: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %target = stablehlo.slice %tokens [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  // expected-remark@+1 {{no gradient is computed from it; weights-of names weights}}
  %all = "stablehlo.all_gather"(%stats) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %scale = stablehlo.dot %mine, %all : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %scale : tensor<4x8xf32>
  %next = stablehlo.add %stats, %mine : tensor<4x8xf32>
  return %new, %next : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A weight that is scaled before it is gathered is made of weights alone.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @scaled
func.func @scaled(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  %c = stablehlo.constant dense<0.5> : tensor<4x8xf32>
  %scaled = stablehlo.multiply %w, %c : tensor<4x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight"
  %whole = "stablehlo.all_gather"(%scaled) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Activations that are scattered, and then used by the compute.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @activations
func.func @activations(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %h = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{a gradient is computed from its result: it sums activations}}
  %part = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %y = stablehlo.dot %part, %whole : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %g = stablehlo.dot %part, %y : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// An axis along which all devices have the same tokens is another parallelism:
// what is gathered or summed along it stays exact.

sdy.mesh @mesh = <["node"=2, "gpu"=2, "tensor"=2]>
// CHECK-LABEL: func @tensor
func.func @tensor(%w: tensor<16x8xf32>, %v: tensor<16x8xf32>, %x: tensor<64x32xi32>) -> (tensor<16x8xf32>, tensor<16x8xf32>) {
  %0:2 = "sdy.manual_computation"(%w, %v, %x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"tensor"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}], replicated={"tensor"}>]>, manual_axes = #sdy<manual_axes{"node", "gpu", "tensor"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"tensor"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>}> ({
  ^bb0(%embedding: tensor<8x8xf32>, %matrix: tensor<4x8xf32>, %tokens: tensor<16x32xi32>):
    // expected-remark@+1 {{it gathers along tensor, where all devices have the same data: it belongs to another kind of parallelism}}
    %1 = "stablehlo.all_gather"(%embedding) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "tensor">]>}> : (tensor<8x8xf32>) -> tensor<16x8xf32>
    // CHECK: zero.all_gather {{.*}} along ["node", "gpu"]
    %2 = "stablehlo.all_gather"(%matrix) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
    %3 = "stablehlo.gather"(%1, %tokens) : (tensor<16x8xf32>, tensor<16x32xi32>) -> tensor<16x8xf32>
    %4 = stablehlo.dot %3, %2 : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
    // expected-remark@+1 {{it sums along tensor, where all devices have the same data: it belongs to another kind of parallelism}}
    %5 = "stablehlo.reduce_scatter"(%4) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "tensor">]>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %add = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %add : tensor<f32>
    }) : (tensor<16x8xf32>) -> tensor<8x8xf32>
    %g = stablehlo.dot %3, %4 : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
    // CHECK: zero.reduce_scatter sum {{.*}} along ["node", "gpu"]
    %6 = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %add = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %add : tensor<f32>
    }) : (tensor<16x8xf32>) -> tensor<4x8xf32>
    %7 = stablehlo.subtract %embedding, %5 : tensor<8x8xf32>
    %8 = stablehlo.subtract %matrix, %6 : tensor<4x8xf32>
    sdy.return %7, %8 : tensor<8x8xf32>, tensor<4x8xf32>
  }) : (tensor<16x8xf32>, tensor<16x8xf32>, tensor<64x32xi32>) -> (tensor<16x8xf32>, tensor<16x8xf32>)
  return %0#0, %0#1 : tensor<16x8xf32>, tensor<16x8xf32>
}

// -----

// What the step returns beside its weights is no gradient, whatever its shape.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @metrics
func.func @metrics(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %counts = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it sums no gradient: result 1 of the step, which is made of it, is no weight that a gradient is computed from}}
  %confusion = "stablehlo.reduce_scatter"(%counts) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new, %confusion : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Statistics of gradients, as of Adafactor: the gradient stays one.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @second_moments
func.func @second_moments(%w: tensor<4x8xf32>, %columns: tensor<8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %squares = stablehlo.dot %mine, %mine : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8xf32>
  // expected-remark@+1 {{it sums no gradient: result 1 of the step}}
  %sum = "stablehlo.all_reduce"(%squares) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8xf32>) -> tensor<8xf32>
  %next = stablehlo.add %columns, %sum : tensor<8xf32>
  %rows = stablehlo.broadcast_in_dim %next, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %step = stablehlo.divide %mine, %rows : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %step : tensor<4x8xf32>
  return %new, %next : tensor<4x8xf32>, tensor<8xf32>
}

// -----

// Weights that a gradient has moved, as by SAM: they and both gradients are what
// they seem to be, and one weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @moved
func.func @moved(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} model_bytes = 1024 : i64, {{.*}} role = "weight"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %target = stablehlo.slice %tokens [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %first = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %up = stablehlo.add %w, %first : tensor<4x8xf32>
  // CHECK: zero.all_gather {{.*}} model_bytes = 0 : i64, {{.*}} role = "weight"
  %above = "stablehlo.all_gather"(%up) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %z = stablehlo.dot %tokens, %above : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %h = stablehlo.dot %tokens, %z : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %second = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %second : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Activations to which a weight is added are none.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @added
func.func @added(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>, %rows: tensor<4x8xi32>) -> tensor<4x8xf32> {
  %h = stablehlo.convert %rows : (tensor<4x8xi32>) -> tensor<4x8xf32>
  %sum = stablehlo.add %w, %h : tensor<4x8xf32>
  // expected-remark@+1 {{its operand is computed in the step, not a weight}}
  %whole = "stablehlo.all_gather"(%sum) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Plain data parallelism: the gradient is all-reduced and updates the weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @all_reduced
func.func @all_reduced(%w: tensor<32x8xf32>, %x: tensor<16x32xi32>) -> tensor<32x8xf32> {
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %w : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_reduce sum {{.*}} along ["node", "gpu"] {{.*}}before = [256, 1536]{{.*}}role = "gradient"
  // CHECK-SAME: zpp.source = {
  // CHECK-SAME: <32x8xf32, dim 0 = () on
  %sum = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %new = stablehlo.subtract %w, %sum : tensor<32x8xf32>
  return %new : tensor<32x8xf32>
}

// -----

// Returned as it is, in the shape of a weight: there is one weight for it.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @returned
func.func @returned(%w: tensor<32x8xf32>, %x: tensor<16x32xi32>) -> tensor<32x8xf32> {
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %w : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %target = stablehlo.slice %tokens [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_reduce sum
  %sum = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  return %sum : tensor<32x8xf32>
}

// -----

// A vector of metrics, and an average of activations over steps, which is
// updated but nothing is computed from it.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @metrics
func.func @metrics(%w: tensor<32x8xf32>, %mean: tensor<16x8xf32>, %x: tensor<16x32xi32>)
    -> (tensor<32x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) {
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %w : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_reduce
  %sum = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %new = stablehlo.subtract %w, %sum : tensor<32x8xf32>
  // expected-remark@+1 {{it sums no gradient}}
  %average = "stablehlo.all_reduce"(%y) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %mixed = stablehlo.add %mean, %average : tensor<16x8xf32>
  %z = stablehlo.transpose %y, dims = [1, 0] : (tensor<16x8xf32>) -> tensor<8x16xf32>
  // expected-remark@+1 {{it sums no gradient}}
  %metric = "stablehlo.all_reduce"(%z) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %new, %mixed, %metric : tensor<32x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>
}

// -----

// Weights that the step itself quantizes, with a scale that all devices share, to
// 8 bits or less. An int8 input is no weight that was quantized.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @quantized_by_the_step
func.func @quantized_by_the_step(%w: tensor<4x8xf32>, %i: tensor<4x8xi8>, %x: tensor<16x32xf32>) -> (tensor<4x8xf32>, tensor<16x8xf32>) {
  %low = stablehlo.constant dense<0.0> : tensor<f32>
  %own = stablehlo.reduce(%w init: %low) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<f32>
  // expected-remark@+1 {{stablehlo.all_reduce is left alone}}
  %largest = "stablehlo.all_reduce"(%own) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %max = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %max : tensor<f32>
  }) : (tensor<f32>) -> tensor<f32>
  %scale = stablehlo.broadcast_in_dim %largest, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
  %scaled = stablehlo.divide %w, %scale : tensor<4x8xf32>
  %ints = stablehlo.convert %scaled : (tensor<4x8xf32>) -> tensor<4x8xi4>
  %floats = stablehlo.convert %scaled : (tensor<4x8xf32>) -> tensor<4x8xf8E4M3FN>
  // expected-remark@+1 {{the step has quantized what it gathers, to i4; if it gathers first and quantizes then, zpp can quantize and keep secondary partitions}}
  %0 = "stablehlo.all_gather"(%ints) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xi4>) -> tensor<32x8xi4>
  // CHECK: zero.all_gather {{.*}}role = "weight"{{.*}}xf8E4M3FN
  %1 = "stablehlo.all_gather"(%floats) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf8E4M3FN>) -> tensor<32x8xf8E4M3FN>
  // expected-remark@+1 {{it gathers data, not a weight: step input 1 has elements of type i8, and no layer takes it as its weight}}
  %2 = "stablehlo.all_gather"(%i) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xi8>) -> tensor<32x8xi8>
  %whole0 = stablehlo.convert %0 : (tensor<32x8xi4>) -> tensor<32x8xf32>
  %whole1 = stablehlo.convert %1 : (tensor<32x8xf8E4M3FN>) -> tensor<32x8xf32>
  %whole2 = stablehlo.convert %2 : (tensor<32x8xi8>) -> tensor<32x8xf32>
  %sum0 = stablehlo.add %whole0, %whole1 : tensor<32x8xf32>
  %sum = stablehlo.add %sum0, %whole2 : tensor<32x8xf32>
  %y = stablehlo.dot %x, %sum : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %x, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new, %y : tensor<4x8xf32>, tensor<16x8xf32>
}
