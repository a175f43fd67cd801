// Pipelines of a file run on copies of the module, and the module stays.

// RUN: rm -rf %t && split-file %s %t
// RUN: cd %t && zpp-opt module.mlir --run-on-copies=pipelines=two.txt | FileCheck %s
// RUN: FileCheck %s --check-prefix=FIRST --input-file=%t/first.json
// RUN: FileCheck %s --check-prefix=SECOND --input-file=%t/second.json

// CHECK: all_gather
// CHECK-NOT: zero
// FIRST: "rewritten": false
// SECOND: "rewritten": true

// RUN: cd %t && zpp-opt module.mlir --run-on-copies=pipelines=none.txt | FileCheck %s

// RUN: not zpp-opt %t/module.mlir --run-on-copies=pipelines=%t/missing.txt 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MISSING
// MISSING: error: cannot open input file '{{.*}}missing.txt'
// MISSING-NOT: error:

// RUN: not zpp-opt %t/module.mlir --run-on-copies=pipelines=%t/unknown.txt 2>&1 \
// RUN:   | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: 'no-such-pass' does not refer to a registered pass

// RUN: cd %t && not zpp-opt module.mlir --run-on-copies=pipelines=itself.txt 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ITSELF
// ITSELF: error: in 'itself.txt': expected pipelines without run-on-copies, but got 'builtin.module(run-on-copies{pipelines=itself.txt})'

// A pipeline that fails ends the others.
// RUN: cd %t && not zpp-opt module.mlir --run-on-copies=pipelines=fails.txt 2>&1 \
// RUN:   | FileCheck %s --check-prefix=FAILS
// FAILS: error: expected a mesh of 4 devices

// What goes to /dev/null is not printed, but verified and reported on.
// RUN: cd %t && zpp-opt module.mlir --zero-report="mesh=node:2,gpu:2 format=json output=third.json" -o /dev/null
// RUN: diff %t/first.json %t/third.json

//--- two.txt
zero-report{mesh=node:2,gpu:2 format=json output=first.json}

zeropp{mesh=node:2,gpu:2 weights=i8 weights-of=all secondary=none},zero-report{mesh=node:2,gpu:2 format=json output=second.json}
//--- none.txt
//--- unknown.txt
no-such-pass
//--- itself.txt
builtin.module(run-on-copies{pipelines=itself.txt})
//--- fails.txt
zeropp{mesh=node:2,gpu:4}
zero-report{mesh=node:2,gpu:2 format=json output=never.json}
//--- module.mlir
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<64x128xbf16>, tensor<16x256xbf16>) -> tensor<16x128xbf16>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<64x128xbf16>, %arg1: tensor<16x256xbf16>):
    %0 = "stablehlo.all_gather"(%arg0) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> : (tensor<64x128xbf16>) -> tensor<256x128xbf16>
    %1 = stablehlo.dot_general %arg1, %0, contracting_dims = [1] x [0] : (tensor<16x256xbf16>, tensor<256x128xbf16>) -> tensor<16x128xbf16>
    "func.return"(%1) : (tensor<16x128xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32} : () -> ()
