//===- WeightPath.cpp - From a stack of weights to a gather ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/WeightPath.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// Ops on a path
//===----------------------------------------------------------------------===//

static bool changesShapeOnly(Operation *op) {
  return isNamed(op, guest::kReshape) ||
         (isNamed(op, guest::kBroadcastInDim) && movesData(op));
}

/// Returns the value of all elements of `value` if they are equal, or null.
static TypedAttr getSplat(Value value, ProvenanceAnalysis &provenances) {
  if (Value number = zpp::getSplat(value))
    value = number;
  DenseElementsAttr data = getSplatConstant(provenances.getConstant(value));
  // A cast would round the value.
  if (!data || !llvm::all_of(provenances.getPath(value), changesShapeOnly) ||
      data.getElementType() != getTensorType(value).getElementType())
    return {};
  return data.getSplatValue<TypedAttr>();
}

/// Returns the dim of which the dynamic slice `op` takes one element of
/// several, -1 if it takes the whole tensor, or nullopt if it does something
/// else.
static std::optional<int64_t> getLayerDim(Operation *op) {
  if (!hasStaticShape(op->getOperand(0).getType()) ||
      !hasStaticShape(op->getResult(0).getType()))
    return std::nullopt;
  RankedTensorType from = getTensorType(op->getOperand(0));
  RankedTensorType to = getTensorType(op->getResult(0));
  if (from.getRank() != to.getRank())
    return std::nullopt;
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

/// Returns the operand of `step.op` with which a path continues, or null if it
/// ends.
static Value getPathOperand(WeightPath::Step &step,
                            ProvenanceAnalysis &provenances) {
  Operation *op = step.op;
  if (op->getNumResults() != 1 || op->getNumOperands() == 0 ||
      !hasStaticShape(op->getResult(0).getType()))
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
  bool isKnown = changesShapeOnly(op) || isNamed(op, guest::kTranspose) ||
                 isNamed(op, guest::kSlice) ||
                 (isNamed(op, guest::kDynamicSlice) && getLayerDim(op));
  return isKnown && isConsistentMovement(op) ? op->getOperand(0) : Value();
}

static bool choosesLayer(Operation *op) {
  return isNamed(op, guest::kDynamicSlice) && *getLayerDim(op) >= 0;
}

//===----------------------------------------------------------------------===//
// Finding paths
//===----------------------------------------------------------------------===//

SmallVector<Value> WeightPath::getIndices() const {
  SmallVector<Value> indices;
  if (layer)
    for (const Layer::Term &term : layer->terms)
      indices.push_back(term.index);
  for (const Step &step : steps)
    if (choosesLayer(step.op))
      indices.push_back(step.op->getOperand(1 + *getLayerDim(step.op)));
  return indices;
}

int64_t WeightPath::getNumLayers() const {
  int64_t layers = layer ? getTensorType(source).getDimSize(0) : 1;
  for (const Step &step : steps)
    if (choosesLayer(step.op))
      layers =
          multiplySaturating(layers, getTensorType(step.op->getOperand(0))
                                         .getDimSize(*getLayerDim(step.op)));
  return layers;
}

bool WeightPath::doesTheSame(const WeightPath &other) const {
  // Loops may count in different types.
  auto haveSameTypes = [](Operation *a, Operation *b) {
    return isNamed(a, guest::kDynamicSlice)
               ? a->getOperand(0).getType() == b->getOperand(0).getType()
               : a->getOperandTypes() == b->getOperandTypes();
  };
  auto isSame = [&](const Step &a, const Step &b) {
    return a.op->getName() == b.op->getName() && haveSameTypes(a.op, b.op) &&
           a.op->getResultTypes() == b.op->getResultTypes() &&
           a.op->getPropertiesAsAttribute() ==
               b.op->getPropertiesAsAttribute() &&
           a.splats == b.splats;
  };
  return llvm::equal(steps, other.steps, isSame);
}

std::optional<WeightPath> zpp::getWeightPath(Value value, Operation *gather,
                                             Operation *ancestor,
                                             ProvenanceAnalysis &provenances,
                                             bool endsInside) {
  endsInside |=
      isManualComputation(ancestor) || isa<FunctionOpInterface>(ancestor);
  // If it were hoisted out of a branch, a gather could run that the step does
  // not run.
  for (Operation *parent = gather; parent != ancestor;) {
    parent = parent->getParentOp();
    if (!isWhile(parent) && !(endsInside && parent == ancestor))
      return std::nullopt;
  }
  WeightPath path{value, {}};
  while (true) {
    if (auto argument = dyn_cast<BlockArgument>(path.source)) {
      Operation *parent = argument.getOwner()->getParentOp();
      if (!ancestor->isAncestor(parent) || (endsInside && parent == ancestor))
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
  if (!hasStaticShape(path.source.getType()))
    return std::nullopt;
  std::reverse(path.steps.begin(), path.steps.end());
  return path;
}

//===----------------------------------------------------------------------===//
// One layer
//===----------------------------------------------------------------------===//

static ArrayRef<int64_t> getArrayOf(Operation *op, StringRef name) {
  return op->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef();
}

namespace {
/// Follows the layers of a stack through slices and casts of shape.
class LayerTracker {
public:
  explicit LayerTracker(RankedTensorType stack)
      : weight(stack.getShape().drop_front()) {
    dims.push_back({stack.getDimSize(0), 1});
  }

  /// True if `shape` is that of one weight.
  bool isOneLayer(ArrayRef<int64_t> shape) const {
    return shape == ArrayRef(weight) &&
           llvm::all_of(dims, [](const Dim &dim) { return dim.size == 1; });
  }

  /// False where `op` does something else to the layers, or anything to
  /// weights.
  bool apply(Operation *op, WeightPath::Layer &layer) {
    if (op->getNumOperands() == 0)
      return false;
    ArrayRef<int64_t> from = getTensorType(op->getOperand(0)).getShape();
    ArrayRef<int64_t> to = getTensorType(op->getResult(0)).getShape();
    if (to.size() < weight.size() ||
        to.take_back(weight.size()) != ArrayRef(weight))
      return false;
    if (changesShapeOnly(op))
      return reshape(to.drop_back(weight.size()));
    if (from.size() != to.size() || to.size() != dims.size() + weight.size())
      return false;
    if (isNamed(op, guest::kSlice)) {
      for (auto [index, dim] : llvm::enumerate(dims)) {
        layer.offset += getArrayOf(op, "start_indices")[index] * dim.stride;
        dim.size = to[index];
        // Where no second layer is left, the stride may be any number.
        if (dim.size > 1)
          dim.stride *= getArrayOf(op, "strides")[index];
      }
      // Weights are whole, so that they are read from 0 on.
      return from.take_back(weight.size()) == ArrayRef(weight);
    }
    if (!isNamed(op, guest::kDynamicSlice))
      return false;
    for (auto [index, dim] : llvm::enumerate(dims)) {
      if (to[index] == dim.size)
        continue;
      layer.terms.push_back({op->getOperand(1 + index), dim.stride, dim.size});
      dim.size = 1;
    }
    return true;
  }

private:
  struct Dim {
    int64_t size, stride;
  };

  /// Dims of layers that are split up or merged.
  bool reshape(ArrayRef<int64_t> shape) {
    SmallVector<Dim> before;
    for (const Dim &dim : dims)
      if (dim.size != 1)
        before.push_back(dim);
    SmallVector<Dim> after;
    for (int64_t size : shape)
      after.push_back({size, 1});
    // From the last dim on, each takes up as much of the others as it is large.
    for (Dim &dim : llvm::reverse(after)) {
      int64_t taken = 1;
      while (taken < dim.size) {
        if (before.empty())
          return false;
        Dim next = before.pop_back_val();
        if (taken == 1)
          dim.stride = next.stride;
        else if (next.stride != multiplySaturating(dim.stride, taken))
          return false;
        int64_t needed = dim.size / taken;
        int64_t part = std::min(needed, next.size);
        if (part == 0 || needed % part != 0 || next.size % part != 0)
          return false;
        if (part < next.size)
          before.push_back({next.size / part, next.stride * part});
        taken *= part;
      }
    }
    dims = std::move(after);
    return before.empty();
  }

  SmallVector<int64_t> weight;
  SmallVector<Dim> dims;
};
} // namespace

/// Returns the type in which the layer of `path` is computed: the widest of its
/// indices.
static RankedTensorType getIndexType(const WeightPath &path) {
  RankedTensorType widest;
  for (Value index : path.getIndices())
    if (RankedTensorType type = getTensorType(index);
        !widest ||
        type.getElementTypeBitWidth() > widest.getElementTypeBitWidth())
      widest = type;
  return widest ? widest
                : RankedTensorType::get(
                      {}, IntegerType::get(path.source.getContext(), 32));
}

/// True if the numbers of all layers of the stack fit into the type in which
/// they are computed. An index of eight bits may choose from a thousand layers,
/// of which it reaches the first ones.
static bool fitsIndexType(const WeightPath &path) {
  Type index = getIndexType(path).getElementType();
  return llvm::isUIntN(index.getIntOrFloatBitWidth() - 1, path.getNumLayers());
}

std::optional<WeightPath> zpp::getLayerPath(const WeightPath &path) {
  RankedTensorType stack = getTensorType(path.source);
  if (stack.getRank() < 2)
    return std::nullopt;
  WeightPath result{path.source, {}, WeightPath::Layer()};
  LayerTracker tracker(stack);
  ArrayRef<WeightPath::Step> steps = path.steps;
  while (!steps.empty()) {
    Operation *op = steps.front().op;
    if (!tracker.apply(op, *result.layer))
      return std::nullopt;
    steps = steps.drop_front();
    if (!tracker.isOneLayer(getTensorType(op->getResult(0)).getShape()))
      continue;
    if (llvm::any_of(steps, [](const WeightPath::Step &step) {
          return choosesLayer(step.op);
        }))
      return std::nullopt;
    llvm::append_range(result.steps, steps);
    return fitsIndexType(result) ? std::optional(std::move(result))
                                 : std::nullopt;
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// All layers at once
//===----------------------------------------------------------------------===//

namespace {
/// Applies the ops of a path to a stack, one after the other.
class StackBuilder {
public:
  StackBuilder(OpBuilder &builder, LayerStack stack, Location loc)
      : builder(builder), loc(loc), stack(std::move(stack)) {}

  LayerStack getStack() const { return stack; }

  void apply(const WeightPath::Step &step) {
    Operation *op = step.op;
    loc = op->getLoc();
    if (changesShapeOnly(op))
      stack.value = createReshape(builder, loc, stack.value, getShape(op));
    else if (isNamed(op, guest::kTranspose))
      transpose(op);
    else if (isNamed(op, guest::kSlice))
      slice(op);
    else if (isNamed(op, guest::kDynamicSlice))
      addLayers(op);
    else
      compute(step);
  }

private:
  int64_t numLayerDims() const { return stack.layers.size(); }

  /// [layers..., the dims of the result of `op`...]
  SmallVector<int64_t> getShape(Operation *op) const {
    SmallVector<int64_t> shape(stack.layers);
    llvm::append_range(shape, getTensorType(op->getResult(0)).getShape());
    return shape;
  }

  void transpose(Operation *op) {
    auto permutation = llvm::to_vector(llvm::seq<int64_t>(0, numLayerDims()));
    for (int64_t dim : getArrayOf(op, "permutation"))
      permutation.push_back(numLayerDims() + dim);
    stack.value = createTranspose(builder, loc, stack.value, permutation);
  }

  void slice(Operation *op) {
    auto getAttr = [&](StringRef name, ArrayRef<int64_t> ofLayers) {
      SmallVector<int64_t> numbers(ofLayers);
      llvm::append_range(numbers, getArrayOf(op, name));
      return builder.getNamedAttr(name, builder.getDenseI64ArrayAttr(numbers));
    };
    SmallVector<int64_t> zeros(numLayerDims(), 0), ones(numLayerDims(), 1);
    stack.value = createOp(builder, loc, guest::kSlice, stack.value,
                           getTensorType(stack.value).clone(getShape(op)),
                           {getAttr("start_indices", zeros),
                            getAttr("limit_indices", stack.layers),
                            getAttr("strides", ones)});
  }

  /// Keeps all elements of the dim from which `op` chooses, as one more dim of
  /// layers.
  void addLayers(Operation *op) {
    int64_t dim = *getLayerDim(op);
    if (dim < 0)
      return;
    stack.value = createMoveDim(builder, loc, stack.value, numLayerDims() + dim,
                                numLayerDims());
    stack.layers.push_back(getTensorType(op->getOperand(0)).getDimSize(dim));
    stack.value = createReshape(builder, loc, stack.value, getShape(op));
  }

  void compute(const WeightPath::Step &step) {
    Operation *op = step.op;
    SmallVector<Value> operands;
    for (TypedAttr splat : step.splats)
      operands.push_back(
          splat ? createSplat(builder, loc, splat,
                              getTensorType(stack.value).getShape())
                : stack.value);
    auto properties =
        dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute());
    stack.value = createOp(builder, loc, op->getName().getStringRef(), operands,
                           getTensorType(op->getResult(0)).clone(getShape(op)),
                           properties ? properties.getValue()
                                      : ArrayRef<NamedAttribute>());
  }

  OpBuilder &builder;
  Location loc;
  LayerStack stack;
};
} // namespace

LayerStack zpp::createStack(OpBuilder &builder, const WeightPath &path) {
  LayerStack source{path.source, {}};
  if (path.layer)
    source.layers.push_back(path.getNumLayers());
  StackBuilder stack(builder, std::move(source), path.source.getLoc());
  for (const WeightPath::Step &step : path.steps)
    stack.apply(step);
  return stack.getStack();
}

Value zpp::createLayerSlice(OpBuilder &builder, Location loc,
                            const LayerStack &stack, const WeightPath &path) {
  if (!path.layer)
    return createLayerSlice(builder, loc, stack, path.getIndices());
  Value layer =
      createIndex(builder, loc, getIndexType(path), path.layer->offset);
  for (const WeightPath::Layer::Term &term : path.layer->terms)
    layer = addClampedIndex(builder, loc, layer, term.index, term.count,
                            term.factor);
  return createLayerSlice(builder, loc, stack, layer);
}
