//===- zpp-lsp-server.cpp - Programs of zpp in an editor ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Register.h"

#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  zpp::tools::registerEverything(registry);
  return failed(mlir::MlirLspServerMain(argc, argv, registry));
}
