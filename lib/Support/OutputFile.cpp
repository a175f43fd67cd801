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
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zpp;

static std::string getCause() { return std::generic_category().message(errno); }

/// False, with errno, where not all of `parts` could be written. Closes `file`.
static bool writeAndClose(int file,
                          const std::vector<std::string_view> &parts) {
  bool isWritten = true;
  for (std::string_view part : parts)
    while (isWritten && !part.empty()) {
      ssize_t count = write(file, part.data(), part.size());
      if (count > 0)
        part.remove_prefix(count);
      else
        isWritten = count < 0 && errno == EINTR;
    }
  int cause = errno;
  // Some file systems only now notice that they are full.
  if (close(file) != 0 && isWritten)
    return false;
  errno = cause;
  return isWritten;
}

/// The file that `path` leads to through symbolic links, or `path` if there is
/// none.
static std::string followLinks(const std::string &path) {
  char *target = realpath(path.c_str(), nullptr);
  std::string result = target ? target : path;
  free(target);
  return result;
}

std::string zpp::writeFile(const std::string &path,
                           const std::vector<std::string_view> &parts) {
  struct stat status{};
  bool exists = stat(path.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0 || !writeAndClose(file, parts))
      return getCause();
    return "";
  }
  // Only who may write the file may replace it.
  if (exists && access(path.c_str(), W_OK) != 0)
    return getCause();

  std::string target = followLinks(path);
  static std::atomic<unsigned> count{0};
  std::string temporary = target + ".tmp-" + std::to_string(getpid()) + "-" +
                          std::to_string(count++);
  int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                  exists ? status.st_mode & 0777 : 0666);
  if (file < 0)
    return getCause();
  if (writeAndClose(file, parts) &&
      rename(temporary.c_str(), target.c_str()) == 0)
    return "";
  std::string cause = getCause();
  unlink(temporary.c_str());
  return cause;
}
