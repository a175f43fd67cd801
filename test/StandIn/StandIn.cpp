//===- StandIn.cpp - Registered ops in place of StableHLO's ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an embedder of zpp-opt brings, of the table of the assembly: ops that
// are registered, with the attributes of a row as properties, and terminators
// that are known as such. Tests of passes run on them, so that no pass depends
// on an op being unknown.
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Support/TypeID.h"
#include "zpp/Dialect/Guest/Assembly.h"
#include "zpp/Dialect/Guest/GuestDialects.h"

using namespace mlir;
using namespace zpp;

namespace zpp {
void registerStablehloDialects(DialectRegistry &registry);
} // namespace zpp

/// Ids of ops and extensions, which have no classes.
static TypeID makeId() {
  static TypeIDAllocator allocator;
  return allocator.allocate();
}

static SmallVector<StringRef> getAttributeNames(const GuestOp &row) {
  SmallVector<StringRef> names;
  StringRef(row.attributes).split(names, ", ", /*MaxSplit=*/-1, false);
  for (StringRef &name : names)
    name = name.split(" = ").first.split(": ").first;
  return names;
}

namespace {
/// An op of a row. Its properties are a dictionary.
class StandInOp : public OperationName::Impl {
public:
  StandInOp(const GuestOp &row, Dialect *dialect)
      : Impl(row.name, dialect, makeId(), mlir::detail::InterfaceMap()) {}

  LogicalResult foldHook(Operation *, ArrayRef<Attribute>,
                         SmallVectorImpl<OpFoldResult> &) override {
    return failure();
  }
  void getCanonicalizationPatterns(RewritePatternSet &,
                                   MLIRContext *) override {}
  bool hasTrait(TypeID id) override {
    return id == TypeID::get<OpTrait::IsTerminator>() &&
           getName().getValue().ends_with(".return");
  }
  OperationName::ParseAssemblyFn getParseAssemblyFn() override {
    return readPretty;
  }
  void populateDefaultAttrs(const OperationName &, NamedAttrList &) override {}
  void printAssembly(Operation *op, OpAsmPrinter &p,
                     StringRef defaultDialect) override {
    if (!writePretty(op, /*printer=*/nullptr))
      return p.printGenericOp(op);
    StringRef name = getName();
    if (!defaultDialect.empty() && name.count('.') == 1)
      name.consume_front((defaultDialect + ".").str());
    p << name;
    writePretty(op, &p);
  }
  LogicalResult verifyInvariants(Operation *) override { return success(); }
  LogicalResult verifyRegionInvariants(Operation *) override {
    return success();
  }

  std::optional<Attribute> getInherentAttr(Operation *op,
                                           StringRef name) override {
    if (!llvm::is_contained(getAttributeNames(), name))
      return std::nullopt;
    auto properties = get(op->getPropertiesStorage());
    return properties ? properties.get(name) : Attribute();
  }
  void setInherentAttr(Operation *op, StringAttr name,
                       Attribute value) override {
    NamedAttrList attributes(get(op->getPropertiesStorage()));
    if (value)
      attributes.set(name, value);
    else
      attributes.erase(name);
    set(op->getPropertiesStorage(), attributes.getDictionary(op->getContext()));
  }
  void populateInherentAttrs(Operation *op, NamedAttrList &attrs) override {
    if (auto properties = get(op->getPropertiesStorage()))
      for (NamedAttribute property : properties)
        attrs.set(property.getName(), property.getValue());
  }
  LogicalResult
  verifyInherentAttrs(OperationName, NamedAttrList &,
                      function_ref<InFlightDiagnostic()>) override {
    return success();
  }

  int getOpPropertyByteSize() override { return sizeof(Attribute); }
  void initProperties(OperationName, OpaqueProperties storage,
                      OpaqueProperties init) override {
    new (storage.as<Attribute *>())
        Attribute(init ? *init.as<Attribute *>() : Attribute());
  }
  void deleteProperties(OpaqueProperties) override {}
  void populateDefaultProperties(OperationName, OpaqueProperties) override {}
  LogicalResult
  setPropertiesFromAttr(OperationName, OpaqueProperties storage, Attribute attr,
                        function_ref<InFlightDiagnostic()> emitError) override {
    auto attributes = dyn_cast<DictionaryAttr>(attr);
    if (!attributes)
      return emitError() << "expected a dictionary, but got " << attr;
    set(storage, attributes);
    return success();
  }
  Attribute getPropertiesAsAttr(Operation *op) override {
    auto properties = get(op->getPropertiesStorage());
    return properties && !properties.empty() ? properties : DictionaryAttr();
  }
  void copyProperties(OpaqueProperties to, OpaqueProperties from) override {
    set(to, get(from));
  }
  bool compareProperties(OpaqueProperties a, OpaqueProperties b) override {
    return get(a) == get(b);
  }
  llvm::hash_code hashProperties(OpaqueProperties properties) override {
    return hash_value(get(properties));
  }

private:
  static DictionaryAttr get(OpaqueProperties storage) {
    return cast_if_present<DictionaryAttr>(*storage.as<Attribute *>());
  }
  static void set(OpaqueProperties storage, DictionaryAttr value) {
    *storage.as<Attribute *>() = value;
  }
};

/// Registers the ops of a dialect once it is loaded.
class RegisterOps : public DialectExtensionBase {
public:
  explicit RegisterOps(StringRef dialect) : DialectExtensionBase(dialect) {}

  void apply(MLIRContext *,
             MutableArrayRef<Dialect *> dialects) const override {
    Dialect *dialect = dialects.front();
    for (const GuestOp &row : getGuestOps())
      if (StringRef(row.name).split('.').first == dialect->getNamespace())
        RegisteredOperationName::insert(
            std::make_unique<StandInOp>(row, dialect), getAttributeNames(row));
  }
  std::unique_ptr<DialectExtensionBase> clone() const override {
    return std::make_unique<RegisterOps>(*this);
  }
};
} // namespace

void zpp::registerStablehloDialects(DialectRegistry &registry) {
  registerGuestDialects(registry);
  for (StringRef dialect : {"stablehlo", "chlo", "sdy"})
    registry.addExtension(makeId(), std::make_unique<RegisterOps>(dialect));
}
