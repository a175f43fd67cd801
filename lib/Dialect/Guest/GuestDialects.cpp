//===- GuestDialects.cpp - Dialects that pass through ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/GuestDialects.h"

#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;

namespace {

/// Accepts everything in generic form under its namespace.
class GuestDialect : public Dialect {
public:
  GuestDialect(StringRef name, MLIRContext *context, TypeID id)
      : Dialect(name, context, id) {
    allowUnknownOperations();
    allowUnknownTypes();
  }

  Attribute parseAttribute(DialectAsmParser &parser, Type type) const override {
    return OpaqueAttr::get(StringAttr::get(getContext(), getNamespace()),
                           parser.getFullSymbolSpec(),
                           type ? type : NoneType::get(getContext()));
  }

  Type parseType(DialectAsmParser &parser) const override {
    return OpaqueType::get(StringAttr::get(getContext(), getNamespace()),
                           parser.getFullSymbolSpec());
  }

  /// MLIR asks only for names of custom forms, since the generic form is
  /// quoted.
  std::optional<ParseOpHook> getParseOperationHook(StringRef) const override {
    // The hook is a function reference, so it must not capture.
    static constexpr auto kRefuse = [](OpAsmParser &parser,
                                       OperationState &state) -> ParseResult {
      StringRef name = state.name.getStringRef();
      auto place = dyn_cast<FileLineColLoc>(
          parser.getEncodedSourceLoc(parser.getNameLoc()));
      StringRef file = place ? place.getFilename().getValue() : "step.mlir";
      return parser.emitError(parser.getNameLoc())
             << "expected the generic form \"" << name
             << "\"(...), but got the pretty form of '" << name
             << "'; convert it first: zpp convert " << file
             << " -o generic.mlir";
    };
    return ParseOpHook(kRefuse);
  }
};

/// Dialects are identified by their classes, so each namespace needs one.
#define ZPP_GUEST_DIALECT(CLASS, NAME)                                         \
  struct CLASS : public GuestDialect {                                         \
    MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CLASS)                        \
    static constexpr StringLiteral getDialectNamespace() {                     \
      return StringLiteral(NAME);                                              \
    }                                                                          \
    explicit CLASS(MLIRContext *context)                                       \
        : GuestDialect(getDialectNamespace(), context, TypeID::get<CLASS>()) { \
    }                                                                          \
  };
ZPP_GUEST_DIALECT(StablehloGuest, "stablehlo")
ZPP_GUEST_DIALECT(SdyGuest, "sdy")
ZPP_GUEST_DIALECT(ChloGuest, "chlo")
ZPP_GUEST_DIALECT(MhloGuest, "mhlo")
ZPP_GUEST_DIALECT(MpmdGuest, "mpmd")
#undef ZPP_GUEST_DIALECT

} // namespace

void zpp::registerGuestDialects(DialectRegistry &registry) {
  registry.insert<StablehloGuest, SdyGuest, ChloGuest, MhloGuest, MpmdGuest>();
}

LogicalResult zpp::verifyGuestOrder(Operation *root) {
  WalkResult result = root->walk([](Operation *op) {
    for (OpOperand &operand : op->getOpOperands()) {
      Operation *source = operand.get().getDefiningOp();
      if (!source || source->getParentOp()->isRegistered())
        continue;
      Operation *user = source->getBlock()->findAncestorOpInBlock(*op);
      if (user && user != source && source->isBeforeInBlock(user))
        continue;
      op->emitOpError("expected operand #")
              .append(operand.getOperandNumber(),
                      " to be defined before it is used")
              .attachNote(source->getLoc())
          << "it is defined here";
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}
