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
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"

using namespace mlir;
using namespace zpp;
namespace cl = llvm::cl;

static constexpr const char *kOverview =
    R"(zpp-bundle: makes of a rewritten step a folder that runs without LLVM

  zpp-opt step.mlir --zeropp="mesh=node:2,gpu:4 target=xla-ffi" -o fast.mlir
  zpp-bundle fast.mlir -o step.zpp

The folder holds
  step.mlir    the step in StableHLO, which starts collectives and waits for them
  libstep.so   the collectives (module @zpp_host) as host functions
                 void NAME(zpp_rt_rank *rank, void *const *buffers)
               which only call libzpp_rt, and may run on any GPU
  bundle.json  id, mesh, and of each function its name, source, buffers, workspace
               and the bytes that a device sends over each tier

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
      cl::desc("Where the library is to run, as aarch64-linux-gnu (default: "
               "as this machine)")};
  cl::opt<std::string> cpu{"mcpu", cl::cat(category), cl::init("generic"),
                           cl::desc("For which processor (default: generic, "
                                    "that is any)")};
  cl::opt<std::string> linker{
      "linker", cl::cat(category), cl::value_desc("program"),
      cl::desc("What links the library (default: the first one in PATH)")};
};
} // namespace

/// Reads a step. Places in the file itself go by its name without folders, so
/// that what is made of it does not depend on where it was.
static OwningOpRef<ModuleOp>
readStep(StringRef path, const std::shared_ptr<llvm::SourceMgr> &sources,
         MLIRContext &context) {
  auto file = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!file) {
    llvm::WithColor::error(llvm::errs(), "zpp-bundle")
        << path << ": " << file.getError().message() << "\n";
    return {};
  }
  StringRef name = path == "-" ? "<stdin>" : llvm::sys::path::filename(path);
  sources->AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy((*file)->getBuffer(), name),
      llvm::SMLoc());
  return parseSourceFile<ModuleOp>(sources, &context);
}

/// Names what it is made of: 128 bits.
static std::string getId(Bundle &bundle, const ObjectFile &object) {
  llvm::SHA256 hash;
  std::string step = bundle.getStepText();
  for (StringRef part :
       {StringRef(step), StringRef(object.triple), StringRef(object.bytes)}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  return llvm::toHex(hash.final(), /*LowerCase=*/true).substr(0, 32);
}

static llvm::Error writeFile(StringRef folder, StringRef name, StringRef text) {
  SmallString<128> path(folder);
  llvm::sys::path::append(path, name);
  std::error_code code;
  llvm::raw_fd_ostream file(path, code);
  if (!code) {
    file << text;
    file.close();
    code = file.error();
    file.clear_error();
  }
  return code ? llvm::createStringError(path + ": " + code.message())
              : llvm::Error::success();
}

static std::string getDigest(StringRef text) {
  return llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(text)),
                     /*LowerCase=*/true);
}

static llvm::Error run(const Options &options, OwningOpRef<ModuleOp> module) {
  FailureOr<Bundle> bundle = Bundle::split(std::move(module));
  if (failed(bundle))
    return llvm::createStringError("cannot make a bundle of this step");
  LibraryOptions library{options.triple, options.cpu, options.linker};
  if (!bundle->host)
    bundle->host = ModuleOp::create(bundle->step->getLoc());
  llvm::Expected<ObjectFile> object =
      compileHostFunctions(*bundle->host, library);
  if (!object)
    return object.takeError();
  bundle->setId("");
  bundle->setId(getId(*bundle, *object));
  return writeFolder(options.output, [&](StringRef folder) -> llvm::Error {
    SmallString<128> path(folder);
    llvm::sys::path::append(path, "libstep.so");
    if (llvm::Error error = linkLibrary(*object, path, library))
      return error;
    auto linked = llvm::MemoryBuffer::getFile(path);
    if (!linked)
      return llvm::createStringError(path + ": " + linked.getError().message());
    std::string step = bundle->getStepText();
    if (llvm::Error error = writeFile(folder, "step.mlir", step))
      return error;
    return writeFile(
        folder, "bundle.json",
        bundle->getManifest({{"libstep.so", getDigest((*linked)->getBuffer())},
                             {"step.mlir", getDigest(step)}}));
  });
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  Options options;
  cl::HideUnrelatedOptions(options.category);
  cl::ParseCommandLineOptions(argc, argv, kOverview);

  DialectRegistry registry;
  zpp::registerAllDialects(registry);
  zpp::registerGuestDialects(registry);
  MLIRContext context(registry);
  auto sources = std::make_shared<llvm::SourceMgr>();
  SourceMgrDiagnosticHandler diagnostics(*sources, &context);
  OwningOpRef<ModuleOp> module = readStep(options.input, sources, context);
  if (!module)
    return EXIT_FAILURE;
  if (llvm::Error error = run(options, std::move(module))) {
    llvm::WithColor::error(llvm::errs(), "zpp-bundle")
        << llvm::toString(std::move(error)) << "\n";
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
