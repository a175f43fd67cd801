//===- Contracts.cpp - The forms that zero ops go through -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Zero/IR/Contracts.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

using namespace mlir;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Decomposed IR
//===----------------------------------------------------------------------===//

StringRef zpp::zero::getMissingPass(Operation *op) {
  if (auto exchange = dyn_cast<AllToAllOp>(op)) {
    if (exchange.getWireAttr())
      return "zero-quantize-all-to-all";
    if (exchange.getSlicesAttr())
      return "zero-reorder-slices";
  }
  if (isa<AllReduceOp>(op))
    return "zero-split-all-reduce";
  if (isa<ReduceScatterOp>(op))
    return "zero-decompose-reduce-scatter";
  if (isa<AllGatherOp, EncodeOp, DecodeOp>(op))
    return "zero-decompose-all-gather";
  if (isa<FromLocalOp, ToLocalOp>(op))
    return "zero-decompose-all-gather and zero-decompose-reduce-scatter";
  return "";
}

static bool holdsShard(Type type) {
  // Almost all types of a step are these, and to walk a type takes long.
  if (auto tensor = dyn_cast<RankedTensorType>(type);
      tensor && !tensor.getEncoding()) {
    Type element = tensor.getElementType();
    if (isa<Float32Type, BFloat16Type, IntegerType>(element) ||
        element.isIntOrIndexOrFloat())
      return false;
  }
  return type.walk([](ShardType) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

static bool holdsShard(Value value) { return holdsShard(value.getType()); }

bool zpp::zero::holdsShard(Operation *op) {
  auto isHolder = [](auto of) { return ::holdsShard(of); };
  if (llvm::any_of(op->getOperands(), isHolder) ||
      llvm::any_of(op->getResults(), isHolder))
    return true;
  if (op->getNumRegions() == 0)
    return false;
  if (auto function = dyn_cast<FunctionOpInterface>(op);
      function && (llvm::any_of(function.getArgumentTypes(), isHolder) ||
                   llvm::any_of(function.getResultTypes(), isHolder)))
    return true;
  return llvm::any_of(op->getRegions(), [&](Region &region) {
    return llvm::any_of(region, [&](Block &block) {
      return llvm::any_of(block.getArguments(), isHolder);
    });
  });
}

LogicalResult zpp::zero::verifyDecomposedOp(Operation *op, bool inPlace) {
  auto emitError = [&]() {
    return op->emitError("expected decomposed IR, but got ");
  };
  if (StringRef pass = getMissingPass(op); !pass.empty())
    return emitError() << "'" << op->getName() << "'; run " << pass << " first";
  if (inPlace && isa<StartOp, WaitOp>(op))
    return op->emitError("expected no starts and waits, but got '")
           << op->getName() << "', which zero-outline-collectives creates";
  if (holdsShard(op))
    return emitError() << "a partitioned tensor in '" << op->getName()
                       << "'; run zero-decompose-all-gather and "
                          "zero-decompose-reduce-scatter first";
  return success();
}

LogicalResult zpp::zero::verifyDecomposed(Operation *root, bool inPlace) {
  bool isDecomposed = true;
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    isDecomposed &= succeeded(verifyDecomposedOp(op, inPlace));
  });
  if (!inPlace)
    isDecomposed &= succeeded(verifySchedule(root));
  return success(isDecomposed);
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

static LogicalResult verifyStart(StartOp start,
                                 SymbolTableCollection &symbols) {
  WaitOp wait;
  for (Value output : start.getOutputs())
    for (Operation *user : output.getUsers()) {
      auto reader = dyn_cast<WaitOp>(user);
      if (!reader)
        return start.emitOpError("expected only a zero.wait to read its "
                                 "outputs, but got '")
               << user->getName() << "'";
      if (wait && reader != wait)
        return start.emitOpError("expected 1 zero.wait to read its outputs, "
                                 "but got 2");
      wait = reader;
    }
  if (!wait)
    return start.emitOpError("expected 1 zero.wait to read its outputs, but "
                             "got 0");

  ArrayAttr origins = start.getOriginsAttr();
  if (!origins)
    return success();
  FunctionOpInterface callee =
      lookUpFunction(symbols, start, start.getCallee());
  size_t numExchanges = 0;
  if (callee)
    callee->walk([&](CollectiveOpInterface) { ++numExchanges; });
  if (origins.size() != numExchanges)
    return start.emitOpError("expected origins of ")
           << numExchanges << " exchanges in the callee, but got "
           << origins.size();
  return success();
}

static LogicalResult verifyWait(WaitOp wait) {
  StartOp start = wait.getStart();
  if (!start)
    return wait.emitOpError("expected outputs of a zero.start to wait for, but "
                            "got none");
  if (wait.getStarted() != start.getOutputs())
    return wait.emitOpError("expected all ")
           << start.getOutputs().size()
           << " outputs of its zero.start, in order, but got "
           << wait.getStarted().size() << " other values";
  if (wait.getInputs() != start.getInputs())
    return wait.emitOpError("expected the ")
           << start.getInputs().size() << " inputs of its zero.start, but got "
           << wait.getInputs().size() << " other values";
  if (wait->getBlock() != start->getBlock())
    return wait.emitOpError("expected to be in the block of its zero.start, "
                            "but got another block");
  return success();
}

LogicalResult zpp::zero::verifySchedule(Operation *root) {
  SymbolTableCollection symbols;
  bool isSchedule = true;
  root->walk([&](Operation *op) {
    if (auto start = dyn_cast<StartOp>(op))
      isSchedule &= succeeded(verifyStart(start, symbols));
    else if (auto wait = dyn_cast<WaitOp>(op))
      isSchedule &= succeeded(verifyWait(wait));
  });
  return success(isSchedule);
}
