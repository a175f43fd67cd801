//===- RuntimeNames.cpp - Names beside shared functions -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeNames.h"

#include "zpp/Analysis/Location.h"
#include "zpp/Runtime/zpp_rt.h"
#include "zpp/Transforms/Buffers/RankFunctions.h"

using namespace mlir;
using namespace zpp;

/// The size of the largest descriptor.
static constexpr size_t kMostBytes = std::max({
#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP) sizeof(zpp_rt_##DESC),
#include "zpp/Runtime/Entrypoints.def"
    sizeof(zpp_rt_copy_desc)});

LLVM::GlobalOp zpp::getName(Location loc, RuntimeConstants &constants) {
  std::string name = describeLocation(loc);
  return name.empty() ? LLVM::GlobalOp() : constants.getString(name);
}

FailureOr<RuntimeNames> RuntimeNames::create(ModuleOp module) {
  RuntimeNames names;
  for (auto instance : module.getOps<zero::InstanceOp>()) {
    auto function = module.lookupSymbol<func::FuncOp>(instance.getFunction());
    names.functions[function].instances.push_back(instance);
  }
  auto pointer = LLVM::LLVMPointerType::get(module.getContext());
  for (auto &[op, function] : names.functions) {
    auto shared = cast<func::FuncOp>(op);
    Location loc = shared.getLoc();
    if (failed(shared.insertArgument(1, pointer, {}, loc)))
      return failure();
    auto builder = OpBuilder::atBlockBegin(&shared.getBody().front());
    Value count = LLVM::ConstantOp::create(
        builder, loc, builder.getI64IntegerAttr(kMostBytes / sizeof(int64_t)));
    function.slot = LLVM::AllocaOp::create(builder, loc, pointer,
                                           builder.getI64Type(), count);
  }
  return names;
}

Value RuntimeNames::createNamed(OpBuilder &builder, Operation *op,
                                LLVM::GlobalOp descriptor, int64_t bytes,
                                int64_t nameOffset) {
  auto shared = op->getParentOfType<func::FuncOp>();
  Function &function = functions.find(shared)->second;
  Location loc = op->getLoc();
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  auto getAddress = [&](Type element, Value base, int32_t index) -> Value {
    return LLVM::GEPOp::create(builder, loc, pointer, element, base,
                               ArrayRef<LLVM::GEPArg>{index});
  };
  int32_t place =
      function.places
          .try_emplace(loc, static_cast<int32_t>(function.places.size()))
          .first->second;
  Value constant = LLVM::AddressOfOp::create(builder, loc, descriptor);
  LLVM::MemcpyInlineOp::create(builder, loc, function.slot, constant,
                               builder.getI64IntegerAttr(bytes),
                               /*isVolatile=*/false);
  Value name = LLVM::LoadOp::create(
      builder, loc, pointer, getAddress(pointer, shared.getArgument(1), place));
  LLVM::StoreOp::create(builder, loc, name,
                        getAddress(builder.getI8Type(), function.slot,
                                   static_cast<int32_t>(nameOffset)));
  return function.slot;
}

void RuntimeNames::createTables(RuntimeConstants &constants) {
  for (auto &[op, function] : functions) {
    SmallVector<Location> locations;
    for (auto [loc, place] : function.places)
      locations.push_back(loc);
    auto createTable = [&](Operation *owner, ArrayRef<Location> ofOwner) {
      RuntimeFields names;
      for (Location loc : ofOwner)
        names.push_back(getName(loc, constants));
      owner->setAttr(kNamesAttr, FlatSymbolRefAttr::get(constants.createStruct(
                                     owner->getLoc(), "zpp_rt_names", names)));
    };
    createTable(op, locations);
    for (zero::InstanceOp instance : function.instances)
      createTable(instance, instance.translate(locations));
  }
}
