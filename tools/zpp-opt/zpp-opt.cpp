//===- zpp-opt.cpp - The compiler as a command ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "zpp/InitAll.h"

#include <vector>

static constexpr const char *kOverview =
    R"(zpp-opt: rewrites the collectives of sharded training as ZeRO++

Reads a training step in the generic form of StableHLO, as JAX prints it with
operation.get_asm(print_generic_op_form=True), and writes one that sends less.

  everything, on 2 nodes of 4 GPUs:
    zpp-opt step.mlir --zeropp="mesh=node:2,gpu:4" -o fast.mlir
  one technique at a time:
    zpp-opt step.mlir --zeropp="mesh=node:2,gpu:4 weights=i8 secondary=none gradients=none"
  what every collective sends, before and after:
    zpp-opt step.mlir --zeropp="mesh=node:2,gpu:4" --zero-report -o fast.mlir

Each pass has a flag of its own (--zero-...). Collectives that are left alone are
named in remarks with the reason; --remarks-filter=.* shows all decisions.
)";

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  zpp::registerAllDialects(registry);
  zpp::registerGuestDialects(registry);
  registry.insert<mlir::arith::ArithDialect, mlir::shard::ShardDialect>();
  zpp::registerAllPasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();

  // Nothing is left alone or guessed silently, unless the user says what to
  // show.
  std::vector<char *> arguments(argv, argv + argc);
  static char missed[] = "--remarks-filter-missed=zero-.*";
  static char guessed[] = "--remarks-filter-analyse=zero-.*";
  // The input is verified, and the output by the pass that writes it; after
  // every pass it is only on request, since that takes longer than the passes.
  static char verify[] = "--verify-each=false";
  bool choosesRemarks = false, choosesVerify = false;
  for (int i = 1; i < argc; ++i) {
    llvm::StringRef argument = llvm::StringRef(argv[i]).ltrim('-');
    choosesRemarks |= argument.starts_with("remark");
    choosesVerify |= argument.starts_with("verify-each");
  }
  if (!choosesRemarks)
    arguments.insert(arguments.begin() + 1, {missed, guessed});
  if (!choosesVerify)
    arguments.insert(arguments.begin() + 1, verify);
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(static_cast<int>(arguments.size()), arguments.data(),
                        kOverview, registry));
}
