//===- OutlineCollectives.cpp - Collectives as functions of their own -----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Chains.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {
#define GEN_PASS_DEF_OUTLINECOLLECTIVESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// A chain, and the values that cross its border.
struct Outlined {
  explicit Outlined(Chain chain) : ops(std::move(chain)) {
    dependents = getDependents(ops);
    llvm::SmallPtrSet<Operation *, 16> inside(llvm::from_range, ops);
    for (Operation *op : ops) {
      for (Value operand : op->getOperands()) {
        Operation *source = operand.getDefiningOp();
        if (!source ||
            (!inside.contains(source) && !isa<tensor::EmptyOp>(source)))
          inputs.insert(operand);
      }
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) {
              return !inside.contains(user);
            }))
          outputs.push_back(result);
    }
  }

  Location getLoc() const { return getExchanges(ops).front()->getLoc(); }

  Chain ops;
  llvm::SetVector<Value> inputs;
  /// Results of `ops` that others read.
  SmallVector<Value> outputs;
  /// Ops that have to move after the chain.
  SmallVector<Operation *> dependents;
};

/// The functions created so far, by their text.
class HostFunctions {
public:
  explicit HostFunctions(ModuleOp step) : step(step) {
    host = step.lookupSymbol<ModuleOp>(kHostModule);
    if (!host)
      return;
    for (auto function : host.getOps<func::FuncOp>())
      functions.try_emplace(getText(function), function);
  }

  /// The function for `chain`, which may be shared with equal chains.
  func::FuncOp get(const Outlined &chain) {
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
  /// The text by which functions are compared: all but their names and
  /// locations.
  static std::string getText(func::FuncOp function) {
    std::string name = function.getSymName().str();
    function.setSymName("f");
    std::string text;
    llvm::raw_string_ostream os(text);
    function.print(os, OpPrintingFlags().useLocalScope());
    function.setSymName(name);
    return text;
  }

  func::FuncOp create(const Outlined &chain) {
    OpBuilder builder(step.getContext());
    auto type = builder.getFunctionType(
        ValueRange(chain.inputs.getArrayRef()).getTypes(),
        ValueRange(chain.outputs).getTypes());
    auto function = func::FuncOp::create(
        chain.getLoc(), "zpp_collective_" + std::to_string(functions.size()),
        type);
    Block *body = function.addEntryBlock();
    builder.setInsertionPointToStart(body);
    IRMapping mapping;
    mapping.map(chain.inputs.getArrayRef(), body->getArguments());
    for (Operation *op : chain.ops) {
      // Give each op a destination of its own, so that one-shot bufferization
      // need not resolve conflicts.
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
    Operation *host = getOperation().lookupSymbol(kHostModule);
    if (host && !isa<ModuleOp>(host)) {
      host->emitError("expected @")
          << kHostModule << " to be a module of host functions, but got '"
          << host->getName() << "'";
      return signalPassFailure();
    }
    HostFunctions functions(getOperation());
    for (Block *block : getStepBlocks(getOperation()))
      for (Chain &chain : getChains(*block))
        outline(Outlined(std::move(chain)), functions);
  }

private:
  /// Whether `chain` is outlined, or why it stays where it is.
  static Decision<> mayOutline(const Outlined &chain) {
    if (chain.outputs.empty())
      return LeftAlone("nothing reads its result");
    auto isStatic = [](Value value) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      return type && type.hasStaticShape();
    };
    if (!llvm::all_of(chain.inputs, isStatic) ||
        !llvm::all_of(chain.outputs, isStatic))
      return LeftAlone("a tensor that it reads or makes has no static shape");
    for (Operation *op : chain.ops) {
      if (llvm::any_of(op->getOperands(), [](Value operand) {
            auto empty = operand.getDefiningOp<tensor::EmptyOp>();
            return empty && !empty.getDynamicSizes().empty();
          }))
        return LeftAlone("the size of a destination is not static");
      if (auto exchange = dyn_cast<AllToAllOp>(op);
          exchange && (exchange.getWireAttr() || exchange.getSlicesAttr()))
        return LeftAlone("it is not decomposed");
      if (auto view = dyn_cast<OffsetSizeAndStrideOpInterface>(op);
          view && (!view.getOffsets().empty() || !view.getSizes().empty() ||
                   !view.getStrides().empty()))
        return LeftAlone("its slices are not static");
    }
    llvm::SmallPtrSet<Operation *, 16> dependents(llvm::from_range,
                                                  chain.dependents);
    for (Value input : chain.inputs)
      if (dependents.contains(input.getDefiningOp()))
        return LeftAlone("one of its operands depends on one of its results");
    // Every rank must execute the start equally often.
    for (Operation *parent = chain.ops.front()->getParentOp(); parent;
         parent = parent->getParentOp()) {
      StringRef name = parent->getName().getStringRef();
      if (!isa<ModuleOp, func::FuncOp>(parent) && name != guest::kWhile &&
          name != guest::kSdyManualComputation)
        return LeftAlone(("it is in a region of " + name).str());
    }
    if (llvm::none_of(chain.ops, [](Operation *op) {
          return isa<QuantizeOp, DequantizeOp, QuantizeDifferenceOp,
                     DequantizeAddOp>(op) ||
                 (isa<CollectiveOpInterface>(op) && !op->hasAttr(kReasonAttr));
        }))
      return LeftAlone("it sends nothing quantized");
    return Yes();
  }

  void outline(const Outlined &chain, HostFunctions &functions) {
    if (Decision<> decision = mayOutline(chain); !decision) {
      remark::missed(
          chain.getLoc(),
          remark::RemarkOpts::name("not-outlined").category(getArgument()))
          << ("stays in the graph: " + decision.getReason());
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

    // At the end of the chain, where all inputs are available.
    OpBuilder builder(chain.ops.back());
    Location loc = chain.getLoc();
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
      Value(from).replaceAllUsesWith(to);
    for (Operation *op : llvm::reverse(chain.ops)) {
      llvm::SmallSetVector<Value, 4> operands(op->operand_begin(),
                                              op->operand_end());
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
