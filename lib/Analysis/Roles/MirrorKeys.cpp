//===- MirrorKeys.cpp - The shapes that weights and gradients share -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/DimFlow.h"

using namespace mlir;
using namespace zpp;

namespace {
/// The whole tensor of a gather or scatter, without dims of size 1.
struct WholeTensor {
  WholeTensor(const StepCollective &collective, RankedTensorType whole) {
    for (int64_t dim = 0; dim < whole.getRank(); ++dim)
      if (whole.getDimSize(dim) != 1 || dim == collective.dim)
        dims.push_back({dim, whole.getDimSize(dim), dim == collective.dim});
  }

  /// A key that a gather and the scatter of its gradient share.
  std::string getKey(ArrayRef<AxisRef> axes) const {
    std::string key;
    llvm::raw_string_ostream os(key);
    for (const AxisRef &axis : axes)
      os << axis.name << ":" << axis.preSize << ":" << axis.size << ",";
    for (const Dim &dim : dims)
      os << (dim.isPartitioned ? "|" : "x") << dim.size;
    return key;
  }

  /// Permutes the dims from the operand of `op` to its result or back; false if
  /// `op` is not a cast, a transpose or the like.
  bool
  follow(Operation *op,
         llvm::function_ref<std::optional<int64_t>(Operation *, int64_t)> map) {
    // Without dims, any op would be a cast, also one without results.
    if (dims.empty())
      return false;
    SmallVector<Dim> moved(dims);
    for (Dim &dim : moved) {
      std::optional<int64_t> index = map(op, dim.index);
      if (!index)
        return false;
      dim.index = *index;
    }
    llvm::sort(moved,
               [](const Dim &a, const Dim &b) { return a.index < b.index; });
    dims = std::move(moved);
    return true;
  }

private:
  struct Dim {
    int64_t index;
    int64_t size;
    bool isPartitioned;
  };
  SmallVector<Dim> dims;
};
} // namespace

SmallVector<std::string> zpp::getMirrorKeys(const StepCollective &collective) {
  bool isGather = collective.kind == CollectiveKind::AllGather;
  Value whole =
      isGather ? collective.op->getResult(0) : collective.op->getOperand(0);
  WholeTensor tensor(collective, cast<RankedTensorType>(whole.getType()));
  SmallVector<std::string> keys{tensor.getKey(collective.axes)};
  if (isGather) {
    Operation *op = collective.op->getOperand(0).getDefiningOp();
    while (op && tensor.follow(op, getOperandDim))
      op = op->getOperand(0).getDefiningOp();
  } else {
    Value value = collective.op->getResult(0);
    while (value.hasOneUse() &&
           tensor.follow(*value.user_begin(), getResultDim))
      value = value.user_begin()->getResult(0);
  }
  if (std::string key = tensor.getKey(collective.axes); key != keys[0])
    keys.push_back(key);
  return keys;
}

/// Returns the argument of the step of which `sum` is proven to be a gradient;
/// null if that is none, or one of several, or if its weight is gathered in
/// another shape: the product with it is not the partner, then.
BlockArgument RoleFinder::getArgument(const StepCollective &sum,
                                      const GradientProof &proof) {
  llvm::SmallDenseSet<Value> inputs;
  for (Value weight : proof.direct) {
    Operation *op = weight.getDefiningOp();
    bool isGathered = op && getGuestCollective(op);
    if (isGathered && sum.kind == CollectiveKind::ReduceScatter) {
      auto keys = mirrorKeys.find(op);
      if (keys == mirrorKeys.end() ||
          llvm::none_of(getKeys(sum), [&](int64_t key) {
            return llvm::is_contained(keys->second, key);
          }))
        return {};
    }
    Provenance from = provenances.get(isGathered ? op->getOperand(0) : weight);
    if (!from.isStepInput)
      return {};
    inputs.insert(from.root);
  }
  return inputs.size() == 1 ? cast<BlockArgument>(*inputs.begin())
                            : BlockArgument();
}
