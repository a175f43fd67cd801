//===- Types.cpp - How types of operands and results are written ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Form.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::assembly;

/// Takes all types from one of a function.
static ParseResult take(Reader &reader, FunctionType type) {
  llvm::append_range(reader.operandTypes, type.getInputs());
  reader.state.addTypes(type.getResults());
  return success();
}

/// `(a, b) -> c`.
static ParseResult readFunction(Reader &reader) {
  FunctionType type;
  return failure(reader.parser.parseType(type) || take(reader, type));
}

static bool writeFunction(Writer &writer) {
  writer.print([&](OpAsmPrinter &p) { p.printFunctionalType(writer.op); });
  return true;
}

/// One type for all operands and the result, or `(a, b) -> c`.
static ParseResult readSame(Reader &reader) {
  Type type;
  if (reader.parser.parseType(type))
    return failure();
  if (auto function = dyn_cast<FunctionType>(type))
    return take(reader, function);
  reader.operandTypes.assign(reader.operands.size(), type);
  reader.state.addTypes(type);
  return success();
}

static bool isUniform(Writer &writer) {
  return writer.op->getNumResults() == 1 &&
         llvm::all_equal(llvm::concat<const Type>(
             llvm::to_vector(writer.op->getOperandTypes()),
             llvm::to_vector(writer.op->getResultTypes())));
}

static bool writeUniform(Writer &writer) {
  if (!isUniform(writer))
    return false;
  writer.print([&](OpAsmPrinter &p) { p << writer.op->getResultTypes(); });
  return true;
}

static bool writeSame(Writer &writer) {
  return isUniform(writer)
             ? writeUniform(writer)
             : writer.op->getNumResults() == 1 && writeFunction(writer);
}

/// The type of the only result of an op without operands, or of the operands of
/// an op without results.
static ParseResult readTypes(Reader &reader) {
  return reader.parser.parseTypeList(reader.operandTypes);
}

static bool writeTypes(Writer &writer) {
  writer.print([&](OpAsmPrinter &p) { p << writer.op->getOperandTypes(); });
  return writer.op->getNumResults() == 0 && writer.op->getNumOperands() != 0;
}

/// `a, b -> c`, or with several results `a, b -> (c, d)`.
static ParseResult readArrow(Reader &reader) {
  return failure(reader.parser.parseTypeList(reader.operandTypes) ||
                 reader.parser.parseArrowTypeList(reader.state.types));
}

static bool writeArrow(Writer &writer) {
  writer.print([&](OpAsmPrinter &p) {
    p << writer.op->getOperandTypes();
    p.printArrowTypeList(writer.op->getResultTypes());
  });
  return writer.op->getNumResults() != 0;
}

/// Returns the type with the elements of a complex one's parts; null for
/// others.
static Type getReal(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped)
    return {};
  auto element = dyn_cast<ComplexType>(shaped.getElementType());
  return element ? shaped.clone(element.getElementType()) : Type();
}

/// The type of a complex result, of which the operands are the parts.
static ParseResult readComplex(Reader &reader) {
  SMLoc location = reader.parser.getCurrentLocation();
  Type type;
  if (reader.parser.parseType(type))
    return failure();
  if (auto function = dyn_cast<FunctionType>(type))
    return take(reader, function);
  Type real = getReal(type);
  if (!real)
    return reader.parser.emitError(location)
           << "expected a tensor of complex elements, but got " << type;
  reader.operandTypes.assign(reader.operands.size(), real);
  reader.state.addTypes(type);
  return success();
}

static bool writeComplex(Writer &writer) {
  if (writer.op->getNumResults() != 1)
    return false;
  Type real = getReal(writer.op->getResult(0).getType());
  if (!real || !llvm::all_of(writer.op->getOperandTypes(),
                             [&](Type type) { return type == real; }))
    return writeFunction(writer);
  writer.print([&](OpAsmPrinter &p) { p << writer.op->getResultTypes(); });
  return true;
}

/// The types of the first operand and of all others, or `(a, b, c) -> d`.
static ParseResult readSelect(Reader &reader) {
  Type first, others;
  if (reader.parser.parseType(first))
    return failure();
  if (auto function = dyn_cast<FunctionType>(first))
    return take(reader, function);
  if (reader.parser.parseComma() || reader.parser.parseType(others))
    return failure();
  reader.operandTypes.assign({first, others, others});
  reader.state.addTypes(others);
  return success();
}

static bool writeSelect(Writer &writer) {
  Operation *op = writer.op;
  if (op->getNumResults() != 1 || op->getNumOperands() != 3)
    return false;
  Type result = op->getResult(0).getType();
  if (op->getOperand(1).getType() != result ||
      op->getOperand(2).getType() != result)
    return writeFunction(writer);
  writer.print([&](OpAsmPrinter &p) {
    p << op->getOperand(0).getType() << ", " << result;
  });
  return true;
}

/// The type of a tuple, of which the operands are the elements.
static ParseResult readTuple(Reader &reader) {
  TupleType type;
  if (reader.parser.parseType(type))
    return failure();
  llvm::append_range(reader.operandTypes, type.getTypes());
  reader.state.addTypes(type);
  return success();
}

static bool writeTuple(Writer &writer) {
  Operation *op = writer.op;
  auto type = op->getNumResults() == 1
                  ? dyn_cast<TupleType>(op->getResult(0).getType())
                  : TupleType();
  writer.print([&](OpAsmPrinter &p) { p << type; });
  return type && llvm::equal(type.getTypes(), op->getOperandTypes());
}

const Directive *assembly::findTypes(StringRef name) {
  static const llvm::StringMap<Directive> directives = {
      {"arrow", {readArrow, writeArrow}},
      {"complex", {readComplex, writeComplex}},
      {"function", {readFunction, writeFunction}},
      {"same", {readSame, writeSame}},
      {"select", {readSelect, writeSelect}},
      {"tuple", {readTuple, writeTuple}},
      {"types", {readTypes, writeTypes}},
      {"uniform", {readSame, writeUniform}}};
  auto found = directives.find(name);
  return found == directives.end() ? nullptr : &found->second;
}
