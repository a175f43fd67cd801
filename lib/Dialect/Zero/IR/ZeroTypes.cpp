//===- ZeroTypes.cpp - Types of the zero dialect --------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FactorSyntax.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace zpp::zero;

#define GET_TYPEDEF_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroTypes.cpp.inc"

void ZeroDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "zpp/Dialect/Zero/IR/ZeroTypes.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// ShardType
//===----------------------------------------------------------------------===//

/// Returns the size of `factor`, whose axis, if it has one, must be an axis of
/// the mesh.
static int64_t getFactorSize(FactorAttr factor, const zpp::Mesh &mesh) {
  return factor.isWhole() ? factor.getSize()
                          : factor.getAxis().resolve(mesh)->size;
}

LogicalResult ShardType::verify(function_ref<InFlightDiagnostic()> emitError,
                                RankedTensorType global, int64_t dim,
                                ArrayRef<FactorAttr> factors, MeshAttr mesh,
                                QuantAttr quant) {
  if (!global.hasStaticShape())
    return emitError() << "expected a static shape, but got " << global;
  if (dim < 0 || dim >= global.getRank())
    return emitError() << "expected a dim below the rank " << global.getRank()
                       << ", but got " << dim;
  zpp::Mesh plain = mesh.getMesh();
  SmallVector<AxisRefAttr> axes;
  for (FactorAttr factor : factors)
    if (!factor.isWhole())
      axes.push_back(factor.getAxis());
  if (failed(verifyAxes(emitError, plain, axes)))
    return failure();
  // Sizes that are computed from the type must not overflow, as for slices.
  int64_t numSlices = 1;
  for (FactorAttr factor : factors)
    if (llvm::MulOverflow(numSlices, getFactorSize(factor, plain), numSlices))
      return emitError() << "expected fewer than 2^63 slices, but got a factor "
                         << getFactorSize(factor, plain);
  Type element = global.getElementType();
  if (!element.isIntOrFloat())
    return emitError() << "expected integer or float elements, but got "
                       << element;
  // Every slice takes at most 64 bytes for one element of its unit, even if it
  // is padded or encoded.
  constexpr int64_t kBytesPerElement = 64;
  int64_t elements = llvm::divideCeil(global.getDimSize(dim), numSlices);
  bool overflows = llvm::MulOverflow(elements, numSlices, elements) ||
                   llvm::MulOverflow(elements, kBytesPerElement, elements);
  for (auto [index, size] : llvm::enumerate(global.getShape()))
    if (static_cast<int64_t>(index) != dim)
      overflows |=
          llvm::MulOverflow(elements, std::max<int64_t>(size, 1), elements);
  if (overflows)
    return emitError() << "expected fewer than 2^57 elements, but got "
                       << global << " in " << numSlices << " slices";
  if (quant && !isQuantizable(element))
    return emitError()
           << "expected f32, bf16 or f16 in a quantized tensor, but got "
           << element;
  return success();
}

Type ShardType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type element;
  int64_t dim;
  SmallVector<FactorAttr> factors;
  MeshAttr mesh;
  QuantAttr quant;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() ||
      parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(element) || parser.parseComma() ||
      parser.parseKeyword("dim") || parser.parseInteger(dim) ||
      parser.parseEqual() ||
      parser.parseCommaSeparatedList(
          AsmParser::Delimiter::Paren,
          [&] { return parseFactor(parser, factors.emplace_back()); }) ||
      parser.parseKeyword("on") || parser.parseAttribute(mesh))
    return {};
  if (succeeded(parser.parseOptionalComma()) && parser.parseAttribute(quant))
    return {};
  if (parser.parseGreater())
    return {};
  auto emitError = [&] { return parser.emitError(loc); };
  auto global = RankedTensorType::getChecked(emitError, shape, element);
  if (!global)
    return {};
  return getChecked(emitError, parser.getContext(), global, dim, factors, mesh,
                    quant);
}

void ShardType::print(AsmPrinter &printer) const {
  printer << "<";
  for (int64_t size : getGlobal().getShape())
    printer << size << "x";
  printer << getGlobal().getElementType() << ", dim " << getDim() << " = (";
  llvm::interleaveComma(getFactors(), printer, [&](FactorAttr factor) {
    printFactor(printer, factor);
  });
  printer << ") on " << getMesh();
  if (getQuant())
    printer << ", " << getQuant();
  printer << ">";
}

SmallVector<int64_t> ShardType::getFactorSizes() const {
  zpp::Mesh mesh = getMesh().getMesh();
  return llvm::map_to_vector(getFactors(), [&](FactorAttr factor) {
    return getFactorSize(factor, mesh);
  });
}

int64_t ShardType::getUnit() const {
  return llvm::divideCeil(getGlobal().getDimSize(getDim()),
                          llvm::product_of(getFactorSizes()));
}

SmallVector<int64_t> ShardType::getWholeSizes() const {
  SmallVector<int64_t> sizes;
  for (FactorAttr factor : getFactors())
    if (factor.isWhole())
      sizes.push_back(factor.getSize());
  return sizes;
}

SmallVector<zpp::AxisRef> ShardType::getAxes() const {
  zpp::Mesh mesh = getMesh().getMesh();
  SmallVector<zpp::AxisRef> refs;
  for (FactorAttr factor : getFactors())
    if (!factor.isWhole())
      refs.push_back(*factor.getAxis().resolve(mesh));
  return refs;
}

RankedTensorType ShardType::getDecodedLocalType() const {
  if (isWhole())
    return getGlobal();
  SmallVector<int64_t> shape(getGlobal().getShape());
  shape[getDim()] = llvm::product_of(getWholeSizes()) * getUnit();
  return RankedTensorType::get(shape, getGlobal().getElementType());
}

int64_t ShardType::getElementsPerUnit() const {
  SmallVector<int64_t> shape(getGlobal().getShape());
  shape[getDim()] = getUnit();
  return llvm::product_of(shape);
}

RankedTensorType ShardType::getLocalType() const {
  if (!getQuant())
    return getDecodedLocalType();
  int64_t bytes = getQuant().getLayout(getElementsPerUnit()).chunkBytes;
  return RankedTensorType::get({llvm::product_of(getWholeSizes()), bytes},
                               IntegerType::get(getContext(), 8));
}

ShardType ShardType::withFactors(ArrayRef<FactorAttr> factors) const {
  return get(getContext(), getGlobal(), getDim(), factors, getMesh(),
             getQuant());
}

ShardType ShardType::withWhole(ArrayAttr along) const {
  SmallVector<FactorAttr> factors(getFactors());
  SmallVector<int64_t> positions = *findFactors(along);
  for (auto [position, axis] :
       llvm::zip_equal(positions, zero::resolveAxes(along, getMesh())))
    factors[position] = FactorAttr::getWhole(getContext(), axis.size);
  return withFactors(factors);
}

ShardType ShardType::withQuant(QuantAttr quant) const {
  return get(getContext(), getGlobal(), getDim(), getFactors(), getMesh(),
             quant);
}

ShardType ShardType::withElementType(Type type) const {
  return get(getContext(), RankedTensorType::get(getGlobal().getShape(), type),
             getDim(), getFactors(), getMesh(), getQuant());
}

std::optional<SmallVector<int64_t>>
ShardType::findFactors(ArrayAttr along) const {
  SmallVector<int64_t> positions;
  for (auto axis : along.getAsRange<AxisRefAttr>()) {
    const auto *it = llvm::find_if(getFactors(), [&](FactorAttr factor) {
      return factor.getAxis() == axis;
    });
    if (it == getFactors().end())
      return std::nullopt;
    positions.push_back(std::distance(getFactors().begin(), it));
  }
  return positions;
}
