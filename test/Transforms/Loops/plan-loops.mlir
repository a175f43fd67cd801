// RUN: zpp-opt %s --zero-plan-loops=secondary=none --remarks-filter=.* 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file=%t
// What is planned does not depend on what an earlier plan says.
// RUN: zpp-opt %s --zero-plan-loops=secondary=none --zero-plan-loops=secondary=none --remarks-filter=none | FileCheck %s

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// Up to 16 layers follow each other without a loop. More stay in one, and are
// gathered ahead.

// CHECK-LABEL: func @layers
// CHECK: stablehlo.while({{.*}} attributes {zpp.loop = {block = 16 : i64}}
// REMARK: [Passed] layers {{.*}}"its 16 layers follow each other without a loop"
func.func @layers(%w: tensor<16x2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<16> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<16x2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %v, %i, %c0, sizes = [1, 2] : (tensor<16x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to <16xf32, dim 0 = ("node", "gpu") on #mesh>
    %4 = zero.all_gather %3 along ["node", "gpu"] {zpp.origin = {id = 0, role = "weight"}} : <16xf32, dim 0 = ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
    %5 = zero.to_local %4 : <16xf32, dim 0 = (2, 4) on #mesh> to tensor<16xf32>
    %6 = stablehlo.multiply %h, %5 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %6 : tensor<i32>, tensor<16x2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// CHECK-LABEL: func @many
// CHECK: stablehlo.while({{.*}} attributes {zpp.loop = {ahead}}
// REMARK: [Missed] not-layers {{.*}}"stays a loop: it has 17 iterations, and XLA would compile each: 16 are the most"
func.func @many(%w: tensor<17x2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<17> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<17x2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %v, %i, %c0, sizes = [1, 2] : (tensor<17x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to <16xf32, dim 0 = ("node", "gpu") on #mesh>
    %4 = zero.all_gather %3 along ["node", "gpu"] {zpp.origin = {id = 0, role = "weight"}} : <16xf32, dim 0 = ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
    %5 = zero.to_local %4 : <16xf32, dim 0 = (2, 4) on #mesh> to tensor<16xf32>
    %6 = stablehlo.multiply %h, %5 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %6 : tensor<i32>, tensor<17x2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// An iteration that gathers what all others do is no layer. Seven are too few
// for one more collective.

// CHECK-LABEL: func @micro_batches
// CHECK: stablehlo.while({{.*}} attributes {zpp.loop = {ahead}}
// REMARK: [Missed] not-layers {{.*}}"stays a loop: its iterations are not the layers of a model"
func.func @micro_batches(%w: tensor<8x2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<8> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<8x2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %v, %c0, %c0, sizes = [1, 2] : (tensor<8x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to <16xf32, dim 0 = ("node", "gpu") on #mesh>
    %4 = zero.all_gather %3 along ["node", "gpu"] {zpp.origin = {id = 0, role = "weight"}} : <16xf32, dim 0 = ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
    %5 = zero.to_local %4 : <16xf32, dim 0 = (2, 4) on #mesh> to tensor<16xf32>
    %6 = stablehlo.multiply %h, %5 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %6 : tensor<i32>, tensor<8x2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// CHECK-LABEL: func @few
// CHECK: stablehlo.while(
// CHECK-NEXT: cond {
// REMARK: [Missed] not-layers
// REMARK: [Missed] not-ahead {{.*}}"collectives run in the iteration that needs them: one more collective is too much for a loop of 7 iterations"
func.func @few(%w: tensor<7x2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<7> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<7x2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %v, %c0, %c0, sizes = [1, 2] : (tensor<7x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to <16xf32, dim 0 = ("node", "gpu") on #mesh>
    %4 = zero.all_gather %3 along ["node", "gpu"] {zpp.origin = {id = 0, role = "weight"}} : <16xf32, dim 0 = ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
    %5 = zero.to_local %4 : <16xf32, dim 0 = (2, 4) on #mesh> to tensor<16xf32>
    %6 = stablehlo.multiply %h, %5 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %6 : tensor<i32>, tensor<7x2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// CHECK-LABEL: func @unknown
// CHECK: stablehlo.while({{.*}} attributes {zpp.loop = {ahead}}
// REMARK: [Missed] not-layers {{.*}}"stays a loop: it is not known how often the loop runs"
func.func @unknown(%w: tensor<7x2xf32>, %x: tensor<16xf32>, %end: tensor<i32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<7x2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %v, %i, %c0, sizes = [1, 2] : (tensor<7x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to <16xf32, dim 0 = ("node", "gpu") on #mesh>
    %4 = zero.all_gather %3 along ["node", "gpu"] {zpp.origin = {id = 0, role = "weight"}} : <16xf32, dim 0 = ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
    %5 = zero.to_local %4 : <16xf32, dim 0 = (2, 4) on #mesh> to tensor<16xf32>
    %6 = stablehlo.multiply %h, %5 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %6 : tensor<i32>, tensor<7x2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}
