//===- Form.h - Forms of ops, ready to read and write -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_DIALECT_GUEST_ASSEMBLY_FORM_H
#define ZPP_LIB_DIALECT_GUEST_ASSEMBLY_FORM_H

#include "mlir/IR/OpImplementation.h"
#include "zpp/Dialect/Guest/Assembly.h"

#include <vector>

namespace zpp::assembly {

/// Attribute of an op, as its row says.
struct AttributeSpec {
  llvm::StringRef name;
  /// Word and what follows it: `enum` and `comparison_type`.
  llvm::StringRef kind, detail;
  llvm::StringRef initial;
};

struct Element {
  enum class Kind { Literal, Operand, Operands, Attribute, Directive, Group };
  Kind kind;
  /// Literal, or name of an attribute or a directive.
  llvm::StringRef text;
  /// Contents of a group.
  std::vector<Element> elements = {};
};

struct Form {
  const GuestOp *op;
  std::vector<AttributeSpec> attributes;
  std::vector<Element> elements;

  llvm::StringRef getDialect() const { return op->name.split('.').first; }
  const AttributeSpec *find(llvm::StringRef attribute) const;
};

/// Returns the form of the op with this name; null if the table does not have
/// it.
const Form *findForm(llvm::StringRef name);

/// A token that is no word, and how it changes the depth of brackets.
struct Token {
  llvm::StringLiteral text;
  mlir::ParseResult (mlir::AsmParser::*parse)();
  int depth;
};
llvm::ArrayRef<Token> getTokens();

/// An op while its pretty form is read.
struct Reader {
  mlir::OpAsmParser &parser;
  mlir::OperationState &state;
  const Form &form;
  llvm::SMLoc location;
  llvm::SmallVector<mlir::OpAsmParser::UnresolvedOperand> operands = {};
  llvm::SmallVector<mlir::Type> operandTypes = {};
  mlir::NamedAttrList properties = {};

  mlir::Builder &builder() { return parser.getBuilder(); }

  /// Adds a property, which must not be there yet.
  mlir::ParseResult add(llvm::StringRef name, mlir::Attribute attribute);
  /// Reads attributes in braces, or after the word `attributes`.
  mlir::ParseResult readAttributes(bool isWithKeyword = false);
  /// Reads `[0, 1]`.
  mlir::ParseResult readInts(llvm::SmallVectorImpl<int64_t> &ints);
  mlir::ParseResult readInts(llvm::StringRef name);
  /// Reads brackets and what is inside, and keeps its text.
  mlir::ParseResult readText(std::string &text);
};

/// An op while its pretty form is written. Without a printer, this says only
/// whether the op can be written in this form.
struct Writer {
  mlir::OpAsmPrinter *printer;
  mlir::Operation *op;
  const Form &form;
  /// How many are written.
  unsigned operands = 0, regions = 0;

  /// Calls `write` with the printer, if there is one.
  void print(llvm::function_ref<void(mlir::OpAsmPrinter &)> write) {
    if (printer)
      write(*printer);
  }
  void print(llvm::StringRef text) {
    if (printer)
      *printer << text;
  }
  void writeAttributes(bool isWithKeyword = false);
  /// The attribute as `[0, 1]`: false if it is none.
  bool writeInts(mlir::Attribute attribute);
};

/// Returns the attribute of the op; null if it has none, or what is its
/// default.
mlir::Attribute getAttribute(mlir::Operation *op, const AttributeSpec &spec);

/// Reads and writes text that stands for an attribute without its name.
mlir::ParseResult readAttribute(Reader &reader, const AttributeSpec &spec);
bool writeAttribute(Writer &writer, const AttributeSpec &spec,
                    mlir::Attribute attribute);

/// Functions that `@name` stands for in a form.
struct Directive {
  mlir::ParseResult (*read)(Reader &);
  bool (*write)(Writer &);
};

/// Returns the directive with this name, which the table has in a form.
const Directive *findDirective(llvm::StringRef name);

// Directives that have files of their own.
const Directive *findTypes(llvm::StringRef name);
const Directive *findRegions(llvm::StringRef name);

} // namespace zpp::assembly

#endif // ZPP_LIB_DIALECT_GUEST_ASSEMBLY_FORM_H
