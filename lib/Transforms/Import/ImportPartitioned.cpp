//===- ImportPartitioned.cpp - Scatters of XLA's partitioner --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "PartitionerOutput.h"
#include "SplitBuckets.h"
#include "StepInliner.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Dialect/Guest/DimFlow.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

#include <map>

namespace zpp {
#define GEN_PASS_DEF_IMPORTPARTITIONEDPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

namespace {

/// The groups of an all-reduce of which every device reads only a slice.
struct SlicedGroups {
  /// The devices that have all slices among them, in the order of these.
  ReplicaGroups scatter;
  /// The devices that have the same slice; empty if each has its own.
  ReplicaGroups replicas;

  bool operator!=(const SlicedGroups &other) const {
    return scatter != other.scatter || replicas != other.replicas;
  }
};

/// An all-reduce of which every device reads only slices.
struct Scatter {
  Operation *allReduce;
  /// The dim of the all-reduced tensor that is sliced.
  int64_t dim;
  SlicedGroups groups;
  /// The slices, each with the ops between the all-reduce and the slice.
  SmallVector<std::pair<Operation *, SmallVector<Operation *>>> slices;
};

class ImportPartitionedPass
    : public zpp::impl::ImportPartitionedPassBase<ImportPartitionedPass> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    // A shard_map in the step is a function, whose caller may take the slices.
    bool isFromPartitioner = isPartitioned(module);
    if (isFromPartitioner && failed(inlineStep(module)))
      return signalPassFailure();
    eraseXlaCopies(module);
    if (isFromPartitioner)
      reshapeUnitSums(module);
    recomputeSavedSlices(module, [&](Operation *slice) {
      remarkPassed(slice, getArgument(), "rewritten")
          << "a slice that a loop has saved is made again where it is gathered";
    });
    // Offsets are known only if partitions are devices.
    ModuleCopies copies = getModuleCopies(module);
    if (copies.replicas != 1)
      return;
    PartitionTables tables(copies.partitions);
    SmallVector<Operation *> allReduces;
    AutomaticAxes automatic;
    SplitBuckets buckets(module);
    std::optional<ModuleMesh> mesh = getFirstMesh(module);
    std::map<SmallVector<const void *>, Attribute> listed;
    module.walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (mesh && getGuestCollective(op)) {
        // Most collectives have the same groups.
        auto [place, isNew] = listed.try_emplace(getReplicaGroupsKey(op));
        if (isNew) {
          listReplicaGroups(op, *mesh);
          place->second = op->getAttr("replica_groups");
        } else if (place->second) {
          op->setAttr("replica_groups", place->second);
        }
      }
      if (getGuestCollective(op) == CollectiveKind::AllReduce &&
          op->getNumOperands() == 1 && op->getNumResults() == 1 &&
          op->getOperandTypes() == op->getResultTypes() && isSum(op) &&
          automatic.get(op).empty())
        allReduces.push_back(op);
      // What is in the sum of two elements goes with that.
      return getGuestCollective(op) ? WalkResult::skip()
                                    : WalkResult::advance();
    });
    noteGroupMesh(module);
    if (isFromPartitioner)
      mergeSums(allReduces);
    llvm::SmallPtrSet<Operation *, 8> rewritten;
    for (Operation *allReduce : allReduces) {
      std::string error;
      if (std::optional<Scatter> scatter = read(allReduce, tables, error)) {
        rewritten.insert(allReduce);
        rewrite(*scatter);
      } else if (!error.empty()) {
        remarkMissed(allReduce, getArgument(), "left-alone")
            << "an all-reduce is not imported as a reduce-scatter: " + error;
      }
    }
    buckets.restore([&](Operation *part) { return rewritten.contains(part); });
    if (!isFromPartitioner)
      return;
    foldTransposesOfSums(module, [&](Operation *sum) {
      remarkPassed(sum, getArgument(), "rewritten")
          << "the operands of a product are exchanged, so that its sum is not "
             "transposed";
    });
    advanceSums(module);
  }

private:
  /// True if a partitioner has cut tensors by the number of the device.
  static bool isPartitioned(ModuleOp module) {
    return containsOp(
        module, [](Operation *op) { return isNamed(op, guest::kPartitionId); });
  }

  /// Returns the mesh of the step. Other meshes were made up by the partitioner
  /// and are not in scope when the step is compiled again.
  static std::optional<ModuleMesh> getFirstMesh(ModuleOp module) {
    for (Operation &op : module.getOps())
      if (std::optional<ModuleMesh> mesh = getModuleMesh(&op))
        return mesh;
    return std::nullopt;
  }

  //===--------------------------------------------------------------------===//
  // Sums of sums
  //===--------------------------------------------------------------------===//

  /// The gradient of a weight that is used twice, as a tied embedding is, is
  /// the sum of two. The partitioner sums each over the devices, and adds them
  /// then. Here they are added first. XLA does this, too, but after the
  /// partitioner.
  void mergeSums(SmallVectorImpl<Operation *> &allReduces) {
    llvm::SetVector<Operation *> known(allReduces.begin(), allReduces.end());
    llvm::SmallPtrSet<Operation *, 8> merged;
    SmallVector<Operation *> adds;
    // A sum that is made here may be added to another one.
    for (size_t i = 0; i < known.size(); ++i) {
      Operation *add =
          merged.contains(known[i]) ? nullptr : getOnlyReader(known[i]);
      if (!add || !isNamed(add, guest::kAdd) || add->getNumOperands() != 2 ||
          add->getNumResults() != 1)
        continue;
      Operation *lhs = getConverted(add->getOperand(0));
      Operation *rhs = getConverted(add->getOperand(1));
      if (!known.contains(lhs) || !known.contains(rhs) ||
          getOnlyReader(lhs) != add || getOnlyReader(rhs) != add ||
          !canMerge(lhs, rhs, add))
        continue;
      known.insert(mergeSums(lhs, rhs, add));
      merged.insert_range(ArrayRef{lhs, rhs});
      adds.push_back(add);
    }
    for (Operation *add : adds)
      eraseIfDead(Value(add->getResult(0)));
    allReduces = llvm::filter_to_vector(
        known, [&](Operation *op) { return !merged.contains(op); });
  }

  /// Whether these are sums of floating-point tensors over the same devices.
  static bool canMerge(Operation *lhs, Operation *rhs, Operation *add) {
    auto type = dyn_cast<RankedTensorType>(add->getResultTypes().front());
    if (!type || type.getRank() == 0)
      return false;
    for (Operation *op : {lhs, rhs, add}) {
      auto other = dyn_cast<RankedTensorType>(op->getResultTypes().front());
      if (op->getBlock() != add->getBlock() || !other ||
          other.getShape() != type.getShape() ||
          !isa<FloatType>(other.getElementType()))
        return false;
    }
    std::string error;
    std::optional<ReplicaGroups> groups = readReplicaGroups(lhs, error);
    return groups && groups == readReplicaGroups(rhs, error);
  }

  /// The sum of the two, in the type of the most precise of the three.
  Operation *mergeSums(Operation *lhs, Operation *rhs, Operation *add) {
    IRRewriter builder(add);
    StablehloBuilder stablehlo(builder, lhs->getLoc());
    Type element = getElementTypeOrSelf(add->getResult(0));
    for (Operation *op : {lhs, rhs}) {
      auto other = cast<FloatType>(getElementTypeOrSelf(op->getResult(0)));
      unsigned width = element.getIntOrFloatBitWidth();
      if (other.getWidth() > width)
        element = other;
      else if (other.getWidth() == width && other != element)
        element = stablehlo.f32();
    }
    std::string error;
    Operation *sum = stablehlo.allReduce(
        stablehlo.elementwise("add",
                              {stablehlo.convert(lhs->getOperand(0), element),
                               stablehlo.convert(rhs->getOperand(0), element)}),
        writeGroups(getOperation(), *readReplicaGroups(lhs, error)).attr);
    add->getResult(0).replaceAllUsesWith(stablehlo.convert(
        sum->getResult(0), getElementTypeOrSelf(add->getResult(0))));
    remarkPassed(sum, getArgument(), "rewritten")
        << "two sums over the same devices that are added become one";
    return sum;
  }

  //===--------------------------------------------------------------------===//
  // Sums of which each device reads a slice
  //===--------------------------------------------------------------------===//

  /// Finds the slices of `value` and the ops on the way. Returns false if
  /// `value` has other readers.
  static bool findSlices(
      Value value, SmallVector<Operation *> &path, PartitionTables &tables,
      SmallVectorImpl<std::pair<PartitionSlice, SmallVector<Operation *>>>
          &slices,
      std::string &error) {
    bool isSliced = !value.use_empty();
    llvm::SetVector<Operation *> users(value.user_begin(), value.user_end());
    for (Operation *user : users) {
      if (std::optional<PartitionSlice> slice = tables.getSlice(user, error)) {
        slices.push_back({*slice, path});
        continue;
      }
      // A scalar has no dim 0 and cannot be sliced.
      bool isTransparent =
          user->getNumResults() == 1 &&
          isa<RankedTensorType>(value.getType()) &&
          getTensorType(value).getRank() > 0 &&
          (user->getNumOperands() == 1 ? isCast(user) : scales(user, value));
      if (!isTransparent) {
        isSliced = false;
        continue;
      }
      path.push_back(user);
      isSliced &= findSlices(user->getResult(0), path, tables, slices, error);
      path.pop_back();
    }
    return isSliced;
  }

  /// True for a cast, a transpose, or a reshape that only adds or drops dims of
  /// size 1.
  static bool isCast(Operation *op) {
    if (!isConsistentMovement(op))
      return false;
    RankedTensorType type = getTensorType(op->getOperand(0));
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      if (type.getDimSize(dim) != 1 && getResultDim(op, dim))
        return true;
    return false;
  }

  /// True if `op` works on each element of `value` alone: its other operands
  /// are the same everywhere.
  static bool scales(Operation *op, Value value) {
    return isElementwise(op) &&
           llvm::all_of(op->getOperands(), [&](Value operand) {
             return operand == value || getSplat(operand);
           });
  }

  /// Maps dim `dim` of the result of `op`, an op between an all-reduce and its
  /// slices, to one of its operand; and the other way round.
  static std::optional<int64_t> mapToOperand(Operation *op, int64_t dim) {
    return op->getNumOperands() > 1 ? dim : getOperandDim(op, dim);
  }
  static std::optional<int64_t> mapToResult(Operation *op, int64_t dim) {
    return op->getNumOperands() > 1 ? dim : getResultDim(op, dim);
  }

  /// Matches an all-reduce whose slices are those of a reduce-scatter. If there
  /// are slices but they do not match, sets `error`.
  static std::optional<Scatter> read(Operation *op, PartitionTables &tables,
                                     std::string &error) {
    SmallVector<std::pair<PartitionSlice, SmallVector<Operation *>>> slices;
    SmallVector<Operation *> path;
    bool isSliced = findSlices(op->getResult(0), path, tables, slices, error);
    if (slices.empty())
      return std::nullopt;
    if (!isSliced) {
      if (error.empty())
        error = "some of its readers need the whole sum; a norm of it can be "
                "the psum of the squares of scattered parts";
      return std::nullopt;
    }
    std::optional<ReplicaGroups> groups = readReplicaGroups(op, error);
    if (!groups)
      return std::nullopt;
    Scatter scatter{op, -1, {}, {}};
    RankedTensorType whole = getTensorType(op->getResult(0));
    for (auto &[slice, between] : slices) {
      std::optional<int64_t> dim = slice.dim;
      for (Operation *step : llvm::reverse(between))
        if (dim)
          dim = mapToOperand(step, *dim);
      if (!dim || (scatter.dim >= 0 && scatter.dim != *dim)) {
        error = "its slices are not all of one dim";
        return std::nullopt;
      }
      scatter.dim = *dim;
      int64_t size = cast<ShapedType>(slice.op->getResult(0).getType())
                         .getDimSize(slice.dim);
      std::optional<SlicedGroups> ordered =
          splitGroups(*groups, slice.offsets, size, whole.getDimSize(*dim));
      if (!ordered || (!scatter.slices.empty() && *ordered != scatter.groups)) {
        error = ordered ? "its slices are not all the same"
                        : "its slices do not match its groups";
        return std::nullopt;
      }
      scatter.groups = *ordered;
      scatter.slices.push_back({slice.op, between});
    }
    return scatter;
  }

  /// Splits `groups` by the slices of their devices; nullopt if some slice of a
  /// group has fewer devices than others, or none.
  static std::optional<SlicedGroups> splitGroups(const ReplicaGroups &groups,
                                                 ArrayRef<int64_t> offsets,
                                                 int64_t size, int64_t whole) {
    if (size == 0 || whole % size != 0 || whole == size)
      return std::nullopt;
    int64_t count = whole / size;
    SlicedGroups result;
    for (const std::vector<int64_t> &group : groups) {
      if (group.empty() || group.size() != groups[0].size() ||
          group.size() % count != 0)
        return std::nullopt;
      size_t copies = group.size() / count;
      // The devices of each slice.
      ReplicaGroups slices(count);
      for (int64_t device : group) {
        if (device < 0 || device >= static_cast<int64_t>(offsets.size()) ||
            offsets[device] % size != 0)
          return std::nullopt;
        slices[offsets[device] / size].push_back(device);
      }
      for (std::vector<int64_t> &devices : slices) {
        if (devices.size() != copies)
          return std::nullopt;
        // Those that are alike in the other axes of the mesh get together.
        llvm::sort(devices);
      }
      for (size_t copy = 0; copy < copies; ++copy) {
        std::vector<int64_t> &all = result.scatter.emplace_back();
        for (const std::vector<int64_t> &devices : slices)
          all.push_back(devices[copy]);
      }
      if (copies > 1)
        llvm::append_range(result.replicas, std::move(slices));
    }
    return result;
  }

  /// `op`, which scales the whole, on a part of it: `size` of dim `dim`.
  static Value scalePart(IRRewriter &builder, Operation *op, Value part,
                         int64_t dim, int64_t size) {
    StablehloBuilder stablehlo(builder, op->getLoc());
    Operation *scaled = op->clone();
    for (OpOperand &operand : scaled->getOpOperands())
      operand.set(getSplat(operand.get())
                      ? stablehlo.slice(operand.get(), dim, 0, size)
                      : part);
    scaled->getResult(0).setType(
        resizeDim(op->getResult(0).getType(), dim, size));
    return builder.insert(scaled)->getResult(0);
  }

  void rewrite(const Scatter &scatter) {
    Operation *op = scatter.allReduce;
    IRRewriter builder(op);
    StablehloBuilder stablehlo(builder, op->getLoc());
    const auto &[groups, replicas] = scatter.groups;
    ModuleOp module = getOperation();
    Value part = stablehlo
                     .reduceScatter(op->getOperand(0),
                                    writeGroups(module, groups), scatter.dim)
                     ->getResult(0);
    if (!replicas.empty())
      part = stablehlo.allReduce(part, writeGroups(module, replicas).attr)
                 ->getResult(0);
    int64_t size = cast<ShapedType>(part.getType()).getDimSize(scatter.dim);
    llvm::DenseMap<Operation *, Value> built;
    for (const auto &[slice, between] : scatter.slices) {
      Value value = part;
      int64_t dim = scatter.dim;
      for (Operation *step : between) {
        dim = *mapToResult(step, dim);
        Value &known = built[step];
        if (!known) {
          builder.setInsertionPoint(step);
          known = step->getNumOperands() > 1
                      ? scalePart(builder, step, value, dim, size)
                      : buildOnPart(builder, step, value, dim, size);
        }
        value = known;
      }
      slice->getResult(0).replaceAllUsesWith(value);
    }
    for (const auto &[slice, between] : scatter.slices)
      eraseIfDead(Value(slice->getResult(0)));
    remarkPassed(part.getDefiningOp(), getArgument(), "rewritten")
        << (replicas.empty()
                ? "an all-reduce of which each device takes a slice becomes a "
                  "reduce-scatter"
                : "an all-reduce of which several devices take the same slice "
                  "becomes a reduce-scatter, and an all-reduce of the slice");
  }
};

} // namespace
