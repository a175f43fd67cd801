//===- Library.cpp - Host functions as a shared library -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Library.h"

#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "zpp/Pipelines/Host.h"
#include "zpp/Support/OutputFile.h"
#include "llvm/Config/Targets.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

using namespace llvm;
using namespace zpp;

//===----------------------------------------------------------------------===//
// Compilation
//===----------------------------------------------------------------------===//

/// Lets LLVM compile for this machine's processor and for those of hosts with
/// GPUs.
static void initializeTargets() {
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
#define ZPP_INITIALIZE(Name)                                                   \
  LLVMInitialize##Name##TargetInfo();                                          \
  LLVMInitialize##Name##Target();                                              \
  LLVMInitialize##Name##TargetMC();                                            \
  LLVMInitialize##Name##AsmPrinter();
#if LLVM_HAS_X86_TARGET
  ZPP_INITIALIZE(X86)
#endif
#if LLVM_HAS_AARCH64_TARGET
  ZPP_INITIALIZE(AArch64)
#endif
#undef ZPP_INITIALIZE
}

static Expected<std::unique_ptr<TargetMachine>>
createTargetMachine(const Triple &triple, const LibraryOptions &options) {
  initializeTargets();
  std::string error;
  const llvm::Target *target = TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return createStringError("expected a target triple that LLVM knows, but "
                             "got '" +
                             triple.str() + "': " + error);
  std::unique_ptr<TargetMachine> machine(target->createTargetMachine(
      triple, options.cpu, /*Features=*/"", TargetOptions(), Reloc::PIC_,
      std::nullopt, CodeGenOptLevel::Default));
  if (!machine || !machine->getMCSubtargetInfo()->isCPUStringValid(options.cpu))
    return createStringError("expected a cpu of '" + triple.str() +
                             "', but got '" + options.cpu + "'");
  if (machine->createDataLayout().getPointerSize() != sizeof(int64_t))
    return createStringError("expected a target with pointers of 8 bytes, but "
                             "got '" +
                             triple.str() + "'");
  return machine;
}

Expected<ObjectFile> zpp::compileHostFunctions(mlir::ModuleOp host,
                                               const LibraryOptions &options) {
  Triple triple(options.triple.empty() ? sys::getDefaultTargetTriple()
                                       : Triple::normalize(options.triple));
  auto machine = createTargetMachine(triple, options);
  if (!machine)
    return machine.takeError();

  mlir::PassManager pm(host.getContext());
  buildHostFunctionPipeline(pm);
  if (mlir::failed(pm.run(host)))
    return createStringError("cannot lower the host functions");
  LLVMContext context;
  std::unique_ptr<Module> module =
      mlir::translateModuleToLLVMIR(host, context, "zpp_host");
  if (!module)
    return createStringError("cannot translate the host functions to LLVM IR");
  module->setTargetTriple(triple);
  module->setDataLayout((*machine)->createDataLayout());
  if (Error error = mlir::makeOptimizingTransformer(
          /*optLevel=*/2, /*sizeLevel=*/0, machine->get())(module.get()))
    return error;

  SmallVector<char> bytes;
  raw_svector_ostream stream(bytes);
  legacy::PassManager emit;
  if ((*machine)->addPassesToEmitFile(emit, stream, /*DwoOut=*/nullptr,
                                      CodeGenFileType::ObjectFile))
    return createStringError("LLVM emits no object files for '" + triple.str() +
                             "'");
  emit.run(*module);
  return ObjectFile{triple.str(), std::string(bytes.begin(), bytes.end())};
}

//===----------------------------------------------------------------------===//
// Linking
//===----------------------------------------------------------------------===//

/// Linkers in the order in which they are tried. Those that know all targets
/// come first; compilers link only for their own target.
static constexpr StringLiteral kLinkers[] = {"ld.lld", "ld.lld-22", "ld",
                                             "cc",     "clang",     "gcc"};

static bool linksAllTargets(StringRef linker) {
  return sys::path::filename(linker).starts_with("ld.lld");
}

static Expected<std::string> findLinker(StringRef triple,
                                        const LibraryOptions &options) {
  if (!options.linker.empty()) {
    if (ErrorOr<std::string> path = sys::findProgramByName(options.linker))
      return *path;
    return createStringError("expected a linker, but got no program '" +
                             options.linker + "'");
  }
  bool isForeign = Triple(triple).getArch() !=
                   Triple(sys::getDefaultTargetTriple()).getArch();
  std::string names;
  for (StringRef name : kLinkers) {
    if (isForeign && !linksAllTargets(name))
      continue;
    names += (names.empty() ? "" : ", ") + name.str();
    if (ErrorOr<std::string> path = sys::findProgramByName(name))
      return *path;
  }
  return createStringError("expected a linker for '" + triple +
                           "' in PATH, one of " + names + ", but got none");
}

Error zpp::writeContent(StringRef path, StringRef content) {
  std::string cause = zpp::writeFile(path.str(), {content});
  return cause.empty() ? Error::success()
                       : createStringError(path + ": " + cause);
}

Error zpp::linkLibrary(const ObjectFile &object, StringRef path,
                       const LibraryOptions &options) {
  Expected<std::string> linker = findLinker(object.triple, options);
  if (!linker)
    return linker.takeError();
  // Write temporary files beside the library, so that the errors of the linker
  // name paths that the user knows.
  SmallString<128> objectPath(path), outputPath(path);
  objectPath += ".o";
  outputPath += ".txt";
  FileRemover removeObject(objectPath), removeOutput(outputPath);
  for (auto [file, content] :
       {std::pair(StringRef(objectPath), StringRef(object.bytes)),
        std::pair(StringRef(outputPath), StringRef())})
    if (Error error = writeContent(file, content))
      return error;

  // Linkers map their output into memory, and crash if the disk is full. A
  // library is little larger than its object file.
  std::string room(object.bytes.size() + (16 << 10), '\0');
  if (Error error = writeContent(path, room))
    return error;

  // The library needs only the process that loads it. Without a build id, the
  // same input gives the same bytes.
  bool isCompiler = !sys::path::filename(*linker).starts_with("ld");
  SmallVector<StringRef> arguments{*linker, "-shared", "-o", path, objectPath};
  if (isCompiler)
    arguments.append(
        {"-nostdlib", "-Wl,--build-id=none", "-Wl,-z,noexecstack"});
  else
    arguments.append({"--build-id=none", "-z", "noexecstack"});
  std::string message;
  std::optional<StringRef> redirects[] = {StringRef(""), outputPath.str(),
                                          outputPath.str()};
  int status = sys::ExecuteAndWait(*linker, arguments, /*Env=*/std::nullopt,
                                   redirects, /*SecondsToWait=*/0,
                                   /*MemoryLimit=*/0, &message);
  if (status == 0)
    return Error::success();
  if (auto output = MemoryBuffer::getFile(outputPath))
    message += (*output)->getBuffer().trim();
  return createStringError("cannot link the host library with '" + *linker +
                           "': " + message);
}
