//===- ZeroAttrs.cpp - Attributes of the zero dialect ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FactorSyntax.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace zpp::zero;

#define GET_ATTRDEF_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroAttrs.cpp.inc"

void ZeroDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "zpp/Dialect/Zero/IR/ZeroAttrs.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// MeshAttr
//===----------------------------------------------------------------------===//

MeshAttr MeshAttr::get(MLIRContext *context, const zpp::Mesh &mesh) {
  SmallVector<StringAttr> names;
  SmallVector<int64_t> sizes;
  for (const zpp::MeshAxis &axis : mesh.getAxes()) {
    names.push_back(StringAttr::get(context, axis.name));
    sizes.push_back(axis.size);
  }
  return get(context, names, sizes, mesh.getStrides());
}

zpp::Mesh MeshAttr::getMesh() const {
  std::vector<zpp::MeshAxis> axes;
  for (auto [name, size] : llvm::zip_equal(getNames(), getSizes()))
    axes.push_back({name.str(), size});
  if (getStrides().empty())
    return zpp::Mesh(std::move(axes));
  std::string error;
  return *zpp::Mesh::get(std::move(axes), getStrides().vec(), error);
}

LogicalResult MeshAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               ArrayRef<StringAttr> names,
                               ArrayRef<int64_t> sizes,
                               ArrayRef<int64_t> strides) {
  if (names.size() != sizes.size())
    return emitError() << "expected as many axis sizes as names, but got "
                       << sizes.size() << " and " << names.size();
  if (!strides.empty() && strides.size() != sizes.size())
    return emitError() << "expected strides of all mesh axes or of none, but "
                          "got "
                       << strides.size() << " of " << sizes.size();
  llvm::SmallDenseSet<StringAttr> seen;
  int64_t devices = 1;
  for (auto [name, size] : llvm::zip_equal(names, sizes)) {
    if (size < 1)
      return emitError() << "expected a positive size of mesh axis " << name
                         << ", but got " << size;
    if (!seen.insert(name).second)
      return emitError() << "expected distinct mesh axes, but got " << name
                         << " twice";
    devices = multiplySaturating(devices, size);
    if (devices > kMaxDevices)
      return emitError() << "expected a mesh of at most " << kMaxDevices
                         << " devices, but got an axis " << name << " of size "
                         << size;
  }
  if (strides.empty())
    return success();
  std::vector<zpp::MeshAxis> axes;
  for (auto [name, size] : llvm::zip_equal(names, sizes))
    axes.push_back({name.str(), size});
  std::string error;
  std::optional<zpp::Mesh> mesh =
      zpp::Mesh::get(std::move(axes), strides.vec(), error);
  if (!mesh)
    return emitError() << error;
  if (ArrayRef(mesh->getStrides()) != strides)
    return emitError() << "expected the shortest form of the mesh, '"
                       << mesh->str() << "'";
  return success();
}

Attribute MeshAttr::parse(AsmParser &parser, Type) {
  SmallVector<StringAttr> names;
  SmallVector<int64_t> sizes, strides;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, [&] {
        std::string name;
        int64_t size, stride;
        if (parser.parseString(&name) || parser.parseEqual() ||
            parser.parseInteger(size))
          return failure();
        names.push_back(StringAttr::get(parser.getContext(), name));
        sizes.push_back(size);
        if (failed(parser.parseOptionalKeyword("stride")))
          return success();
        if (parser.parseInteger(stride))
          return failure();
        strides.push_back(stride);
        return success();
      }))
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(),
                    names, sizes, strides);
}

void MeshAttr::print(AsmPrinter &printer) const {
  printer << "<";
  llvm::interleaveComma(
      llvm::seq<size_t>(0, getNames().size()), printer, [&](size_t index) {
        printer << getNames()[index] << " = " << getSizes()[index];
        if (!getStrides().empty())
          printer << " stride " << getStrides()[index];
      });
  printer << ">";
}

//===----------------------------------------------------------------------===//
// AxisRefAttr and FactorAttr
//===----------------------------------------------------------------------===//

AxisRefAttr AxisRefAttr::get(MLIRContext *context, const zpp::Mesh &mesh,
                             const zpp::AxisRef &ref) {
  auto name = StringAttr::get(context, ref.name);
  int64_t index = mesh.findAxis(ref.name);
  if (index >= 0 && mesh.getAxes()[index].size == ref.size)
    return get(context, name, 0, 0);
  return get(context, name, ref.preSize, ref.size);
}

std::optional<zpp::AxisRef> AxisRefAttr::resolve(const zpp::Mesh &mesh) const {
  int64_t index = mesh.findAxis(getName().getValue());
  if (index < 0)
    return std::nullopt;
  if (isWholeAxis())
    return mesh.getAxis(index);
  zpp::AxisRef ref{getName().str(), getPreSize(), getSize()};
  if (!mesh.verify(ref).empty())
    return std::nullopt;
  return ref;
}

LogicalResult AxisRefAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                  StringAttr, int64_t preSize, int64_t size) {
  bool isWhole = preSize == 0 && size == 0;
  if (!isWhole && (preSize < 1 || size < 1))
    return emitError()
           << "expected positive sizes of a part of an axis, but got ("
           << preSize << ")" << size;
  return success();
}

LogicalResult
zpp::zero::verifyAxes(function_ref<InFlightDiagnostic()> emitError,
                      const zpp::Mesh &mesh, ArrayRef<AxisRefAttr> axes) {
  std::vector<zpp::AxisRef> refs;
  for (AxisRefAttr axis : axes) {
    std::optional<zpp::AxisRef> ref = axis.resolve(mesh);
    if (!ref)
      return emitError() << "expected an axis of the mesh " << mesh.str()
                         << " (or a part of one), but got " << axis;
    if (llvm::is_contained(refs, *ref))
      return emitError() << "expected distinct axes, but got " << axis
                         << " twice";
    refs.push_back(*ref);
  }
  std::string error = mesh.verify(refs);
  if (!error.empty())
    return emitError() << error;
  return success();
}

ParseResult zpp::zero::parseAxisRef(AsmParser &parser, AxisRefAttr &axis) {
  std::string name;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseString(&name))
    return failure();
  auto nameAttr = StringAttr::get(parser.getContext(), name);
  if (failed(parser.parseOptionalColon())) {
    axis = AxisRefAttr::get(parser.getContext(), nameAttr, 0, 0);
    return success();
  }
  int64_t preSize, size;
  if (parser.parseLParen() || parser.parseInteger(preSize) ||
      parser.parseRParen() || parser.parseInteger(size))
    return failure();
  auto emitError = [&] { return parser.emitError(loc); };
  if (preSize == 0 && size == 0)
    return emitError()
           << "expected positive sizes of a part of an axis, but got (0)0";
  axis = AxisRefAttr::getChecked(emitError, parser.getContext(), nameAttr,
                                 preSize, size);
  return success(axis != nullptr);
}

void zpp::zero::printAxisRef(AsmPrinter &printer, AxisRefAttr axis) {
  printer << axis.getName();
  if (!axis.isWholeAxis())
    printer << ":(" << axis.getPreSize() << ")" << axis.getSize();
}

Attribute AxisRefAttr::parse(AsmParser &parser, Type) {
  AxisRefAttr axis;
  if (parser.parseLess() || parseAxisRef(parser, axis) || parser.parseGreater())
    return {};
  return axis;
}

void AxisRefAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printAxisRef(printer, *this);
  printer << ">";
}

FactorAttr FactorAttr::getWhole(MLIRContext *context, int64_t size) {
  return get(context, AxisRefAttr(), size);
}

FactorAttr FactorAttr::getPartitioned(AxisRefAttr axis) {
  return get(axis.getContext(), axis, 0);
}

LogicalResult FactorAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 AxisRefAttr axis, int64_t size) {
  if (axis && size != 0)
    return emitError() << "expected the size of a partitioned factor to follow "
                          "from the mesh, but got "
                       << size;
  if (!axis && size < 1)
    return emitError() << "expected a positive factor, but got " << size;
  return success();
}

ParseResult zpp::zero::parseFactor(AsmParser &parser, FactorAttr &factor) {
  int64_t size;
  SMLoc loc = parser.getCurrentLocation();
  OptionalParseResult isWhole = parser.parseOptionalInteger(size);
  if (isWhole.has_value()) {
    if (failed(*isWhole))
      return failure();
    factor = FactorAttr::getChecked([&] { return parser.emitError(loc); },
                                    parser.getContext(), AxisRefAttr(), size);
    return success(factor != nullptr);
  }
  AxisRefAttr axis;
  if (parseAxisRef(parser, axis))
    return failure();
  factor = FactorAttr::getPartitioned(axis);
  return success();
}

void zpp::zero::printFactor(AsmPrinter &printer, FactorAttr factor) {
  if (factor.isWhole())
    printer << factor.getSize();
  else
    printAxisRef(printer, factor.getAxis());
}

Attribute FactorAttr::parse(AsmParser &parser, Type) {
  FactorAttr factor;
  if (parser.parseLess() || parseFactor(parser, factor) ||
      parser.parseGreater())
    return {};
  return factor;
}

void FactorAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printFactor(printer, *this);
  printer << ">";
}

//===----------------------------------------------------------------------===//
// QuantAttr
//===----------------------------------------------------------------------===//

LogicalResult QuantAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                WireFormatKind, int64_t block, int64_t rotate) {
  if (!zpp::isValidBlock(block))
    return emitError() << "expected a block that is a power of two from "
                       << zpp::kMinBlock << " to " << zpp::kMaxBlock
                       << ", but got " << block;
  if (!zpp::isValidRotation(rotate))
    return emitError() << "expected groups of 0 or " << zpp::kRotation
                       << " elements to rotate, but got " << rotate;
  return success();
}

//===----------------------------------------------------------------------===//
// SlicesAttr
//===----------------------------------------------------------------------===//

LogicalResult SlicesAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t dim, ArrayRef<int64_t> factors,
                                 ArrayRef<int64_t> chunk, int64_t stage,
                                 int64_t stages) {
  if (dim < 0)
    return emitError() << "expected a dim of at least 0, but got " << dim;
  zpp::SliceMap map;
  map.factors = factors.vec();
  map.chunkFactors = chunk.vec();
  map.stage = stage;
  map.stages = stages;
  std::string error = map.verify();
  if (!error.empty())
    return emitError() << error;
  return success();
}

Attribute SlicesAttr::parse(AsmParser &parser, Type) {
  int64_t dim, stage = 0, stages = 1;
  SmallVector<int64_t> factors, chunk;
  auto parseList = [&](StringRef keyword,
                       SmallVector<int64_t> &list) -> ParseResult {
    if (parser.parseComma() || parser.parseKeyword(keyword) ||
        parser.parseEqual())
      return failure();
    return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
      return parser.parseInteger(list.emplace_back());
    });
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseKeyword("dim") || parser.parseEqual() ||
      parser.parseInteger(dim) || parseList("factors", factors) ||
      parseList("chunk", chunk))
    return {};
  if (succeeded(parser.parseOptionalComma()))
    if (parser.parseKeyword("stage") || parser.parseEqual() ||
        parser.parseInteger(stage) || parser.parseKeyword("of") ||
        parser.parseInteger(stages))
      return {};
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(),
                    dim, factors, chunk, stage, stages);
}

void SlicesAttr::print(AsmPrinter &printer) const {
  printer << "<dim = " << getDim() << ", factors = [";
  llvm::interleaveComma(getFactors(), printer);
  printer << "], chunk = [";
  llvm::interleaveComma(getChunk(), printer);
  printer << "]";
  if (getStages() != 1)
    printer << ", stage = " << getStage() << " of " << getStages();
  printer << ">";
}

zpp::SliceMap SlicesAttr::getMap(ArrayRef<int64_t> shape) const {
  zpp::SliceMap map;
  map.factors = getFactors().vec();
  map.chunkFactors = getChunk().vec();
  map.stage = getStage();
  map.stages = getStages();
  for (auto [index, size] : llvm::enumerate(shape)) {
    int64_t position = index;
    if (position < getDim())
      map.outer *= size;
    else if (position == getDim())
      map.extent = size;
    else
      map.inner *= size;
  }
  map.unit = llvm::divideCeil(map.extent, map.numSlices());
  return map;
}

SmallVector<int64_t>
SlicesAttr::getChunkShape(ArrayRef<int64_t> tensorShape) const {
  zpp::SliceMap map = getMap(tensorShape);
  SmallVector<int64_t> shape{map.numChunks()};
  llvm::append_range(shape, tensorShape);
  shape[1 + getDim()] = map.numSlices() / map.numChunks() * map.partSize();
  return shape;
}
