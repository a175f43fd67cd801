//===- CoalesceCollectives.cpp - Tensors of one moment in one buffer ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whatever travels does so in rows: a device sends rows of bytes, numbered by
// the leading dim, and receives as many from each. Rows of several tensors,
// equal in number, are concatenated, so that what one op makes and another
// reads are rows at equal distances.
//
//===----------------------------------------------------------------------===//

#include "Chains.h"
#include "LocalValues.h"
#include "mlir/IR/Remarks.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_COALESCECOLLECTIVESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// What was kept in one piece is sent in one piece, even if up to this part of
/// it (1/16) is not needed again: to take the rest out would copy it.
constexpr int64_t kNotNeeded = 16;

/// One tensor's part of an exchange.
struct Part {
  CollectiveOpInterface exchange;
  /// Rows that a device sends, and bytes of each.
  int64_t rows = 0;
  int64_t rowBytes = 0;
  /// Bytes of an element that travels as it is; 0 for wire chunks.
  int64_t elementBytes = 0;
  /// What puts the rows that arrive in order: of a gather, or null.
  UnpackSlicesOp order;
};

/// A chain and its exchanges.
struct Candidate {
  Chain chain;
  SmallVector<Part> parts;
  /// What has to agree.
  SmallVector<Attribute> key;
  /// Heavy ops before it.
  int64_t window = 0;

  /// What a device contributes. Of a gather its own share, also where it sends
  /// what it has kept of others', so that buffers are filled with the tensors
  /// that were kept in one.
  int64_t getBytes() const {
    Part part = parts.front();
    bool isGather = isa<AllGatherChunksOp>(part.exchange.getOperation());
    return (isGather ? 1 : part.rows) * part.rowBytes;
  }
};

RankedTensorType getType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// True for rows of bytes.
bool isWire(RankedTensorType type) {
  return type.getElementType().isSignlessInteger(8) && type.getRank() == 2 &&
         !type.getEncoding();
}

/// The only op that reads `value`, if it is an OpT.
template <typename OpT> OpT getOnlyReader(Value value) {
  return value.hasOneUse() ? dyn_cast<OpT>(*value.user_begin()) : OpT();
}

/// Slices that number all units of a tensor as `order` finds them: chunk i of
/// the operand is unit i.
SlicesAttr getUnits(SlicesAttr order) {
  auto all = llvm::to_vector(
      llvm::seq<int64_t>(0, static_cast<int64_t>(order.getFactors().size())));
  return SlicesAttr::get(order.getContext(), order.getDim(), order.getFactors(),
                         all, 0, 1);
}

/// The factors of `order` that do not number its chunks.
SmallVector<int64_t> getRest(SlicesAttr order) {
  SmallVector<int64_t> rest;
  for (int64_t position : llvm::seq<int64_t>(order.getFactors().size()))
    if (!llvm::is_contained(order.getChunk(), position))
      rest.push_back(position);
  return rest;
}

/// `order` with every unit a chunk: first by what numbered the chunks.
SlicesAttr getUnitOrder(SlicesAttr order) {
  SmallVector<int64_t> chunk(order.getChunk());
  llvm::append_range(chunk, getRest(order));
  return SlicesAttr::get(order.getContext(), order.getDim(), order.getFactors(),
                         chunk, 0, 1);
}

class CoalesceCollectivesPass
    : public zpp::impl::CoalesceCollectivesPassBase<CoalesceCollectivesPass> {
public:
  using CoalesceCollectivesPassBase::CoalesceCollectivesPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    loadStablehlo(context);
    return success();
  }

  void runOnOperation() override {
    if (bytes < 0) {
      emitError(getOperation().getLoc(),
                "expected a number of bytes to coalesce, but got ")
          << bytes.getValue();
      return signalPassFailure();
    }
    HeavyOps heavy(getOperation());
    for (Block *block : getStepBlocks(getOperation()))
      for (SmallVector<Candidate> &group : getGroups(*block, heavy))
        coalesce(group);
    positions.clear();
  }

private:
  //===--------------------------------------------------------------------===//
  // What goes together
  //===--------------------------------------------------------------------===//

  /// How `exchange` moves rows, or nullopt.
  static std::optional<Part> getPart(CollectiveOpInterface exchange) {
    Part part;
    part.exchange = exchange;
    auto type = dyn_cast<RankedTensorType>(exchange->getOperand(0).getType());
    if (!type || !type.hasStaticShape() || type.getNumElements() == 0 ||
        exchange->getNumResults() == 0)
      return std::nullopt;
    Value result = exchange->getResult(0);
    auto gather = dyn_cast<AllGatherChunksOp>(exchange.getOperation());
    if (gather)
      part.order = getOnlyReader<UnpackSlicesOp>(result);
    if (isWire(type)) {
      part.rows = type.getDimSize(0);
      part.rowBytes = type.getDimSize(1);
      // Only rows as a whole are put in order together.
      if (part.order && (part.order.getSlices().getDim() != 0 ||
                         !isWire(getType(part.order->getResult(0)))))
        return std::nullopt;
      return part;
    }
    Type element = type.getElementType();
    if (!element.isF32() && !element.isBF16() && !element.isF16())
      return std::nullopt;
    part.elementBytes = element.getIntOrFloatBitWidth() / 8;
    if (gather) {
      if (!part.order)
        return std::nullopt;
      SlicesAttr order = part.order.getSlices();
      part.rows = 1;
      for (int64_t position : getRest(order))
        part.rows *= order.getFactors()[position];
    } else {
      part.rows = type.getDimSize(0);
    }
    part.rowBytes = type.getNumElements() / part.rows * part.elementBytes;
    return part;
  }

  std::optional<Candidate> getCandidate(Chain &chain) {
    Builder builder(&getContext());
    Candidate candidate;
    for (CollectiveOpInterface exchange : getExchanges(chain)) {
      std::optional<Part> part = getPart(exchange);
      SmallVector<Origin> origins = getOrigins(exchange);
      if (!part || origins.empty())
        return std::nullopt;
      candidate.parts.push_back(*part);
      candidate.key.append(
          {builder.getStringAttr(exchange->getName().getStringRef()),
           exchange.getAlongAttr(), exchange.getMeshAttr(),
           builder.getI64IntegerAttr(part->rows),
           builder.getStringAttr(origins.front().role),
           builder.getStringAttr(origins.front().phase)});
    }
    candidate.chain = std::move(chain);
    return candidate;
  }

  /// Chains that are to travel together. A buffer is full once it has `bytes`;
  /// what is left in the end joins the last one.
  SmallVector<SmallVector<Candidate>> getGroups(Block &block,
                                                HeavyOps &compute) {
    SmallVector<Chain> chains = getChains(block);
    if (chains.empty())
      return {};
    positions.clear();
    for (auto exchange : block.getOps<CollectiveOpInterface>())
      positions[exchange] = {static_cast<int64_t>(positions.size())};
    SmallVector<Operation *> heavy = compute.getIn(block);
    /// Chains that agree, and what they contribute.
    struct Group {
      SmallVector<Candidate> candidates;
      int64_t bytes = 0;
    };
    llvm::MapVector<std::pair<int64_t, Attribute>, SmallVector<Group>> byKey;
    for (Chain &chain : chains) {
      std::optional<Candidate> candidate = getCandidate(chain);
      if (!candidate)
        continue;
      candidate->window = countBefore(heavy, candidate->chain.back());
      auto key = std::make_pair(
          candidate->window,
          Attribute(ArrayAttr::get(&getContext(), candidate->key)));
      SmallVector<Group> &groups = byKey[key];
      if (groups.empty() || groups.back().bytes >= bytes)
        groups.emplace_back();
      groups.back().bytes += candidate->getBytes();
      groups.back().candidates.push_back(std::move(*candidate));
    }
    SmallVector<SmallVector<Candidate>> result;
    for (auto &[key, groups] : byKey) {
      if (groups.size() > 1 && groups.back().bytes < bytes) {
        llvm::append_range(
            groups[groups.size() - 2].candidates,
            llvm::make_range(
                std::make_move_iterator(groups.back().candidates.begin()),
                std::make_move_iterator(groups.back().candidates.end())));
        groups.pop_back();
      }
      for (Group &group : groups)
        // Nothing that is left to XLA is joined for its own sake.
        if (llvm::any_of(group.candidates, [](const Candidate &candidate) {
              return candidate.parts.front().elementBytes == 0;
            }))
          result.push_back(std::move(group.candidates));
    }
    return result;
  }

  //===--------------------------------------------------------------------===//
  // Joining
  //===--------------------------------------------------------------------===//

  void coalesce(ArrayRef<Candidate> group) {
    // Wire chunks first, whose rows keep the alignment; then by element.
    for (size_t hop : llvm::seq(group.front().parts.size())) {
      SmallVector<Part> parts;
      for (int64_t elementBytes : {0, 4, 2})
        for (const Candidate &candidate : group)
          if (candidate.parts[hop].elementBytes == elementBytes)
            parts.push_back(candidate.parts[hop]);
      // All of it or nothing: the first hop finds out.
      if (!join(parts))
        return;
    }
  }

  /// The slices that number the units of what a gather sends.
  SlicesAttr getSentUnits(Part part) {
    SlicesAttr order = part.order.getSlices();
    SmallVector<int64_t> factors;
    for (int64_t position : getRest(order))
      factors.push_back(order.getFactors()[position]);
    return getUnits(
        SlicesAttr::get(&getContext(), order.getDim(), factors, {}, 0, 1));
  }

  RankedTensorType getRowsType(Part part) {
    return RankedTensorType::get({part.rows, part.rowBytes},
                                 IntegerType::get(&getContext(), 8));
  }

  /// The rows that `part` sends where an op of another exchange has made them,
  /// else null. `barrier` is what they have crossed since, or null.
  Value findRows(Part part, Operation *&barrier) {
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

  /// The rows that the exchange of `part` sends, as bytes.
  Value getRows(OpBuilder &builder, Part part) {
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

  /// Slice `offset`, of `size`, of the last dim.
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

  /// The rows of all parts where they are together already, as an exchange
  /// before has left them, with the offset of each part; null otherwise.
  /// `barrier` is what they have crossed since.
  Value findJoined(ArrayRef<Part> parts, SmallVectorImpl<int64_t> &offsets,
                   Operation *&barrier) {
    Value whole;
    int64_t end = 0, rowBytes = 0;
    for (Part part : parts) {
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

  /// Adds `value` to the operands of `barrier`, in front of which it is
  /// defined; returns the result. The caller's rows still cross it.
  Value crossBarrier(Operation *barrier, Value value) {
    OpBuilder builder(barrier);
    SmallVector<Value> operands(barrier->getOperands());
    operands.push_back(value);
    Operation *extended = createBarrier(builder, barrier->getLoc(), operands);
    extended->setDiscardableAttrs(barrier->getDiscardableAttrDictionary());
    barrier->replaceAllUsesWith(extended->getResults().drop_back());
    barrier->erase();
    return extended->getResults().back();
  }

  /// Joins exchanges of one kind into one. False, and nothing is changed, where
  /// one of them depends on what another one receives.
  bool join(ArrayRef<Part> parts) {
    SmallVector<Operation *> exchanges = llvm::map_to_vector(
        parts, [](Part part) { return part.exchange.getOperation(); });
    SmallVector<Operation *> sorted(exchanges);
    llvm::sort(sorted, [&](Operation *a, Operation *b) {
      return positions[a] < positions[b];
    });
    SmallVector<Operation *> dependents = getDependents(sorted);
    llvm::SmallPtrSet<Operation *, 16> isDependent(llvm::from_range,
                                                   dependents);
    for (Operation *exchange : sorted)
      if (isDependent.contains(exchange->getOperand(0).getDefiningOp())) {
        remark::missed(
            exchange->getLoc(),
            remark::RemarkOpts::name("not-coalesced").category(getArgument()))
            << "travels alone: it depends on what it would travel with";
        return false;
      }

    // What is sent, at the last of the exchanges, where all of it is there.
    OpBuilder builder(sorted.back());
    Location loc = sorted.front()->getLoc();
    SmallVector<int64_t> offsets;
    Operation *barrier = nullptr;
    Value sent = findJoined(parts, offsets, barrier);
    if (!sent) {
      // One tensor travels only with what it has been kept with.
      if (parts.size() == 1)
        return false;
      barrier = nullptr;
      offsets.clear();
      SmallVector<Value> rows;
      int64_t rowBytes = 0;
      for (Part part : parts) {
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
      sent = tensor::ConcatOp::create(builder, loc, 1, rows);
    } else if (barrier) {
      sent = crossBarrier(barrier, sent);
      barrier = sent.getDefiningOp();
    }

    Part first = parts.front();
    int64_t total = getType(sent).getDimSize(1);
    Operation *joined = create(builder, loc, first.exchange, sent);
    setOrigins(joined, parts, total);
    if (llvm::any_of(exchanges, [](Operation *exchange) {
          return exchange->hasAttr(kKeepAttr);
        }))
      joined->setAttr(kKeepAttr, builder.getUnitAttr());
    Value received = joined->getResult(0);

    // Rows of all tensors that go on travelling are put in order at once.
    Value ordered = getOrdered(builder, parts, received);
    for (auto [part, offset] : llvm::zip_equal(parts, offsets))
      receive(builder, part, ordered ? ordered : received,
              static_cast<bool>(ordered), offset);
    Operation *last = sorted.back()->getPrevNode();
    SmallVector<int64_t> position = positions[sorted.back()];
    position.push_back(0);
    for (Operation *op : dependents) {
      op->moveAfter(last);
      last = op;
      ++position.back();
      if (auto it = positions.find(op); it != positions.end())
        it->second = position;
    }
    for (Part part : parts) {
      if (part.order && part.order->use_empty())
        eraseDeadChain(part.order);
      eraseDeadChain(part.exchange);
    }
    if (barrier)
      eraseIfDead(shrinkBarrier(barrier));
    std::string what =
        parts.size() == 1 ? "travels with what was kept with it, in"
                          : "travel together: " + std::to_string(parts.size()) +
                                " tensors in";
    remark::passed(
        loc, remark::RemarkOpts::name("coalesced").category(getArgument()))
        << (what + " rows of " + std::to_string(total) + " bytes");
    return true;
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

  /// The origins of all parts, each with its bytes in a row of `total`; what is
  /// none's is the last one's.
  void setOrigins(Operation *joined, ArrayRef<Part> parts, int64_t total) {
    SmallVector<Attribute> origins;
    int64_t padding = total;
    for (Part part : parts)
      padding -= part.rowBytes;
    for (Part part : parts)
      for (Origin &origin : getOrigins(part.exchange)) {
        if (origin.share == 0)
          origin.share = part.rowBytes;
        if (part.exchange == parts.back().exchange)
          origin.share += std::exchange(padding, 0);
        origins.push_back(getOriginAttr(&getContext(), origin));
      }
    joined->setAttr(kOriginAttr, ArrayAttr::get(&getContext(), origins));
  }

  /// What is received with its rows in the order of the units, where all parts
  /// are put in one order; null otherwise.
  Value getOrdered(OpBuilder &builder, ArrayRef<Part> parts, Value received) {
    SmallVector<int64_t> factors, chunk;
    for (Part part : parts) {
      if (!part.order)
        return {};
      SlicesAttr order = part.order.getSlices();
      // What is whole now is read in any order.
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

  /// Replaces what `part` received by its slice of the rows from `offset` on.
  void receive(OpBuilder &builder, Part part, Value rows, bool isOrdered,
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

  /// Where the exchanges of a block stand in it, compared lexicographically:
  /// what moves behind one has that one's position and a number of its own.
  /// Operation::isBeforeInBlock() would number all ops again after each move.
  llvm::DenseMap<Operation *, SmallVector<int64_t>> positions;
};
} // namespace
