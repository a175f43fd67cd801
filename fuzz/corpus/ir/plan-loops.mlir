// RUN: zpp-opt %s --zero-plan-loops="gradients min-usec=0" --zero-write-loops --split-input-file \
// RUN:   | FileCheck %s

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @slices(%x: tensor<1x32xf32>) -> tensor<2x4xf32> {
  %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
  %c2 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
  %c3 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
  %zeros = "stablehlo.constant"() <{value = dense<0.0> : tensor<2x32xf32>}> : () -> tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = "stablehlo.compare"(%i, %c3) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = "stablehlo.while"(%c0, %g, %zeros) ({
    ^bb0(%k: tensor<i32>, %h: tensor<1x32xf32>, %stack: tensor<2x32xf32>):
      %again = "stablehlo.compare"(%k, %c2) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%again) : (tensor<i1>) -> ()
    }, {
    ^bb0(%k: tensor<i32>, %h: tensor<1x32xf32>, %stack: tensor<2x32xf32>):
      %at = "stablehlo.subtract"(%c1, %k) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %y = "stablehlo.tanh"(%h) : (tensor<1x32xf32>) -> tensor<1x32xf32>
      %z = "stablehlo.cosine"(%h) : (tensor<1x32xf32>) -> tensor<1x32xf32>
      %w = "stablehlo.dynamic_update_slice"(%stack, %y, %at, %c0) : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = "stablehlo.add"(%k, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%l, %z, %w) : (tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>) -> ()
    }) : (tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>) -> (tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>)
    %next = "stablehlo.add"(%s, %1#2) : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32>
    %j = "stablehlo.add"(%i, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%j, %next, %g) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> ()
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %three = "stablehlo.constant"() <{value = dense<3.0> : tensor<f32>}> : () -> tensor<f32>
  %all = "stablehlo.broadcast_in_dim"(%three) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x32xf32>
  %mean = "stablehlo.divide"(%0#1, %all) : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32>
  %a = zero.from_local %mean : tensor<2x32xf32> to <2x32xf32, dim 1 = (2, 4) on #mesh>
  %b = zero.reduce_scatter sum %a along ["gpu"] : <2x32xf32, dim 1 = (2, 4) on #mesh> to <2x32xf32, dim 1 = (2, "gpu") on #mesh>
  %c = zero.reduce_scatter sum %b along ["node"] : <2x32xf32, dim 1 = (2, "gpu") on #mesh> to <2x32xf32, dim 1 = ("node", "gpu") on #mesh>
  %d = zero.to_local %c : <2x32xf32, dim 1 = ("node", "gpu") on #mesh> to tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}

// -----
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @whole(%x: tensor<1x32xf32>) -> tensor<2x32xf32> {
  %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
  %c2 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
  %c3 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
  %zeros = "stablehlo.constant"() <{value = dense<0.0> : tensor<2x32xf32>}> : () -> tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = "stablehlo.compare"(%i, %c3) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = "stablehlo.while"(%c0, %g, %zeros) ({
    ^bb0(%k: tensor<i32>, %h: tensor<1x32xf32>, %stack: tensor<2x32xf32>):
      %again = "stablehlo.compare"(%k, %c2) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%again) : (tensor<i1>) -> ()
    }, {
    ^bb0(%k: tensor<i32>, %h: tensor<1x32xf32>, %stack: tensor<2x32xf32>):
      %at = "stablehlo.subtract"(%c1, %k) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %y = "stablehlo.tanh"(%h) : (tensor<1x32xf32>) -> tensor<1x32xf32>
      %z = "stablehlo.cosine"(%h) : (tensor<1x32xf32>) -> tensor<1x32xf32>
      %w = "stablehlo.dynamic_update_slice"(%stack, %y, %at, %c0) : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = "stablehlo.add"(%k, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%l, %z, %w) : (tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>) -> ()
    }) : (tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>) -> (tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>)
    %next = "stablehlo.add"(%s, %1#2) : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32>
    %j = "stablehlo.add"(%i, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%j, %next, %g) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> ()
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %three = "stablehlo.constant"() <{value = dense<3.0> : tensor<f32>}> : () -> tensor<f32>
  %all = "stablehlo.broadcast_in_dim"(%three) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x32xf32>
  %mean = "stablehlo.divide"(%0#1, %all) : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32>
  %flat = "stablehlo.reshape"(%mean) : (tensor<2x32xf32>) -> tensor<64xf32>
  %a = zero.from_local %flat : tensor<64xf32> to <64xf32, dim 0 = (2) on #mesh>
  %b = zero.reduce_scatter sum %a along ["node"] : <64xf32, dim 0 = (2) on #mesh> to <64xf32, dim 0 = ("node") on #mesh>
  %c = zero.all_gather %b along ["node"] : <64xf32, dim 0 = ("node") on #mesh> to <64xf32, dim 0 = (2) on #mesh>
  %d = zero.to_local %c : <64xf32, dim 0 = (2) on #mesh> to tensor<64xf32>
  %e = "stablehlo.reshape"(%d) : (tensor<64xf32>) -> tensor<2x32xf32>
  return %e : tensor<2x32xf32>
}

// -----
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @scaled(%x: tensor<1x32xf32>) -> tensor<2x4xf32> {
  %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
  %c2 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
  %c3 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
  %zeros = "stablehlo.constant"() <{value = dense<0.0> : tensor<2x32xf32>}> : () -> tensor<2x32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %more = "stablehlo.compare"(%i, %c3) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<2x32xf32>, %g: tensor<1x32xf32>):
    %1:3 = "stablehlo.while"(%c0, %g, %zeros) ({
    ^bb0(%k: tensor<i32>, %h: tensor<1x32xf32>, %stack: tensor<2x32xf32>):
      %again = "stablehlo.compare"(%k, %c2) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%again) : (tensor<i1>) -> ()
    }, {
    ^bb0(%k: tensor<i32>, %h: tensor<1x32xf32>, %stack: tensor<2x32xf32>):
      %at = "stablehlo.subtract"(%c1, %k) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %y = "stablehlo.tanh"(%h) : (tensor<1x32xf32>) -> tensor<1x32xf32>
      %z = "stablehlo.cosine"(%h) : (tensor<1x32xf32>) -> tensor<1x32xf32>
      %w = "stablehlo.dynamic_update_slice"(%stack, %y, %at, %c0) : (tensor<2x32xf32>, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> tensor<2x32xf32>
      %l = "stablehlo.add"(%k, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%l, %z, %w) : (tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>) -> ()
    }) : (tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>) -> (tensor<i32>, tensor<1x32xf32>, tensor<2x32xf32>)
    %half = "stablehlo.constant"() <{value = dense<0.5> : tensor<2x32xf32>}> : () -> tensor<2x32xf32>
    %scaled = "stablehlo.multiply"(%1#2, %half) : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32>
    %next = "stablehlo.add"(%s, %scaled) : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32>
    %j = "stablehlo.add"(%i, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%j, %next, %g) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> ()
  }) : (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>) -> (tensor<i32>, tensor<2x32xf32>, tensor<1x32xf32>)
  %three = "stablehlo.constant"() <{value = dense<3.0> : tensor<f32>}> : () -> tensor<f32>
  %all = "stablehlo.broadcast_in_dim"(%three) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x32xf32>
  %mean = "stablehlo.divide"(%0#1, %all) : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32>
  %a = zero.from_local %mean : tensor<2x32xf32> to <2x32xf32, dim 1 = (2, 4) on #mesh>
  %b = zero.reduce_scatter sum %a along ["gpu"] : <2x32xf32, dim 1 = (2, 4) on #mesh> to <2x32xf32, dim 1 = (2, "gpu") on #mesh>
  %c = zero.reduce_scatter sum %b along ["node"] : <2x32xf32, dim 1 = (2, "gpu") on #mesh> to <2x32xf32, dim 1 = ("node", "gpu") on #mesh>
  %d = zero.to_local %c : <2x32xf32, dim 1 = ("node", "gpu") on #mesh> to tensor<2x4xf32>
  return %d : tensor<2x4xf32>
}
