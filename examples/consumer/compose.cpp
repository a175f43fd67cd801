//===- compose.cpp - A compiler that composes zpp's parts itself ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Instead of zpp's pipeline, this compiler adds the passes that it wants,
// checks that the program is decomposed, and converts zero ops together with an
// op of its own. `mine.weight` stands for such an op.
//
//===----------------------------------------------------------------------===//

#include "zpp/Conversion/Patterns.h"
#include "zpp/InitAll.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/DialectConversion.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

static constexpr llvm::StringLiteral kStep = R"mlir(
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!slice = !zero.shard<256x64xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xf32, dim 0 = (2, 4) on #mesh>
func.func public @main() -> tensor<256x64xf32> {
  %w = "mine.weight"() : () -> tensor<32x64xf32>
  %0 = zero.from_local %w : tensor<32x64xf32> to !slice
  %1 = zero.all_gather %0 along ["node", "gpu"] : !slice to !whole
  %2 = zero.to_local %1 : !whole to tensor<256x64xf32>
  return %2 : tensor<256x64xf32>
}
)mlir";

namespace {
/// mine.weight to a constant.
struct LowerWeight : public ConversionPattern {
  explicit LowerWeight(MLIRContext *context)
      : ConversionPattern("mine.weight", /*benefit=*/1, context) {}

  LogicalResult
  matchAndRewrite(Operation *op, ArrayRef<Value>,
                  ConversionPatternRewriter &rewriter) const override {
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    OperationState state(op->getLoc(), "stablehlo.constant");
    state.addTypes(type);
    state.addAttribute("value", DenseElementsAttr::get(type, 0.5f));
    rewriter.replaceOp(op, rewriter.create(state));
    return success();
  }
};

struct LowerAll : public PassWrapper<LowerAll, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerAll)

  void runOnOperation() override {
    ConversionTarget target(getContext());
    target.addIllegalDialect<zpp::zero::ZeroDialect>();
    target.markUnknownOpDynamicallyLegal([](Operation *op) {
      return op->getName().getStringRef() != "mine.weight";
    });
    TypeConverter converter;
    zpp::populateZeroToStablehloTypeConversions(converter);
    RewritePatternSet patterns(&getContext());
    zpp::populateZeroToStablehloPatterns(converter, patterns);
    patterns.add<LowerWeight>(&getContext());
    if (failed(applyPartialConversion(getOperation(), target,
                                      std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace

int main() {
  DialectRegistry registry;
  zpp::registerAllDialects(registry);
  zpp::registerGuestDialects(registry);
  MLIRContext context(registry);
  context.allowUnregisteredDialects();
  context.loadAllAvailableDialects();

  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(kStep, &context);
  if (!module)
    return 1;
  PassManager pm(&context);
  pm.addPass(zpp::createQuantizeAllGatherPass());
  pm.addPass(zpp::createDecomposeAllGatherPass());
  pm.addPass(zpp::createFuseQuantizationPass());
  pm.addPass(zpp::createVerifyDecomposedPass());
  pm.addPass(std::make_unique<LowerAll>());
  if (failed(pm.run(*module)))
    return 1;
  module->print(llvm::outs());
  return 0;
}
