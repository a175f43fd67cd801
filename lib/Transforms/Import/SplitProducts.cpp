//===- SplitProducts.cpp - Products that devices have split ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Import/SplitProducts.h"

#include "zpp/Dialect/Guest/DimFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"

#include <set>

using namespace mlir;
using namespace zpp;

using Kind = Share::Kind;

SmallVector<Operation *> SplitProducts::getCollectives() const {
  return llvm::to_vector(llvm::make_filter_range(
      ops, [](Operation *op) { return getGuestCollective(op).has_value(); }));
}

bool SplitProducts::contains(Operation *op) const {
  return ops.contains(op) ||
         (op == &op->getBlock()->back() && ops.contains(op->getParentOp()));
}

RankedTensorType SplitProducts::getWholeType(Type type,
                                             const Share &share) const {
  auto part = cast<RankedTensorType>(type);
  return share.kind == Kind::Slice
             ? resizeDim(part, share.dim,
                         part.getDimSize(share.dim) * groups.front().size())
             : part;
}

//===----------------------------------------------------------------------===//
// What follows
//===----------------------------------------------------------------------===//

/// True for a cast, a transpose or a reshape of one tensor.
static bool isRearrangement(Operation *op) {
  return (isNamed(op, guest::kConvert) || isNamed(op, guest::kTranspose) ||
          isNamed(op, guest::kReshape)) &&
         isConsistentMovement(op);
}

/// The dim of the result of a product that dim `dim` of an operand becomes.
static std::optional<int64_t> getProductDim(Operation *product,
                                            unsigned operand, int64_t dim) {
  if (!isNamed(product, guest::kDot))
    return getMovedDim(product, operand, dim);
  RankedTensorType type = getTensorType(product->getResult(0));
  return operand == 0 ? 0 : type.getRank() - 1;
}

namespace {
/// Follows the shares of devices through ops.
class ShareFlow {
public:
  ShareFlow(SplitProducts &split, PartitionTables &tables,
            SameValues &sameValues)
      : split(split), tables(tables), sameValues(sameValues) {}

  void run(llvm::DenseSet<Operation *> excluded) {
    while (Operation *more = findReadSummand(excluded))
      excluded.insert(more);
  }

private:
  /// Finds what follows without `excluded`. Returns an op that makes such a
  /// summand, or null.
  Operation *findReadSummand(const llvm::DenseSet<Operation *> &excluded) {
    split.shares.clear();
    split.ops.clear();
    split.shares[split.slice] = {Kind::Slice, split.dim};
    auto isBefore = [](Operation *a, Operation *b) {
      return a->isBeforeInBlock(b);
    };
    std::set<Operation *, decltype(isBefore)> pending(isBefore);
    auto addReaders = [&](Value value) {
      for (Operation *user : value.getUsers())
        if (user->getBlock() == split.slice.getParentBlock())
          pending.insert(user);
    };
    addReaders(split.slice);
    while (!pending.empty()) {
      Operation *op = *pending.begin();
      pending.erase(pending.begin());
      if (!excluded.contains(op) && add(op))
        llvm::for_each(op->getResults(), addReaders);
    }
    for (auto &[value, share] : split.shares)
      if (share.kind == Kind::Summand && value.getDefiningOp() &&
          llvm::any_of(value.getUsers(),
                       [&](Operation *user) { return !split.contains(user); }))
        return value.getDefiningOp();
    return nullptr;
  }

  std::optional<Share> find(Value value) const {
    auto known = split.shares.find(value);
    return known == split.shares.end() ? std::nullopt
                                       : std::optional(known->second);
  }

  bool reads(Operation *op) const {
    return llvm::any_of(op->getOperands(), [&](Value operand) {
      return split.shares.contains(operand);
    });
  }

  /// Finds the shares of the results of `op`, which reads some; returns false,
  /// and forgets them, if one is not known.
  bool add(Operation *op) {
    if (!reads(op))
      return false;
    if (WhileView loop = WhileView::get(op))
      return addLoop(loop);
    if (isBarrier(op)) {
      for (auto [operand, result] :
           llvm::zip_equal(op->getOperands(), op->getResults()))
        if (std::optional<Share> share = find(operand))
          split.shares[result] = *share;
      return split.ops.insert(op);
    }
    std::optional<Share> share =
        op->getNumResults() == 1 &&
                isa<RankedTensorType>(op->getResult(0).getType())
            ? getResultShare(op)
            : std::nullopt;
    if (!share)
      return false;
    split.shares[op->getResult(0)] = *share;
    return split.ops.insert(op);
  }

  bool addLoop(WhileView loop) {
    size_t shares = split.shares.size(), ops = split.ops.size();
    for (unsigned i = 0; i < loop.getNumCarried(); ++i)
      if (std::optional<Share> init = find(loop.getInit(i)))
        for (Value value :
             {Value(loop.getCarried(i)), Value(loop.getConditionArgument(i)),
              Value(loop.getResult(i))})
          split.shares[value] = *init;
    auto readsInside = [&](Operation &op) {
      return containsOp(&op, [&](Operation *inner) { return reads(inner); });
    };
    // Devices that run other numbers of iterations have parts of different
    // tensors.
    bool isKnown =
        llvm::none_of(loop.getCondition(), readsInside) &&
        llvm::all_of(loop.getPredicates(),
                     [&](Value predicate) {
                       return sameValues.contains(predicate, split.groups);
                     }) &&
        llvm::all_of(loop.getBody(),
                     [&](Operation &op) {
                       return &op == loop.getYield() || !readsInside(op) ||
                              add(&op);
                     }) &&
        llvm::all_of(llvm::seq(loop.getNumCarried()), [&](unsigned i) {
          return find(loop.getCarried(i)) == find(loop.getNext(i));
        });
    if (isKnown)
      return split.ops.insert(loop.getOperation());
    while (split.shares.size() > shares)
      split.shares.pop_back();
    while (split.ops.size() > ops)
      split.ops.pop_back();
    return false;
  }

  std::optional<Share> getResultShare(Operation *op) {
    if (std::optional<CollectiveKind> kind = getGuestCollective(op))
      return getCollectiveShare(op, *kind);
    if (isMatrixProduct(op))
      return getProductShare(op);
    std::optional<Share> first = find(op->getOperand(0));
    if (isNamed(op, guest::kDynamicSlice))
      return first && first->kind == Kind::Whole ? getSliceShare(op)
                                                 : std::nullopt;
    if (isNamed(op, guest::kReduce))
      return first ? getReducedShare(op, *first) : std::nullopt;
    if (isRearrangement(op) || isNamed(op, guest::kBroadcastInDim))
      return first ? getMovedShare(op, *first) : std::nullopt;
    return isElementwise(op) ? getElementwiseShare(op) : std::nullopt;
  }

  bool hasGroups(Operation *collective) const {
    std::string error;
    return readReplicaGroups(collective, error) == split.groups;
  }

  std::optional<Share> getCollectiveShare(Operation *op, CollectiveKind kind) {
    std::optional<Share> share = find(op->getOperand(0));
    if (op->getNumOperands() != 1 || !hasGroups(op))
      return std::nullopt;
    Share wanted{Kind::Slice, getCollectiveDim(op)};
    if (kind == CollectiveKind::AllGather && share == wanted)
      return Share{Kind::Whole};
    if (share != Share{Kind::Summand} || !isSum(op))
      return std::nullopt;
    if (kind == CollectiveKind::AllReduce)
      return Share{Kind::Whole};
    return kind == CollectiveKind::ReduceScatter ? std::optional(wanted)
                                                 : std::nullopt;
  }

  std::optional<Share> getProductShare(Operation *op) {
    std::optional<Share> shares[] = {getOperandShare(op->getOperand(0)),
                                     getOperandShare(op->getOperand(1))};
    std::optional<ProductDims> dims[] = {getProductDims(op, 0),
                                         getProductDims(op, 1)};
    if (!shares[0] || !shares[1] || !dims[0] || !dims[1])
      return std::nullopt;
    auto isSlice = [&](unsigned i) { return shares[i]->kind == Kind::Slice; };
    // A splat that follows from nothing has the shape that it had.
    auto isWhole = [&](unsigned i) {
      return shares[i]->kind == Kind::Whole ||
             (shares[i]->kind == Kind::Splat && !find(op->getOperand(i)));
    };
    if (isWhole(0) && isWhole(1))
      return Share{Kind::Whole};
    auto getPlace = [&](unsigned i, ArrayRef<int64_t> among) {
      const auto *place = llvm::find(among, shares[i]->dim);
      return place == among.end() ? -1 : place - among.begin();
    };
    if (isSlice(0) && isSlice(1)) {
      int64_t place = getPlace(0, dims[0]->summed);
      if (place >= 0 && place == getPlace(1, dims[1]->summed))
        return Share{Kind::Summand};
      place = getPlace(0, dims[0]->batching);
      return place >= 0 && place == getPlace(1, dims[1]->batching)
                 ? std::optional(Share{Kind::Slice, place})
                 : std::nullopt;
    }
    for (unsigned i : {0, 1})
      if (isSlice(i) && isWhole(1 - i) && getPlace(i, dims[i]->summed) < 0 &&
          getPlace(i, dims[i]->batching) < 0)
        if (std::optional<int64_t> dim = getProductDim(op, i, shares[i]->dim))
          return Share{Kind::Slice, *dim};
    return std::nullopt;
  }

  /// Returns the share of what a device cuts out of all of a tensor.
  std::optional<Share> getSliceShare(Operation *op) {
    std::string error;
    std::optional<PartitionSlice> slice = tables.getSlice(op, error);
    return slice && slice->isInOrderOf(split.groups)
               ? std::optional(Share{Kind::Slice, slice->dim})
               : std::nullopt;
  }

  std::optional<Share> getReducedShare(Operation *op, const Share &share) {
    auto dims = op->getAttrOfType<DenseI64ArrayAttr>("dimensions");
    if (op->getNumOperands() != 2 || !dims ||
        split.shares.contains(op->getOperand(1)))
      return std::nullopt;
    if (share.kind == Kind::Slice &&
        llvm::is_contained(dims.asArrayRef(), share.dim))
      return isSum(op) && isZeros(op->getOperand(1))
                 ? std::optional(Share{Kind::Summand})
                 : std::nullopt;
    if (!sameValues.contains(op->getOperand(1), split.groups))
      return std::nullopt;
    if (share.kind == Kind::Slice)
      return getMovedShare(op, share);
    return share.kind == Kind::Whole ? std::optional(share) : std::nullopt;
  }

  std::optional<Share> getMovedShare(Operation *op, const Share &share) {
    bool isBroadcast = isNamed(op, guest::kBroadcastInDim);
    if (share.kind == Kind::Slice) {
      std::optional<int64_t> dim = getMovedDim(op, 0, share.dim);
      return dim ? std::optional(Share{Kind::Slice, *dim}) : std::nullopt;
    }
    if (!isBroadcast)
      return share.kind == Kind::Splat ? std::nullopt : std::optional(share);
    RankedTensorType from = getTensorType(op->getOperand(0));
    RankedTensorType to = getTensorType(op->getResult(0));
    if (share.kind != Kind::Whole || from.getNumElements() != 1)
      return std::nullopt;
    return Share{to.getNumElements() == 1 ? Kind::Whole : Kind::Splat};
  }

  std::optional<Share> getElementwiseShare(Operation *op) {
    std::optional<Share> found;
    for (Value operand : op->getOperands())
      if (std::optional<Share> share = find(operand);
          share && share->kind == Kind::Slice)
        found = share;
    for (Value operand : op->getOperands()) {
      std::optional<Share> share = getOperandShare(operand);
      if (!share || share->kind == Kind::Summand)
        return std::nullopt;
      if (found && found->kind == Kind::Slice && !find(operand) &&
          isSplatAlong(operand, found->dim))
        continue;
      if (share->kind == Kind::Splat) {
        // What a loop or a barrier hands on keeps its shape.
        if (!getSplat(operand))
          return std::nullopt;
        continue;
      }
      if (found && *found != *share)
        return std::nullopt;
      found = share;
    }
    return found;
  }

  /// Takes what all devices have alike as whole, or, if its elements are alike,
  /// too, as of any shape.
  std::optional<Share> getOperandShare(Value operand) {
    if (std::optional<Share> share = find(operand))
      return share;
    if (!sameValues.contains(operand, split.groups))
      return std::nullopt;
    return Share{getSplat(operand) ? Kind::Splat : Kind::Whole};
  }

  SplitProducts &split;
  PartitionTables &tables;
  SameValues &sameValues;
};
} // namespace

void zpp::followShares(SplitProducts &split, PartitionTables &tables,
                       SameValues &sameValues,
                       llvm::DenseSet<Operation *> excluded) {
  ShareFlow(split, tables, sameValues).run(std::move(excluded));
}

void zpp::resizeSplats(Operation *op, const SplitProducts &split,
                       int64_t size) {
  if (!isElementwise(op))
    return;
  int64_t dim = split.shares.lookup(op->getResult(0)).dim;
  int64_t rank = cast<ShapedType>(op->getResult(0).getType()).getRank();
  for (OpOperand &operand : op->getOpOperands()) {
    auto share = split.shares.find(operand.get());
    bool isSplat =
        share == split.shares.end() || share->second.kind == Kind::Splat;
    // Those of a clamp may be scalars.
    if (isSplat && isSplatAlong(operand.get(), dim) &&
        cast<ShapedType>(operand.get().getType()).getRank() == rank)
      resizeSplat(operand, dim, size);
  }
}

//===----------------------------------------------------------------------===//
// Products of a matrix with itself
//===----------------------------------------------------------------------===//

/// The values that `value` is a rearrangement or a gather of, itself first.
static SmallVector<Value> getSources(Value value) {
  SmallVector<Value> sources{value};
  while (Operation *op = sources.back().getDefiningOp()) {
    if (op->getNumOperands() != 1 ||
        (!isRearrangement(op) &&
         getGuestCollective(op) != CollectiveKind::AllGather))
      break;
    sources.push_back(op->getOperand(0));
  }
  return sources;
}

/// The dim of the last of `values`, each made of the next one, that becomes dim
/// `dim` of the first one.
static std::optional<int64_t> traceDim(ArrayRef<Value> values, int64_t dim) {
  std::optional<int64_t> traced = dim;
  for (Value value : values.drop_back())
    if (traced)
      traced = getSourceDim(value.getDefiningOp(), 0, *traced);
  return traced;
}

/// The first collective of a product of two tensors that are made of the last
/// ones of `sources`: a gather there, or the sum of the product.
static Operation *findCollective(Operation *product,
                                 ArrayRef<ArrayRef<Value>> sources) {
  for (ArrayRef<Value> values : sources)
    for (Value value : llvm::reverse(values.drop_back()))
      if (Operation *op = value.getDefiningOp(); getGuestCollective(op))
        return op;
  for (Operation *user : product->getUsers())
    if (getGuestCollective(user) == CollectiveKind::AllReduce ||
        getGuestCollective(user) == CollectiveKind::ReduceScatter)
      return user;
  return nullptr;
}

/// True if each of `devices` devices is in one of `groups`, of the same number
/// of devices, more than one.
static bool isPartition(const ReplicaGroups &groups, int64_t devices) {
  llvm::DenseSet<int64_t> all;
  for (const std::vector<int64_t> &group : groups)
    for (int64_t device : group)
      if (group.size() < 2 || group.size() != groups.front().size() ||
          device < 0 || device >= devices || !all.insert(device).second)
        return false;
  return static_cast<int64_t>(all.size()) == devices;
}

/// The slice of a matrix that `product` is one of with itself; nullopt if there
/// is none.
static std::optional<SplitProducts> readGram(Operation *product,
                                             int64_t devices) {
  SmallVector<Value> left = getSources(product->getOperand(0));
  SmallVector<Value> right = getSources(product->getOperand(1));
  auto *place = llvm::find_if(
      left, [&](Value value) { return llvm::is_contained(right, value); });
  if (place == left.end())
    return std::nullopt;
  Value slice = *place;
  auto cut = [&](ArrayRef<Value> values) {
    return values.take_front(llvm::find(values, slice) - values.begin() + 1);
  };
  ArrayRef<Value> sources[] = {cut(left), cut(right)};
  Operation *collective = findCollective(product, sources);
  if (!collective || collective->getNumOperands() != 1)
    return std::nullopt;
  std::optional<int64_t> dim;
  if (getGuestCollective(collective) == CollectiveKind::AllGather) {
    SmallVector<Value> of = getSources(collective->getOperand(0));
    dim = traceDim(cut(of), getCollectiveDim(collective));
  } else if (std::optional<ProductDims> dims = getProductDims(product, 0);
             dims && dims->summed.size() == 1) {
    dim = traceDim(sources[0], dims->summed.front());
  }
  std::string error;
  std::optional<ReplicaGroups> groups = readReplicaGroups(collective, error);
  if (!dim || !groups || !isPartition(*groups, devices))
    return std::nullopt;
  // What a loop begins with.
  while (auto carried = dyn_cast<BlockArgument>(slice)) {
    WhileView loop = WhileView::get(carried.getOwner()->getParentOp());
    if (!loop)
      break;
    slice = loop.getInit(carried.getArgNumber());
  }
  return SplitProducts{product, slice, *dim, std::move(*groups), {}, {}};
}

std::vector<SplitProducts> zpp::findSplitProducts(ModuleOp module) {
  std::vector<SplitProducts> found;
  ModuleCopies copies = getModuleCopies(module);
  if (copies.replicas != 1)
    return found;
  PartitionTables tables(copies.partitions);
  SameValues sameValues;
  AutomaticAxes automatic;
  llvm::DenseSet<Operation *> known;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (!isMatrixProduct(op) || known.contains(op) ||
        op->getNumOperands() != 2 || !automatic.get(op).empty())
      return;
    std::optional<SplitProducts> split = readGram(op, copies.partitions);
    if (!split)
      return;
    // Only one of two can change an op, or the value that it begins with. What
    // follows from both, they have whole.
    followShares(*split, tables, sameValues, known);
    bool isOfOther = llvm::any_of(found, [&](const SplitProducts &other) {
      return other.slice != split->slice && other.shares.contains(split->slice);
    });
    if (!split->ops.contains(op) || isOfOther)
      return;
    known.insert(split->ops.begin(), split->ops.end());
    found.push_back(std::move(*split));
  });
  return found;
}
