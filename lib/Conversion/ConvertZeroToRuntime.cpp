//===- ConvertZeroToRuntime.cpp - Decomposed ops as calls of libzpp_rt ----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Descriptors are constants in the LLVM dialect. They are filled in as the
// structs of zpp_rt.h, by the names of their fields, and then written word by
// word, so the compiler of this file ensures that the layout is that of the
// header.
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Transforms/Buffers/BufferLayout.h"
#include "zpp/Transforms/Buffers/RankFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/DialectConversion.h"
#include "zpp/Analysis/Location.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Conversion/Patterns.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Runtime/zpp_rt.h"
#include "llvm/ADT/TypeSwitch.h"

#include <array>
#include <cstring>
#include <type_traits>

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

/// The reason why `op`, of the zero dialect, cannot be converted, or empty.
static std::string getObstacle(Operation *op) {
  std::string reason;
  llvm::raw_string_ostream os(reason);
  auto decomposed = dyn_cast<DecomposedOpInterface>(op);
  if (StringRef pass = getMissingPass(op); !pass.empty()) {
    os << "run " << pass << " first";
  } else if (!decomposed) {
    os << "run convert-zero-to-xla-ffi first";
  } else if (!decomposed.isOnBuffers()) {
    os << "expected buffers, but got tensors of type '"
       << decomposed.getInitType() << "'; run one-shot-bufferize first";
  } else if (!op->getParentOfType<func::FuncOp>()) {
    os << "expected a function around it, but got '"
       << op->getParentOp()->getName() << "'";
  }
  for (OpOperand &operand : op->getOpOperands()) {
    if (!reason.empty())
      break;
    auto type = cast<MemRefType>(operand.get().getType());
    std::string expected;
    if (!getChunkStride(operand, &expected))
      os << "expected " << expected << ", but got '" << type << "'";
    else if (!isMovable(type.getElementType()))
      os << "expected elements of 1, 2, 4 or 8 bytes, but got '"
         << type.getElementType() << "'";
  }
  return reason;
}

static LogicalResult verifyConvertible(Operation *op) {
  std::string reason = getObstacle(op);
  if (reason.empty())
    return success();
  return op->emitError("failed to legalize '")
         << op->getName() << "': " << reason;
}

/// The copy as the runtime can do it, if it can.
static std::optional<StridedCopy> getRuntimeCopy(memref::CopyOp copy) {
  auto target = dyn_cast<MemRefType>(copy.getTarget().getType());
  auto source = dyn_cast<MemRefType>(copy.getSource().getType());
  if (!target || !source || !target.hasStaticShape() ||
      !source.hasStaticShape() || !isMovable(target.getElementType()))
    return std::nullopt;
  return StridedCopy::get(target, source);
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

namespace {
/// The constants of the module, each created once.
class Constants {
public:
  explicit Constants(ModuleOp module)
      : module(module), symbols(module),
        builder(OpBuilder::atBlockBegin(module.getBody())) {}

  /// A field: an integer, or the address of a global, which may be null.
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

  /// Null if `values` is empty.
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

  /// The declaration of a function of the runtime.
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
    // This renames the global if the name is taken.
    symbols.insert(global);
    return global;
  }

  ModuleOp module;
  SymbolTable symbols;
  /// Inserts behind what has been created, so that uses come after definitions.
  OpBuilder builder;
  llvm::StringMap<LLVM::GlobalOp> strings;
  llvm::DenseMap<Attribute, LLVM::GlobalOp> lists;
};
} // namespace

using Fields = SmallVector<Constants::Field>;

namespace {
/// A struct of zpp_rt.h whose pointers will hold addresses of globals.
template <typename StructT> class Descriptor {
  static_assert(std::has_unique_object_representations_v<StructT> &&
                    sizeof(StructT) % sizeof(int64_t) == 0,
                "expected fields of 64 bits and no padding");
  static_assert(sizeof(void *) == sizeof(int64_t) &&
                    sizeof(size_t) == sizeof(int64_t),
                "expected a 64-bit host, as the target is");

public:
  /// All but the pointers.
  StructT values{};

  /// `pointer`, a field of `values`, will hold the address of `global`, or null
  /// if that is null.
  template <typename T>
  void setAddress(const T *const &pointer, LLVM::GlobalOp global) {
    auto offset = reinterpret_cast<const char *>(&pointer) -
                  reinterpret_cast<const char *>(&values);
    addresses.emplace_back(offset / sizeof(int64_t), global);
  }

  Fields getFields() const {
    std::array<int64_t, sizeof(StructT) / sizeof(int64_t)> words;
    std::memcpy(words.data(), &values, sizeof(values));
    Fields fields(words.begin(), words.end());
    for (auto [word, global] : addresses)
      fields[word] = global;
    return fields;
  }

private:
  SmallVector<std::pair<size_t, LLVM::GlobalOp>> addresses;
};
} // namespace

// The numbers of the dialect, of Support and of zpp_rt.h are the same: casts
// lead from one to the next.
static_assert(static_cast<int>(WireFormatKind::I8) == ZPP_RT_FORMAT_I8 &&
              static_cast<int>(WireFormatKind::I4) == ZPP_RT_FORMAT_I4 &&
              static_cast<int>(zpp::WireFormat::I8) == ZPP_RT_FORMAT_I8 &&
              static_cast<int>(zpp::WireFormat::I4) == ZPP_RT_FORMAT_I4);

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

/// Fills in `slices`, a field of the descriptor.
template <typename StructT>
static void setSlices(Descriptor<StructT> &desc, zpp_rt_slices &slices,
                      const SliceMap &map, Constants &constants) {
  slices.outer = map.outer;
  slices.unit = map.unit;
  slices.inner = map.inner;
  slices.extent = map.extent;
  desc.setAddress(slices.factors, constants.getList(map.factors));
  slices.num_factors = map.factors.size();
  desc.setAddress(slices.chunk_factors, constants.getList(map.chunkFactors));
  slices.num_chunk_factors = map.chunkFactors.size();
  slices.stage = map.stage;
  slices.stages = map.stages;
}

/// The map of a tensor whose chunks are its leading dim.
static SliceMap getLeadingDimMap(ArrayRef<int64_t> shape) {
  SliceMap map;
  map.extent = shape.front();
  // Without chunks there is one empty slice.
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

static int64_t getFormat(QuantAttr quant) {
  return static_cast<int64_t>(quant.getWireFormat());
}

// Each of these fills in the descriptor of an op, except size and name.

static void fill(PackSlicesOp op, Descriptor<zpp_rt_pack_desc> &desc,
                 Constants &constants) {
  desc.values.element_bytes =
      getElementBytes(cast<MemRefType>(op.getInputType()));
  setSlices(desc, desc.values.slices, getMap(op.getSlices(), op.getInputType()),
            constants);
  desc.values.chunk_stride = *getChunkStride(op.getInitMutable());
}

static void fill(UnpackSlicesOp op, Descriptor<zpp_rt_pack_desc> &desc,
                 Constants &constants) {
  desc.values.element_bytes =
      getElementBytes(cast<MemRefType>(op.getInitType()));
  setSlices(desc, desc.values.slices, getMap(op.getSlices(), op.getInitType()),
            constants);
  desc.values.chunk_stride = *getChunkStride(op.getInputMutable());
}

/// QuantizeOp and QuantizeDifferenceOp.
template <typename OpT>
static void fillQuantize(OpT op, Descriptor<zpp_rt_quantize_desc> &desc,
                         Constants &constants) {
  desc.values.element_type = getElementType(op.getInputType().getElementType());
  desc.values.format = getFormat(op.getQuant());
  desc.values.block = op.getQuant().getBlock();
  setSlices(desc, desc.values.slices,
            getMap(op.getSlicesAttr(), op.getInputType()), constants);
  desc.values.chunk_stride = *getChunkStride(op.getInitMutable());
  desc.values.rotate = op.getQuant().getRotate();
}

/// DequantizeOp and DequantizeAddOp.
template <typename OpT>
static void fillDequantize(OpT op, Descriptor<zpp_rt_quantize_desc> &desc,
                           Constants &constants) {
  desc.values.element_type = getElementType(op.getInitType().getElementType());
  desc.values.format = getFormat(op.getQuant());
  desc.values.block = op.getQuant().getBlock();
  setSlices(desc, desc.values.slices,
            getMap(op.getSlicesAttr(), op.getInitType()), constants);
  desc.values.chunk_stride = *getChunkStride(op.getInputMutable());
  desc.values.rotate = op.getQuant().getRotate();
}

static void fill(QuantizeOp op, Descriptor<zpp_rt_quantize_desc> &desc,
                 Constants &constants) {
  fillQuantize(op, desc, constants);
}

static void fill(QuantizeDifferenceOp op,
                 Descriptor<zpp_rt_quantize_desc> &desc, Constants &constants) {
  fillQuantize(op, desc, constants);
}

static void fill(DequantizeOp op, Descriptor<zpp_rt_quantize_desc> &desc,
                 Constants &constants) {
  fillDequantize(op, desc, constants);
}

static void fill(DequantizeAddOp op, Descriptor<zpp_rt_quantize_desc> &desc,
                 Constants &constants) {
  fillDequantize(op, desc, constants);
}

static void fill(ReduceOp op, Descriptor<zpp_rt_reduce_desc> &desc,
                 Constants &) {
  desc.values.kind = getKind(op.getKind());
  desc.values.sources = op.getInputType().getDimSize(0);
  desc.values.elements = op.getInitType().getNumElements();
  desc.values.source_type = getElementType(op.getInputType().getElementType());
  desc.values.format = ZPP_RT_FORMAT_NONE;
  desc.values.element_type = getElementType(op.getInitType().getElementType());
  desc.values.source_stride = *getChunkStride(op.getInputMutable());
}

static void fill(DequantizeReduceOp op, Descriptor<zpp_rt_reduce_desc> &desc,
                 Constants &) {
  desc.values.kind = getKind(op.getKind());
  desc.values.sources = op.getInputType().getDimSize(0);
  desc.values.elements = op.getInitType().getNumElements();
  desc.values.source_type = ZPP_RT_F32;
  desc.values.format = getFormat(op.getQuant());
  desc.values.block = op.getQuant().getBlock();
  desc.values.element_type = getElementType(op.getInitType().getElementType());
  desc.values.source_stride = *getChunkStride(op.getInputMutable());
  desc.values.rotate = op.getQuant().getRotate();
}

static void fill(DequantizeReduceQuantizeOp op,
                 Descriptor<zpp_rt_reduce_quantize_desc> &desc,
                 Constants &constants) {
  auto partial = cast<RankedTensorType>(op.getPartial());
  desc.values.kind = getKind(op.getKind());
  desc.values.sources = op.getInputType().getDimSize(0);
  desc.values.format = getFormat(op.getQuant());
  desc.values.block = op.getQuant().getBlock();
  desc.values.element_type = getElementType(partial.getElementType());
  desc.values.to_format = getFormat(op.getTo());
  desc.values.to_block = op.getTo().getBlock();
  setSlices(desc, desc.values.slices, getMap(op.getSlices(), partial),
            constants);
  desc.values.source_stride = *getChunkStride(op.getInputMutable());
  desc.values.chunk_stride = *getChunkStride(op.getInitMutable());
}

/// AllToAllOp and AllGatherChunksOp.
template <typename OpT>
static void fill(OpT op, Descriptor<zpp_rt_exchange_desc> &desc,
                 Constants &constants) {
  auto collective = cast<CollectiveOpInterface>(op.getOperation());
  SmallVector<zpp::AxisRef> axes = collective.getAxisRefs();
  Fields axisFields;
  for (const zpp::AxisRef &axis : axes) {
    Descriptor<zpp_rt_axis> entry;
    entry.setAddress(entry.values.name, constants.getString(axis.name));
    entry.values.pre_size = axis.preSize;
    entry.values.size = axis.size;
    axisFields.append(entry.getFields());
  }
  desc.setAddress(
      desc.values.axes,
      constants.createStruct(op.getLoc(), "zpp_rt_axes", axisFields));
  desc.values.num_axes = axes.size();
  desc.values.chunk_bytes =
      getBytes(op.getInitType()) / zpp::numDevices({axes.begin(), axes.end()});
  desc.setAddress(
      desc.values.mesh,
      constants.getString(collective.getMeshAttr().getMesh().str()));
}

/// The descriptor of an op at `loc`, as a global called `name`.
/// `fill(descriptor)` fills in the fields after size and name.
template <typename StructT, typename Fill>
static LLVM::GlobalOp createDescriptor(Location loc, StringRef name,
                                       const Fill &fill, Constants &constants) {
  Descriptor<StructT> desc;
  desc.values.struct_size = sizeof(StructT);
  std::string source = describeLocation(loc);
  desc.setAddress(desc.values.name, source.empty()
                                        ? LLVM::GlobalOp()
                                        : constants.getString(source));
  fill(desc);
  return constants.createStruct(loc, name, desc.getFields());
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
    Value bytes =
        arith::ConstantIndexOp::create(builder, loc, getElementBytes(type));
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

static void lowerOp(OpBuilder &builder, Operation *op, Value rank,
                    Constants &constants) {
  StringRef entrypoint;
  LLVM::GlobalOp descriptor;
#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP)                                      \
  if (auto typed = dyn_cast<OP>(op)) {                                         \
    entrypoint = "zpp_rt_" #NAME;                                              \
    descriptor = createDescriptor<zpp_rt_##DESC>(                              \
        op->getLoc(), "zpp_rt_" #DESC,                                         \
        [&](auto &desc) { fill(typed, desc, constants); }, constants);         \
  }
#include "zpp/Runtime/Entrypoints.def"

  Location loc = op->getLoc();
  SmallVector<Value> arguments{rank};
  Value input = getPointer(builder, loc, op->getOperand(0));
  Value held;
  if (op->getNumOperands() > 2)
    held = getPointer(builder, loc, op->getOperand(2));
  Value init = getPointer(builder, loc, op->getOperand(1));
  arguments.push_back(LLVM::AddressOfOp::create(builder, loc, descriptor));
  arguments.push_back(input);
  if (held)
    arguments.push_back(held);
  arguments.push_back(init);
  createCall(builder, loc, entrypoint, arguments, constants);
}

/// Turns a copy into a call of the runtime, which can access the memory and
/// knows the order of operations.
static void lowerCopy(OpBuilder &builder, memref::CopyOp op,
                      const StridedCopy &copy, Value rank,
                      Constants &constants) {
  Location loc = op.getLoc();
  auto getConstant = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(builder, loc,
                                    builder.getI64IntegerAttr(value));
  };
  Value target = getPointer(builder, loc, op.getTarget());
  Value source = getPointer(builder, loc, op.getSource());
  // One call can do one of the loops: the longest that it supports.
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
  LLVM::GlobalOp descriptor = createDescriptor<zpp_rt_copy_desc>(
      loc, "zpp_rt_copy_desc",
      [&](Descriptor<zpp_rt_copy_desc> &desc) {
        desc.values.rows = rows.size;
        desc.values.row_bytes = copy.rowBytes;
        desc.values.source_stride = rows.sourceStride;
        desc.values.dest_stride = rows.targetStride;
      },
      constants);
  Value address = LLVM::AddressOfOp::create(builder, loc, descriptor);
  createCall(builder, loc, "zpp_rt_copy_rows", {rank, address, source, target},
             constants);
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

/// The rank that the function around `op` takes, or null.
static Value getRank(Operation *op) {
  auto function = op->getParentOfType<func::FuncOp>();
  if (!function || function.getNumArguments() == 0 ||
      !isa<LLVM::LLVMPointerType>(function.getArgumentTypes().front()))
    return {};
  return function.getArgument(0);
}

namespace {
template <typename OpT>
struct LowerDecomposedOp : public OpConversionPattern<OpT> {
  LowerDecomposedOp(MLIRContext *context, std::shared_ptr<Constants> constants)
      : OpConversionPattern<OpT>(context), constants(std::move(constants)) {}

  LogicalResult
  matchAndRewrite(OpT op, typename OpT::Adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    Value rank = getRank(op);
    if (!rank)
      return rewriter.notifyMatchFailure(op, "its function takes no rank");
    if (std::string reason = getObstacle(op); !reason.empty())
      return rewriter.notifyMatchFailure(op, reason);
    lowerOp(rewriter, op, rank, *constants);
    rewriter.eraseOp(op);
    return success();
  }

  std::shared_ptr<Constants> constants;
};

struct LowerCopy : public OpConversionPattern<memref::CopyOp> {
  LowerCopy(MLIRContext *context, std::shared_ptr<Constants> constants)
      : OpConversionPattern(context), constants(std::move(constants)) {}

  LogicalResult
  matchAndRewrite(memref::CopyOp op, OpAdaptor,
                  ConversionPatternRewriter &rewriter) const override {
    Value rank = getRank(op);
    if (!rank)
      return rewriter.notifyMatchFailure(op, "its function takes no rank");
    std::optional<StridedCopy> copy = getRuntimeCopy(op);
    if (!copy)
      return rewriter.notifyMatchFailure(op, "it is dynamic");
    lowerCopy(rewriter, op, *copy, rank, *constants);
    rewriter.eraseOp(op);
    return success();
  }

  std::shared_ptr<Constants> constants;
};
} // namespace

static void populatePatterns(RewritePatternSet &patterns,
                             const std::shared_ptr<Constants> &constants) {
#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP)                                      \
  patterns.add<LowerDecomposedOp<OP>>(patterns.getContext(), constants);
#include "zpp/Runtime/Entrypoints.def"
  patterns.add<LowerCopy>(patterns.getContext(), constants);
}

void zpp::populateZeroToRuntimePatterns(RewritePatternSet &patterns,
                                        ModuleOp module) {
  populatePatterns(patterns, std::make_shared<Constants>(module));
}

//===----------------------------------------------------------------------===//
// The rank
//===----------------------------------------------------------------------===//

/// Verifies that every use of `functions` is a call in a function.
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

/// If other functions call `function`, they call a private copy that keeps the
/// workspace as an argument: asking the runtime twice would give the same
/// memory.
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

/// Replaces the last argument with memory of the rank. If the rank cannot
/// provide it, which is an error of the rank, a function without results
/// returns.
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

/// Whether a buffer and its views are only copied. The runtime can also copy
/// from host memory.
static bool isOnlyCopied(Value buffer) {
  return llvm::all_of(buffer.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto copy = dyn_cast<memref::CopyOp>(user))
      return use.get() == copy.getSource();
    return isa<ViewLikeOpInterface>(user) && isOnlyCopied(user->getResult(0));
  });
}

/// Verifies that only zero ops and copies access buffers.
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
  if (auto copy = dyn_cast<memref::CopyOp>(op)) {
    if (getRuntimeCopy(copy))
      return success();
    return op->emitError("failed to legalize '")
           << op->getName()
           << "': expected buffers of static shape and strides within 2^63 "
              "bytes, with elements of 1, 2, 4 or 8 bytes, but got "
           << copy.getSource().getType() << " and "
           << copy.getTarget().getType();
  }
  // The effects of an op with regions are those of the ops in it.
  bool isAround = op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() &&
                  !isa<MemoryEffectOpInterface>(op);
  if (op->hasTrait<OpTrait::IsTerminator>() || isAround ||
      isMemoryEffectFree(op))
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
    // Check everything, and emit all errors, before changing anything.
    bool isConvertible = true;
    module.walk([&](Operation *op) {
      if (isa_and_present<ZeroDialect>(op->getDialect())) {
        isConvertible &= succeeded(verifyConvertible(op));
        return;
      }
      auto function = op->getParentOfType<func::FuncOp>();
      if (deviceMemory && function && functions.contains(function))
        isConvertible &= succeeded(verifyDeviceMemory(op, symbols));
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
    if (failed(addRanks(module, functions)))
      return signalPassFailure();

    ConversionTarget target(getContext());
    target.addIllegalDialect<ZeroDialect>();
    target.addDynamicallyLegalOp<memref::CopyOp>([&](memref::CopyOp copy) {
      // Other copies become loops on the host.
      return !functions.contains(copy->getParentOfType<func::FuncOp>()) ||
             !getRuntimeCopy(copy);
    });
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    RewritePatternSet patterns(&getContext());
    auto constants = std::make_shared<Constants>(module);
    populatePatterns(patterns, constants);
    if (failed(applyPartialConversion(module, target, std::move(patterns))))
      return signalPassFailure();
    for (func::FuncOp function : entries)
      if (failed(allocateWorkspace(function, *constants)))
        return signalPassFailure();
  }

private:
  /// Gives `functions` the rank as their first argument, and their calls too.
  static LogicalResult
  addRanks(ModuleOp module, const llvm::SetVector<func::FuncOp> &functions) {
    auto pointer = LLVM::LLVMPointerType::get(module.getContext());
    for (func::FuncOp function : functions)
      if (failed(function.insertArgument(0, pointer, {}, function.getLoc())))
        return failure();
    module.walk([&](func::CallOp call) {
      auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
      if (functions.contains(callee))
        call->insertOperands(
            0, call->getParentOfType<func::FuncOp>().getArgument(0));
    });
    return success();
  }
};
} // namespace
