//===- OutlineCollectives.cpp - Collectives as functions of their own -----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {
#define GEN_PASS_DEF_OUTLINECOLLECTIVESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// True if `op` may be part of an outlined function.
bool isChainOp(Operation *op) {
  if (op->getNumResults() == 0)
    return false;
  return (isa<DestinationStyleOpInterface>(op) &&
          isa<ZeroDialect>(op->getDialect())) ||
         isa<tensor::ConcatOp, tensor::ExtractSliceOp, tensor::InsertSliceOp,
             tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op);
}

/// Ops of one block that use each other's results, in their order.
struct Chain {
  SmallVector<Operation *> ops;
  llvm::SetVector<Value> inputs;
  /// Results of `ops` that others read.
  SmallVector<Value> outputs;
  /// Ops between the first and the last of `ops` that need an output.
  SmallVector<Operation *> dependents;

  Operation *getFirstExchange() const {
    auto *it = llvm::find_if(ops, llvm::IsaPred<CollectiveOpInterface>);
    return it == ops.end() ? nullptr : *it;
  }
};

/// The functions made so far, by their text.
class HostFunctions {
public:
  explicit HostFunctions(ModuleOp step) : step(step) {
    host = step.lookupSymbol<ModuleOp>(kHostModule);
    if (!host)
      return;
    for (auto function : host.getOps<func::FuncOp>())
      functions.try_emplace(getText(function), function);
  }

  /// The function that does what `chain` does.
  func::FuncOp get(const Chain &chain) {
    if (!host) {
      host = ModuleOp::create(step.getLoc(), kHostModule);
      step.push_back(host);
    }
    func::FuncOp function = create(chain);
    auto [it, isNew] = functions.try_emplace(getText(function), function);
    if (isNew)
      SymbolTable(host).insert(function);
    else
      function.erase();
    return it->second;
  }

private:
  /// What makes two functions the same: all but their names and locations.
  static std::string getText(func::FuncOp function) {
    std::string name = function.getSymName().str();
    function.setSymName("f");
    std::string text;
    llvm::raw_string_ostream os(text);
    function.print(os, OpPrintingFlags().useLocalScope());
    function.setSymName(name);
    return text;
  }

  func::FuncOp create(const Chain &chain) {
    OpBuilder builder(step.getContext());
    auto type = builder.getFunctionType(
        ValueRange(chain.inputs.getArrayRef()).getTypes(),
        ValueRange(chain.outputs).getTypes());
    auto function = func::FuncOp::create(
        chain.getFirstExchange()->getLoc(),
        "zpp_collective_" + std::to_string(functions.size()), type);
    Block *body = function.addEntryBlock();
    builder.setInsertionPointToStart(body);
    IRMapping mapping;
    mapping.map(chain.inputs.getArrayRef(), body->getArguments());
    for (Operation *op : chain.ops) {
      // A destination for each op: one-shot bufferization need not tell apart
      // what shares one.
      for (Value operand : op->getOperands())
        if (auto empty = operand.getDefiningOp<tensor::EmptyOp>())
          mapping.map(operand,
                      builder.clone(*empty.getOperation())->getResult(0));
      takeOrigin(builder.clone(*op, mapping));
    }
    SmallVector<Value> results = llvm::map_to_vector(
        chain.outputs, [&](Value value) { return mapping.lookup(value); });
    func::ReturnOp::create(builder, function.getLoc(), results);
    return function;
  }

  ModuleOp step, host;
  llvm::StringMap<func::FuncOp> functions;
};

class OutlineCollectivesPass
    : public zpp::impl::OutlineCollectivesPassBase<OutlineCollectivesPass> {
public:
  void runOnOperation() override {
    SmallVector<Block *> blocks;
    getOperation()->walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (op != getOperation() && isa<ModuleOp>(op))
        return WalkResult::skip();
      for (Region &region : op->getRegions())
        for (Block &block : region)
          blocks.push_back(&block);
      return WalkResult::advance();
    });
    HostFunctions functions(getOperation());
    for (Block *block : blocks)
      for (Chain &chain : getChains(*block))
        outline(chain, functions);
  }

private:
  //===--------------------------------------------------------------------===//
  // Chains
  //===--------------------------------------------------------------------===//

  /// The chains of `block` that have an exchange, in the order of their first
  /// ops.
  static SmallVector<Chain> getChains(Block &block) {
    llvm::EquivalenceClasses<Operation *> classes;
    SmallVector<Operation *> ops;
    for (Operation &op : block) {
      if (!isChainOp(&op))
        continue;
      ops.push_back(&op);
      classes.insert(&op);
      for (Value operand : op.getOperands())
        if (Operation *source = operand.getDefiningOp();
            source && source->getBlock() == &block && isChainOp(source))
          classes.unionSets(source, &op);
    }
    llvm::MapVector<Operation *, Chain> chains;
    for (Operation *op : ops)
      chains[classes.getLeaderValue(op)].ops.push_back(op);
    SmallVector<Chain> result;
    for (auto &[leader, chain] : chains)
      if (chain.getFirstExchange())
        result.push_back(std::move(chain));
    return result;
  }

  /// Finds the border of `chain`, and the ops that have to make room for it.
  static void findBorder(Chain &chain) {
    llvm::SmallPtrSet<Operation *, 16> inside(llvm::from_range, chain.ops);
    for (Operation *op : chain.ops) {
      for (Value operand : op->getOperands()) {
        Operation *source = operand.getDefiningOp();
        if (!source ||
            (!inside.contains(source) && !isa<tensor::EmptyOp>(source)))
          chain.inputs.insert(operand);
      }
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) {
              return !inside.contains(user);
            }))
          chain.outputs.push_back(result);
    }
    llvm::SmallPtrSet<Operation *, 16> needs(inside);
    for (Operation *op = chain.ops.front(); op != chain.ops.back();
         op = op->getNextNode()) {
      if (inside.contains(op))
        continue;
      bool isDependent = false;
      op->walk([&](Operation *nested) {
        for (Value operand : nested->getOperands())
          if (Operation *source = operand.getDefiningOp())
            isDependent |= needs.contains(source);
      });
      if (!isDependent)
        continue;
      needs.insert(op);
      chain.dependents.push_back(op);
    }
  }

  /// Why `chain` stays where it is, or empty.
  static std::string getReason(const Chain &chain) {
    for (Operation *op : chain.ops) {
      if (auto exchange = dyn_cast<AllToAllOp>(op);
          exchange && (exchange.getWireAttr() || exchange.getSlicesAttr()))
        return "it is not decomposed";
      if (auto view = dyn_cast<OffsetSizeAndStrideOpInterface>(op);
          view && (!view.getOffsets().empty() || !view.getSizes().empty() ||
                   !view.getStrides().empty()))
        return "its slices are not static";
    }
    llvm::SmallPtrSet<Operation *, 16> dependents(llvm::from_range,
                                                  chain.dependents);
    for (Value input : chain.inputs)
      if (dependents.contains(input.getDefiningOp()))
        return "what it computes first is needed for what it reads last";
    // Every rank must come by as often as the others.
    for (Operation *parent = chain.ops.front()->getParentOp(); parent;
         parent = parent->getParentOp()) {
      StringRef name = parent->getName().getStringRef();
      if (!isa<ModuleOp, func::FuncOp>(parent) && name != "stablehlo.while" &&
          name != "sdy.manual_computation")
        return ("it is in a region of " + name).str();
    }
    if (llvm::none_of(chain.ops, [](Operation *op) {
          return isa<QuantizeOp, DequantizeOp>(op) ||
                 (isa<CollectiveOpInterface>(op) && !op->hasAttr(kReasonAttr));
        }))
      return "nothing of it travels quantized";
    return "";
  }

  //===--------------------------------------------------------------------===//
  // Outlining
  //===--------------------------------------------------------------------===//

  void outline(Chain &chain, HostFunctions &functions) {
    findBorder(chain);
    if (std::string reason = getReason(chain); !reason.empty()) {
      remark::missed(
          chain.getFirstExchange()->getLoc(),
          remark::RemarkOpts::name("not-outlined").category(getArgument()))
          << ("stays in the graph: " + reason);
      return;
    }
    func::FuncOp function = functions.get(chain);
    auto callee =
        SymbolRefAttr::get(StringAttr::get(&getContext(), kHostModule),
                           FlatSymbolRefAttr::get(function));
    SmallVector<Attribute> origins;
    for (Operation *op : chain.ops)
      if (isa<CollectiveOpInterface>(op))
        origins.push_back(takeOrigin(op));

    // Where all inputs are there.
    OpBuilder builder(chain.ops.back());
    Location loc = chain.getFirstExchange()->getLoc();
    ValueRange inputs = chain.inputs.getArrayRef();
    TypeRange types = ValueRange(chain.outputs).getTypes();
    auto start =
        StartOp::create(builder, loc, types, TypeRange(), callee, inputs,
                        ValueRange(), builder.getArrayAttr(origins));
    auto wait = WaitOp::create(builder, loc, types, TypeRange(),
                               start.getOutputs(), inputs, ValueRange());
    Operation *last = wait;
    for (Operation *op : chain.dependents) {
      op->moveAfter(last);
      last = op;
    }
    for (auto [from, to] : llvm::zip_equal(chain.outputs, wait.getOutputs()))
      from.replaceAllUsesWith(to);
    for (Operation *op : llvm::reverse(chain.ops)) {
      SmallVector<Value> operands(op->getOperands());
      op->erase();
      for (Value operand : operands)
        if (auto empty = operand.getDefiningOp<tensor::EmptyOp>();
            empty && empty->use_empty())
          empty.erase();
    }
    std::string name = function.getSymName().str();
    remark::passed(loc,
                   remark::RemarkOpts::name("outlined").category(getArgument()))
        << ("outlined as " + name);
  }
};
} // namespace
