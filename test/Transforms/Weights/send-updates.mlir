// RUN: split-file %s %t
// RUN: zpp-opt %t/sliced.mlir --zero-import-collectives="mesh=node:2,gpu:2 updated" --zero-send-updates=block=32 --verify-diagnostics --remarks-filter='.*send-updates' -o %t/sliced.out
// RUN: FileCheck %s --input-file=%t/sliced.out --check-prefix=SLICED
// RUN: zpp-opt %t/own.mlir --zero-import-collectives="mesh=node:2,gpu:2 updated" --zero-send-updates="block=32 format=i4" --verify-diagnostics --remarks-filter='.*send-updates' -o %t/own.out
// RUN: FileCheck %s --input-file=%t/own.out --check-prefix=KEPT

// What is left alone comes out as it was, but for zpp.* attributes.
// RUN: zpp-opt %t/left.mlir --zero-import-collectives="mesh=node:2,gpu:2 updated" --zero-send-updates=block=32 --verify-diagnostics --remarks-filter='.*send-updates' -o %t/left.out
// RUN: FileCheck %s --input-file=%t/left.out --check-prefix=LEFT
// RUN: zpp-opt %t/wrong.mlir --zero-import-collectives="mesh=node:2,gpu:2 updated" --zero-send-updates=block=32 --verify-diagnostics --remarks-filter='.*send-updates' -o %t/wrong.out
// RUN: FileCheck %s --input-file=%t/wrong.out --check-prefix=LEFT

// RUN: zpp-opt %t/average.mlir --zero-import-collectives="mesh=node:2,gpu:2 updated" --zero-send-updates=block=32 --verify-diagnostics --remarks-filter='.*send-updates' -o %t/average.out
// RUN: FileCheck %s --input-file=%t/average.out --check-prefix=AVERAGE

// On slow links it pays, on fast ones not.
// RUN: zpp-opt %t/sliced.mlir --zero-import-collectives="mesh=node:2,gpu:2 links=node=1gbit,gpu=400gbyte updated" --zero-send-updates=block=32 2>&1 \
// RUN:   | FileCheck %s --check-prefix=FAST
// FAST: on these links it takes {{[0-9]+}} usec, as an update {{[0-9]+}}

// Without the option, nothing is marked and nothing is sent.
// RUN: zpp-opt %t/sliced.mlir --zeropp="mesh=node:2,gpu:2" --remarks-filter=none | FileCheck %s --check-prefix=EXACT
// EXACT-COUNT-3: "stablehlo.all_gather"{{.*}}zpp.reason = "it gathers state, which is not rounded
// EXACT-NOT: xi8>

// RUN: zpp-opt %t/sliced.mlir --zeropp="mesh=node:2,gpu:2 updated=i4 tuning.block=32" --zero-report --remarks-filter=none -o %t/all.out 2>&1 | FileCheck %s --check-prefix=REPORT
// RUN: FileCheck %s --input-file=%t/all.out --check-prefix=OUTPUT
// RUN: zpp-opt %t/sliced.mlir --zeropp="mesh=node:2,gpu:2 updated=i8 tuning.block=32 target=cuda" --remarks-filter=none | FileCheck %s --check-prefix=FFI
// REPORT: all_gather {{ *}}update {{.*}} node,gpu
// OUTPUT-NOT: zpp.updated
// OUTPUT: zero_quantize_difference
// OUTPUT: "stablehlo.all_gather"{{.*}}xi8>
// OUTPUT: zero_dequantize_add
// FFI: zpp.start{{.*}}role = "update"

// One update is sent in i8, and one not at all, though both were to be in i4.
// RUN: zpp-opt %t/sliced.mlir --zero-import-collectives="mesh=node:2,gpu:2 updated" --zero-set-floors=floors=0=i8,1=none --zero-send-updates="block=32 format=i4" -o %t/floors.out 2>&1 | FileCheck %s --check-prefix=FLOOR
// RUN: FileCheck %s --input-file=%t/floors.out --check-prefix=FLOORS
// FLOOR: it gathers state, of which no update is sent: floors has it travel unquantized
// FLOORS: zero.encode {{.*}}#zero.quant<i8, block = 32>
// FLOORS: zero.encode {{.*}}#zero.quant<i4, block = 32>
// FLOORS-NOT: id = {{[12] .*}}role = "update"
// FLOORS: zero.all_gather {{.*}}id = 3

// Nothing to send.
// RUN: echo "module attributes {mhlo.num_partitions = 4 : i32} {}" | zpp-opt --zeropp="mesh=node:2,gpu:2 updated=i8" 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: no update is sent: the step gathers no weights that its devices have updated in parts
// RUN: echo "module {}" | not zpp-opt --zero-send-updates=format=i7 2>&1 | FileCheck %s --check-prefix=FORMAT
// FORMAT: expected a format none, i8 or i4, but got 'i7'

//--- sliced.mlir

// What is updated is a slice of what all devices hold.
// SLICED-LABEL: func.func public @main
// SLICED: sdy.manual_computation{{.*}} (%[[W:[^:]+]]: tensor<64x8xf32>, %[[V:[^:]+]]: tensor<64x8xbf16>, %[[F:[^:]+]]: tensor<8x64xf32>
// SLICED: %[[OWN:.*]] = stablehlo.dynamic_slice %[[W]]
// SLICED: %[[NEW:.*]] = stablehlo.subtract %[[OWN]]
// SLICED: %[[FROM:.*]] = zero.from_local %[[NEW]] : {{.*}} to <64x8xf32, dim 0 = ("node", "gpu")
// SLICED: %[[MINUS:.*]] = zero.from_local %[[OWN]]
// SLICED: %[[SENT:.*]] = zero.encode %[[FROM]] minus %[[MINUS]]
// The slow tier comes first: it carries slices of one device.
// SLICED: %[[HOP:.*]] = zero.all_gather %[[SENT]] along ["node"]{{.*}}role = "update"
// SLICED: %[[ALL:.*]] = zero.all_gather %[[HOP]] along ["gpu"]
// SLICED: %[[PLUS:.*]] = zero.from_local %[[W]] : {{.*}} to <64x8xf32, dim 0 = (2, 2)
// SLICED: zero.decode %[[ALL]] plus %[[PLUS]]

// Gathered over one tier after the other, in bf16, updated in f32.
// SLICED: %[[WIDE:.*]] = stablehlo.convert %[[V]] : (tensor<64x8xbf16>) -> tensor<64x8xf32>
// SLICED: zero.encode {{.*}} minus {{.*}}64x8xbf16
// SLICED: zero.all_gather {{.*}} along ["node"]
// SLICED: zero.all_gather {{.*}} along ["gpu"]
// SLICED: zero.decode {{.*}} plus

// A flat slice of another shape.
// SLICED: %[[ROWS:.*]] = stablehlo.reshape %[[F]] : (tensor<8x64xf32>) -> tensor<4x128xf32>
// SLICED: stablehlo.reshape %[[ROWS]] : (tensor<4x128xf32>) -> tensor<512xf32>
// SLICED: zero.encode {{.*}} minus {{.*}}<512xf32
// SLICED: zero.decode
// SLICED-NOT: stablehlo.all_gather

module @sliced attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%arg0: tensor<64x8xf32>, %arg1: tensor<64x8xbf16>, %arg2: tensor<8x64xf32>, %arg3: tensor<64x8xf32>, %arg4: tensor<512xf32>) -> (tensor<64x8xf32>, tensor<64x8xbf16>, tensor<8x64xf32>) {
    %0:3 = sdy.manual_computation(%arg0, %arg1, %arg2, %arg3, %arg4) in_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}]>] out_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{}, {}]>] manual_axes={"node", "gpu"} (%w: tensor<64x8xf32>, %v: tensor<64x8xbf16>, %f: tensor<8x64xf32>, %g: tensor<16x8xf32>, %h: tensor<128xf32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %table = stablehlo.constant dense<[0, 16, 32, 48]> : tensor<4xi32>
      %id = stablehlo.partition_id : tensor<ui32>
      %entry = stablehlo.dynamic_slice %table, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
      %at = stablehlo.reshape %entry : (tensor<1xi32>) -> tensor<i32>
      %1 = stablehlo.dynamic_slice %w, %at, %zero, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %2 = stablehlo.subtract %1, %g : tensor<16x8xf32>
      // expected-remark @below {{sends by how much its tensor has changed, in 2 hops}}
      %3 = "stablehlo.all_gather"(%2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>

      %4 = stablehlo.convert %v : (tensor<64x8xbf16>) -> tensor<64x8xf32>
      %5 = stablehlo.dynamic_slice %4, %at, %zero, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %6 = stablehlo.subtract %5, %g : tensor<16x8xf32>
      %7 = stablehlo.convert %6 : (tensor<16x8xf32>) -> tensor<16x8xbf16>
      %8 = "stablehlo.all_gather"(%7) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<16x8xbf16>) -> tensor<32x8xbf16>
      // expected-remark @below {{in 2 hops}}
      %9 = "stablehlo.all_gather"(%8) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<32x8xbf16>) -> tensor<64x8xbf16>

      %10 = stablehlo.reshape %f : (tensor<8x64xf32>) -> tensor<4x128xf32>
      %index = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
      %11 = stablehlo.dynamic_slice %10, %index, %zero, sizes = [1, 128] : (tensor<4x128xf32>, tensor<i32>, tensor<i32>) -> tensor<1x128xf32>
      %12 = stablehlo.reshape %11 : (tensor<1x128xf32>) -> tensor<128xf32>
      %13 = stablehlo.subtract %12, %h : tensor<128xf32>
      // expected-remark @below {{in 2 hops}}
      %14 = "stablehlo.all_gather"(%13) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<128xf32>) -> tensor<512xf32>
      %15 = stablehlo.reshape %14 : (tensor<512xf32>) -> tensor<8x64xf32>
      sdy.return %3, %9, %15 : tensor<64x8xf32>, tensor<64x8xbf16>, tensor<8x64xf32>
    } : (tensor<64x8xf32>, tensor<64x8xbf16>, tensor<8x64xf32>, tensor<64x8xf32>, tensor<512xf32>) -> (tensor<64x8xf32>, tensor<64x8xbf16>, tensor<8x64xf32>)
    return %0#0, %0#1, %0#2 : tensor<64x8xf32>, tensor<64x8xbf16>, tensor<8x64xf32>
  }
}

//--- own.mlir

// Each device keeps its part in f32. The argument that is replaced is the
// donated one, or has the name of the result; it is held as it is returned.
// KEPT-LABEL: func.func public @main
// KEPT: sdy.manual_computation{{.*}} (%[[W:[^:]+]]: tensor<8x64xbf16>, %[[V:[^:]+]]: tensor<64x8xbf16>, %[[U:[^:]+]]: tensor<64x8xbf16>
// Equal offsets are computed once.
// KEPT-DAG: dense<[0, 32, 0, 32]>
// KEPT-DAG: dense<[0, 16, 32, 48]>
// KEPT: %[[TURNED:.*]] = stablehlo.transpose %[[W]]
// KEPT-NOT: stablehlo.partition_id
// KEPT: stablehlo.dynamic_slice %[[TURNED]]{{.*}}sizes = [16, 8]
// KEPT: zero.encode {{.*}}quant<i4, block = 32>
// KEPT: zero.all_gather {{.*}} along ["node"]
// KEPT: zero.all_gather {{.*}} along ["gpu"]
// KEPT: zero.decode
// KEPT: stablehlo.dynamic_slice %[[V]]
// KEPT: zero.decode
// Within nodes alone.
// KEPT: zero.encode
// KEPT: zero.all_gather {{.*}} along ["gpu"]
// KEPT-NEXT: zero.from_local
// KEPT-NEXT: zero.decode

module @own attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%arg0: tensor<8x64xbf16> {tf.aliasing_output = 0 : i32} loc("w"), %arg1: tensor<64x8xbf16> loc("state['v']"), %arg2: tensor<64x8xbf16> loc("state['u']"), %arg3: tensor<64x8xf32> loc("own"), %arg4: tensor<64x8xf32> loc("own")) -> (tensor<8x64xbf16> {jax.result_info = "result[0]"}, tensor<64x8xbf16> {jax.result_info = "result[1]['v']"}, tensor<64x8xbf16> {jax.result_info = "result[1]['u']"}) {
    %0:3 = sdy.manual_computation(%arg0, %arg1, %arg2, %arg3, %arg4) in_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"gpu"}, {}]>] out_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{}, {}]>] manual_axes={"node", "gpu"} (%w: tensor<8x64xbf16>, %v: tensor<64x8xbf16>, %u: tensor<64x8xbf16>, %m: tensor<16x8xf32>, %n: tensor<32x8xf32>) {
      %1 = stablehlo.convert %m : (tensor<16x8xf32>) -> tensor<16x8xbf16>
      // expected-remark @below {{in 2 hops}}
      %2 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xbf16>) -> tensor<64x8xbf16>
      %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<64x8xbf16>) -> tensor<8x64xbf16>
      // expected-remark @below {{in 2 hops}}
      %4 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xbf16>) -> tensor<64x8xbf16>
      // expected-remark @below {{in 1 hops}}
      %5 = "stablehlo.all_gather"(%n) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<32x8xf32>) -> tensor<64x8xf32>
      %6 = stablehlo.convert %5 : (tensor<64x8xf32>) -> tensor<64x8xbf16>
      sdy.return %3, %4, %6 : tensor<8x64xbf16>, tensor<64x8xbf16>, tensor<64x8xbf16>
    } : (tensor<8x64xbf16>, tensor<64x8xbf16>, tensor<64x8xbf16>, tensor<64x8xf32>, tensor<64x8xf32>) -> (tensor<8x64xbf16>, tensor<64x8xbf16>, tensor<64x8xbf16>)
    return %0#0, %0#1, %0#2 : tensor<8x64xbf16>, tensor<64x8xbf16>, tensor<64x8xbf16>
  }
}

//--- left.mlir

// LEFT-NOT: zpp.updated
// LEFT-NOT: zero.all_gather
// LEFT: "stablehlo.all_gather"{{.*}}zpp.reason = "it gathers state, of which no update is sent
// LEFT-NOT: zero.encode

module @left attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%arg0: tensor<64x8xf32> loc("w"), %arg1: tensor<64x8xf32> loc("v"), %arg2: tensor<64x8xf32> loc("own"), %arg3: tensor<128x8xf32> loc("part"), %arg4: tensor<16x2xf32> loc("tiny"), %arg5: tensor<16x2xf32> loc("g")) -> (tensor<64x8xf32> {jax.result_info = "result[0]"}, tensor<64x8xf32> {jax.result_info = "result[1]"}, tensor<128x8xf32> {jax.result_info = "result[2]"}, tensor<16x2xf32> {jax.result_info = "result[3]"}) {
    %0:4 = sdy.manual_computation(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) in_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node"}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{"node", "gpu"}, {}]>] out_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{"node"}, {}]>, <@mesh, [{}, {}]>] manual_axes={"node", "gpu"} (%a: tensor<64x8xf32>, %b: tensor<64x8xf32>, %c: tensor<16x8xf32>, %d: tensor<64x8xf32>, %e: tensor<16x2xf32>, %f: tensor<4x2xf32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %size = stablehlo.constant dense<16> : tensor<i32>
      %four = stablehlo.constant dense<4> : tensor<i32>
      %id = stablehlo.partition_id : tensor<ui32>
      %index = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
      %at = stablehlo.multiply %index, %size : tensor<i32>
      %near = stablehlo.multiply %index, %four : tensor<i32>
      // expected-remark @below {{it gathers state, of which no update is sent: which argument it replaces is not certain: the step cuts the slice of none; donate the weights, or return them under the names that they came with}}
      %1 = "stablehlo.all_gather"(%c) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>
      // expected-remark @below {{of which no update is sent: no result of the step is what it gathers}}
      %2 = "stablehlo.all_gather"(%c) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>
      %3 = stablehlo.add %2, %b : tensor<64x8xf32>
      %4 = stablehlo.dynamic_slice %d, %at, %zero, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %5 = stablehlo.subtract %4, %c : tensor<16x8xf32>
      // expected-remark @below {{of which no update is sent: devices of its groups have different parts of argument 3 (part)}}
      %6 = "stablehlo.all_gather"(%5) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>
      %7 = stablehlo.dynamic_slice %e, %near, %zero, sizes = [4, 2] : (tensor<16x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x2xf32>
      %8 = stablehlo.subtract %7, %f : tensor<4x2xf32>
      // expected-remark @below {{of which no update is sent: a slice of 32 bytes would take 32 as an update}}
      %9 = "stablehlo.all_gather"(%8) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<4x2xf32>) -> tensor<16x2xf32>
      sdy.return %1, %3, %6, %9 : tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<16x2xf32>
    } : (tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<128x8xf32>, tensor<16x2xf32>, tensor<16x2xf32>) -> (tensor<64x8xf32>, tensor<64x8xf32>, tensor<128x8xf32>, tensor<16x2xf32>)
    return %0#0, %0#1, %0#2, %0#3 : tensor<64x8xf32>, tensor<64x8xf32>, tensor<128x8xf32>, tensor<16x2xf32>
  }
}

//--- wrong.mlir

module @wrong attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%arg0: tensor<64x8xf32> loc("state[0]"), %arg1: tensor<64x8xf32> loc("state[1]"), %arg2: tensor<64x8xf32> loc("g"), %arg3: tensor<64x8xf32> loc("other['w']")) -> (tensor<64x8xf32> {jax.result_info = "result[0]"}, tensor<64x8xf32> {jax.result_info = "result[1]"}, tensor<64x8xf32> {jax.result_info = "result[2]"}, tensor<64x8xf32> {jax.result_info = "result['x']"}, tensor<64x8xf32> {jax.result_info = "result['y']"}) {
    %0:5 = sdy.manual_computation(%arg0, %arg1, %arg2, %arg3) in_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{}, {}]>] out_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{}, {}]>] manual_axes={"node", "gpu"} (%a: tensor<64x8xf32>, %b: tensor<64x8xf32>, %c: tensor<16x8xf32>, %d: tensor<64x8xf32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %turned = stablehlo.constant dense<[16, 0, 32, 48]> : tensor<4xi32>
      %table = stablehlo.constant dense<[0, 16, 32, 48]> : tensor<4xi32>
      %id = stablehlo.partition_id : tensor<ui32>
      %eturned = stablehlo.dynamic_slice %turned, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
      %at_turned = stablehlo.reshape %eturned : (tensor<1xi32>) -> tensor<i32>
      %etable = stablehlo.dynamic_slice %table, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
      %at_table = stablehlo.reshape %etable : (tensor<1xi32>) -> tensor<i32>

      // The slice of another device.
      %1 = stablehlo.dynamic_slice %a, %at_turned, %zero, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %2 = stablehlo.subtract %1, %c : tensor<16x8xf32>
      // expected-remark @below {{of which no update is sent: the slice of argument 0 (state[0]) that it is made of is not the one that it puts in its place}}
      %3 = "stablehlo.all_gather"(%2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>

      // The order of the groups counts, too.
      %4 = stablehlo.dynamic_slice %b, %at_table, %zero, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %5 = stablehlo.subtract %4, %c : tensor<16x8xf32>
      // expected-remark @below {{the slice of argument 1 (state[1]) that it is made of}}
      %6 = "stablehlo.all_gather"(%5) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 2, 1, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>

      // An average of two, either of which the result may replace.
      %7 = stablehlo.dynamic_slice %a, %at_table, %zero, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %8 = stablehlo.add %7, %4 : tensor<16x8xf32>
      // expected-remark @below {{it is made of slices of argument 0 (state[0]) and argument 1 (state[1]), and which of them it replaces is not certain: donate them, or return them under the names that they came with}}
      %9 = "stablehlo.all_gather"(%8) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>

      // Returned under the name of another argument: an average of weights.
      // expected-remark @below {{which argument it replaces is not certain}}
      %10 = "stablehlo.all_gather"(%c) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>

      // What is sliced is not what the step was given.
      %11 = stablehlo.tanh %a : tensor<64x8xf32>
      %12 = stablehlo.dynamic_slice %11, %at_table, %zero, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %13 = stablehlo.subtract %12, %c : tensor<16x8xf32>
      // expected-remark @below {{which argument it replaces is not certain}}
      %14 = "stablehlo.all_gather"(%13) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>
      sdy.return %3, %6, %9, %10, %14 : tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>
    } : (tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>) -> (tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>)
    return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>
  }
}

//--- average.mlir

// An average of weights is made of slices of both. By its name it is the second
// argument, which no gradient is computed from.
// AVERAGE: zero.decode
// AVERAGE: "stablehlo.all_gather"{{.*}}zpp.reason = "it gathers state, of which no update is sent: argument 1

module @average attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%arg0: tensor<64x8xf32> loc("state['w']"), %arg1: tensor<64x8xf32> loc("state['a']"), %arg2: tensor<16x64xf32> loc("batch")) -> (tensor<64x8xf32> {jax.result_info = "result['w']"}, tensor<64x8xf32> {jax.result_info = "result['a']"}) {
    %0:2 = "sdy.manual_computation"(%arg0, %arg1, %arg2) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>, <@mesh, [{"node", "gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {}]>, <@mesh, [{}, {}]>]>}> ({
    ^bb0(%w: tensor<64x8xf32>, %a: tensor<64x8xf32>, %x: tensor<4x64xf32>):
      %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x64xf32>, tensor<64x8xf32>) -> tensor<4x8xf32>
      %2 = stablehlo.dot_general %x, %1, contracting_dims = [0] x [0] : (tensor<4x64xf32>, tensor<4x8xf32>) -> tensor<64x8xf32>
      %3 = "stablehlo.reduce_scatter"(%2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %sum = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %sum : tensor<f32>
      }) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %size = stablehlo.constant dense<16> : tensor<i32>
      %id = stablehlo.partition_id : tensor<ui32>
      %index = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
      %at = stablehlo.multiply %index, %size : tensor<i32>
      %4 = stablehlo.dynamic_slice %w, %at, %zero, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %5 = stablehlo.subtract %4, %3 : tensor<16x8xf32>
      // expected-remark @below {{in 2 hops}}
      %6 = "stablehlo.all_gather"(%5) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>
      %7 = stablehlo.dynamic_slice %a, %at, %zero, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %8 = stablehlo.add %7, %5 : tensor<16x8xf32>
      // expected-remark @below {{of which no update is sent: argument 1 (state['a']) is no weight: no gradient is computed from it}}
      %9 = "stablehlo.all_gather"(%8) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<16x8xf32>) -> tensor<64x8xf32>
      sdy.return %6, %9 : tensor<64x8xf32>, tensor<64x8xf32>
    }) : (tensor<64x8xf32>, tensor<64x8xf32>, tensor<16x64xf32>) -> (tensor<64x8xf32>, tensor<64x8xf32>)
    return %0#0, %0#1 : tensor<64x8xf32>, tensor<64x8xf32>
  }
}
