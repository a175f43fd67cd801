//===- zpp-bundle.cpp - A rewritten step as a folder ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Bundle.h"
#include "Library.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "zpp/InitAll.h"
#include "zpp/Support/ProgramText.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"

#include <csignal>

using namespace mlir;
using namespace zpp;
namespace cl = llvm::cl;

static constexpr const char *kOverview =
    R"(zpp-bundle: makes of a rewritten step a folder that runs without LLVM

  zpp-opt step.mlir --zeropp="mesh=node:2,gpu:4 target=cuda" -o fast.mlir
  zpp-bundle fast.mlir -o step.zpp

The folder holds
  step.mlir    the step in StableHLO, which starts collectives and waits for them
  libstep.so   the collectives (module @zpp_host) as host functions
                 void NAME(zpp_rt_rank *rank, void *const *buffers)
               which only call libzpp_rt, and may run on any GPU
  bundle.json  id, mesh, and of each function its name, source, buffers, workspace
               and the bytes that a device sends over each tier; the SHA-256 of
               each file, and "digest", its own with 64 zeros in this place

The same input gives the same bytes. Where a bundle is, it is replaced at once.
A linker is needed: ld.lld, ld, cc or clang.
)";

namespace {
struct Options {
  cl::OptionCategory category{"zpp-bundle options"};
  cl::opt<std::string> input{cl::Positional, cl::desc("<step>"), cl::init("-"),
                             cl::cat(category)};
  cl::opt<std::string> output{"o", cl::desc("The folder to write"),
                              cl::value_desc("folder"), cl::cat(category),
                              cl::Required};
  cl::opt<std::string> triple{
      "target-triple", cl::cat(category), cl::value_desc("triple"),
      cl::desc("The target of the library, such as aarch64-linux-gnu "
               "(default: this machine's)")};
  cl::opt<std::string> cpu{"mcpu", cl::cat(category), cl::init("generic"),
                           cl::desc("The processor of the target (default: "
                                    "generic, which means any)")};
  cl::opt<std::string> linker{
      "linker", cl::cat(category), cl::value_desc("program"),
      cl::desc("The linker (default: the first one in PATH)")};
};
} // namespace

/// Reads a step. Locations in the file itself use its name without folders, so
/// that the output does not depend on where the file was.
static OwningOpRef<ModuleOp>
readStep(StringRef path, const std::shared_ptr<llvm::SourceMgr> &sources,
         MLIRContext &context) {
  auto file = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!file) {
    llvm::WithColor::error(llvm::errs(), "zpp-bundle")
        << path << ": " << file.getError().message() << "\n";
    return {};
  }
  if (std::string error = verifyProgramText((*file)->getBuffer(), path);
      !error.empty()) {
    llvm::errs() << path << ":" << error << "\n";
    return {};
  }
  StringRef name = path == "-" ? "<stdin>" : llvm::sys::path::filename(path);
  sources->AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy((*file)->getBuffer(), name),
      llvm::SMLoc());
  return parseSourceFile<ModuleOp>(sources, &context);
}

/// Returns the id of the step and its library: 128 bits, which readers of a
/// bundle can compute again from the files.
static std::string getId(StringRef step, StringRef library) {
  llvm::SHA256 hash;
  for (StringRef part : {step, library}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  return llvm::toHex(hash.final(), /*LowerCase=*/true).substr(0, 32);
}

static llvm::Error run(const Options &options, OwningOpRef<ModuleOp> module) {
  FailureOr<Bundle> bundle = Bundle::split(std::move(module));
  if (failed(bundle))
    return llvm::createStringError("cannot make a bundle of this step");
  LibraryOptions library{options.triple, options.cpu, options.linker};
  llvm::Expected<ObjectFile> object =
      compileHostFunctions(*bundle->host, library);
  if (!object)
    return object.takeError();
  return writeFolder(options.output, [&](StringRef folder) -> llvm::Error {
    SmallString<128> path(folder);
    llvm::sys::path::append(path, "libstep.so");
    if (llvm::Error error = linkLibrary(*object, path, library))
      return error;
    auto linked = llvm::MemoryBuffer::getFile(path);
    if (!linked)
      return llvm::createStringError(path + ": " + linked.getError().message());
    StringRef bytes = (*linked)->getBuffer();
    bundle->setId("");
    bundle->setId(getId(bundle->getStepText(), bytes));
    std::string step = bundle->getStepText();
    if (llvm::Error error = writeContent((folder + "/step.mlir").str(), step))
      return error;
    return writeContent((folder + "/bundle.json").str(),
                        bundle->getManifest({{"libstep.so", getDigest(bytes)},
                                             {"step.mlir", getDigest(step)}}));
  });
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // If a file grows beyond the user's limit, let the write fail instead.
  std::signal(SIGXFSZ, SIG_IGN);
  Options options;
  cl::HideUnrelatedOptions(options.category);
  cl::ParseCommandLineOptions(argc, argv, kOverview);

  DialectRegistry registry;
  zpp::registerAllDialects(registry);
  zpp::registerAllExtensions(registry);
  zpp::registerGuestDialects(registry);
  MLIRContext context(registry);
  auto sources = std::make_shared<llvm::SourceMgr>();
  SourceMgrDiagnosticHandler diagnostics(*sources, &context);
  OwningOpRef<ModuleOp> module = readStep(options.input, sources, context);
  if (!module || failed(verifyGuestOrder(*module)))
    return EXIT_FAILURE;
  if (llvm::Error error = run(options, std::move(module))) {
    llvm::WithColor::error(llvm::errs(), "zpp-bundle")
        << llvm::toString(std::move(error)) << "\n";
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
