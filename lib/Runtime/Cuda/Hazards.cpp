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

void Hazards::insert(size_t index, uintptr_t begin, const Segment &segment) {
  if (freeSlots.empty()) {
    freeSlots.push_back(static_cast<uint32_t>(segments.size()));
    segments.emplace_back();
  }
  uint32_t slot = freeSlots.back();
  freeSlots.pop_back();
  segments[slot] = segment;
  begins.insert(begins.begin() + index, begin);
  slots.insert(slots.begin() + index, slot);
}

void Hazards::erase(size_t first, size_t last) {
  freeSlots.insert(freeSlots.end(), slots.begin() + first,
                   slots.begin() + last);
  begins.erase(begins.begin() + first, begins.begin() + last);
  slots.erase(slots.begin() + first, slots.begin() + last);
}

size_t Hazards::findFrom(uintptr_t address) const {
  size_t index =
      std::upper_bound(begins.begin(), begins.end(), address) - begins.begin();
  return index > 0 && get(index - 1).end > address ? index - 1 : index;
}

Hazards::Conflicts Hazards::find(const Accesses &accesses) const {
  Conflicts conflicts;
  for (const Access &access : accesses) {
    if (access.bytes == 0)
      continue;
    for (size_t index = findFrom(getBegin(access));
         index < begins.size() && begins[index] < getEnd(access); ++index) {
      const Segment &segment = get(index);
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

void Hazards::split(size_t index, uintptr_t address) {
  Segment upper = get(index);
  get(index).end = address;
  insert(index + 1, address, upper);
}

void Hazards::record(const Access &access, size_t stream, int64_t number) {
  uintptr_t begin = getBegin(access), end = getEnd(access);
  size_t index = findFrom(begin);
  if (index < begins.size() && begins[index] < begin)
    split(index++, begin);
  if (access.isWrite) {
    // Programs write to the same memory again and again: keep the segment.
    Segment written = {end, stream, number, {}};
    size_t last = index;
    for (; last < begins.size() && begins[last] < end; ++last)
      if (get(last).end > end)
        split(last, end);
    if (index == last || begins[index] > begin) {
      insert(index, begin, written);
      ++last;
    } else {
      get(index) = written;
    }
    erase(index + 1, last);
    return;
  }
  // Record reads of untouched memory as well: a later write must wait for them.
  for (uintptr_t at = begin; at < end; ++index) {
    uintptr_t next = index < begins.size() ? begins[index] : end;
    if (next > at || index == begins.size())
      insert(index, at, {std::min(next, end), stream, 0, {}});
    else if (get(index).end > end)
      split(index, end);
    get(index).reads[stream] = number;
    at = get(index).end;
  }
}

Hazards::Numbers Hazards::add(size_t stream, const Accesses &accesses,
                              const Conflicts &conflicts) {
  ++last[stream];
  return extend(stream, accesses, conflicts);
}

Hazards::Numbers Hazards::extend(size_t stream, const Accesses &accesses,
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
  // Reads come first, because an operation may read what it writes.
  for (bool isWrite : {false, true})
    for (const Access &access : accesses)
      if (access.isWrite == isWrite && access.bytes > 0)
        record(access, stream, last[stream]);
  return waits;
}

void Hazards::clear() {
  begins.clear();
  slots.clear();
  segments.clear();
  freeSlots.clear();
  known.assign(numStreams, last);
}

void Hazards::prune(const Numbers &done) {
  size_t kept = 0;
  for (size_t index = 0; index < begins.size(); ++index) {
    const Segment &segment = get(index);
    bool isDone = segment.write <= done[segment.writeStream];
    for (size_t stream = 0; stream < numStreams; ++stream)
      isDone &= segment.reads[stream] <= done[stream];
    if (isDone) {
      freeSlots.push_back(slots[index]);
      continue;
    }
    begins[kept] = begins[index];
    slots[kept++] = slots[index];
  }
  begins.resize(kept);
  slots.resize(kept);
}
