//===- Zpp.cpp - The compiler from C --------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp-c/Zpp.h"

#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Support.h"
#include "mlir/CAPI/Utils.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "zpp/InitAll.h"

using namespace mlir;

void zppRegisterAllDialects(MlirDialectRegistry registry) {
  zpp::registerAllDialects(*unwrap(registry));
  zpp::registerAllExtensions(*unwrap(registry));
}

void zppRegisterGuestDialects(MlirDialectRegistry registry) {
  zpp::registerGuestDialects(*unwrap(registry));
}

void zppRegisterAllPasses(void) {
  [[maybe_unused]] static const bool once = (zpp::registerAllPasses(), true);
}

MlirLogicalResult zppModuleReport(MlirModule module, MlirStringRef options,
                                  MlirStringCallback callback, void *userData) {
  ModuleOp op = unwrap(module);
  mlir::detail::CallbackOstream os(callback, userData);
  std::unique_ptr<Pass> pass = zpp::createReportPass(os);
  auto onError = [&](const Twine &error) {
    return emitError(op.getLoc(), error);
  };
  if (failed(pass->initializeOptions(unwrap(options), onError)))
    return wrap(failure());
  PassManager pm(op.getContext(), ModuleOp::getOperationName());
  pm.addPass(std::move(pass));
  return wrap(pm.run(op));
}
