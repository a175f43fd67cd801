//===- Timeline.cpp - When work happens on several streams ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/Timeline.h"

#include <algorithm>
#include <utility>

using namespace zpp;

size_t Timeline::addStream(std::string name) {
  streams.emplace_back().name = std::move(name);
  return streams.size() - 1;
}

double Timeline::place(const std::vector<size_t> &on, double ready, double usec,
                       const std::string &label) {
  double begin = ready;
  for (size_t stream : on)
    begin = std::max(begin, streams[stream].free);
  double end = begin + usec;
  for (size_t stream : on) {
    streams[stream].free = end;
    streams[stream].busy += usec;
  }
  if (tasks.size() < kMaxTasks && usec > 0)
    tasks.push_back({on.front(), begin, end, label});
  return end;
}

void Timeline::wait(size_t number, double ready) {
  Stream &stream = streams[number];
  if (ready <= stream.free)
    return;
  stream.waited += ready - stream.free;
  stream.free = ready;
}

double Timeline::repeat(int64_t times, const std::function<void()> &body) {
  std::vector<Stream> before;
  double endBefore = 0;
  for (int64_t i = 0; i < std::min(times, kMaxIterations); ++i) {
    before = streams;
    endBefore = getEnd();
    body();
  }
  if (times <= kMaxIterations)
    return 0;
  double rest = static_cast<double>(times - kMaxIterations);
  double shift = rest * (getEnd() - endBefore);
  for (size_t i = 0; i < streams.size(); ++i) {
    streams[i].free += shift;
    streams[i].busy += rest * (streams[i].busy - before[i].busy);
    streams[i].waited += rest * (streams[i].waited - before[i].waited);
  }
  return shift;
}

double Timeline::getEnd() const {
  double end = 0;
  for (const Stream &stream : streams)
    end = std::max(end, stream.free);
  return end;
}
