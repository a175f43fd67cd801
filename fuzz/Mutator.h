//===- Mutator.h - Random changes to IR -------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_FUZZ_MUTATOR_H
#define ZPP_FUZZ_MUTATOR_H

#include "mlir/IR/BuiltinOps.h"

#include <random>

namespace zpp::fuzz {

/// The same numbers for one seed everywhere, unlike the distributions of the
/// standard library.
class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}

  /// Below `limit`, which is at least 1.
  size_t below(size_t limit) { return engine() % limit; }
  bool oneIn(size_t count) { return below(count) == 0; }
  template <typename Range> auto &pick(Range &&range) {
    return range[below(std::size(range))];
  }

private:
  std::mt19937_64 engine;
};

/// Changes `module` in one to a few places: attributes, types, operands, ops
/// and symbols. The result need not verify.
void mutate(mlir::ModuleOp module, Random &random);

/// `text` with one number, name or element type changed, if it has any.
std::string mutateText(llvm::StringRef text, Random &random);

} // namespace zpp::fuzz

#endif // ZPP_FUZZ_MUTATOR_H
