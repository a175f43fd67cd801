//===- WeightPath.cpp - From a stack of weights to a gather ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightPath.h"

#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace zpp;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static bool hasStaticShape(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape();
}

//===----------------------------------------------------------------------===//
// Ops on a path
//===----------------------------------------------------------------------===//

static bool changesShapeOnly(Operation *op) {
  return isNamed(op, "stablehlo.reshape") ||
         (isNamed(op, "stablehlo.broadcast_in_dim") && movesData(op));
}

/// The value of all elements of `value` if they are equal, or null.
static TypedAttr getSplat(Value value, ProvenanceAnalysis &provenances) {
  Operation *op = value.getDefiningOp();
  if (op && isNamed(op, "stablehlo.broadcast_in_dim") &&
      hasStaticShape(op->getOperand(0)) &&
      typeOf(op->getOperand(0)).getNumElements() == 1)
    value = op->getOperand(0);
  // A cast would round the value.
  Operation *constant = provenances.getConstant(value);
  if (!llvm::all_of(provenances.getPath(value), changesShapeOnly))
    return {};
  auto data = constant ? constant->getAttrOfType<DenseElementsAttr>("value")
                       : DenseElementsAttr();
  if (!data || !data.isSplat() ||
      data.getElementType() != typeOf(value).getElementType())
    return {};
  return data.getSplatValue<TypedAttr>();
}

/// The dim of which the dynamic slice `op` takes one element of several, -1 if
/// it takes the whole tensor, or nullopt if it does something else.
static std::optional<int64_t> getLayerDim(Operation *op) {
  if (!hasStaticShape(op->getOperand(0)) || !hasStaticShape(op->getResult(0)))
    return std::nullopt;
  RankedTensorType from = typeOf(op->getOperand(0));
  RankedTensorType to = typeOf(op->getResult(0));
  int64_t layerDim = -1;
  for (auto [dim, size, whole] :
       llvm::enumerate(to.getShape(), from.getShape())) {
    if (size == whole)
      continue;
    if (size != 1 || layerDim >= 0)
      return std::nullopt;
    layerDim = dim;
  }
  return layerDim;
}

/// The operand of `step.op` with which a path continues, or null if it ends.
static Value getPathOperand(WeightPath::Step &step,
                            ProvenanceAnalysis &provenances) {
  Operation *op = step.op;
  if (op->getNumResults() != 1 || op->getNumOperands() == 0 ||
      !hasStaticShape(op->getResult(0)))
    return {};
  if (isElementwise(op)) {
    Value tensor;
    for (Value operand : op->getOperands()) {
      step.splats.push_back(getSplat(operand, provenances));
      if (step.splats.back())
        continue;
      if (tensor)
        return {};
      tensor = operand;
    }
    return tensor;
  }
  bool isKnown = changesShapeOnly(op) || isNamed(op, "stablehlo.transpose") ||
                 isNamed(op, "stablehlo.slice") ||
                 (isNamed(op, "stablehlo.dynamic_slice") && getLayerDim(op));
  return isKnown && hasStaticShape(op->getOperand(0)) ? op->getOperand(0)
                                                      : Value();
}

static bool choosesLayer(Operation *op) {
  return isNamed(op, "stablehlo.dynamic_slice") && *getLayerDim(op) >= 0;
}

//===----------------------------------------------------------------------===//
// Finding paths
//===----------------------------------------------------------------------===//

SmallVector<Operation *> WeightPath::getLayerSlices() const {
  SmallVector<Operation *> slices;
  for (const Step &step : steps)
    if (choosesLayer(step.op))
      slices.push_back(step.op);
  return slices;
}

bool WeightPath::doesTheSame(const WeightPath &other) const {
  auto isSame = [](const Step &a, const Step &b) {
    return a.op->getName() == b.op->getName() &&
           a.op->getResultTypes() == b.op->getResultTypes() &&
           a.op->getPropertiesAsAttribute() ==
               b.op->getPropertiesAsAttribute() &&
           a.splats == b.splats;
  };
  return llvm::equal(steps, other.steps, isSame);
}

std::optional<WeightPath> zpp::getWeightPath(Value value, Operation *gather,
                                             Operation *ancestor,
                                             ProvenanceAnalysis &provenances) {
  bool isManual = isManualComputation(ancestor);
  // If it were hoisted out of a branch, a gather could run that the step does
  // not run.
  for (Operation *parent = gather; parent != ancestor;) {
    parent = parent->getParentOp();
    if (!isWhile(parent) && !(isManual && parent == ancestor))
      return std::nullopt;
  }
  WeightPath path{value, {}};
  while (true) {
    if (auto argument = dyn_cast<BlockArgument>(path.source)) {
      Operation *parent = argument.getOwner()->getParentOp();
      if (!ancestor->isAncestor(parent) || (isManual && parent == ancestor))
        break;
      if (!isLoopInvariant(parent, argument.getArgNumber()))
        return std::nullopt;
      path.source = parent->getOperand(argument.getArgNumber());
      continue;
    }
    Operation *op = path.source.getDefiningOp();
    if (!ancestor->isProperAncestor(op))
      break;
    if (isBarrier(op)) {
      path.source =
          op->getOperand(cast<OpResult>(path.source).getResultNumber());
      continue;
    }
    WeightPath::Step step{op, {}};
    path.source = getPathOperand(step, provenances);
    if (!path.source)
      return std::nullopt;
    path.steps.push_back(std::move(step));
  }
  if (!hasStaticShape(path.source))
    return std::nullopt;
  std::reverse(path.steps.begin(), path.steps.end());
  return path;
}

//===----------------------------------------------------------------------===//
// All layers at once
//===----------------------------------------------------------------------===//

/// Creates an op of StableHLO by name.
static Value createOp(OpBuilder &builder, Location loc, StringRef name,
                      ValueRange operands, RankedTensorType type,
                      ArrayRef<NamedAttribute> attributes = {}) {
  OperationState state(loc, name);
  state.addOperands(operands);
  state.addTypes(type);
  if (!attributes.empty())
    state.propertiesAttr = builder.getDictionaryAttr(attributes);
  return builder.create(state)->getResult(0);
}

static NamedAttribute getArray(OpBuilder &builder, StringRef name,
                               ArrayRef<int64_t> values) {
  return builder.getNamedAttr(name, builder.getDenseI64ArrayAttr(values));
}

static Value createSplat(OpBuilder &builder, Location loc, TypedAttr value,
                         ArrayRef<int64_t> shape) {
  auto scalar = RankedTensorType::get({}, value.getType());
  Value constant = createOp(
      builder, loc, "stablehlo.constant", {}, scalar,
      builder.getNamedAttr("value", DenseElementsAttr::get(scalar, value)));
  return createOp(builder, loc, "stablehlo.broadcast_in_dim", constant,
                  scalar.clone(shape),
                  getArray(builder, "broadcast_dimensions", {}));
}

Value zpp::createReshape(OpBuilder &builder, Location loc, Value value,
                         ArrayRef<int64_t> shape) {
  // An unused reshape was just created here.
  Operation *last = value.getDefiningOp();
  if (last && isNamed(last, "stablehlo.reshape") && last->use_empty()) {
    value = last->getOperand(0);
    last->erase();
  }
  if (typeOf(value).getShape() == shape)
    return value;
  return createOp(builder, loc, "stablehlo.reshape", value,
                  typeOf(value).clone(shape));
}

static Value createTranspose(OpBuilder &builder, Location loc, Value value,
                             ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> shape = llvm::map_to_vector(
      permutation, [&](int64_t dim) { return typeOf(value).getDimSize(dim); });
  return createOp(builder, loc, "stablehlo.transpose", value,
                  typeOf(value).clone(shape),
                  getArray(builder, "permutation", permutation));
}

Value zpp::createMoveDim(OpBuilder &builder, Location loc, Value value,
                         int64_t from, int64_t to) {
  if (from == to)
    return value;
  SmallVector<int64_t> permutation =
      llvm::to_vector(llvm::seq<int64_t>(0, typeOf(value).getRank()));
  permutation.erase(permutation.begin() + from);
  permutation.insert(permutation.begin() + to, from);
  return createTranspose(builder, loc, value, permutation);
}

namespace {
/// Applies the ops of a path to a stack, one after the other.
class StackBuilder {
public:
  StackBuilder(OpBuilder &builder, Value source, Location loc)
      : builder(builder), loc(loc), stack{source, {}} {}

  LayerStack getStack() const { return stack; }

  void apply(const WeightPath::Step &step) {
    Operation *op = step.op;
    loc = op->getLoc();
    if (changesShapeOnly(op))
      stack.value =
          createReshape(builder, loc, stack.value,
                        getShape(typeOf(op->getResult(0)).getShape()));
    else if (isNamed(op, "stablehlo.transpose"))
      transpose(op);
    else if (isNamed(op, "stablehlo.slice"))
      slice(op);
    else if (isNamed(op, "stablehlo.dynamic_slice"))
      addLayers(op);
    else
      compute(step);
  }

private:
  int64_t numLayerDims() const { return stack.layers.size(); }

  /// [layers..., shape...]
  SmallVector<int64_t> getShape(ArrayRef<int64_t> shape) const {
    SmallVector<int64_t> result(stack.layers);
    llvm::append_range(result, shape);
    return result;
  }

  static ArrayRef<int64_t> getArrayOf(Operation *op, StringRef name) {
    return op->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef();
  }

  void transpose(Operation *op) {
    auto permutation = llvm::to_vector(llvm::seq<int64_t>(0, numLayerDims()));
    for (int64_t dim : getArrayOf(op, "permutation"))
      permutation.push_back(numLayerDims() + dim);
    stack.value = createTranspose(builder, loc, stack.value, permutation);
  }

  void slice(Operation *op) {
    SmallVector<int64_t> starts(numLayerDims(), 0), limits(stack.layers),
        strides(numLayerDims(), 1);
    llvm::append_range(starts, getArrayOf(op, "start_indices"));
    llvm::append_range(limits, getArrayOf(op, "limit_indices"));
    llvm::append_range(strides, getArrayOf(op, "strides"));
    stack.value =
        createOp(builder, loc, "stablehlo.slice", stack.value,
                 typeOf(stack.value)
                     .clone(getShape(typeOf(op->getResult(0)).getShape())),
                 {getArray(builder, "start_indices", starts),
                  getArray(builder, "limit_indices", limits),
                  getArray(builder, "strides", strides)});
  }

  /// Keeps all elements of the dim from which `op` chooses, as one more dim of
  /// layers.
  void addLayers(Operation *op) {
    int64_t dim = *getLayerDim(op);
    if (dim < 0)
      return;
    stack.value = createMoveDim(builder, loc, stack.value, numLayerDims() + dim,
                                numLayerDims());
    stack.layers.push_back(typeOf(op->getOperand(0)).getDimSize(dim));
    stack.value = createReshape(builder, loc, stack.value,
                                getShape(typeOf(op->getResult(0)).getShape()));
  }

  void compute(const WeightPath::Step &step) {
    Operation *op = step.op;
    RankedTensorType to = typeOf(op->getResult(0));
    SmallVector<Value> operands;
    for (TypedAttr splat : step.splats)
      operands.push_back(splat ? createSplat(builder, loc, splat,
                                             typeOf(stack.value).getShape())
                               : stack.value);
    auto properties =
        dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute());
    stack.value = createOp(builder, loc, op->getName().getStringRef(), operands,
                           to.clone(getShape(to.getShape())),
                           properties ? properties.getValue()
                                      : ArrayRef<NamedAttribute>());
  }

  OpBuilder &builder;
  Location loc;
  LayerStack stack;
};
} // namespace

LayerStack zpp::createStack(OpBuilder &builder, const WeightPath &path) {
  StackBuilder stack(builder, path.source, path.source.getLoc());
  for (const WeightPath::Step &step : path.steps)
    stack.apply(step);
  return stack.getStack();
}

Value zpp::createLayerSlice(OpBuilder &builder, Location loc,
                            const LayerStack &stack, const WeightPath &path) {
  if (stack.layers.empty())
    return stack.value;
  RankedTensorType type = typeOf(stack.value);
  SmallVector<int64_t> sizes(stack.layers.size(), 1);
  llvm::append_range(sizes, type.getShape().drop_front(stack.layers.size()));
  SmallVector<Value> operands{stack.value};
  RankedTensorType indexType;
  for (Operation *slice : path.getLayerSlices()) {
    Value index = slice->getOperand(1 + *getLayerDim(slice));
    if (!indexType)
      indexType = typeOf(index);
    // Loops may have counters of different types, but a slice needs one type.
    if (index.getType() != indexType)
      index = createOp(builder, loc, "stablehlo.convert", index, indexType);
    operands.push_back(index);
  }
  Value zero = createOp(
      builder, loc, "stablehlo.constant", {}, indexType,
      builder.getNamedAttr(
          "value",
          DenseElementsAttr::get(indexType, cast<Attribute>(builder.getZeroAttr(
                                                indexType.getElementType())))));
  operands.append(type.getRank() - stack.layers.size(), zero);
  Value layer =
      createOp(builder, loc, "stablehlo.dynamic_slice", operands,
               type.clone(sizes), getArray(builder, "slice_sizes", sizes));
  return createReshape(builder, loc, layer,
                       ArrayRef(sizes).drop_front(stack.layers.size()));
}
