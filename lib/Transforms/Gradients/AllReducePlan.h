//===- AllReducePlan.h - How an all-reduce is split -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything here reads the IR and changes nothing.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_GRADIENTS_ALLREDUCEPLAN_H
#define ZPP_LIB_TRANSFORMS_GRADIENTS_ALLREDUCEPLAN_H

#include "ScatterHops.h"
#include "zpp/Support/Decision.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <optional>
#include <variant>

namespace zpp {

/// A scatter that sums what an all-reduce does over other axes: before it
/// (HSDP), or after it, where the order of the two is of no use.
struct ScatterPartner {
  zero::ReduceScatterOp scatter;
  bool isAfter = false;
  /// The ops between the two, in order: casts, transposes, reshapes, and
  /// products with constants. Each has one operand that is no constant.
  llvm::SmallVector<mlir::Operation *> path;
  /// True if `path` has such a product.
  bool isScaled = false;
  /// The dim that is scattered, of what is summed first.
  int64_t dim = 0;
};

/// Returns the scatter that `allReduce` can be done together with, if there is
/// one.
std::optional<ScatterPartner> findPartner(zero::AllReduceOp allReduce);

/// Returns the operand of `op` that is no constant, if `op` multiplies it with
/// one or divides it by one, the same for all elements; null otherwise.
mlir::OpOperand *getScaled(mlir::Operation *op);

/// The exchanges that scatter a tensor, sum it and gather the sum.
struct ReduceExchanges {
  ScatterHops hops;
  /// Whether each hop belongs to the scatter of the partner.
  llvm::SmallVector<bool> isOfScatter;
  /// The axes of each gather, slower tiers first, and their format; null if the
  /// sum is gathered unquantized.
  llvm::SmallVector<mlir::ArrayAttr> gathers;
  zero::QuantAttr reduced;
  /// The elements of the result.
  mlir::Type element;
  /// True if the whole tensor is scattered as one flat dim.
  bool isFlat = false;
  /// True if no chunk would shrink, in any format.
  bool isSmall = false;
};

/// The all-reduce is done alone, on a flat tensor, in `stages` parts, each of
/// which is an all-reduce of its own.
struct SplitAlone {
  ReduceExchanges exchanges;
  int64_t stages = 1;
};

/// The all-reduce and the scatter of its partner are done as one.
struct SplitWithScatter {
  ReduceExchanges exchanges;
  ScatterPartner partner;
};

using AllReducePlan = std::variant<SplitAlone, SplitWithScatter>;

inline const ReduceExchanges &getExchanges(const AllReducePlan &plan) {
  return std::visit(
      [](const auto &way) -> const ReduceExchanges & { return way.exchanges; },
      plan);
}

/// Decides how the all-reduces of a step are split, one after the other.
class AllReducePlanner {
public:
  /// `formats` are those of the hops, `reduced` is that of the gathers, and
  /// `stages` the parts that are asked for, or 0 to choose those that suit the
  /// links. With `splitExact`, what floors keep unquantized is split, too.
  AllReducePlanner(llvm::ArrayRef<zero::QuantAttr> formats,
                   zero::QuantAttr reduced, int64_t stages,
                   bool splitExact = false)
      : formats(formats), reduced(reduced), stages(stages),
        splitExact(splitExact) {}

  /// Decides how `allReduce` is split, unless it is faster as it is on the
  /// links of `model`. Without a model, everything is split.
  Decision<AllReducePlan> decide(zero::AllReduceOp allReduce,
                                 const std::optional<LinkModel> &model);

private:
  SplitAlone planAlone(zero::AllReduceOp allReduce,
                       const std::optional<LinkModel> &model) const;
  std::optional<SplitWithScatter>
  planWithScatter(zero::AllReduceOp allReduce,
                  const ScatterPartner &partner) const;
  void chooseHops(zero::AllReduceOp allReduce, zero::ReduceScatterOp scatter,
                  ReduceExchanges &exchanges) const;
  int64_t chooseStages(const ReduceExchanges &exchanges,
                       const std::optional<LinkModel> &model) const;

  llvm::SmallVector<zero::QuantAttr> formats;
  zero::QuantAttr reduced;
  int64_t stages;
  bool splitExact;
  /// Scatters that are the partner of an earlier all-reduce.
  llvm::SmallPtrSet<mlir::Operation *, 8> taken;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_GRADIENTS_ALLREDUCEPLAN_H
