//===- Passes.h - Passes on the zero dialect --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_PASSES_H
#define ZPP_TRANSFORMS_PASSES_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/Pass.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Transforms/Words.h"

namespace zpp {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

#endif // ZPP_TRANSFORMS_PASSES_H
