//===- ExternalExchanges.h - Exchanges of the caller ------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_EXTERNAL_EXTERNALEXCHANGES_H
#define ZPP_LIB_RUNTIME_EXTERNAL_EXTERNALEXCHANGES_H

#include "Operations.h"
#include "World.h"

#include <map>
#include <vector>

namespace zpp::rt {

/// Calls the functions of zpp_rt_exchanges for a rank. Used by its thread.
class ExternalExchanges {
public:
  ExternalExchanges(World &world, int64_t rank) : world(world), rank(rank) {}

  /// Whether the output of an exchange is its input: the group has one member,
  /// or nothing is to be moved.
  bool isCopy(const ExchangeOperation &operation) {
    return operation.chunkBytes == 0 ||
           getGroup(operation.axes).members.size() == 1;
  }

  /// Must not be a copy. `stream` is that of zpp_rt_exchange.
  Status run(const ExchangeOperation &operation, void *stream,
             const void *input, void *output);

private:
  struct Group {
    std::vector<int64_t> members;
    int64_t position;
  };
  const Group &getGroup(const std::vector<AxisRef> &axes);

  World &world;
  const int64_t rank;
  std::map<std::vector<AxisRef>, Group, ByAxes> groups;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_EXTERNAL_EXTERNALEXCHANGES_H
