//===- ZeroOps.cpp - Operations of the zero dialect -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpVerifiers.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

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

void zpp::zero::addNetworkEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), NetworkResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), NetworkResource::get());
}

std::vector<zpp::AxisRef> zpp::zero::resolveAxes(ArrayAttr along,
                                                 MeshAttr mesh) {
  zpp::Mesh plain = mesh.getMesh();
  std::vector<zpp::AxisRef> refs;
  for (auto axis : along.getAsRange<AxisRefAttr>())
    refs.push_back(*axis.resolve(plain));
  return refs;
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

static ParseResult parseReduceKind(OpAsmParser &parser, ReduceKindAttr &kind) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef word;
  (void)parser.parseOptionalKeyword(&word);
  std::optional<ReduceKind> value = symbolizeReduceKind(word);
  if (!value)
    return parser.emitError(loc, "expected sum or mean")
           << (word.empty() ? "" : ", but got '" + word.str() + "'");
  kind = ReduceKindAttr::get(parser.getContext(), *value);
  return success();
}

static void printReduceKind(OpAsmPrinter &printer, Operation *,
                            ReduceKindAttr kind) {
  printer << stringifyReduceKind(kind.getValue());
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

LogicalResult zpp::zero::verifyFloat(Operation *op, StringRef what,
                                     ShapedType type) {
  Type element = type.getElementType();
  if (isQuantizable(element))
    return success();
  return op->emitOpError("expected f32, bf16 or f16 elements of the ")
         << what << ", but got " << element;
}

LogicalResult zpp::zero::verifyNoRotation(Operation *op, QuantAttr quant) {
  if (!quant.isRotated())
    return success();
  return op->emitOpError("expected a format that does not rotate, but got ")
         << quant;
}

//===----------------------------------------------------------------------===//
// StartOp and WaitOp
//===----------------------------------------------------------------------===//

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
  FunctionOpInterface function = lookUpFunction(symbols, *this, getCallee());
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

FunctionOpInterface zpp::zero::lookUpFunction(SymbolTableCollection &symbols,
                                              Operation *op,
                                              SymbolRefAttr callee) {
  Operation *symbol = symbols.lookupNearestSymbolFrom(op, callee);
  if (auto instance = dyn_cast_if_present<InstanceOp>(symbol))
    symbol = symbols.lookupSymbolIn(instance->getParentOp(),
                                    instance.getFunctionAttr());
  return dyn_cast_if_present<FunctionOpInterface>(symbol);
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

//===----------------------------------------------------------------------===//
// InstanceOp
//===----------------------------------------------------------------------===//

LogicalResult InstanceOp::verify() {
  if (getFrom().size() != getTo().size())
    return emitOpError("expected as many locations to put in place as to "
                       "replace, ")
           << getFrom().size() << ", but got " << getTo().size();
  for (ArrayAttr locations : {getFrom(), getTo()})
    for (Attribute location : locations)
      if (!isa<LocationAttr>(location))
        return emitOpError("expected locations, but got ") << location;
  return success();
}

LogicalResult InstanceOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Operation *symbol =
      symbols.lookupSymbolIn((*this)->getParentOp(), getFunctionAttr());
  if (!isa_and_present<FunctionOpInterface>(symbol))
    return emitOpError("expected a function of its module, but got ")
           << getFunctionAttr();
  return success();
}

SmallVector<Location> InstanceOp::translate(ArrayRef<Location> locations) {
  AttrTypeReplacer replacer;
  llvm::DenseMap<Attribute, Attribute> places;
  for (auto [from, to] : llvm::zip_equal(getFrom(), getTo()))
    places[from] = to;
  // What a pass has made of several locations is made of those in their place.
  replacer.addReplacement(
      [&](LocationAttr part)
          -> std::optional<std::pair<Attribute, WalkResult>> {
        if (auto place = places.find(part); place != places.end())
          return std::pair(place->second, WalkResult::skip());
        return std::nullopt;
      });
  return llvm::map_to_vector(locations, [&](Location loc) -> Location {
    return cast<LocationAttr>(replacer.replace(loc));
  });
}

#define GET_OP_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroOps.cpp.inc"
