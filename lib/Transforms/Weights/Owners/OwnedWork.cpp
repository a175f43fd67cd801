//===- OwnedWork.cpp - What devices compute of gathered momenta -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Owners/OwnedWork.h"

#include "mlir/IR/SymbolTable.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

RankedTensorType OwnedWork::getWholeType() const {
  return getTensorType(whole);
}

RankedTensorType OwnedWork::getResultType() const {
  return getTensorType(result);
}

std::vector<AxisRef> OwnedWork::getAxes() const {
  return AllGatherOp(gather).getAxisRefs();
}

//===----------------------------------------------------------------------===//
// Computation
//===----------------------------------------------------------------------===//

/// True if `op` is one that gives each device its own part of its operand, such
/// as a border of a manual computation, or of which nothing is known.
static bool isOfDevice(Operation *op) {
  return isNamed(op, guest::kCustomCall) ||
         op->getName().getDialectNamespace() != "stablehlo";
}

/// True if `root`, and all ops in it, compute their results of their operands
/// and of nothing else, so that all devices with the same operands have the
/// same results. With `mayCall`, functions that they call may do other things.
static bool isComputation(Operation *root, bool mayCall = false) {
  return !containsOp(root, [&](Operation *op) {
    if (isa<func::CallOp>(op))
      return !mayCall;
    return isOfDevice(op) ||
           (!isDeterministic(op) && getProductFlops(op) == 0 &&
            !isBarrier(op) && !isNamed(op, guest::kReduce) && !isWhile(op) &&
            !isNamed(op, guest::kReturn));
  });
}

/// Calls `handle` with each value that `op`, or an op in it, reads from
/// outside of `op`.
static void forEachRead(Operation *op, llvm::function_ref<void(Value)> handle) {
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (!op->isAncestor(operand.getParentBlock()->getParentOp()))
        handle(operand);
  });
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

OwnedWorks::OwnedWorks(ModuleOp module)
    : copies(getModuleCopies(module)), tables(copies.partitions) {}

/// The dim in which `use` cuts out the slice of a value that belongs to the
/// device, as the gather has them; nullopt if it does not.
std::optional<int64_t> OwnedWorks::getOwnSliceDim(OpOperand &use,
                                                  const OwnedWork &work) {
  std::string error;
  if (use.getOperandNumber() != 0)
    return std::nullopt;
  std::optional<PartitionSlice> slice = tables.getSlice(use.getOwner(), error);
  Mesh mesh = AllGatherOp(work.gather).getMeshAttr().getMesh();
  return slice && slice->isInOrderOf(mesh.getGroups(work.getAxes()))
             ? std::optional(slice->dim)
             : std::nullopt;
}

/// Returns the first op of `work` that reads what devices may have differently;
/// null if there is none.
Operation *OwnedWorks::findOtherReader(const OwnedWork &work) {
  llvm::DenseSet<Operation *> own(work.ops.begin(), work.ops.end());
  ReplicaGroups groups = AllGatherOp(work.gather)
                             .getMeshAttr()
                             .getMesh()
                             .getGroups(work.getAxes());
  for (Operation *op : work.ops) {
    bool differs = false;
    forEachRead(op, [&](Value value) {
      differs |= !differs && value != work.whole &&
                 !own.contains(value.getDefiningOp()) &&
                 !sameValues.contains(value, groups);
    });
    if (differs)
      return op;
  }
  return nullptr;
}

Decision<OwnedWork> OwnedWorks::read(AllGatherOp gather) {
  ShardType from = gather.getOperand().getType();
  OwnedWork work{gather, {}, {}, {}, {}, -1};
  int64_t devices = gather.getMeshAttr().getMesh().numDevices();
  if (copies.replicas != 1 || copies.partitions != devices)
    return LeftAlone("the module is not for " + std::to_string(devices) +
                     " partitions, and nothing tells their slices");
  if (!gather->hasOneUse() || from.getQuant() || !gather.getType().isWhole() ||
      ArrayRef(work.getAxes()) != ArrayRef(from.getAxes()) ||
      from.getAxes().size() != from.getFactors().size())
    return LeftAlone("it is one of several hops");
  auto border = dyn_cast<ToLocalOp>(*gather->user_begin());
  if (!border)
    return LeftAlone("it is one of several hops");
  work.whole = border.getLocal();
  Block *block = border->getBlock();
  llvm::SetVector<Operation *> ops;
  SmallVector<Value> pending{work.whole};
  bool isOneResult = true;
  while (!pending.empty())
    for (OpOperand &use : pending.pop_back_val().getUses()) {
      Operation *op = block->findAncestorOpInBlock(*use.getOwner());
      std::optional<int64_t> dim =
          op == use.getOwner() ? getOwnSliceDim(use, work) : std::nullopt;
      if (dim) {
        if (work.slices.empty()) {
          work.result = use.get();
          work.dim = *dim;
        }
        isOneResult &= use.get() == work.result && *dim == work.dim;
        work.slices.push_back(op);
        continue;
      }
      if (!isComputation(op))
        return LeftAlone("all devices need all of what follows from it, for " +
                         op->getName().getStringRef().str());
      if (ops.insert(op))
        llvm::append_range(pending, op->getResults());
    }
  if (work.slices.empty())
    return LeftAlone("devices take no slice of what follows from it");
  if (!isOneResult)
    return LeftAlone("devices take slices of several tensors that follow "
                     "from it");
  if (work.result == work.whole)
    return LeftAlone("nothing is computed of it");
  work.ops = ops.takeVector();
  llvm::sort(work.ops,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  if (Operation *differs = findOtherReader(work))
    return LeftAlone("what follows from it is made of other things, too, which "
                     "devices may have differently, in " +
                     differs->getName().getStringRef().str() +
                     ": alike are constants, and replicated arguments that the "
                     "step returns as they are or as all devices compute them");
  return work;
}

//===----------------------------------------------------------------------===//
// Likeness
//===----------------------------------------------------------------------===//

bool zpp::isSameWork(const OwnedWork &a, const OwnedWork &b,
                     ProvenanceAnalysis &provenances) {
  AllGatherOp left = a.gather, right = b.gather;
  if (left.getOperand().getType() != right.getOperand().getType() ||
      left.getAlong() != right.getAlong() || a.dim != b.dim ||
      a.ops.size() != b.ops.size() || left->getBlock() != right->getBlock())
    return false;
  llvm::DenseMap<Value, Value> same{{a.whole, b.whole}};
  for (auto [x, y] : llvm::zip_equal(a.ops, b.ops))
    if (!OperationEquivalence::isEquivalentTo(
            x, y,
            [&](Value left, Value right) {
              auto known = same.find(left);
              return success(known == same.end()
                                 ? provenances.areEqual(left, right)
                                 : known->second == right);
            },
            [&](Value left, Value right) { same[left] = right; },
            OperationEquivalence::IgnoreLocations))
      return false;
  return same.lookup(a.result) == b.result;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// The function that `call` calls, if its ops are a computation, or calls of
/// others; null otherwise.
static func::FuncOp getComputation(func::CallOp call) {
  func::FuncOp callee = getCallee(call);
  if (!callee || callee->isAncestor(call))
    return {};
  for (Operation &op : callee.getBody().front().without_terminator())
    if (!isComputation(&op, /*mayCall=*/true))
      return {};
  return callee;
}

void zpp::inlineWork(AllGatherOp gather) {
  // A function that calls itself by way of others is not worth more.
  constexpr int kMostRounds = 16;
  for (int round = 0; round < kMostRounds; ++round) {
    llvm::SetVector<Operation *> readers;
    readers.insert(gather);
    SmallVector<std::pair<func::CallOp, func::FuncOp>> calls;
    for (size_t i = 0; i < readers.size(); ++i)
      for (Operation *user : readers[i]->getUsers()) {
        Operation *op = gather->getBlock()->findAncestorOpInBlock(*user);
        if (!op || !readers.insert(op))
          continue;
        op->walk([&](func::CallOp call) {
          if (func::FuncOp callee = getComputation(call))
            calls.push_back({call, callee});
        });
      }
    for (auto [call, callee] : calls)
      inlineCall(call, callee);
    if (calls.empty())
      return;
  }
}
