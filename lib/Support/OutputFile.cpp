//===- OutputFile.cpp - Files that are written whole or not ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/OutputFile.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zpp;

// The runtime needs this without LLVM. llvm::writeToOutput would also replace
// links and devices, and end the program where the disk is full.

static constexpr size_t kBufferBytes = 1 << 20;

/// The file that `path` leads to through symbolic links, or `path` if there is
/// none.
static std::string followLinks(const std::string &path) {
  char *target = realpath(path.c_str(), nullptr);
  std::string result = target ? target : path;
  free(target);
  return result;
}

static std::string getFolder(const std::string &path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos)
    return ".";
  return path.substr(0, slash == 0 ? 1 : slash);
}

/// A name beside `target` that no other file of this process gets.
static std::string getTemporaryName(const std::string &target) {
  static std::atomic<unsigned> count{0};
  return target + ".tmp-" + std::to_string(getpid()) + "-" +
         std::to_string(count++);
}

OutputFile::~OutputFile() {
  if (file >= 0)
    ::close(file);
  if (!temporary.empty())
    unlink(temporary.c_str());
}

const std::string &OutputFile::fail() {
  if (cause.empty())
    cause = std::generic_category().message(errno);
  return cause;
}

/// Opens a file without a name where the system has those: whatever ends the
/// process leaves nothing of it.
bool OutputFile::openTemporary(bool exists, unsigned mode) {
#ifdef O_TMPFILE
  file =
      ::open(getFolder(target).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  // Whether it can be named later; containers may lack /proc.
  if (file >= 0 &&
      access(("/proc/self/fd/" + std::to_string(file)).c_str(), F_OK) != 0)
    ::close(std::exchange(file, -1));
#endif
  if (file < 0) {
    temporary = getTemporaryName(target);
    file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                  mode);
  }
  if (file < 0) {
    temporary.clear();
    return false;
  }
  // Who creates a file has no say in its mode, who replaces one keeps it.
  if (exists)
    (void)fchmod(file, mode);
  return true;
}

std::string OutputFile::open() {
  struct stat status{};
  bool exists = stat(path.c_str(), &status) == 0;
  // /dev/stdout may be a file, in which others may have written before.
  bool isStream = path.rfind("/dev/", 0) == 0 || path.rfind("/proc/", 0) == 0;
  isDirect = exists && (isStream || !S_ISREG(status.st_mode));
  if (isDirect) {
    file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    return file < 0 ? fail() : "";
  }
  // Only who may write the file may replace it.
  if (exists && access(path.c_str(), W_OK) != 0)
    return fail();
  target = followLinks(path);
  return openTemporary(exists, exists ? status.st_mode & 0777 : 0666) ? ""
                                                                      : fail();
}

bool OutputFile::writeAll(std::string_view part) {
  while (!part.empty()) {
    ssize_t count = ::write(file, part.data(), part.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return false;
    part.remove_prefix(count);
  }
  return true;
}

bool OutputFile::flush() {
  bool isWritten = writeAll(buffer);
  buffer.clear();
  return isWritten;
}

std::string OutputFile::write(std::string_view part) {
  if (!cause.empty())
    return cause;
  if (buffer.size() + part.size() >= kBufferBytes && !flush())
    return fail();
  if (part.size() >= kBufferBytes)
    return writeAll(part) ? "" : fail();
  buffer += part;
  return "";
}

bool OutputFile::giveName() {
  if (temporary.empty()) {
    std::string name = getTemporaryName(target);
    if (linkat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(file)).c_str(),
               AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return false;
    temporary = name;
  }
  // Some file systems only now notice that they are full.
  if (::close(std::exchange(file, -1)) != 0)
    return false;
  if (rename(temporary.c_str(), target.c_str()) != 0)
    return false;
  temporary.clear();
  return true;
}

std::string OutputFile::commit() {
  if (!cause.empty())
    return cause;
  if (!flush())
    return fail();
  if (isDirect)
    return ::close(std::exchange(file, -1)) == 0 ? "" : fail();
  // Full disks of some file systems show here, and a machine that fails loses
  // neither the old file nor the new one.
  if (fsync(file) != 0 || !giveName())
    return fail();
  return "";
}

std::string zpp::writeFile(const std::string &path,
                           const std::vector<std::string_view> &parts) {
  OutputFile file(path);
  std::string cause = file.open();
  for (size_t i = 0; i < parts.size() && cause.empty(); ++i)
    cause = file.write(parts[i]);
  return cause.empty() ? file.commit() : cause;
}
