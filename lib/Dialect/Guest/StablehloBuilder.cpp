//===- StablehloBuilder.cpp - StableHLO ops built by name -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/StablehloBuilder.h"

#include "mlir/AsmParser/AsmParser.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "llvm/ADT/STLExtras.h"

#include <complex>

using namespace mlir;
using namespace zpp;

LogicalResult zpp::requireStablehlo(MLIRContext *context) {
  if (context->getOrLoadDialect("stablehlo"))
    return success();
  return emitError(UnknownLoc::get(context))
         << "expected the stablehlo dialect or its guest to be registered, but "
            "got neither";
}

Operation *StablehloBuilder::create(StringRef name, ValueRange operands,
                                    Type result,
                                    ArrayRef<NamedAttribute> attributes,
                                    std::unique_ptr<Region> region) {
  OperationState state(loc, ("stablehlo." + name).str());
  state.addOperands(operands);
  if (result)
    state.addTypes(result);
  if (!attributes.empty())
    state.propertiesAttr = builder.getDictionaryAttr(attributes);
  if (region)
    state.addRegion(std::move(region));
  return builder.create(state);
}

NamedAttribute StablehloBuilder::parsed(StringRef name, StringRef text) {
  Attribute attribute = parseAttribute(text, builder.getContext());
  assert(attribute && "expected the stablehlo dialect or its guest");
  return builder.getNamedAttr(name, attribute);
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

Value StablehloBuilder::constant(DenseElementsAttr value) {
  return build("constant", {}, value.getType(),
               builder.getNamedAttr("value", value));
}

bool StablehloBuilder::hasZero(Type element) {
  if (auto complex = dyn_cast<ComplexType>(element))
    element = complex.getElementType();
  return element.isIntOrIndexOrFloat();
}

Value StablehloBuilder::zeros(RankedTensorType type) {
  auto complex = dyn_cast<ComplexType>(type.getElementType());
  if (!complex)
    return splat(type.getShape(), builder.getZeroAttr(type.getElementType()));
  auto part = builder.getZeroAttr(complex.getElementType());
  auto scalar = RankedTensorType::get({}, complex);
  auto elements =
      isa<FloatType>(complex.getElementType())
          ? DenseElementsAttr::get(
                scalar, std::complex<APFloat>(cast<FloatAttr>(part).getValue(),
                                              cast<FloatAttr>(part).getValue()))
          : DenseElementsAttr::get(
                scalar,
                std::complex<APInt>(cast<IntegerAttr>(part).getValue(),
                                    cast<IntegerAttr>(part).getValue()));
  return broadcast(constant(elements), type.getShape(), {});
}

Value StablehloBuilder::splat(ArrayRef<int64_t> shape, TypedAttr value) {
  auto scalarType = RankedTensorType::get({}, value.getType());
  Value &scalar = splats[{scalarType, value}];
  if (!scalar)
    scalar = constant(DenseElementsAttr::get(scalarType, value));
  // `scalar` may move when the map grows.
  Value element = scalar;
  Value &tensor = splats[{scalarType.clone(shape), value}];
  if (!tensor)
    tensor = broadcast(element, shape, {});
  return tensor;
}

//===----------------------------------------------------------------------===//
// Element-wise ops
//===----------------------------------------------------------------------===//

Value StablehloBuilder::elementwise(StringRef name, ValueRange operands) {
  return build(name, operands, operands.front().getType());
}

Value StablehloBuilder::compare(StringRef direction, Value lhs, Value rhs) {
  bool isFloat = typeOf(lhs).getElementType().isF32();
  return build(
      "compare", {lhs, rhs}, typeOf(lhs).clone(builder.getI1Type()),
      {parsed("compare_type", isFloat ? "#stablehlo<comparison_type FLOAT>"
                                      : "#stablehlo<comparison_type UNSIGNED>"),
       parsed("comparison_direction",
              ("#stablehlo<comparison_direction " + direction + ">").str())});
}

Value StablehloBuilder::select(Value condition, Value onTrue, Value onFalse) {
  return build("select", {condition, onTrue, onFalse}, onTrue.getType());
}

Value StablehloBuilder::convert(Value value, Type element) {
  if (typeOf(value).getElementType() == element)
    return value;
  return build("convert", value, typeOf(value).clone(element));
}

Value StablehloBuilder::bitcast(Value value, Type element) {
  SmallVector<int64_t> shape(shapeOf(value));
  unsigned from = typeOf(value).getElementTypeBitWidth();
  unsigned to = element.getIntOrFloatBitWidth();
  if (from > to)
    shape.push_back(from / to);
  else if (from < to)
    shape.pop_back();
  return build("bitcast_convert", value, RankedTensorType::get(shape, element));
}

Value StablehloBuilder::roundToBF16(Value value) {
  return build(
      "reduce_precision", value, value.getType(),
      {builder.getNamedAttr("exponent_bits", builder.getI32IntegerAttr(8)),
       builder.getNamedAttr("mantissa_bits", builder.getI32IntegerAttr(7))});
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

Value StablehloBuilder::reshape(Value value, ArrayRef<int64_t> shape) {
  if (shapeOf(value) == shape)
    return value;
  // Merge two reshapes in a row.
  if (Operation *last = value.getDefiningOp();
      last && last->use_empty() && reshapes.erase(last)) {
    value = last->getOperand(0);
    builder.eraseOp(last);
    return reshape(value, shape);
  }
  value = build("reshape", value, typeOf(value).clone(shape));
  reshapes.insert(value.getDefiningOp());
  return value;
}

Value StablehloBuilder::broadcast(Value value, ArrayRef<int64_t> shape,
                                  ArrayRef<int64_t> dims) {
  if (shapeOf(value) == shape)
    return value;
  return build("broadcast_in_dim", value, typeOf(value).clone(shape),
               array("broadcast_dimensions", dims));
}

Value StablehloBuilder::permute(Value value, ArrayRef<int64_t> dims,
                                ArrayRef<int64_t> permutation) {
  // Runs of dims that stay in order, and their sizes. Dims of size 1 are
  // ignored.
  SmallVector<int64_t> heads, sizes;
  int64_t next = -1;
  for (int64_t dim : permutation) {
    if (dims[dim] == 1)
      continue;
    if (next == dim && !sizes.empty()) {
      sizes.back() *= dims[dim];
    } else {
      heads.push_back(dim);
      sizes.push_back(dims[dim]);
    }
    for (next = dim + 1;
         next < static_cast<int64_t>(dims.size()) && dims[next] == 1;)
      ++next;
  }
  if (llvm::is_sorted(heads))
    return value;

  // The runs in the order of the operand.
  auto order = llvm::to_vector(llvm::seq<int64_t>(heads.size()));
  llvm::sort(order, [&](int64_t a, int64_t b) { return heads[a] < heads[b]; });
  SmallVector<int64_t> shape(heads.size()), transposition(heads.size());
  for (auto [position, run] : llvm::enumerate(order)) {
    shape[position] = sizes[run];
    transposition[run] = position;
  }
  value = reshape(value, shape);
  return build("transpose", value, typeOf(value).clone(sizes),
               array("permutation", transposition));
}

Value StablehloBuilder::slice(Value value, int64_t dim, int64_t begin,
                              int64_t end, int64_t stride) {
  SmallVector<int64_t> shape(shapeOf(value)), limits(shape);
  if (begin == 0 && end == shape[dim] && stride == 1)
    return value;
  SmallVector<int64_t> starts(shape.size(), 0), strides(shape.size(), 1);
  starts[dim] = begin;
  limits[dim] = end;
  strides[dim] = stride;
  shape[dim] = llvm::divideCeil(end - begin, stride);
  return build("slice", value, typeOf(value).clone(shape),
               {array("start_indices", starts), array("limit_indices", limits),
                array("strides", strides)});
}

Value StablehloBuilder::padTo(Value value, int64_t dim, int64_t size) {
  SmallVector<int64_t> shape(shapeOf(value));
  SmallVector<int64_t> none(shape.size(), 0), high(none);
  if (shape[dim] == size)
    return value;
  high[dim] = size - shape[dim];
  shape[dim] = size;
  Value zero = zeros(RankedTensorType::get({}, typeOf(value).getElementType()));
  return build("pad", {value, zero}, typeOf(value).clone(shape),
               {array("edge_padding_low", none),
                array("edge_padding_high", high),
                array("interior_padding", none)});
}

Value StablehloBuilder::concatenate(ValueRange values, int64_t dim) {
  SmallVector<int64_t> shape(shapeOf(values.front()));
  for (Value value : values.drop_front())
    shape[dim] += shapeOf(value)[dim];
  return build("concatenate", values, typeOf(values.front()).clone(shape),
               integer("dimension", dim));
}

Value StablehloBuilder::reverse(Value value, int64_t dim) {
  return build("reverse", value, value.getType(), array("dimensions", dim));
}

//===----------------------------------------------------------------------===//
// Reductions and collectives
//===----------------------------------------------------------------------===//

Value StablehloBuilder::reduceMax(Value value) {
  int64_t dim = typeOf(value).getRank() - 1;
  Value zero = splatUI32({}, 0);
  return create("reduce", {value, zero},
                typeOf(value).clone(shapeOf(value).drop_back()),
                array("dimensions", dim), reducer("maximum", ui32()))
      ->getResult(0);
}

SmallVector<NamedAttribute> StablehloBuilder::collective(Attribute groups,
                                                         bool hasGlobalIds) {
  SmallVector<NamedAttribute> attributes{
      builder.getNamedAttr("replica_groups", groups)};
  // Without a channel, ids are those of replicas; with one, those of
  // partitions.
  if (!hasReplicas()) {
    attributes.push_back(parsed(
        "channel_handle", "#stablehlo.channel_handle<handle = 1, type = 1>"));
    if (hasGlobalIds)
      attributes.push_back(
          builder.getNamedAttr("use_global_device_ids", builder.getUnitAttr()));
  }
  return attributes;
}

bool StablehloBuilder::hasReplicas() {
  Operation *parent = builder.getInsertionBlock()->getParentOp();
  auto module = dyn_cast<ModuleOp>(parent);
  ModuleCopies copies =
      getModuleCopies(module ? module : parent->getParentOfType<ModuleOp>());
  return copies.replicas > 1 && copies.partitions <= 1;
}

Operation *StablehloBuilder::allGather(Value value, WrittenGroups groups,
                                       int64_t dim) {
  SmallVector<int64_t> shape(shapeOf(value));
  shape[dim] *= groups.size;
  SmallVector<NamedAttribute> attributes = collective(groups.attr);
  attributes.push_back(integer("all_gather_dim", dim));
  return create("all_gather", value, typeOf(value).clone(shape), attributes);
}

Operation *StablehloBuilder::allToAll(Value value, WrittenGroups groups,
                                      int64_t split, int64_t join) {
  SmallVector<int64_t> shape(shapeOf(value));
  shape[split] /= groups.size;
  shape[join] *= groups.size;
  SmallVector<NamedAttribute> attributes =
      collective(groups.attr, /*hasGlobalIds=*/false);
  attributes.push_back(integer("split_dimension", split));
  attributes.push_back(integer("concat_dimension", join));
  attributes.push_back(integer("split_count", groups.size));
  return create("all_to_all", value, typeOf(value).clone(shape), attributes);
}

std::unique_ptr<Region> StablehloBuilder::reducer(StringRef name,
                                                  Type element) {
  auto scalar = RankedTensorType::get({}, element);
  auto region = std::make_unique<Region>();
  OpBuilder::InsertionGuard guard(builder);
  Block *body =
      builder.createBlock(region.get(), {}, {scalar, scalar}, {loc, loc});
  create("return", elementwise(name, body->getArguments()), Type());
  return region;
}

Operation *StablehloBuilder::reduceScatter(Value value, WrittenGroups groups,
                                           int64_t dim) {
  SmallVector<int64_t> shape(shapeOf(value));
  shape[dim] /= groups.size;
  SmallVector<NamedAttribute> attributes = collective(groups.attr);
  attributes.push_back(integer("scatter_dimension", dim));
  return create("reduce_scatter", value, typeOf(value).clone(shape), attributes,
                reducer("add", typeOf(value).getElementType()));
}

Operation *StablehloBuilder::allReduce(Value value, Attribute groups) {
  return create("all_reduce", value, value.getType(), collective(groups),
                reducer("add", typeOf(value).getElementType()));
}
