//===- Mutator.cpp - Random changes to IR ---------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attributes and types change as text, which knows those of every dialect: a
// number becomes another one, and what parses is what is tried.
//
//===----------------------------------------------------------------------===//

#include "Mutator.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace zpp::fuzz;

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral kElements[] = {
    "f32", "bf16",         "f16",           "f64",     "i1",  "i4",  "i8",
    "i16", "i64",          "ui8",           "index",   "i24", "i32", "ui32",
    "si8", "complex<f32>", "vector<2xf32>", "f8E4M3FN"};

/// A number near `old`, or one at which something ends.
static std::string mutateNumber(StringRef old, Random &random) {
  static constexpr llvm::StringLiteral kNumbers[] = {
      "0",          "1",          "2",
      "3",          "4",          "5",
      "7",          "8",          "16",
      "-1",         "-2",         "127",
      "255",        "256",        "65536",
      "1048576",    "2147483647", "2147483648",
      "4294967296", "67108864",   "4611686018427387904",
      "?",          "6",          "9223372036854775807"};
  int64_t value;
  if (old.getAsInteger(10, value) || random.oneIn(2))
    return random.pick(kNumbers).str();
  switch (random.below(4)) {
  case 0:
    return std::to_string(static_cast<uint64_t>(value) + 1);
  case 1:
    return std::to_string(static_cast<uint64_t>(value) - 1);
  case 2:
    return std::to_string(2 * static_cast<uint64_t>(value));
  default:
    return std::to_string(value / 2);
  }
}

std::string zpp::fuzz::mutateText(StringRef text, Random &random) {
  struct Token {
    size_t begin, end;
    enum { Number, Name, Element } kind;
  };
  SmallVector<Token> tokens;
  for (size_t i = 0; i < text.size();) {
    size_t begin = i;
    if (text[i] == '"') {
      i = std::min(text.find('"', i + 1), text.size() - 1) + 1;
      tokens.push_back({begin, i, Token::Name});
    } else if (llvm::isDigit(text[i])) {
      while (i < text.size() && llvm::isDigit(text[i]))
        ++i;
      if (begin > 0 && text[begin - 1] == '-')
        --begin;
      tokens.push_back({begin, i, Token::Number});
      // 4x8xf32: the x is no name.
      if (i < text.size() && text[i] == 'x')
        ++i;
    } else if (llvm::isAlpha(text[i])) {
      while (i < text.size() && llvm::isAlnum(text[i]))
        ++i;
      if (llvm::is_contained(kElements, text.slice(begin, i)))
        tokens.push_back({begin, i, Token::Element});
    } else {
      ++i;
    }
  }
  if (tokens.empty())
    return text.str();
  Token token = random.pick(tokens);
  std::string changed;
  switch (token.kind) {
  case Token::Number:
    changed = mutateNumber(text.slice(token.begin, token.end), random);
    break;
  case Token::Name: {
    static constexpr llvm::StringLiteral kNames[] = {
        "\"node\"", "\"gpu\"", "\"\"", "\"data\"", "\"zpp_host\"", "\"x:y\""};
    changed = random.pick(kNames).str();
    break;
  }
  case Token::Element:
    changed = random.pick(kElements).str();
    break;
  }
  return (text.take_front(token.begin) + changed + text.drop_front(token.end))
      .str();
}

/// The element types of all dense arrays in `text`.
static SmallVector<StringRef> getArrayTypes(StringRef text) {
  SmallVector<StringRef> parts, types;
  text.split(parts, "array<");
  for (StringRef part : ArrayRef(parts).drop_front())
    types.push_back(
        part.take_until([](char c) { return c == ':' || c == '>'; }));
  return types;
}

static Attribute mutateAttribute(Attribute attribute, Random &random) {
  std::string text;
  llvm::raw_string_ostream(text) << attribute;
  std::string changed = mutateText(text, random);
  // MLIR's parser crashes on array<bf16: ...> and the like.
  if (getArrayTypes(changed) != getArrayTypes(text))
    return {};
  return parseAttribute(changed, attribute.getContext());
}

static Type mutateType(Type type, Random &random) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return parseType(mutateText(text, random), type.getContext());
}

//===----------------------------------------------------------------------===//
// IR
//===----------------------------------------------------------------------===//

namespace {
class ModuleMutator {
public:
  ModuleMutator(ModuleOp module, Random &random) : random(random) {
    module->walk([&](Operation *op) {
      if (op != module)
        ops.push_back(op);
      for (Value result : op->getResults())
        values.push_back(result);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          for (Value argument : block.getArguments())
            values.push_back(argument);
    });
  }

  /// Makes one change. Nothing remembered here is valid after it.
  void run() {
    if (ops.empty())
      return;
    Operation *op = random.pick(ops);
    switch (random.below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
      return changeAttribute(op);
    case 4:
    case 5:
      return changeType();
    case 6:
      return changeOperand(op);
    case 7:
      return dropAttribute(op);
    case 8:
      return erase(op);
    case 9:
      return duplicate(op);
    case 10:
      return move(op);
    default:
      return swapAttribute(op);
    }
  }

private:
  void setAttributes(Operation *op, ArrayRef<NamedAttribute> attributes) {
    // If the properties do not accept an attribute, the op stays as it is.
    OperationState state(op->getLoc(), op->getName());
    auto dictionary = DictionaryAttr::get(op->getContext(), attributes);
    if (op->getPropertiesStorageSize() == 0 || !op->isRegistered()) {
      if (op->isRegistered())
        op->setAttrs(dictionary);
      else
        setUnregistered(op, dictionary);
      return;
    }
    NamedAttrList inherent, discardable;
    Attribute known = op->getPropertiesAsAttribute();
    for (NamedAttribute attribute : attributes) {
      bool isInherent =
          op->getInherentAttr(attribute.getName()).has_value() ||
          (known && cast<DictionaryAttr>(known).contains(attribute.getName()));
      (isInherent ? inherent : discardable).push_back(attribute);
    }
    auto emitError = [&] { return op->emitError(); };
    if (succeeded(op->setPropertiesFromAttribute(
            inherent.getDictionary(op->getContext()), emitError)))
      op->setDiscardableAttrs(discardable.getDictionary(op->getContext()));
  }

  /// Guests keep what is inherent as one attribute, their properties.
  static void setUnregistered(Operation *op, DictionaryAttr attributes) {
    Attribute properties = op->getPropertiesAsAttribute();
    if (!properties)
      return op->setDiscardableAttrs(attributes);
    NamedAttrList inherent, discardable;
    auto known = dyn_cast<DictionaryAttr>(properties);
    for (NamedAttribute attribute : attributes)
      (known && known.contains(attribute.getName()) ? inherent : discardable)
          .push_back(attribute);
    *op->getPropertiesStorage().as<Attribute *>() =
        inherent.getDictionary(op->getContext());
    op->setDiscardableAttrs(discardable.getDictionary(op->getContext()));
  }

  /// All attributes, also those that guests keep as properties.
  static SmallVector<NamedAttribute> getAttributes(Operation *op) {
    SmallVector<NamedAttribute> attributes(op->getDiscardableAttrs());
    if (auto properties =
            dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute()))
      llvm::append_range(attributes, properties);
    else
      attributes.assign(op->getAttrs().begin(), op->getAttrs().end());
    return attributes;
  }

  void changeAttribute(Operation *op) {
    SmallVector<NamedAttribute> attributes = getAttributes(op);
    if (attributes.empty())
      return changeType();
    NamedAttribute &chosen = random.pick(attributes);
    if (Attribute changed = mutateAttribute(chosen.getValue(), random)) {
      chosen.setValue(changed);
      setAttributes(op, attributes);
    }
  }

  void dropAttribute(Operation *op) {
    SmallVector<NamedAttribute> attributes = getAttributes(op);
    if (attributes.empty())
      return;
    attributes.erase(attributes.begin() + random.below(attributes.size()));
    setAttributes(op, attributes);
  }

  /// Takes the value of an attribute from another op.
  void swapAttribute(Operation *op) {
    SmallVector<NamedAttribute> attributes = getAttributes(op);
    SmallVector<NamedAttribute> others = getAttributes(random.pick(ops));
    if (others.empty())
      return;
    NamedAttribute other = random.pick(others);
    for (NamedAttribute &attribute : attributes)
      if (attribute.getName() == other.getName()) {
        attribute.setValue(other.getValue());
        return setAttributes(op, attributes);
      }
    if (random.oneIn(2)) {
      attributes.push_back(other);
      setAttributes(op, attributes);
    }
  }

  /// Changes the type of a value, and with it that of all values of this type,
  /// or of some: signatures then agree more often.
  void changeType() {
    if (values.empty())
      return;
    Type old = random.pick(values).getType();
    Type changed = mutateType(old, random);
    if (!changed)
      return;
    bool everywhere = !random.oneIn(3);
    for (Value value : values)
      if (value.getType() == old && (everywhere || random.oneIn(3)))
        value.setType(changed);
    if (!everywhere)
      return;
    for (Operation *op : ops) {
      auto function = dyn_cast<FunctionOpInterface>(op);
      if (!function)
        continue;
      auto replace = [&](ArrayRef<Type> types) {
        return llvm::map_to_vector(
            types, [&](Type type) { return type == old ? changed : type; });
      };
      function.setType(FunctionType::get(op->getContext(),
                                         replace(function.getArgumentTypes()),
                                         replace(function.getResultTypes())));
    }
  }

  void changeOperand(Operation *op) {
    if (op->getNumOperands() == 0)
      return;
    OpOperand &operand = op->getOpOperand(random.below(op->getNumOperands()));
    SmallVector<Value> others;
    for (Value value : values)
      if (value.getType() == operand.get().getType() || random.oneIn(16))
        others.push_back(value);
    operand.set(random.pick(others.empty() ? values : others));
  }

  void erase(Operation *op) {
    if (op->hasTrait<OpTrait::IsTerminator>())
      return;
    auto isInside = [&](Value value) {
      Operation *owner = value.getParentBlock()->getParentOp();
      return value.getDefiningOp() == op || (owner && op->isAncestor(owner));
    };
    for (Value result : op->getResults()) {
      if (result.use_empty())
        continue;
      SmallVector<Value> others;
      for (Value value : values)
        if (value.getType() == result.getType() && !isInside(value))
          others.push_back(value);
      if (others.empty())
        return;
      result.replaceAllUsesWith(random.pick(others));
    }
    // Operands elsewhere may have been made to read what is inside.
    WalkResult isRead = op->walk([&](Operation *inner) {
      return llvm::all_of(inner->getUsers(),
                          [&](Operation *user) { return op->isAncestor(user); })
                 ? WalkResult::advance()
                 : WalkResult::interrupt();
    });
    for (Value value : values)
      if (isa<BlockArgument>(value) && isInside(value) &&
          !llvm::all_of(value.getUsers(),
                        [&](Operation *user) { return op->isAncestor(user); }))
        return;
    if (isRead.wasInterrupted())
      return;
    // Its regions may read each other's values by now, and go one by one.
    op->dropAllReferences();
    op->erase();
  }

  void duplicate(Operation *op) {
    if (op->hasTrait<OpTrait::IsTerminator>())
      return;
    OpBuilder builder(op);
    builder.setInsertionPointAfter(op);
    Operation *copy = builder.clone(*op);
    for (auto [old, copied] : llvm::zip(op->getResults(), copy->getResults()))
      old.replaceUsesWithIf(copied, [&](OpOperand &use) {
        return use.getOwner() != copy && random.oneIn(2);
      });
    if (auto name =
            op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()))
      SymbolTable::setSymbolName(copy, (name.getValue() + "_copy").str());
  }

  void move(Operation *op) {
    Operation *other = random.pick(ops);
    if (op == other || op->isAncestor(other) ||
        op->hasTrait<OpTrait::IsTerminator>())
      return;
    op->moveBefore(other);
  }

  Random &random;
  SmallVector<Operation *> ops;
  SmallVector<Value> values;
};
} // namespace

void zpp::fuzz::mutate(ModuleOp module, Random &random) {
  size_t count = 1 + (random.oneIn(2) ? random.below(3) : 0);
  for (size_t i = 0; i < count; ++i)
    ModuleMutator(module, random).run();
}
