//===- zpp-opt.cpp - The compiler as a command ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LongLines.h"
#include "Register.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "zpp/Dialect/Guest/GuestDialects.h"
#include "zpp/Support/OutputFile.h"
#include "zpp/Support/ProgramText.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"

#include <csignal>

using namespace mlir;

static constexpr const char *kOverview =
    R"(zpp-opt: rewrites the collectives of sharded training as ZeRO++

Reads a training step in StableHLO, as jax.jit(step).lower(...).as_text() prints
it, and writes one that sends less. `zpp opt` takes all other forms, too. A step
whose collectives XLA makes of its shardings goes to `zpp rewrite`, which lets
XLA make them first.

  everything, on 2 nodes of 4 GPUs:
    zpp-opt step.mlir --zeropp="mesh=node:2,gpu:4" -o fast.mlir
  one technique at a time:
    zpp-opt step.mlir --zeropp="mesh=node:2,gpu:4 weights=i8 secondary=none gradients=none"
  what every collective sends, before and after:
    zpp-opt step.mlir --zeropp="mesh=node:2,gpu:4" --zero-report -o fast.mlir

Each pass has a flag of its own (--zero-...). Remarks name the collectives that
are left alone, and say why; --remarks-filter=.* shows all decisions.
The module is verified after each pass; --verify-each=false, which takes less
time, verifies the input and the output only.
)";

namespace {
/// Verifies what MLIR's verifier does not know about guests.
struct VerifyInput : public PassWrapper<VerifyInput, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(VerifyInput)

  StringRef getArgument() const override { return "verify-input"; }
  StringRef getDescription() const override {
    return "Verify what MLIR's verifier does not know about guests";
  }
  void runOnOperation() override {
    if (failed(zpp::verifyGuestOrder(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

/// Nobody reads the output.
struct DropOutput : public PassWrapper<DropOutput, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DropOutput)

  StringRef getArgument() const override { return "drop-output"; }
  StringRef getDescription() const override {
    return "Empty a module that nobody reads";
  }
  void runOnOperation() override { getOperation().getBody()->clear(); }
};

/// Refuses what bytecode cannot hold. The properties of a registered op are
/// stored as its dialect does, so another tool could not read those of a guest.
struct VerifyBytecode : public PassWrapper<VerifyBytecode, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(VerifyBytecode)

  StringRef getArgument() const override { return "verify-bytecode"; }
  StringRef getDescription() const override {
    return "Verify that all ops of a module can be written as bytecode";
  }
  void runOnOperation() override {
    WalkResult result = getOperation()->walk([](Operation *op) {
      if (op->isRegistered())
        return WalkResult::advance();
      op->emitError("expected ops of registered dialects for --emit-bytecode, "
                    "but got '")
          << op->getName()
          << "'; write text, and convert it: zpp convert FILE --to bytecode -o "
             "FILE.mlirbc";
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

/// Verifies the output of a pipeline that is not verified after each pass.
struct VerifyOutput : public PassWrapper<VerifyOutput, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(VerifyOutput)

  StringRef getArgument() const override { return "verify-output"; }
  StringRef getDescription() const override {
    return "Verify a module that has not been verified after each pass";
  }
  void runOnOperation() override {
    if (failed(verify(getOperation())))
      signalPassFailure();
  }
};
} // namespace

/// Reads `input`, runs the passes and writes `output`, which does not change if
/// anything fails.
static LogicalResult run(StringRef input, const std::string &output,
                         DialectRegistry &registry) {
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(input, &message);
  if (!buffer) {
    llvm::errs() << message << "\n";
    return failure();
  }
  if (std::string error = zpp::verifyProgramText(buffer->getBuffer(), input);
      !error.empty()) {
    llvm::errs() << input << ":" << error << "\n";
    return failure();
  }
  zpp::tools::LongLines lines(buffer->getBufferIdentifier(),
                              buffer->getBuffer());
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  bool isRead = output != "/dev/null";
  config.setPassPipelineSetupFn([&, passes = config](PassManager &pm) {
    lines.handle(pm.getContext(), passes);
    pm.addPass(std::make_unique<VerifyInput>());
    if (failed(passes.setupPassPipeline(pm)))
      return failure();
    if (!passes.shouldVerifyPasses())
      pm.addPass(std::make_unique<VerifyOutput>());
    if (passes.shouldEmitBytecode())
      pm.addPass(std::make_unique<VerifyBytecode>());
    if (!isRead)
      pm.addPass(std::make_unique<DropOutput>());
    return success();
  });
  if (output == "-")
    return MlirOptMain(llvm::outs(), std::move(buffer), registry, config);
  std::string text;
  llvm::raw_string_ostream os(text);
  if (failed(MlirOptMain(os, std::move(buffer), registry, config)))
    return failure();
  std::string cause = zpp::writeFile(output, {text});
  if (cause.empty())
    return success();
  llvm::errs() << "cannot write '" << output << "': " << cause << "\n";
  return failure();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // A file that exceeds the user's limit is an error of the write.
  std::signal(SIGXFSZ, SIG_IGN);
  DialectRegistry registry;
  zpp::tools::registerEverything(registry);
  // Reproducers and dumped pipelines name all passes.
  PassRegistration<VerifyInput>();
  PassRegistration<VerifyBytecode>();
  PassRegistration<VerifyOutput>();
  PassRegistration<DropOutput>();

  // Show missed remarks unless the user chooses: nothing is left alone or
  // guessed silently.
  std::vector<char *> arguments(argv, argv + argc);
  static char missed[] = "--remarks-filter-missed=zero-.*";
  static char guessed[] = "--remarks-filter-analyse=zero-.*";
  bool choosesRemarks = llvm::any_of(arguments, [](StringRef argument) {
    return argument.ltrim('-').starts_with("remark");
  });
  if (!choosesRemarks)
    arguments.insert(arguments.begin() + 1, {missed, guessed});
  auto [input, output] =
      registerAndParseCLIOptions(static_cast<int>(arguments.size()),
                                 arguments.data(), kOverview, registry);
  return asMainReturnCode(run(input, output, registry));
}
