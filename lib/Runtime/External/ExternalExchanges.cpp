//===- ExternalExchanges.cpp - Exchanges of the caller --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExternalExchanges.h"

#include <algorithm>

using namespace zpp;
using namespace zpp::rt;

const ExternalExchanges::Group &
ExternalExchanges::getGroup(const std::vector<AxisRef> &axes) {
  auto [it, isNew] = groups.try_emplace(axes);
  if (!isNew)
    return it->second;
  for (std::vector<int64_t> &members : world.mesh.getGroups(axes)) {
    auto self = std::find(members.begin(), members.end(), rank);
    if (self == members.end())
      continue;
    it->second.position = self - members.begin();
    it->second.members = std::move(members);
    break;
  }
  return it->second;
}

Status ExternalExchanges::run(const ExchangeOperation &operation, void *stream,
                              const void *input, void *output) {
  // Another rank of this process.
  if (world.failure.has())
    return world.failure.get();
  const Group &group = getGroup(operation.axes);
  zpp_rt_exchange exchange{};
  exchange.struct_size = sizeof(exchange);
  exchange.name = operation.name->title.c_str();
  exchange.rank = rank;
  exchange.members = group.members.data();
  exchange.num_members = group.members.size();
  exchange.position = group.position;
  exchange.chunk_bytes = operation.chunkBytes;
  exchange.stream = stream;
  auto function = operation.isGather ? world.exchanges->all_gather
                                     : world.exchanges->all_to_all;
  char message[1024] = "";
  zpp_rt_status code = function(world.exchanges->context, &exchange, input,
                                output, message, sizeof(message));
  if (code == ZPP_RT_OK)
    return {};
  message[sizeof(message) - 1] = '\0';
  std::string text = message[0] ? message : "the caller's exchange failed";
  if (code < ZPP_RT_OK || code > ZPP_RT_SYSTEM_ERROR)
    return {ZPP_RT_SYSTEM_ERROR,
            text + " (" + expected("a zpp_rt_status", code) + ")"};
  return {code, text};
}
