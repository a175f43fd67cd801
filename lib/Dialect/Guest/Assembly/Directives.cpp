//===- Directives.cpp - What an attribute's kind does not say -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "zpp/Dialect/Guest/DimFlow.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include <array>

using namespace mlir;
using namespace zpp;
using namespace zpp::assembly;

//===----------------------------------------------------------------------===//
// Operands and attributes in braces
//===----------------------------------------------------------------------===//

static ParseResult readAttrs(Reader &reader) { return reader.readAttributes(); }

static bool writeAttrs(Writer &writer) {
  writer.writeAttributes();
  return true;
}

/// Reads operands with a comma after each: `%a, %b,`.
static ParseResult readList(Reader &reader) {
  while (true) {
    OpAsmParser::UnresolvedOperand operand;
    OptionalParseResult result = reader.parser.parseOptionalOperand(operand);
    if (!result.has_value())
      return success();
    if (*result || reader.parser.parseComma())
      return failure();
    reader.operands.push_back(operand);
  }
}

static bool writeList(Writer &writer) {
  writer.print([&](OpAsmPrinter &p) { p << writer.op->getOperands() << ','; });
  writer.operands = writer.op->getNumOperands();
  return writer.operands != 0;
}

/// Reads `()`, or operands and their types, which are those of the results.
static ParseResult readBarrier(Reader &reader) {
  OpAsmParser &parser = reader.parser;
  if (reader.readAttributes() || parser.parseOperandList(reader.operands))
    return failure();
  if (reader.operands.empty())
    return failure(parser.parseLParen() || parser.parseRParen());
  if (parser.parseColonTypeList(reader.operandTypes))
    return failure();
  reader.state.addTypes(reader.operandTypes);
  return success();
}

static bool writeBarrier(Writer &writer) {
  Operation *op = writer.op;
  writer.operands = op->getNumOperands();
  writer.writeAttributes();
  writer.print([&](OpAsmPrinter &p) {
    if (writer.operands == 0)
      p << "()";
    else
      p << ' ' << op->getOperands() << " : " << op->getOperandTypes();
  });
  return op->getOperandTypes() == op->getResultTypes();
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

/// Reads `e5m2`.
static ParseResult readBits(Reader &reader) {
  SMLoc location = reader.parser.getCurrentLocation();
  StringRef word;
  if (reader.parser.parseKeyword(&word))
    return failure();
  int32_t exponent, mantissa;
  StringRef rest = word;
  if (!rest.consume_front("e") || rest.consumeInteger(10, exponent) ||
      !rest.consume_front("m") || rest.getAsInteger(10, mantissa))
    return reader.parser.emitError(location)
           << "expected bits as in e5m2, but got " << word;
  return failure(reader.add("exponent_bits",
                            reader.builder().getI32IntegerAttr(exponent)) ||
                 reader.add("mantissa_bits",
                            reader.builder().getI32IntegerAttr(mantissa)));
}

static bool writeBits(Writer &writer) {
  auto exponent = writer.op->getAttrOfType<IntegerAttr>("exponent_bits");
  auto mantissa = writer.op->getAttrOfType<IntegerAttr>("mantissa_bits");
  for (IntegerAttr bits : {exponent, mantissa})
    if (!bits || !bits.getType().isSignlessInteger(32) ||
        bits.getValue().isNegative())
      return false;
  writer.print([&](OpAsmPrinter &p) {
    p << 'e' << exponent.getInt() << 'm' << mantissa.getInt();
  });
  return true;
}

static constexpr std::array<StringLiteral, 3> kRanges = {
    "start_indices", "limit_indices", "strides"};

/// Reads `[0:8, 1:5:2]`: begin, end and stride of each dim.
static ParseResult readRanges(Reader &reader) {
  OpAsmParser &parser = reader.parser;
  std::array<SmallVector<int64_t>, 3> ranges;
  auto readRange = [&]() -> ParseResult {
    auto &[begins, ends, strides] = ranges;
    strides.push_back(1);
    if (parser.parseInteger(begins.emplace_back()) || parser.parseColon() ||
        parser.parseInteger(ends.emplace_back()))
      return failure();
    return succeeded(parser.parseOptionalColon())
               ? parser.parseInteger(strides.back())
               : success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, readRange))
    return failure();
  for (auto [name, numbers] : llvm::zip(kRanges, ranges))
    if (reader.add(name, reader.builder().getDenseI64ArrayAttr(numbers)))
      return failure();
  return success();
}

static bool writeRanges(Writer &writer) {
  std::array<ArrayRef<int64_t>, 3> ranges;
  for (auto [name, numbers] : llvm::zip(kRanges, ranges)) {
    auto ints = writer.op->getAttrOfType<DenseI64ArrayAttr>(name);
    if (!ints ||
        ints.size() !=
            writer.op->getAttrOfType<DenseI64ArrayAttr>(kRanges[0]).size())
      return false;
    numbers = ints;
  }
  writer.print([&](OpAsmPrinter &p) {
    p << '[';
    llvm::interleaveComma(llvm::zip(ranges[0], ranges[1], ranges[2]), p,
                          [&](auto range) {
                            auto [begin, end, stride] = range;
                            p << begin << ':' << end;
                            if (stride != 1)
                              p << ':' << stride;
                          });
    p << ']';
  });
  return true;
}

//===----------------------------------------------------------------------===//
// Dims of products
//===----------------------------------------------------------------------===//

/// Reads `batching_dims = [0] x [0], contracting_dims = [2] x [1]`, of which
/// the first half may be missing.
static ParseResult readDot(Reader &reader) {
  OpAsmParser &parser = reader.parser;
  DotDims dims;
  auto readPair = [&](unsigned first) -> ParseResult {
    return failure(
        parser.parseEqual() || reader.readInts(dims.numbers[first]) ||
        parser.parseKeyword("x") || reader.readInts(dims.numbers[first + 1]));
  };
  if (succeeded(parser.parseOptionalKeyword("batching_dims")) &&
      (readPair(0) || parser.parseComma()))
    return failure();
  if (parser.parseKeyword("contracting_dims") || readPair(2))
    return failure();
  MLIRContext *context = parser.getContext();
  return reader.add(
      "dot_dimension_numbers",
      OpaqueAttr::get(StringAttr::get(context, reader.form.getDialect()),
                      dims.str(), NoneType::get(context)));
}

static bool writeDot(Writer &writer) {
  auto opaque = writer.op->getAttrOfType<OpaqueAttr>("dot_dimension_numbers");
  if (!opaque)
    return false;
  DotDims dims = DotDims::read(opaque.getAttrData());
  // Another text says more than its dims.
  if (dims.str() != opaque.getAttrData())
    return false;
  writer.print([&](OpAsmPrinter &p) {
    auto writePair = [&](StringRef name, unsigned first) {
      p << name << " = [";
      llvm::interleaveComma(dims.numbers[first], p);
      p << "] x [";
      llvm::interleaveComma(dims.numbers[first + 1], p);
      p << ']';
    };
    if (!dims.numbers[0].empty() || !dims.numbers[1].empty()) {
      writePair("batching_dims", 0);
      p << ", ";
    }
    writePair("contracting_dims", 2);
  });
  return true;
}

//===----------------------------------------------------------------------===//
// Windows of convolutions
//===----------------------------------------------------------------------===//

/// Words of a window, and the attributes that they stand for. Padding is a
/// table, and reversals are flags.
static constexpr std::pair<StringLiteral, StringLiteral> kWindow[] = {
    {"stride", "window_strides"},
    {"pad", "padding"},
    {"lhs_dilate", "lhs_dilation"},
    {"rhs_dilate", "rhs_dilation"},
    {"reverse", "window_reversal"}};

/// Reads `[[0, 0], [1, 1]]`.
static ParseResult readPadding(Reader &reader) {
  SmallVector<int64_t> numbers;
  auto readPair = [&]() -> ParseResult {
    size_t size = numbers.size();
    if (reader.readInts(numbers))
      return failure();
    if (numbers.size() != size + 2)
      return reader.parser.emitError(reader.parser.getCurrentLocation())
             << "expected 2 numbers, but got " << numbers.size() - size;
    return success();
  };
  if (reader.parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                            readPair))
    return failure();
  auto type =
      RankedTensorType::get({static_cast<int64_t>(numbers.size() / 2), 2},
                            reader.builder().getI64Type());
  return reader.add("padding", DenseIntElementsAttr::get(type, numbers));
}

static ParseResult readReversal(Reader &reader) {
  SmallVector<int64_t> numbers;
  SmallVector<bool> flags;
  auto readFlag = [&]() -> ParseResult {
    if (succeeded(reader.parser.parseOptionalKeyword("true")))
      flags.push_back(true);
    else if (succeeded(reader.parser.parseOptionalKeyword("false")))
      flags.push_back(false);
    else if (reader.parser.parseInteger(numbers.emplace_back()))
      return failure();
    else
      flags.push_back(numbers.back() != 0);
    return success();
  };
  if (reader.parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                            readFlag))
    return failure();
  return reader.add("window_reversal",
                    reader.builder().getDenseBoolArrayAttr(flags));
}

/// Reads `{stride = [1, 1], pad = [[0, 0], [0, 0]]}`, with any of the words.
static ParseResult readWindow(Reader &reader) {
  OpAsmParser &parser = reader.parser;
  auto readEntry = [&]() -> ParseResult {
    SMLoc location = parser.getCurrentLocation();
    StringRef word;
    if (parser.parseKeyword(&word) || parser.parseEqual())
      return failure();
    const auto *found = llvm::find_if(
        kWindow, [&](const auto &entry) { return entry.first == word; });
    if (found == std::end(kWindow))
      return parser.emitError(location)
             << "expected stride, pad, lhs_dilate, rhs_dilate or reverse, "
                "but got "
             << word;
    if (word == "pad")
      return readPadding(reader);
    if (word == "reverse")
      return readReversal(reader);
    return reader.readInts(found->second);
  };
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces,
                                        readEntry);
}

static bool writeWindow(Writer &writer) {
  writer.print("{");
  StringRef separator = "";
  for (const auto &entry : kWindow) {
    StringRef word = entry.first, name = entry.second;
    Attribute attribute = writer.op->getAttr(name);
    if (!attribute)
      continue;
    writer.print([&](OpAsmPrinter &p) { p << separator << word << " = "; });
    separator = ", ";
    if (auto padding = dyn_cast<DenseIntElementsAttr>(attribute)) {
      ShapedType type = padding.getType();
      if (word != "pad" || type.getRank() != 2 || type.getDimSize(1) != 2 ||
          !type.getElementType().isSignlessInteger(64))
        return false;
      writer.print([&](OpAsmPrinter &p) {
        p << '[';
        auto numbers = llvm::to_vector(padding.getValues<int64_t>());
        llvm::interleaveComma(llvm::seq<size_t>(numbers.size() / 2), p,
                              [&](size_t row) {
                                p << '[' << numbers[2 * row] << ", "
                                  << numbers[2 * row + 1] << ']';
                              });
        p << ']';
      });
    } else if (auto flags = dyn_cast<DenseBoolArrayAttr>(attribute)) {
      if (word != "reverse")
        return false;
      writer.print([&](OpAsmPrinter &p) {
        p << '[';
        llvm::interleaveComma(flags.asArrayRef(), p,
                              [&](bool flag) { p << flag; });
        p << ']';
      });
    } else if (word == "pad" || word == "reverse" ||
               !writer.writeInts(attribute)) {
      return false;
    }
  }
  writer.print("}");
  return true;
}

const Directive *assembly::findDirective(StringRef name) {
  static const llvm::StringMap<Directive> directives = {
      {"attrs", {readAttrs, writeAttrs}},
      {"barrier", {readBarrier, writeBarrier}},
      {"bits", {readBits, writeBits}},
      {"dot", {readDot, writeDot}},
      {"list", {readList, writeList}},
      {"ranges", {readRanges, writeRanges}},
      {"window", {readWindow, writeWindow}}};
  auto found = directives.find(name);
  if (found != directives.end())
    return &found->second;
  const Directive *types = findTypes(name);
  return types ? types : findRegions(name);
}
