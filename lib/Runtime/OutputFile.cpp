//===- OutputFile.cpp - Files that are whole or not there -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OutputFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

using namespace zpp::rt;

static constexpr size_t kBufferBytes = 1 << 20;

OutputFile::~OutputFile() {
  if (file >= 0)
    ::close(file);
  if (!temporary.empty())
    ::unlink(temporary.c_str());
}

Status OutputFile::fail(int error) const {
  return {ZPP_RT_SYSTEM_ERROR,
          "cannot write " + quote(path) + ": " + std::strerror(error)};
}

Status OutputFile::open() {
  std::error_code ignored;
  auto status = std::filesystem::status(path, ignored);
  bool isNew = !std::filesystem::exists(status);
  if (!isNew && !std::filesystem::is_regular_file(status)) {
    file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    return file >= 0 ? Status() : fail(errno);
  }
  // The file at the end of symbolic links is replaced, not the first link.
  auto resolved = std::filesystem::canonical(path, ignored);
  target = isNew || resolved.empty() ? path : resolved.string();
  // A user who may not write the file must not replace it.
  if (!isNew && ::access(target.c_str(), W_OK) != 0)
    return fail(errno);
  temporary = target + ".XXXXXX";
  file = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (file < 0) {
    temporary.clear();
    return fail(errno);
  }
  // The mode that the file has, or that a new one would have.
  mode_t mask = ::umask(0);
  ::umask(mask);
  struct stat old{};
  bool hasOld = !isNew && ::stat(target.c_str(), &old) == 0;
  ::fchmod(file, hasOld ? old.st_mode & 0777 : 0666 & ~mask);
  return {};
}

Status OutputFile::write(std::string_view text) {
  buffer += text;
  return buffer.size() >= kBufferBytes ? flush() : Status();
}

Status OutputFile::flush() {
  std::string_view rest = buffer;
  while (!rest.empty()) {
    ssize_t size = ::write(file, rest.data(), rest.size());
    if (size < 0 && errno == EINTR)
      continue;
    if (size < 0)
      return fail(errno);
    rest.remove_prefix(size);
  }
  buffer.clear();
  return {};
}

Status OutputFile::commit() {
  if (Status status = flush(); !status.ok())
    return status;
  // Some file systems report a full disk only now.
  if (!temporary.empty() && ::fsync(file) != 0)
    return fail(errno);
  if (::close(std::exchange(file, -1)) != 0)
    return fail(errno);
  if (temporary.empty())
    return {};
  if (::rename(temporary.c_str(), target.c_str()) != 0)
    return fail(errno);
  temporary.clear();
  return {};
}
