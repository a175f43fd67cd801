//===- ConvertZeroToStablehlo.cpp - Decomposed ops as StableHLO -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StablehloOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/DialectConversion.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Conversion/Patterns.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/WrittenGroups.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {
#define GEN_PASS_DEF_CONVERTZEROTOSTABLEHLOPASS
#include "zpp/Conversion/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// True for the tensor ops between zero ops that have patterns here.
static bool isTensorOp(Operation *op) {
  if (!llvm::all_of(op->getOperandTypes(), hasStaticShape) ||
      !llvm::all_of(op->getResultTypes(), hasStaticShape))
    return false;
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return slice.getOffsets().empty() && slice.getSizes().empty() &&
           slice.hasUnitStride();
  return isa<tensor::ConcatOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
      op);
}

/// True for the ops that become StableHLO.
static bool isConverted(Operation *op) {
  return isa_and_present<ZeroDialect>(op->getDialect()) ||
         (isa_and_present<tensor::TensorDialect>(op->getDialect()) &&
          isTensorOp(op));
}

/// Returns the op that puts the chunks of `op` in order, if the two still are
/// the gather that was imported. Null otherwise.
static UnpackSlicesOp getPlainOrder(Operation *op) {
  auto gather = dyn_cast_or_null<AllGatherChunksOp>(op);
  if (!gather || !gather->hasAttr(kSourceAttr) || !gather->hasOneUse())
    return {};
  return dyn_cast<UnpackSlicesOp>(*gather->user_begin());
}

//===----------------------------------------------------------------------===//
// What can be converted
//===----------------------------------------------------------------------===//

/// Returns the parts of the partitioned dim of the device's tensor in each of
/// which `op`, a scatter that was left alone, is one reduce_scatter: a sum over
/// all axes that partition more of its result than of its operand, in their
/// order, without padding or format. nullopt for another scatter.
static std::optional<int64_t> getPlainParts(ReduceScatterOp op) {
  ShardType from = op.getOperand().getType(), to = op.getType();
  if (op.getKind() != ReduceKind::Sum || op.getWire() ||
      to.getGlobal().getElementType() != from.getGlobal().getElementType() ||
      to.getUnit() * llvm::product_of(to.getFactorSizes()) !=
          to.getGlobal().getDimSize(to.getDim()) ||
      !op.getOperand().getDefiningOp<FromLocalOp>() ||
      !llvm::all_of(op->getUsers(), llvm::IsaPred<ToLocalOp>))
    return std::nullopt;
  int64_t parts = 1;
  ArrayRef<Attribute> along = op.getAlong().getValue(), missing = along;
  for (auto [before, after, size] : llvm::zip_equal(
           from.getFactors(), to.getFactors(), to.getFactorSizes())) {
    if (!before.isWhole())
      continue;
    if (!after.isWhole()) {
      if (missing.empty() || missing.front() != Attribute(after.getAxis()))
        return std::nullopt;
      missing = missing.drop_front();
    } else if (missing.size() == along.size()) {
      parts *= size;
    } else if (!missing.empty()) {
      return std::nullopt;
    }
  }
  return missing.empty() ? std::optional(parts) : std::nullopt;
}

/// True for a plain scatter and the ops at its border.
static bool isOfPlainScatter(Operation *op) {
  auto isPlain = [](Operation *other) {
    auto scatter = dyn_cast_or_null<ReduceScatterOp>(other);
    return scatter && getPlainParts(scatter);
  };
  if (auto toLocal = dyn_cast<ToLocalOp>(op))
    return isPlain(toLocal.getShard().getDefiningOp());
  if (isa<FromLocalOp>(op))
    return !op->use_empty() && llvm::all_of(op->getUsers(), isPlain);
  return isPlain(op);
}

/// Sums become one op per source, in the order in which numerics define them.
static constexpr int64_t kMaxSources = int64_t(1) << 16;

static LogicalResult verifyConvertible(Operation *op) {
  auto emitError = [&]() {
    return op->emitError("failed to legalize '") << op->getName() << "': ";
  };
  auto verifyElements = [&](ShapedType type) -> LogicalResult {
    if (StablehloBuilder::hasZero(type.getElementType()))
      return success();
    return emitError() << "expected integer, float or complex elements, but "
                          "got "
                       << type.getElementType();
  };
  if (isOfPlainScatter(op))
    return success();
  if (StringRef pass = getMissingPass(op); !pass.empty())
    return emitError() << "run " << pass << " first";
  if (isa<StartOp, WaitOp>(op))
    return emitError() << "run convert-zero-to-xla-ffi first";
  if (auto decomposed = dyn_cast<DecomposedOpInterface>(op)) {
    if (decomposed.isOnBuffers())
      return emitError() << "expected tensors, but got buffers of type "
                         << decomposed.getInputType();
    if (isa<ReduceOp, DequantizeReduceOp, DequantizeReduceQuantizeOp>(op) &&
        decomposed.getInputType().getDimSize(0) > kMaxSources)
      return emitError() << "expected at most " << kMaxSources
                         << " sources, but got "
                         << decomposed.getInputType().getDimSize(0);
    return verifyElements(decomposed.getInputType());
  }
  if (holdsShard(op))
    return emitError() << "expected local tensors, but got a partitioned one; "
                          "run zero-decompose-all-gather and "
                          "zero-decompose-reduce-scatter first";
  if (isa_and_present<tensor::TensorDialect>(op->getDialect()) &&
      !isa<tensor::EmptyOp>(op) && !isTensorOp(op))
    return emitError() << "expected tensor.empty, or tensor.concat, a slice or "
                          "a reshape of static tensors without strides";
  if (auto empty = dyn_cast<tensor::EmptyOp>(op))
    return verifyElements(empty.getType());
  return success();
}

//===----------------------------------------------------------------------===//
// Shared arithmetic
//===----------------------------------------------------------------------===//

namespace {
/// Private functions with the arithmetic of decomposed ops, one for each kind,
/// attributes and types.
class OutlinedFunctions {
public:
  explicit OutlinedFunctions(ModuleOp module)
      : module(module), symbols(module) {}

  /// True if `op` is worth a function: not a collective, and more than a
  /// reshape.
  static bool canOutline(DecomposedOpInterface op) {
    if (isa<CollectiveOpInterface>(*op))
      return false;
    if (auto pack = dyn_cast<PackSlicesOp>(*op))
      return !isReshape(pack.getSlices(), pack.getInputType());
    if (auto unpack = dyn_cast<UnpackSlicesOp>(*op))
      return !isReshape(unpack.getSlices(), unpack.getInitType());
    return true;
  }

  /// Calls the function for `op` with `inputs`, and returns the result.
  Value call(OpBuilder &builder, DecomposedOpInterface op, ValueRange inputs) {
    func::FuncOp &function = functions[getKey(op)];
    if (!function)
      function = create(op);
    return func::CallOp::create(builder, op->getLoc(), function, inputs)
        .getResult(0);
  }

private:
  /// True if the chunk form of a tensor of `type` has its elements in order.
  static bool isReshape(SlicesAttr slices, ShapedType type) {
    SliceMap map = slices.getMap(type.getShape());
    if (map.paddedExtent() != map.extent || map.partSize() != map.unit)
      return false;
    return map.numChunks() == 1 ||
           (map.outer == 1 &&
            llvm::equal(slices.getChunk(),
                        llvm::seq<int64_t>(0, slices.getChunk().size())));
  }

  static Attribute getKey(Operation *op) {
    Builder builder(op->getContext());
    SmallVector<Attribute> key{
        builder.getStringAttr(op->getName().getStringRef()),
        TypeAttr::get(op->getOperand(0).getType()),
        TypeAttr::get(op->getResult(0).getType())};
    if (Attribute properties = op->getPropertiesAsAttribute())
      key.push_back(properties);
    return builder.getArrayAttr(key);
  }

  func::FuncOp create(DecomposedOpInterface op) {
    IRRewriter builder(OpBuilder::atBlockEnd(module.getBody()));
    SmallVector<Value> inputs = getInputs(op->getOperands());
    std::string name = op->getName().getStringRef().str();
    std::replace(name.begin(), name.end(), '.', '_');
    auto function = func::FuncOp::create(
        builder, op->getLoc(), name,
        builder.getFunctionType(ValueRange(inputs).getTypes(),
                                op->getResultTypes()));
    function.setPrivate();
    symbols.insert(function);
    builder.setInsertionPointToStart(function.addEntryBlock());
    StablehloBuilder b(builder, op->getLoc());
    Value value = lowerDecomposed(b, op, function.getArguments());
    func::ReturnOp::create(builder, op->getLoc(), value);
    return function;
  }

  ModuleOp module;
  SymbolTable symbols;
  llvm::DenseMap<Attribute, func::FuncOp> functions;
};

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

/// Lowers a decomposed op to its arithmetic or to a call of a function with it.
template <typename OpT>
struct LowerDecomposedOp : public OpConversionPattern<OpT> {
  LowerDecomposedOp(const TypeConverter &converter, MLIRContext *context,
                    std::shared_ptr<OutlinedFunctions> functions)
      : OpConversionPattern<OpT>(converter, context),
        functions(std::move(functions)) {}

  LogicalResult
  matchAndRewrite(OpT op, typename OpT::Adaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    if (op.isOnBuffers())
      return rewriter.notifyMatchFailure(op, "it is on buffers");
    if (!getMissingPass(op).empty())
      return rewriter.notifyMatchFailure(op, "it is not decomposed");
    SmallVector<Value> inputs = getInputs(adaptor.getOperands());
    if (functions && OutlinedFunctions::canOutline(op)) {
      rewriter.replaceOp(op, functions->call(rewriter, op, inputs));
      return success();
    }
    StablehloBuilder b(rewriter, op.getLoc());
    rewriter.replaceOp(op, lowerDecomposed(b, op, inputs));
    return success();
  }

  std::shared_ptr<OutlinedFunctions> functions;
};

/// Lowers a plain gather together with the op that orders its chunks.
struct LowerPlainGather : public OpConversionPattern<AllGatherChunksOp> {
  LowerPlainGather(const TypeConverter &converter, MLIRContext *context)
      : OpConversionPattern(converter, context, /*benefit=*/2) {}

  LogicalResult
  matchAndRewrite(AllGatherChunksOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    UnpackSlicesOp order = getPlainOrder(op);
    if (!order)
      return rewriter.notifyMatchFailure(op, "something was done to it");
    StablehloBuilder b(rewriter, op.getLoc());
    Operation *gather = b.allGather(adaptor.getInput(), getGroups(op),
                                    order.getSlices().getDim());
    restoreSource(op, gather);
    copyMarks(op, gather);
    rewriter.replaceOp(order, gather);
    rewriter.eraseOp(op);
    return success();
  }
};

/// Lowers a plain scatter on local tensors.
struct LowerPlainScatter : public OpConversionPattern<ReduceScatterOp> {
  using OpConversionPattern::OpConversionPattern;
  LogicalResult
  matchAndRewrite(ReduceScatterOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    std::optional<int64_t> parts = getPlainParts(op);
    if (!parts)
      return rewriter.notifyMatchFailure(op, "it is not one reduce_scatter");
    StablehloBuilder b(rewriter, op.getLoc());
    Value local = adaptor.getOperand();
    int64_t dim = op.getType().getDim();
    SmallVector<int64_t> shape(cast<ShapedType>(local.getType()).getShape());
    if (*parts > 1) {
      shape[dim] /= *parts;
      shape.insert(shape.begin() + dim++, *parts);
    }
    Operation *scatter =
        b.reduceScatter(b.reshape(local, shape), getGroups(op), dim);
    // The dim of a source is that of the tensor as it came.
    if (*parts == 1)
      restoreSource(op, scatter);
    copyMarks(op, scatter);
    rewriter.replaceOp(op, b.reshape(scatter->getResult(0),
                                     op.getType().getLocalType().getShape()));
    return success();
  }
};

/// Replaces a partitioned tensor by the local one.
template <typename OpT> struct LowerBorder : public OpConversionPattern<OpT> {
  using OpConversionPattern<OpT>::OpConversionPattern;
  LogicalResult
  matchAndRewrite(OpT op, typename OpT::Adaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOp(op, adaptor.getOperands());
    return success();
  }
};

struct LowerConcat : public OpConversionPattern<tensor::ConcatOp> {
  using OpConversionPattern::OpConversionPattern;
  LogicalResult
  matchAndRewrite(tensor::ConcatOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    StablehloBuilder b(rewriter, op.getLoc());
    // Elements that were never written are never read.
    SmallVector<Value> inputs =
        llvm::map_to_vector(adaptor.getInputs(), [&](Value input) {
          auto empty = input.getDefiningOp<tensor::EmptyOp>();
          return empty ? b.zeros(empty.getType()) : input;
        });
    rewriter.replaceOp(op, b.concatenate(inputs, op.getDim()));
    return success();
  }
};

struct LowerExtractSlice : public OpConversionPattern<tensor::ExtractSliceOp> {
  using OpConversionPattern::OpConversionPattern;
  LogicalResult
  matchAndRewrite(tensor::ExtractSliceOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    if (!isTensorOp(op))
      return rewriter.notifyMatchFailure(op, "it is dynamic or strided");
    StablehloBuilder b(rewriter, op.getLoc());
    Value value = adaptor.getSource();
    for (auto [dim, offset, size] :
         llvm::enumerate(op.getStaticOffsets(), op.getStaticSizes()))
      value = b.slice(value, dim, offset, offset + size);
    rewriter.replaceOp(op, b.reshape(value, op.getType().getShape()));
    return success();
  }
};

/// Lowers a tensor.expand_shape or tensor.collapse_shape.
template <typename OpT> struct LowerReshape : public OpConversionPattern<OpT> {
  using OpConversionPattern<OpT>::OpConversionPattern;
  LogicalResult
  matchAndRewrite(OpT op, typename OpT::Adaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    StablehloBuilder b(rewriter, op.getLoc());
    rewriter.replaceOp(
        op, b.reshape(adaptor.getSrc(), op.getResultType().getShape()));
    return success();
  }
};
} // namespace

void zpp::populateZeroToStablehloTypeConversions(TypeConverter &converter) {
  converter.addConversion([](Type type) { return type; });
  converter.addConversion(
      [](ShardType type) -> Type { return type.getLocalType(); });
}

void zpp::populateZeroToStablehloPatterns(const TypeConverter &converter,
                                          RewritePatternSet &patterns,
                                          ModuleOp sharedInto) {
  MLIRContext *context = patterns.getContext();
  std::shared_ptr<OutlinedFunctions> functions;
  if (sharedInto)
    functions = std::make_shared<OutlinedFunctions>(sharedInto);
  patterns
      .add<LowerDecomposedOp<PackSlicesOp>, LowerDecomposedOp<UnpackSlicesOp>,
           LowerDecomposedOp<QuantizeOp>, LowerDecomposedOp<DequantizeOp>,
           LowerDecomposedOp<QuantizeDifferenceOp>,
           LowerDecomposedOp<DequantizeAddOp>, LowerDecomposedOp<ReduceOp>,
           LowerDecomposedOp<DequantizeReduceOp>,
           LowerDecomposedOp<DequantizeReduceQuantizeOp>,
           LowerDecomposedOp<AllToAllOp>, LowerDecomposedOp<AllGatherChunksOp>>(
          converter, context, functions);
  patterns.add<LowerPlainGather, LowerPlainScatter, LowerBorder<FromLocalOp>,
               LowerBorder<ToLocalOp>, LowerConcat, LowerExtractSlice,
               LowerReshape<tensor::ExpandShapeOp>,
               LowerReshape<tensor::CollapseShapeOp>>(converter, context);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class ConvertZeroToStablehloPass
    : public zpp::impl::ConvertZeroToStablehloPassBase<
          ConvertZeroToStablehloPass> {
public:
  using ConvertZeroToStablehloPassBase::ConvertZeroToStablehloPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    return requireStablehlo(context);
  }

  void runOnOperation() override {
    // Check everything, and emit all errors, before changing anything. Host
    // code is not converted.
    bool isConvertible = true;
    SmallVector<Operation *> ops;
    walkStep(getOperation(), [&](Operation *op) {
      isConvertible &= succeeded(verifyConvertible(op));
      if (isConverted(op))
        ops.push_back(op);
      return WalkResult::advance();
    });
    if (!isConvertible)
      return signalPassFailure();

    ConversionTarget target(getContext());
    target.markUnknownOpDynamicallyLegal(
        [](Operation *op) { return !isConverted(op); });
    TypeConverter converter;
    populateZeroToStablehloTypeConversions(converter);
    RewritePatternSet patterns(&getContext());
    populateZeroToStablehloPatterns(converter, patterns,
                                    outline ? getOperation() : ModuleOp());
    // The driver looks long at each op that it is given.
    if (failed(applyPartialConversion(ops, target, std::move(patterns))))
      return signalPassFailure();
    lowerEmptyTensors();
    getOperation()->removeAttr(kGroupMeshAttr);
    if (!ops.empty())
      dropUnusedMeshes(getOperation());
    noteGroupLists(getOperation());
  }

private:
  /// Erases the destinations of lowered ops. Any other reader of a tensor.empty
  /// gets zeros.
  void lowerEmptyTensors() {
    SmallVector<tensor::EmptyOp> tensors;
    walkStep(getOperation(), [&](Operation *op) {
      if (auto empty = dyn_cast<tensor::EmptyOp>(op))
        tensors.push_back(empty);
      return WalkResult::advance();
    });
    IRRewriter rewriter(&getContext());
    for (tensor::EmptyOp empty : tensors) {
      if (empty->use_empty()) {
        rewriter.eraseOp(empty);
      } else if (empty.getType().hasStaticShape()) {
        rewriter.setInsertionPoint(empty);
        StablehloBuilder b(rewriter, empty.getLoc());
        rewriter.replaceOp(empty, b.zeros(empty.getType()));
      }
    }
  }
};
} // namespace
