//===- NcclLibrary.cpp - NCCL, loaded when it is needed -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NcclLibrary.h"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <vector>

using namespace zpp::rt;

namespace {

constexpr const char *soname = "libnccl.so.2";

/// The oldest supported version: it has the ncclCommSplit and ncclConfig_t that
/// the back end uses.
constexpr int minimumVersion = NCCL_VERSION(2, 19, 0);

std::string formatVersion(int version) {
  return std::to_string(version / 10000) + '.' +
         std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

/// Opens the first library that exists. `message` says what was tried.
void *open(std::string &message) {
  const char *named = std::getenv("ZPP_NCCL_LIBRARY");
  bool isNamed = named && *named;
  // If the process has loaded one of this soname, the loader returns that.
  std::vector<std::string> files = {isNamed ? named : soname};
#ifdef ZPP_RT_NCCL_LIBRARY
  if (!isNamed)
    files.push_back(ZPP_RT_NCCL_LIBRARY);
#endif

  for (const std::string &file : files) {
    if (void *handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL))
      return handle;
    // The loader's text begins with the name of the file.
    const char *error = dlerror();
    message +=
        (message.empty() ? "" : "; ") + (error ? std::string(error) : file);
  }
  message = expected(std::string("NCCL (") + soname + ")", "none: " + message);
  if (!isNamed)
    message +=
        "; ZPP_NCCL_LIBRARY=/path/to/" + std::string(soname) + " names it";
  return nullptr;
}

/// Fills `library` from `handle`, or says what is wrong with it.
std::string resolve(void *handle, NcclLibrary &library) {
  std::string missing;
  auto find = [&](const char *name) {
    void *symbol = dlsym(handle, name);
    if (!symbol)
      missing += (missing.empty() ? "" : ", ") + std::string(name);
    return symbol;
  };
#define ZPP_NCCL_RESOLVE(NAME)                                                 \
  library.NAME = reinterpret_cast<decltype(library.NAME)>(find(#NAME));
  ZPP_NCCL_FUNCTIONS(ZPP_NCCL_RESOLVE)
#undef ZPP_NCCL_RESOLVE

  Dl_info info;
  if (library.ncclGetVersion &&
      dladdr(reinterpret_cast<void *>(library.ncclGetVersion), &info) &&
      info.dli_fname)
    library.path = info.dli_fname;
  else
    library.path = soname;
  // Check the version first: it may be the reason why functions are missing.
  if (library.ncclGetVersion) {
    if (library.ncclGetVersion(&library.version) != ncclSuccess)
      return "ncclGetVersion failed in " + quote(library.path);
    if (library.version < minimumVersion)
      return expected("NCCL " + formatVersion(minimumVersion) + " or newer",
                      formatVersion(library.version) + " in " +
                          quote(library.path));
  }
  if (!missing.empty())
    return "expected all functions of NCCL in " + quote(library.path) +
           ", but got none named " + missing;
  return {};
}

} // namespace

Status zpp::rt::loadNccl(const NcclLibrary *&library) {
  static std::mutex mutex;
  static const NcclLibrary *loaded = nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  if (!loaded) {
    std::string message;
    void *handle = open(message);
    if (!handle)
      return {ZPP_RT_SYSTEM_ERROR, message};
    // Never unloaded, because NCCL has threads.
    static NcclLibrary table;
    table = {};
    message = resolve(handle, table);
    if (!message.empty()) {
      dlclose(handle);
      return {ZPP_RT_SYSTEM_ERROR, message};
    }
    loaded = &table;
  }
  library = loaded;
  return {};
}
