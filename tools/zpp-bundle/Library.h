//===- Library.h - Host functions as a shared library -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_BUNDLE_LIBRARY_H
#define ZPP_TOOLS_ZPP_BUNDLE_LIBRARY_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

#include <string>

namespace zpp {

/// What a library is made for, and with.
struct LibraryOptions {
  /// Empty: this machine's.
  std::string triple;
  std::string cpu;
  /// A program; empty: the first one found.
  std::string linker;
};

/// A file on disk while it is used.
struct ObjectFile {
  std::string triple;
  std::string bytes;
};

/// Compiles a module of host functions on buffers, which it changes. Errors of
/// the program are diagnostics at their places, and `Error` says only that
/// there are some.
llvm::Expected<ObjectFile> compileHostFunctions(mlir::ModuleOp host,
                                                const LibraryOptions &options);

/// Writes a file; says which one, and why it cannot be written.
llvm::Error writeFile(llvm::StringRef path, llvm::StringRef content);

/// Links an object file to the shared library `path`. Functions of libzpp_rt
/// stay undefined: the process that loads the library has them. Files that are
/// needed meanwhile are beside it.
llvm::Error linkLibrary(const ObjectFile &object, llvm::StringRef path,
                        const LibraryOptions &options);

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_BUNDLE_LIBRARY_H
