//===- ScheduleProblem.cpp - What a step must do, in any order ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/ScheduleProblem.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <utility>

using namespace zpp;

/// The most tasks of a resource, the longest ones, that count as what must come
/// before a task. The work takes the square of this number.
static constexpr size_t kMostJobs = 8192;

size_t ScheduleProblem::add(std::vector<size_t> resources, double usec,
                            std::vector<size_t> after) {
  assert(std::all_of(after.begin(), after.end(),
                     [&](size_t before) { return before < tasks.size(); }));
  for (size_t resource : resources)
    numResources = std::max(numResources, resource + 1);
  tasks.push_back({std::move(resources), std::move(after), usec});
  return tasks.size() - 1;
}

double ScheduleProblem::getBusy(size_t resource) const {
  double busy = 0;
  for (const Task &task : tasks)
    for (size_t used : task.resources)
      if (used == resource)
        busy += task.usec;
  return busy;
}

//===----------------------------------------------------------------------===//
// Heads
//===----------------------------------------------------------------------===//

namespace {
constexpr size_t kNone = SIZE_MAX;

/// A problem in one direction of time: of the reversed one, heads are tails.
struct Graph {
  std::vector<std::vector<size_t>> before, resources;
  std::vector<double> usec;
  size_t numResources;
};

/// Finds the heads of tasks, and the reason for each.
class Heads {
public:
  explicit Heads(const Graph &graph)
      : graph(graph), heads(graph.usec.size(), 0.0), reasons(graph.usec.size()),
        links(graph.numResources) {
    std::vector<std::vector<double>> lengths(graph.numResources);
    for (size_t task = 0; task < graph.usec.size(); ++task)
      for (size_t resource : graph.resources[task])
        lengths[resource].push_back(graph.usec[task]);
    for (size_t i = 0; i < links.size(); ++i) {
      if (lengths[i].empty())
        continue;
      links[i].sets.resize(graph.usec.size());
      if (lengths[i].size() <= kMostJobs)
        continue;
      std::nth_element(lengths[i].begin(), lengths[i].begin() + kMostJobs,
                       lengths[i].end(), std::greater<>());
      links[i].least = lengths[i][kMostJobs];
    }
    for (size_t task = 0; task < graph.usec.size(); ++task)
      run(task);
  }

  double get(size_t task) const { return heads[task]; }

  /// Adds to `byResource` what the time before `task` is spent with.
  void explain(size_t task, std::vector<double> &byResource) const {
    for (; task != kNone; task = reasons[task].from)
      if (reasons[task].resource != kNone)
        byResource[reasons[task].resource] += reasons[task].usec;
  }

private:
  /// The head of a task is that of `from` and `usec`, for which `resource` is
  /// busy.
  struct Reason {
    size_t from = kNone, resource = kNone;
    double usec = 0;
  };
  /// A set of jobs, by their numbers.
  using Jobs = std::vector<uint64_t>;
  struct Job {
    double head;
    size_t task, number;
  };
  /// A resource, and what it must do before each task.
  struct Link {
    /// Sorted by head; all are longer than `least`.
    std::vector<Job> jobs;
    double least = 0;
    /// For each task, the jobs that come before it or are it, null if none.
    /// Empty if there are none at all.
    std::vector<std::shared_ptr<const Jobs>> sets;
  };

  void run(size_t task) {
    for (size_t other : graph.before[task]) {
      const std::vector<size_t> &used = graph.resources[other];
      raise(task, heads[other] + graph.usec[other],
            {other, used.empty() ? kNone : used.front(), graph.usec[other]});
    }
    // The own job is added when the head is known.
    for (size_t i = 0; i < links.size(); ++i)
      if (!links[i].sets.empty())
        collect(task, i);
    for (size_t i : graph.resources[task])
      if (graph.usec[task] > links[i].least)
        addJob(task, links[i]);
  }

  void raise(size_t task, double head, Reason reason) {
    if (head <= heads[task])
      return;
    heads[task] = head;
    reasons[task] = reason;
  }

  /// Collects the jobs of a resource before `task`, which waits for them. Most
  /// tasks have the set of one of those before them.
  void collect(size_t task, size_t resource) {
    Link &link = links[resource];
    std::shared_ptr<const Jobs> found;
    bool isJoined = false;
    for (size_t other : graph.before[task]) {
      const std::shared_ptr<const Jobs> &set = link.sets[other];
      if (!set || set == found)
        continue;
      if (!found) {
        found = set;
        continue;
      }
      auto joined = std::make_shared<Jobs>(*found);
      joined->resize(std::max(found->size(), set->size()), 0);
      for (size_t word = 0; word < set->size(); ++word)
        (*joined)[word] |= (*set)[word];
      found = std::move(joined);
      isJoined = true;
    }
    // A chain waits for its jobs one by one.
    if (isJoined)
      waitFor(task, resource, *found);
    link.sets[task] = std::move(found);
  }

  /// Has `task` wait until a resource has done `set`, each as soon as it is
  /// ready.
  void waitFor(size_t task, size_t resource, const Jobs &set) {
    double end = 0;
    size_t first = kNone;
    for (const Job &job : links[resource].jobs) {
      if (job.number / 64 >= set.size() ||
          !(set[job.number / 64] >> job.number % 64 & 1))
        continue;
      if (first == kNone || job.head > end) {
        end = job.head;
        first = job.task;
      }
      end += graph.usec[job.task];
    }
    if (first != kNone)
      raise(task, end, {first, resource, end - heads[first]});
  }

  void addJob(size_t task, Link &link) {
    size_t number = link.jobs.size();
    Job job{heads[task], task, number};
    link.jobs.insert(std::upper_bound(link.jobs.begin(), link.jobs.end(), job,
                                      [](const Job &a, const Job &b) {
                                        return a.head < b.head;
                                      }),
                     job);
    auto set = link.sets[task] ? std::make_shared<Jobs>(*link.sets[task])
                               : std::make_shared<Jobs>();
    set->resize(std::max(set->size(), number / 64 + 1), 0);
    (*set)[number / 64] |= uint64_t(1) << number % 64;
    link.sets[task] = std::move(set);
  }

  const Graph &graph;
  std::vector<double> heads;
  std::vector<Reason> reasons;
  std::vector<Link> links;
};

//===----------------------------------------------------------------------===//
// One machine
//===----------------------------------------------------------------------===//

/// The tasks of one resource between their heads and tails.
class OneMachine {
public:
  OneMachine(const Graph &graph, const Heads &heads, const Heads &tails)
      : graph(graph), heads(heads), tails(tails) {}

  /// The task that ends last in Jackson's preemptive schedule of `tasks`, and
  /// when all that follows has ended.
  std::pair<size_t, double> run(std::vector<size_t> tasks) const {
    sortByHead(tasks);
    auto isShorter = [&](size_t a, size_t b) {
      return getTail(a) < getTail(b);
    };
    std::priority_queue<size_t, std::vector<size_t>, decltype(isShorter)> ready(
        isShorter);
    std::vector<double> left = graph.usec;
    std::pair<size_t, double> last{kNone, 0.0};
    double now = 0;
    for (size_t next = 0; next < tasks.size() || !ready.empty();) {
      if (ready.empty())
        now = std::max(now, heads.get(tasks[next]));
      while (next < tasks.size() && heads.get(tasks[next]) <= now)
        ready.push(tasks[next++]);
      size_t task = ready.top();
      double until = now + left[task];
      // The next task may have a longer tail.
      if (next < tasks.size() && heads.get(tasks[next]) < until) {
        left[task] -= heads.get(tasks[next]) - now;
        now = heads.get(tasks[next]);
        continue;
      }
      ready.pop();
      now = until;
      if (now + getTail(task) > last.second)
        last = {task, now + getTail(task)};
    }
    return last;
  }

  /// Adds to `byResource` what the time is spent with until `last`, which ended
  /// last, and what follows it have ended.
  void explain(std::vector<size_t> tasks, size_t last, size_t resource,
               std::vector<double> &byResource) const {
    // Those with longer tails come first, as if they were alone; the last gap
    // between them is where the reason begins.
    tasks.erase(std::remove_if(
                    tasks.begin(), tasks.end(),
                    [&](size_t task) { return getTail(task) < getTail(last); }),
                tasks.end());
    sortByHead(tasks);
    double end = 0;
    size_t first = kNone;
    for (size_t task : tasks) {
      if (first == kNone || heads.get(task) > end) {
        end = heads.get(task);
        first = task;
      }
      end += graph.usec[task];
    }
    heads.explain(first, byResource);
    byResource[resource] += end - heads.get(first);
    tails.explain(reverse(last), byResource);
  }

  double getTail(size_t task) const { return tails.get(reverse(task)); }
  size_t reverse(size_t task) const { return graph.usec.size() - 1 - task; }

private:
  void sortByHead(std::vector<size_t> &tasks) const {
    std::sort(tasks.begin(), tasks.end(), [&](size_t a, size_t b) {
      return std::pair(heads.get(a), a) < std::pair(heads.get(b), b);
    });
  }

  const Graph &graph;
  const Heads &heads, &tails;
};
} // namespace

ScheduleBound ScheduleProblem::getBound() const {
  size_t count = tasks.size();
  Graph forward{{}, {}, {}, numResources}, backward = forward;
  backward.before.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Task &task = tasks[i], &mirrored = tasks[count - 1 - i];
    forward.before.push_back(task.after);
    forward.resources.push_back(task.resources);
    forward.usec.push_back(task.usec);
    backward.resources.push_back(mirrored.resources);
    backward.usec.push_back(mirrored.usec);
    for (size_t before : task.after)
      backward.before[count - 1 - before].push_back(count - 1 - i);
  }
  Heads heads(forward), tails(backward);
  OneMachine machine(forward, heads, tails);

  ScheduleBound bound{0, std::vector<double>(numResources, 0.0)};
  for (size_t i = 0; i < count; ++i) {
    double usec = heads.get(i) + tasks[i].usec + machine.getTail(i);
    if (usec <= bound.usec)
      continue;
    bound = {usec, std::vector<double>(numResources, 0.0)};
    heads.explain(i, bound.byResource);
    if (!tasks[i].resources.empty())
      bound.byResource[tasks[i].resources.front()] += tasks[i].usec;
    tails.explain(machine.reverse(i), bound.byResource);
  }
  for (size_t resource = 0; resource < numResources; ++resource) {
    std::vector<size_t> used;
    for (size_t i = 0; i < count; ++i)
      for (size_t other : tasks[i].resources)
        if (other == resource)
          used.push_back(i);
    auto [last, usec] = machine.run(used);
    if (usec <= bound.usec)
      continue;
    bound = {usec, std::vector<double>(numResources, 0.0)};
    machine.explain(used, last, resource, bound.byResource);
  }
  return bound;
}
