//===- BufferizableOpInterfaceImpl.h - Zero ops on buffers ------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_ZERO_TRANSFORMS_BUFFERIZABLEOPINTERFACEIMPL_H
#define ZPP_DIALECT_ZERO_TRANSFORMS_BUFFERIZABLEOPINTERFACEIMPL_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace zpp::zero {

/// Lets one-shot bufferization turn decomposed ops on tensors into the same ops
/// on buffers.
void registerBufferizableOpInterfaceExternalModels(
    mlir::DialectRegistry &registry);

} // namespace zpp::zero

#endif // ZPP_DIALECT_ZERO_TRANSFORMS_BUFFERIZABLEOPINTERFACEIMPL_H
