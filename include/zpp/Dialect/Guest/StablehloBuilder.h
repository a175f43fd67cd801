//===- StablehloBuilder.h - StableHLO ops built by name ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// zpp does not need StableHLO to build, so this creates its ops by name.
// Inherent attributes are passed as properties: an unregistered op prints them
// as <{...}>, and a registered one converts them to its own properties.
//
// Every method infers its result type. Reshapes, transposes, slices, pads and
// conversions that change nothing return their operand. A reshape of a new
// reshape replaces it. Splats are shared.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_STABLEHLOBUILDER_H
#define ZPP_DIALECT_GUEST_STABLEHLOBUILDER_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/PatternMatch.h"
#include "zpp/Dialect/Guest/WrittenGroups.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace zpp {

/// Loads StableHLO's dialect, or its guest; ops of a dialect that is not loaded
/// cannot be built by name. Emits an error if neither is registered.
llvm::LogicalResult requireStablehlo(mlir::MLIRContext *context);

/// Builds ops at the insertion point of `builder`, which must not move
/// meanwhile.
class StablehloBuilder {
public:
  StablehloBuilder(mlir::RewriterBase &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}

  mlir::Type f32() { return builder.getF32Type(); }
  mlir::Type f64() { return builder.getF64Type(); }
  mlir::Type i8() { return builder.getI8Type(); }
  mlir::Type ui16() { return builder.getIntegerType(16, /*isSigned=*/false); }
  mlir::Type ui32() { return builder.getIntegerType(32, /*isSigned=*/false); }
  static mlir::RankedTensorType typeOf(mlir::Value value) {
    return mlir::cast<mlir::RankedTensorType>(value.getType());
  }
  static llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
    return typeOf(value).getShape();
  }

  //===--------------------------------------------------------------------===//
  // Constants
  //===--------------------------------------------------------------------===//

  mlir::Value constant(mlir::DenseElementsAttr value);
  /// A tensor of `shape` whose elements are all `value`. It is built as a
  /// scalar and a broadcast, because XLA does not fold large constants (X15).
  mlir::Value splat(llvm::ArrayRef<int64_t> shape, mlir::TypedAttr value);
  /// Zeros, of elements that have one.
  mlir::Value zeros(mlir::RankedTensorType type);
  /// True for integers, floats and complex numbers.
  static bool hasZero(mlir::Type element);
  mlir::Value splatF32(llvm::ArrayRef<int64_t> shape, float value) {
    return splat(shape, builder.getF32FloatAttr(value));
  }
  mlir::Value splatF64(llvm::ArrayRef<int64_t> shape, double value) {
    return splat(shape, builder.getF64FloatAttr(value));
  }
  mlir::Value splatUI32(llvm::ArrayRef<int64_t> shape, uint32_t value) {
    return splat(shape, builder.getIntegerAttr(ui32(), value));
  }

  //===--------------------------------------------------------------------===//
  // Element-wise ops
  //===--------------------------------------------------------------------===//

  /// stablehlo.<name> of operands of one type, with a result of that type.
  mlir::Value elementwise(llvm::StringRef name, mlir::ValueRange operands);
  /// `name` with a constant on the right.
  mlir::Value withF32(llvm::StringRef name, mlir::Value lhs, float rhs) {
    return elementwise(name, {lhs, splatF32(shapeOf(lhs), rhs)});
  }
  mlir::Value withUI32(llvm::StringRef name, mlir::Value lhs, uint32_t rhs) {
    return elementwise(name, {lhs, splatUI32(shapeOf(lhs), rhs)});
  }
  mlir::Value withI8(llvm::StringRef name, mlir::Value lhs, int8_t rhs) {
    return elementwise(
        name, {lhs, splat(shapeOf(lhs), builder.getI8IntegerAttr(rhs))});
  }
  /// `direction` is EQ, LT, ...; f32 and ui32 operands.
  mlir::Value compare(llvm::StringRef direction, mlir::Value lhs,
                      mlir::Value rhs);
  mlir::Value select(mlir::Value condition, mlir::Value onTrue,
                     mlir::Value onFalse);
  mlir::Value convert(mlir::Value value, mlir::Type element);
  /// Reinterprets the elements with another width: the last dim is split or
  /// merged.
  mlir::Value bitcast(mlir::Value value, mlir::Type element);
  /// Rounds f32 values as a conversion to bf16 does, to f32. Unlike a
  /// conversion and back, XLA does not drop it as excess precision (X7).
  mlir::Value roundToBF16(mlir::Value value);

  //===--------------------------------------------------------------------===//
  // Shapes
  //===--------------------------------------------------------------------===//

  mlir::Value reshape(mlir::Value value, llvm::ArrayRef<int64_t> shape);
  /// Operand dim i becomes dim `dims[i]` of the result.
  mlir::Value broadcast(mlir::Value value, llvm::ArrayRef<int64_t> shape,
                        llvm::ArrayRef<int64_t> dims);
  /// Interprets `value` as [dims...] (row-major), transposes these so that dim
  /// i of the result is `permutation[i]`, and returns the result with any
  /// shape. Dims that stay neighbors move as one.
  mlir::Value permute(mlir::Value value, llvm::ArrayRef<int64_t> dims,
                      llvm::ArrayRef<int64_t> permutation);
  /// Elements begin, begin + stride, .. below `end` of dim `dim`.
  mlir::Value slice(mlir::Value value, int64_t dim, int64_t begin, int64_t end,
                    int64_t stride = 1);
  /// Appends zeros to dim `dim` up to `size`.
  mlir::Value padTo(mlir::Value value, int64_t dim, int64_t size);
  mlir::Value concatenate(mlir::ValueRange values, int64_t dim);
  /// The elements of dim `dim` in reverse order.
  mlir::Value reverse(mlir::Value value, int64_t dim);

  //===--------------------------------------------------------------------===//
  // Reductions and collectives
  //===--------------------------------------------------------------------===//

  /// Maximum of ui32 over the last dim.
  mlir::Value reduceMax(mlir::Value value);
  mlir::Operation *allGather(mlir::Value value, WrittenGroups groups,
                             int64_t dim);
  /// Sends part i of dim `split` to device i, and joins what arrives along dim
  /// `join`.
  mlir::Operation *allToAll(mlir::Value value, WrittenGroups groups,
                            int64_t split, int64_t join);
  /// Reduces with a sum.
  mlir::Operation *reduceScatter(mlir::Value value, WrittenGroups groups,
                                 int64_t dim);
  /// With a sum.
  mlir::Operation *allReduce(mlir::Value value, mlir::Attribute groups);

private:
  mlir::Operation *create(llvm::StringRef name, mlir::ValueRange operands,
                          mlir::Type result,
                          llvm::ArrayRef<mlir::NamedAttribute> attributes = {},
                          std::unique_ptr<mlir::Region> region = nullptr);
  mlir::Value build(llvm::StringRef name, mlir::ValueRange operands,
                    mlir::Type result,
                    llvm::ArrayRef<mlir::NamedAttribute> attributes = {}) {
    return create(name, operands, result, attributes)->getResult(0);
  }
  mlir::NamedAttribute array(llvm::StringRef name,
                             llvm::ArrayRef<int64_t> values) {
    return builder.getNamedAttr(name, builder.getDenseI64ArrayAttr(values));
  }
  mlir::NamedAttribute integer(llvm::StringRef name, int64_t value) {
    return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
  }
  /// Parses an attribute of StableHLO with the registered dialect, real or
  /// guest.
  mlir::NamedAttribute parsed(llvm::StringRef name, llvm::StringRef text);
  /// Global ids make the ids of a collective over replicas and partitions mean
  /// devices.
  llvm::SmallVector<mlir::NamedAttribute> collective(mlir::Attribute groups,
                                                     bool hasGlobalIds = true);
  /// The body of a reduction by `name`.
  std::unique_ptr<mlir::Region> reducer(llvm::StringRef name,
                                        mlir::Type element);
  /// True if the devices of the module are replicas, not partitions.
  bool hasReplicas();

  mlir::RewriterBase &builder;
  mlir::Location loc;
  /// The reshapes built here.
  llvm::SmallPtrSet<mlir::Operation *, 8> reshapes;
  /// The splats by element type and value.
  llvm::DenseMap<std::pair<mlir::Type, mlir::Attribute>, mlir::Value> splats;
};

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_STABLEHLOBUILDER_H
