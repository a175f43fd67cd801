// RUN: zpp-opt %s --zero-join-products=mesh=node:2,gpu:4 --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s

// Two updates are added before each device cuts out its slice: both
// orthogonalizations are joined, and what follows from both is whole.

// CHECK-LABEL: func.func @added(
// CHECK-COUNT-2: zpp.sent
// CHECK-NOT: all_gather
// CHECK: stablehlo.add {{.*}} : tensor<32x32xf32>
// CHECK: return
module attributes {mhlo.num_partitions = 8 : i32} {
func.func @added(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>, %k: tensor<4x32xf32>) -> (tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>) {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 19, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{channel_handle = #stablehlo.channel_handle<handle = 20, type = 0>,replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %kn = stablehlo.constant dense<0.5> : tensor<4x32xf32>
  %k1 = stablehlo.multiply %k, %kn : tensor<4x32xf32>
  %moment2 = stablehlo.add %k1, %mine : tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  %pfl = stablehlo.transpose %moment, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %pright = "stablehlo.all_gather"(%pfl) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 21, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x4xf32>) -> tensor<32x32xf32>
  %pgram = stablehlo.dot %moment, %pright : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %pall = "stablehlo.all_gather"(%moment) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 22, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %podd = stablehlo.dot %pgram, %pall : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %pu = stablehlo.subtract %moment, %podd : tensor<4x32xf32>
  %qfl = stablehlo.transpose %moment2, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %qright = "stablehlo.all_gather"(%qfl) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 23, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x4xf32>) -> tensor<32x32xf32>
  %qgram = stablehlo.dot %moment2, %qright : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %qall = "stablehlo.all_gather"(%moment2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 24, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %qodd = stablehlo.dot %qgram, %qall : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %qu = stablehlo.subtract %moment2, %qodd : tensor<4x32xf32>
  %pw = "stablehlo.all_gather"(%pu) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 25, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %qw = "stablehlo.all_gather"(%qu) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 26, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %uu = stablehlo.add %pw, %qw : tensor<32x32xf32>
  %tab = stablehlo.constant dense<[0, 4, 8, 12, 16, 20, 24, 28]> : tensor<8xi32>
  %pid = stablehlo.partition_id : tensor<ui32>
  %o1 = stablehlo.dynamic_slice %tab, %pid, sizes = [1] : (tensor<8xi32>, tensor<ui32>) -> tensor<1xi32>
  %off = stablehlo.reshape %o1 : (tensor<1xi32>) -> tensor<i32>
  %zz = stablehlo.constant dense<0> : tensor<i32>
  %upd0 = stablehlo.dynamic_slice %uu, %off, %zz, sizes = [4, 32] : (tensor<32x32xf32>, tensor<i32>, tensor<i32>) -> tensor<4x32xf32>
  %kk = stablehlo.constant dense<0.5> : tensor<4x32xf32>
  %upd = stablehlo.multiply %upd0, %kk : tensor<4x32xf32>
  %new = stablehlo.subtract %w, %upd : tensor<4x32xf32>
  return %new, %moment, %moment2 : tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>
}
}

// -----

// Each device scales its slice another number of times, so what follows is no
// product of one tensor.

// CHECK-LABEL: func.func @other_trips(
// CHECK: stablehlo.while({{.*}}) : tensor<4x32xf32>, tensor<i32>, tensor<i32>
// CHECK: return
module attributes {mhlo.num_partitions = 8 : i32} {
func.func @other_trips(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 31, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{channel_handle = #stablehlo.channel_handle<handle = 32, type = 0>,replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  %qfl = stablehlo.transpose %moment, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %qright = "stablehlo.all_gather"(%qfl) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 33, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x4xf32>) -> tensor<32x32xf32>
  %qgram = stablehlo.dot %moment, %qright : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %qall = "stablehlo.all_gather"(%moment) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 34, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %qodd = stablehlo.dot %qgram, %qall : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %qu = stablehlo.subtract %moment, %qodd : tensor<4x32xf32>
  %p = stablehlo.partition_id : tensor<ui32>
  %five = stablehlo.convert %p : (tensor<ui32>) -> tensor<i32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %loop:3 = stablehlo.while(%c_x = %qu, %c_i = %i0, %c_t = %five) : tensor<4x32xf32>, tensor<i32>, tensor<i32>
 cond {
 %lt = stablehlo.compare LT, %c_i, %c_t : (tensor<i32>, tensor<i32>) -> tensor<i1>
 stablehlo.return %lt : tensor<i1>
 } do {
  %hc = stablehlo.constant dense<0.5> : tensor<4x32xf32>
  %hx = stablehlo.multiply %c_x, %hc : tensor<4x32xf32>
  %inext = stablehlo.add %c_i, %one : tensor<i32>
stablehlo.return %hx, %inext, %c_t : tensor<4x32xf32>, tensor<i32>, tensor<i32>
}
  %pfl = stablehlo.transpose %loop#0, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %pright = "stablehlo.all_gather"(%pfl) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 35, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x4xf32>) -> tensor<32x32xf32>
  %pgram = stablehlo.dot %loop#0, %pright : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %pall = "stablehlo.all_gather"(%loop#0) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 36, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %podd = stablehlo.dot %pgram, %pall : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %pu = stablehlo.subtract %loop#0, %podd : tensor<4x32xf32>
  %upd = stablehlo.add %pu, %pu : tensor<4x32xf32>
  %new = stablehlo.subtract %w, %upd : tensor<4x32xf32>
  return %new, %moment : tensor<4x32xf32>, tensor<4x32xf32>
}
}

// -----

// What a loop carries beside a slice keeps its shape.

// CHECK-LABEL: func.func @beside(
// CHECK: stablehlo.while({{.*}}) : tensor<32x32xf32>, tensor<4x32xf32>
// CHECK: return
module attributes {mhlo.num_partitions = 8 : i32} {
func.func @beside(%w: tensor<4x32xf32>, %m: tensor<4x32xf32>, %x: tensor<16x32xi32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 15, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %tokens = stablehlo.convert %x : (tensor<16x32xi32>) -> tensor<16x32xf32>
  %y = stablehlo.dot %tokens, %whole : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  %e = stablehlo.subtract %y, %tokens : tensor<16x32xf32>
  %g = stablehlo.dot_general %tokens, %e, contracting_dims = [0] x [0] : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{channel_handle = #stablehlo.channel_handle<handle = 16, type = 0>,replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x32xf32>) -> tensor<4x32xf32>
  %moment = stablehlo.add %m, %mine : tensor<4x32xf32>
  %buf = stablehlo.constant dense<0.0> : tensor<4x32xf32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %loop:4 = stablehlo.while(%c_x = %moment, %c_s = %buf, %c_i = %i0, %c_t = %five) : tensor<4x32xf32>, tensor<4x32xf32>, tensor<i32>, tensor<i32>
 cond {
 %lt = stablehlo.compare LT, %c_i, %c_t : (tensor<i32>, tensor<i32>) -> tensor<i1>
 stablehlo.return %lt : tensor<i1>
 } do {
  %pfl = stablehlo.transpose %c_x, dims = [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  %pright = "stablehlo.all_gather"(%pfl) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 17, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x4xf32>) -> tensor<32x32xf32>
  %pgram = stablehlo.dot %c_x, %pright : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %pall = "stablehlo.all_gather"(%c_x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 18, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x32xf32>) -> tensor<32x32xf32>
  %podd = stablehlo.dot %pgram, %pall : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %pu = stablehlo.subtract %c_x, %podd : tensor<4x32xf32>
  %sn = stablehlo.add %c_s, %w : tensor<4x32xf32>
  %inext = stablehlo.add %c_i, %one : tensor<i32>
stablehlo.return %pu, %sn, %inext, %c_t : tensor<4x32xf32>, tensor<4x32xf32>, tensor<i32>, tensor<i32>
}
  %upd = stablehlo.add %loop#0, %loop#1 : tensor<4x32xf32>
  %new = stablehlo.subtract %w, %upd : tensor<4x32xf32>
  return %new, %moment : tensor<4x32xf32>, tensor<4x32xf32>
}
}
