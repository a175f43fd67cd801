//===- Hazards.cpp - Order of operations on several streams ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Hazards.h"

#include <algorithm>
#include <cassert>

using namespace zpp::rt;

static uintptr_t getBegin(const Access &access) {
  return reinterpret_cast<uintptr_t>(access.data);
}
static uintptr_t getEnd(const Access &access) {
  return getBegin(access) + static_cast<uintptr_t>(access.bytes);
}

Hazards::Hazards(size_t numStreams)
    : numStreams(numStreams), known(numStreams), history(numStreams) {
  assert(numStreams <= kMaxStreams && "expected fewer streams");
}

Hazards::Segments::const_iterator Hazards::findFrom(uintptr_t address) const {
  auto it = segments.upper_bound(address);
  if (it != segments.begin() && std::prev(it)->second.end > address)
    --it;
  return it;
}

Hazards::Conflicts Hazards::find(Accesses accesses) const {
  Conflicts conflicts;
  for (const Access &access : accesses) {
    if (access.bytes == 0)
      continue;
    for (auto it = findFrom(getBegin(access));
         it != segments.end() && it->first < getEnd(access); ++it) {
      const Segment &segment = it->second;
      auto raise = [](int64_t &number, int64_t to) {
        number = std::max(number, to);
      };
      raise(conflicts.operations[segment.writeStream], segment.write);
      if (!access.isWrite) {
        raise(conflicts.producers[segment.writeStream], segment.write);
        continue;
      }
      for (size_t stream = 0; stream < numStreams; ++stream)
        raise(conflicts.operations[stream], segment.reads[stream]);
    }
  }
  return conflicts;
}

const Hazards::Numbers *Hazards::findPast(size_t stream, int64_t number) const {
  return last[stream] - number < kHistory ? &history[stream][number % kHistory]
                                          : nullptr;
}

Hazards::Numbers Hazards::reduce(Numbers numbers) const {
  for (size_t stream = 0; stream < numStreams; ++stream) {
    const Numbers *past =
        numbers[stream] > 0 ? findPast(stream, numbers[stream]) : nullptr;
    for (size_t other = 0; past && other < numStreams; ++other)
      if (other != stream && numbers[other] <= (*past)[other])
        numbers[other] = 0;
  }
  return numbers;
}

void Hazards::split(Segments::iterator it, uintptr_t address) {
  Segment &lower = it->second;
  segments.emplace_hint(std::next(it), address, lower);
  lower.end = address;
}

void Hazards::record(const Access &access, size_t stream, int64_t number) {
  uintptr_t begin = getBegin(access), end = getEnd(access);
  auto it = segments.lower_bound(begin);
  if (it != segments.begin() && (it == segments.end() || it->first > begin))
    if (auto before = std::prev(it); before->second.end > begin) {
      split(before, begin);
      it = std::next(before);
    }
  if (access.isWrite) {
    // Programs write where they have written before: the segment stays.
    if (it == segments.end() || it->first > begin)
      it = segments.emplace_hint(it, begin, Segment{begin, 0, 0, {}});
    if (it->second.end > end)
      split(it, end);
    it->second = {end, stream, number, {}};
    for (++it; it != segments.end() && it->first < end;) {
      if (it->second.end > end)
        split(it, end);
      it = segments.erase(it);
    }
    return;
  }
  // Reads what nobody has touched, too: a later write must wait for it.
  for (uintptr_t at = begin; at < end; ++it) {
    if (it == segments.end() || it->first > at)
      it = segments.emplace_hint(
          it, at,
          Segment{it == segments.end() ? end : std::min(it->first, end),
                  stream,
                  0,
                  {}});
    else if (it->second.end > end)
      split(it, end);
    it->second.reads[stream] = number;
    at = it->second.end;
  }
}

Hazards::Numbers Hazards::add(size_t stream, Accesses accesses,
                              const Conflicts &conflicts) {
  ++last[stream];
  return extend(stream, accesses, conflicts);
}

Hazards::Numbers Hazards::extend(size_t stream, Accesses accesses,
                                 const Conflicts &conflicts) {
  Numbers waits = conflicts.operations;
  Numbers &past = known[stream];
  for (size_t other = 0; other < numStreams; ++other)
    if (other == stream || waits[other] <= past[other])
      waits[other] = 0;
  waits = reduce(waits);
  for (size_t other = 0; other < numStreams; ++other) {
    if (waits[other] == 0)
      continue;
    past[other] = waits[other];
    if (const Numbers *before = findPast(other, waits[other]))
      for (size_t third = 0; third < numStreams; ++third)
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
  known.assign(numStreams, last);
}

void Hazards::prune(const Numbers &done) {
  for (auto it = segments.begin(); it != segments.end();) {
    const Segment &segment = it->second;
    bool isDone = segment.write <= done[segment.writeStream];
    for (size_t stream = 0; stream < numStreams; ++stream)
      isDone &= segment.reads[stream] <= done[stream];
    it = isDone ? segments.erase(it) : std::next(it);
  }
}
