//===- ScatterHops.cpp - The hops of a gradient scatter -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScatterHops.h"

#include "Formats.h"
#include "mlir/IR/Builders.h"
#include "zpp/Support/CollectiveCost.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

bool ScatterHops::isQuantized() const { return hasFormat(quants); }

int64_t ScatterHops::getElements() const {
  // By units of the result, which are padded.
  return to.getElementsPerUnit() * llvm::product_of(from.getWholeSizes());
}

void ScatterHops::dropFormatsThatDoNotPay() {
  int64_t elementBytes = from.getGlobal().getElementTypeBitWidth() / 8;
  int64_t elements = getElements();
  for (auto [axes, quant] : llvm::zip_equal(along, quants)) {
    for (const AxisRef &ref : resolveAxes(axes, from.getMesh()))
      elements /= ref.size;
    if (quant &&
        quant.getLayout(elements).chunkBytes >= elements * elementBytes)
      quant = QuantAttr();
  }
}

SmallVector<std::pair<std::vector<AxisRef>, int64_t>>
ScatterHops::getChunks() const {
  int64_t elementBytes = from.getGlobal().getElementTypeBitWidth() / 8;
  int64_t elements = getElements();
  SmallVector<std::pair<std::vector<AxisRef>, int64_t>> chunks;
  for (auto [axes, quant] : llvm::zip_equal(along, quants)) {
    std::vector<AxisRef> hop = resolveAxes(axes, from.getMesh());
    elements /= zpp::numDevices(hop);
    int64_t bytes =
        quant ? quant.getLayout(elements).chunkBytes : elements * elementBytes;
    chunks.push_back({std::move(hop), bytes});
  }
  return chunks;
}

std::vector<double> ScatterHops::getExchanges(const LinkModel &model) const {
  std::vector<double> usec;
  for (const auto &[hop, bytes] : getChunks())
    usec.push_back(model.getExchangeUsec(getSentBytes(
        from.getMesh().getMesh(), CollectiveKind::AllToAll, hop, bytes)));
  return usec;
}

bool ScatterHops::isMostlyLatency(const LinkModel &model) const {
  return llvm::all_of(getChunks(), [&](const auto &chunk) {
    const auto &[hop, bytes] = chunk;
    return model.isMostlyLatency(getSentBytes(
        from.getMesh().getMesh(), CollectiveKind::AllToAll, hop, bytes));
  });
}

double ScatterHops::getKernelUsec() const {
  // The first kernel reads the gradient, each other one what a hop sends.
  double usec = LinkModel::getKernelUsec(
      getElements() * (from.getGlobal().getElementTypeBitWidth() / 8));
  for (const auto &[hop, bytes] : getChunks())
    usec += LinkModel::getKernelUsec(2 * zpp::numDevices(hop) * bytes);
  return LinkModel::kKernelWeight * usec;
}

Value ScatterHops::build(
    OpBuilder &builder, Location loc, ReduceKind kind, Value operand,
    bool isEncodedNext, bool inF32,
    llvm::function_ref<void(ReduceScatterOp, size_t)> visit) const {
  Value value = operand;
  SmallVector<FactorAttr> factors(from.getFactors());
  for (auto [index, axes] : llvm::enumerate(along)) {
    for (auto axis : axes.getAsRange<AxisRefAttr>())
      for (auto [factor, partitioned] :
           llvm::zip_equal(factors, to.getFactors()))
        if (partitioned.getAxis() == axis)
          factor = partitioned;
    bool isLast = index + 1 == along.size();
    bool staysF32 =
        isLast ? isEncodedNext
               : quants[index + 1] || (inF32 && index + 2 < along.size());
    ShardType type = from.withFactors(factors).withElementType(
        staysF32 ? builder.getF32Type() : elements[index]);
    auto hop = ReduceScatterOp::create(builder, loc, type, kind, value, axes,
                                       quants[index]);
    visit(hop, index);
    value = hop;
  }
  return value;
}
