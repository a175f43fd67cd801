//===- OutputFile.h - Files that are written whole or not -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_OUTPUTFILE_H
#define ZPP_SUPPORT_OUTPUTFILE_H

#include <string>
#include <string_view>
#include <vector>

namespace zpp {

/// A file that is written part by part. It gets its name when it is complete:
/// at any time, readers find either the old file or the new one. A symbolic
/// link stays a link. A file that is not regular (a device, a pipe) is written
/// directly.
///
/// Functions return an empty string, or the cause of a failure as the system
/// names it ("No space left on device"). After one, the old file is as it was,
/// and further calls do nothing but return the cause again.
class OutputFile {
public:
  explicit OutputFile(std::string path) : path(std::move(path)) {}
  /// Removes what was written, unless commit() has succeeded.
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  /// The first of all calls.
  std::string open();
  std::string write(std::string_view part);
  /// Writes what is left, and gives the file its name.
  std::string commit();

private:
  bool openTemporary(bool exists, unsigned mode);
  bool flush();
  bool writeAll(std::string_view part);
  bool giveName();
  /// The cause of the first failure, from errno.
  const std::string &fail();

  const std::string path;
  /// The file that `path` leads to through symbolic links.
  std::string target;
  /// The name that the new file has meanwhile; empty where it has none yet.
  std::string temporary;
  std::string buffer, cause;
  int file = -1;
  bool isDirect = false;
};

/// Writes `parts`, one after the other, to the file `path`, as OutputFile does.
/// Returns an empty string or the cause of the failure.
std::string writeFile(const std::string &path,
                      const std::vector<std::string_view> &parts);

} // namespace zpp

#endif // ZPP_SUPPORT_OUTPUTFILE_H
