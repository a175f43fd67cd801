//===- SymbolicPlacement.h - Which rank ends with which slice ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Symbolic execution of collectives. Tensors hold formal sums of source
// elements instead of numbers, so one run shows, for every element of every
// rank, which elements of which ranks went into it, and how often. This proves
// that hierarchical collectives with slice reordering and pipeline stages
// (ZeRO++ sections 3.3.2, 3.3.3 and 4.1.2) do not misplace a slice. An
// interpreter of decomposed programs computes with these operations.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_SUPPORT_SYMBOLICPLACEMENT_H
#define ZPP_UNITTESTS_SUPPORT_SYMBOLICPLACEMENT_H

#include "zpp/Support/Placement.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zpp {

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// A formal sum of source elements. The empty sum is zero, as in padding. No
/// element occurs 0 times. Equal sums are kept once, since tensors have each of
/// them many times; a value is the number of its sum.
class SymbolicValue {
public:
  /// Element `element` of the tensor that `rank` started with, `count` times.
  struct Term {
    int64_t rank;
    int64_t element;
    int64_t count;
  };

  SymbolicValue() = default;
  static SymbolicValue ofSource(int64_t rank, int64_t element);

  /// Ordered by rank, then by element; each pair of these occurs once.
  const std::vector<Term> &getTerms() const;
  SymbolicValue &operator+=(const SymbolicValue &other);
  SymbolicValue &operator-=(const SymbolicValue &other);
  /// "0", or "r0[5] + 2*r1[5]" for element 5 once of rank 0, twice of rank 1.
  std::string str() const;

  bool operator==(const SymbolicValue &other) const {
    return number == other.number;
  }
  bool operator!=(const SymbolicValue &other) const {
    return number != other.number;
  }

private:
  uint32_t number = 0;
};
bool operator==(const SymbolicValue::Term &a, const SymbolicValue::Term &b);

/// The elements of a tensor or buffer in row-major order.
using SymbolicTensor = std::vector<SymbolicValue>;

/// Returns the tensor that `rank` starts with: its elements 0, 1, ...
SymbolicTensor makeSymbolicSource(int64_t rank, int64_t elements);

//===----------------------------------------------------------------------===//
// Operations of one rank
//===----------------------------------------------------------------------===//

/// The chunks, one after the other, that `map` takes from the tensor
/// [outer, extent, inner]. Padding is zero.
SymbolicTensor packChunks(const SymbolicTensor &tensor, const SliceMap &map);

/// The inverse: writes `chunks` to the places in `tensor` from which `map`
/// takes them. Padding is dropped. Elements of other stages do not change.
void unpackChunks(const SymbolicTensor &chunks, const SliceMap &map,
                  SymbolicTensor &tensor);

/// Several tensors in one buffer of `rows` rows. Each row consists of the rows
/// of all `tensors`, one after the other.
SymbolicTensor joinRows(const std::vector<SymbolicTensor> &tensors,
                        int64_t rows);

/// The inverse: the tensors, whose rows have `rowElements` elements each.
std::vector<SymbolicTensor> splitRows(const SymbolicTensor &buffer,
                                      int64_t rows,
                                      const std::vector<int64_t> &rowElements);

/// The element-wise sum of the `count` equal parts of `chunks`.
SymbolicTensor reduceChunks(const SymbolicTensor &chunks, int64_t count);

//===----------------------------------------------------------------------===//
// Operations of all ranks
//===----------------------------------------------------------------------===//

/// In every group along `refs`, part p of the result of the group's member m is
/// part m of the operand of member p. Operands are indexed by device.
std::vector<SymbolicTensor>
symbolicAllToAll(const Mesh &mesh, const std::vector<AxisRef> &refs,
                 const std::vector<SymbolicTensor> &operands);

/// In every group along `refs`, each member's result is the operands of all
/// members, one after the other.
std::vector<SymbolicTensor>
symbolicAllGather(const Mesh &mesh, const std::vector<AxisRef> &refs,
                  const std::vector<SymbolicTensor> &operands);

//===----------------------------------------------------------------------===//
// Hierarchical collectives
//===----------------------------------------------------------------------===//

/// Returns the error of `plan` on `mesh`, or an empty string.
std::string verifyPlan(const Mesh &mesh, const HopPlan &plan);

/// Maps the part of stage `stage` into a device's slice
/// [outer, unit, inner].
SliceMap getPartMap(const HopPlan &plan, int64_t stage);

/// The slice [outer, unit, inner] of every device after the hierarchical
/// reduce-scatter of `operands`, which are [outer, extent, inner].
std::vector<SymbolicTensor>
simulateReduceScatter(const Mesh &mesh, const HopPlan &plan,
                      const std::vector<SymbolicTensor> &operands);

/// The tensor [outer, extent, inner] of every device after the hierarchical
/// all-gather of `slices`, which are [outer, unit, inner].
std::vector<SymbolicTensor>
simulateAllGather(const Mesh &mesh, const HopPlan &plan,
                  const std::vector<SymbolicTensor> &slices);

/// The same for several tensors that travel together, in one buffer per hop and
/// stage; `plans` agree in hops and stages. Indexed by plan, then by device.
std::vector<std::vector<SymbolicTensor>> simulateReduceScatters(
    const Mesh &mesh, const std::vector<HopPlan> &plans,
    const std::vector<std::vector<SymbolicTensor>> &operands);

/// The same for all-gathers, with one stage. Between the hops there is one row
/// per unit, and rows are put in order for all tensors at once.
std::vector<std::vector<SymbolicTensor>>
simulateAllGathers(const Mesh &mesh, const std::vector<HopPlan> &plans,
                   const std::vector<std::vector<SymbolicTensor>> &slices);

/// Returns the first difference between `slices` and a correct reduce-scatter,
/// or an empty string. Device d must have started with
/// makeSymbolicSource(d, outer * extent * inner). Correct means that every
/// device holds exactly its own slice of the dim, with each element counted
/// once from every rank of its group and from no other, and with zeros as
/// padding.
std::string verifyReduceScatter(const Mesh &mesh, const HopPlan &plan,
                                const std::vector<SymbolicTensor> &slices);

/// Returns the first difference between `tensors` and a correct all-gather, or
/// an empty string. Device d must have started with makeSymbolicSource(d, outer
/// * unit * inner). Correct means that every device holds the whole tensor,
/// with each element from the rank of its group that owns it.
std::string verifyAllGather(const Mesh &mesh, const HopPlan &plan,
                            const std::vector<SymbolicTensor> &tensors);

} // namespace zpp

#endif // ZPP_UNITTESTS_SUPPORT_SYMBOLICPLACEMENT_H
