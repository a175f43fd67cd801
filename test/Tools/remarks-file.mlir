// A file of remarks has the place of each: file, line and function, also where locations have names.

// RUN: zpp-opt %s --zeropp="mesh=node:2,gpu:4 weights-of=0" --remarks-filter=.* --remark-format=yaml --remarks-output-file=%t.yaml -o /dev/null
// RUN: FileCheck %s --input-file=%t.yaml --implicit-check-not='<unknown'

//      CHECK: --- !Missed
// CHECK-NEXT: Pass: zero-import-collectives
// CHECK-NEXT: Name: left-alone
// CHECK-NEXT: DebugLoc: { File: train.py, Line: 30, Column: 1 }
// CHECK-NEXT: Function: other
//      CHECK: --- !Passed
// CHECK-NEXT: Pass: zero-quantize-all-gather
// CHECK-NEXT: Name: rewritten
// CHECK-NEXT: DebugLoc: { File: train.py, Line: 12, Column: 3 }
// CHECK-NEXT: Function: main

// As text, they name the function.
// RUN: zpp-opt %s --zeropp="mesh=node:2,gpu:4 weights-of=0" -o /dev/null 2>&1 | FileCheck %s --check-prefix=TEXT
// TEXT: train.py:30:1: remark: [Missed] left-alone | Category:zero-import-collectives | Function=other | Remark="stablehlo.all_reduce is left alone

#place = loc("train.py":12:3)
#named = loc("jit(step)/all_gather"(#place))
#call = loc(callsite(#named at "train.py":90:5))
#sum = loc(fused["jit(step)/psum", "train.py":30:1])
func.func @main(%w: tensor<4x64xf32>, %x: tensor<8x32xf32>) -> tensor<8x64xf32> {
  %g = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x64xf32>) -> tensor<32x64xf32> loc(#call)
  %y = stablehlo.dot_general %x, %g, contracting_dims = [1] x [0] : (tensor<8x32xf32>, tensor<32x64xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}
func.func @other(%x: tensor<i32>) -> tensor<i32> {
  %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    stablehlo.return %a : tensor<i32>
  }) : (tensor<i32>) -> tensor<i32> loc(#sum)
  return %0 : tensor<i32>
}
