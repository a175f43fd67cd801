//===- World.h - Worlds and bundles of this process -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_XLA_WORLD_H
#define ZPP_LIB_XLA_WORLD_H

#include "Rank.h"

#include <map>
#include <memory>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>

namespace zpp::xla {

/// A runtime world with the ranks of this process.
class World {
public:
  /// Takes ownership of `handle`.
  explicit World(zpp_rt_world *handle) : handle(handle) {}
  ~World();
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  zpp_rt_world *const handle;
  /// The libraries of the world's bundles, as dlopen returned them. Closed when
  /// no rank can run one of their functions any more.
  std::vector<void *> libraries;
  /// The ranks by the number of their device in this process.
  std::map<int64_t, std::unique_ptr<Rank>> ranks;
};

/// The loaded host library of a rewritten step.
class Bundle {
public:
  /// `library` belongs to the world.
  Bundle(std::shared_ptr<World> world, void *library, std::string content)
      : world(std::move(world)), content(std::move(content)), library(library) {
  }
  Bundle(const Bundle &) = delete;
  Bundle &operator=(const Bundle &) = delete;

  Status find(std::string_view name, HostFunction &function);

  /// True for the first call with this text.
  bool isFirst(const std::string &text);

  const std::shared_ptr<World> world;
  /// The library's file, by which two of the same id are told apart.
  const std::string content;

private:
  void *const library;
  std::shared_mutex mutex;
  std::map<std::string, HostFunction, std::less<>> functions;
  std::set<std::string> said;
};

/// Everything that custom calls can find.
class Registry {
public:
  /// Returns the registry of this process. It is never destroyed, because
  /// threads may run until the process ends.
  static Registry &get();

  Status load(const std::shared_ptr<World> &world, const std::string &id,
              const std::string &path);
  /// Null if there is none.
  std::shared_ptr<Bundle> find(std::string_view id);
  /// Forgets the bundles of a world.
  void remove(const World &world);

private:
  std::shared_mutex mutex;
  std::map<std::string, std::shared_ptr<Bundle>, std::less<>> bundles;
};

} // namespace zpp::xla

#endif // ZPP_LIB_XLA_WORLD_H
