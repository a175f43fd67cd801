//===- StreamPlan.cpp - Which stream an operation goes to -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamPlan.h"

using namespace zpp::rt;

std::vector<std::string> StreamPlan::getNames() const {
  std::vector<std::string> names;
  for (size_t tier = 0; tier < tiers; ++tier)
    names.push_back("kernels after " + axes[tier]);
  names.push_back("kernels");
  for (size_t tier = 0; tier < tiers; ++tier)
    names.push_back(axes[tier]);
  return names;
}

size_t StreamPlan::chooseForKernel(const Situation &situation,
                                   const std::vector<bool> &isFast) const {
  const auto &[operations, producers] = situation.conflicts;
  auto isRecent = [&](const Hazards::Numbers &numbers, size_t stream) {
    return numbers[stream] > situation.lastBeforeEntry[stream];
  };
  // Whether the kernel does not wait for exchanges on slower tiers.
  bool isFree = true;
  for (size_t tier = 0; tier < tiers; ++tier) {
    size_t exchanges = getExchanges(tier), after = getKernelsAfter(tier);
    bool followsExchange = isRecent(producers, exchanges);
    if (followsExchange || isRecent(producers, after)) {
      // After exchanges that it need not wait for, the kernel would come late
      // and delay the next exchange. A batch that waits there is joined.
      int64_t last = situation.last[exchanges];
      if (situation.batch == exchanges)
        --last;
      bool followsLast = producers[exchanges] >= last;
      return followsExchange && isFree && isFast[tier] && followsLast
                 ? exchanges
                 : after;
    }
    isFree &= !isRecent(operations, exchanges) && !isRecent(operations, after);
  }
  return getKernels();
}
