//===- ScheduleProblem.h - What a step must do, in any order ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tasks of a step with what each must wait for and what it occupies, and a
// lower bound on the time of any schedule of them.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_SCHEDULEPROBLEM_H
#define ZPP_SUPPORT_SCHEDULEPROBLEM_H

#include <cstddef>
#include <vector>

namespace zpp {

/// A time that no schedule can be below, and what makes it so long.
struct ScheduleBound {
  double usec = 0;
  /// How much of `usec` each resource is the reason for, by its number; the
  /// rest is work that occupies none.
  std::vector<double> byResource;
};

/// Times are in microseconds. Memory does not count: a schedule that keeps to a
/// limit of bytes in flight may have to be longer than the bound.
class ScheduleProblem {
public:
  /// Adds a task that begins when all of `after` have ended, and occupies all
  /// of `resources` for `usec`. Tasks that it comes after must have been added
  /// before it. Returns its number.
  size_t add(std::vector<size_t> resources, double usec,
             std::vector<size_t> after);

  size_t size() const { return tasks.size(); }
  /// Returns the time for which `resource` is occupied in any schedule.
  double getBusy(size_t resource) const;

  /// Returns the largest of these lower bounds:
  ///
  /// - for each resource, the shortest preemptive schedule of its tasks, each
  ///   of which is ready at its head and followed by its tail (Carlier, "The
  ///   one-machine sequencing problem", 1982);
  /// - for each task, its head, itself and its tail.
  ///
  /// A head is the longest chain before a task, or the time that a resource
  /// needs for all that must come before it, whichever is longer; a tail is
  /// the same for what comes after.
  ScheduleBound getBound() const;

private:
  struct Task {
    std::vector<size_t> resources, after;
    double usec;
  };
  std::vector<Task> tasks;
  size_t numResources = 0;
};

} // namespace zpp

#endif // ZPP_SUPPORT_SCHEDULEPROBLEM_H
