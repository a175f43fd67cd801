//===- Formats.cpp - Wire formats that passes are given -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formats.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Support/Limits.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

FailureOr<QuantAttr> zpp::parseFormat(Operation *op, StringRef format,
                                      int64_t block, int64_t rotate) {
  // Errors are emitted at the location, because an error at an op, here a
  // module, prints the whole op.
  if (format == "none")
    return QuantAttr();
  std::optional<WireFormatKind> kind = symbolizeWireFormatKind(format);
  if (!kind)
    return emitError(op->getLoc(),
                     "expected a format none, i8 or i4, but got '")
           << format << "'";
  QuantAttr quant =
      QuantAttr::getChecked([&] { return emitError(op->getLoc()); },
                            op->getContext(), *kind, block, rotate);
  if (!quant)
    return failure();
  return quant;
}

FailureOr<SmallVector<QuantAttr>> zpp::parseFormats(Operation *op,
                                                    StringRef formats,
                                                    int64_t block,
                                                    int64_t rotate) {
  SmallVector<StringRef> names;
  formats.split(names, ':');
  SmallVector<QuantAttr> quants;
  for (StringRef name : names) {
    FailureOr<QuantAttr> quant = parseFormat(op, name, block, rotate);
    if (failed(quant))
      return failure();
    quants.push_back(*quant);
  }
  return quants;
}

bool zpp::hasFormat(ArrayRef<QuantAttr> quants) {
  return llvm::any_of(quants,
                      [](QuantAttr quant) { return static_cast<bool>(quant); });
}

LogicalResult zpp::checkStages(Operation *op, int64_t stages) {
  if (stages >= 0 && stages <= kMaxStages)
    return success();
  return emitError(op->getLoc(), "expected 1 to ")
         << kMaxStages << " stages, or 0 to choose, but got " << stages;
}

QuantAttr zpp::widen(QuantAttr quant, ArrayRef<Operation *> ops) {
  if (!quant)
    return quant;
  Floor floor = Floor::Any;
  int64_t block = quant.getBlock();
  for (Operation *op : ops)
    if (op) {
      floor = std::max(floor, getFloor(op));
      if (int64_t largest = getLargestBlock(op))
        block = std::min(block, largest);
    }
  if (floor == Floor::None)
    return QuantAttr();
  return QuantAttr::get(quant.getContext(),
                        floor == Floor::I8 ? WireFormatKind::I8
                                           : quant.getFormat(),
                        block, quant.getRotate());
}

SliceBytes::SliceBytes(ShardType shard, QuantAttr quant) {
  int64_t elements = shard.getElementsPerUnit();
  plain = elements * getElementBits(shard.getGlobal().getElementType()) / 8;
  wire = quant.getLayout(elements).chunkBytes;
}

LeftAlone SliceBytes::getReason(StringRef how) const {
  return LeftAlone(
      llvm::formatv("a slice of {0} bytes would take {1} {2}", plain, wire, how)
          .str());
}

void zpp::remarkFloor(Operation *op, StringRef pass) {
  remarkMissed(op, pass, "floor")
      << (op->getName().getStringRef() +
          " is not quantized: " + getFloorReason(getOrigins(op)))
             .str();
}

AllGatherOp zpp::encodeGather(AllGatherOp gather, QuantAttr quant,
                              StringRef kept) {
  ShardType from = gather.getOperand().getType(), to = gather.getType();
  OpBuilder builder(gather);
  Location loc = gather.getLoc();
  Value encoded = EncodeOp::create(builder, loc, from.withQuant(quant),
                                   gather.getOperand(), /*held=*/Value());
  auto moved = AllGatherOp::create(builder, loc, to.withQuant(quant), encoded,
                                   gather.getAlong());
  copyOrigin(gather, moved);
  if (Attribute attribute = gather->getAttr(kept))
    moved->setAttr(kept, attribute);
  Value decoded = DecodeOp::create(builder, loc, to, moved, /*held=*/Value());
  gather.replaceAllUsesWith(decoded);
  gather.erase();
  return moved;
}
