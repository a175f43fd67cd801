//===- Program.cpp - A compiled program and its ranks ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Program.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "zpp/Pipelines/Host.h"
#include "zpp/Transforms/Buffers/BufferLayout.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;
using namespace zpp;

int64_t zpp::getElementBytes(Type element) {
  bool isNumber = isa<IntegerType>(element) || element.isF16() ||
                  element.isBF16() || element.isF32() || element.isF64();
  // A predicate has no sign.
  if (!isNumber || !isMovable(element) ||
      (element.isInteger(1) && !element.isSignlessInteger()))
    return 0;
  return getElementBits(element) / 8;
}

static bool hasRepresentableBytes(RankedTensorType type) {
  int64_t bytes = getElementBytes(type.getElementType());
  return llvm::none_of(type.getShape(), [&](int64_t size) {
    return llvm::MulOverflow(bytes, size, bytes);
  });
}

FailureOr<Signature> Signature::get(func::FuncOp function) {
  Signature signature;
  auto add = [&](TypeRange types, SmallVectorImpl<RankedTensorType> &list) {
    for (Type type : types) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      const char *expected = nullptr;
      if (!tensor || !tensor.hasStaticShape() ||
          getElementBytes(tensor.getElementType()) == 0)
        expected = "static tensors of f16, bf16, f32, f64, i1 or "
                   "integers of 8, 16, 32 or 64 bits";
      else if (!hasRepresentableBytes(tensor))
        expected = "tensors of less than 2^63 bytes";
      if (expected)
        return LogicalResult(emitError(function.getLoc(), "expected ")
                             << expected << " in the signature of '"
                             << function.getSymName() << "', but got " << type);
      list.push_back(tensor);
    }
    return success();
  };
  if (failed(add(function.getArgumentTypes(), signature.arguments)) ||
      failed(add(function.getResultTypes(), signature.results)))
    return failure();
  return signature;
}

//===----------------------------------------------------------------------===//
// Compilation
//===----------------------------------------------------------------------===//

/// Returns the runtime's functions that compiled code calls.
static llvm::orc::SymbolMap
getRuntimeSymbols(llvm::orc::MangleAndInterner intern) {
  llvm::orc::SymbolMap symbols;
  auto add = [&](StringRef name, auto *function) {
    symbols[intern(name)] = {llvm::orc::ExecutorAddr::fromPtr(function),
                             llvm::JITSymbolFlags::Exported};
  };
#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP) add("zpp_rt_" #NAME, &zpp_rt_##NAME);
#include "zpp/Runtime/Entrypoints.def"
  add("zpp_rt_copy_rows", &zpp_rt_copy_rows);
  add("zpp_rt_workspace", &zpp_rt_workspace);
  return symbols;
}

/// Reports each use of a function that is only declared, since nothing provides
/// its body.
static LogicalResult verifyBodies(ModuleOp module) {
  bool isComplete = true;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isExternal())
      continue;
    auto uses = SymbolTable::getSymbolUses(function, module);
    if (!uses)
      continue;
    for (SymbolTable::SymbolUse use : *uses) {
      use.getUser()->emitError("expected '")
          << function.getSymName() << "' to have a body, but got a declaration";
      isComplete = false;
    }
  }
  return success(isComplete);
}

static std::string getWrapperName(StringRef function) {
  return ("_mlir_ciface_" + function).str();
}

llvm::Expected<Program> Program::compile(ModuleOp module,
                                         ArrayRef<std::string> functions,
                                         bool deviceMemory) {
  OwningOpRef<ModuleOp> lowered = module.clone();
  llvm::StringMap<unsigned> inputs;
  for (auto function : lowered->getOps<func::FuncOp>()) {
    if (!llvm::is_contained(functions, function.getSymName())) {
      function.setPrivate();
      continue;
    }
    // zpp-run calls these; other functions may call them too.
    function.setPublic();
    inputs[function.getSymName()] =
        function.getNumArguments() + function.getNumResults();
  }
  // Functions that are not called may contain what a back end cannot run.
  PassManager cleanup(module.getContext());
  cleanup.addPass(createSymbolDCEPass());
  if (failed(cleanup.run(*lowered)) || failed(verifyBodies(*lowered)))
    return llvm::createStringError("cannot lower the program");
  PassManager pm(module.getContext());
  RuntimePipelineOptions pipeline;
  pipeline.deviceMemory = deviceMemory;
  buildRuntimePipeline(pm, pipeline);
  if (failed(pm.run(*lowered)))
    return llvm::createStringError("cannot lower the program");

  Program program;
  for (auto &[name, count] : inputs)
    if (auto wrapper =
            lowered->lookupSymbol<LLVM::LLVMFuncOp>(getWrapperName(name)))
      program.takesRank[name] = wrapper.getNumArguments() == count + 1;

  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  ExecutionEngineOptions options;
  auto optimize = makeOptimizingTransformer(/*optLevel=*/2, /*sizeLevel=*/0,
                                            /*targetMachine=*/nullptr);
  options.transformer = optimize;
  auto engine = ExecutionEngine::create(*lowered, options);
  if (!engine)
    return engine.takeError();
  program.engine = std::move(*engine);
  program.engine->registerSymbols(getRuntimeSymbols);
  return program;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

namespace {
/// Memory of a rank and MLIR's descriptor of it as a dense memref: the
/// allocated and the aligned pointer, offset, sizes and strides.
class Buffer {
public:
  Buffer(zpp_rt_rank *rank, RankedTensorType type)
      : rank(rank), bytes(zpp::getBytes(type)) {
    zpp_rt_alloc(rank, bytes, &data);
    int64_t address = static_cast<int64_t>(reinterpret_cast<intptr_t>(data));
    fields = {address, address, 0};
    llvm::append_range(fields, type.getShape());
    int64_t stride = type.getNumElements();
    for (int64_t size : type.getShape())
      fields.push_back(stride = size == 0 ? 0 : stride / size);
  }
  Buffer(Buffer &&other)
      : rank(other.rank), bytes(other.bytes),
        data(std::exchange(other.data, nullptr)),
        fields(std::move(other.fields)) {}
  ~Buffer() { zpp_rt_free(rank, data); }

  void write(const TensorData &content) {
    zpp_rt_copy(rank, data, content.data(), bytes);
  }
  TensorData read() const {
    TensorData content(bytes);
    zpp_rt_copy(rank, content.data(), data, bytes);
    return content;
  }
  void *getDescriptor() { return fields.data(); }

private:
  zpp_rt_rank *rank;
  int64_t bytes;
  void *data = nullptr;
  std::vector<int64_t> fields;
};
} // namespace

llvm::Expected<std::vector<TensorData>>
Program::call(zpp_rt_rank *rank, StringRef function, const Signature &signature,
              ArrayRef<TensorData> arguments) const {
  std::vector<Buffer> buffers;
  for (auto [type, content] : llvm::zip_equal(signature.arguments, arguments))
    buffers.emplace_back(rank, type).write(content);
  for (RankedTensorType type : signature.results)
    buffers.emplace_back(rank, type);
  std::vector<TensorData> results;
  if (zpp_rt_rank_synchronize(rank) != ZPP_RT_OK)
    return results;

  // The packed form has a pointer to each argument.
  std::vector<void *> descriptors;
  for (Buffer &buffer : buffers)
    descriptors.push_back(buffer.getDescriptor());
  std::vector<void *> packed;
  if (takesRank.lookup(function))
    packed.push_back(&rank);
  for (void *&descriptor : descriptors)
    packed.push_back(&descriptor);
  if (llvm::Error error =
          engine->invokePacked(getWrapperName(function), packed))
    return error;

  for (size_t i = signature.arguments.size(); i < buffers.size(); ++i)
    results.push_back(buffers[i].read());
  if (zpp_rt_rank_synchronize(rank) != ZPP_RT_OK)
    results.clear();
  return results;
}
