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
/// a new file beside it, which then replaces it: at any time, readers find
/// either the old file or the new one. A symbolic link stays a link. A file
/// that is not regular (a device, a pipe) is written directly.
///
/// Returns an empty string, or the cause of a failure as the system names it
/// ("No space left on device"), after which the old file is as it was.
std::string writeFile(const std::string &path,
                      const std::vector<std::string_view> &parts);

} // namespace zpp

#endif // ZPP_SUPPORT_OUTPUTFILE_H
