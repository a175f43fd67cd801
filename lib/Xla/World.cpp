//===- World.cpp - Worlds and bundles of this process ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "World.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <thread>

using namespace zpp;
using namespace zpp::xla;

World::~World() {
  // Destroy all at once, because one may wait for the others.
  std::vector<std::thread> threads;
  for (auto &[ordinal, rank] : ranks)
    threads.emplace_back([&rank = rank] { rank.reset(); });
  for (std::thread &thread : threads)
    thread.join();
  zpp_rt_world_destroy(handle);
  for (void *library : libraries)
    dlclose(library);
}

Status Bundle::find(std::string_view name, HostFunction &function) {
  {
    std::shared_lock<std::shared_mutex> lock(mutex);
    auto found = functions.find(name);
    if (found != functions.end()) {
      function = found->second;
      return {};
    }
  }
  std::string symbol(name);
  function = reinterpret_cast<HostFunction>(dlsym(library, symbol.c_str()));
  if (!function)
    return rt::invalid(
        rt::expected("a host function of the bundle", rt::quote(symbol)));
  std::unique_lock<std::shared_mutex> lock(mutex);
  functions.emplace(std::move(symbol), function);
  return {};
}

bool Bundle::isFirst(const std::string &text) {
  std::unique_lock<std::shared_mutex> lock(mutex);
  return said.insert(text).second;
}

Registry &Registry::get() {
  static auto *registry = new Registry;
  return *registry;
}

/// Host libraries call libzpp_rt without naming it, because it may be in
/// another place than where they were made. Makes the symbols of the libzpp_rt
/// that this library is linked to visible to all libraries.
static Status exportRuntime() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void *>(&zpp_rt_world_create), &info) == 0 ||
      !dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL))
    return {ZPP_RT_SYSTEM_ERROR, rt::expected("libzpp_rt", "no such library")};
  return {};
}

static Status readFile(const std::string &path, std::string &content) {
  std::ifstream file(path, std::ios::binary);
  content.assign(std::istreambuf_iterator<char>(file), {});
  if (!file)
    return {ZPP_RT_SYSTEM_ERROR,
            "cannot read " + rt::quote(path) + ": " + std::strerror(errno)};
  return {};
}

Status Registry::load(const std::shared_ptr<World> &world,
                      const std::string &id, const std::string &path) {
  std::string content;
  ZPP_RT_TRY(readFile(path, content));
  std::unique_lock<std::shared_mutex> lock(mutex);
  auto found = bundles.find(id);
  if (found != bundles.end()) {
    if (found->second->world != world)
      return rt::invalid(rt::expected("a bundle of this world",
                                      rt::quote(id) + " of another one"));
    // A program says its bundle's id only.
    if (found->second->content != content)
      return rt::invalid(rt::expected("the library that bundle " +
                                          rt::quote(id) + " was loaded with",
                                      "another one in " + rt::quote(path)));
    return {};
  }
  ZPP_RT_TRY(exportRuntime());
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return {ZPP_RT_SYSTEM_ERROR, dlerror()};
  world->libraries.push_back(library);
  bundles.emplace(id,
                  std::make_shared<Bundle>(world, library, std::move(content)));
  return {};
}

std::shared_ptr<Bundle> Registry::find(std::string_view id) {
  std::shared_lock<std::shared_mutex> lock(mutex);
  auto found = bundles.find(id);
  return found == bundles.end() ? nullptr : found->second;
}

void Registry::remove(const World &world) {
  std::unique_lock<std::shared_mutex> lock(mutex);
  for (auto it = bundles.begin(); it != bundles.end();)
    it = it->second->world.get() == &world ? bundles.erase(it) : std::next(it);
}
