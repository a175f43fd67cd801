//===- ForwardParts.cpp - Parts computed in the buffer of the whole -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Upstream bufferizes a concatenation as an allocation, directly followed by
// the copies of the parts. A part that is computed into a buffer of its own is
// computed into its place instead. The allocation of the whole moves before the
// first such part; nothing else can access it before the copies.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_FORWARDPARTSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

namespace {
struct CopiedPart {
  memref::SubViewOp place;
  memref::CopyOp copy;
};

struct Whole {
  memref::AllocOp alloc;
  /// The parts that can be computed in their places.
  SmallVector<CopiedPart> parts;
  /// The buffer of the part that is computed first.
  Operation *first;
};

class ForwardPartsPass
    : public zpp::impl::ForwardPartsPassBase<ForwardPartsPass> {
public:
  void runOnOperation() override;
};
} // namespace

/// Returns the copies directly after the allocation of `whole`, up to one that
/// may overlap with those before it: the parts follow each other along one
/// dimension.
static SmallVector<CopiedPart> findParts(memref::AllocOp whole) {
  SmallVector<CopiedPart> parts;
  int64_t rank = whole.getType().getRank();
  std::optional<int64_t> dim;
  SmallVector<int64_t> end;
  for (Operation *op = whole->getNextNode(); op;) {
    auto place = dyn_cast<memref::SubViewOp>(op);
    auto copy = dyn_cast_if_present<memref::CopyOp>(op->getNextNode());
    if (!place || !copy || place.getSource() != whole.getResult() ||
        copy.getTarget() != place.getResult() || !place->hasOneUse() ||
        !place.getOffsets().empty() || !place.getSizes().empty() ||
        !place.hasUnitStride())
      break;
    ArrayRef<int64_t> offsets = place.getStaticOffsets();
    for (int64_t d = 0; d < rank && !end.empty() && !dim; ++d)
      if (offsets[d] >= end[d])
        dim = d;
    if (!end.empty() && (!dim || offsets[*dim] < end[*dim]))
      break;
    end.clear();
    for (auto [offset, size] : llvm::zip_equal(offsets, place.getStaticSizes()))
      end.push_back(offset + size);
    parts.push_back({place, copy});
    op = copy->getNextNode();
  }
  return parts;
}

/// Returns the zero op that uses a buffer, or null.
static DestinationStyleOpInterface getZeroOp(OpOperand &use) {
  Operation *user = use.getOwner();
  return isa<zero::ZeroDialect>(user->getDialect())
             ? dyn_cast<DestinationStyleOpInterface>(user)
             : DestinationStyleOpInterface();
}

static bool isRead(OpOperand &use) {
  DestinationStyleOpInterface reader = getZeroOp(use);
  return reader && reader.isDpsInput(&use);
}

/// Whether zero ops only read `whole` once its parts are there.
static bool isOnlyRead(memref::AllocOp whole, ArrayRef<CopiedPart> parts) {
  auto isOther = [](OpOperand &use) { return !isRead(use); };
  return llvm::count_if(whole->getUses(), isOther) ==
         static_cast<int64_t>(parts.size());
}

/// Whether zero ops before `whole` write the source of the copy, if any does,
/// and nothing else uses that buffer. If `mayRead`, zero ops may read it.
static bool canForward(CopiedPart part, memref::AllocOp whole, bool mayRead) {
  memref::CopyOp copy = part.copy;
  auto buffer = copy.getSource().getDefiningOp<memref::AllocOp>();
  auto type = cast<MemRefType>(part.place.getResult().getType());
  if (!buffer || buffer->getBlock() != whole->getBlock() ||
      buffer.getType().getShape() != type.getShape() ||
      buffer.getType().getMemorySpace() != type.getMemorySpace())
    return false;
  return llvm::all_of(buffer->getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (user == copy || (mayRead && isRead(use)))
      return true;
    DestinationStyleOpInterface writer = getZeroOp(use);
    return writer && writer.isDpsInit(&use) && user->getNumResults() == 0 &&
           user->getBlock() == whole->getBlock() &&
           user->isBeforeInBlock(whole);
  });
}

static void forward(Whole &whole) {
  whole.alloc->moveBefore(whole.first);
  for (CopiedPart &part : whole.parts) {
    Operation *buffer = part.copy.getSource().getDefiningOp();
    part.place->moveBefore(buffer);
    part.copy->erase();
    buffer->getResult(0).replaceAllUsesWith(part.place);
    buffer->erase();
  }
}

void ForwardPartsPass::runOnOperation() {
  // Find all before moving anything, because moves invalidate the order of the
  // ops.
  SmallVector<Whole> wholes;
  getOperation()->walk([&](memref::AllocOp alloc) {
    if (alloc->getNumOperands() != 0)
      return;
    Whole whole{alloc, findParts(alloc), nullptr};
    bool mayRead = isOnlyRead(alloc, whole.parts);
    llvm::erase_if(whole.parts, [&](const CopiedPart &part) {
      return !canForward(part, alloc, mayRead);
    });
    for (CopiedPart &part : whole.parts) {
      Operation *buffer = part.copy.getSource().getDefiningOp();
      if (!whole.first || buffer->isBeforeInBlock(whole.first))
        whole.first = buffer;
    }
    if (whole.first)
      wholes.push_back(std::move(whole));
  });
  for (Whole &whole : wholes)
    forward(whole);
}
