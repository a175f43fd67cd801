// RUN: zpp-opt %s --zero-join-products=mesh=node:2,gpu:4 --split-input-file \
// RUN:   --remarks-filter=none > %t.once
// RUN: FileCheck %s < %t.once
// RUN: zpp-opt %s --zero-join-products=mesh=node:2,gpu:4 --split-input-file \
// RUN:   --remarks-filter=none | zpp-opt --zero-join-products=mesh=node:2,gpu:4 \
// RUN:   --split-input-file --remarks-filter=none | diff %t.once -
// RUN: zpp-opt %s --zero-join-products=mesh=node:2,gpu:4 --split-input-file \
// RUN:   --remarks-filter='.*' 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: not zpp-opt %s --zero-join-products=mesh=node --split-input-file 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MALFORMED

// MALFORMED: error: in mesh 'node': expected NAME:SIZE, but got 'node'

// A product of slices of rows gathers its second operand, and so does the next one.

module attributes {mhlo.num_partitions = 8 : i32} {
// REMARK: products that devices have split with 2 collectives are computed whole, after one gather
// CHECK-LABEL: func.func @rows(
// CHECK: %[[M:.*]] = stablehlo.add %arg1,
// CHECK: %[[X:[0-9]+]] = "stablehlo.all_gather"(%[[M]]) {{.*}}all_gather_dim = 0 : i64{{.*}} {zpp.sent = array<i64: 1024, 6144>} : (tensor<4x32xf32>) -> tensor<32x32xf32>
// CHECK: %[[T:.*]] = stablehlo.transpose %[[X]], dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
// CHECK: %[[GRAM:.*]] = stablehlo.dot %[[X]], %[[T]]
// CHECK: %[[ODD:.*]] = stablehlo.dot %[[GRAM]], %[[X]]
// CHECK: %[[RATES:.*]] = stablehlo.broadcast_in_dim {{.*}} -> tensor<32x32xf32>
// CHECK: stablehlo.multiply %[[ODD]], %[[RATES]] : tensor<32x32xf32>
// CHECK: %[[U:.*]] = stablehlo.subtract %[[X]], {{.*}} : tensor<32x32xf32>
// CHECK: %[[OWN:.*]] = stablehlo.dynamic_slice %[[U]], {{.*}} sizes = [4, 32]
// CHECK: stablehlo.subtract %arg0, %[[OWN]]
func.func @rows(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  %flipped = stablehlo.transpose %moment, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %right = "stablehlo.all_gather"(%flipped) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x4xf32>) -> tensor<32x32xf32>
  %gram = stablehlo.dot %moment, %right : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %all = "stablehlo.all_gather"(%moment) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 4, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %odd = stablehlo.dot %gram, %all : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %rate = stablehlo.constant dense<0.5> : tensor<f32>
  %rates = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> tensor<4x32xf32>
  %scaled = stablehlo.multiply %odd, %rates : tensor<4x32xf32>
  %u = stablehlo.subtract %moment, %scaled : tensor<4x32xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x32xf32>
  return %new, %moment : tensor<4x32xf32>, tensor<4x32xf32>
}
}

// -----

// A product of slices of columns is summed, in each iteration.

module attributes {mhlo.num_partitions = 8 : i32} {
// REMARK: products that devices have split with 1 collective are computed whole, after one gather
// CHECK-LABEL: func.func @columns(
// CHECK: "stablehlo.all_reduce"{{.*}}
// CHECK: %[[FIRST:.*]] = stablehlo.divide
// CHECK: %[[X:[0-9]+]] = "stablehlo.all_gather"(%[[FIRST]]) {{.*}}all_gather_dim = 1 : i64{{.*}} {zpp.sent = array<i64: 5120, 30720>} : (tensor<32x4xf32>) -> tensor<32x32xf32>
// CHECK: stablehlo.while(%{{.*}} = %c, %[[P:.*]] = %[[X]]) : tensor<i32>, tensor<32x32xf32>
// CHECK: %[[GRAM:.*]] = stablehlo.dot_general %[[P]], %[[P]]
// CHECK-NOT: stablehlo.all_reduce
// CHECK: stablehlo.dot %[[GRAM]], %[[P]]
// CHECK: stablehlo.constant dense<5.000000e-01> : tensor<32x32xf32>
// CHECK: %[[U:.*]] = stablehlo.transpose %{{.*}}, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
// CHECK: stablehlo.dynamic_slice %[[U]], {{.*}} sizes = [4, 32]
func.func @columns(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  %x0 = stablehlo.transpose %moment, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c5 = stablehlo.constant dense<5> : tensor<i32>
  %rates = stablehlo.constant dense<0.5> : tensor<32x4xf32>
  %squares = stablehlo.multiply %x0, %x0 : tensor<32x4xf32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %part = stablehlo.reduce(%squares init: %none) applies stablehlo.add across dimensions = [0, 1] : (tensor<32x4xf32>, tensor<f32>) -> tensor<f32>
  %norm = "stablehlo.all_reduce"(%part) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<f32>) -> tensor<f32>
  %norms = stablehlo.broadcast_in_dim %norm, dims = [] : (tensor<f32>) -> tensor<32x4xf32>
  %first = stablehlo.divide %x0, %norms : tensor<32x4xf32>
  %loop:2 = "stablehlo.while"(%c0, %first) ({
  ^bb0(%i: tensor<i32>, %p: tensor<32x4xf32>):
    %less = stablehlo.compare LT, %i, %c5, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %p: tensor<32x4xf32>):
    %own = stablehlo.dot_general %p, %p, contracting_dims = [1] x [1] : (tensor<32x4xf32>, tensor<32x4xf32>) -> tensor<32x32xf32>
  %gram = "stablehlo.all_reduce"(%own) <{channel_handle = #stablehlo.channel_handle<handle = 4, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %odd = stablehlo.dot %gram, %p : (tensor<32x32xf32>, tensor<32x4xf32>) -> tensor<32x4xf32>
    %scaled = stablehlo.multiply %rates, %odd : tensor<32x4xf32>
    %next = stablehlo.subtract %p, %scaled : tensor<32x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next : tensor<i32>, tensor<32x4xf32>
  }) : (tensor<i32>, tensor<32x4xf32>) -> (tensor<i32>, tensor<32x4xf32>)
  %u = stablehlo.transpose %loop#1, dims = [1, 0] : (tensor<32x4xf32>) -> tensor<4x32xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x32xf32>
  return %new, %moment : tensor<4x32xf32>, tensor<4x32xf32>
}
}

// -----

// Each device has another rate, for its own slice of the result.

module attributes {mhlo.num_partitions = 8 : i32} {
// REMARK: products that devices have split with 2 collectives are computed whole
// CHECK-LABEL: func.func @own_rate(
// CHECK: %[[GRAM:.*]] = stablehlo.dot {{.*}} : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
// CHECK: %[[ODD:.*]] = stablehlo.dot %[[GRAM]], {{.*}} : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
// CHECK: %[[OWN:.*]] = stablehlo.dynamic_slice %[[ODD]], {{.*}} sizes = [4, 32]
// CHECK: stablehlo.multiply %[[OWN]], {{.*}} : tensor<4x32xf32>
func.func @own_rate(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  %flipped = stablehlo.transpose %moment, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %right = "stablehlo.all_gather"(%flipped) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x4xf32>) -> tensor<32x32xf32>
  %gram = stablehlo.dot %moment, %right : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %all = "stablehlo.all_gather"(%moment) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 4, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %odd = stablehlo.dot %gram, %all : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %rate = stablehlo.reduce(%m init: %none) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x32xf32>, tensor<f32>) -> tensor<f32>
  %rates = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> tensor<4x32xf32>
  %scaled = stablehlo.multiply %odd, %rates : tensor<4x32xf32>
  %u = stablehlo.subtract %moment, %scaled : tensor<4x32xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x32xf32>
  return %new, %moment : tensor<4x32xf32>, tensor<4x32xf32>
}
}

// -----

// What the step keeps of a product is not rounded, so nothing changes.

module attributes {mhlo.num_partitions = 8 : i32} {
// REMARK: devices split the products that follow from a gathered or added matrix: it moves a gradient or momentum that products contract, or its update, and needs it as it is: result 2 of the step is made of it
// CHECK-LABEL: func.func @statistic(
// CHECK-COUNT-3: stablehlo.all_gather
func.func @statistic(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>) {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  %flipped = stablehlo.transpose %moment, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %right = "stablehlo.all_gather"(%flipped) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x4xf32>) -> tensor<32x32xf32>
  %gram = stablehlo.dot %moment, %right : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %all = "stablehlo.all_gather"(%moment) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 4, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %odd = stablehlo.dot %gram, %all : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %rate = stablehlo.constant dense<0.5> : tensor<f32>
  %rates = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> tensor<4x32xf32>
  %scaled = stablehlo.multiply %odd, %rates : tensor<4x32xf32>
  %u = stablehlo.subtract %moment, %scaled : tensor<4x32xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x32xf32>
  return %new, %moment, %gram : tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>
}
}

// -----

// The second gather puts slices elsewhere, and the first one alone is as good as another.

module attributes {mhlo.num_partitions = 8 : i32} {
// REMARK: devices split the products that follow from a gathered or added matrix: 512 bytes cross the slowest links, and with one gather of it 512
// CHECK-LABEL: func.func @other_order(
// CHECK-COUNT-3: stablehlo.all_gather
func.func @other_order(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  %flipped = stablehlo.transpose %moment, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %right = "stablehlo.all_gather"(%flipped) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x4xf32>) -> tensor<32x32xf32>
  %gram = stablehlo.dot %moment, %right : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %all = "stablehlo.all_gather"(%moment) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 4, type = 0>, replica_groups = dense<[[7, 6, 5, 4, 3, 2, 1, 0]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %odd = stablehlo.dot %gram, %all : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %rate = stablehlo.constant dense<0.5> : tensor<f32>
  %rates = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> tensor<4x32xf32>
  %scaled = stablehlo.multiply %odd, %rates : tensor<4x32xf32>
  %u = stablehlo.subtract %moment, %scaled : tensor<4x32xf32>
  %new = stablehlo.subtract %w, %u : tensor<4x32xf32>
  return %new, %moment : tensor<4x32xf32>, tensor<4x32xf32>
}
}
