//===- ImportCompiled.cpp - Modules from inside of XLA's compiler ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Support/Mesh.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_IMPORTCOMPILEDPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

namespace {

class ImportCompiledPass
    : public zpp::impl::ImportCompiledPassBase<ImportCompiledPass> {
public:
  using ImportCompiledPassBase::ImportCompiledPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    // A step of JAX says on how many devices it runs.
    if (!module->hasAttr(guest::kIsDynamic) ||
        module->hasAttr(guest::kNumPartitions) ||
        containsOp(module, isManualComputation))
      return;
    if (failed(setPartitions(module)))
      return signalPassFailure();
    // HLO names the body of a loop, and the sum of a reduction, as computations
    // of their own. What StableHLO has as regions stays behind as functions.
    OpPassManager dce(ModuleOp::getOperationName());
    dce.addPass(createSymbolDCEPass());
    if (failed(runPipeline(dce, module)))
      return signalPassFailure();
  }

private:
  /// Says on how many devices the module runs, which HLO leaves to those who
  /// compile it.
  LogicalResult setPartitions(ModuleOp module) {
    std::string error;
    std::optional<Mesh> devices = Mesh::parse(mesh, error);
    if (!devices)
      return emitError(module.getLoc(), "in mesh '") << mesh << "': " << error;
    ModuleCopies copies = getModuleCopies(module);
    int64_t own = copies.replicas * copies.partitions;
    if (own != 1 && own != devices->numDevices())
      return emitError(module.getLoc(), "expected a mesh of ")
             << own << " devices, on which the module runs, but got '" << mesh
             << "' of " << devices->numDevices();
    if (own == 1)
      module->setAttr(guest::kNumPartitions,
                      IntegerAttr::get(IntegerType::get(&getContext(), 32),
                                       devices->numDevices()));
    return success();
  }
};

} // namespace
