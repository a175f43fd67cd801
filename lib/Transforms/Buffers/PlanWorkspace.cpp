//===- PlanWorkspace.cpp - Temporary buffers in one workspace -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `Sharing` decides for each pair of buffers whether they may share memory,
// from the ops that access them. `place` then assigns offsets by size alone.
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Buffers/RankFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/Transforms/BufferViewFlowAnalysis.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "zpp/Support/Limits.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/BitVector.h"

namespace zpp {
#define GEN_PASS_DEF_PLANWORKSPACEPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

/// The size of the best memory accesses of GPUs. A multiple of the alignment of
/// wire chunks.
static constexpr int64_t kAlignment = 256;

/// The maximal size of a part. It is so small that sums of parts cannot
/// overflow.
static constexpr int64_t kMaxBytes = int64_t(1) << 48;

namespace {
/// A part of the workspace: an allocation, or the workspace of a callee.
struct Part {
  Operation *op;
  int64_t bytes;
  /// The ops that read or write it.
  SmallVector<Operation *> users;
  /// The innermost block around `op` and all users.
  Block *block;
  int64_t offset = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// Which parts may share memory
//===----------------------------------------------------------------------===//

/// Returns the ancestor of `op` in `block`, or null.
static Operation *getAncestor(Block *block, Operation *op) {
  return block->findAncestorOpInBlock(*op);
}

/// Returns the innermost block that contains both.
static Block *getCommonBlock(Block *block, Operation *op) {
  while (!getAncestor(block, op))
    block = block->getParentOp()->getBlock();
  return block;
}

namespace {
/// The arguments that a function reads and writes.
struct ArgumentEffects {
  llvm::SmallDenseSet<unsigned> reads, writes;
};

/// The arguments, allocations and constants of a function that ops read and
/// write.
class BufferEffects {
public:
  using Callees = DenseMap<Operation *, ArgumentEffects>;

  BufferEffects(func::FuncOp function, BufferViewFlowAnalysis &views,
                SymbolTable &symbols, const Callees &callees)
      : symbols(symbols), callees(callees) {
    auto addOrigin = [&](Value origin) {
      for (Value view : views.resolve(origin))
        origins[view].push_back(origin);
    };
    for (BlockArgument argument : function.getArguments())
      addOrigin(argument);
    function.walk([&](Operation *op) {
      if (isa<memref::AllocOp, memref::GetGlobalOp>(op))
        addOrigin(op->getResult(0));
    });
  }

  /// Finds the buffers that `op`, with the ops in it, reads and writes.
  void get(Operation *op, llvm::SetVector<Value> &reads,
           llvm::SetVector<Value> &writes) const {
    op->walk([&](Operation *inner) { add(inner, reads, writes); });
  }

private:
  void add(Value value, llvm::SetVector<Value> &buffers) const {
    if (!value || !isa<BaseMemRefType>(value.getType()))
      return;
    auto found = origins.find(value);
    if (found == origins.end())
      buffers.insert(value);
    else
      buffers.insert_range(found->second);
  }

  void add(Operation *op, llvm::SetVector<Value> &reads,
           llvm::SetVector<Value> &writes) const {
    if (isMemoryEffectFree(op) || op->hasTrait<OpTrait::IsTerminator>())
      return;
    if (auto interface = dyn_cast<MemoryEffectOpInterface>(op)) {
      SmallVector<MemoryEffects::EffectInstance> effects;
      interface.getEffects(effects);
      for (const MemoryEffects::EffectInstance &effect : effects) {
        if (isa<MemoryEffects::Read>(effect.getEffect()))
          add(effect.getValue(), reads);
        if (isa<MemoryEffects::Write>(effect.getEffect()))
          add(effect.getValue(), writes);
      }
      return;
    }
    if (op->hasTrait<OpTrait::HasRecursiveMemoryEffects>())
      return;
    // An unknown op may read and write all of its operands.
    auto known = callees.end();
    if (auto call = dyn_cast<func::CallOp>(op))
      known = callees.find(symbols.lookup(call.getCallee()));
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      if (known == callees.end() || known->second.reads.contains(index))
        add(operand, reads);
      if (known == callees.end() || known->second.writes.contains(index))
        add(operand, writes);
    }
  }

  SymbolTable &symbols;
  const Callees &callees;
  /// The buffers that a value may be a view of.
  DenseMap<Value, SmallVector<Value>> origins;
};

/// Dependences between the ops of a block, of those that read what others
/// have written. Two writers of one buffer do not need each other, and
/// overwriting a buffer adds no order: only true dependences count.
class DataDependences {
public:
  DataDependences(Block *block, const BufferEffects &effects) {
    DenseMap<Value, SmallVector<unsigned>> writers;
    for (Operation &op : *block) {
      unsigned index = numbers.size();
      numbers[&op] = index;
      llvm::BitVector &before = needed.emplace_back(index);
      llvm::SetVector<Value> reads, writes;
      effects.get(&op, reads, writes);
      for (Value buffer : reads)
        for (unsigned writer : writers[buffer])
          if (!before.test(writer)) {
            before |= needed[writer];
            before.set(writer);
          }
      for (Value buffer : writes)
        writers[buffer].push_back(index);
    }
  }

  unsigned getNumber(Operation *op) const { return numbers.lookup(op); }

  /// Whether `op` needs `before`, directly or not.
  bool needs(Operation *op, Operation *before) const {
    unsigned index = getNumber(before);
    const llvm::BitVector &all = needed[getNumber(op)];
    return index < all.size() && all.test(index);
  }

private:
  DenseMap<Operation *, unsigned> numbers;
  /// For each op, a bit for every op before it.
  std::vector<llvm::BitVector> needed;
};

/// Decides about pairs of parts of one function.
class Sharing {
public:
  Sharing(Reuse reuse, const BufferEffects &effects)
      : reuse(reuse), effects(effects) {}

  bool canShare(const Part &a, const Part &b) {
    if (reuse == Reuse::None)
      return false;
    Block *block = getCommonBlock(a.block, &b.block->front());
    auto [it, isNew] = dependences.try_emplace(block, nullptr);
    if (isNew)
      it->second = std::make_unique<DataDependences>(block, effects);
    const DataDependences &graph = *it->second;
    auto endsBefore = [&](const Part &first, const Part &second) {
      for (Operation *early : first.users)
        for (Operation *late : second.users) {
          Operation *before = getAncestor(block, early);
          Operation *after = getAncestor(block, late);
          bool isOrdered = reuse == Reuse::Any ? graph.getNumber(before) <
                                                     graph.getNumber(after)
                                               : graph.needs(after, before);
          if (!isOrdered)
            return false;
        }
      return true;
    };
    return endsBefore(a, b) || endsBefore(b, a);
  }

private:
  Reuse reuse;
  const BufferEffects &effects;
  DenseMap<Block *, std::unique_ptr<DataDependences>> dependences;
};
} // namespace

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// Gives each part the lowest offset that is free, the largest parts first.
/// Returns the bytes of all.
static int64_t place(MutableArrayRef<Part> parts, Sharing &sharing) {
  SmallVector<Part *> order =
      llvm::map_to_vector(parts, [](Part &part) { return &part; });
  llvm::sort(order, [](const Part *a, const Part *b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a < b;
  });
  int64_t total = 0;
  SmallVector<Part *> placed;
  for (Part *part : order) {
    SmallVector<Part *> others;
    for (Part *other : placed)
      if (!sharing.canShare(*part, *other))
        others.push_back(other);
    llvm::sort(others, [](const Part *a, const Part *b) {
      return a->offset < b->offset;
    });
    for (Part *other : others) {
      if (other->offset >= part->offset + part->bytes)
        break;
      part->offset = std::max(part->offset, other->offset + other->bytes);
    }
    total = std::max(total, part->offset + part->bytes);
    placed.push_back(part);
  }
  return total;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Whether a buffer, or a view of it, outlives its region: a loop may carry it
/// into the next iteration, or the function may return it.
static bool escapes(memref::AllocOp alloc,
                    const BufferViewFlowAnalysis::ValueSetT &views) {
  for (Value view : views)
    if (llvm::any_of(view.getUsers(), llvm::IsaPred<func::ReturnOp>))
      return true;
  for (Operation *loop = alloc->getParentOp(); !isa<func::FuncOp>(loop);
       loop = loop->getParentOp()) {
    if (!isa<LoopLikeOpInterface>(loop))
      continue;
    for (Value view : views)
      if (view.getDefiningOp() == loop ||
          (isa<BlockArgument>(view) &&
           view.getParentRegion()->getParentOp() == loop))
        return true;
  }
  return false;
}

/// Returns the bytes of an allocation in the workspace; nullopt if no machine
/// has them.
static std::optional<int64_t> getBytes(memref::AllocOp alloc) {
  MemRefType type = alloc.getType();
  // The layout's own arithmetic overflows.
  if (auto vector = dyn_cast<VectorType>(type.getElementType())) {
    int64_t elements = 1;
    for (int64_t size : vector.getShape())
      elements = multiplySaturating(elements, size);
    if (elements > kMaxBytes)
      return std::nullopt;
  }
  DataLayout layout = DataLayout::closest(alloc);
  int64_t bytes =
      llvm::alignTo(layout.getTypeSize(type.getElementType()),
                    layout.getTypeABIAlignment(type.getElementType()));
  for (int64_t size : type.getShape())
    bytes = multiplySaturating(bytes, size);
  // Empty buffers have an address too.
  if (bytes > kMaxBytes)
    return std::nullopt;
  return llvm::alignTo(std::max<int64_t>(bytes, 1), kAlignment);
}

namespace {
class PlanWorkspacePass
    : public zpp::impl::PlanWorkspacePassBase<PlanWorkspacePass> {
public:
  using PlanWorkspacePassBase::PlanWorkspacePassBase;

  void runOnOperation() override {
    SymbolTable table(getOperation());
    symbols = &table;
    functions = getRankFunctions(getOperation(), allFunctions);
    states.clear();
    planned.clear();
    argumentEffects.clear();
    for (func::FuncOp function : functions)
      if (failed(plan(function)))
        return signalPassFailure();
  }

private:
  /// Plans a function after its callees.
  LogicalResult plan(func::FuncOp function) {
    bool isDone = states.try_emplace(function, false).first->second;
    if (isDone || function.isExternal())
      return success();
    bool hasOneBlock = true;
    SmallVector<func::CallOp> calls;
    function.walk([&](Operation *op) {
      for (Region &region : op->getRegions())
        hasOneBlock &= region.empty() || region.hasOneBlock();
      if (auto call = dyn_cast<func::CallOp>(op))
        calls.push_back(call);
    });
    SmallVector<Part> parts;
    if (failed(addCallees(calls, parts)))
      return failure();
    states[function] = true;

    BufferViewFlowAnalysis views(function);
    if (hasOneBlock && failed(addBuffers(function, views, parts)))
      return failure();
    BufferEffects effects(function, views, *symbols, argumentEffects);
    noteEffects(function, effects);
    if (parts.empty())
      return success();
    Sharing sharing(hasOneBlock ? reuse : Reuse::None, effects);
    int64_t bytes = place(parts, sharing);
    return rewrite(function, parts, bytes);
  }

  /// Plans the callees, and adds the workspaces of those that got one here.
  LogicalResult addCallees(ArrayRef<func::CallOp> calls,
                           SmallVectorImpl<Part> &parts) {
    for (func::CallOp call : calls) {
      auto callee = symbols->lookup<func::FuncOp>(call.getCallee());
      if (!callee || !functions.contains(callee))
        continue;
      auto found = states.find(callee);
      if (found != states.end() && !found->second)
        return call.emitError("expected no recursion in a function with zero "
                              "ops, but got a call of '")
               << call.getCallee() << "'";
      if (failed(plan(callee)))
        return failure();
      // One that the callee already had is an operand of the call already.
      if (BlockArgument workspace = getWorkspace(callee);
          workspace && planned.contains(callee))
        parts.push_back({call,
                         cast<MemRefType>(workspace.getType()).getNumElements(),
                         {call},
                         call->getBlock()});
    }
    return success();
  }

  /// Adds the buffers that `function` allocates for itself.
  static LogicalResult addBuffers(func::FuncOp function,
                                  BufferViewFlowAnalysis &views,
                                  SmallVectorImpl<Part> &parts) {
    bool isPlanned = true;
    function.walk([&](memref::AllocOp alloc) {
      BufferViewFlowAnalysis::ValueSetT all = views.resolve(alloc);
      if (!isDenseBuffer(alloc.getType()) || escapes(alloc, all))
        return;
      std::optional<int64_t> bytes = getBytes(alloc);
      if (!bytes) {
        alloc.emitError("expected a buffer of at most ")
            << kMaxBytes << " bytes, but got " << alloc.getType();
        isPlanned = false;
        return;
      }
      Part part{alloc, *bytes, {}, alloc->getBlock()};
      for (Value view : all)
        for (Operation *user : view.getUsers()) {
          part.block = getCommonBlock(part.block, user);
          if (!isMemoryEffectFree(user))
            part.users.push_back(user);
        }
      parts.push_back(std::move(part));
    });
    return success(isPlanned);
  }

  /// Notes which arguments `function` reads and writes, for its callers.
  void noteEffects(func::FuncOp function, BufferEffects &effects) {
    llvm::SetVector<Value> reads, writes;
    effects.get(function, reads, writes);
    ArgumentEffects &known = argumentEffects[function];
    for (BlockArgument argument : function.getArguments()) {
      if (reads.contains(argument))
        known.reads.insert(argument.getArgNumber());
      if (writes.contains(argument))
        known.writes.insert(argument.getArgNumber());
    }
  }

  LogicalResult rewrite(func::FuncOp function, ArrayRef<Part> parts,
                        int64_t bytes) {
    OpBuilder builder(function);
    auto type = MemRefType::get({bytes}, builder.getI8Type());
    unsigned position = function.getNumArguments();
    auto attributes = builder.getDictionaryAttr(
        builder.getNamedAttr(kWorkspaceAttr, builder.getUnitAttr()));
    if (failed(function.insertArgument(position, type, attributes,
                                       function.getLoc())))
      return failure();
    planned.insert(function);
    Value workspace = function.getArgument(position);
    for (const Part &part : parts) {
      builder.setInsertionPoint(part.op);
      Location loc = part.op->getLoc();
      Value offset = arith::ConstantIndexOp::create(builder, loc, part.offset);
      auto createView = [&](MemRefType type) {
        return memref::ViewOp::create(builder, loc, type, workspace, offset,
                                      ValueRange());
      };
      if (auto call = dyn_cast<func::CallOp>(part.op)) {
        call->insertOperands(
            call->getNumOperands(),
            createView(MemRefType::get({part.bytes}, builder.getI8Type()))
                .getResult());
        continue;
      }
      auto alloc = cast<memref::AllocOp>(part.op);
      for (Operation *user : llvm::make_early_inc_range(alloc->getUsers()))
        if (isa<memref::DeallocOp>(user))
          user->erase();
      alloc.replaceAllUsesWith(createView(alloc.getType()).getResult());
      alloc.erase();
    }
    return success();
  }

  SymbolTable *symbols = nullptr;
  llvm::SetVector<func::FuncOp> functions;
  /// Functions that are begun, and whether they are planned.
  DenseMap<Operation *, bool> states;
  /// Functions that have got a workspace here.
  llvm::SmallPtrSet<Operation *, 16> planned;
  /// The effects of planned functions, without their workspace.
  BufferEffects::Callees argumentEffects;
};
} // namespace
