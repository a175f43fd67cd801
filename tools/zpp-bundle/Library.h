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

/// The target of a library, and the linker.
struct LibraryOptions {
  /// The target triple; empty for that of this machine.
  std::string triple;
  std::string cpu;
  /// The linker; empty for the first one found.
  std::string linker;
};

/// A file on disk while it is used.
struct ObjectFile {
  std::string triple;
  std::string bytes;
};

/// Compiles a module of host functions on buffers, and changes it. Errors in
/// the program are emitted as diagnostics; the returned `Error` only says that
/// there are some.
llvm::Expected<ObjectFile> compileHostFunctions(mlir::ModuleOp host,
                                                const LibraryOptions &options);

/// Writes a file. The error has the path and the cause.
llvm::Error writeContent(llvm::StringRef path, llvm::StringRef content);

/// Links an object file to the shared library `path`. Functions of libzpp_rt
/// stay undefined: the process that loads the library has them. Temporary files
/// are written beside `path`.
llvm::Error linkLibrary(const ObjectFile &object, llvm::StringRef path,
                        const LibraryOptions &options);

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_BUNDLE_LIBRARY_H
