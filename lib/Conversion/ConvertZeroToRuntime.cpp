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

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/SymbolTable.h"
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

/// Whether the elements of `type` lie one after the other, in row-major order.
static bool isDense(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)))
    return false;
  if (type.getNumElements() == 0)
    return true;
  int64_t expected = 1;
  for (auto [size, stride] :
       llvm::reverse(llvm::zip_equal(type.getShape(), strides))) {
    if (size == 1)
      continue;
    if (stride != expected)
      return false;
    expected *= size;
  }
  return true;
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
  for (Value operand : op->getOperands()) {
    auto type = cast<MemRefType>(operand.getType());
    if (!isDense(type))
      return emitError() << "expected a dense buffer, but got " << type;
    Type element = type.getElementType();
    if (!element.isIntOrFloat() || element.getIntOrFloatBitWidth() % 8 != 0)
      return emitError() << "expected elements of whole bytes, but got "
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

/// Where an op comes from, for traces and errors: "step.py:12:3".
static std::string describe(Location loc) {
  if (auto file = dyn_cast<FileLineColRange>(loc))
    return (file.getFilename().getValue() + ":" + Twine(file.getStartLine()) +
            ":" + Twine(file.getStartColumn()))
        .str();
  if (auto name = dyn_cast<NameLoc>(loc)) {
    std::string child = describe(name.getChildLoc());
    return child.empty() ? name.getName().str()
                         : name.getName().str() + " at " + child;
  }
  if (auto call = dyn_cast<CallSiteLoc>(loc))
    return describe(call.getCallee());
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (std::string text = describe(part); !text.empty())
        return text;
  return "";
}

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

  LLVM::LLVMFuncOp getEntrypoint(StringRef name) {
    if (auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
      return function;
    auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
    auto type = LLVM::LLVMFunctionType::get(
        builder.getI32Type(), {pointer, pointer, pointer, pointer});
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

/// The stride of chunks that lie one after the other.
static constexpr int64_t kDense = 0;

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
  fields.push_back(kDense);
}

static void addFields(UnpackSlicesOp op, Fields &fields, Constants &constants) {
  fields.push_back(op.getInitType().getElementTypeBitWidth() / 8);
  addSlices(fields, constants, getMap(op.getSlices(), op.getInitType()));
  fields.push_back(kDense);
}

static void addFields(QuantizeOp op, Fields &fields, Constants &constants) {
  fields.push_back(getElementType(op.getInputType().getElementType()));
  addQuant(fields, op.getQuant());
  addSlices(fields, constants, getMap(op.getSlicesAttr(), op.getInputType()));
  fields.push_back(kDense);
}

static void addFields(DequantizeOp op, Fields &fields, Constants &constants) {
  fields.push_back(getElementType(op.getInitType().getElementType()));
  addQuant(fields, op.getQuant());
  addSlices(fields, constants, getMap(op.getSlicesAttr(), op.getInitType()));
  fields.push_back(kDense);
}

static void addFields(ReduceOp op, Fields &fields, Constants &) {
  fields.append({getKind(op.getKind()), op.getInputType().getDimSize(0),
                 op.getInitType().getNumElements(),
                 getElementType(op.getInputType().getElementType()),
                 ZPP_RT_FORMAT_NONE, 0,
                 getElementType(op.getInitType().getElementType()), kDense});
}

static void addFields(DequantizeReduceOp op, Fields &fields, Constants &) {
  fields.append({getKind(op.getKind()), op.getInputType().getDimSize(0),
                 op.getInitType().getNumElements(), ZPP_RT_F32});
  addQuant(fields, op.getQuant());
  fields.append({getElementType(op.getInitType().getElementType()), kDense});
}

static void addFields(DequantizeReduceQuantizeOp op, Fields &fields,
                      Constants &constants) {
  auto partial = cast<RankedTensorType>(op.getPartial());
  fields.append({getKind(op.getKind()), op.getInputType().getDimSize(0)});
  addQuant(fields, op.getQuant());
  fields.push_back(getElementType(partial.getElementType()));
  addQuant(fields, op.getTo());
  addSlices(fields, constants, getMap(op.getSlices(), partial));
  fields.append({kDense, kDense});
}

static int64_t getBytes(ShapedType type) {
  return type.getNumElements() * (type.getElementTypeBitWidth() / 8);
}

/// Of AllToAllOp and AllGatherChunksOp.
template <typename OpT>
static void addFields(OpT op, Fields &fields, Constants &constants) {
  SmallVector<zpp::AxisRef> axes =
      cast<CollectiveOpInterface>(op.getOperation()).getAxisRefs();
  Fields axisFields;
  for (const zpp::AxisRef &axis : axes)
    axisFields.append(
        {constants.getString(axis.name), axis.preSize, axis.size});
  fields.append({constants.createStruct(op.getLoc(), "zpp_rt_axes", axisFields),
                 static_cast<int64_t>(axes.size()),
                 getBytes(op.getInitType()) /
                     zpp::numDevices({axes.begin(), axes.end()})});
}

/// The descriptor `name` of an op.
template <typename OpT>
static LLVM::GlobalOp createDescriptor(OpT op, StringRef name,
                                       int64_t structSize,
                                       Constants &constants) {
  std::string source = describe(op.getLoc());
  Fields fields{structSize, source.empty() ? LLVM::GlobalOp()
                                           : constants.getString(source)};
  addFields(op, fields, constants);
  assert(structSize == static_cast<int64_t>(8 * fields.size()) &&
         "expected the layout of zpp_rt.h");
  return constants.createStruct(op.getLoc(), name, fields);
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

static void lowerOp(Operation *op, Value rank, Constants &constants) {
  StringRef entrypoint;
  LLVM::GlobalOp descriptor;
#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP)                                      \
  if (auto typed = dyn_cast<OP>(op)) {                                         \
    entrypoint = "zpp_rt_" #NAME;                                              \
    descriptor = createDescriptor(typed, "zpp_rt_" #DESC,                      \
                                  sizeof(zpp_rt_##DESC), constants);           \
  }
#include "zpp/Runtime/Entrypoints.def"

  OpBuilder builder(op);
  Location loc = op->getLoc();
  Value input = getPointer(builder, loc, op->getOperand(0));
  Value init = getPointer(builder, loc, op->getOperand(1));
  Value address = LLVM::AddressOfOp::create(builder, loc, descriptor);
  LLVM::CallOp::create(builder, loc, constants.getEntrypoint(entrypoint),
                       ValueRange{rank, address, input, init});
  op->erase();
}

//===----------------------------------------------------------------------===//
// The rank
//===----------------------------------------------------------------------===//

/// The functions that contain one of `ops` or call such a function, in the
/// order of the module.
static llvm::SetVector<func::FuncOp> getFunctions(ModuleOp module,
                                                  ArrayRef<Operation *> ops) {
  llvm::DenseSet<Operation *> needsRank;
  for (Operation *op : ops)
    needsRank.insert(op->getParentOfType<func::FuncOp>());
  SymbolTable symbols(module);
  bool hasChanged = true;
  while (hasChanged) {
    hasChanged = false;
    module.walk([&](func::CallOp call) {
      Operation *callee = symbols.lookup(call.getCallee());
      auto caller = call->getParentOfType<func::FuncOp>();
      if (caller && needsRank.contains(callee))
        hasChanged |= needsRank.insert(caller).second;
    });
  }
  llvm::SetVector<func::FuncOp> functions;
  for (auto function : module.getOps<func::FuncOp>())
    if (needsRank.contains(function))
      functions.insert(function);
  return functions;
}

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

namespace {
class ConvertZeroToRuntimePass
    : public zpp::impl::ConvertZeroToRuntimePassBase<ConvertZeroToRuntimePass> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<Operation *> ops;
    bool isConvertible = true;
    module.walk([&](Operation *op) {
      if (!isa_and_present<ZeroDialect>(op->getDialect()))
        return;
      isConvertible &= succeeded(verifyConvertible(op));
      ops.push_back(op);
    });
    if (!isConvertible)
      return signalPassFailure();
    llvm::SetVector<func::FuncOp> functions = getFunctions(module, ops);
    if (failed(verifyUses(module, functions)))
      return signalPassFailure();

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
    for (Operation *op : ops)
      lowerOp(op, op->getParentOfType<func::FuncOp>().getArgument(0),
              constants);
  }
};
} // namespace
