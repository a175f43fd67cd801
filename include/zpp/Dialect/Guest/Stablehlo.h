//===- Stablehlo.h - StableHLO ops by name ----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions that read and build ops of StableHLO by name and attribute, never
// by C++ class. They work on unregistered ops as well as in a compiler that has
// registered StableHLO or Shardy. Only files in this folder know the names.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_STABLEHLO_H
#define ZPP_DIALECT_GUEST_STABLEHLO_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Support/CollectiveCost.h"

#include <optional>
#include <string>

namespace zpp {

//===----------------------------------------------------------------------===//
// Names and attributes
//===----------------------------------------------------------------------===//

/// True if the name of `op` is `name`. Ops of guest dialects have no C++ class.
inline bool isNamed(mlir::Operation *op, llvm::StringRef name) {
  return op->getName().getStringRef() == name;
}

/// True if `isWanted` holds for `root` or for an op within it.
bool containsOp(mlir::Operation *root,
                llvm::function_ref<bool(mlir::Operation *)> isWanted);

/// The text of an attribute or a type, which may belong to a guest dialect.
template <typename T> std::string toText(const T &value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

/// Returns the target of a `stablehlo.custom_call`; empty for other ops.
llvm::StringRef getCallTarget(mlir::Operation *op);

/// Returns the kind of a collective of StableHLO or of upstream's shard
/// dialect; nullopt for other ops.
std::optional<CollectiveKind> getGuestCollective(mlir::Operation *op);

/// Returns the dim that such a collective gathers, scatters or splits, or -1.
int64_t getCollectiveDim(mlir::Operation *op);
/// Sets that dim, which `op` has.
void setCollectiveDim(mlir::Operation *op, int64_t dim);

/// True if the reduction of a collective is a sum.
bool isSum(mlir::Operation *op);

/// Returns the op that takes a maximum or a minimum of two elements in the
/// reduction of a collective or a `stablehlo.reduce`, or null.
mlir::Operation *getExtremum(mlir::Operation *op);

/// True if `op` is not a collective but may communicate all the same.
bool mayCommunicate(mlir::Operation *op);

/// True for ops whose first result has the largest elements of the operand; an
/// exported module has a composite for it, and XLA a custom call.
bool takesLargest(mlir::Operation *op);

/// True for a `stablehlo.compare` whose result is lhs < rhs.
bool comparesLess(mlir::Operation *op);

/// Returns the integer that all elements of `value` are, if a
/// `stablehlo.constant` defines it; nullopt otherwise.
/// ProvenanceAnalysis::getConstantInteger looks further.
std::optional<int64_t> getConstantInteger(mlir::Value value);

/// Returns the type of a tensor.
mlir::RankedTensorType getTensorType(mlir::Value value);

/// True for a tensor whose shape is known.
bool hasStaticShape(mlir::Type type);

/// Returns the elements of `op`, a constant of equal ones; null for other ops
/// and for none.
mlir::DenseElementsAttr getSplatConstant(mlir::Operation *op);

/// Returns those of the constant that `value` is, broadcast, cast or reshaped.
mlir::DenseElementsAttr getSplatSource(mlir::Value value);

/// True for a tensor of one element.
bool hasOneElement(mlir::Type type);

/// Returns the one number that all elements of `value` are: the operand, of one
/// element, of a broadcast, or a constant. Null if there is none.
mlir::Value getSplat(mlir::Value value);

/// True if all elements of `value` are the constant 0, of floats or integers.
bool isZeros(mlir::Value value);

//===----------------------------------------------------------------------===//
// Data movement
//===----------------------------------------------------------------------===//

/// True if `op` only passes its operands on: result i is operand i (an
/// `optimization_barrier`).
bool isBarrier(mlir::Operation *op);

/// True if `op` rearranges or casts the data of its first operand and has no
/// effect: a cast, reshape, transpose, slice, padding or concatenation. A
/// barrier is not one.
bool movesData(mlir::Operation *op);

/// True if the types and attributes of `op`, a cast, reshape, transpose or
/// slice of StableHLO with static shapes, are as its specification has them, so
/// that the like of it can be built on other shapes. Nothing has verified ops
/// of guest dialects.
bool isConsistentMovement(mlir::Operation *op);

/// True for the ops of `movesData` and for barriers.
inline bool isDataMovement(mlir::Operation *op) {
  return isBarrier(op) || movesData(op);
}

/// True for one integer, as slices have them for each dim and loops count with.
/// Nobody has verified the guest's programs: it may be anything.
bool isIntegerScalar(mlir::Value value);

/// True for the ops of `movesData` whose other operands are data too: a
/// concatenation or a padding.
bool isJoin(mlir::Operation *op);

/// True if each element of the result of `op` is computed from the elements of
/// its operands at the same position: sums, products, casts and the like.
bool isElementwise(mlir::Operation *op);

/// True if the result of `op` is known to depend only on its operands and
/// attributes, so that two such ops that agree in these compute the same:
/// element-wise ops, data movement, constants, products.
bool isDeterministic(mlir::Operation *op);

/// True for the products of matrices, and of stacks of such.
bool isMatrixProduct(mlir::Operation *op);

/// The dims of one operand of a product.
struct ProductDims {
  /// Those that are summed over, and those that the result has once for both
  /// operands. Any others are dims of the result by themselves.
  llvm::SmallVector<int64_t> summed, batching;
};

/// Reads the dims of operand 0 or 1 of a product, or of the kernel of a
/// convolution; nullopt for other operands and ops, and if `op` cannot be read.
std::optional<ProductDims> getProductDims(mlir::Operation *op,
                                          unsigned operand);

/// Exchanges the operands of `product`, a `dot_general`, if that brings the
/// dims of its result into `order`: those of the second operand then come
/// before those of the first, and each element is the sum of the same products.
/// Returns false, and changes nothing, otherwise.
bool exchangeOperands(mlir::Operation *product, llvm::ArrayRef<int64_t> order);

/// Returns the floating-point operations of a product or a convolution of
/// static shape, a sum and a product each; 0 for other ops, and if `op` cannot
/// be read.
double getProductFlops(mlir::Operation *op);

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

/// Creates an op of StableHLO with one result. `attributes` are inherent ones.
mlir::Value createOp(mlir::OpBuilder &builder, mlir::Location loc,
                     llvm::StringRef name, mlir::ValueRange operands,
                     mlir::Type type,
                     llvm::ArrayRef<mlir::NamedAttribute> attributes = {});
/// Creates a `stablehlo.constant`.
mlir::Value createConstant(mlir::OpBuilder &builder, mlir::Location loc,
                           mlir::TypedAttr value);
/// Creates an `optimization_barrier`.
mlir::Operation *createBarrier(mlir::OpBuilder &builder, mlir::Location loc,
                               mlir::ValueRange operands);

/// Replaces `barrier`, an `optimization_barrier`, by one that `added` pass
/// through too, after its own operands. With `dropped`, operands whose results
/// are not read leave the barrier and are appended there. Returns the new
/// barrier, or null if nothing passes through it.
mlir::Operation *
rebuildBarrier(mlir::Operation *barrier, mlir::ValueRange added,
               llvm::SmallVectorImpl<mlir::Value> *dropped = nullptr);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_STABLEHLO_H
