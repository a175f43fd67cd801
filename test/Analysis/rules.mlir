// RUN: zpp-opt %s --zero-import-collectives --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-import-collectives=gradients-of=all --remarks-filter=none \
// RUN:   --split-input-file | FileCheck %s --check-prefix=DECLARED
// RUN: zpp-opt %s --zero-import-collectives=gradients-of=0 --remarks-filter=none \
// RUN:   --split-input-file | FileCheck %s --check-prefix=FIRST
// RUN: not zpp-opt %s --zero-import-collectives=gradients-of=9 --split-input-file 2>&1 \
// RUN:   | FileCheck %s --check-prefix=BEYOND
// BEYOND: expected arguments of the step below {{[0-9]+}} in gradients-of, but got 9

// The rules of docs/rules.md, each with a step that it lets pass and one that it
// stops. R15, declared: gradients-of asks for no proof.

// DECLARED-LABEL: func @r9_partner_not(
// DECLARED-COUNT-3: role = "gradient", rule = "R15"
// DECLARED-LABEL: func @r14_difference_not(
// DECLARED-COUNT-2: role = "gradient", rule = "R15"
// What divides stays exact all the same.
// FIRST-LABEL: func @r12_divisor_not(
// FIRST: role = "gradient", rule = "R9"
// FIRST: role = "other", rule = "R12"

// R1, form: one tensor of floating-point numbers.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r1_form(
func.func @r1_form(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// A maximum is no sum, an integer no weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r1_form_not(
func.func @r1_form_not(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %part = stablehlo.slice %y [0:1, 0:8] : (tensor<16x8xf32>) -> tensor<1x8xf32>
  %row = stablehlo.reshape %part : (tensor<1x8xf32>) -> tensor<8xf32>
  // expected-remark@+1 {{its reduction is not a sum (R1)}}
  %m = "stablehlo.all_reduce"(%row) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8xf32>) -> tensor<8xf32>
  return %new, %m : tensor<4x8xf32>, tensor<8xf32>
}

// -----

// R2, axes: the nodes have different data.

sdy.mesh @mesh = <["node"=2, "tensor"=2]>
// CHECK-LABEL: func @r2_axes(
func.func @r2_axes(%w: tensor<8x8xf32>, %x: tensor<32x32xi32>) -> tensor<8x8xf32> {
  %0 = "sdy.manual_computation"(%w, %x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"node"}, {}]>, <@mesh, [{"node"}, {}], replicated={"tensor"}>]>, manual_axes = #sdy<manual_axes{"node", "tensor"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"node"}, {}]>]>}> ({
  ^bb0(%part: tensor<4x8xf32>, %rows: tensor<16x32xi32>):
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%part) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">]>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %t = stablehlo.convert %rows : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %c = stablehlo.slice %t [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %y = stablehlo.dot %c, %whole : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %c, %y : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %part, %mine : tensor<4x8xf32>
  sdy.return %new : tensor<4x8xf32>
  }) : (tensor<8x8xf32>, tensor<32x32xi32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// Along this axis all devices have the same data.

sdy.mesh @mesh = <["node"=2, "tensor"=2]>
// CHECK-LABEL: func @r2_axes_not(
func.func @r2_axes_not(%w: tensor<8x8xf32>, %x: tensor<32x32xi32>) -> tensor<8x8xf32> {
  %0 = "sdy.manual_computation"(%w, %x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"tensor"}, {}]>, <@mesh, [{"node"}, {}], replicated={"tensor"}>]>, manual_axes = #sdy<manual_axes{"node", "tensor"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"tensor"}, {}]>]>}> ({
  ^bb0(%part: tensor<4x8xf32>, %rows: tensor<16x32xi32>):
  // expected-remark@+1 {{it gathers along tensor, where all devices have the same data: it belongs to another kind of parallelism (R2)}}
  %whole = "stablehlo.all_gather"(%part) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "tensor">]>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %t = stablehlo.convert %rows : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %c = stablehlo.slice %t [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %y = stablehlo.dot %c, %whole : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %c, %y : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  // expected-remark@+1 {{it sums along tensor, where all devices have the same data}}
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "tensor">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %part, %mine : tensor<4x8xf32>
  sdy.return %new : tensor<4x8xf32>
  }) : (tensor<8x8xf32>, tensor<32x32xi32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// R3, state: the own part of a weight is updated.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r3_state(
func.func @r3_state(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// The whole weight is returned.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r3_state_not(
func.func @r3_state_not(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<32x8xf32>) {
  // expected-remark@+1 {{it gathers state, which is not rounded: result 1 of the step is made of it element by element (R3)}}
  %all = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new, %all : tensor<4x8xf32>, tensor<32x8xf32>
}

// -----

// Weight normalization, by functions: the gradient holds the weight, but scaled by
// activations.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r3_state_scaled(
func.func @r3_state_scaled(%w: tensor<32x8xf32>, %x: tensor<128x32xi32>) -> tensor<32x8xf32> {
  %0 = "sdy.manual_computation"(%w, %x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>]>}> ({
  ^bb0(%part: tensor<4x8xf32>, %rows: tensor<16x32xi32>):
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%part) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %rows : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  %h = func.call @of_norm(%whole, %g) : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %part, %mine : tensor<4x8xf32>
  sdy.return %new : tensor<4x8xf32>
  }) : (tensor<32x8xf32>, tensor<128x32xi32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}
func.func private @of_norm(%v: tensor<32x8xf32>, %g: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %scaled = func.call @scale(%v, %g) : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  %0 = stablehlo.subtract %g, %scaled : tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}
func.func private @scale(%v: tensor<32x8xf32>, %g: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %0 = stablehlo.multiply %v, %g : tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}

// -----

// A decay beside it is not scaled by activations.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r3_state_not_scaled(
func.func @r3_state_not_scaled(%w: tensor<32x8xf32>, %x: tensor<128x32xi32>) -> tensor<32x8xf32> {
  %0 = "sdy.manual_computation"(%w, %x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>]>}> ({
  ^bb0(%part: tensor<4x8xf32>, %rows: tensor<16x32xi32>):
  // expected-remark@+1 {{it gathers state, which is not rounded: result 0 of the step is made of it element by element (R3)}}
  %whole = "stablehlo.all_gather"(%part) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %rows : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  %h = func.call @of_norm(%whole, %g) : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it sums state, not a gradient: its operand is made of an input of the step element by element (R3)}}
  %mine = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %part, %mine : tensor<4x8xf32>
  sdy.return %new : tensor<4x8xf32>
  }) : (tensor<32x8xf32>, tensor<128x32xi32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}
func.func private @of_norm(%v: tensor<32x8xf32>, %g: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %scaled = func.call @scale(%v, %g) : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  %1 = stablehlo.subtract %g, %scaled : tensor<32x8xf32>
  %0 = stablehlo.add %1, %v : tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}
func.func private @scale(%v: tensor<32x8xf32>, %g: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %0 = stablehlo.multiply %v, %g : tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}

// -----

// R4, input: nothing returns the weight, but its gradient is reduced.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r4_input(
func.func @r4_input(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %target = stablehlo.slice %tokens [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  return %mine : tensor<4x8xf32>
}

// -----

// Data is no weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r4_input_not(
func.func @r4_input_not(%w: tensor<4x8xf32>, %batch: tensor<2x32xf32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{step input 1 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight; weights-of names weights (R4)}}
  %tokens = "stablehlo.all_gather"(%batch) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// A regularizer contracts the own part of a weight, too, but with itself.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r4_input_regularized(
func.func @r4_input_regularized(%w: tensor<32x8xf32>, %x: tensor<128x32xi32>) -> (tensor<32x8xf32>, tensor<32x4xf32>) {
  %0:2 = "sdy.manual_computation"(%w, %x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>}> ({
  ^bb0(%part: tensor<4x8xf32>, %rows: tensor<16x32xi32>):
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%part) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %rows : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %target = stablehlo.slice %tokens [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %products = stablehlo.dot_general %part, %part, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  sdy.return %mine, %products : tensor<4x8xf32>, tensor<4x4xf32>
  }) : (tensor<32x8xf32>, tensor<128x32xi32>) -> (tensor<32x8xf32>, tensor<32x4xf32>)
  return %0#0, %0#1 : tensor<32x8xf32>, tensor<32x4xf32>
}

// -----

// Rows of a batch that devices exchange, as attention over devices does: each computes
// products of its own rows with a weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r4_input_not_exchanged(
func.func @r4_input_not_exchanged(%w: tensor<8x8xf32>, %v: tensor<8x8xf32>, %batch: tensor<32x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0:2 = "sdy.manual_computation"(%w, %v, %batch) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>}> ({
  ^bb0(%w0: tensor<1x8xf32>, %v0: tensor<1x8xf32>, %own: tensor<4x8xf32>):
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %W = "stablehlo.all_gather"(%w0) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %V = "stablehlo.all_gather"(%v0) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  // expected-remark@+1 {{step input 2 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight}}
  %all = "stablehlo.all_gather"(%own) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %q = stablehlo.dot %own, %W : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %s = stablehlo.dot_general %q, %all, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  %p = stablehlo.exponential %s : tensor<4x32xf32>
  %m = stablehlo.dot %p, %all : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %y = stablehlo.dot %m, %V : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %e = stablehlo.subtract %y, %own : tensor<4x8xf32>
  %gv = stablehlo.dot_general %m, %e, contracting_dims = [0] x [0] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  %dm = stablehlo.dot_general %e, %V, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %dp = stablehlo.dot_general %dm, %all, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  %ds = stablehlo.multiply %dp, %p : tensor<4x32xf32>
  %dq = stablehlo.dot %ds, %all : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %gw = stablehlo.dot_general %own, %dq, contracting_dims = [0] x [0] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mv = "stablehlo.reduce_scatter"(%gv) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<1x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mw = "stablehlo.reduce_scatter"(%gw) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<1x8xf32>
  %w1 = stablehlo.subtract %w0, %mw : tensor<1x8xf32>
  %v1 = stablehlo.subtract %v0, %mv : tensor<1x8xf32>
  sdy.return %w1, %v1 : tensor<1x8xf32>, tensor<1x8xf32>
  }) : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<32x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
  return %0#0, %0#1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A vector by which a weight's norm is estimated: the power iteration of a spectral norm.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r4_input_not_norm(
func.func @r4_input_not_norm(%w: tensor<4x8xf32>, %u: tensor<4xf32>, %x: tensor<16x32xi32>, %zero: tensor<f32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{step input 1 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight; weights-of names weights (R4)}}
  %left = "stablehlo.all_gather"(%u) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4xf32>) -> tensor<32xf32>
  %right = stablehlo.dot %left, %whole : (tensor<32xf32>, tensor<32x8xf32>) -> tensor<8xf32>
  %norm = stablehlo.dot %right, %right : (tensor<8xf32>, tensor<8xf32>) -> tensor<f32>
  %norms = stablehlo.broadcast_in_dim %norm, dims = [] : (tensor<f32>) -> tensor<32x8xf32>
  %scaled = stablehlo.divide %whole, %norms : tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %scaled : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %all = stablehlo.dot %whole, %right : (tensor<32x8xf32>, tensor<8xf32>) -> tensor<32xf32>
  %own = stablehlo.slice %all [0:4] : (tensor<32xf32>) -> tensor<4xf32>
  return %new, %own : tensor<4x8xf32>, tensor<4xf32>
}

// -----

// R5, computed: a scaled weight is a weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r5_computed(
func.func @r5_computed(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  %c = stablehlo.constant dense<0.5> : tensor<4x8xf32>
  %s = stablehlo.multiply %w, %c : tensor<4x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%s) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Rows to which data is added are activations.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r5_computed_not(
func.func @r5_computed_not(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>, %r: tensor<4x8xi32>) -> tensor<4x8xf32> {
  %h = stablehlo.convert %r : (tensor<4x8xi32>) -> tensor<4x8xf32>
  %s = stablehlo.add %w, %h : tensor<4x8xf32>
  // expected-remark@+1 {{its operand is computed in the step, not a weight (R5)}}
  %whole = "stablehlo.all_gather"(%s) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// R6, use: a gradient is computed from it.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r6_use(
func.func @r6_use(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// A statistic that is gathered to be applied.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r6_use_not(
func.func @r6_use_not(%w: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %target = stablehlo.slice %tokens [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  // expected-remark@+1 {{no gradient is computed from it; weights-of names weights (R6)}}
  %all = "stablehlo.all_gather"(%s) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %d = stablehlo.dot %mine, %all : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %d : tensor<4x8xf32>
  %next = stablehlo.add %s, %mine : tensor<4x8xf32>
  return %new, %next : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// R7, buffer: a frozen weight that a layer takes, and the average of a weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r7_buffer(
func.func @r7_buffer(%w: tensor<4x8xf32>, %m: tensor<4x8xf32>, %t: tensor<4x8xf32>, %x: tensor<16x32xi32>, %s: tensor<16x32xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %frozen = "stablehlo.all_gather"(%m) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %teacher = "stablehlo.all_gather"(%t) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %rows = stablehlo.multiply %tokens, %s : tensor<16x32xf32>
  %h = stablehlo.dot %rows, %frozen : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %h, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %goal = stablehlo.dot %h, %teacher : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %goal : tensor<16x8xf32>
  %g = stablehlo.dot %h, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %both = stablehlo.add %t, %w : tensor<4x8xf32>
  return %new, %m, %both : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A mask that is added to scores.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r7_buffer_not(
func.func @r7_buffer_not(%w: tensor<4x8xf32>, %m: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it gathers a buffer: the step returns it as it came, and no layer takes it as its weight; weights-of names weights (R7)}}
  %mask = "stablehlo.all_gather"(%m) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %scores = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  %y = stablehlo.add %scores, %mask : tensor<32x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new, %m : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Averages of the past: updated without a gradient, and subtracted.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r7_buffer_not_updated(
func.func @r7_buffer_not_updated(%w: tensor<4x8xf32>, %past: tensor<2x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<2x32xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it gathers a statistic: the step updates it with something else than gradients; weights-of names weights (R7)}}
  %mean = "stablehlo.all_gather"(%past) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %t = stablehlo.subtract %tokens, %mean : tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %rows = stablehlo.slice %tokens [0:2, 0:32] : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %next = stablehlo.add %past, %rows : tensor<2x32xf32>
  return %new, %next : tensor<4x8xf32>, tensor<2x32xf32>
}

// -----

// Examples that the step returns as they came: another layer contracts them.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r7_buffer_not_examples(
func.func @r7_buffer_not_examples(%w: tensor<4x8xf32>, %m: tensor<2x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<2x32xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it gathers a buffer: the step returns it as it came, and no layer takes it as its weight; weights-of names weights (R7)}}
  %examples = "stablehlo.all_gather"(%m) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %goal = stablehlo.dot %examples, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %goal : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new, %m : tensor<4x8xf32>, tensor<2x32xf32>
}

// -----

// A table that scales the same rows as a weight contracts has no gradient.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r7_buffer_not_scaling(
func.func @r7_buffer_not_scaling(%w: tensor<4x8xf32>, %m: tensor<2x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<2x32xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it gathers a buffer: the step returns it as it came, and no layer takes it as its weight; weights-of names weights (R7)}}
  %cosines = "stablehlo.all_gather"(%m) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %rotated = stablehlo.multiply %tokens, %cosines : tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %scores = stablehlo.dot_general %y, %rotated, contracting_dims = [0] x [0] : (tensor<16x8xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %e = stablehlo.dot_general %rotated, %scores, contracting_dims = [1] x [1] : (tensor<16x32xf32>, tensor<8x32xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new, %m : tensor<4x8xf32>, tensor<2x32xf32>
}

// -----

// Rows of a batch, which has its type, replace some of it.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r7_buffer_not_filled(
func.func @r7_buffer_not_filled(%w: tensor<4x8xf32>, %past: tensor<2x32xf32>, %x: tensor<16x32xi32>, %rows: tensor<2x32xf32>, %at: tensor<2x32xi1>) -> (tensor<4x8xf32>, tensor<2x32xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it gathers a statistic: the step updates it with something else than gradients; weights-of names weights (R7)}}
  %seen = "stablehlo.all_gather"(%past) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %seen, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %target = stablehlo.slice %tokens [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<16x8xf32>
  %z = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %both = stablehlo.multiply %z, %e : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %both : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %next = stablehlo.select %at, %rows, %past : tensor<2x32xi1>, tensor<2x32xf32>
  return %new, %next : tensor<4x8xf32>, tensor<2x32xf32>
}

// -----

// A running average in a step of which no gradient is known. The weight is
// updated with what is computed from it, the average is not.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r7_buffer_not_without_gradients(
func.func @r7_buffer_not_without_gradients(%w: tensor<4x32xf32>, %s: tensor<4x32xf32>, %x: tensor<16x32xi32>, %r: tensor<16x32xf32>) -> (tensor<4x32xf32>, tensor<4x32xf32>, tensor<16x32xf32>) {
  // expected-remark@+1 {{it gathers a statistic: the step updates it with something else than gradients; weights-of names weights (R7)}}
  %scale = "stablehlo.all_gather"(%s) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %i = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %rows = stablehlo.multiply %i, %r : tensor<16x32xf32>
  %t = stablehlo.dot %rows, %scale : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %k = stablehlo.dot_general %y, %y, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  // expected-remark@+1 {{it sums a statistic, not a gradient: its operand is the product of a value with itself; if it is a gradient, name its weight in gradients-of (R9)}}
  %mine = "stablehlo.reduce_scatter"(%k) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %c = stablehlo.dot_general %rows, %rows, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  // expected-remark@+1 {{it sums a statistic, not a gradient: its operand is the product of a value with itself; if it is a gradient, name its weight in gradients-of (R9)}}
  %n = "stablehlo.reduce_scatter"(%c) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x32xf32>
  %next = stablehlo.add %s, %n : tensor<4x32xf32>
  return %new, %next, %y : tensor<4x32xf32>, tensor<4x32xf32>, tensor<16x32xf32>
}

// -----

// R8, sign: a gradient has both signs.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r8_sign(
func.func @r8_sign(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// A square has not.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r8_sign_not(
func.func @r8_sign_not(%w: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %q = stablehlo.multiply %g, %g : tensor<32x8xf32>
  // expected-remark@+1 {{it sums a statistic, not a gradient: no element of its operand can be negative (R8)}}
  %n = "stablehlo.reduce_scatter"(%q) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %next = stablehlo.add %s, %n : tensor<4x8xf32>
  return %new, %next : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// R9, partner: the operand of the product, computed again, and what follows
// from its result.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner(
func.func @r9_partner(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %again = stablehlo.optimization_barrier %x : tensor<16x32xi32>
  %saved = stablehlo.convert %again : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %t = stablehlo.tanh %y : tensor<16x8xf32>
  %g = stablehlo.dot %saved, %t : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// A covariance has none, whatever its shape. Nor has the product of a gradient
// with itself, and that of a comparison.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_not(
func.func @r9_partner_not(%w: tensor<4x8xf32>, %r: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %rows = stablehlo.slice %tokens [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %t = stablehlo.tanh %rows : tensor<16x8xf32>
  %k = stablehlo.dot %tokens, %t : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{nothing proves that it sums a gradient: no product with a weight has contracted one of its operands such that the other one follows from that product's result; if it is a gradient, name its weight in gradients-of (R9)}}
  %n = "stablehlo.reduce_scatter"(%k) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %gg = stablehlo.dot %g, %g : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it sums a statistic, not a gradient: its operand is the product of a value with itself}}
  %p = "stablehlo.reduce_scatter"(%gg) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<16x8xf32>
  %is = "stablehlo.compare"(%y, %zero) : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xi1>
  %onehot = stablehlo.convert %is : (tensor<16x8xi1>) -> tensor<16x8xf32>
  %cc = stablehlo.dot %tokens, %onehot : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{nothing proves that it sums a gradient}}
  %q = "stablehlo.reduce_scatter"(%cc) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %u1 = stablehlo.add %mine, %n : tensor<4x8xf32>
  %u2 = stablehlo.add %u1, %p : tensor<4x8xf32>
  %u3 = stablehlo.add %u2, %q : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %u3 : tensor<4x8xf32>
  %next = stablehlo.add %r, %n : tensor<4x8xf32>
  return %new, %next, %p, %q : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A softmax has no negative element: it assigns rows. With the residual of that, the sum
// is a gradient, also where a hard choice has the derivative of the soft one.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_assigns(
func.func @r9_partner_assigns(%w: tensor<4x8xf32>, %t: tensor<16x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %e = stablehlo.exponential %y : tensor<16x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<16x8xf32>, tensor<f32>) -> tensor<16xf32>
  %rows = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<16xf32>) -> tensor<16x8xf32>
  %p = stablehlo.divide %e, %rows : tensor<16x8xf32>
  %largest = "stablehlo.compare"(%p, %rows) : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xi1>
  %hard = stablehlo.convert %largest : (tensor<16x8xi1>) -> tensor<16x8xf32>
  %less = stablehlo.subtract %hard, %p : tensor<16x8xf32>
  %through = stablehlo.add %less, %p : tensor<16x8xf32>
  %c = stablehlo.dot %tokens, %p : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{nothing proves that it sums a gradient: what follows from the product with a weight has no negative element, as assignments and probabilities have none; if it is a gradient, name its weight in gradients-of (R9)}}
  %soft = "stablehlo.reduce_scatter"(%c) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %d = stablehlo.dot %tokens, %through : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{what follows from the product with a weight has no negative element}}
  %kept = "stablehlo.reduce_scatter"(%d) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %residual = stablehlo.subtract %p, %t : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %residual : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %u = stablehlo.add %soft, %kept : tensor<4x8xf32>
  %v = stablehlo.add %u, %mine : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %v : tensor<4x8xf32>
  return %new, %u : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// The largest few probabilities, as an exported module has them, and as XLA does.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_not_largest(
func.func @r9_partner_not_largest(%w: tensor<4x8xf32>, %t: tensor<16x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %t : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %chances = stablehlo.exponential %y : tensor<16x8xf32>
  %best:2 = stablehlo.composite "chlo.top_k" %chances {composite_attributes = {k = 8 : i64}, decomposition = @top_k, version = 1 : i32} : (tensor<16x8xf32>) -> (tensor<16x8xf32>, tensor<16x8xi32>)
  %again:2 = "mhlo.topk"(%best#0) {k = 8 : i64} : (tensor<16x8xf32>) -> (tensor<16x8xf32>, tensor<16x8xi32>)
  %k = stablehlo.dot %tokens, %again#0 : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{nothing proves that it sums a gradient: what follows from the product with a weight has no negative element, as assignments and probabilities have none; if it is a gradient, name its weight in gradients-of (R9)}}
  %n = "stablehlo.reduce_scatter"(%k) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %u = stablehlo.add %mine, %n : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x8xf32>
  return %new, %n : tensor<4x8xf32>, tensor<4x8xf32>
}

func.func private @top_k(%p: tensor<16x8xf32>) -> (tensor<16x8xf32>, tensor<16x8xi32>)

// -----

// Without an update: a target is subtracted.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_target(
func.func @r9_partner_target(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>, %t: tensor<16x8xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %labels = stablehlo.convert %t : (tensor<16x8xi32>) -> tensor<16x8xf32>
  %p = stablehlo.logistic %y : tensor<16x8xf32>
  %e = stablehlo.subtract %p, %labels : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  return %mine : tensor<4x8xf32>
}

// -----

// It comes back through the weight of the next layer, times a derivative.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_back(
func.func @r9_partner_back(%w: tensor<4x8xf32>, %v: tensor<8x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %h = stablehlo.tanh %y : tensor<16x8xf32>
  %z = stablehlo.dot %h, %v : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %back = stablehlo.dot_general %z, %v, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %square = stablehlo.multiply %h, %h : tensor<16x8xf32>
  %one = stablehlo.constant dense<1.0> : tensor<16x8xf32>
  %slope = stablehlo.subtract %one, %square : tensor<16x8xf32>
  %e = stablehlo.multiply %back, %slope : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  return %mine : tensor<4x8xf32>
}

// -----

// A running average of the like, to which its codebook moves: any function of
// logits is the derivative of something.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_not_averaged(
func.func @r9_partner_not_averaged(%w: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it gathers a statistic: the step updates it with something else than gradients; weights-of names weights (R7)}}
  %codes = "stablehlo.all_gather"(%s) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %logits = stablehlo.dot %tokens, %codes : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %t = stablehlo.tanh %logits : tensor<16x8xf32>
  %e = stablehlo.subtract %y, %t : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %k = stablehlo.dot %tokens, %t : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{nothing proves that it sums a gradient: what follows from the product with a weight may be no derivative: no weight is moved against the sum, no target is subtracted, and it does not come back through a later layer; if it is a gradient, name its weight in gradients-of (R9)}}
  %n = "stablehlo.reduce_scatter"(%k) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %off = stablehlo.subtract %s, %n : tensor<4x8xf32>
  %tenth = stablehlo.constant dense<0.1> : tensor<4x8xf32>
  %part = stablehlo.multiply %tenth, %off : tensor<4x8xf32>
  %next = stablehlo.subtract %s, %part : tensor<4x8xf32>
  return %new, %next : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Weights are adapted first, so all that follows depends on all inputs, also on
// those that have no gradient.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_not_after_adaption(
func.func @r9_partner_not_after_adaption(%w: tensor<4x8xf32>, %v: tensor<1x8xf32>, %s: tensor<1x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %second = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  // expected-remark@+1 {{it gathers a statistic: the step updates it with something else than gradients; weights-of names weights (R7)}}
  %codes = "stablehlo.all_gather"(%s) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y0 = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %o0 = stablehlo.dot %y0, %second : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %q0 = stablehlo.dot %o0, %codes : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %e0 = stablehlo.dot_general %q0, %codes, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %g0 = stablehlo.dot_general %y0, %e0, contracting_dims = [0] x [0] : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  // expected-remark@+1 {{a gradient is computed from its result: it sums activations (R13)}}
  %all = "stablehlo.all_reduce"(%g0) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %adapted = stablehlo.subtract %second, %all : tensor<8x8xf32>
  %d0 = stablehlo.dot_general %e0, %second, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %h0 = stablehlo.dot_general %t, %d0, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{a gradient is computed from its result: it sums activations (R13)}}
  %first = "stablehlo.all_reduce"(%h0) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %moved = stablehlo.subtract %whole, %first : tensor<32x8xf32>
  %y = stablehlo.dot %t, %moved : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %o = stablehlo.dot %y, %adapted : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %q = stablehlo.dot %o, %codes : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %e = stablehlo.dot_general %q, %codes, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot_general %y, %e, contracting_dims = [0] x [0] : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %of_second = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<1x8xf32>
  %d = stablehlo.dot_general %e, %adapted, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %h = stablehlo.dot_general %t, %d, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %newer = stablehlo.subtract %v, %of_second : tensor<1x8xf32>
  %rows = stablehlo.slice %t [0:1, 0:8] : (tensor<16x32xf32>) -> tensor<1x8xf32>
  %next = stablehlo.add %s, %rows : tensor<1x8xf32>
  return %new, %newer, %next : tensor<4x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>
}

// -----

// A target before the last function that is not linear: distances to rows of the
// batch, of which a kernel makes weights.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_not_kernel(
func.func @r9_partner_not_kernel(%w: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>, %m: tensor<16x8xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it gathers a statistic: the step updates it with something else than gradients; weights-of names weights (R7)}}
  %codes = "stablehlo.all_gather"(%s) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %logits = stablehlo.dot %tokens, %codes : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %norms = stablehlo.convert %m : (tensor<16x8xi32>) -> tensor<16x8xf32>
  %d = stablehlo.subtract %norms, %logits : tensor<16x8xf32>
  %one = stablehlo.constant dense<1.0> : tensor<16x8xf32>
  %t = stablehlo.divide %one, %d : tensor<16x8xf32>
  %e = stablehlo.subtract %y, %t : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %k = stablehlo.dot %tokens, %t : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{nothing proves that it sums a gradient: what follows from the product with a weight may be no derivative: no weight is moved against the sum, no target is subtracted, and it does not come back through a later layer; if it is a gradient, name its weight in gradients-of (R9)}}
  %n = "stablehlo.reduce_scatter"(%k) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %next = stablehlo.add %s, %n : tensor<4x8xf32>
  return %new, %next : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// The sign of something else may scale a gradient.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_scaled(
func.func @r9_partner_scaled(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  %signs = stablehlo.sign %tokens : (tensor<16x32xf32>) -> tensor<32x8xf32>
  %scaled = stablehlo.multiply %g, %signs : tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%scaled) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Devices that vote with signs of gradients, and a step that rounds them itself.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r9_partner_not_rounded(
func.func @r9_partner_not_rounded(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
  %own = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %signs = stablehlo.sign %g : tensor<32x8xf32>
  // expected-remark@+1 {{it sums a statistic, not a gradient: the step has rounded its operand itself, or made signs of it; if it is a gradient, name its weight in gradients-of (R9)}}
  %votes = "stablehlo.reduce_scatter"(%signs) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %scale = stablehlo.constant dense<0.5> : tensor<32x8xf32>
  %codes = stablehlo.round_nearest_even %g : tensor<32x8xf32>
  %decoded = stablehlo.multiply %codes, %scale : tensor<32x8xf32>
  // expected-remark@+1 {{the step has rounded its operand itself, or made signs of it}}
  %mine = "stablehlo.reduce_scatter"(%decoded) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %once = stablehlo.subtract %w, %votes : tensor<4x8xf32>
  %twice = stablehlo.subtract %once, %mine : tensor<4x8xf32>
  %new = stablehlo.subtract %twice, %own : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// R10, name: autodiff has made it. The derivative of the loss is a sign, so it has no
// partner.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r10_name(
func.func @r10_name(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %one = stablehlo.sign %y : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %one : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// In a module with names, what has none and follows from none is no gradient.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r10_name_not(
func.func @r10_name_not(%w: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %k = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{nothing proves that it sums a gradient: autodiff, which has made others here, has made neither it nor what it follows from; if it is a gradient, name its weight in gradients-of (R10)}}
  %n = "stablehlo.reduce_scatter"(%k) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %u = stablehlo.add %mine, %n : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x8xf32>
  %next = stablehlo.add %s, %n : tensor<4x8xf32>
  return %new, %next : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A factor of K-FAC that a backward pass written by hand returns as the cotangent of
// an argument: scaled, and the product of a value with itself.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r10_name_not_gram(
func.func @r10_name_not_gram(%w: tensor<1x8xf32>, %s: tensor<1x8xf32>, %x: tensor<16x8xi32>) -> (tensor<1x8xf32>, tensor<1x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x8xi32>) -> tensor<16x8xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<1x8xf32>
  %third = stablehlo.constant dense<3.0> : tensor<16x8xf32>
  %part = stablehlo.divide %y, %third : tensor<16x8xf32>
  %gram = stablehlo.dot_general %part, %y, contracting_dims = [0] x [0] : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  %rows = stablehlo.constant dense<16.0> : tensor<f32>
  %scale = stablehlo.broadcast_in_dim %rows, dims = [] : (tensor<f32>) -> tensor<8x8xf32>
  %k = stablehlo.multiply %gram, %scale : tensor<8x8xf32> loc("jit(step)/transpose(jvp())/mul")
  // expected-remark@+1 {{it sums a statistic, not a gradient: its operand is the product of a value with itself; if it is a gradient, name its weight in gradients-of (R9)}}
  %n = "stablehlo.reduce_scatter"(%k) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<1x8xf32>
  %u = stablehlo.add %mine, %n : tensor<1x8xf32>
  %new = stablehlo.subtract %w, %u : tensor<1x8xf32>
  %next = stablehlo.add %s, %n : tensor<1x8xf32>
  return %new, %next : tensor<1x8xf32>, tensor<1x8xf32>
}

// -----

// XLA shares constants, so that a statistic may start with the zeros of the
// backward pass: these name nothing.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r10_name_not_shared(
func.func @r10_name_not_shared(%w: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>, %rows: tensor<16x8xf32>, %at: tensor<16x1xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/broadcast_in_dim")
  %dot = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  %g = stablehlo.add %dot, %zeros : tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %k = "stablehlo.scatter"(%zeros, %at, %rows) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>, tensor<16x1xi32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it sums no gradient: result 1 of the step, which is made of it, is no weight that a gradient is computed from (R11)}}
  %n = "stablehlo.reduce_scatter"(%k) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %next = stablehlo.add %s, %n : tensor<4x8xf32>
  return %new, %next : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// R11, goal: a weight is updated with it.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r11_goal(
func.func @r11_goal(%w: tensor<32x8xf32>, %x: tensor<16x32xi32>) -> tensor<32x8xf32> {
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %w : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_reduce {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<32x8xf32>
  return %new : tensor<32x8xf32>
}

// -----

// Averages of activations are kept beside the weights.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r11_goal_not(
func.func @r11_goal_not(%w: tensor<32x8xf32>, %m: tensor<16x8xf32>, %x: tensor<16x32xi32>) -> (tensor<32x8xf32>, tensor<16x8xf32>) {
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %w : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_reduce {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<32x8xf32>
  // expected-remark@+1 {{it sums no gradient: result 1 of the step, which is made of it, is no weight that a gradient is computed from (R11)}}
  %sum = "stablehlo.all_reduce"(%y) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %next = stablehlo.add %m, %sum : tensor<16x8xf32>
  return %new, %next : tensor<32x8xf32>, tensor<16x8xf32>
}

// -----

// A weight is updated with its last gradient, and this one is kept for the next
// step.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r11_goal_delayed(
func.func @r11_goal_delayed(%w: tensor<4x8xf32>, %m: tensor<4x8xf32>, %x: tensor<16x32xi32>, %t: tensor<16x8xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %target = stablehlo.convert %t : (tensor<16x8xi32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %e : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %m : tensor<4x8xf32>
  %half = stablehlo.add %m, %mine : tensor<4x8xf32>
  return %new, %half : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// What a layer reads, contracted with what comes from a later use of its weight. No
// weight is updated with this, but with the gradient.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r11_goal_not_beside(
func.func @r11_goal_not_beside(%w: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %h = stablehlo.tanh %y : tensor<16x8xf32>
  %u = stablehlo.dot %h, %whole : (tensor<16x8xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %v = stablehlo.dot %u, %whole : (tensor<16x8xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %v : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %z = stablehlo.dot %y, %whole : (tensor<16x8xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %q = stablehlo.dot %z, %whole : (tensor<16x8xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %p = stablehlo.dot %tokens, %q : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it sums no gradient: weights are updated with other sums, and none is with it; gradients-of names gradients (R11)}}
  %seen = "stablehlo.reduce_scatter"(%p) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %more = stablehlo.add %s, %seen : tensor<4x8xf32>
  return %new, %more : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// R12, divisor: a sum that divides and is added, too.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r12_divisor(
func.func @r12_divisor(%w: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %h = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %q = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %d = stablehlo.divide %mine, %q : tensor<4x8xf32>
  %u = stablehlo.add %d, %q : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x8xf32>
  return %new, %s : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A sum that only divides.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r12_divisor_not(
func.func @r12_divisor_not(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %h = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it sums a statistic, not a gradient: weights are updated only with what is divided by it (R12)}}
  %q = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %d = stablehlo.divide %mine, %q : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %d : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// R13, activations: no gradient is computed from a gradient.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r13_activations(
func.func @r13_activations(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Activations that are summed, and computed with.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r13_activations_not(
func.func @r13_activations_not(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %h = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{a gradient is computed from its result: it sums activations (R13)}}
  %part = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %y = stablehlo.dot %part, %whole : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %g = stablehlo.dot %part, %y : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// A loop that updates a weight carries it to the next gradient.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r13_activations_carried(
func.func @r13_activations_carried(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %first = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = "stablehlo.while"(%first, %w) ({
  ^bb0(%i: tensor<i32>, %v: tensor<4x8xf32>):
    %end = stablehlo.constant dense<3> : tensor<i32>
    %go = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %v: tensor<4x8xf32>):
    // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
    %whole = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
    %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
    // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
    %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %add = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %add : tensor<f32>
    }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
    %new = stablehlo.subtract %v, %mine : tensor<4x8xf32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %new : tensor<i32>, tensor<4x8xf32>
  }) : (tensor<i32>, tensor<4x8xf32>) -> (tensor<i32>, tensor<4x8xf32>)
  return %r#1 : tensor<4x8xf32>
}

// -----

// A loop over layers carries the cotangents to which the sum of others belongs, as
// in the backward pass of a batch normalization over devices.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r13_activations_not_carried(
func.func @r13_activations_not_carried(%w: tensor<4x8xf32>, %m: tensor<1xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{step input 1 seems to be data}}
  %mean = "stablehlo.all_gather"(%m) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1xf32>) -> tensor<8xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %means = stablehlo.broadcast_in_dim %mean, dims = [1] : (tensor<8xf32>) -> tensor<16x8xf32>
  %last = stablehlo.subtract %y, %means : tensor<16x8xf32>
  %first = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4x8xf32>
  %r:3 = "stablehlo.while"(%first, %last, %zeros) ({
  ^bb0(%i: tensor<i32>, %c: tensor<16x8xf32>, %sum: tensor<4x8xf32>):
    %end = stablehlo.constant dense<3> : tensor<i32>
    %go = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %c: tensor<16x8xf32>, %sum: tensor<4x8xf32>):
    %g = stablehlo.dot %tokens, %c : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
    // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
    %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %add = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %add : tensor<f32>
    }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
    %s = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<16x8xf32>, tensor<f32>) -> tensor<8xf32> loc("jit(step)/transpose(jvp())/reduce_sum")
    // expected-remark@+1 {{a gradient is computed from its result: it sums activations (R13)}}
    %all = "stablehlo.all_reduce"(%s) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %add = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %add : tensor<f32>
    }) : (tensor<8xf32>) -> tensor<8xf32>
    %rows = stablehlo.broadcast_in_dim %all, dims = [1] : (tensor<8xf32>) -> tensor<16x8xf32>
    %scaled = stablehlo.multiply %rows, %y : tensor<16x8xf32>
    %back = stablehlo.dot %c, %whole : (tensor<16x8xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
    %before = stablehlo.add %back, %scaled : tensor<16x8xf32>
    %more = stablehlo.add %sum, %mine : tensor<4x8xf32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %before, %more : tensor<i32>, tensor<16x8xf32>, tensor<4x8xf32>
  }) : (tensor<i32>, tensor<16x8xf32>, tensor<4x8xf32>) -> (tensor<i32>, tensor<16x8xf32>, tensor<4x8xf32>)
  %new = stablehlo.subtract %w, %r#2 : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// The gradient of a gain that the backward pass goes on with.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r13_activations_not_updating(
func.func @r13_activations_not_updating(%w: tensor<4x16xf32>, %p: tensor<2xf32>, %x: tensor<16x32xi32>, %at: tensor<i32>) -> (tensor<4x16xf32>, tensor<2xf32>) {
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x16xf32>) -> tensor<32x16xf32>
  // expected-remark@+1 {{it gathers a statistic: the step updates it with something else than gradients}}
  %gain = "stablehlo.all_gather"(%p) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2xf32>) -> tensor<16xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x16xf32>) -> tensor<16x16xf32>
  %gains = stablehlo.broadcast_in_dim %gain, dims = [1] : (tensor<16xf32>) -> tensor<16x16xf32>
  %c = stablehlo.multiply %y, %gains : tensor<16x16xf32>
  %part = stablehlo.multiply %c, %y : tensor<16x16xf32>
  %s = stablehlo.reduce(%part init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<16x16xf32>, tensor<f32>) -> tensor<16xf32> loc("jit(step)/transpose(jvp())/reduce_sum")
  // expected-remark@+1 {{a gradient is computed from its result: it sums activations (R13)}}
  %all = "stablehlo.all_reduce"(%s) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<16xf32>) -> tensor<16xf32>
  %rows = stablehlo.broadcast_in_dim %all, dims = [1] : (tensor<16xf32>) -> tensor<16x16xf32>
  %scaled = stablehlo.multiply %rows, %y : tensor<16x16xf32>
  %back = stablehlo.subtract %c, %scaled : tensor<16x16xf32>
  %g = stablehlo.dot %tokens, %back : (tensor<16x32xf32>, tensor<16x16xf32>) -> tensor<32x16xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x16xf32>) -> tensor<4x16xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x16xf32>
  %own = stablehlo.dynamic_slice %all, %at, sizes = [2] : (tensor<16xf32>, tensor<i32>) -> tensor<2xf32>
  %moved = stablehlo.subtract %p, %own : tensor<2xf32>
  return %new, %moved : tensor<4x16xf32>, tensor<2xf32>
}

// -----

// R14, difference: two gradients of which a weight is moved one after the other.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_difference(
func.func @r14_difference(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %t = stablehlo.tanh %y : tensor<16x8xf32>
  %h = stablehlo.dot %tokens, %t : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %q = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %once = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %new = stablehlo.subtract %once, %q : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Of these the difference is taken.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_difference_not(
func.func @r14_difference_not(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %target = stablehlo.slice %tokens [0:16, 0:8] : (tensor<16x32xf32>) -> tensor<16x8xf32>
  %e = stablehlo.subtract %y, %target : tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it is subtracted from another sum, or that from it: what is left has the errors of both; gradients-of names gradients (R14)}}
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %t = stablehlo.negate %e : tensor<16x8xf32>
  %h = stablehlo.dot %tokens, %t : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it is subtracted from another sum}}
  %q = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %d = stablehlo.subtract %mine, %q : tensor<4x8xf32>
  %u = stablehlo.add %mine, %d : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// An average that moves towards the gradient, one that is kept negated, and one of which
// only the sign of the difference counts, as in Yogi: nothing is taken away.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_difference_averages(
func.func @r14_difference_averages(%w: tensor<4x8xf32>, %m: tensor<4x8xf32>, %v: tensor<4x8xf32>, %n: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %c = stablehlo.constant dense<0.1> : tensor<4x8xf32>
  %d = stablehlo.subtract %mine, %m : tensor<4x8xf32>
  %cd = stablehlo.multiply %d, %c : tensor<4x8xf32>
  %m1 = stablehlo.add %m, %cd : tensor<4x8xf32>
  %bv = stablehlo.multiply %v, %c : tensor<4x8xf32>
  %v1 = stablehlo.subtract %bv, %mine : tensor<4x8xf32>
  %sq = stablehlo.multiply %mine, %mine : tensor<4x8xf32>
  %e = stablehlo.subtract %n, %sq : tensor<4x8xf32>
  %sign = stablehlo.sign %e : tensor<4x8xf32>
  %se = stablehlo.multiply %sign, %sq : tensor<4x8xf32>
  %n1 = stablehlo.subtract %n, %se : tensor<4x8xf32>
  %once = stablehlo.add %w, %v1 : tensor<4x8xf32>
  %new = stablehlo.subtract %once, %m1 : tensor<4x8xf32>
  return %new, %m1, %v1, %n1 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Updates add up in a master of the weight: it is no average of gradients.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_difference_masters(
func.func @r14_difference_masters(%w: tensor<4x8xbf16>, %p: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xbf16>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xbf16>) -> tensor<32x8xbf16>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xbf16>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xbf16>, tensor<32x8xbf16>) -> tensor<16x8xbf16>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xbf16>, tensor<16x8xbf16>) -> tensor<32x8xbf16>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %add = stablehlo.add %a, %b : tensor<bf16>
    stablehlo.return %add : tensor<bf16>
  }) : (tensor<32x8xbf16>) -> tensor<4x8xbf16>
  %wide = stablehlo.convert %mine : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %p1 = stablehlo.subtract %p, %wide : tensor<4x8xf32>
  %new = stablehlo.convert %p1 : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  return %new, %p1 : tensor<4x8xbf16>, tensor<4x8xf32>
}

// -----

// The last gradient, as in L-BFGS.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_difference_not_last(
func.func @r14_difference_not_last(%w: tensor<4x8xf32>, %p: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it is subtracted from an earlier gradient or an average of such, which the step holds, or that from it: what is left has the errors of both; gradients-of names gradients (R14)}}
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %d = stablehlo.subtract %mine, %p : tensor<4x8xf32>
  %u = stablehlo.add %mine, %d : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x8xf32>
  return %new, %mine : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// The distance to an average, as in AdaBelief.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_difference_not_average(
func.func @r14_difference_not_average(%w: tensor<4x8xf32>, %m: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it is subtracted from an earlier gradient or an average of such, which the step holds, or that from it: what is left has the errors of both; gradients-of names gradients (R14)}}
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %c = stablehlo.constant dense<0.1> : tensor<4x8xf32>
  %bm = stablehlo.multiply %m, %c : tensor<4x8xf32>
  %cg = stablehlo.multiply %mine, %c : tensor<4x8xf32>
  %m1 = stablehlo.add %bm, %cg : tensor<4x8xf32>
  %d = stablehlo.subtract %mine, %m1 : tensor<4x8xf32>
  %sq = stablehlo.multiply %d, %d : tensor<4x8xf32>
  %s1 = stablehlo.add %s, %sq : tensor<4x8xf32>
  %u = stablehlo.divide %m1, %s1 : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x8xf32>
  return %new, %m1, %s1 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// The variance as the difference of an average of squares and a squared average.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_difference_not_variance(
func.func @r14_difference_not_variance(%w: tensor<4x8xf32>, %m: tensor<4x8xf32>, %s: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it is subtracted from an earlier gradient or an average of such, which the step holds, or that from it: what is left has the errors of both; gradients-of names gradients (R14)}}
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %c = stablehlo.constant dense<0.1> : tensor<4x8xf32>
  %bm = stablehlo.multiply %m, %c : tensor<4x8xf32>
  %cg = stablehlo.multiply %mine, %c : tensor<4x8xf32>
  %m1 = stablehlo.add %bm, %cg : tensor<4x8xf32>
  %gg = stablehlo.multiply %cg, %mine : tensor<4x8xf32>
  %bs = stablehlo.multiply %s, %c : tensor<4x8xf32>
  %s1 = stablehlo.add %bs, %gg : tensor<4x8xf32>
  %mm = stablehlo.multiply %m1, %m1 : tensor<4x8xf32>
  %d = stablehlo.subtract %s1, %mm : tensor<4x8xf32>
  %u = stablehlo.divide %mine, %d : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x8xf32>
  return %new, %m1, %s1 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A recursive estimate, as in STORM: what is held has been made of both.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_difference_not_recursive(
func.func @r14_difference_not_recursive(%w: tensor<4x8xf32>, %v: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %tokens, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it is subtracted from an earlier gradient}}
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %t = stablehlo.tanh %y : tensor<16x8xf32>
  %h = stablehlo.dot %tokens, %t : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it is subtracted from an earlier gradient}}
  %q = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %c = stablehlo.constant dense<0.1> : tensor<4x8xf32>
  %d = stablehlo.subtract %v, %q : tensor<4x8xf32>
  %cd = stablehlo.multiply %d, %c : tensor<4x8xf32>
  %v1 = stablehlo.add %mine, %cd : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %v1 : tensor<4x8xf32>
  return %new, %v1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// R16, layer: a frozen layer contracts what the trained one has made, along the dim of
// which each device has a part.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r16_layer(
func.func @r16_layer(%w: tensor<4x8xf32>, %f: tensor<1x32xf32>, %x: tensor<16x32xi32>, %s: tensor<16x32xf32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R16"
  %frozen = "stablehlo.all_gather"(%f) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x32xf32>) -> tensor<8x32xf32>
  %i = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %t = stablehlo.multiply %i, %s : tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %h = stablehlo.tanh %y : tensor<16x8xf32>
  %z = stablehlo.dot %h, %frozen : (tensor<16x8xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>
  %dy = stablehlo.dot_general %z, %frozen, contracting_dims = [1] x [1] : (tensor<16x32xf32>, tensor<8x32xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %dy : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Negatives of other devices: scores against rows, which a softmax normalizes.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r16_layer_not_scored(
func.func @r16_layer_not_scored(%w: tensor<4x8xf32>, %f: tensor<2x8xf32>, %x: tensor<16x32xi32>, %s: tensor<16x32xf32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{step input 1 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight; weights-of names weights (R4)}}
  %rows = "stablehlo.all_gather"(%f) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x8xf32>) -> tensor<16x8xf32>
  %i = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %t = stablehlo.multiply %i, %s : tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %scores = stablehlo.dot_general %y, %rows, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x16xf32>
  %p = stablehlo.exponential %scores : tensor<16x16xf32>
  %dy = stablehlo.dot %p, %rows : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %dy : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Rows that devices exchange: where no softmax weighs them, they are contracted as a
// layer contracts its weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r16_layer_not_exchanged(
func.func @r16_layer_not_exchanged(%w: tensor<8x8xf32>, %v: tensor<8x8xf32>, %batch: tensor<32x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0:2 = "sdy.manual_computation"(%w, %v, %batch) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>}> ({
  ^bb0(%w0: tensor<1x8xf32>, %v0: tensor<1x8xf32>, %own: tensor<4x8xf32>):
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %W = "stablehlo.all_gather"(%w0) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %V = "stablehlo.all_gather"(%v0) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  // expected-remark@+1 {{step input 2 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight}}
  %all = "stablehlo.all_gather"(%own) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %q = stablehlo.dot %own, %W : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %s = stablehlo.dot_general %q, %all, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  %p = stablehlo.tanh %s : tensor<4x32xf32>
  %m = stablehlo.dot %p, %all : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %y = stablehlo.dot %m, %V : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %e = stablehlo.subtract %y, %own : tensor<4x8xf32>
  %gv = stablehlo.dot_general %m, %e, contracting_dims = [0] x [0] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  %dm = stablehlo.dot_general %e, %V, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %dp = stablehlo.dot_general %dm, %all, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  %ds = stablehlo.multiply %dp, %p : tensor<4x32xf32>
  %dq = stablehlo.dot %ds, %all : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
  %gw = stablehlo.dot_general %own, %dq, contracting_dims = [0] x [0] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mv = "stablehlo.reduce_scatter"(%gv) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<1x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mw = "stablehlo.reduce_scatter"(%gw) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<1x8xf32>
  %w1 = stablehlo.subtract %w0, %mw : tensor<1x8xf32>
  %v1 = stablehlo.subtract %v0, %mv : tensor<1x8xf32>
  sdy.return %w1, %v1 : tensor<1x8xf32>, tensor<1x8xf32>
  }) : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<32x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
  return %0#0, %0#1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A batch of all devices: a weight contracts it.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r16_layer_not_batch(
func.func @r16_layer_not_batch(%w: tensor<4x8xf32>, %f: tensor<2x32xf32>, %x: tensor<16x32xi32>, %s: tensor<16x32xf32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{step input 1 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight; weights-of names weights (R4)}}
  %rows = "stablehlo.all_gather"(%f) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %i = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %t = stablehlo.multiply %i, %s : tensor<16x32xf32>
  %other = stablehlo.dot %rows, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %dy = stablehlo.add %y, %other : tensor<16x8xf32>
  %g = stablehlo.dot %t, %dy : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Keys with a sequence for each row of the batch.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r16_layer_not_cache(
func.func @r16_layer_not_cache(%w: tensor<4x8xf32>, %f: tensor<2x8xf32>, %x: tensor<16x32xi32>, %s: tensor<16x32xf32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{step input 1 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight; weights-of names weights (R4)}}
  %rows = "stablehlo.all_gather"(%f) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x8xf32>) -> tensor<16x8xf32>
  %i = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %t = stablehlo.multiply %i, %s : tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %d = stablehlo.dot_general %y, %rows, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16xf32>
  %all = stablehlo.broadcast_in_dim %d, dims = [0] : (tensor<16xf32>) -> tensor<16x8xf32>
  %dy = stablehlo.multiply %y, %all : tensor<16x8xf32>
  %g = stablehlo.dot %t, %dy : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// A mask is added, not contracted.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r16_layer_not_mask(
func.func @r16_layer_not_mask(%w: tensor<4x8xf32>, %f: tensor<2x8xf32>, %x: tensor<16x32xi32>, %s: tensor<16x32xf32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{step input 1 seems to be data: no gradient of its shape is reduced, nothing that the step returns is made of it element by element, and no layer takes it as its weight; weights-of names weights (R4)}}
  %rows = "stablehlo.all_gather"(%f) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x8xf32>) -> tensor<16x8xf32>
  %i = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %t = stablehlo.multiply %i, %s : tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %dy = stablehlo.add %y, %rows : tensor<16x8xf32>
  %g = stablehlo.dot %t, %dy : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// R19, moment: a product of it and its transpose is made first.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r19_moment(
func.func @r19_moment(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  // CHECK: "stablehlo.all_gather"{{.*}} role = "moment", rule = "R19"
  // expected-remark@+1 {{it moves a gradient or momentum, which products contract before it updates a weight, or this update; moments=i8 rounds what is sent (R19)}}
  %all = "stablehlo.all_gather"(%moment) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %gram = stablehlo.dot_general %all, %all, contracting_dims = [1] x [1] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %odd = stablehlo.dot %gram, %all : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %u = stablehlo.subtract %all, %odd : tensor<32x32xf32>
  %id = stablehlo.partition_id : tensor<ui32>
  %index = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
  %rows = stablehlo.constant dense<4> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %begin = stablehlo.multiply %index, %rows : tensor<i32>
  %own = stablehlo.dynamic_slice %u, %begin, %zero, sizes = [4, 32] : (tensor<32x32xf32>, tensor<i32>, tensor<i32>) -> tensor<4x32xf32>
  %new = stablehlo.subtract %w, %own : tensor<4x32xf32>
  return %new, %moment : tensor<4x32xf32>, tensor<4x32xf32>
}

// -----

// A callback in a function reads the update.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r19_moment_not_watched(
func.func @r19_moment_not_watched(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  // expected-remark@+1 {{stablehlo.custom_call reads what follows from it, and only products, reductions and elementwise ops are known to bear it (R19)}}
  %all = "stablehlo.all_gather"(%moment) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %gram = stablehlo.dot_general %all, %all, contracting_dims = [1] x [1] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %odd = stablehlo.dot %gram, %all : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %u = stablehlo.subtract %all, %odd : tensor<32x32xf32>
  %id = stablehlo.partition_id : tensor<ui32>
  %index = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
  %rows = stablehlo.constant dense<4> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %begin = stablehlo.multiply %index, %rows : tensor<i32>
  %own = stablehlo.dynamic_slice %u, %begin, %zero, sizes = [4, 32] : (tensor<32x32xf32>, tensor<i32>, tensor<i32>) -> tensor<4x32xf32>
  %loss = stablehlo.constant dense<0.0> : tensor<f32>
  %same = func.call @watch(%u, %loss) : (tensor<32x32xf32>, tensor<f32>) -> tensor<f32>
  %new = stablehlo.subtract %w, %own : tensor<4x32xf32>
  return %new, %moment : tensor<4x32xf32>, tensor<4x32xf32>
}
func.func private @watch(%u: tensor<32x32xf32>, %loss: tensor<f32>) -> tensor<f32> {
  stablehlo.custom_call @callback(%u) {has_side_effect = true} : (tensor<32x32xf32>) -> ()
  return %loss : tensor<f32>
}

// -----

// A momentum that is multiplied by what the step keeps of others.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r19_moment_not(
func.func @r19_moment_not(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %q: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  // expected-remark@+1 {{it moves a gradient or momentum that products contract, or its update, and needs it as it is: a product contracts it with something else: a root, a projection, or a device's part, where products are split, which moments=i8 joins, or says in a remark why not (R19)}}
  %all = "stablehlo.all_gather"(%moment) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %u = stablehlo.dot %q, %all : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x32xf32>
  %next = stablehlo.add %q, %mine : tensor<4x32xf32>
  return %new, %moment, %next : tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>
}

// -----

// An owner gets the parts of its momentum, and sends the parts of its update. A block
// is of one row.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r19_owner(
func.func @r19_owner(%w: tensor<8x4x32xf32>, %m: tensor<8x4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<8x4x32xf32>, tensor<8x4x32xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<8x4x32xf32>) -> tensor<8x32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot_general %tokens, %whole, contracting_dims = [1] x [1] : (tensor<16x32xf32>, tensor<8x32x32xf32>) -> tensor<16x8x32xf32>
  %targets = stablehlo.broadcast_in_dim %tokens, dims = [0, 2] : (tensor<16x32xf32>) -> tensor<16x8x32xf32>
  %e = stablehlo.subtract %y, %targets : tensor<16x8x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x8x32xf32>) -> tensor<32x8x32xf32>
  %stack = stablehlo.transpose %g, dims = [1, 0, 2] : (tensor<32x8x32xf32>) -> tensor<8x32x32xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%stack) <{scatter_dimension = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x32x32xf32>) -> tensor<8x4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<8x4x32xf32>
  // CHECK: "stablehlo.all_to_all"{{.*}} block = 32{{.*}} role = "moment", rule = "R19"
  // expected-remark@+1 {{it moves a gradient or momentum, which products contract before it updates a weight, or this update; moments=i8 rounds what is sent (R19)}}
  %all = "stablehlo.all_to_all"(%moment) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<8x4x32xf32>) -> tensor<1x32x32xf32>
  %gram = stablehlo.dot_general %all, %all, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<1x32x32xf32>, tensor<1x32x32xf32>) -> tensor<1x32x32xf32>
  %odd = stablehlo.dot_general %gram, %all, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x32x32xf32>, tensor<1x32x32xf32>) -> tensor<1x32x32xf32>
  %u = stablehlo.subtract %all, %odd : tensor<1x32x32xf32>
  // CHECK: "stablehlo.all_to_all"{{.*}} block = 32{{.*}} role = "moment", rule = "R19"
  // expected-remark@+1 {{it moves a gradient or momentum, which products contract before it updates a weight, or this update; moments=i8 rounds what is sent (R19)}}
  %own = "stablehlo.all_to_all"(%u) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x32x32xf32>) -> tensor<8x4x32xf32>
  %new = stablehlo.subtract %w, %own : tensor<8x4x32xf32>
  return %new, %moment : tensor<8x4x32xf32>, tensor<8x4x32xf32>
}

// -----

// An owner updates weights with what it sends, which is rounded for others.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r19_owner_not(
func.func @r19_owner_not(%w: tensor<8x4x32xf32>, %m: tensor<8x4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<8x4x32xf32>, tensor<8x4x32xf32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<8x4x32xf32>) -> tensor<8x32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot_general %tokens, %whole, contracting_dims = [1] x [1] : (tensor<16x32xf32>, tensor<8x32x32xf32>) -> tensor<16x8x32xf32>
  %targets = stablehlo.broadcast_in_dim %tokens, dims = [0, 2] : (tensor<16x32xf32>) -> tensor<16x8x32xf32>
  %e = stablehlo.subtract %y, %targets : tensor<16x8x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x8x32xf32>) -> tensor<32x8x32xf32>
  %stack = stablehlo.transpose %g, dims = [1, 0, 2] : (tensor<32x8x32xf32>) -> tensor<8x32x32xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%stack) <{scatter_dimension = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<8x32x32xf32>) -> tensor<8x4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<8x4x32xf32>
  // expected-remark@+1 {{it moves a gradient or momentum, which products contract before it updates a weight, or this update; moments=i8 rounds what is sent (R19)}}
  %all = "stablehlo.all_to_all"(%moment) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<8x4x32xf32>) -> tensor<1x32x32xf32>
  %gram = stablehlo.dot_general %all, %all, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<1x32x32xf32>, tensor<1x32x32xf32>) -> tensor<1x32x32xf32>
  %odd = stablehlo.dot_general %gram, %all, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x32x32xf32>, tensor<1x32x32xf32>) -> tensor<1x32x32xf32>
  %u = stablehlo.subtract %all, %odd : tensor<1x32x32xf32>
  // expected-remark@+1 {{it moves a gradient or momentum that products contract, or its update, and needs it as it is: devices update weights with what they send, too, and copies of a weight could differ (R19)}}
  %own = "stablehlo.all_to_all"(%u) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x32x32xf32>) -> tensor<8x4x32xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %part = stablehlo.slice %u [0:1, 0:4, 0:32] : (tensor<1x32x32xf32>) -> tensor<1x4x32xf32>
  %mixed = stablehlo.dynamic_update_slice %own, %part, %zero, %zero, %zero : (tensor<8x4x32xf32>, tensor<1x4x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x4x32xf32>
  %new = stablehlo.subtract %w, %mixed : tensor<8x4x32xf32>
  return %new, %moment : tensor<8x4x32xf32>, tensor<8x4x32xf32>
}

// -----

// R20, exchange: each device has the weights of an expert, which takes or makes the
// rows.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r20_exchange(
func.func @r20_exchange(%w: tensor<32x32xf32>, %up: tensor<8x32x32xf32>, %x: tensor<128x32xi32>) -> (tensor<32x32xf32>, tensor<8x32x32xf32>) {
  %r:2 = sdy.manual_computation(%w, %up, %x) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}, {}]>, <@mesh, [{"node", "gpu"}, {}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}, {}]>] manual_axes={"node", "gpu"} (%own: tensor<4x32xf32>, %expert: tensor<1x32x32xf32>, %ids: tensor<16x32xi32>) {
    %whole = "stablehlo.all_gather"(%own) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
    %tokens = stablehlo.convert %ids : (tensor<16x32xi32>) -> tensor<16x32xf32>
    %h = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %some = stablehlo.slice %h [0:8, 0:32] : (tensor<16x32xf32>) -> tensor<8x32xf32>
    %rows = stablehlo.reshape %some : (tensor<8x32xf32>) -> tensor<8x1x32xf32>
    // CHECK: "stablehlo.all_to_all"{{.*}} role = "exchange", rule = "R20"
    // expected-remark@+1 {{it exchanges rows with experts; exchanges=i8 rounds what is sent (R20)}}
    %sent = "stablehlo.all_to_all"(%rows) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<8x1x32xf32>) -> tensor<1x8x32xf32>
    %made = stablehlo.dot_general %sent, %expert, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x8x32xf32>, tensor<1x32x32xf32>) -> tensor<1x8x32xf32>
    // expected-remark@+1 {{it exchanges rows with experts; exchanges=i8 rounds what is sent (R20)}}
    %back = "stablehlo.all_to_all"(%made) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8x32xf32>) -> tensor<8x1x32xf32>
    %found = stablehlo.reshape %back : (tensor<8x1x32xf32>) -> tensor<8x32xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %padded = stablehlo.pad %found, %zero, low = [0, 0], high = [8, 0], interior = [0, 0] : (tensor<8x32xf32>, tensor<f32>) -> tensor<16x32xf32>
    %y = stablehlo.add %h, %padded : tensor<16x32xf32>
    %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
    %part = stablehlo.slice %e [0:8, 0:32] : (tensor<16x32xf32>) -> tensor<8x32xf32>
    %errors = stablehlo.reshape %part : (tensor<8x32xf32>) -> tensor<8x1x32xf32>
    // expected-remark@+1 {{it exchanges rows with experts; exchanges=i8 rounds what is sent (R20)}}
    %dz = "stablehlo.all_to_all"(%errors) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<8x1x32xf32>) -> tensor<1x8x32xf32>
    %dr = stablehlo.dot_general %dz, %expert, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<1x8x32xf32>, tensor<1x32x32xf32>) -> tensor<1x8x32xf32> loc("transpose(jvp())/dot_general")
    // expected-remark@+1 {{it exchanges rows with experts; exchanges=i8 rounds what is sent (R20)}}
    %dx = "stablehlo.all_to_all"(%dr) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8x32xf32>) -> tensor<8x1x32xf32>
    %flat = stablehlo.reshape %dx : (tensor<8x1x32xf32>) -> tensor<8x32xf32>
    %more = stablehlo.pad %flat, %zero, low = [0, 0], high = [8, 0], interior = [0, 0] : (tensor<8x32xf32>, tensor<f32>) -> tensor<16x32xf32>
    %dh = stablehlo.add %e, %more : tensor<16x32xf32>
    %g = stablehlo.dot_general %tokens, %dh, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32> loc("transpose(jvp())/dot_general")
    // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
    %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %add = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %add : tensor<f32>
    }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
    %de = stablehlo.dot_general %sent, %dz, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<1x8x32xf32>, tensor<1x8x32xf32>) -> tensor<1x32x32xf32> loc("transpose(jvp())/dot_general")
    %new = stablehlo.subtract %own, %mine : tensor<4x32xf32>
    %next = stablehlo.subtract %expert, %de : tensor<1x32x32xf32>
    sdy.return %new, %next : tensor<4x32xf32>, tensor<1x32x32xf32>
  } : (tensor<32x32xf32>, tensor<8x32x32xf32>, tensor<128x32xi32>) -> (tensor<32x32xf32>, tensor<8x32x32xf32>)
  return %r#0, %r#1 : tensor<32x32xf32>, tensor<8x32x32xf32>
}

// -----

// All devices have the same weights: they share work, not experts.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r20_exchange_not(
func.func @r20_exchange_not(%w: tensor<32x32xf32>, %up: tensor<1x32x32xf32>, %x: tensor<128x32xi32>) -> (tensor<32x32xf32>, tensor<1x32x32xf32>) {
  %r:2 = sdy.manual_computation(%w, %up, %x) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{}, {}, {}]>, <@mesh, [{"node", "gpu"}, {}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{}, {}, {}]>] manual_axes={"node", "gpu"} (%own: tensor<4x32xf32>, %expert: tensor<1x32x32xf32>, %ids: tensor<16x32xi32>) {
    %whole = "stablehlo.all_gather"(%own) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
    %tokens = stablehlo.convert %ids : (tensor<16x32xi32>) -> tensor<16x32xf32>
    %h = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %some = stablehlo.slice %h [0:8, 0:32] : (tensor<16x32xf32>) -> tensor<8x32xf32>
    %rows = stablehlo.reshape %some : (tensor<8x32xf32>) -> tensor<8x1x32xf32>
    // CHECK: "stablehlo.all_to_all"{{.*}} role = "other", rule = "R20"
    // expected-remark@+1 {{it moves no rows of experts: no product with a weight that each device has for itself takes or makes them; weights-of names weights (R20)}}
    %sent = "stablehlo.all_to_all"(%rows) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<8x1x32xf32>) -> tensor<1x8x32xf32>
    %made = stablehlo.dot_general %sent, %expert, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x8x32xf32>, tensor<1x32x32xf32>) -> tensor<1x8x32xf32>
    // expected-remark@+1 {{it moves no rows of experts: no product with a weight that each device has for itself takes or makes them; weights-of names weights (R20)}}
    %back = "stablehlo.all_to_all"(%made) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8x32xf32>) -> tensor<8x1x32xf32>
    %found = stablehlo.reshape %back : (tensor<8x1x32xf32>) -> tensor<8x32xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %padded = stablehlo.pad %found, %zero, low = [0, 0], high = [8, 0], interior = [0, 0] : (tensor<8x32xf32>, tensor<f32>) -> tensor<16x32xf32>
    %y = stablehlo.add %h, %padded : tensor<16x32xf32>
    %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
    %part = stablehlo.slice %e [0:8, 0:32] : (tensor<16x32xf32>) -> tensor<8x32xf32>
    %errors = stablehlo.reshape %part : (tensor<8x32xf32>) -> tensor<8x1x32xf32>
    // expected-remark@+1 {{it moves no rows of experts: no product with a weight that each device has for itself takes or makes them; weights-of names weights (R20)}}
    %dz = "stablehlo.all_to_all"(%errors) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<8x1x32xf32>) -> tensor<1x8x32xf32>
    %dr = stablehlo.dot_general %dz, %expert, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<1x8x32xf32>, tensor<1x32x32xf32>) -> tensor<1x8x32xf32> loc("transpose(jvp())/dot_general")
    // expected-remark@+1 {{it moves no rows of experts: no product with a weight that each device has for itself takes or makes them; weights-of names weights (R20)}}
    %dx = "stablehlo.all_to_all"(%dr) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8x32xf32>) -> tensor<8x1x32xf32>
    %flat = stablehlo.reshape %dx : (tensor<8x1x32xf32>) -> tensor<8x32xf32>
    %more = stablehlo.pad %flat, %zero, low = [0, 0], high = [8, 0], interior = [0, 0] : (tensor<8x32xf32>, tensor<f32>) -> tensor<16x32xf32>
    %dh = stablehlo.add %e, %more : tensor<16x32xf32>
    %g = stablehlo.dot_general %tokens, %dh, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32> loc("transpose(jvp())/dot_general")
    // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
    %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %add = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %add : tensor<f32>
    }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
    %de = stablehlo.dot_general %sent, %dz, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<1x8x32xf32>, tensor<1x8x32xf32>) -> tensor<1x32x32xf32> loc("transpose(jvp())/dot_general")
    %new = stablehlo.subtract %own, %mine : tensor<4x32xf32>
    %next = stablehlo.subtract %expert, %de : tensor<1x32x32xf32>
    sdy.return %new, %next : tensor<4x32xf32>, tensor<1x32x32xf32>
  } : (tensor<32x32xf32>, tensor<1x32x32xf32>, tensor<128x32xi32>) -> (tensor<32x32xf32>, tensor<1x32x32xf32>)
  return %r#0, %r#1 : tensor<32x32xf32>, tensor<1x32x32xf32>
}
