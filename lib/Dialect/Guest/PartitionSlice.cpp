//===- PartitionSlice.cpp - Slices at offsets of devices ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/PartitionSlice.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Dialect/Guest/While.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

const PartitionTables::Table &PartitionTables::evaluate(Value value) {
  auto it = known.find(value);
  if (it != known.end())
    return it->second;
  // A value that depends on itself has no table.
  known[value] = std::nullopt;
  Table table = compute(value);
  return known[value] = std::move(table);
}

static std::optional<int64_t> apply(StringRef name, int64_t a, int64_t b) {
  int64_t result;
  if (name == "stablehlo.add")
    return llvm::AddOverflow(a, b, result) ? std::nullopt
                                           : std::optional(result);
  if (name == "stablehlo.subtract")
    return llvm::SubOverflow(a, b, result) ? std::nullopt
                                           : std::optional(result);
  if (name == "stablehlo.multiply")
    return llvm::MulOverflow(a, b, result) ? std::nullopt
                                           : std::optional(result);
  // Only if the rounding of quotients does not matter.
  if (a < 0 || b <= 0)
    return std::nullopt;
  if (name == "stablehlo.divide")
    return a / b;
  if (name == "stablehlo.remainder")
    return a % b;
  return std::nullopt;
}

/// A comparison of numbers that are the same signed and unsigned.
static std::optional<bool> compareIndices(Operation *op, int64_t a, int64_t b) {
  Attribute attribute = op->getAttr("comparison_direction");
  if (!attribute || a < 0 || b < 0)
    return std::nullopt;
  std::string text = toText(attribute);
  return llvm::StringSwitch<std::optional<bool>>(
             StringRef(text).rtrim('>').rsplit(' ').second)
      .Case("EQ", a == b)
      .Case("NE", a != b)
      .Case("LT", a < b)
      .Case("LE", a <= b)
      .Case("GT", a > b)
      .Case("GE", a >= b)
      .Default(std::nullopt);
}

/// An integer for each device, if it is known.
using Table = std::optional<std::vector<int64_t>>;

/// Returns the entries of a constant table, of rank 1, at `indices`.
static Table lookUp(Value entries, ArrayRef<int64_t> indices) {
  Operation *constant = entries.getDefiningOp();
  auto data = constant && isNamed(constant, "stablehlo.constant")
                  ? constant->getAttrOfType<DenseIntElementsAttr>("value")
                  : DenseIntElementsAttr();
  if (!data || data.getNumElements() == 0)
    return std::nullopt;
  SmallVector<int64_t> numbers =
      llvm::map_to_vector(data.getValues<APInt>(), [](const APInt &entry) {
        return entry.getSExtValue();
      });
  int64_t last = numbers.size() - 1;
  std::vector<int64_t> table;
  for (int64_t index : indices)
    table.push_back(numbers[std::clamp<int64_t>(index, 0, last)]);
  return table;
}

static std::vector<int64_t> select(ArrayRef<int64_t> conditions,
                                   ArrayRef<int64_t> onTrue,
                                   ArrayRef<int64_t> onFalse) {
  std::vector<int64_t> table;
  for (auto [condition, a, b] : llvm::zip_equal(conditions, onTrue, onFalse))
    table.push_back(condition != 0 ? a : b);
  return table;
}

/// Returns the results of `op`, a comparison or arithmetic on integers.
static Table combine(Operation *op, ArrayRef<int64_t> lhs,
                     ArrayRef<int64_t> rhs) {
  StringRef name = op->getName().getStringRef();
  unsigned width =
      getElementTypeOrSelf(op->getResult(0).getType()).getIntOrFloatBitWidth();
  std::vector<int64_t> table;
  for (auto [a, b] : llvm::zip_equal(lhs, rhs)) {
    std::optional<int64_t> result;
    if (name == "stablehlo.compare")
      result = compareIndices(op, a, b);
    else if (result = apply(name, a, b);
             result && !llvm::isIntN(width, *result))
      result = std::nullopt;
    if (!result)
      return std::nullopt;
    table.push_back(*result);
  }
  return table;
}

PartitionTables::Table PartitionTables::compute(Value value) {
  if (!hasOneElement(value.getType()) ||
      !getElementTypeOrSelf(value).isInteger())
    return std::nullopt;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *loop = argument.getOwner()->getParentOp();
    unsigned index = argument.getArgNumber();
    return loop && isWhile(loop) && isLoopInvariant(loop, index)
               ? evaluate(loop->getOperand(index))
               : std::nullopt;
  }
  Operation *op = value.getDefiningOp();
  StringRef name = op->getName().getStringRef();
  if (name == "stablehlo.partition_id") {
    std::vector<int64_t> table(numPartitions);
    std::iota(table.begin(), table.end(), 0);
    return table;
  }
  if (name == "stablehlo.constant") {
    auto data = op->getAttrOfType<DenseIntElementsAttr>("value");
    if (!data || data.getNumElements() != 1)
      return std::nullopt;
    return std::vector<int64_t>(numPartitions,
                                (*data.value_begin<APInt>()).getSExtValue());
  }
  if (name == "stablehlo.reshape" || name == "stablehlo.convert")
    return evaluate(op->getOperand(0));
  if (name == "stablehlo.dynamic_slice" && op->getNumOperands() == 2) {
    Table index = evaluate(op->getOperand(1));
    return index ? lookUp(op->getOperand(0), *index) : std::nullopt;
  }
  bool isSelect = name == "stablehlo.select" && op->getNumOperands() == 3;
  if (!isSelect && op->getNumOperands() != 2)
    return std::nullopt;
  SmallVector<std::vector<int64_t>, 3> operands;
  for (Value operand : op->getOperands()) {
    const Table &table = evaluate(operand);
    if (!table)
      return std::nullopt;
    operands.push_back(*table);
  }
  return isSelect ? select(operands[0], operands[1], operands[2])
                  : combine(op, operands[0], operands[1]);
}

bool PartitionSlice::isInOrderOf(const ReplicaGroups &groups) const {
  auto getSize = [&](Value value) {
    return getTensorType(value).getDimSize(dim);
  };
  int64_t whole = getSize(op->getOperand(0)), size = getSize(op->getResult(0));
  return llvm::all_of(groups, [&](const std::vector<int64_t> &group) {
    return whole == size * static_cast<int64_t>(group.size()) &&
           llvm::all_of(llvm::enumerate(group), [&](auto device) {
             return offsets[device.value()] ==
                    static_cast<int64_t>(device.index()) * size;
           });
  });
}

std::optional<PartitionSlice> PartitionTables::getSlice(Operation *op,
                                                        std::string &error) {
  if (!isNamed(op, "stablehlo.dynamic_slice") || !isConsistentMovement(op))
    return std::nullopt;
  RankedTensorType whole = getTensorType(op->getOperand(0));
  RankedTensorType part = getTensorType(op->getResult(0));
  PartitionSlice slice{op, -1, {}};
  for (int64_t dim = 0; dim < whole.getRank(); ++dim) {
    if (whole.getDimSize(dim) == part.getDimSize(dim))
      continue; // At 0, to which any offset is clamped.
    if (slice.dim >= 0) {
      error = "a slice of it is one of several dims";
      return std::nullopt;
    }
    slice.dim = dim;
  }
  if (slice.dim < 0)
    return std::nullopt;
  const Table &table = evaluate(op->getOperand(1 + slice.dim));
  if (!table) {
    error = "the offset of a slice of it depends on more than the device";
    return std::nullopt;
  }
  slice.offsets = *table;
  // The op clamps offsets.
  int64_t last = whole.getDimSize(slice.dim) - part.getDimSize(slice.dim);
  for (int64_t &offset : slice.offsets)
    offset = std::clamp<int64_t>(offset, 0, last);
  return slice;
}

static Value buildDynamicSlice(RewriterBase &builder, Location loc, Value value,
                               ArrayRef<Value> starts,
                               ArrayRef<int64_t> sizes) {
  SmallVector<Value> operands{value};
  llvm::append_range(operands, starts);
  return createOp(
      builder, loc, guest::kDynamicSlice, operands,
      getTensorType(value).clone(sizes),
      builder.getNamedAttr("slice_sizes", builder.getDenseI64ArrayAttr(sizes)));
}

Value zpp::buildPartitionOffset(RewriterBase &builder, Location loc,
                                ArrayRef<int64_t> offsets) {
  Type id = builder.getIntegerType(32, /*isSigned=*/false);
  Value device = createOp(builder, loc, guest::kPartitionId, {},
                          RankedTensorType::get({}, id));
  Value table = createConstant(builder, loc, builder.getI64TensorAttr(offsets));
  return StablehloBuilder(builder, loc)
      .reshape(buildDynamicSlice(builder, loc, table, device, 1), {});
}

Value zpp::buildSliceAt(RewriterBase &builder, Location loc, Value value,
                        int64_t dim, Value offset, int64_t size) {
  RankedTensorType type = getTensorType(value);
  Value zero = createConstant(
      builder, loc, cast<TypedAttr>(builder.getZeroAttr(offset.getType())));
  SmallVector<Value> starts(type.getRank(), zero);
  starts[dim] = offset;
  SmallVector<int64_t> sizes(type.getShape());
  sizes[dim] = size;
  return buildDynamicSlice(builder, loc, value, starts, sizes);
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

Value zpp::buildOnPart(OpBuilder &builder, Operation *op, Value operand,
                       int64_t dim, int64_t size) {
  Operation *part = builder.clone(*op);
  part->setOperand(0, operand);
  Value result = part->getResult(0);
  result.setType(resizeDim(result.getType(), dim, size));
  return result;
}

RankedTensorType zpp::resizeDim(Type type, int64_t dim, int64_t size) {
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[dim] = size;
  return tensor.clone(shape);
}

bool zpp::isSplatAlong(Value value, int64_t dim) {
  Operation *op = value.getDefiningOp();
  auto dims = op && isNamed(op, guest::kBroadcastInDim)
                  ? op->getAttrOfType<DenseI64ArrayAttr>("broadcast_dimensions")
                  : DenseI64ArrayAttr();
  return getSplat(value) ||
         (dims && !llvm::is_contained(dims.asArrayRef(), dim));
}

void zpp::resizeSplat(OpOperand &operand, int64_t dim, int64_t size) {
  OpBuilder builder(operand.getOwner());
  Operation *splat = builder.clone(*operand.get().getDefiningOp());
  RankedTensorType type = resizeDim(operand.get().getType(), dim, size);
  if (auto value = dyn_cast_or_null<DenseElementsAttr>(splat->getAttr("value")))
    splat->setAttr("value", value.resizeSplat(type));
  splat->getResult(0).setType(type);
  operand.set(splat->getResult(0));
}

//===----------------------------------------------------------------------===//
// Leftovers
//===----------------------------------------------------------------------===//

int64_t zpp::eraseXlaCopies(Operation *module) {
  int64_t count = 0;
  module->walk([&](Operation *op) {
    if (isNamed(op, "mhlo.copy") && op->getNumOperands() == 1 &&
        op->getOperandTypes() == op->getResultTypes()) {
      op->replaceAllUsesWith(op->getOperands());
      op->erase();
      ++count;
      return;
    }
    // They describe the layout that XLA's partitioner assumed. If they were
    // kept, they would bind whoever compiles the step.
    if (op->getRawDictionaryAttrs().empty())
      return;
    for (StringRef name : {"xla_shape", "result_layout", "operand_layout"})
      op->removeDiscardableAttr(name);
  });
  return count;
}

/// True for the sum of one tensor over dims of size 1 alone.
static bool isUnitSum(Operation *op) {
  if (!isNamed(op, guest::kReduce) || op->getNumOperands() != 2 ||
      op->getNumResults() != 1 || op->getNumRegions() != 1 || !isSum(op) ||
      !isZeros(op->getOperand(1)))
    return false;
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  auto dims = op->getAttrOfType<DenseI64ArrayAttr>("dimensions");
  if (!from || !to || !from.hasStaticShape() || !to.hasStaticShape() || !dims ||
      from.getElementType() != to.getElementType() ||
      from.getRank() != to.getRank() + dims.size())
    return false;
  SmallVector<int64_t> kept;
  for (int64_t dim : llvm::seq(from.getRank()))
    if (!llvm::is_contained(dims.asArrayRef(), dim))
      kept.push_back(from.getDimSize(dim));
    else if (from.getDimSize(dim) != 1)
      return false;
  return ArrayRef(kept) == to.getShape();
}

void zpp::reshapeUnitSums(Operation *module) {
  module->walk([](Operation *op) {
    if (!isUnitSum(op))
      return;
    OpBuilder builder(op);
    op->replaceAllUsesWith(
        ValueRange(createOp(builder, op->getLoc(), guest::kReshape,
                            op->getOperand(0), op->getResult(0).getType())));
    op->erase();
  });
}

bool zpp::isConcatenation(Operation *op) {
  return isNamed(op, "stablehlo.concatenate") && op->getNumResults() == 1 &&
         op->getAttrOfType<IntegerAttr>("dimension");
}

Value zpp::getSlicedOperand(Operation *op) {
  if (!isNamed(op, "stablehlo.slice") || !isConsistentMovement(op))
    return {};
  Operation *concatenation = op->getOperand(0).getDefiningOp();
  auto starts = op->getAttrOfType<DenseI64ArrayAttr>("start_indices");
  auto strides = op->getAttrOfType<DenseI64ArrayAttr>("strides");
  if (!concatenation || !isConcatenation(concatenation) || !starts ||
      !strides ||
      llvm::any_of(strides.asArrayRef(), [](int64_t s) { return s != 1; }))
    return {};
  int64_t dim = concatenation->getAttrOfType<IntegerAttr>("dimension").getInt();
  int64_t offset = 0;
  for (Value operand : concatenation->getOperands()) {
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    if (!type || !type.hasStaticShape() || dim < 0 || dim >= type.getRank() ||
        dim >= starts.size())
      return {};
    // In the other dims a slice of this type is the whole result.
    if (starts[dim] == offset)
      return op->getResult(0).getType() == type ? operand : Value();
    offset += type.getDimSize(dim);
  }
  return {};
}
