//===- zpp.c - A C program that runs zpp's pipeline -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// RUN: zpp-capi-test 2>&1 | FileCheck %s

#include "mlir-c/Diagnostics.h"
#include "mlir-c/IR.h"
#include "mlir-c/Pass.h"
#include "zpp-c/Zpp.h"

#include <stdio.h>

static const char *const kStep =
    "func.func @main(%w: tensor<4x64xf32>, %x: tensor<8x32xf32>)\n"
    "    -> tensor<8x64xf32> {\n"
    "  %g = \"stablehlo.all_gather\"(%w) <{all_gather_dim = 0 : i64,\n"
    "    channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,\n"
    "    replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>,\n"
    "    use_global_device_ids}> : (tensor<4x64xf32>) -> tensor<32x64xf32>\n"
    "  %y = \"stablehlo.dot_general\"(%x, %g) <{dot_dimension_numbers =\n"
    "    #stablehlo.dot<lhs_contracting_dimensions = [1],\n"
    "                   rhs_contracting_dimensions = [0]>}>\n"
    "    : (tensor<8x32xf32>, tensor<32x64xf32>) -> tensor<8x64xf32>\n"
    "  return %y : tensor<8x64xf32>\n"
    "}\n";

static void print(MlirStringRef text, void *userData) {
  fwrite(text.data, 1, text.length, stdout);
}

static MlirStringRef str(const char *text) {
  return mlirStringRefCreateFromCString(text);
}

/// Runs `pipeline` on `module`; says where it fails.
static void run(MlirModule module, const char *pipeline) {
  MlirPassManager pm = mlirPassManagerCreate(mlirModuleGetContext(module));
  if (mlirLogicalResultIsFailure(
          mlirParsePassPipeline(mlirPassManagerGetAsOpPassManager(pm),
                                str(pipeline), print, NULL)))
    printf("\nno pipeline: %s\n", pipeline);
  else if (mlirLogicalResultIsFailure(
               mlirPassManagerRunOnOp(pm, mlirModuleGetOperation(module))))
    printf("failed: %s\n", pipeline);
  mlirPassManagerDestroy(pm);
}

static void report(MlirModule module, const char *options) {
  if (mlirLogicalResultIsFailure(
          zppModuleReport(module, str(options), print, NULL)))
    printf("no report: %s\n", options);
}

static MlirLogicalResult printDiagnostic(MlirDiagnostic diagnostic,
                                         void *userData) {
  printf("diagnostic: ");
  mlirDiagnosticPrint(diagnostic, print, NULL);
  printf("\n");
  return mlirLogicalResultSuccess();
}

int main(void) {
  // In order with what MLIR writes to stderr.
  setvbuf(stdout, NULL, _IONBF, 0);
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  zppRegisterAllDialects(registry);
  // What is there already stays.
  zppRegisterGuestDialects(registry);
  zppRegisterGuestDialects(registry);
  zppRegisterAllPasses();
  zppRegisterAllPasses();
  MlirContext context = mlirContextCreateWithRegistry(registry, false);
  mlirContextAttachDiagnosticHandler(context, printDiagnostic, NULL, NULL);
  MlirModule module = mlirModuleCreateParse(context, str(kStep));
  if (mlirModuleIsNull(module))
    return 1;

  // CHECK-LABEL: before
  // CHECK: "rewritten": false
  printf("before\n");
  report(module, "mesh=node:2,gpu:4 format=json weights-of=0");

  // CHECK-LABEL: step
  // CHECK: func.func @main
  // CHECK: "stablehlo.all_gather"
  // CHECK-SAME: xi8>
  printf("step\n");
  run(module, "builtin.module(zeropp{mesh=node:2,gpu:4 weights-of=0})");
  mlirOperationPrint(mlirModuleGetOperation(module), print, NULL);

  // CHECK-LABEL: after
  // CHECK: "rewritten": true
  printf("after\n");
  report(module, "format=json");

  // CHECK-LABEL: errors
  // CHECK: no such option bogus
  // CHECK: no pipeline: builtin.module(zeropp{bogus=1})
  // CHECK: diagnostic: expected weights as none, i8, i4, i8:delta or i4:delta, but got 'i8:'
  // CHECK: failed: builtin.module(zeropp{weights=i8:})
  // CHECK: no such option bogus
  // CHECK: no report: bogus=1
  // CHECK: diagnostic: in mesh 'gpu': expected NAME:SIZE, but got 'gpu'
  // CHECK: no report: mesh=gpu
  printf("errors\n");
  run(module, "builtin.module(zeropp{bogus=1})");
  run(module, "builtin.module(zeropp{weights=i8:})");
  report(module, "bogus=1");
  report(module, "mesh=gpu");

  mlirModuleDestroy(module);
  mlirContextDestroy(context);
  mlirDialectRegistryDestroy(registry);
  return 0;
}
