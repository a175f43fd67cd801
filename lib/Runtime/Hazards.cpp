//===- Hazards.cpp - Order of operations on several streams ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Hazards.h"

#include <algorithm>

using namespace zpp::rt;

static uintptr_t getBegin(const Access &access) {
  return reinterpret_cast<uintptr_t>(access.data);
}
static uintptr_t getEnd(const Access &access) {
  return getBegin(access) + static_cast<uintptr_t>(access.bytes);
}

Hazards::Segments::const_iterator Hazards::findFrom(uintptr_t address) const {
  auto it = segments.upper_bound(address);
  if (it != segments.begin() && std::prev(it)->second.end > address)
    --it;
  return it;
}

Hazards::Numbers Hazards::find(const std::vector<Access> &accesses) const {
  Numbers numbers(last.size(), 0);
  for (const Access &access : accesses) {
    if (access.bytes == 0)
      continue;
    for (auto it = findFrom(getBegin(access));
         it != segments.end() && it->first < getEnd(access); ++it) {
      const Segment &segment = it->second;
      int64_t &write = numbers[segment.writeStream];
      write = std::max(write, segment.write);
      if (!access.isWrite)
        continue;
      for (size_t stream = 0; stream < numbers.size(); ++stream)
        numbers[stream] = std::max(numbers[stream], segment.reads[stream]);
    }
  }
  return numbers;
}

const Hazards::Numbers *Hazards::findPast(size_t stream, int64_t number) const {
  return last[stream] - number < kHistory ? &history[stream][number % kHistory]
                                          : nullptr;
}

Hazards::Numbers Hazards::reduce(Numbers numbers) const {
  for (size_t stream = 0; stream < numbers.size(); ++stream) {
    const Numbers *past =
        numbers[stream] > 0 ? findPast(stream, numbers[stream]) : nullptr;
    for (size_t other = 0; past && other < numbers.size(); ++other)
      if (other != stream && numbers[other] <= (*past)[other])
        numbers[other] = 0;
  }
  return numbers;
}

void Hazards::split(uintptr_t address) {
  auto it = segments.upper_bound(address);
  if (it == segments.begin())
    return;
  --it;
  if (it->first == address || it->second.end <= address)
    return;
  Segment upper = it->second;
  it->second.end = address;
  segments.emplace(address, std::move(upper));
}

void Hazards::record(const Access &access, size_t stream, int64_t number) {
  uintptr_t begin = getBegin(access), end = getEnd(access);
  split(begin);
  split(end);
  auto it = segments.lower_bound(begin);
  if (access.isWrite) {
    while (it != segments.end() && it->first < end)
      it = segments.erase(it);
    segments.emplace(begin,
                     Segment{end, stream, number, Numbers(last.size(), 0)});
    return;
  }
  // Reads what nobody has touched, too: a later write must wait for it.
  for (uintptr_t at = begin; at < end;) {
    if (it == segments.end() || it->first > at) {
      uintptr_t next = it == segments.end() ? end : std::min(it->first, end);
      it = segments
               .emplace(at, Segment{next, stream, 0, Numbers(last.size(), 0)})
               .first;
    }
    it->second.reads[stream] = number;
    at = it->second.end;
    ++it;
  }
}

Hazards::Numbers Hazards::add(size_t stream,
                              const std::vector<Access> &accesses) {
  ++last[stream];
  return extend(stream, accesses);
}

Hazards::Numbers Hazards::extend(size_t stream,
                                 const std::vector<Access> &accesses) {
  Numbers waits = find(accesses);
  Numbers &past = known[stream];
  for (size_t other = 0; other < waits.size(); ++other)
    if (other == stream || waits[other] <= past[other])
      waits[other] = 0;
  waits = reduce(std::move(waits));
  for (size_t other = 0; other < waits.size(); ++other) {
    if (waits[other] == 0)
      continue;
    past[other] = waits[other];
    if (const Numbers *before = findPast(other, waits[other]))
      for (size_t third = 0; third < past.size(); ++third)
        past[third] = std::max(past[third], (*before)[third]);
  }
  history[stream][last[stream] % kHistory] = past;
  // Reads first: an operation may read what it writes.
  for (bool isWrite : {false, true})
    for (const Access &access : accesses)
      if (access.isWrite == isWrite && access.bytes > 0)
        record(access, stream, last[stream]);
  return waits;
}

void Hazards::clear() {
  segments.clear();
  for (Numbers &numbers : known)
    numbers = last;
}

void Hazards::prune(const Numbers &done) {
  for (auto it = segments.begin(); it != segments.end();) {
    const Segment &segment = it->second;
    bool isDone = segment.write <= done[segment.writeStream];
    for (size_t stream = 0; stream < done.size(); ++stream)
      isDone &= segment.reads[stream] <= done[stream];
    it = isDone ? segments.erase(it) : std::next(it);
  }
}
