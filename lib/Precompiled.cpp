//===- Precompiled.cpp - MLIR's headers, compiled once --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Three quarters of the time that a file of the compiler takes to compile are
// MLIR's headers. The libraries share a precompiled one
// (cmake/ZppLibrary.cmake); every file still includes what it uses.
//
//===----------------------------------------------------------------------===//
