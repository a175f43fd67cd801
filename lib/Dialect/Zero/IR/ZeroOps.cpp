//===- ZeroOps.cpp - Operations of the zero dialect -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/Builders.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp::zero;

#include "zpp/Dialect/Zero/IR/ZeroInterfaces.cpp.inc"

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

namespace {
/// The network, which every collective reads and writes. This keeps passes from
/// dropping, duplicating or reordering collectives.
struct NetworkResource : public SideEffects::Resource::Base<NetworkResource> {
  StringRef getName() final { return "network"; }
};
} // namespace

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

static void addNetworkEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), NetworkResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), NetworkResource::get());
}

SmallVector<zpp::AxisRef> zpp::zero::resolveAxes(ArrayAttr along,
                                                 MeshAttr mesh) {
  zpp::Mesh plain = mesh.getMesh();
  return llvm::map_to_vector(
      along.getAsRange<AxisRefAttr>(),
      [&](AxisRefAttr axis) { return *axis.resolve(plain); });
}

ArrayAttr zpp::zero::getAxesAttr(MLIRContext *context, const zpp::Mesh &mesh,
                                 ArrayRef<zpp::AxisRef> refs) {
  return ArrayAttr::get(
      context, llvm::map_to_vector(refs, [&](const zpp::AxisRef &ref) {
        return Attribute(AxisRefAttr::get(context, mesh, ref));
      }));
}

LogicalResult zpp::zero::verifyCollective(Operation *op) {
  auto collective = cast<CollectiveOpInterface>(op);
  ArrayAttr along = collective.getAlongAttr();
  if (along.empty())
    return op->emitOpError("expected at least 1 axis, but got 0");
  return verifyAxes([&] { return op->emitOpError(); },
                    collective.getMeshAttr().getMesh(),
                    llvm::to_vector(along.getAsRange<AxisRefAttr>()));
}

static ParseResult parseAxes(OpAsmParser &parser, ArrayAttr &along) {
  SmallVector<Attribute> axes;
  auto parseAxis = [&]() -> ParseResult {
    AxisRefAttr axis;
    if (parseAxisRef(parser, axis))
      return failure();
    axes.push_back(axis);
    return success();
  };
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Square, parseAxis))
    return failure();
  along = ArrayAttr::get(parser.getContext(), axes);
  return success();
}

static void printAxes(OpAsmPrinter &printer, Operation *, ArrayAttr along) {
  printer << "[";
  llvm::interleaveComma(along.getAsRange<AxisRefAttr>(), printer,
                        [&](AxisRefAttr axis) { printAxisRef(printer, axis); });
  printer << "]";
}

/// %a, %b : type, type
static ParseResult
parseTies(OpAsmParser &parser,
          SmallVectorImpl<OpAsmParser::UnresolvedOperand> &ties,
          SmallVectorImpl<Type> &types, SmallVectorImpl<Type> &tiedTypes) {
  if (parser.parseOperandList(ties) || parser.parseColonTypeList(types))
    return failure();
  tiedTypes = types;
  return success();
}

static void printTies(OpAsmPrinter &printer, Operation *, OperandRange ties,
                      TypeRange types, TypeRange) {
  printer << ties << " : " << types;
}

/// The type of an optional operand, that of another one.
static ParseResult
parseHeldType(OpAsmParser &, std::optional<OpAsmParser::UnresolvedOperand> held,
              Type &type, Type other) {
  if (held)
    type = other;
  return success();
}

static void printHeldType(OpAsmPrinter &, Operation *, Value, Type, Type) {}

static ParseResult parseSameTypes(OpAsmParser &parser,
                                  SmallVectorImpl<Type> &types,
                                  SmallVectorImpl<Type> &sameTypes) {
  if (parser.parseTypeList(types))
    return failure();
  sameTypes = types;
  return success();
}

static void printSameTypes(OpAsmPrinter &printer, Operation *, TypeRange types,
                           TypeRange) {
  printer << types;
}

bool zpp::zero::isQuantizable(Type element) {
  return element.isF32() || element.isBF16() || element.isF16();
}

static LogicalResult verifyFloat(Operation *op, StringRef what,
                                 ShapedType type) {
  Type element = type.getElementType();
  if (isQuantizable(element))
    return success();
  return op->emitOpError("expected f32, bf16 or f16 elements of the ")
         << what << ", but got " << element;
}

//===----------------------------------------------------------------------===//
// FromLocalOp and ToLocalOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyLocalType(Operation *op, Type local,
                                     ShardType shard) {
  if (local != shard.getLocalType())
    return op->emitOpError("expected the local type ")
           << shard.getLocalType() << ", but got " << local;
  return success();
}

LogicalResult FromLocalOp::verify() {
  return verifyLocalType(*this, getLocal().getType(), getShard().getType());
}

LogicalResult ToLocalOp::verify() {
  return verifyLocalType(*this, getLocal().getType(), getShard().getType());
}

OpFoldResult FromLocalOp::fold(FoldAdaptor) {
  if (auto source = getLocal().getDefiningOp<ToLocalOp>())
    if (source.getShard().getType() == getType())
      return source.getShard();
  return {};
}

OpFoldResult ToLocalOp::fold(FoldAdaptor) {
  if (auto source = getShard().getDefiningOp<FromLocalOp>())
    return source.getLocal();
  return {};
}

//===----------------------------------------------------------------------===//
// AllGatherOp and ReduceScatterOp
//===----------------------------------------------------------------------===//

MeshAttr AllGatherOp::getMeshAttr() { return getOperand().getType().getMesh(); }

void AllGatherOp::getEffects(Effects &effects) { addNetworkEffects(effects); }

/// `type` with the factors over `along` whole. If an axis of `along` partitions
/// no factor, returns null and sets `missing` to the axis.
static ShardType getGatheredType(ShardType type, ArrayAttr along,
                                 AxisRefAttr &missing) {
  SmallVector<FactorAttr> factors(type.getFactors());
  zpp::Mesh mesh = type.getMesh().getMesh();
  for (auto axis : along.getAsRange<AxisRefAttr>()) {
    auto *it = llvm::find_if(
        factors, [&](FactorAttr factor) { return factor.getAxis() == axis; });
    if (it == factors.end()) {
      missing = axis;
      return {};
    }
    *it = FactorAttr::getWhole(type.getContext(), axis.resolve(mesh)->size);
  }
  return type.withFactors(factors);
}

LogicalResult AllGatherOp::verify() {
  AxisRefAttr missing;
  ShardType expected =
      getGatheredType(getOperand().getType(), getAlong(), missing);
  if (!expected)
    return emitOpError("expected an operand partitioned over ")
           << missing << ", but got " << getOperand().getType();
  if (expected != getType())
    return emitOpError("expected the result type ")
           << expected << ", but got " << getType();
  return success();
}

/// A hop over axes of size 1 moves nothing, and the devices hold the same data
/// before and after it, unless a padded dim becomes whole.
template <typename OpT>
static LogicalResult removeTrivialHop(OpT op, PatternRewriter &rewriter) {
  if (op.getGroupSize() != 1)
    return rewriter.notifyMatchFailure(op, "more than one device takes part");
  RankedTensorType local = op.getOperand().getType().getLocalType();
  if (local != op.getType().getLocalType())
    return rewriter.notifyMatchFailure(op, "the local type changes");
  Value held = ToLocalOp::create(rewriter, op.getLoc(), local, op.getOperand());
  rewriter.replaceOpWithNewOp<FromLocalOp>(op, op.getType(), held);
  return success();
}

LogicalResult AllGatherOp::canonicalize(AllGatherOp op,
                                        PatternRewriter &rewriter) {
  return removeTrivialHop(op, rewriter);
}

MeshAttr ReduceScatterOp::getMeshAttr() {
  return getOperand().getType().getMesh();
}

void ReduceScatterOp::getEffects(Effects &effects) {
  addNetworkEffects(effects);
}

LogicalResult ReduceScatterOp::verify() {
  ShardType from = getOperand().getType(), to = getType();
  if (from.getQuant() || to.getQuant())
    return emitOpError("expected tensors that are not encoded, but got ")
           << (from.getQuant() ? from : to);
  if (failed(verifyFloat(*this, "operand", from.getGlobal())) ||
      failed(verifyFloat(*this, "result", to.getGlobal())))
    return failure();
  Type read = from.getGlobal().getElementType();
  Type written = to.getGlobal().getElementType();
  if (written != read && !written.isF32() && !read.isF32())
    return emitOpError("expected the result element type ")
           << read << " or f32, but got " << written;
  AxisRefAttr missing;
  ShardType expected = getGatheredType(to, getAlong(), missing);
  if (!expected)
    return emitOpError("expected a result partitioned over ")
           << missing << ", but got " << to;
  expected = expected.withElementType(from.getGlobal().getElementType());
  if (expected != from)
    return emitOpError("expected the operand type ")
           << expected << ", but got " << from;
  return success();
}

LogicalResult ReduceScatterOp::canonicalize(ReduceScatterOp op,
                                            PatternRewriter &rewriter) {
  // Rounding to the wire format changes the values.
  if (op.getWire())
    return rewriter.notifyMatchFailure(op, "values are rounded");
  return removeTrivialHop(op, rewriter);
}

//===----------------------------------------------------------------------===//
// AllReduceOp
//===----------------------------------------------------------------------===//

MeshAttr AllReduceOp::getMeshAttr() { return getOperand().getType().getMesh(); }

void AllReduceOp::getEffects(Effects &effects) { addNetworkEffects(effects); }

LogicalResult AllReduceOp::verify() {
  ShardType type = getType();
  if (type.getQuant())
    return emitOpError("expected a tensor that is not encoded, but got ")
           << type;
  if (failed(verifyFloat(*this, "operand", type.getGlobal())))
    return failure();
  std::vector<zpp::AxisRef> refs;
  llvm::append_range(refs, resolveAxes(getAlong(), type.getMesh()));
  llvm::append_range(refs, type.getAxes());
  std::string error = type.getMesh().getMesh().verify(refs);
  if (!error.empty())
    return emitOpError("expected an operand that no axis of the sum "
                       "partitions, but got ")
           << type << ": " << error;
  return success();
}

//===----------------------------------------------------------------------===//
// EncodeOp and DecodeOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyEncoding(Operation *op, ShardType encoded,
                                    ShardType decoded) {
  // Chunks have no element type: those of a sum in f32 may be read as bf16.
  Type element = encoded.getGlobal().getElementType();
  Type read = decoded.getGlobal().getElementType();
  if (!encoded.getQuant() || decoded.getQuant() || !isQuantizable(read) ||
      encoded != decoded.withElementType(element).withQuant(encoded.getQuant()))
    return op->emitOpError("expected the same partitioned tensor with and "
                           "without quantization, but got ")
           << encoded << " and " << decoded;
  return success();
}

/// Verifies that a format of differences does not rotate.
static LogicalResult verifyNoRotation(Operation *op, QuantAttr quant) {
  if (!quant.isRotated())
    return success();
  return op->emitOpError("expected a format that does not rotate, but got ")
         << quant;
}

/// Verifies what is held of a tensor, if there is such an operand.
static LogicalResult verifyHeld(Operation *op, Value held, ShardType encoded,
                                ShardType decoded) {
  if (!held)
    return success();
  if (held.getType() != decoded)
    return op->emitOpError("expected the type ")
           << decoded << " of what is held, but got " << held.getType();
  return verifyNoRotation(op, encoded.getQuant());
}

LogicalResult EncodeOp::verify() {
  if (failed(verifyEncoding(*this, getType(), getOperand().getType())))
    return failure();
  return verifyHeld(*this, getHeld(), getType(), getOperand().getType());
}

LogicalResult DecodeOp::verify() {
  if (failed(verifyEncoding(*this, getOperand().getType(), getType())))
    return failure();
  return verifyHeld(*this, getHeld(), getOperand().getType(), getType());
}

//===----------------------------------------------------------------------===//
// Decomposed ops
//===----------------------------------------------------------------------===//

/// A local op on buffers reads its input and overwrites its destination. On
/// tensors it has no effects.
static void addLocalEffects(Effects &effects, OpOperand &input,
                            OpOperand &init) {
  if (isa<MemRefType>(input.get().getType()))
    effects.emplace_back(MemoryEffects::Read::get(), &input);
  if (isa<MemRefType>(init.get().getType()))
    effects.emplace_back(MemoryEffects::Write::get(), &init);
}

#define ZPP_LOCAL_EFFECTS(OP)                                                  \
  void OP::getEffects(Effects &effects) {                                      \
    addLocalEffects(effects, getInputMutable(), getInitMutable());             \
  }
ZPP_LOCAL_EFFECTS(PackSlicesOp)
ZPP_LOCAL_EFFECTS(UnpackSlicesOp)
ZPP_LOCAL_EFFECTS(QuantizeOp)
ZPP_LOCAL_EFFECTS(DequantizeOp)
ZPP_LOCAL_EFFECTS(ReduceOp)
ZPP_LOCAL_EFFECTS(DequantizeReduceOp)
ZPP_LOCAL_EFFECTS(DequantizeReduceQuantizeOp)
#undef ZPP_LOCAL_EFFECTS

/// The same for an op that also reads what is held of a tensor.
static void addDifferenceEffects(Effects &effects, OpOperand &input,
                                 OpOperand &held, OpOperand &init) {
  if (isa<MemRefType>(held.get().getType()))
    effects.emplace_back(MemoryEffects::Read::get(), &held);
  addLocalEffects(effects, input, init);
}

void QuantizeDifferenceOp::getEffects(Effects &effects) {
  addDifferenceEffects(effects, getInputMutable(), getHeldMutable(),
                       getInitMutable());
}

void DequantizeAddOp::getEffects(Effects &effects) {
  addDifferenceEffects(effects, getInputMutable(), getHeldMutable(),
                       getInitMutable());
}

void AllToAllOp::getEffects(Effects &effects) {
  addLocalEffects(effects, getInputMutable(), getInitMutable());
  addNetworkEffects(effects);
}

void AllGatherChunksOp::getEffects(Effects &effects) {
  addLocalEffects(effects, getInputMutable(), getInitMutable());
  addNetworkEffects(effects);
}

static std::string str(ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "[";
  llvm::interleaveComma(shape, os);
  os << "]";
  return text;
}

static LogicalResult verifyShape(Operation *op, StringRef what,
                                 ArrayRef<int64_t> expected, ShapedType type) {
  if (expected == type.getShape())
    return success();
  return op->emitOpError("expected the shape ")
         << str(expected) << " of the " << what << ", but got " << type;
}

static LogicalResult verifySameElement(Operation *op, ShapedType input,
                                       ShapedType init) {
  if (input.getElementType() == init.getElementType())
    return success();
  return op->emitOpError("expected the element type ")
         << input.getElementType() << " of the destination, but got "
         << init.getElementType();
}

/// Verifies that `slices` fits a tensor of type `type`.
static LogicalResult verifySlices(Operation *op, SlicesAttr slices,
                                  ShapedType type) {
  if (slices.getDim() >= type.getRank())
    return op->emitOpError("expected a dim of slices below the rank ")
           << type.getRank() << ", but got " << slices.getDim();
  std::string error = slices.getMap(type.getShape()).verify();
  if (!error.empty())
    return op->emitOpError("slices do not fit ") << type << ": " << error;
  return success();
}

/// Verifies that `slices` fits the type and covers all of it.
static LogicalResult verifyCoveringSlices(Operation *op, SlicesAttr slices,
                                          ShapedType type) {
  if (failed(verifySlices(op, slices, type)))
    return failure();
  if (slices.getStages() != 1)
    return op->emitOpError("expected 1 stage, but got ") << slices.getStages();
  return success();
}

/// Verifies that `type` is a buffer of `chunks` wire chunks, numbered by its
/// leading dim.
static LogicalResult verifyWire(Operation *op, StringRef what, ShapedType type,
                                int64_t chunks, int64_t elements,
                                QuantAttr quant) {
  int64_t bytes = quant.getLayout(elements).chunkBytes;
  if (type.getElementType().isSignlessInteger(8) &&
      ArrayRef<int64_t>{chunks, bytes} == type.getShape())
    return success();
  return op->emitOpError("expected ")
         << chunks << " chunks of " << bytes << " bytes in the " << what
         << ", but got " << type;
}

/// Verifies that a buffer that is reduced has at least one row.
static LogicalResult verifySources(Operation *op, ShapedType type,
                                   int64_t elements, QuantAttr quant) {
  if (type.getRank() == 0 || type.getDimSize(0) == 0)
    return op->emitOpError("expected an input of at least 1 chunk, but got ")
           << type;
  return verifyWire(op, "input", type, type.getDimSize(0), elements, quant);
}

/// Verifies that sizes computed from the types of a decomposed op do not
/// overflow: an element takes at most 64 bytes, even if it is padded or
/// encoded.
static LogicalResult verifySizes(DecomposedOpInterface op) {
  SmallVector<ShapedType> types{op.getInputType(), op.getInitType()};
  if (auto fused = dyn_cast<DequantizeReduceQuantizeOp>(op.getOperation()))
    types.push_back(cast<ShapedType>(fused.getPartial()));
  for (ShapedType type : types) {
    int64_t bytes = 64;
    for (int64_t size : type.getShape())
      bytes = zpp::multiplySaturating(bytes, std::max<int64_t>(size, 1));
    if (bytes == std::numeric_limits<int64_t>::max())
      return op->emitOpError("expected fewer than 2^57 elements, but got ")
             << type;
  }
  return success();
}

static int64_t numElements(ArrayRef<int64_t> shape) {
  return llvm::product_of(shape);
}

/// The bytes of a chunk of `chunkShape`, whose leading dim numbers chunks, with
/// the elements of `type`; 0 if these do not fill whole bytes.
static int64_t getChunkBytes(ArrayRef<int64_t> chunkShape, ShapedType type) {
  Type element = type.getElementType();
  if (!element.isIntOrFloat() || element.getIntOrFloatBitWidth() % 8 != 0)
    return 0;
  return numElements(chunkShape.drop_front()) *
         (element.getIntOrFloatBitWidth() / 8);
}

/// True if `bytes` has bytes as elements and `type` has other elements.
static bool isInBytes(ShapedType bytes, ShapedType type) {
  return bytes.getElementType().isSignlessInteger(8) &&
         !type.getElementType().isInteger(8);
}

LogicalResult PackSlicesOp::verify() {
  if (failed(verifySizes(*this)))
    return failure();
  ShapedType input = getInputType(), init = getInitType();
  if (failed(verifySlices(*this, getSlices(), input)))
    return failure();
  SmallVector<int64_t> chunkShape = getSlices().getChunkShape(input.getShape());
  if (isInBytes(init, input))
    return verifyShape(*this, "destination",
                       {chunkShape.front(), getChunkBytes(chunkShape, input)},
                       init);
  if (failed(verifySameElement(*this, input, init)))
    return failure();
  return verifyShape(*this, "destination", chunkShape, init);
}

LogicalResult UnpackSlicesOp::verify() {
  if (failed(verifySizes(*this)))
    return failure();
  ShapedType input = getInputType(), init = getInitType();
  if (failed(verifyCoveringSlices(*this, getSlices(), init)))
    return failure();
  SmallVector<int64_t> chunkShape = getSlices().getChunkShape(init.getShape());
  if (isInBytes(input, init)) {
    int64_t bytes = getChunkBytes(chunkShape, init);
    if (input.getRank() > 0 && input.getShape().back() == bytes &&
        numElements(input.getShape().drop_back()) == chunkShape.front())
      return success();
    return emitOpError("expected ")
           << chunkShape.front() << " chunks of " << bytes
           << " bytes in the input, but got " << input;
  }
  if (failed(verifySameElement(*this, input, init)))
    return failure();
  if (input.getNumElements() != numElements(chunkShape))
    return emitOpError("expected an input with the elements of ")
           << str(chunkShape) << ", but got " << input;
  return success();
}

/// Verifies an op that quantizes the chunks of its input.
template <typename OpT> static LogicalResult verifyQuantize(OpT op) {
  if (failed(verifySizes(op)))
    return failure();
  ShapedType input = op.getInputType();
  if (failed(verifyFloat(op, "input", input)))
    return failure();
  SmallVector<int64_t> chunkShape(input.getShape());
  if (SlicesAttr slices = op.getSlicesAttr()) {
    if (failed(verifySlices(op, slices, input)))
      return failure();
    chunkShape = slices.getChunkShape(input.getShape());
  } else if (input.getRank() == 0) {
    return op.emitOpError("expected a leading dim of chunks, but got ")
           << input;
  }
  return verifyWire(op, "destination", op.getInitType(), chunkShape.front(),
                    numElements(ArrayRef(chunkShape).drop_front()),
                    op.getQuant());
}

/// Verifies an op that reads chunks of its destination.
template <typename OpT> static LogicalResult verifyDequantize(OpT op) {
  if (failed(verifySizes(op)))
    return failure();
  ShapedType init = op.getInitType();
  if (failed(verifyFloat(op, "destination", init)))
    return failure();
  SmallVector<int64_t> chunkShape(init.getShape());
  if (SlicesAttr slices = op.getSlicesAttr()) {
    if (failed(verifyCoveringSlices(op, slices, init)))
      return failure();
    chunkShape = slices.getChunkShape(init.getShape());
  } else if (init.getRank() == 0) {
    return op.emitOpError("expected a leading dim of chunks, but got ") << init;
  }
  // A gathered tensor has two leading dims of chunks: by device and by unit.
  ShapedType input = op.getInputType();
  int64_t chunks = chunkShape.front();
  int64_t bytes = op.getQuant()
                      .getLayout(numElements(ArrayRef(chunkShape).drop_front()))
                      .chunkBytes;
  if (input.getElementType().isSignlessInteger(8) && input.getRank() > 0 &&
      input.getShape().back() == bytes &&
      numElements(input.getShape().drop_back()) == chunks)
    return success();
  return op.emitOpError("expected ")
         << chunks << " chunks of " << bytes << " bytes in the input, but got "
         << input;
}

/// Verifies what is held of a tensor of type `type`.
template <typename OpT>
static LogicalResult verifyDifference(OpT op, ShapedType type) {
  auto held = cast<ShapedType>(op.getHeld().getType());
  if (isa<TensorType>(held) != isa<TensorType>(type) ||
      held.getShape() != type.getShape() ||
      held.getElementType() != type.getElementType())
    return op.emitOpError("expected what is held to have the shape and "
                          "elements of ")
           << type << ", but got " << held;
  return verifyNoRotation(op, op.getQuant());
}

LogicalResult QuantizeOp::verify() { return verifyQuantize(*this); }

LogicalResult DequantizeOp::verify() { return verifyDequantize(*this); }

LogicalResult QuantizeDifferenceOp::verify() {
  if (failed(verifyQuantize(*this)))
    return failure();
  return verifyDifference(*this, getInputType());
}

LogicalResult DequantizeAddOp::verify() {
  if (failed(verifyDequantize(*this)))
    return failure();
  return verifyDifference(*this, getInitType());
}

LogicalResult ReduceOp::verify() {
  if (failed(verifySizes(*this)))
    return failure();
  ShapedType input = getInputType(), init = getInitType();
  if (failed(verifyFloat(*this, "input", input)) ||
      failed(verifyFloat(*this, "destination", init)))
    return failure();
  if (input.getRank() == 0 || input.getDimSize(0) == 0)
    return emitOpError("expected an input of at least 1 source, but got ")
           << input;
  return verifyShape(*this, "destination", input.getShape().drop_front(), init);
}

LogicalResult DequantizeReduceOp::verify() {
  if (failed(verifySizes(*this)))
    return failure();
  if (failed(verifyFloat(*this, "destination", getInitType())))
    return failure();
  return verifySources(*this, getInputType(), getInitType().getNumElements(),
                       getQuant());
}

LogicalResult DequantizeReduceQuantizeOp::verify() {
  if (failed(verifySizes(*this)))
    return failure();
  auto partial = cast<RankedTensorType>(getPartial());
  if (failed(verifySlices(*this, getSlices(), partial)) ||
      failed(verifySources(*this, getInputType(), partial.getNumElements(),
                           getQuant())))
    return failure();
  if (getQuant().getRotate() != getTo().getRotate())
    return emitOpError("expected both formats to rotate or none, but got ")
           << getQuant() << " and " << getTo();
  if (getQuant().isRotated() &&
      !getSlices().getMap(partial.getShape()).movesWhole(kRotation))
    return emitOpError("expected slices of whole groups of ")
           << kRotation << " elements, but got " << getSlices() << " of "
           << partial;
  SmallVector<int64_t> chunkShape =
      getSlices().getChunkShape(partial.getShape());
  return verifyWire(*this, "destination", getInitType(), chunkShape.front(),
                    numElements(ArrayRef(chunkShape).drop_front()), getTo());
}

LogicalResult AllToAllOp::verify() {
  if (failed(verifySizes(*this)))
    return failure();
  ShapedType input = getInputType(), init = getInitType();
  SmallVector<int64_t> chunkShape(input.getShape());
  if (SlicesAttr slices = getSlicesAttr()) {
    if (failed(verifySlices(*this, slices, input)))
      return failure();
    chunkShape = slices.getChunkShape(input.getShape());
  } else if (input.getRank() == 0) {
    return emitOpError("expected a leading dim of chunks, but got ") << input;
  }
  int64_t size = cast<CollectiveOpInterface>(getOperation()).getGroupSize();
  if (chunkShape.front() != size)
    return emitOpError("expected a chunk for each of ")
           << size << " devices, but got " << chunkShape.front();
  if (getWire()) {
    if (failed(verifyFloat(*this, "input", input)) ||
        failed(verifyFloat(*this, "destination", init)))
      return failure();
  } else if (failed(verifySameElement(*this, input, init))) {
    return failure();
  }
  return verifyShape(*this, "destination", chunkShape, init);
}

LogicalResult AllGatherChunksOp::verify() {
  if (failed(verifySizes(*this)))
    return failure();
  if (failed(verifySameElement(*this, getInputType(), getInitType())))
    return failure();
  SmallVector<int64_t> shape{
      cast<CollectiveOpInterface>(getOperation()).getGroupSize()};
  llvm::append_range(shape, getInputType().getShape());
  return verifyShape(*this, "destination", shape, getInitType());
}

//===----------------------------------------------------------------------===//
// StartOp and WaitOp
//===----------------------------------------------------------------------===//

void StartOp::getEffects(Effects &effects) { addNetworkEffects(effects); }

void WaitOp::getEffects(Effects &effects) { addNetworkEffects(effects); }

WaitOp StartOp::getWait() {
  return cast<WaitOp>(*getOutputs().front().user_begin());
}

StartOp WaitOp::getStart() {
  return getStarted().front().getDefiningOp<StartOp>();
}

LogicalResult StartOp::verify() {
  if (getOutputs().empty())
    return emitOpError("expected at least 1 output, but got 0");
  return success();
}

/// True if `buffers` are the bufferized types of `tensors`.
static bool areBuffersOf(TypeRange buffers, TypeRange tensors) {
  return llvm::all_of_zip(buffers, tensors, [](Type buffer, Type tensor) {
    auto memref = dyn_cast<MemRefType>(buffer);
    auto ranked = dyn_cast<RankedTensorType>(tensor);
    return memref && ranked && memref.getShape() == ranked.getShape() &&
           memref.getElementType() == ranked.getElementType();
  });
}

static bool isWorkspace(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  return memref && memref.hasStaticShape() && memref.getRank() == 1 &&
         memref.getElementType().isInteger(8);
}

LogicalResult StartOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto function =
      symbols.lookupNearestSymbolFrom<FunctionOpInterface>(*this, getCallee());
  if (!function)
    return emitOpError("expected a function as the callee, but got ")
           << getCallee();
  ArrayRef<Type> arguments = function.getArgumentTypes();
  size_t numInputs = getInputs().size(), numOutputs = getOutputs().size();
  if (arguments == getInputs().getTypes() &&
      function.getResultTypes() == getOutputs().getTypes()) {
    // On tensors.
  } else {
    bool isOnBuffers =
        function.getResultTypes().empty() &&
        (arguments.size() == numInputs + numOutputs ||
         (arguments.size() == numInputs + numOutputs + 1 &&
          isWorkspace(arguments.back()))) &&
        areBuffersOf(arguments.take_front(numInputs), getInputs().getTypes()) &&
        areBuffersOf(arguments.slice(numInputs, numOutputs),
                     getOutputs().getTypes());
    if (!isOnBuffers)
      return emitOpError("expected a callee of type ")
             << FunctionType::get(getContext(), getInputs().getTypes(),
                                  getOutputs().getTypes())
             << ", or that on buffers, but got " << function.getFunctionType();
  }
  return success();
}

LogicalResult WaitOp::verify() {
  if (getStarted().empty())
    return emitOpError("expected at least 1 output to wait for, but got 0");
  return success();
}

Operation *zpp::zero::addTie(Operation *op, Value value) {
  IRRewriter rewriter(op);
  auto extend = [&](OperandRange ties) {
    SmallVector<Value> extended(ties);
    extended.push_back(value);
    return extended;
  };
  Operation *tied;
  if (auto start = dyn_cast<StartOp>(op)) {
    SmallVector<Value> ties = extend(start.getTies());
    tied = StartOp::create(
        rewriter, op->getLoc(), start.getOutputs().getTypes(),
        ValueRange(ties).getTypes(), start.getCallee(), start.getInputs(), ties,
        start.getOriginsAttr(), start.getDeferrable());
  } else {
    auto wait = cast<WaitOp>(op);
    SmallVector<Value> ties = extend(wait.getTies());
    tied = WaitOp::create(rewriter, op->getLoc(), wait.getOutputs().getTypes(),
                          ValueRange(ties).getTypes(), wait.getStarted(),
                          wait.getInputs(), ties);
  }
  tied->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  rewriter.replaceOp(op, tied->getResults().drop_back());
  return tied;
}

#define GET_OP_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroOps.cpp.inc"
