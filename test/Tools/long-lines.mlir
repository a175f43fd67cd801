// A diagnostic about a long line prints the part that it is about.

// RUN: rm -rf %t && mkdir %t
// RUN: %python -c "print('func.func @f(%%a: tensor<4xf32>) -> tensor<4xf32> {\n  %%b = \"stablehlo.all_reduce\"(%%a) <{replica_groups = dense<[' + str(list(range(1000))) + ']> : tensor<1x1000xi64>}> ({\n^bb0(%%x: tensor<f32>, %%y: tensor<f32>):\n \"stablehlo.return\"(%%x) : (tensor<f32>) -> ()\n}) : (tensor<4xf32>) -> tensor<4xf32> return %%b : tensor<4xf32> }')" > %t/step.mlir
// RUN: zpp-opt %t/step.mlir --zeropp=mesh=gpu:1000 -o %t/out.mlir 2> %t/remarks
// RUN: FileCheck %s --input-file=%t/remarks --match-full-lines --strict-whitespace
// RUN: test $(cat %t/remarks | wc -c) -lt 2000
//      CHECK:{{.*}}step.mlir:2:8: remark: [Missed] left-alone | Category:zero-import-collectives | {{.*}}
// CHECK-NEXT:  %b = "stablehlo.all_reduce"(%a) <{replica_groups = dense<{{.*}}...
// CHECK-NEXT:       ^
//  CHECK-NOT:{{.*900.*}}

// What is not shown otherwise is not shown here.
// RUN: zpp-opt %t/step.mlir --zeropp=mesh=gpu:1000 --mlir-diagnostic-verbosity-level=warnings -o /dev/null 2>&1 | count 0

// Other lines are printed whole.
// RUN: zpp-opt %s --zeropp=mesh=gpu:2 -o /dev/null 2>&1 | FileCheck %s --check-prefix=SHORT
// SHORT:      long-lines.mlir:[[#@LINE+4]]:8: remark: [Missed] left-alone
// SHORT-NEXT: {{^}}  %b = "stablehlo.all_reduce"{{.*}}dense<
// SHORT-NEXT: {{^ *}}^
func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  %b = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %x : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}
