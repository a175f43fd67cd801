//===- Regions.cpp - Ops with regions, and constants ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Form.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::assembly;

/// Returns the only block of each region of `op`; null for other regions.
static Block *getBlock(Operation *op, unsigned region) {
  return op->getRegion(region).hasOneBlock() ? &op->getRegion(region).front()
                                             : nullptr;
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

/// Reads a value, which has the type of the result, or the generic form, which
/// other constants have.
static ParseResult readConstant(Reader &reader) {
  OpAsmParser &parser = reader.parser;
  if (succeeded(parser.parseOptionalLParen()))
    return failure(parser.parseRParen() ||
                   parser.parseGenericOperationAfterOpName(
                       reader.state, ArrayRef<OpAsmParser::UnresolvedOperand>(),
                       ArrayRef<Block *>()));
  ElementsAttr value;
  if (reader.readAttributes() || parser.parseAttribute(value) ||
      reader.add("value", value))
    return failure();
  reader.state.addTypes(value.getType());
  return success();
}

static bool writeConstant(Writer &writer) {
  Operation *op = writer.op;
  auto value = op->getAttrOfType<ElementsAttr>("value");
  if (!value || op->getNumOperands() != 0 || op->getNumResults() != 1 ||
      value.getType() != op->getResult(0).getType())
    return false;
  writer.writeAttributes();
  writer.print([&](OpAsmPrinter &p) {
    p << ' ';
    p.printAttribute(value);
  });
  return true;
}

//===----------------------------------------------------------------------===//
// Manual computations
//===----------------------------------------------------------------------===//

/// Reads `(%arg0: type) {...}`.
static ParseResult readRegion(Reader &reader) {
  SmallVector<OpAsmParser::Argument> arguments;
  return failure(
      reader.parser.parseArgumentList(arguments, OpAsmParser::Delimiter::Paren,
                                      /*allowType=*/true,
                                      /*allowAttrs=*/true) ||
      reader.parser.parseRegion(*reader.state.addRegion(), arguments));
}

static bool writeRegion(Writer &writer) {
  Operation *op = writer.op;
  if (op->getNumRegions() != 1 || !getBlock(op, 0))
    return false;
  writer.regions = 1;
  writer.print([&](OpAsmPrinter &p) {
    p << '(';
    llvm::interleaveComma(
        op->getRegion(0).getArguments(), p,
        [&](BlockArgument argument) { p.printRegionArgument(argument); });
    p << ") ";
    p.printRegion(op->getRegion(0), /*printEntryBlockArgs=*/false);
  });
  return true;
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

static SmallVector<OpAsmParser::Argument>
makeArguments(ArrayRef<OpAsmParser::UnresolvedOperand> names, TypeRange types) {
  SmallVector<OpAsmParser::Argument> arguments;
  for (auto [name, type] : llvm::zip(names, types)) {
    arguments.emplace_back();
    arguments.back().ssaName = name;
    arguments.back().type = type;
  }
  return arguments;
}

/// Reads `(%iterArg = %0) : type attributes {...} cond {...} do {...}`.
static ParseResult readWhile(Reader &reader) {
  OpAsmParser &parser = reader.parser;
  SmallVector<OpAsmParser::UnresolvedOperand> names;
  auto readPair = [&] {
    return failure(parser.parseOperand(names.emplace_back(),
                                       /*allowResultNumber=*/false) ||
                   parser.parseEqual() ||
                   parser.parseOperand(reader.operands.emplace_back()));
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, readPair) ||
      (!names.empty() && parser.parseColonTypeList(reader.operandTypes)))
    return failure();
  if (names.size() != reader.operandTypes.size())
    return parser.emitError(reader.location)
           << "expected " << names.size() << " types, but got "
           << reader.operandTypes.size();
  reader.state.addTypes(reader.operandTypes);
  SmallVector<OpAsmParser::Argument> arguments =
      makeArguments(names, reader.operandTypes);
  return failure(reader.readAttributes(/*isWithKeyword=*/true) ||
                 parser.parseKeyword("cond") ||
                 parser.parseRegion(*reader.state.addRegion(), arguments) ||
                 parser.parseKeyword("do") ||
                 parser.parseRegion(*reader.state.addRegion(), arguments));
}

static bool writeWhile(Writer &writer) {
  Operation *op = writer.op;
  if (op->getNumRegions() != 2 || op->getOperandTypes() != op->getResultTypes())
    return false;
  for (unsigned region : {0, 1}) {
    Block *block = getBlock(op, region);
    if (!block || block->getArgumentTypes() != op->getOperandTypes())
      return false;
  }
  writer.operands = op->getNumOperands();
  writer.regions = 2;
  writer.print([&](OpAsmPrinter &p) {
    p << '(';
    llvm::interleaveComma(
        llvm::zip(op->getRegion(1).getArguments(), op->getOperands()), p,
        [&](auto pair) {
          p << std::get<0>(pair) << " = " << std::get<1>(pair);
        });
    p << ')';
    if (op->getNumOperands() != 0)
      p << " : " << op->getOperandTypes();
    writer.writeAttributes(/*isWithKeyword=*/true);
    p.printNewline();
    p << "cond ";
    p.printRegion(op->getRegion(0), /*printEntryBlockArgs=*/false);
    p << " do ";
    p.printRegion(op->getRegion(1), /*printEntryBlockArgs=*/false);
  });
  return true;
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// Whether `reduce` writes a region with this op only as its name.
static bool isReducer(StringRef name) {
  static const llvm::StringSet<> names = {
      "stablehlo.add", "stablehlo.and",     "stablehlo.maximum",
      "stablehlo.or",  "stablehlo.minimum", "stablehlo.multiply",
      "stablehlo.xor"};
  return names.contains(name);
}

static RankedTensorType getScalar(Type type) {
  return RankedTensorType::get({}, cast<TensorType>(type).getElementType());
}

/// Makes a region that applies the op `name` to its two arguments.
static void makeReducer(Region &region, StringRef name, Type type,
                        Location loc) {
  Block &block = region.emplaceBlock();
  block.addArguments({type, type}, {loc, loc});
  // The region has no parent yet, from which a builder could get its context.
  OpBuilder builder(loc.getContext());
  builder.setInsertionPointToStart(&block);
  OperationState reducer(loc, name, block.getArguments(), type);
  Operation *result = builder.create(reducer);
  OperationState end(loc, "stablehlo.return", result->getResults(),
                     TypeRange());
  builder.create(end);
}

/// Reads the arguments of a region, those of an input and of its initial value
/// in one pair: `(%a: type, %c: type) (%b: type, %d: type) {...}`.
static ParseResult readReducer(Reader &reader) {
  OpAsmParser &parser = reader.parser;
  SmallVector<OpAsmParser::Argument> arguments, initials;
  while (succeeded(parser.parseOptionalLParen()))
    if (parser.parseArgument(arguments.emplace_back(), /*allowType=*/true) ||
        parser.parseComma() ||
        parser.parseArgument(initials.emplace_back(), /*allowType=*/true) ||
        parser.parseRParen())
      return failure();
  llvm::append_range(arguments, initials);
  return parser.parseRegion(*reader.state.addRegion(), arguments);
}

/// Reads `(%0 init: %1) applies stablehlo.add across dimensions = [0] : types`,
/// or without `applies`, and `reducer` and a region at the end.
static ParseResult readReduce(Reader &reader) {
  OpAsmParser &parser = reader.parser;
  Location here = parser.getEncodedSourceLoc(reader.location);
  SmallVector<OpAsmParser::UnresolvedOperand> initials;
  auto readPair = [&] {
    return failure(parser.parseLParen() ||
                   parser.parseOperand(reader.operands.emplace_back()) ||
                   parser.parseKeyword("init") || parser.parseColon() ||
                   parser.parseOperand(initials.emplace_back()) ||
                   parser.parseRParen());
  };
  if (parser.parseCommaSeparatedList(readPair))
    return failure();
  llvm::append_range(reader.operands, initials);

  std::string name;
  if (succeeded(parser.parseOptionalKeyword("applies"))) {
    SMLoc location = parser.getCurrentLocation();
    FailureOr<OperationName> reducer = parser.parseCustomOperationName();
    if (failed(reducer))
      return failure();
    name = reducer->getStringRef();
    if (!isReducer(name))
      return parser.emitError(location)
             << "expected a commutative op of stablehlo, but got " << name;
  }

  FunctionType type;
  SMLoc typeLocation;
  if (parser.parseKeyword("across") || parser.parseKeyword("dimensions") ||
      parser.parseEqual() || reader.readInts("dimensions") ||
      reader.readAttributes() || parser.parseColon() ||
      parser.getCurrentLocation(&typeLocation) || parser.parseType(type))
    return failure();
  llvm::append_range(reader.operandTypes, type.getInputs());
  reader.state.addTypes(type.getResults());
  if (name.empty())
    return failure(parser.parseKeyword("reducer") || readReducer(reader));

  std::optional<Location> loc;
  if (parser.parseOptionalLocationSpecifier(loc))
    return failure();
  if (type.getInputs().empty())
    return parser.emitError(typeLocation, "expected a type of an input");
  if (!isa<TensorType>(type.getInput(0)))
    return parser.emitError(typeLocation)
           << "expected a tensor, but got " << type.getInput(0);
  reader.state.location = loc.value_or(here);
  makeReducer(*reader.state.addRegion(), name, getScalar(type.getInput(0)),
              reader.state.location);
  return success();
}

/// Returns the op that a region applies to its two arguments, if it does
/// nothing else.
static Operation *getReducer(Operation *op, Block &block) {
  if (op->getNumOperands() == 0 || block.getNumArguments() != 2 ||
      !llvm::hasNItems(block, 2))
    return nullptr;
  Operation &reducer = block.front(), &end = block.back();
  Type input = op->getOperand(0).getType();
  if (!isa<TensorType>(input))
    return nullptr;
  Type type = getScalar(input);
  auto isType = [&](Type other) { return other == type; };
  bool isBare =
      llvm::all_of(ArrayRef<Operation *>{&reducer, &end}, [](Operation *inner) {
        return inner->getDiscardableAttrDictionary().empty() &&
               !inner->getPropertiesAsAttribute();
      });
  bool isReduction = isReducer(reducer.getName().getStringRef()) && isBare &&
                     end.getName().getStringRef() == "stablehlo.return" &&
                     llvm::equal(reducer.getOperands(), block.getArguments()) &&
                     llvm::equal(end.getOperands(), reducer.getResults()) &&
                     reducer.getNumResults() == 1 &&
                     llvm::all_of(reducer.getOperandTypes(), isType) &&
                     llvm::all_of(reducer.getResultTypes(), isType);
  return isReduction ? &reducer : nullptr;
}

static bool writeReduce(Writer &writer) {
  Operation *op = writer.op;
  unsigned inputs = op->getNumOperands() / 2;
  if (op->getNumOperands() % 2 != 0 || inputs == 0 || op->getNumRegions() != 1)
    return false;
  Block *block = getBlock(op, 0);
  if (!block || block->getNumArguments() != op->getNumOperands())
    return false;
  writer.operands = op->getNumOperands();
  writer.regions = 1;
  Operation *reducer = getReducer(op, *block);
  auto writePairs = [&](StringRef separator, auto write) {
    llvm::interleave(
        llvm::seq(inputs), [&](unsigned i) { write(i, i + inputs); },
        [&] { writer.print(separator); });
  };
  writePairs(", ", [&](unsigned input, unsigned initial) {
    writer.print([&](OpAsmPrinter &p) {
      p << '(' << op->getOperand(input) << " init: " << op->getOperand(initial)
        << ')';
    });
  });
  if (reducer)
    writer.print(
        [&](OpAsmPrinter &p) { p << " applies " << reducer->getName(); });
  writer.print(" across dimensions = ");
  if (!writer.writeInts(op->getAttr("dimensions")))
    return false;
  writer.writeAttributes();
  writer.print([&](OpAsmPrinter &p) {
    p << " : ";
    p.printFunctionalType(op);
    if (reducer)
      return;
    p.printNewline();
    p << " reducer";
    writePairs("", [&](unsigned input, unsigned initial) {
      p << '(';
      p.printRegionArgument(block->getArgument(input));
      p << ", ";
      p.printRegionArgument(block->getArgument(initial));
      p << ") ";
    });
    p << ' ';
    p.printRegion(op->getRegion(0), /*printEntryBlockArgs=*/false);
  });
  return true;
}

const Directive *assembly::findRegions(StringRef name) {
  static const llvm::StringMap<Directive> directives = {
      {"constant", {readConstant, writeConstant}},
      {"reduce", {readReduce, writeReduce}},
      {"region", {readRegion, writeRegion}},
      {"while", {readWhile, writeWhile}}};
  auto found = directives.find(name);
  return found == directives.end() ? nullptr : &found->second;
}
