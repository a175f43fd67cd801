//===- Form.cpp - Reads and writes ops as their forms say -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Form.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::assembly;

using Kind = Element::Kind;

//===----------------------------------------------------------------------===//
// The table, ready to use
//===----------------------------------------------------------------------===//

static std::vector<AttributeSpec> parseAttributes(StringRef text) {
  std::vector<AttributeSpec> specs;
  while (!text.empty()) {
    StringRef spec;
    std::tie(spec, text) = text.split(", ");
    auto [declared, initial] = spec.split(" = ");
    auto [name, kind] = declared.split(": ");
    auto [word, detail] = kind.split(' ');
    specs.push_back({name, word, detail, initial});
  }
  return specs;
}

/// Parses `text` up to the end of the group, and drops it there.
static std::vector<Element> parseForm(StringRef &text) {
  std::vector<Element> elements;
  auto takeName = [&text] {
    StringRef name =
        text.take_while([](char c) { return c == '_' || llvm::isAlnum(c); });
    text = text.drop_front(name.size());
    return name;
  };
  while (!text.empty()) {
    if (text.consume_front("}"))
      break;
    if (text.consume_front("%*"))
      elements.push_back({Kind::Operands, "%*"});
    else if (text.consume_front("%"))
      elements.push_back({Kind::Operand, "%"});
    else if (text.consume_front("$"))
      elements.push_back({Kind::Attribute, takeName()});
    else if (text.consume_front("@"))
      elements.push_back({Kind::Directive, takeName()});
    else if (text.consume_front("{"))
      elements.push_back({Kind::Group, "", parseForm(text)});
    else {
      StringRef literal = text.take_until(
          [](char c) { return StringRef("%$@{}").contains(c); });
      text = text.drop_front(literal.size());
      elements.push_back({Kind::Literal, literal});
    }
  }
  return elements;
}

const Form *assembly::findForm(StringRef name) {
  static const llvm::StringMap<Form> forms = [] {
    llvm::StringMap<Form> map;
    for (const GuestOp &op : getGuestOps()) {
      StringRef text = op.form;
      map[op.name] = {&op, parseAttributes(op.attributes), parseForm(text)};
    }
    return map;
  }();
  auto found = forms.find(name);
  return found == forms.end() ? nullptr : &found->second;
}

const AttributeSpec *Form::find(StringRef attribute) const {
  auto found = llvm::find_if(
      attributes, [&](const AttributeSpec &s) { return s.name == attribute; });
  return found == attributes.end() ? nullptr : &*found;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Takes a word or another character from the front of `text`.
static StringRef takeToken(StringRef &text) {
  text = text.ltrim();
  StringRef word =
      text.take_while([](char c) { return c == '_' || llvm::isAlpha(c); });
  StringRef token = text.take_front(std::max<size_t>(word.size(), 1));
  text = text.drop_front(token.size()).ltrim();
  return token;
}

ArrayRef<Token> assembly::getTokens() {
  static constexpr Token kTokens[] = {
      {",", &AsmParser::parseOptionalComma, 0},
      {":", &AsmParser::parseOptionalColon, 0},
      {"=", &AsmParser::parseOptionalEqual, 0},
      {"->", &AsmParser::parseOptionalArrow, 0},
      {"?", &AsmParser::parseOptionalQuestion, 0},
      {"(", &AsmParser::parseOptionalLParen, 1},
      {")", &AsmParser::parseOptionalRParen, -1},
      {"[", &AsmParser::parseOptionalLSquare, 1},
      {"]", &AsmParser::parseOptionalRSquare, -1},
      {"<", &AsmParser::parseOptionalLess, 1},
      {">", &AsmParser::parseOptionalGreater, -1},
      {"{", &AsmParser::parseOptionalLBrace, 1},
      {"}", &AsmParser::parseOptionalRBrace, -1},
  };
  return kTokens;
}

static ParseResult readOptionalToken(OpAsmParser &parser, StringRef text) {
  for (const Token &token : getTokens())
    if (token.text == text)
      return (parser.*token.parse)();
  return parser.parseOptionalKeyword(text);
}

static ParseResult readLiteral(OpAsmParser &parser, StringRef text) {
  for (text = text.ltrim(); !text.empty();) {
    StringRef token = takeToken(text);
    if (failed(readOptionalToken(parser, token)))
      return parser.emitError(parser.getCurrentLocation())
             << "expected '" << token << "'";
  }
  return success();
}

static ParseResult readElements(Reader &reader, ArrayRef<Element> elements);

/// Reads a group if its first token is there. `isAfterComma` says that a comma
/// has been read, with which several groups may begin.
static ParseResult readGroup(Reader &reader, ArrayRef<Element> elements,
                             bool &isAfterComma) {
  StringRef text = elements.front().text.ltrim();
  if (elements.front().kind == Kind::Literal)
    elements = elements.drop_front();
  if (text.empty()) {
    // An operand or a word begins the group.
    if (elements.front().kind == Kind::Attribute) {
      const AttributeSpec *spec = reader.form.find(elements.front().text);
      SmallVector<StringRef> words;
      spec->detail.split(words, '|');
      StringRef word;
      if (failed(reader.parser.parseOptionalKeyword(&word, words)))
        return success();
      int64_t number = llvm::find(words, word) - words.begin();
      return reader.add(spec->name, reader.builder().getI32IntegerAttr(number));
    }
    if (reader.parser.parseOperandList(reader.operands))
      return failure();
    return reader.operands.empty()
               ? success()
               : readElements(reader, elements.drop_front());
  }
  StringRef token = takeToken(text);
  if (token == ",") {
    isAfterComma =
        isAfterComma || succeeded(reader.parser.parseOptionalComma());
    if (!isAfterComma)
      return success();
    if (!text.empty() &&
        failed(readOptionalToken(reader.parser, takeToken(text))))
      return success();
    isAfterComma = false;
  } else if (failed(readOptionalToken(reader.parser, token))) {
    return success();
  }
  if (readLiteral(reader.parser, text))
    return failure();
  return readElements(reader, elements);
}

static ParseResult readElement(Reader &reader, const Element &element) {
  switch (element.kind) {
  case Kind::Literal:
    return readLiteral(reader.parser, element.text);
  case Kind::Operand:
    return reader.parser.parseOperand(reader.operands.emplace_back());
  case Kind::Operands:
    return reader.parser.parseOperandList(reader.operands);
  case Kind::Attribute:
    return readAttribute(reader, *reader.form.find(element.text));
  case Kind::Directive:
    return findDirective(element.text)->read(reader);
  case Kind::Group:
    break;
  }
  llvm_unreachable("groups are read by their first token");
}

static ParseResult readElements(Reader &reader, ArrayRef<Element> elements) {
  bool isAfterComma = false;
  for (const Element &element : elements) {
    bool isGroup = element.kind == Kind::Group;
    if (isAfterComma && !isGroup)
      break;
    if (isGroup ? readGroup(reader, element.elements, isAfterComma)
                : readElement(reader, element))
      return failure();
  }
  if (isAfterComma)
    return reader.parser.emitError(reader.parser.getCurrentLocation())
           << "expected no ',' before this";
  return success();
}

ParseResult zpp::readPretty(OpAsmParser &parser, OperationState &state) {
  const Form *form = findForm(state.name.getStringRef());
  if (!form || form->op->form.empty())
    return parser.emitError(parser.getNameLoc())
           << "expected the generic form \"" << state.name
           << "\"(...), but got a pretty form of '" << state.name
           << "', which zpp does not know";
  Reader reader{parser, state, *form, parser.getCurrentLocation()};
  if (readElements(reader, form->elements) ||
      parser.resolveOperands(reader.operands, reader.operandTypes,
                             reader.location, state.operands))
    return failure();
  if (!reader.properties.empty())
    state.propertiesAttr = reader.properties.getDictionary(parser.getContext());
  return success();
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Whether `op` has what the group writes.
static bool isPresent(Operation *op, const Form &form,
                      ArrayRef<Element> group) {
  return llvm::all_of(group, [&](const Element &element) {
    if (element.kind == Kind::Attribute)
      return static_cast<bool>(getAttribute(op, *form.find(element.text)));
    return element.kind == Kind::Literal || op->getNumOperands() != 0;
  });
}

static bool writeElements(Writer &writer, ArrayRef<Element> elements) {
  Operation *op = writer.op;
  for (const Element &element : elements) {
    switch (element.kind) {
    case Kind::Literal:
      writer.print(element.text);
      break;
    case Kind::Operand:
      if (writer.operands == op->getNumOperands())
        return false;
      writer.print(
          [&](OpAsmPrinter &p) { p << op->getOperand(writer.operands); });
      ++writer.operands;
      break;
    case Kind::Operands:
      writer.print([&](OpAsmPrinter &p) {
        p << op->getOperands().drop_front(writer.operands);
      });
      writer.operands = op->getNumOperands();
      break;
    case Kind::Attribute:
      if (!writeAttribute(writer, *writer.form.find(element.text),
                          op->getAttr(element.text)))
        return false;
      break;
    case Kind::Directive:
      if (!findDirective(element.text)->write(writer))
        return false;
      break;
    case Kind::Group:
      if (isPresent(op, writer.form, element.elements) &&
          !writeElements(writer, element.elements))
        return false;
      break;
    }
  }
  return true;
}

bool zpp::writePretty(Operation *op, OpAsmPrinter *printer) {
  const Form *form = findForm(op->getName().getStringRef());
  if (!form || form->op->form.empty() || op->getNumSuccessors() != 0)
    return false;
  Attribute properties = op->getPropertiesAsAttribute();
  if (properties && !isa<DictionaryAttr>(properties))
    return false;
  Writer writer{printer, op, *form};
  return writeElements(writer, form->elements) &&
         writer.operands == op->getNumOperands() &&
         writer.regions == op->getNumRegions();
}
