//===- ZeroDialect.cpp - The zero dialect ---------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Zero/IR/Zero.h"

#include "mlir/Bytecode/BytecodeImplementation.h"
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

/// The version of bytecode: that of the properties of ops, whose number and
/// order it has. Text has their names.
struct ZeroBytecode : public BytecodeDialectInterface {
  explicit ZeroBytecode(Dialect *dialect) : BytecodeDialectInterface(dialect) {}
  static constexpr uint64_t kVersion = 1;
  struct Version : public DialectVersion {};

  void writeVersion(DialectBytecodeWriter &writer) const override {
    writer.writeVarInt(kVersion);
  }
  std::unique_ptr<DialectVersion>
  readVersion(DialectBytecodeReader &reader) const override {
    uint64_t version;
    if (failed(reader.readVarInt(version)))
      return nullptr;
    if (version == kVersion)
      return std::make_unique<Version>();
    reader.emitError("expected version ")
        << kVersion << " of the zero dialect, but got " << version
        << "; other versions of zpp read each other's programs as text";
    return nullptr;
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
  addInterfaces<ZeroAsmInterface, ZeroBytecode>();
  // Passes build ops of StableHLO's dialect, or of its guest, by name.
  (void)getContext()->getOrLoadDialect("stablehlo");
}
