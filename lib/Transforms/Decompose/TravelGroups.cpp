//===- TravelGroups.cpp - Exchanges that are to travel together -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TravelGroups.h"

#include "Loops/LoopPlan.h"
#include "UnitSlices.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Support/DeviceModel.h"
#include "zpp/Support/Limits.h"
#include "zpp/Support/LinkModel.h"
#include "llvm/ADT/MapVector.h"

#include <limits>
#include <map>
#include <numeric>

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// Returns the time of a heavy op on `device`.
static double getUsec(Operation *op, HeavyOps &compute,
                      const DeviceModel &device) {
  if (double flops = getProductFlops(op))
    return device.getProductUsec(
        flops, getElementBits(getElementTypeOrSelf(op->getOperand(0))), 0);
  // The work of calls and loops is that of the products in them.
  if (isa<func::CallOp>(op) || isWhile(op))
    return device.getProductUsec(compute.getWork(op), 16, 0);
  // Without products, a block has the op that moves the most data.
  if (!HeavyOps::isHeavyItself(op))
    return device.getMemoryUsec(compute.getWork(op));
  return std::numeric_limits<double>::infinity();
}

namespace {
/// The places between the heavy ops of a block, numbered in order, and the time
/// of the compute between them.
class Gaps {
public:
  Gaps(Block &block, HeavyOps &compute, const DeviceModel &device)
      : heavy(compute.getIn(block)) {
    for (Operation *op : heavy)
      usec.push_back(getUsec(op, compute, device));
  }

  /// Returns the gap of `op`, which is in the block: the number of heavy ops
  /// before it.
  int64_t get(Operation *op) const { return countBefore(heavy, op); }

  /// Returns the first gap in which the results of `op` are there.
  int64_t getAfter(Operation *op) const {
    return countBefore(heavy, op->getNextNode());
  }

  /// Returns a lower bound on the compute time between two gaps, of which
  /// `first` comes first. Infinite if nothing is known of an op.
  double getUsecBetween(int64_t first, int64_t second) const {
    return std::accumulate(usec.begin() + first, usec.begin() + second, 0.0);
  }

private:
  SmallVector<Operation *> heavy;
  /// The time of each of them.
  SmallVector<double> usec;
};
} // namespace

/// Nothing is in flight from one iteration of a loop to the next. If a layer
/// fills one buffer, an iteration has nothing that its links to other nodes
/// could do during the last hop within the node. So a layer fills several
/// buffers, but none that is so small that latencies would count.
static constexpr int64_t kBuffersOfIteration = 4;
static constexpr int64_t kLeastInIteration = 256 << 10;

/// Outside of loops, small tensors join a large one of another gap if they are
/// no more than this part of the largest ones.
static constexpr int64_t kPartOfLarge = 16;

/// True if `part` takes less time on the links of `machine` than it takes to
/// start.
static bool isSmall(const TravelPart &part, const Machine &machine) {
  CollectiveOpInterface exchange = part.exchange;
  Mesh mesh = exchange.getMeshAttr().getMesh();
  int64_t bytes = multiplySaturating(part.rows, part.rowBytes);
  CollectiveKind kind = CollectiveKind::AllGather;
  if (!TravelPart(part).isGather()) {
    kind = CollectiveKind::AllToAll;
    bytes /= exchange.getGroupSize();
  }
  return machine.getLinks(mesh).isMostlyLatency(
      getSentBytes(mesh, kind, exchange.getAxisRefs(), bytes));
}

double TravelChain::getLatencyUsec() const {
  return static_cast<double>(parts.size()) * LinkModel::kExchangeUsec +
         2 * LinkModel::kKernelWeight * LinkModel::kKernelUsec;
}

bool zpp::isWire(RankedTensorType type) {
  return type.getElementType().isSignlessInteger(8) && type.getRank() == 2 &&
         !type.getEncoding();
}

/// Returns the op that reads `value` if it is the only one and an OpT;
/// otherwise null.
template <typename OpT> static OpT getOnlyReader(Value value) {
  return value.hasOneUse() ? dyn_cast<OpT>(*value.user_begin()) : OpT();
}

/// Describes the rows that `exchange` moves, or nullopt if it cannot join
/// others.
static std::optional<TravelPart> getPart(CollectiveOpInterface exchange) {
  TravelPart part;
  part.exchange = exchange;
  auto type = dyn_cast<RankedTensorType>(exchange->getOperand(0).getType());
  if (!type || !type.hasStaticShape() || type.getNumElements() == 0 ||
      exchange->getNumResults() == 0)
    return std::nullopt;
  Value result = exchange->getResult(0);
  auto gather = dyn_cast<AllGatherChunksOp>(exchange.getOperation());
  if (gather)
    part.order = getOnlyReader<UnpackSlicesOp>(result);
  // An order of other chunks than those of the devices is another op's.
  if (part.order && part.order.getSlices()
                            .getMap(part.order.getInitType().getShape())
                            .numChunks() != exchange.getGroupSize())
    return std::nullopt;
  if (isWire(type)) {
    part.rows = type.getDimSize(0);
    part.rowBytes = type.getDimSize(1);
    // An order that splits rows, or drops some, cannot be applied to several
    // tensors at once.
    if (part.order &&
        (part.order.getSlices().getDim() != 0 ||
         part.order->getResult(0).getType() !=
             type.clone({part.rows * exchange.getGroupSize(), part.rowBytes})))
      return std::nullopt;
    return part;
  }
  Type element = type.getElementType();
  if (!isQuantizable(element))
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

/// Describes `chain`, or nullopt if it cannot join others.
static std::optional<TravelChain> describe(Chain &chain, MLIRContext *context) {
  Builder builder(context);
  TravelChain described;
  for (CollectiveOpInterface exchange : getExchanges(chain)) {
    std::optional<TravelPart> part = getPart(exchange);
    SmallVector<Origin> origins = getOrigins(exchange);
    if (!part || origins.empty())
      return std::nullopt;
    described.parts.push_back(*part);
    described.key.append(
        {builder.getStringAttr(exchange->getName().getStringRef()),
         exchange.getAlongAttr(), exchange.getMeshAttr(),
         builder.getI64IntegerAttr(part->rows),
         builder.getStringAttr(getRoleName(origins.front().role)),
         builder.getStringAttr(getPhaseName(origins.front().phase))});
  }
  described.chain = std::move(chain);
  return described;
}

/// Returns the gap in which `chain` travels. What a loop over layers scatters
/// stands at the end of an iteration, but can travel once it is computed.
static int64_t getGap(TravelChain &chain, const Gaps &gaps) {
  Operation *last = chain.chain.back();
  if (chain.isGather() || !isWhile(last->getParentOp()))
    return gaps.get(last);
  llvm::SmallPtrSet<Operation *, 16> own(llvm::from_range, chain.chain);
  int64_t gap = 0;
  for (Operation *op : chain.chain)
    for (Value operand : op->getOperands())
      // Constants and empty tensors are there at any time.
      if (Operation *source = operand.getDefiningOp();
          source && source->getNumOperands() > 0 &&
          source->getBlock() == last->getBlock() && !own.contains(source))
        gap = std::max(gap, gaps.getAfter(source));
  return gap;
}

static bool areSmall(ArrayRef<TravelChain> chains) {
  return llvm::all_of(chains,
                      [](const TravelChain &chain) { return chain.isSmall; });
}

/// Returns the bytes of those `chains` that are small, or of those that are
/// not.
static int64_t getBytes(ArrayRef<TravelChain> chains, bool areSmall) {
  int64_t bytes = 0;
  for (const TravelChain &chain : chains)
    if (chain.isSmall == areSmall)
      bytes = addSaturating(bytes, chain.getBytes());
  return bytes;
}

/// True if the chains of two neighboring gaps gain more by
/// travelling together than they lose: the first ones arrive or start later by
/// no more than the compute between them, and by no more than the links need
/// for those that are sent before or after their time.
static bool isNear(ArrayRef<TravelChain> first, ArrayRef<TravelChain> second,
                   const std::optional<LoopPlan> &loop, const Gaps &gaps,
                   int64_t mostSmall) {
  const TravelChain &last = first.back();
  if (areSmall(last.isGather() ? second : first))
    return loop || getBytes(first, true) + getBytes(second, true) <= mostSmall;
  if (!loop)
    return false;
  // What an iteration needs first has nothing to hide under.
  if (loop->layers == 0 && last.isGather() && last.gap == 0)
    return false;
  return gaps.getUsecBetween(last.gap, second.front().gap) <
         last.getLatencyUsec();
}

/// Divides chains with the same key, by gap, into those that may travel
/// together: those of a gap and, in a loop, of gaps that are near.
static SmallVector<SmallVector<TravelChain>>
getNear(std::map<int64_t, SmallVector<TravelChain>> chains,
        const std::optional<LoopPlan> &loop, const Gaps &gaps) {
  SmallVector<SmallVector<TravelChain>> result;
  // Outside of loops, layers of small tensors alone keep apart.
  int64_t mostSmall = 0;
  for (const auto &[gap, own] : chains)
    mostSmall = std::max(mostSmall, getBytes(own, false) / kPartOfLarge);
  for (auto &[gap, own] : chains) {
    if (result.empty() || !isNear(result.back(), own, loop, gaps, mostSmall))
      result.emplace_back();
    llvm::move(own, std::back_inserter(result.back()));
  }
  // No gradient is left that small ones could wait for. In a layer, the links
  // are busy with those of the layer before.
  if (result.size() > 1 && !result.back().front().isGather() &&
      areSmall(result.back())) {
    SmallVector<TravelChain> last = result.pop_back_val();
    SmallVector<TravelChain> &other = result.back();
    bool isLayer = loop && loop->layers > 0;
    if (isLayer || gaps.getUsecBetween(other.back().gap, last.front().gap) <
                       last.front().getLatencyUsec())
      llvm::move(last, std::back_inserter(other));
    else
      result.push_back(std::move(last));
  }
  return result;
}

/// Returns the bytes with which a buffer for some of `chains` is full.
static int64_t getFull(ArrayRef<TravelChain> chains,
                       const std::optional<LoopPlan> &loop, int64_t bytes) {
  if (!loop || loop->layers > 0 || chains.front().parts.size() < 2)
    return bytes;
  int64_t all = 0;
  for (const TravelChain &chain : chains)
    all = addSaturating(all, chain.getBytes());
  return std::min<int64_t>(
      bytes, std::max(all / kBuffersOfIteration, kLeastInIteration));
}

/// Divides `chains` into groups of at least `full` bytes each, in order.
static SmallVector<SmallVector<TravelChain>>
divide(MutableArrayRef<TravelChain> chains, int64_t full) {
  SmallVector<SmallVector<TravelChain>> groups;
  int64_t last = full;
  for (TravelChain &chain : chains) {
    if (last >= full) {
      groups.emplace_back();
      last = 0;
    }
    last = addSaturating(last, chain.getBytes());
    groups.back().push_back(std::move(chain));
  }
  if (groups.size() > 1 && last < full) {
    SmallVector<TravelChain> rest = groups.pop_back_val();
    llvm::move(rest, std::back_inserter(groups.back()));
  }
  return groups;
}

SmallVector<SmallVector<TravelChain>>
zpp::getTravelGroups(Block &block, HeavyOps &compute, const Machine &machine,
                     int64_t bytes) {
  SmallVector<Chain> chains = getChains(block);
  if (chains.empty())
    return {};
  MLIRContext *context = block.getParentOp()->getContext();
  // The plan if `block` is the body of a loop.
  std::optional<LoopPlan> loop;
  if (WhileView view = WhileView::get(block.getParentOp()))
    loop = LoopPlan::get(view);
  Gaps gaps(block, compute, machine.getDevice());
  // By what has to be equal, and by gap.
  llvm::MapVector<Attribute, std::map<int64_t, SmallVector<TravelChain>>> byKey;
  for (Chain &chain : chains) {
    std::optional<TravelChain> described = describe(chain, context);
    if (!described)
      continue;
    described->gap = getGap(*described, gaps);
    described->isSmall =
        llvm::all_of(described->parts, [&](const TravelPart &part) {
          return isSmall(part, machine);
        });
    byKey[ArrayAttr::get(context, described->key)][described->gap].push_back(
        std::move(*described));
  }
  SmallVector<SmallVector<TravelChain>> result;
  for (auto &[key, own] : byKey)
    for (SmallVector<TravelChain> &near : getNear(std::move(own), loop, gaps))
      for (SmallVector<TravelChain> &group :
           divide(near, getFull(near, loop, bytes)))
        // At least one tensor must be quantized: joining collectives that are
        // left to XLA is not the task of this pass.
        if (llvm::any_of(group, [](const TravelChain &chain) {
              return chain.parts.front().elementBytes == 0;
            }))
          result.push_back(std::move(group));
  return result;
}
