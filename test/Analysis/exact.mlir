// RUN: zpp-opt %s --zero-import-collectives --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s --implicit-check-not=exact

// What is never rounded, and what is told apart for it (docs/rules.md): bits (R17), the
// points of a difference of gradients (R14), integers that a layer takes (R16),
// broadcasts (R1), weights that wait in a loop (R6), and stacks (R18). Each has a step that the rule
// lets pass and one that it stops.

// R17, bits: a view as the same type shows numbers.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r17_bits(
func.func @r17_bits(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %same = stablehlo.bitcast_convert %whole : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %same : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
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

// Packed integers that are stored as bf16. They are kept within a node as they are.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r17_bits_not(
func.func @r17_bits_not(%w: tensor<4x8xf32>, %base: tensor<1x4xbf16>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<1x4xbf16>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} exact = "its elements are bits, not numbers: the step reads them as i8 (R17)", floor = "none"
  %bits = "stablehlo.all_gather"(%base) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x4xbf16>) -> tensor<8x4xbf16>
  %bytes = stablehlo.bitcast_convert %bits : (tensor<8x4xbf16>) -> tensor<8x4x2xi8>
  %rows = stablehlo.reshape %bytes : (tensor<8x4x2xi8>) -> tensor<8x8xi8>
  %base32 = stablehlo.convert %rows : (tensor<8x8xi8>) -> tensor<8x8xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %h = stablehlo.tanh %y : tensor<16x8xf32>
  %z = stablehlo.dot %h, %base32 : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %dy = stablehlo.dot_general %z, %base32, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %dy : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new, %base : tensor<4x8xf32>, tensor<1x4xbf16>
}

// -----

// Bits that one device sends by a sum.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r17_bits_not_summed(
func.func @r17_bits_not_summed(%w: tensor<4x8xf32>, %m: tensor<32x8xui32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<32x8xui32>) {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  %codes = stablehlo.bitcast_convert %m : (tensor<32x8xui32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it sums bits, not numbers: the step reads them as ui32 (R17)}}
  %all = "stablehlo.all_reduce"(%codes) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  %back = stablehlo.bitcast_convert %all : (tensor<32x8xf32>) -> tensor<32x8xui32>
  return %new, %back : tensor<4x8xf32>, tensor<32x8xui32>
}

// -----

// Numbers that are codes: the step reads whole ones.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r17_bits_not_codes(
func.func @r17_bits_not_codes(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} exact = "its elements are bits, not numbers: the step reads them as i32 (R17)", floor = "none"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %codes = stablehlo.convert %whole : (tensor<32x8xf32>) -> tensor<32x8xi32>
  %numbers = stablehlo.convert %codes : (tensor<32x8xi32>) -> tensor<32x8xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %numbers : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %y2 = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %sum = stablehlo.add %y, %y2 : tensor<16x8xf32>
  %g = stablehlo.dot %t, %sum : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
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

// R14, difference: at two points of the weights, which are not rounded either.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_points_not(
func.func @r14_points_not(%w: tensor<4x8xf32>, %r: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  // CHECK: zero.all_gather {{.*}} exact = "the step subtracts gradients at two points that are close to each other, of which this is one; gradients-of names gradients (R14)", floor = "none"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // expected-remark@+1 {{it is subtracted from another sum, or that from it: what is left has the errors of both; gradients-of names gradients (R14)}}
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %moved = stablehlo.add %w, %r : tensor<4x8xf32>
  // CHECK: zero.all_gather {{.*}} exact = "the step subtracts gradients at two points that are close to each other, of which this is one; gradients-of names gradients (R14)", floor = "none"
  %whole2 = "stablehlo.all_gather"(%moved) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %y2 = stablehlo.dot %t, %whole2 : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g2 = stablehlo.dot %t, %y2 : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // expected-remark@+1 {{it is subtracted from another sum, or that from it: what is left has the errors of both; gradients-of names gradients (R14)}}
  %there = "stablehlo.reduce_scatter"(%g2) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %d = stablehlo.subtract %there, %mine : tensor<4x8xf32>
  %m = stablehlo.add %mine, %d : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %m : tensor<4x8xf32>
  return %new, %r : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Two gradients at one point: the weights are rounded.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_points(
func.func @r14_points(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // expected-remark@+1 {{it is subtracted from another sum, or that from it: what is left has the errors of both; gradients-of names gradients (R14)}}
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %h = stablehlo.tanh %y : tensor<16x8xf32>
  %g2 = stablehlo.dot %t, %h : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // expected-remark@+1 {{it is subtracted from another sum, or that from it: what is left has the errors of both; gradients-of names gradients (R14)}}
  %there = "stablehlo.reduce_scatter"(%g2) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %d = stablehlo.subtract %there, %mine : tensor<4x8xf32>
  %new = stablehlo.subtract %w, %d : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// Losses at two points, whose layers take the mean of a batch on all devices.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r14_points_not_of_losses(
func.func @r14_points_not_of_losses(%w: tensor<4x32xf32>, %z: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> tensor<4x32xf32> {
  %z0 = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.constant dense<0.001> : tensor<4x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %rz = stablehlo.multiply %r, %z : tensor<4x32xf32>
  %w2 = stablehlo.add %w, %rz : tensor<4x32xf32>
  // CHECK: zero.all_gather {{.*}} exact = "the step subtracts gradients at two points that are close to each other, of which this is one; gradients-of names gradients (R14)", floor = "none"
  %A = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  // expected-remark@+1 {{its operand is computed in the step, not a weight (R5)}}
  %B = "stablehlo.all_gather"(%w2) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %ay = stablehlo.dot %tokens, %A : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %as = stablehlo.reduce(%ay init: %z0) applies stablehlo.add across dimensions = [0] : (tensor<16x32xf32>, tensor<f32>) -> tensor<32xf32>
  // expected-remark@+1 {{it sums activations (R13)}}
  %am = "stablehlo.all_reduce"(%as) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32xf32>) -> tensor<32xf32>
  %amb = stablehlo.broadcast_in_dim %am, dims = [1] : (tensor<32xf32>) -> tensor<16x32xf32>
  %an = stablehlo.subtract %ay, %amb : tensor<16x32xf32>
  %ae = stablehlo.subtract %an, %tokens : tensor<16x32xf32>
  %asq = stablehlo.multiply %ae, %ae : tensor<16x32xf32>
  %al = stablehlo.reduce(%asq init: %z0) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32xf32>, tensor<f32>) -> tensor<f32>
  %by = stablehlo.dot %tokens, %B : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %bs = stablehlo.reduce(%by init: %z0) applies stablehlo.add across dimensions = [0] : (tensor<16x32xf32>, tensor<f32>) -> tensor<32xf32>
  // expected-remark@+1 {{it mirrors no weight gather, and no result of the step is made of it element by element (R11)}}
  %bm = "stablehlo.all_reduce"(%bs) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32xf32>) -> tensor<32xf32>
  %bmb = stablehlo.broadcast_in_dim %bm, dims = [1] : (tensor<32xf32>) -> tensor<16x32xf32>
  %bn = stablehlo.subtract %by, %bmb : tensor<16x32xf32>
  %be = stablehlo.subtract %bn, %tokens : tensor<16x32xf32>
  %bsq = stablehlo.multiply %be, %be : tensor<16x32xf32>
  %bl = stablehlo.reduce(%bsq init: %z0) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32xf32>, tensor<f32>) -> tensor<f32>
  %d = stablehlo.subtract %bl, %al : tensor<f32>
  %g = stablehlo.dot_general %tokens, %ae, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %db = stablehlo.broadcast_in_dim %d, dims = [] : (tensor<f32>) -> tensor<4x32xf32>
  %k = stablehlo.multiply %db, %z : tensor<4x32xf32>
  %u = stablehlo.add %k, %mine : tensor<4x32xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x32xf32>
  return %new : tensor<4x32xf32>
}

// -----

// R16, layer: a base of integers.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r16_integers(
func.func @r16_integers(%w: tensor<4x8xf32>, %base: tensor<1x8xui8>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} exact = "its elements are integers (R1)", floor = "none", {{.*}} role = "weight", rule = "R16"
  %codes = "stablehlo.all_gather"(%base) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x8xui8>) -> tensor<8x8xui8>
  %base32 = stablehlo.convert %codes : (tensor<8x8xui8>) -> tensor<8x8xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %h = stablehlo.tanh %y : tensor<16x8xf32>
  %z = stablehlo.dot %h, %base32 : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %dy = stablehlo.dot_general %z, %base32, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
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

// Tokens of all devices, which a layer contracts with its weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r16_integers_not(
func.func @r16_integers_not(%w: tensor<4x8xf32>, %x: tensor<2x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it gathers data, not a weight: step input 1 has elements of type i32, and no layer takes it as its weight; weights-of names weights (R4)}}
  %all = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x32xi32>) -> tensor<16x32xi32>
  %t = stablehlo.convert %all : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
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

// R1, form: an owner's broadcast of what it has made of a gradient, as Muon does.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r1_broadcast_not(
func.func @r1_broadcast_not(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // CHECK: zero.all_reduce {{.*}} role = "gradient", rule = "R10"
  %mine = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %gram = stablehlo.dot_general %mine, %mine, contracting_dims = [0] x [0] : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<8x8xf32>
  %u = stablehlo.dot %mine, %gram : (tensor<32x8xf32>, tensor<8x8xf32>) -> tensor<32x8xf32>
  %me = stablehlo.partition_id : tensor<ui32>
  %three = stablehlo.constant dense<3> : tensor<ui32>
  %zero = stablehlo.constant dense<0.0> : tensor<32x8xf32>
  %is = stablehlo.compare EQ, %me, %three : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
  %mask = stablehlo.broadcast_in_dim %is, dims = [] : (tensor<i1>) -> tensor<32x8xi1>
  %own = stablehlo.select %mask, %u, %zero : tensor<32x8xi1>, tensor<32x8xf32>
  // expected-remark@+1 {{it broadcasts what one device has, to which the others add zeros: it sums nothing (R1)}}
  %all = "stablehlo.all_reduce"(%own) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %i = stablehlo.constant dense<0> : tensor<i32>
  %part = stablehlo.slice %all [0:4, 0:8] : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %part : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// A gradient of three devices is a sum.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r1_broadcast(
func.func @r1_broadcast(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %whole : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  %me = stablehlo.partition_id : tensor<ui32>
  %three = stablehlo.constant dense<3> : tensor<ui32>
  %zero = stablehlo.constant dense<0.0> : tensor<32x8xf32>
  %is = stablehlo.compare LT, %me, %three : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
  %mask = stablehlo.broadcast_in_dim %is, dims = [] : (tensor<i1>) -> tensor<32x8xi1>
  %own = stablehlo.select %mask, %g, %zero : tensor<32x8xi1>, tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%own) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// R6, use: a weight waits in a loop for the next iteration.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r6_ahead(
func.func @r6_ahead(%w: tensor<4x32xf32>, %v: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %first = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %0:3 = stablehlo.while(%i = %c0, %h = %t, %current = %first) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %y = stablehlo.dot %h, %current : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
    %next = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %y, %next : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>
  }
  %g = stablehlo.dot_general %t, %0#1, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x32xf32>
  %also = stablehlo.subtract %v, %mine : tensor<4x32xf32>
  return %new, %also : tensor<4x32xf32>, tensor<4x32xf32>
}

// -----

// Nobody reads what waits.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r6_ahead_not(
func.func @r6_ahead_not(%w: tensor<4x32xf32>, %v: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R4"
  %first = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %0:3 = stablehlo.while(%i = %c0, %h = %t, %current = %first) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %y = stablehlo.dot %h, %first : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    // expected-remark@+1 {{no gradient is computed from it; weights-of names weights (R6)}}
    %next = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %y, %next : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>
  }
  %g = stablehlo.dot_general %t, %0#1, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32> loc("jit(step)/transpose(jvp())/dot_general")
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R10"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x32xf32>
  %also = stablehlo.subtract %v, %mine : tensor<4x32xf32>
  return %new, %also : tensor<4x32xf32>, tensor<4x32xf32>
}

// -----

// R3, state: the gradient of a weight that is divided by its norm, one number, holds it.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r3_norm(
func.func @r3_norm(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> tensor<4x8xf32> {
  // expected-remark@+1 {{it gathers state, which is not rounded: result 0 of the step is made of it element by element (R3)}}
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %squares = stablehlo.multiply %whole, %whole : tensor<32x8xf32>
  %square = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<32x8xf32>, tensor<f32>) -> tensor<f32>
  %norm = stablehlo.sqrt %square : tensor<f32>
  %norms = stablehlo.broadcast_in_dim %norm, dims = [] : (tensor<f32>) -> tensor<32x8xf32>
  %unit = stablehlo.divide %whole, %norms : tensor<32x8xf32>
  %y = stablehlo.dot %t, %unit : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %dy = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  %g = stablehlo.subtract %dy, %unit : tensor<32x8xf32>
  // expected-remark@+1 {{element by element; a norm that a weight is divided by is better computed before the gather (R3)}}
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %w, %mine : tensor<4x8xf32>
  return %new : tensor<4x8xf32>
}

// -----

// ZeRO-1: devices gather weights of which each has updated a part.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @r3_updated(
func.func @r3_updated(%w: tensor<32x8xf32>, %x: tensor<16x32xi32>) -> tensor<32x8xf32> {
  %t = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %t, %w : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %t, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient", rule = "R9"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %part = stablehlo.slice %w [0:4, 0:8] : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %new = stablehlo.subtract %part, %mine : tensor<4x8xf32>
  // expected-remark@+1 {{element by element; updated=i8 sends by how much it has changed (R3)}}
  %all = "stablehlo.all_gather"(%new) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  return %all : tensor<32x8xf32>
}

// -----

// R18, stack: a device has a block of 32 of each matrix.

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()
// CHECK-LABEL: func @r18_stack(
func.func @r18_stack(%w: tensor<2x4x8xf32>, %x: tensor<16x32xi32>) -> tensor<2x4x8xf32> {
  // CHECK: zero.all_gather {{.*}} block = 32
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x4x8xf32>) -> tensor<2x32x8xf32>
  %a = "stablehlo.slice"(%whole) <{start_indices = array<i64: 0, 0, 0>, limit_indices = array<i64: 1, 32, 8>, strides = array<i64: 1, 1, 1>}> : (tensor<2x32x8xf32>) -> tensor<1x32x8xf32>
  %b = "stablehlo.slice"(%whole) <{start_indices = array<i64: 1, 0, 0>, limit_indices = array<i64: 2, 32, 8>, strides = array<i64: 1, 1, 1>}> : (tensor<2x32x8xf32>) -> tensor<1x32x8xf32>
  %first = "stablehlo.reshape"(%a) : (tensor<1x32x8xf32>) -> tensor<32x8xf32>
  %second = "stablehlo.reshape"(%b) : (tensor<1x32x8xf32>) -> tensor<32x8xf32>
  %t = "stablehlo.convert"(%x) : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = "stablehlo.dot"(%t, %first) : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %z = "stablehlo.dot"(%t, %second) : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %dy = "stablehlo.dot"(%t, %y) : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  %dz = "stablehlo.dot"(%t, %z) : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  %ra = "stablehlo.reshape"(%dy) : (tensor<32x8xf32>) -> tensor<1x32x8xf32>
  %rb = "stablehlo.reshape"(%dz) : (tensor<32x8xf32>) -> tensor<1x32x8xf32>
  %g = "stablehlo.concatenate"(%ra, %rb) <{dimension = 0 : i64}> : (tensor<1x32x8xf32>, tensor<1x32x8xf32>) -> tensor<2x32x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} block = 32
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %add = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%add) : (tensor<f32>) -> ()
  }) : (tensor<2x32x8xf32>) -> tensor<2x4x8xf32>
  %new = "stablehlo.subtract"(%w, %mine) : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %new : tensor<2x4x8xf32>
}

// -----

// A device has 16 elements of each.

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()
// CHECK-LABEL: func @r18_stack_not(
func.func @r18_stack_not(%w: tensor<2x2x8xf32>, %x: tensor<16x16xi32>) -> tensor<2x2x8xf32> {
  // CHECK: zero.all_gather {{.*}} exact = "a device has 16 elements of each of its parameters, which are no whole blocks (R18)", floor = "none"
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x2x8xf32>) -> tensor<2x16x8xf32>
  %a = "stablehlo.slice"(%whole) <{start_indices = array<i64: 0, 0, 0>, limit_indices = array<i64: 1, 16, 8>, strides = array<i64: 1, 1, 1>}> : (tensor<2x16x8xf32>) -> tensor<1x16x8xf32>
  %b = "stablehlo.slice"(%whole) <{start_indices = array<i64: 1, 0, 0>, limit_indices = array<i64: 2, 16, 8>, strides = array<i64: 1, 1, 1>}> : (tensor<2x16x8xf32>) -> tensor<1x16x8xf32>
  %first = "stablehlo.reshape"(%a) : (tensor<1x16x8xf32>) -> tensor<16x8xf32>
  %second = "stablehlo.reshape"(%b) : (tensor<1x16x8xf32>) -> tensor<16x8xf32>
  %t = "stablehlo.convert"(%x) : (tensor<16x16xi32>) -> tensor<16x16xf32>
  %y = "stablehlo.dot"(%t, %first) : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %z = "stablehlo.dot"(%t, %second) : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %dy = "stablehlo.dot"(%t, %y) : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %dz = "stablehlo.dot"(%t, %z) : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %ra = "stablehlo.reshape"(%dy) : (tensor<16x8xf32>) -> tensor<1x16x8xf32>
  %rb = "stablehlo.reshape"(%dz) : (tensor<16x8xf32>) -> tensor<1x16x8xf32>
  %g = "stablehlo.concatenate"(%ra, %rb) <{dimension = 0 : i64}> : (tensor<1x16x8xf32>, tensor<1x16x8xf32>) -> tensor<2x16x8xf32>
  // CHECK: zero.reduce_scatter {{.*}} exact = "a device has 16 elements of each of its parameters, which are no whole blocks (R18)", floor = "none"
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %add = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%add) : (tensor<f32>) -> ()
  }) : (tensor<2x16x8xf32>) -> tensor<2x2x8xf32>
  %new = "stablehlo.subtract"(%w, %mine) : (tensor<2x2x8xf32>, tensor<2x2x8xf32>) -> tensor<2x2x8xf32>
  return %new : tensor<2x2x8xf32>
}
