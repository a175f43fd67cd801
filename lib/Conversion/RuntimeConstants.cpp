//===- RuntimeConstants.cpp - Constants in the LLVM dialect ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeConstants.h"

using namespace mlir;
using namespace zpp;

LLVM::GlobalOp RuntimeConstants::getString(StringRef text) {
  LLVM::GlobalOp &global = strings[text];
  if (!global) {
    std::string bytes = text.str() + '\0';
    auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), bytes.size());
    global = create(type, "zpp_rt_string", builder.getStringAttr(bytes));
  }
  return global;
}

LLVM::GlobalOp RuntimeConstants::getList(ArrayRef<int64_t> values) {
  if (values.empty())
    return {};
  Attribute value = builder.getI64TensorAttr(values);
  LLVM::GlobalOp &global = lists[value];
  if (!global)
    global =
        create(LLVM::LLVMArrayType::get(builder.getI64Type(), values.size()),
               "zpp_rt_list", value);
  return global;
}

LLVM::GlobalOp RuntimeConstants::createStruct(Location loc, StringRef name,
                                              ArrayRef<Field> fields) {
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  SmallVector<Type> types = llvm::map_to_vector(fields, [&](const Field &f) {
    return f.isPointer ? Type(pointer) : Type(builder.getI64Type());
  });
  auto type = LLVM::LLVMStructType::getLiteral(builder.getContext(), types);
  LLVM::GlobalOp global = create(type, name, Attribute());
  OpBuilder inner(global.getContext());
  inner.createBlock(&global.getInitializerRegion());
  Value value = LLVM::UndefOp::create(inner, loc, type);
  for (auto [index, field] : llvm::enumerate(fields)) {
    Value element;
    if (!field.isPointer)
      element = LLVM::ConstantOp::create(inner, loc,
                                         inner.getI64IntegerAttr(field.value));
    else if (field.global)
      element = LLVM::AddressOfOp::create(inner, loc, field.global);
    else
      element = LLVM::ZeroOp::create(inner, loc, pointer);
    value = LLVM::InsertValueOp::create(inner, loc, value, element, index);
  }
  LLVM::ReturnOp::create(inner, loc, value);
  return global;
}

LLVM::LLVMFuncOp RuntimeConstants::getFunction(StringRef name,
                                               TypeRange arguments) {
  if (auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
    return function;
  auto type = LLVM::LLVMFunctionType::get(builder.getI32Type(),
                                          llvm::to_vector(arguments));
  return LLVM::LLVMFuncOp::create(builder, module.getLoc(), name, type);
}

LLVM::GlobalOp RuntimeConstants::create(Type type, StringRef name,
                                        Attribute value) {
  auto global = LLVM::GlobalOp::create(builder, module.getLoc(), type,
                                       /*isConstant=*/true,
                                       LLVM::Linkage::Internal, name, value);
  // This renames the global if the name is taken.
  symbols.insert(global);
  return global;
}
