//===- BufferizableOpInterfaceImpl.cpp - Zero ops on buffers --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Zero/Transforms/BufferizableOpInterfaceImpl.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace zpp::zero;

namespace {
/// A decomposed op overwrites all of its destination and nothing else. Input
/// and destination must be different buffers, which is what the analysis
/// assumes of an op that is not elementwise.
template <typename OpT>
struct LocalOpInterface
    : public DstBufferizableOpInterfaceExternalModel<LocalOpInterface<OpT>,
                                                     OpT> {
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    return !cast<DestinationStyleOpInterface>(op).isDpsInit(&operand);
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    if (op->getNumResults() == 0)
      return success();
    SmallVector<Value> buffers;
    for (Value operand : op->getOperands()) {
      FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
      if (failed(buffer))
        return failure();
      buffers.push_back(*buffer);
    }
    clone(rewriter, op, /*newResultTypes=*/TypeRange(), buffers);
    OpOperand &init =
        *cast<DestinationStyleOpInterface>(op).getDpsInitOperand(0);
    replaceOpWithBufferizedValues(rewriter, op,
                                  buffers[init.getOperandNumber()]);
    return success();
  }
};

template <typename... OpTs> void attachInterfaces(MLIRContext &context) {
  (OpTs::template attachInterface<LocalOpInterface<OpTs>>(context), ...);
}
} // namespace

void zpp::zero::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, ZeroDialect *) {
    attachInterfaces<PackSlicesOp, UnpackSlicesOp, QuantizeOp, DequantizeOp,
                     QuantizeDifferenceOp, DequantizeAddOp, ReduceOp,
                     DequantizeReduceOp, DequantizeReduceQuantizeOp, AllToAllOp,
                     AllGatherChunksOp>(*context);
    // The dialects of the ops that bufferization creates.
    context->loadDialect<BufferizationDialect, memref::MemRefDialect>();
  });
}
