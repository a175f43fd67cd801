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

/// Writes `parts`, one after the other, to the file `path`. They are written to
/// a new file beside it, which then takes its name: whoever looks finds the old
/// file or the new one, whatever happens meanwhile. A symbolic link stays one.
/// What is not a regular file (a device, a pipe) is written to directly.
///
/// Returns an empty string, or the cause of a failure as the system names it
/// ("No space left on device"), after which the old file is as it was.
std::string writeFile(const std::string &path,
                      const std::vector<std::string_view> &parts);

} // namespace zpp

#endif // ZPP_SUPPORT_OUTPUTFILE_H
