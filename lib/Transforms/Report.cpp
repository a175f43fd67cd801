//===- Report.cpp - Bytes per tier, before and after (3.4) ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report/Report.h"

#include "FormatOptions.h"
#include "Import/StepInliner.h"
#include "zpp/Support/OutputFile.h"
#include "zpp/Transforms/Passes.h"

#include <cmath>

namespace zpp {
#define GEN_PASS_DEF_REPORTPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::report;

namespace {
class ReportPass : public zpp::impl::ReportPassBase<ReportPass> {
public:
  using ReportPassBase::ReportPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Mesh> stepMesh = getStepMesh(module, mesh);
    if (failed(stepMesh))
      return signalPassFailure();
    FailureOr<Declarations> declared =
        Declarations::parse(module, weightsOf, gradientsOf);
    if (failed(declared))
      return signalPassFailure();
    std::optional<DeviceModel> model;
    if (!device.empty()) {
      std::string error;
      model = DeviceModel::parse(device, error);
      if (!model) {
        emitError(module.getLoc(), error);
        return signalPassFailure();
      }
    }
    if (!(computeScale > 0) || std::isinf(computeScale.getValue())) {
      emitError(module.getLoc(),
                "expected a positive scale of compute, but got ")
          << computeScale.getValue();
      return signalPassFailure();
    }
    LinksOption linksOption(module, links);
    FailureOr<std::optional<LinkModel>> speeds =
        linksOption.getModel(*stepMesh);
    if (failed(speeds))
      return signalPassFailure();
    auto build = [&](ModuleOp module) {
      SmallVector<StepCollective> collectives =
          readStepCollectives(module, *stepMesh);
      // Rewritten collectives carry their roles.
      if (llvm::any_of(collectives, [](const StepCollective &collective) {
            return getOrigins(collective).empty();
          }))
        findRoles(module, *stepMesh, *declared, collectives);
      Report report = buildReport(module, *stepMesh, collectives);
      if (model)
        report.time = predictStepTime(module, *stepMesh, collectives,
                                      speeds->value_or(LinkModel(*stepMesh)),
                                      *model, computeScale);
      report.listsTasks = timeline;
      return report;
    };
    std::string text;
    llvm::raw_string_ostream os(text);
    Report report;
    if (needsInlining(module)) {
      // A function's collectives count once per call.
      OwningOpRef<ModuleOp> inlined = module.clone();
      if (failed(inlineStep(*inlined)))
        return signalPassFailure();
      report = build(*inlined);
    } else {
      report = build(module);
    }
    // A rewrite has said so already.
    if (report.entries.empty() && !module->hasAttr(kMeshAttr))
      remarkNoCollectives(module, getArgument());
    if (format == ReportFormat::Json)
      printJSON(report, os);
    else
      printTable(report, os);
    if (failed(write(text)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  LogicalResult write(StringRef text) {
    if (output.empty()) {
      llvm::errs() << text;
      return success();
    }
    if (output == "-") {
      llvm::outs() << text;
      return success();
    }
    std::string cause = writeFile(output, {text});
    if (!cause.empty())
      return emitError(getOperation().getLoc(), "cannot write the report to '")
             << output << "': " << cause;
    return success();
  }
};
} // namespace
