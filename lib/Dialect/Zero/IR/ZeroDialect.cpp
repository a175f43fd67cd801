//===- ZeroDialect.cpp - The zero dialect ---------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Zero/IR/Zero.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace zpp::zero;

#include "zpp/Dialect/Zero/IR/ZeroDialect.cpp.inc"
#include "zpp/Dialect/Zero/IR/ZeroEnums.cpp.inc"

namespace {
/// Prints meshes as #mesh, because they are long and occur in every type.
struct ZeroAsmInterface : public OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(Attribute attr, raw_ostream &os) const override {
    if (!isa<MeshAttr>(attr))
      return AliasResult::NoAlias;
    os << "mesh";
    return AliasResult::OverridableAlias;
  }
};
} // namespace

void ZeroDialect::initialize() {
  registerAttributes();
  registerTypes();
  addOperations<
#define GET_OP_LIST
#include "zpp/Dialect/Zero/IR/ZeroOps.cpp.inc"
      >();
  addInterfaces<ZeroAsmInterface>();
}
