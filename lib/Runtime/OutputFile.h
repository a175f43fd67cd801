//===- OutputFile.h - Files that are whole or not there ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_OUTPUTFILE_H
#define ZPP_LIB_RUNTIME_OUTPUTFILE_H

#include "Status.h"

#include <string>
#include <string_view>

namespace zpp::rt {

/// A file that is written under another name beside its own, and renamed when
/// it is complete. So a full disk or a signal leaves the old file, or none, but
/// never a part of the new one. Devices and pipes are written directly.
class OutputFile {
public:
  explicit OutputFile(std::string path) : path(std::move(path)) {}
  /// Removes what was written, unless commit() succeeded.
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  Status open();
  Status write(std::string_view text);
  /// Writes what is left, and gives the file its name.
  Status commit();

private:
  Status fail(int error) const;
  Status flush();

  const std::string path;
  /// The file that `path` leads to through symbolic links, and the file that is
  /// written.
  std::string target;
  std::string temporary;
  std::string buffer;
  int file = -1;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_OUTPUTFILE_H
