//===- RuntimeConstants.h - Constants and descriptors in LLVM ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Descriptors are constants in the LLVM dialect. They are filled in as the
// structs of zpp_rt.h, by the names of their fields, and then written word by
// word, so the compiler of this file ensures that the layout is that of the
// header.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_CONVERSION_RUNTIMECONSTANTS_H
#define ZPP_LIB_CONVERSION_RUNTIMECONSTANTS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"

#include <array>
#include <cstring>
#include <type_traits>

namespace zpp {

/// The constants of the module, each created once.
class RuntimeConstants {
public:
  explicit RuntimeConstants(mlir::ModuleOp module)
      : module(module), symbols(module),
        builder(mlir::OpBuilder::atBlockBegin(module.getBody())) {}

  /// A field: an integer, or the address of a global, which may be null.
  struct Field {
    Field(int64_t value) : value(value) {}
    Field(mlir::LLVM::GlobalOp global) : isPointer(true), global(global) {}
    int64_t value = 0;
    bool isPointer = false;
    mlir::LLVM::GlobalOp global;
  };

  mlir::LLVM::GlobalOp getString(llvm::StringRef text);
  /// Null if `values` is empty.
  mlir::LLVM::GlobalOp getList(llvm::ArrayRef<int64_t> values);
  mlir::LLVM::GlobalOp createStruct(mlir::Location loc, llvm::StringRef name,
                                    llvm::ArrayRef<Field> fields);

  /// Returns the declaration of a function of the runtime.
  mlir::LLVM::LLVMFuncOp getFunction(llvm::StringRef name,
                                     mlir::TypeRange arguments);

private:
  mlir::LLVM::GlobalOp create(mlir::Type type, llvm::StringRef name,
                              mlir::Attribute value);

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  /// Inserts after what has been created, so that uses come after definitions.
  mlir::OpBuilder builder;
  llvm::StringMap<mlir::LLVM::GlobalOp> strings;
  llvm::DenseMap<mlir::Attribute, mlir::LLVM::GlobalOp> lists;
};

using RuntimeFields = llvm::SmallVector<RuntimeConstants::Field>;

/// A struct of zpp_rt.h whose pointers will hold addresses of globals.
template <typename StructT> class Descriptor {
  static_assert(std::has_unique_object_representations_v<StructT> &&
                    sizeof(StructT) % sizeof(int64_t) == 0,
                "expected fields of 64 bits and no padding");
  static_assert(sizeof(void *) == sizeof(int64_t) &&
                    sizeof(size_t) == sizeof(int64_t),
                "expected a 64-bit host, as the target is");

public:
  /// All but the pointers.
  StructT values{};

  /// `pointer`, a field of `values`, will hold the address of `global`, or null
  /// if that is null.
  template <typename T>
  void setAddress(const T *const &pointer, mlir::LLVM::GlobalOp global) {
    auto offset = reinterpret_cast<const char *>(&pointer) -
                  reinterpret_cast<const char *>(&values);
    addresses.emplace_back(offset / sizeof(int64_t), global);
  }

  RuntimeFields getFields() const {
    std::array<int64_t, sizeof(StructT) / sizeof(int64_t)> words;
    std::memcpy(words.data(), &values, sizeof(values));
    RuntimeFields fields(words.begin(), words.end());
    for (auto [word, global] : addresses)
      fields[word] = global;
    return fields;
  }

private:
  llvm::SmallVector<std::pair<size_t, mlir::LLVM::GlobalOp>> addresses;
};

} // namespace zpp

#endif // ZPP_LIB_CONVERSION_RUNTIMECONSTANTS_H
