//===- Stablehlo.cpp - StableHLO ops by name ------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/Stablehlo.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Assembly.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// Names and attributes
//===----------------------------------------------------------------------===//

bool zpp::containsOp(Operation *root,
                     llvm::function_ref<bool(Operation *)> isWanted) {
  return root
      ->walk([&](Operation *op) {
        return isWanted(op) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

StringRef zpp::getCallTarget(Operation *op) {
  if (!isNamed(op, "stablehlo.custom_call"))
    return "";
  auto target = op->getAttrOfType<StringAttr>("call_target_name");
  return target ? target.getValue() : "";
}

std::optional<CollectiveKind> zpp::getGuestCollective(Operation *op) {
  StringRef name = op->getName().getStringRef();
  if (!name.consume_front("stablehlo.") && !name.consume_front("shard."))
    return std::nullopt;
  return llvm::StringSwitch<std::optional<CollectiveKind>>(name)
      .Case("all_gather", CollectiveKind::AllGather)
      .Case("reduce_scatter", CollectiveKind::ReduceScatter)
      .Case("all_reduce", CollectiveKind::AllReduce)
      .Case("all_to_all", CollectiveKind::AllToAll)
      .Case("collective_permute", CollectiveKind::CollectivePermute)
      .Case("collective_broadcast", CollectiveKind::CollectiveBroadcast)
      .Default(std::nullopt);
}

/// Returns the attribute of a collective that names its dim.
static std::optional<NamedAttribute> getDimAttribute(Operation *op) {
  for (StringRef name : {"split_axis", "split_dimension", "scatter_axis",
                         "scatter_dimension", "gather_axis", "all_gather_dim"})
    if (auto dim = op->getAttrOfType<IntegerAttr>(name))
      return NamedAttribute(StringAttr::get(op->getContext(), name), dim);
  return std::nullopt;
}

int64_t zpp::getCollectiveDim(Operation *op) {
  std::optional<NamedAttribute> dim = getDimAttribute(op);
  return dim ? cast<IntegerAttr>(dim->getValue()).getInt() : -1;
}

void zpp::setCollectiveDim(Operation *op, int64_t dim) {
  NamedAttribute attribute = *getDimAttribute(op);
  op->setAttr(
      attribute.getName(),
      IntegerAttr::get(cast<IntegerAttr>(attribute.getValue()).getType(), dim));
}

/// Returns the op that combines the two arguments of a reduction's region, or
/// null.
static Operation *getReducer(Operation *op) {
  if (!op->getRegion(0).hasOneBlock() || op->getRegion(0).front().empty())
    return nullptr;
  Block &block = op->getRegion(0).front();
  if (block.getNumArguments() != 2 || block.back().getNumOperands() != 1)
    return nullptr;
  Operation *reducer = block.back().getOperand(0).getDefiningOp();
  // JAX writes a sharding constraint if axes are left to the partitioner.
  while (reducer && isNamed(reducer, "sdy.sharding_constraint"))
    reducer = reducer->getOperand(0).getDefiningOp();
  if (!reducer || reducer->getNumOperands() != 2)
    return nullptr;
  Value a = reducer->getOperand(0), b = reducer->getOperand(1);
  bool isOfBoth = (a == block.getArgument(0) && b == block.getArgument(1)) ||
                  (a == block.getArgument(1) && b == block.getArgument(0));
  return isOfBoth ? reducer : nullptr;
}

bool zpp::isSum(Operation *op) {
  if (op->getNumRegions() == 0) {
    // shard.reduce_scatter: a kind that defaults to sum.
    Attribute reduction = op->getAttr("reduction");
    return !reduction || StringRef(toText(reduction)).contains("sum");
  }
  Operation *reducer = getReducer(op);
  return reducer && isNamed(reducer, "stablehlo.add");
}

Operation *zpp::getExtremum(Operation *op) {
  if (op->getNumRegions() == 0)
    return nullptr;
  Operation *reducer = getReducer(op);
  bool isExtremum = reducer && (isNamed(reducer, "stablehlo.maximum") ||
                                isNamed(reducer, "stablehlo.minimum"));
  return isExtremum ? reducer : nullptr;
}

bool zpp::mayCommunicate(Operation *op) {
  if (!isNamed(op, guest::kCustomCall))
    return isNamed(op, "stablehlo.send") || isNamed(op, "stablehlo.recv") ||
           isNamed(op, "stablehlo.infeed") || isNamed(op, "stablehlo.outfeed");
  // Targets that XLA and JAX use for computation on one device.
  static const llvm::Regex isLocal(
      "^(__cublas\\$|__cudnn\\$|__gpu\\$|cu_|cuda_|cusolver_|lapack_|"
      "triton_kernel_call$|Sharding$)");
  return !isLocal.match(getCallTarget(op));
}

bool zpp::takesLargest(Operation *op) {
  auto isNamedIn = [&](StringRef attribute) {
    auto name = op->getAttrOfType<StringAttr>(attribute);
    return name && llvm::is_contained({"chlo.top_k", "mhlo.topk", "TopK"},
                                      name.getValue());
  };
  return isNamed(op, guest::kTopK) || isNamed(op, "mhlo.topk") ||
         (isNamed(op, guest::kComposite) && isNamedIn("name")) ||
         (isNamed(op, guest::kCustomCall) && isNamedIn("call_target_name"));
}

bool zpp::comparesLess(Operation *op) {
  Attribute direction = isNamed(op, "stablehlo.compare")
                            ? op->getAttr("comparison_direction")
                            : Attribute();
  return direction && StringRef(toText(direction)).contains(" LT");
}

std::optional<int64_t> zpp::getConstantInteger(Value value) {
  DenseElementsAttr data = getSplatConstant(value.getDefiningOp());
  if (!data || !data.getElementType().isIntOrIndex())
    return std::nullopt;
  return data.getSplatValue<APInt>().getSExtValue();
}

RankedTensorType zpp::getTensorType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

bool zpp::hasStaticShape(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape();
}

DenseElementsAttr zpp::getSplatConstant(Operation *op) {
  auto data = op && isNamed(op, guest::kConstant)
                  ? op->getAttrOfType<DenseElementsAttr>("value")
                  : DenseElementsAttr();
  return data && data.isSplat() ? data : DenseElementsAttr();
}

DenseElementsAttr zpp::getSplatSource(Value value) {
  Operation *op = value.getDefiningOp();
  while (op && op->getNumOperands() == 1 &&
         (isNamed(op, guest::kBroadcastInDim) || isNamed(op, guest::kConvert) ||
          isNamed(op, guest::kReshape)))
    op = op->getOperand(0).getDefiningOp();
  return getSplatConstant(op);
}

bool zpp::hasOneElement(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && shaped.hasStaticShape() && shaped.getNumElements() == 1;
}

Value zpp::getSplat(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return {};
  if (isNamed(op, guest::kBroadcastInDim))
    return hasOneElement(op->getOperand(0).getType()) ? op->getOperand(0)
                                                      : Value();
  return getSplatConstant(op) ? value : Value();
}

bool zpp::isZeros(Value value) {
  Value number = getSplat(value);
  DenseElementsAttr data =
      number ? getSplatConstant(number.getDefiningOp()) : DenseElementsAttr();
  if (!data)
    return false;
  if (isa<FloatType>(data.getElementType()))
    return data.getSplatValue<APFloat>().isZero();
  return isa<IntegerType>(data.getElementType()) &&
         data.getSplatValue<APInt>().isZero();
}

//===----------------------------------------------------------------------===//
// Data movement
//===----------------------------------------------------------------------===//

bool zpp::isBarrier(Operation *op) {
  return isNamed(op, "stablehlo.optimization_barrier") &&
         op->getOperandTypes() == op->getResultTypes();
}

bool zpp::movesData(Operation *op) {
  static const llvm::StringSet<> names = {"stablehlo.convert",
                                          "stablehlo.reshape",
                                          "stablehlo.transpose",
                                          "stablehlo.slice",
                                          "stablehlo.bitcast_convert",
                                          "stablehlo.reduce_precision",
                                          "stablehlo.dynamic_slice",
                                          "stablehlo.copy",
                                          "stablehlo.pad",
                                          "stablehlo.concatenate",
                                          "arith.truncf",
                                          "arith.extf",
                                          "tensor.cast",
                                          "tensor.extract_slice",
                                          "tensor.expand_shape",
                                          "tensor.collapse_shape",
                                          "zero.from_local",
                                          "zero.to_local"};
  if (op->getNumOperands() == 0 || op->getNumResults() != 1)
    return false;
  if (names.contains(op->getName().getStringRef()))
    return true;
  if (isNamed(op, "stablehlo.broadcast_in_dim")) {
    // A broadcast that only adds dims of size 1 is a reshape. JAX creates one
    // before a gather that is not tiled.
    auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
    auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    return from && to && from.hasStaticShape() && to.hasStaticShape() &&
           from.getNumElements() == to.getNumElements();
  }
  // The partitioner that preceded Shardy marks the borders of a shard_map in
  // this way.
  StringRef target = getCallTarget(op);
  return target == "Sharding" || target == "SPMDFullToShardShape" ||
         target == "SPMDShardToFullShape";
}

/// Reads the attribute of `op` with one entry per dim, or nullopt.
static std::optional<ArrayRef<int64_t>> getPerDim(Operation *op, StringRef name,
                                                  int64_t rank) {
  auto attr = op->getAttrOfType<DenseI64ArrayAttr>(name);
  if (!attr || attr.size() != rank)
    return std::nullopt;
  return attr.asArrayRef();
}

static bool isConsistentTranspose(Operation *op, RankedTensorType from,
                                  RankedTensorType to) {
  auto permutation = getPerDim(op, "permutation", from.getRank());
  if (!permutation || from.getRank() != to.getRank())
    return false;
  llvm::SmallDenseSet<int64_t> seen;
  for (auto [dim, source] : llvm::enumerate(*permutation))
    if (source < 0 || source >= from.getRank() || !seen.insert(source).second ||
        from.getDimSize(source) != to.getDimSize(dim))
      return false;
  return true;
}

static bool isConsistentSlice(Operation *op, RankedTensorType from,
                              RankedTensorType to) {
  int64_t rank = from.getRank();
  auto starts = getPerDim(op, "start_indices", rank);
  auto limits = getPerDim(op, "limit_indices", rank);
  auto strides = getPerDim(op, "strides", rank);
  if (!starts || !limits || !strides || to.getRank() != rank)
    return false;
  for (int64_t dim = 0; dim < rank; ++dim) {
    int64_t start = (*starts)[dim], limit = (*limits)[dim],
            stride = (*strides)[dim];
    if (start < 0 || start > limit || limit > from.getDimSize(dim) ||
        stride < 1 ||
        to.getDimSize(dim) !=
            static_cast<int64_t>(
                llvm::divideCeil(static_cast<uint64_t>(limit - start), stride)))
      return false;
  }
  return true;
}

bool zpp::isIntegerScalar(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() == 0 && type.getElementType().isInteger();
}

static bool isConsistentDynamicSlice(Operation *op, RankedTensorType from,
                                     RankedTensorType to) {
  if (from.getRank() != to.getRank() ||
      static_cast<int64_t>(op->getNumOperands()) != 1 + from.getRank())
    return false;
  for (auto [size, whole] : llvm::zip_equal(to.getShape(), from.getShape()))
    if (size > whole)
      return false;
  return llvm::all_of(op->getOperands().drop_front(), isIntegerScalar);
}

bool zpp::isConsistentMovement(Operation *op) {
  StringRef name = op->getName().getStringRef();
  if (!name.consume_front("stablehlo.") || op->getNumOperands() == 0 ||
      op->getNumResults() != 1 || op->getNumRegions() != 0)
    return false;
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!from || !to || !from.hasStaticShape() || !to.hasStaticShape())
    return false;
  if (name == "dynamic_slice")
    return from.getElementType() == to.getElementType() &&
           isConsistentDynamicSlice(op, from, to);
  if (op->getNumOperands() != 1)
    return false;
  if (name == "convert")
    return from.getShape() == to.getShape();
  if (from.getElementType() != to.getElementType())
    return false;
  if (name == "reduce_precision")
    return from.getShape() == to.getShape();
  if (name == "reshape" || (name == "broadcast_in_dim" && movesData(op)))
    return from.getNumElements() == to.getNumElements();
  if (name == "transpose")
    return isConsistentTranspose(op, from, to);
  return name == "slice" && isConsistentSlice(op, from, to);
}

bool zpp::isJoin(Operation *op) {
  return isNamed(op, "stablehlo.concatenate") || isNamed(op, "stablehlo.pad");
}

bool zpp::isElementwise(Operation *op) {
  static const llvm::StringSet<> names = [] {
    llvm::StringSet<> all;
    for (const GuestOp &row : getElementwiseOps())
      all.insert(row.name);
    return all;
  }();
  if (!names.contains(op->getName().getStringRef()) ||
      op->getNumOperands() == 0 || op->getNumResults() != 1 ||
      op->getNumRegions() != 0)
    return false;
  // The bounds of a clamp and the condition of a select may be scalars.
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return type && llvm::all_of(op->getOperandTypes(), [&](Type operand) {
           auto tensor = dyn_cast<RankedTensorType>(operand);
           return tensor && tensor.getShape() == type.getShape();
         });
}

bool zpp::isDeterministic(Operation *op) {
  if (isElementwise(op) || movesData(op))
    return true;
  return op->getNumResults() == 1 && op->getNumRegions() == 0 &&
         (isNamed(op, "stablehlo.constant") || isNamed(op, "stablehlo.iota") ||
          isNamed(op, "stablehlo.broadcast_in_dim") ||
          isNamed(op, "stablehlo.dot_general"));
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

Value zpp::createOp(OpBuilder &builder, Location loc, StringRef name,
                    ValueRange operands, Type type,
                    ArrayRef<NamedAttribute> attributes) {
  OperationState state(loc, name);
  state.addOperands(operands);
  state.addTypes(type);
  if (!attributes.empty())
    state.propertiesAttr = builder.getDictionaryAttr(attributes);
  return builder.create(state)->getResult(0);
}

Value zpp::createConstant(OpBuilder &builder, Location loc, TypedAttr value) {
  return createOp(builder, loc, guest::kConstant, {}, value.getType(),
                  builder.getNamedAttr("value", value));
}

Operation *zpp::createBarrier(OpBuilder &builder, Location loc,
                              ValueRange operands) {
  OperationState state(loc, "stablehlo.optimization_barrier");
  state.addOperands(operands);
  state.addTypes(operands.getTypes());
  return builder.create(state);
}

Operation *zpp::rebuildBarrier(Operation *barrier, ValueRange added,
                               SmallVectorImpl<Value> *dropped) {
  SmallVector<Value> operands, results;
  for (auto [operand, result] :
       llvm::zip_equal(barrier->getOperands(), barrier->getResults()))
    if (dropped && result.use_empty()) {
      dropped->push_back(operand);
    } else {
      operands.push_back(operand);
      results.push_back(result);
    }
  llvm::append_range(operands, added);
  Operation *rebuilt = nullptr;
  if (!operands.empty()) {
    OpBuilder builder(barrier);
    rebuilt = createBarrier(builder, barrier->getLoc(), operands);
    rebuilt->setDiscardableAttrs(barrier->getDiscardableAttrDictionary());
    for (auto [from, to] : llvm::zip(results, rebuilt->getResults()))
      from.replaceAllUsesWith(to);
  }
  barrier->erase();
  return rebuilt;
}
