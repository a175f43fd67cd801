//===- CoalesceCollectives.cpp - Small tensors share a buffer -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every exchange moves rows of bytes. A device sends rows that are numbered by
// the leading dim, and receives as many from each of the others. If several
// tensors have the same number of rows, these are concatenated row by row. Each
// tensor is then a column of the joined buffer: ops that write or read it see
// rows at equal distances.
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "TravelGroups.h"
#include "UnitSlices.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_COALESCECOLLECTIVESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// A secondary partition that was kept as one buffer is sent as one buffer even
/// if up to 1/16 of it is not needed this time. To send only the rest, it would
/// have to be copied.
constexpr int64_t kNotNeeded = 16;

RankedTensorType getType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

class CoalesceCollectivesPass
    : public zpp::impl::CoalesceCollectivesPassBase<CoalesceCollectivesPass> {
public:
  using CoalesceCollectivesPassBase::CoalesceCollectivesPassBase;

  void runOnOperation() override {
    if (bytes < 0) {
      emitError(getOperation().getLoc(),
                "expected a number of bytes to coalesce, but got ")
          << bytes.getValue();
      return signalPassFailure();
    }
    FailureOr<Machine> machine = Machine::get(getOperation());
    if (failed(machine))
      return signalPassFailure();
    HeavyOps heavy(getOperation());
    for (Block *block : getStepBlocks(getOperation())) {
      SmallVector<SmallVector<TravelChain>> groups =
          getTravelGroups(*block, heavy, *machine, bytes);
      positions.clear();
      for (auto exchange : block->getOps<CollectiveOpInterface>())
        positions[exchange] = {static_cast<int64_t>(positions.size())};
      for (SmallVector<TravelChain> &group : groups)
        coalesce(group);
    }
    positions.clear();
  }

private:
  void coalesce(ArrayRef<TravelChain> group) {
    bool isOneGap = group.front().gap == group.back().gap;
    if (joinAll(group, /*isLastTry=*/isOneGap) || isOneGap)
      return;
    // A tensor that depends on another one is in a later gap.
    while (!group.empty()) {
      ArrayRef<TravelChain> gap =
          group.take_while([&](const TravelChain &candidate) {
            return candidate.gap == group.front().gap;
          });
      joinAll(gap, /*isLastTry=*/true);
      group = group.drop_front(gap.size());
    }
  }

  /// Joins the exchanges of all chains, hop by hop. Returns false and changes
  /// nothing if that is not possible, with a remark if this is the last try.
  bool joinAll(ArrayRef<TravelChain> group, bool isLastTry) {
    // Wire chunks come first because the size of their rows is a multiple of
    // the alignment. The others follow by decreasing size of their elements.
    for (size_t hop : llvm::seq(group.front().parts.size())) {
      SmallVector<TravelPart> parts;
      for (int64_t elementBytes : {0, 4, 2})
        for (const TravelChain &candidate : group)
          if (candidate.parts[hop].elementBytes == elementBytes)
            parts.push_back(candidate.parts[hop]);
      // If a join is not possible, the first hop shows it, before anything has
      // changed.
      if (!join(parts, isLastTry))
        return false;
    }
    return true;
  }

  /// Returns the slices that number the units of the operand of a gather.
  SlicesAttr getSentUnits(TravelPart part) {
    SlicesAttr order = part.order.getSlices();
    SmallVector<int64_t> factors;
    for (int64_t position : getRest(order))
      factors.push_back(order.getFactors()[position]);
    return getUnits(
        SlicesAttr::get(&getContext(), order.getDim(), factors, {}, 0, 1));
  }

  RankedTensorType getRowsType(TravelPart part) {
    return RankedTensorType::get({part.rows, part.rowBytes},
                                 IntegerType::get(&getContext(), 8));
  }

  /// Returns the rows that `part` sends if an op of another exchange made them,
  /// otherwise null. `barrier` becomes the barrier that they have crossed
  /// since, or null.
  Value findRows(TravelPart part, Operation *&barrier) {
    Value input = part.exchange->getOperand(0);
    barrier = input.getDefiningOp();
    if (barrier && isBarrier(barrier))
      input = barrier->getOperand(cast<OpResult>(input).getResultNumber());
    else
      barrier = nullptr;
    if (part.elementBytes == 0)
      return input;
    auto unpack = input.getDefiningOp<UnpackSlicesOp>();
    if (unpack && part.order && unpack.getSlices() == getSentUnits(part) &&
        unpack.getInputType() == getRowsType(part))
      return unpack.getInput();
    return {};
  }

  /// Returns the rows that the exchange of `part` sends, as bytes; creates ops
  /// if needed.
  Value getRows(OpBuilder &builder, TravelPart part) {
    Operation *barrier;
    if (Value rows = findRows(part, barrier); rows && !barrier)
      return rows;
    Value input = part.exchange->getOperand(0);
    if (part.elementBytes == 0)
      return input;
    SlicesAttr slices;
    if (part.order) {
      slices = getSentUnits(part);
    } else {
      auto pack = input.getDefiningOp<PackSlicesOp>();
      if (pack && input.hasOneUse()) {
        slices = pack.getSlices();
        input = pack.getInput();
      } else {
        slices = SlicesAttr::get(&getContext(), 0, {part.rows}, {0}, 0, 1);
      }
    }
    return createLocal<PackSlicesOp>(builder, part.exchange.getLoc(),
                                     getRowsType(part), input, slices);
  }

  /// Extracts `size` elements of the last dim from `offset` on.
  static Value extract(OpBuilder &builder, Location loc, Value value,
                       int64_t offset, int64_t size) {
    RankedTensorType type = getType(value);
    SmallVector<int64_t> shape(type.getShape());
    SmallVector<OpFoldResult> offsets(shape.size(), builder.getIndexAttr(0));
    SmallVector<OpFoldResult> strides(shape.size(), builder.getIndexAttr(1));
    offsets.back() = builder.getIndexAttr(offset);
    shape.back() = size;
    return tensor::ExtractSliceOp::create(
        builder, loc, type.clone(shape), value, offsets,
        getAsIndexOpFoldResult(builder.getContext(), shape), strides);
  }

  /// If an earlier exchange has left the rows of all parts together in one
  /// buffer, that buffer; otherwise null. `offsets` becomes the offset of each
  /// part, and `barrier` the barrier that the buffer has crossed since, or
  /// null.
  Value findJoined(ArrayRef<TravelPart> parts,
                   SmallVectorImpl<int64_t> &offsets, Operation *&barrier) {
    Value whole;
    int64_t end = 0, rowBytes = 0;
    for (TravelPart part : parts) {
      Operation *crossed;
      Value rows = findRows(part, crossed);
      auto slice = rows ? rows.getDefiningOp<tensor::ExtractSliceOp>()
                        : tensor::ExtractSliceOp();
      if (!slice || !slice.getOffsets().empty() ||
          slice.getStaticOffsets().back() < end)
        return {};
      if (!whole) {
        whole = slice.getSource();
        barrier = crossed;
      }
      if (slice.getSource() != whole || crossed != barrier)
        return {};
      offsets.push_back(slice.getStaticOffsets().back());
      end = offsets.back() + part.rowBytes;
      rowBytes += part.rowBytes;
    }
    RankedTensorType type = getType(whole);
    if (!isWire(type) || type.getDimSize(0) != parts.front().rows)
      return {};
    int64_t total = type.getDimSize(1);
    if (total - rowBytes >= kChunkAlignment + total / kNotNeeded)
      return {};
    return whole;
  }

  /// Adds `value`, which is defined before `barrier`, to its operands and
  /// returns the new result. The rows that the caller reads still cross the
  /// barrier.
  Value crossBarrier(Operation *barrier, Value value) {
    return rebuildBarrier(barrier, value)->getResults().back();
  }

  /// The rows of all parts side by side, padded to whole chunks. `offsets`
  /// receives where those of each part begin.
  Value concatenate(OpBuilder &builder, Location loc,
                    ArrayRef<TravelPart> parts,
                    SmallVectorImpl<int64_t> &offsets) {
    offsets.clear();
    SmallVector<Value> rows;
    int64_t rowBytes = 0;
    for (TravelPart part : parts) {
      rows.push_back(getRows(builder, part));
      offsets.push_back(rowBytes);
      rowBytes += part.rowBytes;
    }
    if (int64_t padding =
            llvm::offsetToAlignment(rowBytes, llvm::Align(kChunkAlignment)))
      rows.push_back(
          createEmpty(builder, loc,
                      RankedTensorType::get({parts.front().rows, padding},
                                            builder.getI8Type())));
    return tensor::ConcatOp::create(builder, loc, 1, rows);
  }

  /// Moves ops, in their order, to the place in front of `exchange`.
  void moveBefore(Operation *exchange, ArrayRef<Operation *> ops) {
    SmallVector<int64_t> position = positions[exchange];
    position.push_back(0);
    for (Operation *op : ops) {
      op->moveBefore(exchange);
      ++position.back();
      if (auto it = positions.find(op); it != positions.end())
        it->second = position;
    }
  }

  /// Joins exchanges of one kind into one. If one of them depends on what
  /// another one receives, returns false and changes nothing, with a remark if
  /// this is the last try.
  bool join(ArrayRef<TravelPart> parts, bool isLastTry) {
    SmallVector<Operation *> sorted = llvm::map_to_vector(
        parts, [](TravelPart part) { return part.exchange.getOperation(); });
    llvm::sort(sorted, [&](Operation *a, Operation *b) {
      return positions[a] < positions[b];
    });
    SmallVector<Operation *> dependents = getDependents(sorted);
    if (Operation *dependent = findDependent(sorted, dependents)) {
      if (isLastTry)
        remarkMissed(dependent, getArgument(), "not-coalesced")
            << "travels alone: it depends on a tensor that it would travel "
               "with";
      return false;
    }

    // The joined exchange takes the place of the last one, where all rows are
    // available.
    OpBuilder builder(sorted.back());
    Location loc = sorted.front()->getLoc();
    SmallVector<int64_t> offsets;
    Operation *barrier = nullptr;
    Value sent = getSent(builder, loc, parts, offsets, barrier);
    if (!sent)
      return false;
    Value received = createJoined(builder, loc, parts, sent);
    // If the rows of all tensors go on to another exchange, one op puts them in
    // order.
    Value ordered = getOrdered(builder, parts, received);
    for (auto [part, offset] : llvm::zip_equal(parts, offsets))
      receive(builder, part, ordered ? ordered : received,
              static_cast<bool>(ordered), offset);
    moveBefore(sorted.back(), dependents);
    int64_t total = getType(sent).getDimSize(1);
    for (TravelPart part : parts) {
      if (part.order && part.order->use_empty())
        eraseDeadChain(part.order);
      eraseDeadChain(part.exchange);
    }
    if (barrier)
      eraseIfDead(shrinkBarrier(barrier));
    std::string what =
        parts.size() == 1
            ? "travels with the tensors that were kept with it, in"
            : "travel together: " + std::to_string(parts.size()) +
                  " tensors in";
    remarkPassed(received.getDefiningOp(), getArgument(), "coalesced")
        << (what + " rows of " + std::to_string(total) + " bytes");
    return true;
  }

  /// Returns the first of `exchanges` whose operand is among `dependents`, or
  /// null.
  static Operation *findDependent(ArrayRef<Operation *> exchanges,
                                  ArrayRef<Operation *> dependents) {
    llvm::SmallPtrSet<Operation *, 16> isDependent(llvm::from_range,
                                                   dependents);
    const auto *found = llvm::find_if(exchanges, [&](Operation *exchange) {
      return isDependent.contains(exchange->getOperand(0).getDefiningOp());
    });
    return found == exchanges.end() ? nullptr : *found;
  }

  /// Returns the rows of all parts, at `offsets`: the buffer that they were
  /// kept in, possibly after `barrier`, or else a new one. Null for a single
  /// part without such a buffer.
  Value getSent(OpBuilder &builder, Location loc, ArrayRef<TravelPart> parts,
                SmallVectorImpl<int64_t> &offsets, Operation *&barrier) {
    Value sent = findJoined(parts, offsets, barrier);
    if (!sent) {
      barrier = nullptr;
      return parts.size() == 1 ? Value()
                               : concatenate(builder, loc, parts, offsets);
    }
    if (barrier) {
      sent = crossBarrier(barrier, sent);
      barrier = sent.getDefiningOp();
    }
    return sent;
  }

  /// Exchanges `sent`, as the exchanges of `parts` do with theirs.
  Value createJoined(OpBuilder &builder, Location loc,
                     ArrayRef<TravelPart> parts, Value sent) {
    Operation *joined = create(builder, loc, parts.front().exchange, sent);
    setOrigins(joined, parts, getType(sent).getDimSize(1));
    for (TravelPart part : parts)
      if (Attribute keep = part.exchange->getAttr(kKeepAttr))
        joined->setAttr(kKeepAttr, keep);
    return joined->getResult(0);
  }

  static Operation *create(OpBuilder &builder, Location loc,
                           CollectiveOpInterface like, Value sent) {
    RankedTensorType type = getType(sent);
    if (isa<AllToAllOp>(like.getOperation()))
      return AllToAllOp::create(
          builder, loc, TypeRange{type}, sent, createEmpty(builder, loc, type),
          like.getAlongAttr(), like.getMeshAttr(), SlicesAttr(), QuantAttr());
    SmallVector<int64_t> shape{like.getGroupSize()};
    llvm::append_range(shape, type.getShape());
    type = type.clone(shape);
    return AllGatherChunksOp::create(builder, loc, TypeRange{type}, sent,
                                     createEmpty(builder, loc, type),
                                     like.getAlongAttr(), like.getMeshAttr());
  }

  /// Records the origins of all parts, each with its bytes in a row of `total`
  /// bytes. Padding counts for the last part.
  void setOrigins(Operation *joined, ArrayRef<TravelPart> parts,
                  int64_t total) {
    SmallVector<Attribute> origins;
    int64_t padding = total;
    for (TravelPart part : parts)
      padding -= part.rowBytes;
    for (TravelPart part : parts) {
      SmallVector<Origin> all = getOrigins(part.exchange);
      for (Origin &origin : all) {
        if (origin.share == 0)
          origin.share = part.rowBytes / all.size();
        if (part.exchange == parts.back().exchange)
          origin.share += std::exchange(padding, 0);
        origins.push_back(getOriginAttr(&getContext(), origin));
      }
    }
    joined->setAttr(kOriginAttr, ArrayAttr::get(&getContext(), origins));
  }

  /// Returns the received rows in the order of the units if all parts have the
  /// same order; otherwise null.
  Value getOrdered(OpBuilder &builder, ArrayRef<TravelPart> parts,
                   Value received) {
    SmallVector<int64_t> factors, chunk;
    for (TravelPart part : parts) {
      if (!part.order)
        return {};
      SlicesAttr order = part.order.getSlices();
      // A tensor that is complete now can be read in any order.
      if (part.elementBytes != 0 &&
          !llvm::any_of(part.order->getUsers(), [](Operation *user) {
            return isa<AllGatherChunksOp>(user);
          }))
        return {};
      SmallVector<int64_t> unitChunk(getUnitOrder(order).getChunk());
      if (part.exchange == parts.front().exchange) {
        factors.assign(order.getFactors().begin(), order.getFactors().end());
        chunk = unitChunk;
      }
      if (order.getFactors() != ArrayRef(factors) || unitChunk != chunk)
        return {};
    }
    RankedTensorType type = getType(received);
    auto ordered = RankedTensorType::get(
        {type.getDimSize(0) * type.getDimSize(1), type.getDimSize(2)},
        type.getElementType());
    return createLocal<UnpackSlicesOp>(
        builder, received.getLoc(), ordered, received,
        SlicesAttr::get(&getContext(), 0, factors, chunk, 0, 1));
  }

  /// Replaces the result of `part` by its slice of `rows`, which starts at
  /// `offset`.
  void receive(OpBuilder &builder, TravelPart part, Value rows, bool isOrdered,
               int64_t offset) {
    Operation *exchange = part.exchange;
    Location loc = exchange->getLoc();
    Value slice = extract(builder, loc, rows, offset, part.rowBytes);
    UnpackSlicesOp order = part.order;
    if (part.elementBytes == 0) {
      Operation *from = isOrdered ? order.getOperation() : exchange;
      from->getResult(0).replaceAllUsesWith(slice);
    } else if (order) {
      SlicesAttr slices = isOrdered ? getUnits(order.getSlices())
                                    : getUnitOrder(order.getSlices());
      order->getResult(0).replaceAllUsesWith(createLocal<UnpackSlicesOp>(
          builder, loc, getType(order->getResult(0)), slice, slices));
    } else {
      RankedTensorType type = getType(exchange->getResult(0));
      exchange->getResult(0).replaceAllUsesWith(createLocal<UnpackSlicesOp>(
          builder, loc, type, slice,
          SlicesAttr::get(&getContext(), 0, {part.rows}, {0}, 0, 1)));
    }
  }

  /// The places of a block's exchanges, compared lexicographically. An op that
  /// moves after another one gets the place of that one, extended by a number.
  /// Operation::isBeforeInBlock() would number all ops again after each move.
  llvm::DenseMap<Operation *, SmallVector<int64_t>> positions;
};
} // namespace
