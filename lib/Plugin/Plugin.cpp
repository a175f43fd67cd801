//===- Plugin.cpp - zpp in tools that know nothing of it ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "zpp/InitAll.h"

using namespace mlir;

#pragma GCC visibility push(default)

/// Has the zero dialect, and guests for those of StableHLO and Shardy that the
/// tool does not have.
extern "C" DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "zpp", ZPP_VERSION,
          [](DialectRegistry *registry) {
            zpp::registerAllDialects(*registry);
            zpp::registerAllExtensions(*registry);
            zpp::registerGuestDialects(*registry);
          }};
}

/// Has zpp's passes and pipelines.
extern "C" PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "zpp", ZPP_VERSION,
          [] { zpp::registerAllPasses(); }};
}

#pragma GCC visibility pop
