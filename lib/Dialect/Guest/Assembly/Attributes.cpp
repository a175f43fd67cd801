//===- Attributes.cpp - Attributes without their names --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Form.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::assembly;

//===----------------------------------------------------------------------===//
// What directives have in common
//===----------------------------------------------------------------------===//

ParseResult Reader::add(StringRef name, Attribute attribute) {
  if (properties.get(name))
    return parser.emitError(parser.getCurrentLocation())
           << "expected '" << name << "' once, but got it twice";
  properties.set(name, attribute);
  return success();
}

ParseResult Reader::readAttributes(bool isWithKeyword) {
  NamedAttrList attributes;
  if (isWithKeyword ? parser.parseOptionalAttrDictWithKeyword(attributes)
                    : parser.parseOptionalAttrDict(attributes))
    return failure();
  for (NamedAttribute attribute : attributes) {
    if (!form.find(attribute.getName()))
      state.attributes.push_back(attribute);
    else if (add(attribute.getName(), attribute.getValue()))
      return failure();
  }
  return success();
}

ParseResult Reader::readInts(SmallVectorImpl<int64_t> &ints) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
    return parser.parseInteger(ints.emplace_back());
  });
}

ParseResult Reader::readInts(StringRef name) {
  SmallVector<int64_t> ints;
  if (readInts(ints))
    return failure();
  return add(name, builder().getDenseI64ArrayAttr(ints));
}

/// Reads a token; `depth` counts brackets. nullopt if there is none that text
/// of attributes has.
static std::optional<ParseResult> readToken(OpAsmParser &parser, int &depth) {
  for (const Token &token : getTokens())
    if (succeeded((parser.*token.parse)())) {
      depth += token.depth;
      return success();
    }
  StringRef word;
  std::string string;
  StringAttr symbol;
  if (succeeded(parser.parseOptionalKeyword(&word)) ||
      succeeded(parser.parseOptionalString(&string)) ||
      succeeded(parser.parseOptionalSymbolName(symbol)))
    return success();
  int64_t number;
  OptionalParseResult result = parser.parseOptionalInteger(number);
  return result.has_value() ? std::optional(*result) : std::nullopt;
}

ParseResult Reader::readText(std::string &text) {
  const char *begin = parser.getCurrentLocation().getPointer();
  const char *end;
  bool isContinued;
  do {
    int depth = 0;
    do {
      // Only brackets change the depth, and they have one character.
      end = parser.getCurrentLocation().getPointer() + 1;
      int before = depth;
      std::optional<ParseResult> token = readToken(parser, depth);
      if (token && failed(*token))
        return failure();
      if (!token || (depth <= 0 && before == depth))
        return parser.emitError(parser.getCurrentLocation(),
                                "expected an attribute in brackets");
    } while (depth > 0);
    // [b, 0, f]x[0, i, o]->[b, 0, f]
    isContinued = succeeded(parser.parseOptionalKeyword("x")) ||
                  succeeded(parser.parseOptionalArrow());
  } while (isContinued);
  text.assign(begin, end);
  return success();
}

static DictionaryAttr getProperties(Operation *op) {
  return dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute());
}

Attribute assembly::getAttribute(Operation *op, const AttributeSpec &spec) {
  Attribute attribute = op->getAttr(spec.name);
  bool isInitial =
      attribute && !spec.initial.empty() && toText(attribute) == spec.initial;
  return isInitial ? Attribute() : attribute;
}

void Writer::writeAttributes(bool isWithKeyword) {
  if (!printer)
    return;
  NamedAttrList attributes(op->getDiscardableAttrDictionary());
  if (DictionaryAttr properties = getProperties(op))
    for (NamedAttribute property : properties)
      attributes.set(property.getName(), property.getValue());
  SmallVector<StringRef> elided;
  for (const AttributeSpec &spec : form.attributes)
    if (!spec.kind.empty() || !getAttribute(op, spec))
      elided.push_back(spec.name);
  // Sorted, as those of an op with properties are.
  ArrayRef<NamedAttribute> sorted =
      attributes.getDictionary(op->getContext()).getValue();
  if (isWithKeyword)
    printer->printOptionalAttrDictWithKeyword(sorted, elided);
  else
    printer->printOptionalAttrDict(sorted, elided);
}

bool Writer::writeInts(Attribute attribute) {
  auto ints = dyn_cast_or_null<DenseI64ArrayAttr>(attribute);
  if (!ints)
    return false;
  print([&](OpAsmPrinter &p) {
    p << '[';
    llvm::interleaveComma(ints.asArrayRef(), p);
    p << ']';
  });
  return true;
}

//===----------------------------------------------------------------------===//
// Kinds of attributes
//===----------------------------------------------------------------------===//

template <typename Int>
static FailureOr<Attribute> readInteger(Reader &reader, const AttributeSpec &) {
  Int number = 0;
  if (reader.parser.parseInteger(number))
    return failure();
  Type type = reader.builder().getIntegerType(8 * sizeof(Int));
  return Attribute(reader.builder().getIntegerAttr(type, number));
}

template <typename Int>
static bool writeInteger(Writer &writer, const AttributeSpec &,
                         Attribute attribute) {
  auto number = dyn_cast_or_null<IntegerAttr>(attribute);
  if (!number || !number.getType().isSignlessInteger(8 * sizeof(Int)))
    return false;
  writer.print([&](OpAsmPrinter &p) { p << number.getInt(); });
  return true;
}

static FailureOr<Attribute> readBool(Reader &reader, const AttributeSpec &) {
  BoolAttr flag;
  if (reader.parser.parseAttribute(flag))
    return failure();
  return Attribute(flag);
}

static bool writeBool(Writer &writer, const AttributeSpec &,
                      Attribute attribute) {
  writer.print([&](OpAsmPrinter &p) { p << attribute; });
  return isa_and_nonnull<BoolAttr>(attribute);
}

static FailureOr<Attribute> readString(Reader &reader, const AttributeSpec &) {
  std::string string;
  if (reader.parser.parseString(&string))
    return failure();
  return Attribute(reader.builder().getStringAttr(string));
}

static FailureOr<Attribute> readSymbol(Reader &reader, const AttributeSpec &) {
  StringAttr symbol;
  if (reader.parser.parseSymbolName(symbol))
    return failure();
  return Attribute(symbol);
}

/// A string or a symbol.
static bool writeString(Writer &writer, const AttributeSpec &spec,
                        Attribute attribute) {
  auto string = dyn_cast_or_null<StringAttr>(attribute);
  bool isSymbol = spec.kind == "symbol";
  if (!string || !isa<NoneType>(string.getType()) ||
      (isSymbol && string.empty()))
    return false;
  writer.print([&](OpAsmPrinter &p) {
    if (isSymbol)
      p.printSymbolName(string);
    else
      p.printString(string);
  });
  return true;
}

static FailureOr<Attribute> readIntArray(Reader &reader,
                                         const AttributeSpec &) {
  SmallVector<int64_t> ints;
  if (reader.readInts(ints))
    return failure();
  return Attribute(reader.builder().getDenseI64ArrayAttr(ints));
}

static bool writeIntArray(Writer &writer, const AttributeSpec &,
                          Attribute attribute) {
  return writer.writeInts(attribute);
}

static FailureOr<Attribute> readCase(Reader &reader,
                                     const AttributeSpec &spec) {
  OpAsmParser &parser = reader.parser;
  SmallVector<StringRef> words;
  spec.detail.split(words, '|');
  StringRef word;
  if (parser.parseOptionalKeyword(&word, words))
    return parser.emitError(parser.getCurrentLocation())
           << "expected one of " << llvm::join(words, ", ");
  return Attribute(reader.builder().getI32IntegerAttr(llvm::find(words, word) -
                                                      words.begin()));
}

static bool writeCase(Writer &writer, const AttributeSpec &spec,
                      Attribute attribute) {
  SmallVector<StringRef> words;
  spec.detail.split(words, '|');
  auto number = dyn_cast_or_null<IntegerAttr>(attribute);
  if (!number || !number.getType().isSignlessInteger(32) ||
      number.getValue().uge(words.size()))
    return false;
  writer.print(words[number.getInt()]);
  return true;
}

/// Returns the attribute that the generic form writes as `#dialect<data>` or
/// `#dialect.data`.
static Attribute getOpaque(Reader &reader, const Twine &data) {
  MLIRContext *context = reader.parser.getContext();
  return OpaqueAttr::get(StringAttr::get(context, reader.form.getDialect()),
                         data.str(), NoneType::get(context));
}

static FailureOr<Attribute> readEnum(Reader &reader,
                                     const AttributeSpec &spec) {
  StringRef word;
  if (reader.parser.parseKeyword(&word))
    return failure();
  return getOpaque(reader, spec.detail + " " + word);
}

static FailureOr<Attribute> readEnums(Reader &reader,
                                      const AttributeSpec &spec) {
  SmallVector<Attribute> attributes;
  if (reader.parser.parseCommaSeparatedList(
          AsmParser::Delimiter::Square, [&]() -> ParseResult {
            FailureOr<Attribute> attribute = readEnum(reader, spec);
            if (succeeded(attribute))
              attributes.push_back(*attribute);
            return failure(failed(attribute));
          }))
    return failure();
  return Attribute(reader.builder().getArrayAttr(attributes));
}

static FailureOr<Attribute> readText(Reader &reader,
                                     const AttributeSpec &spec) {
  std::string text;
  if (reader.readText(text))
    return failure();
  auto [before, after] = spec.detail.split('*');
  return getOpaque(reader, before + text + after);
}

/// Returns the text between `before` and `after` in an attribute of the op's
/// dialect.
static std::optional<StringRef> getText(Writer &writer, Attribute attribute,
                                        StringRef before, StringRef after) {
  auto opaque = dyn_cast_or_null<OpaqueAttr>(attribute);
  if (!opaque || opaque.getDialectNamespace() != writer.form.getDialect())
    return std::nullopt;
  StringRef text = opaque.getAttrData();
  if (!text.consume_front(before) || !text.consume_back(after))
    return std::nullopt;
  return text;
}

/// Whether `text` is what `Reader::readText` reads: brackets, or several ones
/// with `x` or `->` between them. MLIR has matched brackets and quotes.
static bool isBracketed(StringRef text) {
  while (true) {
    int depth = 0;
    bool isQuoted = false;
    size_t size = 0;
    do {
      if (size == text.size())
        return false;
      char c = text[size++];
      if (isQuoted && c == '\\')
        ++size;
      else if (c == '"')
        isQuoted = !isQuoted;
      else if (!isQuoted && StringRef("<[{(").contains(c))
        ++depth;
      else if (!isQuoted && StringRef(">]})").contains(c) &&
               !text.take_front(size).ends_with("->"))
        --depth;
    } while (depth > 0 || isQuoted);
    text = text.drop_front(size);
    if (text.empty())
      return size > 1;
    if (!text.consume_front("x") && !text.consume_front("->"))
      return false;
  }
}

static std::optional<StringRef> getEnum(Writer &writer, Attribute attribute,
                                        const AttributeSpec &spec) {
  std::optional<StringRef> text =
      getText(writer, attribute, spec.detail, /*after=*/"");
  if (!text || !text->starts_with(" "))
    return std::nullopt;
  StringRef word = text->trim();
  bool isWord =
      !word.empty() && !llvm::isDigit(word.front()) &&
      llvm::all_of(word, [](char c) { return c == '_' || llvm::isAlnum(c); });
  return isWord ? std::optional(word) : std::nullopt;
}

static bool writeEnum(Writer &writer, const AttributeSpec &spec,
                      Attribute attribute) {
  std::optional<StringRef> word = getEnum(writer, attribute, spec);
  writer.print(word.value_or(""));
  return word.has_value();
}

static bool writeEnums(Writer &writer, const AttributeSpec &spec,
                       Attribute attribute) {
  auto attributes = dyn_cast_or_null<ArrayAttr>(attribute);
  if (!attributes || !llvm::all_of(attributes, [&](Attribute element) {
        return getEnum(writer, element, spec);
      }))
    return false;
  writer.print([&](OpAsmPrinter &p) {
    p << '[';
    llvm::interleaveComma(attributes, p, [&](Attribute element) {
      p << *getEnum(writer, element, spec);
    });
    p << ']';
  });
  return true;
}

static bool writeText(Writer &writer, const AttributeSpec &spec,
                      Attribute attribute) {
  auto [before, after] = spec.detail.split('*');
  std::optional<StringRef> text = getText(writer, attribute, before, after);
  if (!text || !isBracketed(*text))
    return false;
  writer.print(*text);
  return true;
}

namespace {
/// How text stands for attributes of a kind.
struct AttributeKind {
  FailureOr<Attribute> (*read)(Reader &, const AttributeSpec &);
  bool (*write)(Writer &, const AttributeSpec &, Attribute);
};
} // namespace

static const AttributeKind &getKind(const AttributeSpec &spec) {
  static const llvm::StringMap<AttributeKind> kinds = {
      {"bool", {readBool, writeBool}},
      {"case", {readCase, writeCase}},
      {"enum", {readEnum, writeEnum}},
      {"enums", {readEnums, writeEnums}},
      {"i32", {readInteger<int32_t>, writeInteger<int32_t>}},
      {"i64", {readInteger<int64_t>, writeInteger<int64_t>}},
      {"ints", {readIntArray, writeIntArray}},
      {"string", {readString, writeString}},
      {"symbol", {readSymbol, writeString}},
      {"text", {readText, writeText}}};
  return kinds.find(spec.kind)->second;
}

ParseResult assembly::readAttribute(Reader &reader, const AttributeSpec &spec) {
  FailureOr<Attribute> attribute = getKind(spec).read(reader, spec);
  return failed(attribute) ? failure() : reader.add(spec.name, *attribute);
}

bool assembly::writeAttribute(Writer &writer, const AttributeSpec &spec,
                              Attribute attribute) {
  return getKind(spec).write(writer, spec, attribute);
}
