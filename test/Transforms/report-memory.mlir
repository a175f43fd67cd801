// RUN: zpp-opt %s --split-input-file -o /dev/null \
// RUN:   --zero-report="mesh=node:2,gpu:2 device=h200 format=json output=-" | FileCheck %s

// A matrix has 2 MiB, and the arguments 4.5. XLA joins the scatters, so 6 MiB are
// alive beside the arguments: both gradients, and what the second is a product of.

// CHECK:      "peak_bytes": 11010048,
// CHECK-NEXT: "state_bytes": 4718592,
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>, tensor<256x1024xbf16>) -> (tensor<256x1024xbf16>, tensor<256x1024xbf16>), sym_name = "main"}> ({
  ^bb0(%x: tensor<1024x1024xbf16>, %w: tensor<1024x1024xbf16>, %p: tensor<256x1024xbf16>):
    %g0 = stablehlo.dot %x, %x : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %s0 = "stablehlo.reduce_scatter"(%g0) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
    ^bb0(%lhs: tensor<bf16>, %rhs: tensor<bf16>):
      %sum = stablehlo.add %lhs, %rhs : tensor<bf16>
      stablehlo.return %sum : tensor<bf16>
    }) : (tensor<1024x1024xbf16>) -> tensor<256x1024xbf16>
    %a = stablehlo.dot %x, %w : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %b = stablehlo.dot %a, %w : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %c = stablehlo.dot %b, %w : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %g1 = stablehlo.dot %c, %c : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %s1 = "stablehlo.reduce_scatter"(%g1) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
    ^bb0(%lhs: tensor<bf16>, %rhs: tensor<bf16>):
      %sum = stablehlo.add %lhs, %rhs : tensor<bf16>
      stablehlo.return %sum : tensor<bf16>
    }) : (tensor<1024x1024xbf16>) -> tensor<256x1024xbf16>
    %u0 = stablehlo.subtract %p, %s0 : tensor<256x1024xbf16>
    %u1 = stablehlo.subtract %p, %s1 : tensor<256x1024xbf16>
    "func.return"(%u0, %u1) : (tensor<256x1024xbf16>, tensor<256x1024xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32} : () -> ()

// -----

// What a loop carries is alive while it runs, also if nobody reads it afterwards:
// 2 MiB of a product, beside 2 MiB for each of two products of an iteration. Zeros
// that it carries for nobody take none.

// CHECK:      "peak_bytes": 8388608,
// CHECK-NEXT: "state_bytes": 2097152,
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>, sym_name = "main"}> ({
  ^bb0(%x: tensor<1024x1024xbf16>):
    %kept = stablehlo.dot %x, %x : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %i = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %end = stablehlo.constant dense<6> : tensor<i32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<1024x1024xf32>
    %r:4 = stablehlo.while(%j = %i, %k = %kept, %z = %zeros, %v = %x) : tensor<i32>, tensor<1024x1024xbf16>, tensor<1024x1024xf32>, tensor<1024x1024xbf16>
    cond {
      %less = stablehlo.compare LT, %j, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %next = stablehlo.add %j, %one : tensor<i32>
      %first = stablehlo.dot %v, %k : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
      %second = stablehlo.dot %first, %k : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
      %third = stablehlo.dot %second, %first : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
      stablehlo.return %next, %k, %z, %third : tensor<i32>, tensor<1024x1024xbf16>, tensor<1024x1024xf32>, tensor<1024x1024xbf16>
    }
    "func.return"(%r#3) : (tensor<1024x1024xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32} : () -> ()

// -----

// An all-reduce has the memory of its operand, and the update that of the argument.

// CHECK:      "peak_bytes": 4194304,
// CHECK-NEXT: "state_bytes": 2097152,
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>, sym_name = "main"}> ({
  ^bb0(%x: tensor<1024x1024xbf16>):
    %g = stablehlo.dot %x, %x : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %s = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %t = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %t : tensor<bf16>
    }) : (tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %u = stablehlo.subtract %x, %s : tensor<1024x1024xbf16>
    "func.return"(%u) : (tensor<1024x1024xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32} : () -> ()

// -----

// A stack that begins as zeros has memory from its first layer on: 4 MiB, beside 2
// for each of two products.

// CHECK:      "peak_bytes": 10485764,
// CHECK-NEXT: "state_bytes": 2097156,
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1024x1024xbf16>, tensor<i32>) -> tensor<1x1024x1024xbf16>, sym_name = "main"}> ({
  ^bb0(%x: tensor<1024x1024xbf16>, %i: tensor<i32>):
    %none = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %zero = stablehlo.constant dense<0.0> : tensor<bf16>
    %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<bf16>) -> tensor<2x1024x1024xbf16>
    %first = stablehlo.dot %x, %x : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %layer = stablehlo.reshape %first : (tensor<1024x1024xbf16>) -> tensor<1x1024x1024xbf16>
    %stack = stablehlo.dynamic_update_slice %zeros, %layer, %none, %none, %none : (tensor<2x1024x1024xbf16>, tensor<1x1024x1024xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x1024x1024xbf16>
    %second = stablehlo.dot %first, %x : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %other = stablehlo.reshape %second : (tensor<1024x1024xbf16>) -> tensor<1x1024x1024xbf16>
    %both = stablehlo.dynamic_update_slice %stack, %other, %one, %none, %none : (tensor<2x1024x1024xbf16>, tensor<1x1024x1024xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x1024x1024xbf16>
    %read = stablehlo.dynamic_slice %both, %i, %none, %none, sizes = [1, 1024, 1024] : (tensor<2x1024x1024xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1024x1024xbf16>
    "func.return"(%read) : (tensor<1x1024x1024xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32} : () -> ()

// -----

// What is added to what is held takes over its memory, ...

// CHECK:      "peak_bytes": 3145728,
// CHECK-NEXT: "state_bytes": 3145728,
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>, sym_name = "main"}> ({
  ^bb0(%w: tensor<512x1024xbf16>, %h: tensor<1024x1024xbf16>):
    %s = stablehlo.custom_call @zpp.start(%w, %h) {backend_config = {in_place = array<i64: 1, 0>, inputs = 2 : i64, outputs = 1 : i64}} : (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %a = stablehlo.custom_call @zpp.wait(%w, %s) {backend_config = {inputs = 1 : i64, outputs = 1 : i64}} : (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    "func.return"(%a) : (tensor<1024x1024xbf16>) -> ()
  }) : () -> ()
}) : () -> ()

// -----

// ... also where StableHLO's portable form has made a tensor of the pairs.

// CHECK:      "peak_bytes": 3145728,
// CHECK-NEXT: "state_bytes": 3145728,
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>, sym_name = "main"}> ({
  ^bb0(%w: tensor<512x1024xbf16>, %h: tensor<1024x1024xbf16>):
    %s = stablehlo.custom_call @zpp.start(%w, %h) {backend_config = {in_place = dense<[1, 0]> : tensor<2xi64>, inputs = 2 : i64, outputs = 1 : i64}} : (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %a = stablehlo.custom_call @zpp.wait(%w, %s) {backend_config = {inputs = 1 : i64, outputs = 1 : i64}} : (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    "func.return"(%a) : (tensor<1024x1024xbf16>) -> ()
  }) : () -> ()
}) : () -> ()

// -----

// Nothing has verified the pairs: here the output has memory of its own.

// CHECK:      "peak_bytes": 5242880,
// CHECK-NEXT: "state_bytes": 3145728,
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>, sym_name = "main"}> ({
  ^bb0(%w: tensor<512x1024xbf16>, %h: tensor<1024x1024xbf16>):
    %s = stablehlo.custom_call @zpp.start(%w, %h) {backend_config = {in_place = array<i64: 2, 0, 1>, inputs = 2 : i64, outputs = 1 : i64}} : (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %a = stablehlo.custom_call @zpp.wait(%w, %s) {backend_config = {inputs = 1 : i64, outputs = 1 : i64}} : (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    "func.return"(%a) : (tensor<1024x1024xbf16>) -> ()
  }) : () -> ()
}) : () -> ()
