//===- SymbolicInterpreter.cpp - Programs on symbolic elements ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SymbolicInterpreter.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Partitioned tensors
//===----------------------------------------------------------------------===//

namespace {
/// The places of the rows of a partitioned tensor. An encoded tensor is kept as
/// if it were not encoded.
class Placement {
public:
  explicit Placement(ShardType type)
      : mesh(type.getMesh().getMesh()), factors(type.getFactors()),
        sizes(type.getFactorSizes()), unit(type.getUnit()),
        extent(type.getGlobal().getDimSize(type.getDim())),
        isWhole(type.isWhole()) {
    ArrayRef<int64_t> shape = type.getGlobal().getShape();
    outer = llvm::product_of(shape.take_front(type.getDim()));
    inner = llvm::product_of(shape.drop_front(type.getDim() + 1));
    rows = type.getDecodedLocalType().getDimSize(type.getDim());
  }

  /// Returns the (padded) global row that local row `row` of `rank` is.
  int64_t getGlobalRow(int64_t rank, int64_t row) const {
    if (isWhole)
      return row;
    int64_t held = row / unit;
    int64_t slice = 0, stride = 1;
    for (size_t index = factors.size(); index-- > 0;) {
      if (factors[index].isWhole()) {
        slice += held % sizes[index] * stride;
        held /= sizes[index];
      } else {
        slice += mesh.getCoordinate(rank, getRef(index)) * stride;
      }
      stride *= sizes[index];
    }
    return slice * unit + row % unit;
  }

  /// Returns the rank that has global row `row`, among those that differ from
  /// `rank` along partitioned factors only.
  int64_t getOwner(int64_t rank, int64_t row) const {
    int64_t slice = row / unit;
    for (size_t index = factors.size(); index-- > 0;) {
      if (!factors[index].isWhole()) {
        AxisRef ref = getRef(index);
        rank += (slice % sizes[index] - mesh.getCoordinate(rank, ref)) *
                mesh.getStride(ref);
      }
      slice /= sizes[index];
    }
    return rank;
  }

  /// Returns the local row, on its owner, of global row `row`; -1 where it is
  /// padding that nobody holds.
  int64_t getLocalRow(int64_t row) const {
    if (isWhole)
      return row < extent ? row : -1;
    int64_t slice = row / unit;
    int64_t held = 0, stride = 1;
    for (size_t index = factors.size(); index-- > 0;) {
      if (factors[index].isWhole()) {
        held += slice % sizes[index] * stride;
        stride *= sizes[index];
      }
      slice /= sizes[index];
    }
    return held * unit + row % unit;
  }

  /// The wire chunks of a local tensor, one per unit held, and back.
  SymbolicTensor toChunks(const SymbolicTensor &tensor) const {
    SymbolicTensor chunks;
    forEachInChunks([&](int64_t index) {
      chunks.push_back(index == -1 ? SymbolicValue() : tensor[index]);
    });
    return chunks;
  }
  SymbolicTensor fromChunks(const SymbolicTensor &chunks) const {
    SymbolicTensor tensor(outer * rows * inner);
    int64_t position = 0;
    forEachInChunks([&](int64_t index) {
      if (index != -1)
        tensor[index] = chunks[position];
      ++position;
    });
    return tensor;
  }

  int64_t outer, rows, inner;

private:
  /// Visits the local index of every element of every chunk; -1 for padding.
  template <typename Visitor> void forEachInChunks(Visitor visit) const {
    int64_t held = 1;
    for (size_t index = 0; index < factors.size(); ++index)
      if (factors[index].isWhole())
        held *= sizes[index];
    for (int64_t chunk = 0; chunk < held; ++chunk)
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t row = chunk * unit; row < (chunk + 1) * unit; ++row)
          for (int64_t i = 0; i < inner; ++i)
            visit(row < rows ? (o * rows + row) * inner + i : -1);
  }

  AxisRef getRef(size_t index) const {
    return *factors[index].getAxis().resolve(mesh);
  }

  Mesh mesh;
  SmallVector<FactorAttr> factors;
  SmallVector<int64_t> sizes;
  int64_t unit, extent;
  bool isWhole;
};
} // namespace

/// Fills the local tensors of `type` by (rank, global row) -> (rank, row) of
/// `operand`, of type `from`, that are summed there.
template <typename GetRanks>
static PerRank moveRows(const PerRank &operand, ShardType from, ShardType to,
                        GetRanks getRanks) {
  Placement source(from), target(to);
  PerRank result(operand.size());
  for (size_t rank = 0; rank < operand.size(); ++rank) {
    result[rank].resize(target.outer * target.rows * target.inner);
    for (int64_t row = 0; row < target.rows; ++row) {
      int64_t globalRow = target.getGlobalRow(rank, row);
      int64_t sourceRow = source.getLocalRow(globalRow);
      if (sourceRow == -1)
        continue;
      for (int64_t peer : getRanks(source, rank, globalRow))
        for (int64_t o = 0; o < target.outer; ++o)
          for (int64_t i = 0; i < target.inner; ++i)
            result[rank][(o * target.rows + row) * target.inner + i] +=
                operand[peer][(o * source.rows + sourceRow) * source.inner + i];
    }
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Returns the shape of a local tensor; bytes of a wire chunk count as its
/// elements.
static SmallVector<int64_t> getShape(Type type, const SymbolicTensor &value) {
  SmallVector<int64_t> shape(cast<ShapedType>(type).getShape());
  if (cast<ShapedType>(type).getElementType().isInteger(8)) {
    int64_t chunks = llvm::product_of(ArrayRef(shape).drop_back());
    shape.back() = chunks == 0 ? 0 : value.size() / chunks;
  }
  return shape;
}

namespace {
class Interpreter {
public:
  Interpreter(const Mesh &mesh, std::string &error)
      : mesh(mesh), error(error) {}

  std::vector<PerRank> run(func::FuncOp function, ArrayRef<PerRank> given) {
    for (auto [index, argument] : llvm::enumerate(function.getArguments())) {
      if (index < given.size()) {
        values[argument] = given[index];
        continue;
      }
      int64_t elements = cast<ShapedType>(argument.getType()).getNumElements();
      PerRank value(mesh.numDevices());
      for (size_t rank = 0; rank < value.size(); ++rank)
        for (int64_t element = 0; element < elements; ++element)
          value[rank].push_back(SymbolicValue::ofSource(
              rank, index * kElementsPerArgument + element));
      values[argument] = std::move(value);
    }
    Block &body = function.getBody().front();
    run(body);
    std::vector<PerRank> results;
    if (error.empty())
      for (Value operand : body.getTerminator()->getOperands())
        results.push_back(values[operand]);
    return results;
  }

private:
  /// Runs what is before the terminator.
  void run(Block &block) {
    for (Operation &op : llvm::drop_end(block)) {
      StringRef name = op.getName().getStringRef();
      if (name == "stablehlo.optimization_barrier") {
        for (auto [operand, result] :
             llvm::zip_equal(op.getOperands(), op.getResults()))
          copy(operand, result);
        continue;
      }
      if (auto wait = dyn_cast<WaitOp>(op)) {
        for (auto [operand, result] :
             llvm::zip(wait->getOperands(), wait->getResults()))
          copy(operand, result);
        continue;
      }
      if (auto start = dyn_cast<StartOp>(op)) {
        call(start);
        if (!error.empty())
          return;
        continue;
      }
      if (evaluatePlace(op))
        continue;
      if (name.starts_with("stablehlo.")) {
        name == "stablehlo.while"             ? runLoop(op)
        : isNumber(op.getResult(0).getType()) ? count(op)
                                              : evaluateGuest(op);
        if (!error.empty())
          return;
        continue;
      }
      values[op.getResult(0)] =
          llvm::TypeSwitch<Operation *, PerRank>(&op)
              .Case<FromLocalOp, ToLocalOp, EncodeOp, DecodeOp, AllGatherOp,
                    ReduceScatterOp, AllReduceOp, PackSlicesOp, UnpackSlicesOp,
                    QuantizeOp, DequantizeOp, QuantizeDifferenceOp,
                    DequantizeAddOp, ReduceOp, DequantizeReduceOp,
                    DequantizeReduceQuantizeOp, AllToAllOp, AllGatherChunksOp,
                    tensor::EmptyOp, tensor::ConcatOp, tensor::ExtractSliceOp>(
                  [&](auto known) { return evaluate(known); })
              .Default([&](Operation *unknown) {
                return fail(*unknown), PerRank();
              });
      if (!error.empty())
        return;
    }
  }

  /// Nothing is gained by starting early here: results are there at once.
  void call(StartOp start) {
    auto function =
        cast<func::FuncOp>(getStartedFunction(start).getOperation());
    Block &body = function.getBody().front();
    for (auto [operand, argument] :
         llvm::zip_equal(start.getInputs(), body.getArguments()))
      copy(operand, argument);
    run(body);
    if (!error.empty())
      return;
    for (auto [operand, result] :
         llvm::zip_equal(body.back().getOperands(), start.getOutputs()))
      copy(operand, result);
  }

  void fail(Operation &op) {
    error = "unknown op " + op.getName().getStringRef().str();
  }

  //===--------------------------------------------------------------------===//
  // StableHLO
  //===--------------------------------------------------------------------===//

  /// A scalar that is known: the number of an iteration, an index, a condition.
  static bool isNumber(Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.getRank() == 0 &&
           tensor.getElementType().isInteger();
  }

  void count(Operation &op) {
    StringRef name = op.getName().getStringRef();
    int64_t &result = numbers[op.getResult(0)];
    auto number = [&](unsigned index) {
      return numbers.lookup(op.getOperand(index));
    };
    if (name == "stablehlo.constant")
      result = op.getAttrOfType<DenseIntElementsAttr>("value")
                   .getSplatValue<APInt>()
                   .getSExtValue();
    else if (name == "stablehlo.add")
      result = number(0) + number(1);
    else if (name == "stablehlo.subtract")
      result = number(0) - number(1);
    else if (name == "stablehlo.compare")
      result = number(0) < number(1);
    else
      fail(op);
  }

  void runLoop(Operation &op) {
    WhileView loop(&op);
    Block &condition = loop.getCondition(), &body = loop.getBody();
    auto pass = [&](ValueRange from, ValueRange to) {
      SmallVector<PerRank> tensors;
      SmallVector<int64_t> counts;
      for (Value value : from) {
        tensors.push_back(values.lookup(value));
        counts.push_back(numbers.lookup(value));
      }
      for (auto [value, tensor, number] : llvm::zip_equal(to, tensors, counts))
        if (isNumber(value.getType()))
          numbers[value] = number;
        else
          values[value] = tensor;
    };
    pass(op.getOperands(), condition.getArguments());
    while (true) {
      run(condition);
      if (!error.empty() || !numbers.lookup(condition.back().getOperand(0)))
        break;
      pass(condition.getArguments(), body.getArguments());
      run(body);
      if (!error.empty())
        return;
      pass(body.back().getOperands(), condition.getArguments());
    }
    pass(condition.getArguments(), op.getResults());
  }

  void evaluateGuest(Operation &op) {
    StringRef name = op.getName().getStringRef();
    Value result = op.getResult(0);
    int64_t elements = cast<ShapedType>(result.getType()).getNumElements();
    // Elements are in row-major order, numbers are exact, and all are finite.
    if (llvm::is_contained({"stablehlo.reshape", "stablehlo.convert",
                            "stablehlo.reduce_precision", "stablehlo.abs",
                            "stablehlo.compare"},
                           name))
      return copy(op.getOperand(0), result);
    if (name == "stablehlo.select")
      return copy(op.getOperand(!isNumber(op.getOperand(0).getType()) ||
                                        numbers.lookup(op.getOperand(0))
                                    ? 1
                                    : 2),
                  result);
    // Zeros, what the elements are compared with, and what nothing reads.
    if (llvm::is_contained({"stablehlo.constant", "stablehlo.broadcast_in_dim",
                            "stablehlo.dot_general"},
                           name)) {
      values[result] = PerRank(mesh.numDevices(), SymbolicTensor(elements));
      return;
    }
    if (name == "stablehlo.add" || name == "stablehlo.subtract") {
      PerRank sum = values[op.getOperand(0)];
      forEachWith(sum, op.getOperand(1),
                  [&](SymbolicValue &left, const SymbolicValue &right) {
                    name == "stablehlo.add" ? left += right : left -= right;
                  });
      values[result] = std::move(sum);
      return;
    }
    // One layer of a stack.
    if (name == "stablehlo.dynamic_slice") {
      int64_t begin = numbers.lookup(op.getOperand(1)) * elements;
      values[result] = map(op.getOperand(0), [&](const SymbolicTensor &tensor) {
        return SymbolicTensor(tensor.begin() + begin,
                              tensor.begin() + begin + elements);
      });
      return;
    }
    if (name == "stablehlo.dynamic_update_slice") {
      PerRank stack = values[op.getOperand(0)];
      for (auto [tensor, layer] :
           llvm::zip_equal(stack, values[op.getOperand(1)]))
        llvm::copy(layer, tensor.begin() +
                              numbers.lookup(op.getOperand(2)) * layer.size());
      values[result] = std::move(stack);
      return;
    }
    fail(op);
  }

  /// The elements of `tensor`, of the type of operand 0 of `op`, that `op`, a
  /// dynamic slice, cuts out on `rank`.
  template <typename Element>
  std::vector<Element> cut(Operation &op, const std::vector<Element> &tensor,
                           size_t rank) {
    ArrayRef<int64_t> from =
        cast<ShapedType>(op.getOperand(0).getType()).getShape();
    ArrayRef<int64_t> to =
        cast<ShapedType>(op.getResult(0).getType()).getShape();
    std::vector<Element> result;
    for (int64_t i = 0; i < llvm::product_of(to); ++i) {
      int64_t rest = i, index = 0, stride = 1;
      for (size_t dim = to.size(); dim-- > 0;) {
        Value at = op.getOperand(1 + dim);
        int64_t begin =
            places.contains(at) ? places[at][rank].front() : numbers.lookup(at);
        index += (begin + rest % to[dim]) * stride;
        rest /= to[dim];
        stride *= from[dim];
      }
      result.push_back(tensor[index]);
    }
    return result;
  }

  /// Evaluates `op` if it makes integers that depend on the rank, slices at
  /// such offsets, or is a gather of StableHLO.
  bool evaluatePlace(Operation &op) {
    StringRef name = op.getName().getStringRef();
    bool hasPlace = llvm::any_of(
        op.getOperands(), [&](Value value) { return places.contains(value); });
    if (name == "stablehlo.partition_id") {
      for (int64_t rank = 0; rank < mesh.numDevices(); ++rank)
        places[op.getResult(0)].push_back({rank});
      return true;
    }
    if (name == "stablehlo.constant") {
      auto data = op.getAttrOfType<DenseIntElementsAttr>("value");
      if (!data || isNumber(op.getResult(0).getType()))
        return false;
      std::vector<int64_t> table;
      for (const APInt &number : data.getValues<APInt>())
        table.push_back(number.getSExtValue());
      places[op.getResult(0)].assign(mesh.numDevices(), table);
      return true;
    }
    if (name == "stablehlo.all_gather")
      return gather(op), true;
    if (!hasPlace)
      return false;
    if (name == "stablehlo.reshape") {
      std::vector<std::vector<int64_t>> same = places[op.getOperand(0)];
      places[op.getResult(0)] = std::move(same);
      return true;
    }
    if (name != "stablehlo.dynamic_slice")
      return false;
    PerRank parts;
    std::vector<std::vector<int64_t>> entries;
    for (int64_t rank = 0; rank < mesh.numDevices(); ++rank)
      if (places.contains(op.getOperand(0)))
        entries.push_back(cut(op, places[op.getOperand(0)][rank], rank));
      else
        parts.push_back(cut(op, values[op.getOperand(0)][rank], rank));
    if (parts.empty())
      places[op.getResult(0)] = std::move(entries);
    else
      values[op.getResult(0)] = std::move(parts);
    return true;
  }

  void gather(Operation &op) {
    auto groups = op.getAttrOfType<DenseIntElementsAttr>("replica_groups");
    int64_t dim = op.getAttrOfType<IntegerAttr>("all_gather_dim").getInt();
    size_t size = groups.getType().getDimSize(1);
    int64_t outer = llvm::product_of(
        cast<ShapedType>(op.getResult(0).getType()).getShape().take_front(dim));
    auto ids = llvm::to_vector(groups.getValues<APInt>());
    const PerRank &parts = values[op.getOperand(0)];
    PerRank result(mesh.numDevices());
    for (size_t begin = 0; begin < ids.size(); begin += size) {
      auto group = ArrayRef(ids).slice(begin, size);
      SymbolicTensor whole;
      for (int64_t o = 0; o < outer; ++o)
        for (const APInt &id : group) {
          const SymbolicTensor &part = parts[id.getSExtValue()];
          size_t rows = part.size() / outer;
          whole.insert(whole.end(), part.begin() + o * rows,
                       part.begin() + (o + 1) * rows);
        }
      for (const APInt &id : group)
        result[id.getSExtValue()] = whole;
    }
    values[op.getResult(0)] = std::move(result);
  }

  void copy(Value from, Value to) {
    if (auto it = numbers.find(from); it != numbers.end())
      numbers[to] = it->second;
    // Not a reference: a new key may move all values.
    PerRank value = values[from];
    values[to] = std::move(value);
  }

  //===--------------------------------------------------------------------===//
  // Logical ops
  //===--------------------------------------------------------------------===//

  PerRank evaluate(FromLocalOp op) {
    if (!op.getType().getQuant())
      return values[op.getLocal()];
    Placement placement(op.getType());
    return map(op.getLocal(), [&](const SymbolicTensor &chunks) {
      return placement.fromChunks(chunks);
    });
  }
  PerRank evaluate(ToLocalOp op) {
    if (!op.getShard().getType().getQuant())
      return values[op.getShard()];
    Placement placement(op.getShard().getType());
    return map(op.getShard(), [&](const SymbolicTensor &tensor) {
      return placement.toChunks(tensor);
    });
  }
  PerRank evaluate(EncodeOp op) {
    PerRank result = values[op.getOperand()];
    if (op.getHeld())
      forEachWith(result, op.getHeld(),
                  [](SymbolicValue &a, const SymbolicValue &b) { a -= b; });
    return result;
  }
  PerRank evaluate(DecodeOp op) {
    PerRank result = values[op.getOperand()];
    if (op.getHeld())
      forEachWith(result, op.getHeld(),
                  [](SymbolicValue &a, const SymbolicValue &b) { a += b; });
    return result;
  }

  PerRank evaluate(AllGatherOp op) {
    return moveRows(values[op.getOperand()], op.getOperand().getType(),
                    op.getType(),
                    [](const Placement &source, int64_t rank, int64_t row) {
                      return std::vector<int64_t>{source.getOwner(rank, row)};
                    });
  }

  PerRank evaluate(ReduceScatterOp op) {
    std::vector<std::vector<int64_t>> groups(mesh.numDevices());
    for (const std::vector<int64_t> &group : mesh.getGroups(op.getAxisRefs()))
      for (int64_t rank : group)
        groups[rank] = group;
    return moveRows(
        values[op.getOperand()], op.getOperand().getType(), op.getType(),
        [&](const Placement &, int64_t rank, int64_t) { return groups[rank]; });
  }

  PerRank evaluate(AllReduceOp op) {
    const PerRank &operands = values[op.getOperand()];
    PerRank results(operands.size());
    for (const std::vector<int64_t> &group : mesh.getGroups(op.getAxisRefs())) {
      SymbolicTensor stacked;
      for (int64_t rank : group)
        stacked.insert(stacked.end(), operands[rank].begin(),
                       operands[rank].end());
      SymbolicTensor sum = reduceChunks(stacked, group.size());
      for (int64_t rank : group)
        results[rank] = sum;
    }
    return results;
  }

  //===--------------------------------------------------------------------===//
  // Decomposed ops
  //===--------------------------------------------------------------------===//

  template <typename Function> PerRank map(Value value, Function function) {
    PerRank result = values[value];
    for (SymbolicTensor &tensor : result)
      tensor = function(tensor);
    return result;
  }

  /// Calls `function(a, b)` for the elements a of `result` and b of `other`.
  template <typename Function>
  void forEachWith(PerRank &result, Value other, Function function) {
    for (auto [tensor, others] : llvm::zip_equal(result, values[other]))
      for (auto [a, b] : llvm::zip_equal(tensor, others))
        function(a, b);
  }

  PerRank pack(Value value, SlicesAttr slices) {
    return map(value, [&](const SymbolicTensor &tensor) {
      return packChunks(tensor,
                        slices.getMap(getShape(value.getType(), tensor)));
    });
  }

  PerRank unpack(Value value, SlicesAttr slices, ShapedType type) {
    return map(value, [&](const SymbolicTensor &chunks) {
      SmallVector<int64_t> shape(type.getShape());
      // A wire chunk has as many elements as the input.
      if (type.getElementType().isInteger(8)) {
        int64_t rows =
            cast<ShapedType>(value.getType()).getNumElements() / shape.back();
        shape.back() = chunks.size() / rows;
      }
      SymbolicTensor tensor(llvm::product_of(shape));
      unpackChunks(chunks, slices.getMap(shape), tensor);
      return tensor;
    });
  }

  PerRank evaluate(PackSlicesOp op) {
    return pack(op.getInput(), op.getSlices());
  }
  PerRank evaluate(UnpackSlicesOp op) {
    return unpack(op.getInput(), op.getSlices(), op.getInitType());
  }
  PerRank evaluate(QuantizeOp op) {
    return op.getSlicesAttr() ? pack(op.getInput(), op.getSlicesAttr())
                              : values[op.getInput()];
  }
  PerRank evaluate(DequantizeOp op) {
    return op.getSlicesAttr()
               ? unpack(op.getInput(), op.getSlicesAttr(), op.getInitType())
               : values[op.getInput()];
  }

  PerRank evaluate(QuantizeDifferenceOp op) {
    PerRank result = values[op.getInput()];
    forEachWith(result, op.getHeld(),
                [](SymbolicValue &a, const SymbolicValue &b) { a -= b; });
    if (SlicesAttr slices = op.getSlicesAttr())
      for (SymbolicTensor &tensor : result)
        tensor =
            packChunks(tensor, slices.getMap(op.getInputType().getShape()));
    return result;
  }
  PerRank evaluate(DequantizeAddOp op) {
    PerRank result =
        op.getSlicesAttr()
            ? unpack(op.getInput(), op.getSlicesAttr(), op.getInitType())
            : values[op.getInput()];
    forEachWith(result, op.getHeld(),
                [](SymbolicValue &a, const SymbolicValue &b) { a += b; });
    return result;
  }

  PerRank sum(Value value) {
    int64_t sources = cast<ShapedType>(value.getType()).getDimSize(0);
    return map(value, [&](const SymbolicTensor &tensor) {
      return reduceChunks(tensor, sources);
    });
  }
  PerRank evaluate(ReduceOp op) { return sum(op.getInput()); }
  PerRank evaluate(DequantizeReduceOp op) { return sum(op.getInput()); }
  PerRank evaluate(DequantizeReduceQuantizeOp op) {
    PerRank result = sum(op.getInput());
    auto partial = cast<ShapedType>(op.getPartial());
    for (SymbolicTensor &tensor : result)
      tensor = packChunks(tensor, op.getSlices().getMap(partial.getShape()));
    return result;
  }

  PerRank evaluate(AllToAllOp op) {
    PerRank operand = op.getSlicesAttr()
                          ? pack(op.getInput(), op.getSlicesAttr())
                          : values[op.getInput()];
    return symbolicAllToAll(mesh, op.getAxisRefs(), operand);
  }
  PerRank evaluate(AllGatherChunksOp op) {
    return symbolicAllGather(mesh, op.getAxisRefs(), values[op.getInput()]);
  }

  //===--------------------------------------------------------------------===//
  // Tensors
  //===--------------------------------------------------------------------===//

  /// A destination is overwritten: what it holds is marked as no rank's.
  PerRank evaluate(tensor::EmptyOp op) {
    SymbolicTensor nothing(op.getType().getNumElements(),
                           SymbolicValue::ofSource(-1, 0));
    return PerRank(mesh.numDevices(), nothing);
  }

  /// A part of a flat tensor.
  PerRank evaluate(tensor::ExtractSliceOp op) {
    if (op.getSourceType().getRank() != 1 || op.getStaticStride(0) != 1) {
      error = "expected a slice of a flat tensor";
      return {};
    }
    int64_t begin = op.getStaticOffset(0), size = op.getStaticSize(0);
    return map(op.getSource(), [&](const SymbolicTensor &tensor) {
      return SymbolicTensor(tensor.begin() + begin,
                            tensor.begin() + begin + size);
    });
  }

  PerRank evaluate(tensor::ConcatOp op) {
    PerRank result(mesh.numDevices());
    int64_t dim = op.getDim();
    int64_t outer =
        llvm::product_of(op.getResultType().getShape().take_front(dim));
    for (int64_t rank = 0; rank < mesh.numDevices(); ++rank)
      for (int64_t o = 0; o < outer; ++o)
        for (Value input : op.getInputs()) {
          const SymbolicTensor &tensor = values[input][rank];
          size_t part = tensor.size() / outer;
          result[rank].insert(result[rank].end(), tensor.begin() + o * part,
                              tensor.begin() + (o + 1) * part);
        }
    return result;
  }

  const Mesh &mesh;
  std::string &error;
  llvm::DenseMap<Value, PerRank> values;
  llvm::DenseMap<Value, int64_t> numbers;
  /// Integers, on each rank.
  llvm::DenseMap<Value, std::vector<std::vector<int64_t>>> places;
};
} // namespace

std::vector<PerRank> zpp::interpret(func::FuncOp function, const Mesh &mesh,
                                    std::string &error,
                                    ArrayRef<PerRank> arguments) {
  return Interpreter(mesh, error).run(function, arguments);
}

std::string zpp::compare(const std::vector<PerRank> &expected,
                         const std::vector<PerRank> &got) {
  if (expected.size() != got.size())
    return "expected " + std::to_string(expected.size()) +
           " results, but got " + std::to_string(got.size());
  for (size_t result = 0; result < expected.size(); ++result)
    for (size_t rank = 0; rank < expected[result].size(); ++rank) {
      const SymbolicTensor &want = expected[result][rank];
      const SymbolicTensor &have = got[result][rank];
      std::string where = " of result " + std::to_string(result) + " on rank " +
                          std::to_string(rank);
      if (want.size() != have.size())
        return "expected " + std::to_string(want.size()) + " elements" + where +
               ", but got " + std::to_string(have.size());
      for (size_t element = 0; element < want.size(); ++element)
        if (want[element] != have[element])
          return "expected " + want[element].str() + " as element " +
                 std::to_string(element) + where + ", but got " +
                 have[element].str();
    }
  return "";
}
