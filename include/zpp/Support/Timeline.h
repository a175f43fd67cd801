//===- Timeline.h - When work happens on several streams --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A list schedule: tasks are placed one by one, each as early as what it
// depends on and its streams allow. A stream does its tasks in the order in
// which they were placed, as a stream of a GPU does.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_TIMELINE_H
#define ZPP_SUPPORT_TIMELINE_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zpp {

/// Times are in microseconds from the begin of the timeline.
class Timeline {
public:
  struct Task {
    size_t stream;
    double begin, end;
    /// The label, which tasks of one kind share.
    std::string label;
  };
  /// Iterations of a loop that are placed one by one. The others take as long
  /// as the last one of these.
  static constexpr int64_t kMaxIterations = 200;
  /// Tasks that are remembered; later ones only count.
  static constexpr size_t kMaxTasks = 1 << 20;

  /// Returns the number of a new stream.
  size_t addStream(std::string name);
  size_t getNumStreams() const { return streams.size(); }

  /// Places a task that occupies all of `streams`, the first of which it is
  /// listed under, and that needs what is there at `ready`. Returns its end.
  double place(const std::vector<size_t> &streams, double ready, double usec,
               const std::string &label);
  /// Lets a stream wait for what is there at `ready`, and counts the time for
  /// which it has nothing to do meanwhile.
  void wait(size_t stream, double ready);
  /// Places `body` `times` times. Returns how much later than the last
  /// iteration that was placed the last one is; the tasks of those in between
  /// are not remembered.
  double repeat(int64_t times, const std::function<void()> &body);

  /// When the stream can begin another task.
  double getFree(size_t stream) const { return streams[stream].free; }
  /// How long it has worked, and how long it has stood still in wait().
  double getBusy(size_t stream) const { return streams[stream].busy; }
  double getWaited(size_t stream) const { return streams[stream].waited; }
  const std::string &getName(size_t stream) const {
    return streams[stream].name;
  }
  /// When all streams are done.
  double getEnd() const;
  const std::vector<Task> &getTasks() const { return tasks; }

private:
  struct Stream {
    std::string name;
    double free = 0, busy = 0, waited = 0;
  };
  std::vector<Stream> streams;
  std::vector<Task> tasks;
};

} // namespace zpp

#endif // ZPP_SUPPORT_TIMELINE_H
