//===- ConvertZeroToRuntime.cpp - Decomposed ops as calls of libzpp_rt ----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All ops are checked before the first one is replaced, so that a module is
// either converted or left alone.
//
// Descriptors are constants in the LLVM dialect: all their fields are 64 bits
// wide (integers and pointers), so that a list of fields is their layout.
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Buffers/BufferLayout.h"
#include "zpp/Transforms/Buffers/RankFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/Location.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Runtime/zpp_rt.h"
#include "llvm/ADT/TypeSwitch.h"

namespace zpp {
#define GEN_PASS_DEF_CONVERTZEROTORUNTIMEPASS
#include "zpp/Conversion/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

static bool isLocalOp(Operation *op) {
  return isa<DestinationStyleOpInterface>(op) &&
         isa<ZeroDialect>(op->getDialect());
}

/// True for what lies in memory as wide as it is.
static bool isOfWholeBytes(Type element) {
  return element.isIntOrFloat() &&
         llvm::is_contained({8u, 16u, 32u, 64u},
                            element.getIntOrFloatBitWidth());
}

static LogicalResult verifyConvertible(Operation *op) {
  auto emitError = [&]() {
    return op->emitError("failed to legalize '") << op->getName() << "': ";
  };
  if (!isLocalOp(op))
    return emitError() << "run zero-decompose-all-gather and "
                          "zero-decompose-reduce-scatter first";
  if (op->getNumResults() != 0)
    return emitError() << "expected buffers, but got tensors of type "
                       << op->getResult(0).getType()
                       << "; run one-shot-bufferize first";
  for (OpOperand &operand : op->getOpOperands()) {
    auto type = cast<MemRefType>(operand.get().getType());
    std::string expected;
    if (!getChunkStride(operand, &expected))
      return emitError() << "expected " << expected << ", but got " << type;
    Type element = type.getElementType();
    if (!isOfWholeBytes(element))
      return emitError() << "expected elements of 1, 2, 4 or 8 bytes, but got "
                         << element;
  }
  if (auto exchange = dyn_cast<AllToAllOp>(op)) {
    if (exchange.getWireAttr())
      return emitError() << "run zero-quantize-all-to-all first";
    if (exchange.getSlicesAttr())
      return emitError() << "run zero-reorder-slices first";
  }
  if (!op->getParentOfType<func::FuncOp>())
    return emitError() << "expected a function around it, but got '"
                       << op->getParentOp()->getName() << "'";
  return success();
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

namespace {
/// Constants of the module, each made once.
class Constants {
public:
  explicit Constants(ModuleOp module)
      : module(module), symbols(module),
        builder(OpBuilder::atBlockBegin(module.getBody())) {}

  /// A field: an integer, or the address of a global (null for none).
  struct Field {
    Field(int64_t value) : value(value) {}
    Field(LLVM::GlobalOp global) : isPointer(true), global(global) {}
    int64_t value = 0;
    bool isPointer = false;
    LLVM::GlobalOp global;
  };

  LLVM::GlobalOp getString(StringRef text) {
    LLVM::GlobalOp &global = strings[text];
    if (!global) {
      std::string bytes = text.str() + '\0';
      auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), bytes.size());
      global = create(type, "zpp_rt_string", builder.getStringAttr(bytes));
    }
    return global;
  }

  /// Null where empty.
  LLVM::GlobalOp getList(ArrayRef<int64_t> values) {
    if (values.empty())
      return {};
    Attribute value = builder.getI64TensorAttr(values);
    LLVM::GlobalOp &global = lists[value];
    if (!global)
      global =
          create(LLVM::LLVMArrayType::get(builder.getI64Type(), values.size()),
                 "zpp_rt_list", value);
    return global;
  }

  LLVM::GlobalOp createStruct(Location loc, StringRef name,
                              ArrayRef<Field> fields) {
    auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
    SmallVector<Type> types = llvm::map_to_vector(fields, [&](const Field &f) {
      return f.isPointer ? Type(pointer) : Type(builder.getI64Type());
    });
    auto type = LLVM::LLVMStructType::getLiteral(builder.getContext(), types);
    LLVM::GlobalOp global = create(type, name, Attribute());
    OpBuilder inner(global.getContext());
    inner.createBlock(&global.getInitializerRegion());
    Value value = LLVM::UndefOp::create(inner, loc, type);
    for (auto [index, field] : llvm::enumerate(fields)) {
      Value element;
      if (!field.isPointer)
        element = LLVM::ConstantOp::create(
            inner, loc, inner.getI64IntegerAttr(field.value));
      else if (field.global)
        element = LLVM::AddressOfOp::create(inner, loc, field.global);
      else
        element = LLVM::ZeroOp::create(inner, loc, pointer);
      value = LLVM::InsertValueOp::create(inner, loc, value, element, index);
    }
    LLVM::ReturnOp::create(inner, loc, value);
    return global;
  }

  /// A function of the runtime.
  LLVM::LLVMFuncOp getFunction(StringRef name, TypeRange arguments) {
    if (auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
      return function;
    auto type = LLVM::LLVMFunctionType::get(builder.getI32Type(),
                                            llvm::to_vector(arguments));
    return LLVM::LLVMFuncOp::create(builder, module.getLoc(), name, type);
  }

private:
  LLVM::GlobalOp create(Type type, StringRef name, Attribute value) {
    auto global = LLVM::GlobalOp::create(builder, module.getLoc(), type,
                                         /*isConstant=*/true,
                                         LLVM::Linkage::Internal, name, value);
    // Renamed where the name is taken.
    symbols.insert(global);
    return global;
  }

  ModuleOp module;
  SymbolTable symbols;
  /// At the end of what has been made, so that uses come after definitions.
  OpBuilder builder;
  llvm::StringMap<LLVM::GlobalOp> strings;
  llvm::DenseMap<Attribute, LLVM::GlobalOp> lists;
};
} // namespace

using Fields = SmallVector<Constants::Field>;

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

static int64_t getElementType(Type type) {
  if (type.isBF16())
    return ZPP_RT_BF16;
  return type.isF16() ? ZPP_RT_F16 : ZPP_RT_F32;
}

static int64_t getKind(ReduceKind kind) {
  return kind == ReduceKind::Mean ? ZPP_RT_MEAN : ZPP_RT_SUM;
}

static void addQuant(Fields &fields, QuantAttr quant) {
  fields.push_back(static_cast<int64_t>(quant.getWireFormat()));
  fields.push_back(quant.getBlock());
}

/// zpp_rt_slices
static void addSlices(Fields &fields, Constants &constants,
                      const SliceMap &map) {
  fields.append(
      {map.outer, map.unit, map.inner, map.extent,
       constants.getList(map.factors), static_cast<int64_t>(map.factors.size()),
       constants.getList(map.chunkFactors),
       static_cast<int64_t>(map.chunkFactors.size()), map.stage, map.stages});
}

/// The map of a tensor whose chunks are its leading dim.
static SliceMap getLeadingDimMap(ArrayRef<int64_t> shape) {
  SliceMap map;
  map.extent = shape.front();
  // No chunks are one empty slice.
  map.factors = {std::max<int64_t>(shape.front(), 1)};
  map.unit = shape.front() == 0 ? 0 : 1;
  map.inner = llvm::product_of(shape.drop_front());
  map.chunkFactors = {0};
  return map;
}

static SliceMap getMap(SlicesAttr slices, ShapedType type) {
  return slices ? slices.getMap(type.getShape())
                : getLeadingDimMap(type.getShape());
}

/// Appends what follows the name in the descriptor of an op.
static void addFields(PackSlicesOp op, Fields &fields, Constants &constants) {
  fields.push_back(op.getInputType().getElementTypeBitWidth() / 8);
  addSlices(fields, constants, getMap(op.getSlices(), op.getInputType()));
  fields.push_back(*getChunkStride(op.getInitMutable()));
}

static void addFields(UnpackSlicesOp op, Fields &fields, Constants &constants) {
  fields.push_back(op.getInitType().getElementTypeBitWidth() / 8);
  addSlices(fields, constants, getMap(op.getSlices(), op.getInitType()));
  fields.push_back(*getChunkStride(op.getInputMutable()));
}

static void addFields(QuantizeOp op, Fields &fields, Constants &constants) {
  fields.push_back(getElementType(op.getInputType().getElementType()));
  addQuant(fields, op.getQuant());
  addSlices(fields, constants, getMap(op.getSlicesAttr(), op.getInputType()));
  fields.push_back(*getChunkStride(op.getInitMutable()));
}

static void addFields(DequantizeOp op, Fields &fields, Constants &constants) {
  fields.push_back(getElementType(op.getInitType().getElementType()));
  addQuant(fields, op.getQuant());
  addSlices(fields, constants, getMap(op.getSlicesAttr(), op.getInitType()));
  fields.push_back(*getChunkStride(op.getInputMutable()));
}

static void addFields(ReduceOp op, Fields &fields, Constants &) {
  fields.append({getKind(op.getKind()), op.getInputType().getDimSize(0),
                 op.getInitType().getNumElements(),
                 getElementType(op.getInputType().getElementType()),
                 ZPP_RT_FORMAT_NONE, 0,
                 getElementType(op.getInitType().getElementType()),
                 *getChunkStride(op.getInputMutable())});
}

static void addFields(DequantizeReduceOp op, Fields &fields, Constants &) {
  fields.append({getKind(op.getKind()), op.getInputType().getDimSize(0),
                 op.getInitType().getNumElements(), ZPP_RT_F32});
  addQuant(fields, op.getQuant());
  fields.append({getElementType(op.getInitType().getElementType()),
                 *getChunkStride(op.getInputMutable())});
}

static void addFields(DequantizeReduceQuantizeOp op, Fields &fields,
                      Constants &constants) {
  auto partial = cast<RankedTensorType>(op.getPartial());
  fields.append({getKind(op.getKind()), op.getInputType().getDimSize(0)});
  addQuant(fields, op.getQuant());
  fields.push_back(getElementType(partial.getElementType()));
  addQuant(fields, op.getTo());
  addSlices(fields, constants, getMap(op.getSlices(), partial));
  fields.append({*getChunkStride(op.getInputMutable()),
                 *getChunkStride(op.getInitMutable())});
}

static int64_t getBytes(ShapedType type) {
  return type.getNumElements() * (type.getElementTypeBitWidth() / 8);
}

/// Of AllToAllOp and AllGatherChunksOp.
template <typename OpT>
static void addFields(OpT op, Fields &fields, Constants &constants) {
  auto collective = cast<CollectiveOpInterface>(op.getOperation());
  SmallVector<zpp::AxisRef> axes = collective.getAxisRefs();
  Fields axisFields;
  for (const zpp::AxisRef &axis : axes)
    axisFields.append(
        {constants.getString(axis.name), axis.preSize, axis.size});
  fields.append(
      {constants.createStruct(op.getLoc(), "zpp_rt_axes", axisFields),
       static_cast<int64_t>(axes.size()),
       getBytes(op.getInitType()) / zpp::numDevices({axes.begin(), axes.end()}),
       constants.getString(collective.getMeshAttr().getMesh().str())});
}

/// The descriptor `name` of what is at `loc`; `add(fields)` appends what
/// follows the name.
template <typename Add>
static LLVM::GlobalOp createDescriptor(Location loc, StringRef name,
                                       int64_t structSize, const Add &add,
                                       Constants &constants) {
  std::string source = describeLocation(loc);
  Fields fields{structSize, source.empty() ? LLVM::GlobalOp()
                                           : constants.getString(source)};
  add(fields);
  assert(structSize == static_cast<int64_t>(8 * fields.size()) &&
         "expected the layout of zpp_rt.h");
  return constants.createStruct(loc, name, fields);
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Address of the first element of a dense buffer.
static Value getPointer(OpBuilder &builder, Location loc, Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  Value address =
      memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, buffer);
  if (!type.getLayout().isIdentity()) {
    auto metadata =
        memref::ExtractStridedMetadataOp::create(builder, loc, buffer);
    Value bytes = arith::ConstantIndexOp::create(
        builder, loc, type.getElementTypeBitWidth() / 8);
    Value offset =
        arith::MulIOp::create(builder, loc, metadata.getOffset(), bytes);
    address = arith::AddIOp::create(builder, loc, address, offset);
  }
  address =
      arith::IndexCastOp::create(builder, loc, builder.getI64Type(), address);
  return LLVM::IntToPtrOp::create(
      builder, loc, LLVM::LLVMPointerType::get(builder.getContext()), address);
}

static LLVM::CallOp createCall(OpBuilder &builder, Location loc, StringRef name,
                               ValueRange arguments, Constants &constants) {
  return LLVM::CallOp::create(builder, loc,
                              constants.getFunction(name, arguments.getTypes()),
                              arguments);
}

static void lowerOp(Operation *op, Value rank, Constants &constants) {
  StringRef entrypoint;
  LLVM::GlobalOp descriptor;
#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP)                                      \
  if (auto typed = dyn_cast<OP>(op)) {                                         \
    entrypoint = "zpp_rt_" #NAME;                                              \
    descriptor = createDescriptor(                                             \
        op->getLoc(), "zpp_rt_" #DESC, sizeof(zpp_rt_##DESC),                  \
        [&](Fields &fields) { addFields(typed, fields, constants); },          \
        constants);                                                            \
  }
#include "zpp/Runtime/Entrypoints.def"

  OpBuilder builder(op);
  Location loc = op->getLoc();
  Value input = getPointer(builder, loc, op->getOperand(0));
  Value init = getPointer(builder, loc, op->getOperand(1));
  Value address = LLVM::AddressOfOp::create(builder, loc, descriptor);
  createCall(builder, loc, entrypoint, {rank, address, input, init}, constants);
  op->erase();
}

/// Copies are the runtime's, which can reach the memory and knows the order.
static void lowerCopy(memref::CopyOp op, const StridedCopy &copy, Value rank,
                      Constants &constants) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  auto getConstant = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(builder, loc,
                                    builder.getI64IntegerAttr(value));
  };
  Value target = getPointer(builder, loc, op.getTarget());
  Value source = getPointer(builder, loc, op.getSource());
  // The longest of the loops that one call can do is done by the call.
  SmallVector<StridedCopy::Loop> loops(copy.loops);
  StridedCopy::Loop rows{1, copy.rowBytes, copy.rowBytes};
  auto *longest = loops.end();
  for (auto &loop : loops)
    if (std::min(loop.targetStride, loop.sourceStride) >= copy.rowBytes &&
        (longest == loops.end() || loop.size >= longest->size))
      longest = &loop;
  if (longest != loops.end()) {
    rows = *longest;
    loops.erase(longest);
  }
  for (const StridedCopy::Loop &loop : loops) {
    auto loopOp = scf::ForOp::create(builder, loc, getConstant(0),
                                     getConstant(loop.size), getConstant(1));
    builder.setInsertionPointToStart(loopOp.getBody());
    auto advance = [&](Value pointer, int64_t stride) -> Value {
      Value bytes = LLVM::MulOp::create(builder, loc, loopOp.getInductionVar(),
                                        getConstant(stride));
      return LLVM::GEPOp::create(builder, loc, pointer.getType(),
                                 builder.getI8Type(), pointer,
                                 ArrayRef<LLVM::GEPArg>{bytes});
    };
    target = advance(target, loop.targetStride);
    source = advance(source, loop.sourceStride);
  }
  LLVM::GlobalOp descriptor = createDescriptor(
      loc, "zpp_rt_copy_desc", sizeof(zpp_rt_copy_desc),
      [&](Fields &fields) {
        fields.append(
            {rows.size, copy.rowBytes, rows.sourceStride, rows.targetStride});
      },
      constants);
  Value address = LLVM::AddressOfOp::create(builder, loc, descriptor);
  createCall(builder, loc, "zpp_rt_copy_rows", {rank, address, source, target},
             constants);
  op.erase();
}

//===----------------------------------------------------------------------===//
// The rank
//===----------------------------------------------------------------------===//

/// Every use of `functions` is a call in a function.
static LogicalResult
verifyUses(ModuleOp module, const llvm::SetVector<func::FuncOp> &functions) {
  WalkResult result = module.walk([&](Operation *op) {
    if (auto constant = dyn_cast<func::ConstantOp>(op))
      for (func::FuncOp function : functions)
        if (constant.getValue() == function.getSymName()) {
          op->emitError("expected only calls of '")
              << function.getSymName()
              << "', which gets the rank as an argument, but got a reference";
          return WalkResult::interrupt();
        }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

//===----------------------------------------------------------------------===//
// The workspace
//===----------------------------------------------------------------------===//

/// A function that others call too keeps its workspace argument, under another
/// name and in private: asking the runtime twice would give the same memory.
static func::FuncOp splitIfCalled(func::FuncOp function, SymbolTable &symbols) {
  auto module = function->getParentOfType<ModuleOp>();
  SmallVector<func::CallOp> calls;
  module.walk([&](func::CallOp call) {
    if (call.getCallee() == function.getSymName())
      calls.push_back(call);
  });
  if (calls.empty())
    return function;
  OpBuilder builder(function);
  auto entry = cast<func::FuncOp>(builder.cloneWithoutRegions(*function));
  function.setPrivate();
  function.setSymName((function.getSymName() + "_on_workspace").str());
  function->moveAfter(entry);
  symbols.insert(function);
  for (func::CallOp call : calls)
    call.setCallee(function.getSymName());
  Block *block = entry.addEntryBlock();
  builder.setInsertionPointToStart(block);
  auto call = func::CallOp::create(builder, function.getLoc(), function,
                                   block->getArguments());
  func::ReturnOp::create(builder, function.getLoc(), call.getResults());
  return entry;
}

/// The last argument becomes memory of the rank. Where there is none, which is
/// an error of the rank, a function without results returns.
static LogicalResult allocateWorkspace(func::FuncOp function,
                                       Constants &constants) {
  BlockArgument workspace = getWorkspace(function);
  auto type = cast<MemRefType>(workspace.getType());
  Location loc = function.getLoc();
  Block *entry = &function.getBody().front();
  Block *body = entry->splitBlock(entry->begin());
  auto builder = OpBuilder::atBlockEnd(entry);
  auto pointer = LLVM::LLVMPointerType::get(function.getContext());
  auto getConstant = [&](IntegerAttr value) -> Value {
    return LLVM::ConstantOp::create(builder, loc, value);
  };
  Value slot =
      LLVM::AllocaOp::create(builder, loc, pointer, pointer,
                             getConstant(builder.getI64IntegerAttr(1)));
  auto call = createCall(
      builder, loc, "zpp_rt_workspace",
      {function.getArgument(0),
       getConstant(builder.getI64IntegerAttr(type.getNumElements())), slot},
      constants);
  Value data = LLVM::LoadOp::create(builder, loc, pointer, slot);
  workspace.replaceAllUsesWith(createBuffer(builder, loc, type, data));
  if (function.getNumResults() == 0) {
    Value isOk = LLVM::ICmpOp::create(
        builder, loc, LLVM::ICmpPredicate::eq, call.getResult(),
        getConstant(builder.getI32IntegerAttr(ZPP_RT_OK)));
    Block *exit = function.addBlock();
    cf::CondBranchOp::create(builder, loc, isOk, body, exit);
    builder.setInsertionPointToStart(exit);
    func::ReturnOp::create(builder, loc);
  } else {
    cf::BranchOp::create(builder, loc, body);
  }
  return function.eraseArgument(function.getNumArguments() - 1);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Whether all users of a buffer, and of views of it, read it by copies, which
/// the runtime does from host memory too.
static bool isOnlyCopied(Value buffer) {
  return llvm::all_of(buffer.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto copy = dyn_cast<memref::CopyOp>(user))
      return use.get() == copy.getSource();
    return isa<ViewLikeOpInterface>(user) && isOnlyCopied(user->getResult(0));
  });
}

/// Nothing but zero ops and copies touches buffers.
static LogicalResult verifyDeviceMemory(Operation *op, SymbolTable &symbols) {
  auto emitError = [&]() {
    return op->emitError("failed to legalize '")
           << op->getName() << "' where buffers may be in device memory: ";
  };
  auto isBuffer = [](Type type) { return isa<BaseMemRefType>(type); };
  if (llvm::none_of(op->getOperandTypes(), isBuffer) &&
      llvm::none_of(op->getResultTypes(), isBuffer))
    return success();
  if (auto call = dyn_cast<func::CallOp>(op)) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (callee && !callee.isExternal())
      return success();
    return emitError() << "expected a callee with a body, but got '"
                       << call.getCallee() << "'";
  }
  if (isa<memref::AllocOp, memref::AllocaOp>(op))
    return emitError() << "expected memory planned by zero-plan-workspace, but "
                          "got an allocation";
  if (isa<memref::GetGlobalOp>(op)) {
    if (isOnlyCopied(op->getResult(0)))
      return success();
    return emitError() << "expected a constant that is copied, but got another "
                          "use";
  }
  // Ops around others do what those do.
  bool isAround = op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() &&
                  !isa<MemoryEffectOpInterface>(op);
  if (isa<memref::CopyOp>(op) || op->hasTrait<OpTrait::IsTerminator>() ||
      isAround || isMemoryEffectFree(op))
    return success();
  return emitError() << "it reads or writes them on the host";
}

namespace {
class ConvertZeroToRuntimePass
    : public zpp::impl::ConvertZeroToRuntimePassBase<ConvertZeroToRuntimePass> {
public:
  using ConvertZeroToRuntimePassBase::ConvertZeroToRuntimePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    llvm::SetVector<func::FuncOp> functions =
        getRankFunctions(module, deviceMemory);
    SmallVector<Operation *> ops;
    SmallVector<std::pair<memref::CopyOp, StridedCopy>> copies;
    bool isConvertible = true;
    module.walk([&](Operation *op) {
      if (isa_and_present<ZeroDialect>(op->getDialect())) {
        isConvertible &= succeeded(verifyConvertible(op));
        ops.push_back(op);
        return;
      }
      auto function = op->getParentOfType<func::FuncOp>();
      if (!function || !functions.contains(function))
        return;
      if (deviceMemory)
        isConvertible &= succeeded(verifyDeviceMemory(op, symbols));
      if (auto copy = dyn_cast<memref::CopyOp>(op)) {
        std::optional<StridedCopy> plan = getCopy(copy);
        if (plan)
          copies.push_back({copy, *plan});
        // What is left becomes a loop on the host.
        if (plan || !deviceMemory)
          return;
        copy.emitError("failed to legalize '")
            << copy->getName()
            << "': expected buffers of static shape and strides with elements "
               "of 1, 2, 4 or 8 bytes, but got "
            << copy.getSource().getType() << " and "
            << copy.getTarget().getType();
        isConvertible = false;
      }
    });
    if (!isConvertible || failed(verifyUses(module, functions)))
      return signalPassFailure();

    SmallVector<func::FuncOp> entries;
    if (allocateWorkspaces)
      for (func::FuncOp function : functions.takeVector()) {
        if (function.isPublic() && getWorkspace(function)) {
          func::FuncOp entry = splitIfCalled(function, symbols);
          entries.push_back(entry);
          functions.insert(entry);
        }
        functions.insert(function);
      }
    auto pointer = LLVM::LLVMPointerType::get(&getContext());
    for (func::FuncOp function : functions)
      if (failed(function.insertArgument(0, pointer, {}, function.getLoc())))
        return signalPassFailure();
    module.walk([&](func::CallOp call) {
      auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
      if (functions.contains(callee))
        call->insertOperands(
            0, call->getParentOfType<func::FuncOp>().getArgument(0));
    });

    Constants constants(module);
    auto getRank = [](Operation *op) {
      return op->getParentOfType<func::FuncOp>().getArgument(0);
    };
    for (Operation *op : ops)
      lowerOp(op, getRank(op), constants);
    for (auto &[copy, plan] : copies)
      lowerCopy(copy, plan, getRank(copy), constants);
    for (func::FuncOp function : entries)
      if (failed(allocateWorkspace(function, constants)))
        return signalPassFailure();
  }

private:
  static std::optional<StridedCopy> getCopy(memref::CopyOp copy) {
    auto target = dyn_cast<MemRefType>(copy.getTarget().getType());
    auto source = dyn_cast<MemRefType>(copy.getSource().getType());
    if (!target || !source || !target.hasStaticShape() ||
        !source.hasStaticShape() || !isOfWholeBytes(target.getElementType()))
      return std::nullopt;
    return StridedCopy::get(target, source);
  }
};
} // namespace
