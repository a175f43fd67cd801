// RUN: zpp-opt %s --zero-plan-loops="gradients min-usec=0" --zero-write-loops --split-input-file \
// RUN:   | FileCheck %s

// A step adds up stacks, which a scan over layers leaves in each micro-batch, and
// sends the sum after the loop. Of the last micro-batch, an iteration of the scan
// adds its layer to that of the earlier ones, and sends it.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// Each device updates a slice of each layer. The stack of slices is another one
// than that of the gradients, which is not written any more.
// CHECK-LABEL: func @slices
// CHECK: %[[SUMS:.*]]:3 = stablehlo.while(
// CHECK: stablehlo.while(
// CHECK: %[[SCAN:.*]]:4 = stablehlo.while(%[[K:[^ ]+]] = {{[^,]+}}, %{{.*}} = {{[^,]+}}, %[[OLD:[^ ]+]] = {{[^,]+}}, %[[STACK:[^ ]+]] = {{[^,]+}})
// CHECK: } do {
// CHECK: %[[AT:.*]] = stablehlo.subtract %{{.*}}, %[[K]]
// CHECK: stablehlo.dynamic_slice %[[SUMS]]#1, %[[AT]],
// CHECK: %[[LAYER:.*]] = stablehlo.tanh
// CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %{{.*}}, %[[LAYER]]
// CHECK-NEXT: %[[MEAN:.*]] = stablehlo.divide %[[SUM]],
// CHECK-NEXT: %[[A:.*]] = zero.from_local %[[MEAN]] : tensor<1x32xf32> to <1x32xf32, dim 1 = (2, 4) on #mesh>
// CHECK-NEXT: %[[B:.*]] = zero.reduce_scatter sum %[[A]] along ["gpu"]
// CHECK: stablehlo.cosine
// CHECK: %[[C:.*]] = zero.reduce_scatter sum %[[B]] along ["node"]
// CHECK: %[[D:.*]] = zero.to_local %[[C]] : <1x32xf32, dim 1 = ("node", "gpu") on #mesh> to tensor<1x4xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[STACK]], %{{.*}}, %[[AT]],
// CHECK-NOT: dynamic_update_slice
// CHECK: stablehlo.return %{{.*}}, %{{.*}}, %[[OLD]], %[[WRITTEN]]
// CHECK-NOT: zero.reduce_scatter
// CHECK: return %[[SCAN]]#3
func.func @slices(%x: tensor<1x32xf32>) -> tensor<2x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = stablehlo.while(%k = %c0, %h = %g, %stack = %zeros) : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    cond {
      %again = stablehlo.compare LT, %k, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %again : tensor<i1>
    } do {
      %at = stablehlo.subtract %c1, %k : tensor<i32>
      %y = stablehlo.tanh %h : tensor<1x32xf32>
      %z = stablehlo.cosine %h : tensor<1x32xf32>
      %w = stablehlo.dynamic_update_slice %stack, %y, %at, %c0 : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %z, %w : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    }
    %next = stablehlo.add %s, %1#2 : tensor<2x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %all = stablehlo.broadcast_in_dim %three, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
  %mean = stablehlo.divide %0#1, %all : tensor<2x32xf32>
  %a = zero.from_local %mean : tensor<2x32xf32> to <2x32xf32, dim 1 = (2, 4) on #mesh>
  %b = zero.reduce_scatter sum %a along ["gpu"] : <2x32xf32, dim 1 = (2, 4) on #mesh> to <2x32xf32, dim 1 = (2, "gpu") on #mesh>
  %c = zero.reduce_scatter sum %b along ["node"] : <2x32xf32, dim 1 = (2, "gpu") on #mesh> to <2x32xf32, dim 1 = ("node", "gpu") on #mesh>
  %d = zero.to_local %c : <2x32xf32, dim 1 = ("node", "gpu") on #mesh> to tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// An all-reduce as one vector: layers are whole in front of it and after it, so it
// does not matter which device adds up which part.
// CHECK-LABEL: func @whole
// CHECK: %[[SUMS:.*]]:3 = stablehlo.while(
// CHECK: stablehlo.while(
// CHECK: %[[SCAN:.*]]:3 = stablehlo.while(%{{.*}} = {{[^,]+}}, %{{.*}} = {{[^,]+}}, %[[STACK:[^ ]+]] = {{[^,]+}})
// CHECK: } do {
// CHECK: stablehlo.dynamic_slice %[[SUMS]]#1,
// CHECK: zero.from_local %{{.*}} : tensor<32xf32> to <32xf32, dim 0 = (2) on #mesh>
// CHECK: zero.reduce_scatter sum
// CHECK: zero.all_gather
// CHECK: %[[FLAT:.*]] = zero.to_local %{{.*}} : <32xf32, dim 0 = (2) on #mesh> to tensor<32xf32>
// CHECK: %[[LAYER:.*]] = stablehlo.reshape %[[FLAT]] : (tensor<32xf32>) -> tensor<1x32xf32>
// CHECK: stablehlo.dynamic_update_slice %[[STACK]], %[[LAYER]],
// CHECK-NOT: zero.reduce_scatter
// CHECK: return %[[SCAN]]#2
func.func @whole(%x: tensor<1x32xf32>) -> tensor<2x32xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = stablehlo.while(%k = %c0, %h = %g, %stack = %zeros) : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    cond {
      %again = stablehlo.compare LT, %k, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %again : tensor<i1>
    } do {
      %at = stablehlo.subtract %c1, %k : tensor<i32>
      %y = stablehlo.tanh %h : tensor<1x32xf32>
      %z = stablehlo.cosine %h : tensor<1x32xf32>
      %w = stablehlo.dynamic_update_slice %stack, %y, %at, %c0 : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %z, %w : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    }
    %next = stablehlo.add %s, %1#2 : tensor<2x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %all = stablehlo.broadcast_in_dim %three, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
  %mean = stablehlo.divide %0#1, %all : tensor<2x32xf32>
  %flat = stablehlo.reshape %mean : (tensor<2x32xf32>) -> tensor<64xf32>
  %a = zero.from_local %flat : tensor<64xf32> to <64xf32, dim 0 = (2) on #mesh>
  %b = zero.reduce_scatter sum %a along ["node"] : <64xf32, dim 0 = (2) on #mesh> to <64xf32, dim 0 = ("node") on #mesh>
  %c = zero.all_gather %b along ["node"] : <64xf32, dim 0 = ("node") on #mesh> to <64xf32, dim 0 = (2) on #mesh>
  %d = zero.to_local %c : <64xf32, dim 0 = (2) on #mesh> to tensor<64xf32>
  %e = stablehlo.reshape %d : (tensor<64xf32>) -> tensor<2x32xf32>
  return %e : tensor<2x32xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// A product with a constant between the scan and the sum.
// CHECK-LABEL: func @scaled
// CHECK: %[[SUMS:.*]]:3 = stablehlo.while(
// CHECK: stablehlo.while(
// CHECK: stablehlo.while(
// CHECK: %[[LAYER:.*]] = stablehlo.tanh
// CHECK-NEXT: %[[SCALED:.*]] = stablehlo.multiply %[[LAYER]], %{{.*}} : tensor<1x32xf32>
// CHECK-NEXT: stablehlo.add %{{.*}}, %[[SCALED]]
// CHECK: zero.reduce_scatter sum
// CHECK-NOT: stablehlo.multiply
// CHECK: return
func.func @scaled(%x: tensor<1x32xf32>) -> tensor<2x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = stablehlo.while(%k = %c0, %h = %g, %stack = %zeros) : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    cond {
      %again = stablehlo.compare LT, %k, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %again : tensor<i1>
    } do {
      %at = stablehlo.subtract %c1, %k : tensor<i32>
      %y = stablehlo.tanh %h : tensor<1x32xf32>
      %z = stablehlo.cosine %h : tensor<1x32xf32>
      %w = stablehlo.dynamic_update_slice %stack, %y, %at, %c0 : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %z, %w : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    }
    %half = stablehlo.constant dense<0.5> : tensor<2x32xf32>
    %scaled = stablehlo.multiply %1#2, %half : tensor<2x32xf32>
    %next = stablehlo.add %s, %scaled : tensor<2x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %all = stablehlo.broadcast_in_dim %three, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
  %mean = stablehlo.divide %0#1, %all : tensor<2x32xf32>
  %a = zero.from_local %mean : tensor<2x32xf32> to <2x32xf32, dim 1 = (2, 4) on #mesh>
  %b = zero.reduce_scatter sum %a along ["gpu"] : <2x32xf32, dim 1 = (2, 4) on #mesh> to <2x32xf32, dim 1 = (2, "gpu") on #mesh>
  %c = zero.reduce_scatter sum %b along ["node"] : <2x32xf32, dim 1 = (2, "gpu") on #mesh> to <2x32xf32, dim 1 = ("node", "gpu") on #mesh>
  %d = zero.to_local %c : <2x32xf32, dim 1 = ("node", "gpu") on #mesh> to tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// A device updates whole layers, so the sum of one layer goes to one node.
// CHECK-LABEL: func @split_layers
// CHECK-COUNT-2: stablehlo.while(
// CHECK-NOT: stablehlo.while(
// CHECK: {{^ *[}]$}}
// CHECK: zero.reduce_scatter
// CHECK: return
func.func @split_layers(%x: tensor<1x32xf32>) -> tensor<1x32xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = stablehlo.while(%k = %c0, %h = %g, %stack = %zeros) : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    cond {
      %again = stablehlo.compare LT, %k, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %again : tensor<i1>
    } do {
      %at = stablehlo.subtract %c1, %k : tensor<i32>
      %y = stablehlo.tanh %h : tensor<1x32xf32>
      %z = stablehlo.cosine %h : tensor<1x32xf32>
      %w = stablehlo.dynamic_update_slice %stack, %y, %at, %c0 : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %z, %w : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    }
    %next = stablehlo.add %s, %1#2 : tensor<2x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %all = stablehlo.broadcast_in_dim %three, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
  %mean = stablehlo.divide %0#1, %all : tensor<2x32xf32>
  %a = zero.from_local %mean : tensor<2x32xf32> to <2x32xf32, dim 0 = (2) on #mesh>
  %b = zero.reduce_scatter sum %a along ["node"] : <2x32xf32, dim 0 = (2) on #mesh> to <2x32xf32, dim 0 = ("node") on #mesh>
  %d = zero.to_local %b : <2x32xf32, dim 0 = ("node") on #mesh> to tensor<1x32xf32>
  return %d : tensor<1x32xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// What the sum is divided by is known after the loop only.
// CHECK-LABEL: func @late_number
// CHECK-COUNT-2: stablehlo.while(
// CHECK-NOT: stablehlo.while(
// CHECK: {{^ *[}]$}}
// CHECK: zero.reduce_scatter
// CHECK: return
func.func @late_number(%x: tensor<1x32xf32>) -> tensor<2x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = stablehlo.while(%k = %c0, %h = %g, %stack = %zeros) : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    cond {
      %again = stablehlo.compare LT, %k, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %again : tensor<i1>
    } do {
      %at = stablehlo.subtract %c1, %k : tensor<i32>
      %y = stablehlo.tanh %h : tensor<1x32xf32>
      %z = stablehlo.cosine %h : tensor<1x32xf32>
      %w = stablehlo.dynamic_update_slice %stack, %y, %at, %c0 : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %z, %w : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    }
    %next = stablehlo.add %s, %1#2 : tensor<2x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %steps = stablehlo.convert %0#0 : (tensor<i32>) -> tensor<f32>
  %all = stablehlo.broadcast_in_dim %steps, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
  %mean = stablehlo.divide %0#1, %all : tensor<2x32xf32>
  %a = zero.from_local %mean : tensor<2x32xf32> to <2x32xf32, dim 1 = (2, 4) on #mesh>
  %b = zero.reduce_scatter sum %a along ["gpu"] : <2x32xf32, dim 1 = (2, 4) on #mesh> to <2x32xf32, dim 1 = (2, "gpu") on #mesh>
  %c = zero.reduce_scatter sum %b along ["node"] : <2x32xf32, dim 1 = (2, "gpu") on #mesh> to <2x32xf32, dim 1 = ("node", "gpu") on #mesh>
  %d = zero.to_local %c : <2x32xf32, dim 1 = ("node", "gpu") on #mesh> to tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// What a stack is multiplied by follows from the scan.
// CHECK-LABEL: func @late_scale
// CHECK-COUNT-2: stablehlo.while(
// CHECK-NOT: stablehlo.while(
// CHECK: {{^ *[}]$}}
// CHECK: zero.reduce_scatter
// CHECK: return
func.func @late_scale(%x: tensor<1x32xf32>) -> tensor<2x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = stablehlo.while(%k = %c0, %h = %g, %stack = %zeros) : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    cond {
      %again = stablehlo.compare LT, %k, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %again : tensor<i1>
    } do {
      %at = stablehlo.subtract %c1, %k : tensor<i32>
      %y = stablehlo.tanh %h : tensor<1x32xf32>
      %z = stablehlo.cosine %h : tensor<1x32xf32>
      %w = stablehlo.dynamic_update_slice %stack, %y, %at, %c0 : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %z, %w : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    }
    %number = stablehlo.convert %1#0 : (tensor<i32>) -> tensor<f32>
    %numbers = stablehlo.broadcast_in_dim %number, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
    %scaled = stablehlo.multiply %1#2, %numbers : tensor<2x32xf32>
    %next = stablehlo.add %s, %scaled : tensor<2x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %all = stablehlo.broadcast_in_dim %three, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
  %mean = stablehlo.divide %0#1, %all : tensor<2x32xf32>
  %a = zero.from_local %mean : tensor<2x32xf32> to <2x32xf32, dim 1 = (2, 4) on #mesh>
  %b = zero.reduce_scatter sum %a along ["gpu"] : <2x32xf32, dim 1 = (2, 4) on #mesh> to <2x32xf32, dim 1 = (2, "gpu") on #mesh>
  %c = zero.reduce_scatter sum %b along ["node"] : <2x32xf32, dim 1 = (2, "gpu") on #mesh> to <2x32xf32, dim 1 = ("node", "gpu") on #mesh>
  %d = zero.to_local %c : <2x32xf32, dim 1 = ("node", "gpu") on #mesh> to tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// All iterations of the scan write the same layer.
// CHECK-LABEL: func @same_layer
// CHECK-COUNT-2: stablehlo.while(
// CHECK-NOT: stablehlo.while(
// CHECK: {{^ *[}]$}}
// CHECK: zero.reduce_scatter
// CHECK: return
func.func @same_layer(%x: tensor<1x32xf32>) -> tensor<2x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = stablehlo.while(%k = %c0, %h = %g, %stack = %zeros) : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    cond {
      %again = stablehlo.compare LT, %k, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %again : tensor<i1>
    } do {
      %at = stablehlo.subtract %c1, %k : tensor<i32>
      %y = stablehlo.tanh %h : tensor<1x32xf32>
      %z = stablehlo.cosine %h : tensor<1x32xf32>
      %w = stablehlo.dynamic_update_slice %stack, %y, %c0, %c0 : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %z, %w : tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>
    }
    %next = stablehlo.add %s, %1#2 : tensor<2x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %all = stablehlo.broadcast_in_dim %three, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
  %mean = stablehlo.divide %0#1, %all : tensor<2x32xf32>
  %a = zero.from_local %mean : tensor<2x32xf32> to <2x32xf32, dim 1 = (2, 4) on #mesh>
  %b = zero.reduce_scatter sum %a along ["gpu"] : <2x32xf32, dim 1 = (2, 4) on #mesh> to <2x32xf32, dim 1 = (2, "gpu") on #mesh>
  %c = zero.reduce_scatter sum %b along ["node"] : <2x32xf32, dim 1 = (2, "gpu") on #mesh> to <2x32xf32, dim 1 = ("node", "gpu") on #mesh>
  %d = zero.to_local %c : <2x32xf32, dim 1 = ("node", "gpu") on #mesh> to tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}
