//===- Repeats.cpp - Ops that compute the same again ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Repeats.h"

#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

/// Returns the body of the function that `op` calls, if it is a call and the
/// body has nothing but deterministic ops; otherwise null.
static Block *getCalledBody(Operation *op) {
  func::FuncOp callee = getCallee(op);
  if (!callee)
    return nullptr;
  Block &body = callee.getBody().front();
  bool isKnown = llvm::all_of(body.without_terminator(), [](Operation &inner) {
    return isDeterministic(&inner);
  });
  return isKnown ? &body : nullptr;
}

bool zpp::computesTheSame(Operation *op) {
  if (isDeterministic(op))
    return true;
  if (op->getNumResults() != 1)
    return false;
  if (isNamed(op, guest::kReduce) ||
      getGuestCollective(op) == CollectiveKind::AllReduce)
    return getExtremum(op);
  return getCalledBody(op);
}

/// Describes `op` alone, without what it calls or reduces with.
static void describeAlone(Operation *op,
                          SmallVectorImpl<const void *> &description) {
  Attribute properties = op->getPropertiesAsAttribute();
  // Collectives that do the same have channels of their own, which mean nothing
  // where ids are flattened.
  if (op->hasAttr("use_global_device_ids"))
    if (auto all = dyn_cast_or_null<DictionaryAttr>(properties)) {
      NamedAttrList others(all);
      others.erase("channel_handle");
      properties = others.getDictionary(op->getContext());
    }
  description.push_back(op->getName().getAsOpaquePointer());
  description.push_back(properties.getAsOpaquePointer());
  for (Type type : op->getResultTypes())
    description.push_back(type.getAsOpaquePointer());
}

void zpp::describeOp(Operation *op,
                     SmallVectorImpl<const void *> &description) {
  Block *called = getCalledBody(op);
  if (!called) {
    describeAlone(op, description);
    if (Operation *reducer = getExtremum(op))
      description.push_back(reducer->getName().getAsOpaquePointer());
    return;
  }
  // Functions of other names may have the same body.
  description.push_back(op->getName().getAsOpaquePointer());
  llvm::DenseMap<Value, intptr_t> numbers;
  auto number = [&](ValueRange values) {
    for (Value value : values)
      numbers.try_emplace(value, numbers.size());
  };
  number(called->getArguments());
  for (Operation &inner : *called) {
    describeAlone(&inner, description);
    for (Value operand : inner.getOperands())
      description.push_back(
          reinterpret_cast<const void *>(numbers.lookup(operand)));
    number(inner.getResults());
  }
}
