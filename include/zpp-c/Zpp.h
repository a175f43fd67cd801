//===-- zpp-c/Zpp.h - The compiler from C -------------------------*- C -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a program needs beside MLIR's own C API. Once passes are registered,
// pipelines are text:
//
//   mlirParsePassPipeline(
//       mlirPassManagerGetAsOpPassManager(pm),
//       mlirStringRefCreateFromCString(
//           "builtin.module(zeropp{mesh=node:2,gpu:4 weights=i8})"),
//       onError, NULL);
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_C_ZPP_H
#define ZPP_C_ZPP_H

#include "mlir-c/IR.h"
#include "mlir-c/Support.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Registers the zero dialect, the upstream dialects that programs with zero
/// ops use, and the interfaces that passes need on them.
MLIR_CAPI_EXPORTED void zppRegisterAllDialects(MlirDialectRegistry registry);

/// Registers guests for those dialects of StableHLO, Shardy and JAX that
/// `registry` does not have.
MLIR_CAPI_EXPORTED void zppRegisterGuestDialects(MlirDialectRegistry registry);

/// Registers zpp's passes and pipelines, by which a textual pipeline names
/// them. More than one call does nothing more.
MLIR_CAPI_EXPORTED void zppRegisterAllPasses(void);

/// Passes the report on `module` to `callback`, in pieces. `options` are those
/// of zero-report, such as "mesh=node:2,gpu:4 format=json". The module does not
/// change. Errors are diagnostics of the context.
MLIR_CAPI_EXPORTED MlirLogicalResult
zppModuleReport(MlirModule module, MlirStringRef options,
                MlirStringCallback callback, void *userData);

#ifdef __cplusplus
}
#endif

#endif // ZPP_C_ZPP_H
