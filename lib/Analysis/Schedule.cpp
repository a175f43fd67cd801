//===- Schedule.cpp - What runs beside what -------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Schedule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

static StringRef getName(Operation *op) { return op->getName().getStringRef(); }

/// The target of a custom call, or empty.
static StringRef getTarget(Operation *op) {
  if (getName(op) != "stablehlo.custom_call")
    return "";
  auto target = op->getAttrOfType<StringAttr>("call_target_name");
  return target ? target.getValue() : "";
}

//===----------------------------------------------------------------------===//
// Compute
//===----------------------------------------------------------------------===//

bool zpp::isHeavy(Operation *op) {
  static const llvm::StringSet<> names = {
      "stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution",
      "stablehlo.while",       "linalg.matmul", "linalg.batch_matmul"};
  if (names.contains(getName(op)))
    return true;
  if (StringRef target = getTarget(op); !target.empty())
    // What partitioners mark borders with computes nothing.
    return target != kStartTarget && target != kWaitTarget &&
           !isDataMovement(op) && !target.starts_with("SPMD");
  auto call = dyn_cast<func::CallOp>(op);
  auto callee = call ? SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
                           call, call.getCalleeAttr())
                     : func::FuncOp();
  // A function that calls itself, by whatever way, is not looked into twice.
  return callee && callee != op->getParentOfType<func::FuncOp>() &&
         callee
             .walk([](Operation *nested) {
               return isHeavy(nested) ? WalkResult::interrupt()
                                      : WalkResult::advance();
             })
             .wasInterrupted();
}

SmallVector<Operation *> zpp::getHeavyOps(Block &block) {
  SmallVector<Operation *> heavy;
  Operation *largest = nullptr;
  int64_t most = 0;
  for (Operation &op : block.without_terminator()) {
    if (isHeavy(&op))
      heavy.push_back(&op);
    if (isDataMovement(&op) || isCollective(&op) || isStart(&op) ||
        getTarget(&op) == kWaitTarget || isa<zero::WaitOp>(op) ||
        op.getNumOperands() == 0)
      continue;
    int64_t bytes =
        getBytes(op.getOperandTypes()) + getBytes(op.getResultTypes());
    if (bytes > most) {
      most = bytes;
      largest = &op;
    }
  }
  if (heavy.empty() && largest)
    heavy.push_back(largest);
  return heavy;
}

//===----------------------------------------------------------------------===//
// Starts and waits
//===----------------------------------------------------------------------===//

bool zpp::isStart(Operation *op) {
  return isa<zero::StartOp>(op) || getTarget(op) == kStartTarget;
}

/// How many `what` the calls of one function have.
static int64_t getCount(Operation *call, StringRef what) {
  auto config = call->getAttrOfType<DictionaryAttr>("backend_config");
  auto count = config ? config.getAs<IntegerAttr>(what) : IntegerAttr();
  return count ? count.getInt() : 0;
}

ValueRange zpp::getOutputs(Operation *op) {
  if (auto start = dyn_cast<zero::StartOp>(op))
    return start.getOutputs();
  if (auto wait = dyn_cast<zero::WaitOp>(op))
    return wait.getOutputs();
  return op->getResults().take_front(getCount(op, "outputs"));
}

ValueRange zpp::getInputs(Operation *op) {
  if (auto start = dyn_cast<zero::StartOp>(op))
    return start.getInputs();
  return ValueRange(op->getOperands()).take_front(getCount(op, "inputs"));
}

Operation *zpp::getWait(Operation *start) {
  for (Value output : getOutputs(start))
    for (Operation *user : output.getUsers())
      if (isa<zero::WaitOp>(user) || getTarget(user) == kWaitTarget)
        return user;
  return nullptr;
}

SmallVector<Origin> zpp::getStartedOrigins(Operation *start) {
  StepCollective exchange;
  exchange.start = start;
  SmallVector<Origin> all;
  while (true) {
    SmallVector<Origin> origins = getOrigins(exchange);
    if (origins.empty())
      return all;
    llvm::append_range(all, origins);
    ++exchange.index;
  }
}

//===----------------------------------------------------------------------===//
// Text and numbers
//===----------------------------------------------------------------------===//

int64_t zpp::getBytes(TypeRange types) {
  int64_t bytes = 0;
  for (Type type : types) {
    if (auto shard = dyn_cast<zero::ShardType>(type))
      type = shard.getLocalType();
    auto shaped = dyn_cast<ShapedType>(type);
    if (!shaped || !shaped.hasStaticShape() ||
        !shaped.getElementType().isIntOrFloat())
      continue;
    // A predicate takes a byte.
    int64_t bits = std::max<int64_t>(shaped.getElementTypeBitWidth(), 8);
    bytes += llvm::divideCeil(shaped.getNumElements() * bits, 8);
  }
  return bytes;
}

std::string zpp::getFileLocation(Location loc) {
  FileLineColLoc file;
  loc->walk([&](Location nested) {
    file = dyn_cast<FileLineColLoc>(nested);
    return file ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (!file)
    return "";
  return (file.getFilename().getValue() + ":" + Twine(file.getLine()) + ":" +
          Twine(file.getColumn()))
      .str();
}
