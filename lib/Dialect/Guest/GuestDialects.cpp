//===- GuestDialects.cpp - Dialects that pass through ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/GuestDialects.h"

#include "Assembly/Form.h"

#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "zpp/Dialect/Guest/WrittenGroups.h"

using namespace mlir;
using namespace zpp;

namespace {

/// Names that values of guests have in text.
struct ValueNames : public OpAsmOpInterface::FallbackModel<ValueNames> {
  void getAsmResultNames(Operation *op, OpAsmSetValueNameFn setName) const {
    if (op->getName().getStringRef() == "stablehlo.constant" &&
        op->getNumResults() == 1)
      return setName(
          op->getResult(0),
          getElementTypeOrSelf(op->getResult(0)).isInteger() ? "c" : "cst");
    const assembly::Form *form =
        assembly::findForm(op->getName().getStringRef());
    SmallVector<StringRef> names;
    if (form)
      form->op->results.split(names, ", ", /*MaxSplit=*/-1,
                              /*KeepEmpty=*/false);
    if (names.size() == op->getNumResults())
      for (auto [result, name] : llvm::zip(op->getResults(), names))
        setName(result, name);
  }

  void getAsmBlockArgumentNames(Operation *op, Region &region,
                                OpAsmSetValueNameFn setName) const {
    if (op->getName().getStringRef() == "stablehlo.while")
      for (BlockArgument argument : region.getArguments())
        setName(argument, "iterArg");
  }

  void getAsmBlockNames(Operation *, OpAsmSetBlockNameFn) const {}
  static StringRef getDefaultDialect() { return ""; }
};

/// Prints long lists of groups once: all collectives over the same devices have
/// the same one.
struct GroupAliases : public OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(Attribute attr, raw_ostream &os) const override {
    if (!isLongGroupList(attr))
      return AliasResult::NoAlias;
    os << "groups";
    return AliasResult::OverridableAlias;
  }
};

/// Accepts everything in generic form under its namespace.
class GuestDialect : public Dialect {
public:
  GuestDialect(StringRef name, MLIRContext *context, TypeID id)
      : Dialect(name, context, id) {
    allowUnknownOperations();
    allowUnknownTypes();
    if (name == "stablehlo")
      addInterfaces<GroupAliases>();
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
    return ParseOpHook(readPretty);
  }

  llvm::unique_function<void(Operation *, OpAsmPrinter &)>
  getOperationPrinter(Operation *op) const override {
    if (!writePretty(op, /*printer=*/nullptr))
      return nullptr;
    return
        [](Operation *op, OpAsmPrinter &printer) { writePretty(op, &printer); };
  }

  void *getRegisteredInterfaceForOp(TypeID interface, OperationName) override {
    static ValueNames names;
    return interface == OpAsmOpInterface::getInterfaceID() ? &names : nullptr;
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

/// Registers a guest unless the registry has a dialect of its name.
template <typename Guest>
static void registerMissing(DialectRegistry &registry) {
  if (!registry.getDialectAllocator(Guest::getDialectNamespace()))
    registry.insert<Guest>();
}

void zpp::registerGuestDialects(DialectRegistry &registry) {
  registerMissing<StablehloGuest>(registry);
  registerMissing<SdyGuest>(registry);
  registerMissing<ChloGuest>(registry);
  registerMissing<MhloGuest>(registry);
  registerMissing<MpmdGuest>(registry);
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
