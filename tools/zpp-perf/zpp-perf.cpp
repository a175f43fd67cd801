//===- zpp-perf.cpp - Times of quantized collectives ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Launcher.h"
#include "Options.h"
#include "Plan.h"

#include "zpp/Support/Float16.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <string_view>
#include <thread>

using namespace zpp;
using namespace zpp::perf;

/// Prints an error and ends the program. If several ranks fail at once, only
/// the first is printed.
[[noreturn]] static void fail(const std::string &message) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  std::fflush(stdout);
  std::fprintf(stderr, "zpp-perf: error: %s\n", message.c_str());
  // Other ranks may be at work.
  std::_Exit(EXIT_FAILURE);
}

/// Flushes the output, so that a full disk is an error.
static void flushOutput() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    fail(std::string("cannot write the output: ") + std::strerror(errno));
}

/// Calls `function`. An exception ends the program, with a message that begins
/// with `prefix`.
template <typename Function>
static void guarded(const std::string &prefix, const Function &function) {
  try {
    function();
  } catch (const std::bad_alloc &) {
    fail(prefix + "out of memory");
  } catch (const std::exception &error) {
    fail(prefix + error.what());
  }
}

static std::string quote(std::string_view text) {
  return "'" + std::string(text) + "'";
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

/// Elements in [-1, 1), different on each rank.
static std::vector<uint8_t> makeData(ElementType type, int64_t elements,
                                     int64_t rank) {
  std::vector<uint8_t> data(elements * elementBytes(type));
  std::mt19937_64 engine(rank);
  std::uniform_real_distribution<float> distribution(-1, 1);
  for (int64_t i = 0; i < elements; ++i)
    writeElement(type, distribution(engine), data.data(), i);
  return data;
}

//===----------------------------------------------------------------------===//
// Measurement
//===----------------------------------------------------------------------===//

namespace {
/// The time of a plan on the slowest rank: in total, and until it was queued.
struct Measurement {
  double usec;
  double hostUsec;
  /// The result on this rank.
  std::vector<uint8_t> result;
};

/// The measurements of one rank. All ranks do the same and get the same
/// numbers.
class Bench {
public:
  Bench(const Options &options, const Mesh &mesh, zpp_rt_rank *rank,
        int64_t index)
      : options(options), mesh(mesh), rank(rank), index(index) {}

  const Options &options;
  const Mesh &mesh;

  /// Prints on rank 0.
  template <typename... Arguments>
  void print(const char *format, Arguments... arguments) const {
    if (index != 0)
      return;
    std::printf(format, arguments...);
    flushOutput();
  }

  /// Measures `plan` on random elements of `type`.
  Measurement measure(const Plan &plan, ElementType type) const;

  /// L2 distance over all ranks, relative to `expected`.
  double getError(ElementType type, const std::vector<uint8_t> &measured,
                  const std::vector<uint8_t> &expected) const;

private:
  /// Ends the program if the rank has failed.
  void check() const;
  /// Returns the `value` of every rank.
  std::vector<double> gather(double value) const;
  double getSlowest(double value) const {
    std::vector<double> all = gather(value);
    return *std::max_element(all.begin(), all.end());
  }

  zpp_rt_rank *const rank;
  const int64_t index;
};
} // namespace

void Bench::check() const {
  if (zpp_rt_rank_synchronize(rank) == ZPP_RT_OK)
    return;
  fail("rank " + std::to_string(index) + ": " + zpp_rt_rank_message(rank));
}

std::vector<double> Bench::gather(double value) const {
  std::vector<AxisRef> all;
  for (size_t axis = 0; axis < mesh.getAxes().size(); ++axis)
    all.push_back(mesh.getAxis(axis));
  std::vector<double> values(mesh.numDevices());
  Plan plan(sizeof(double), sizeof(double) * values.size());
  plan.exchange(&zpp_rt_all_gather_chunks, all, sizeof(double), Plan::input(),
                Plan::output());
  Plan::Run run(plan, rank);
  run.write(&value);
  run();
  std::vector<uint8_t> bytes = run.read();
  check();
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Measurement Bench::measure(const Plan &plan, ElementType type) const {
  constexpr int kRounds = 5;
  Plan::Run run(plan, rank);
  // Without memory on the rank there is no need for any here.
  check();
  run.write(
      makeData(type, plan.inputBytes() / elementBytes(type), index).data());
  run();
  check();
  Measurement measurement{0, 0, run.read()};
  std::vector<double> times, hostTimes;
  for (int round = 0; round < kRounds; ++round) {
    // All ranks begin together.
    gather(0);
    auto begin = std::chrono::steady_clock::now();
    auto getUsec = [&] {
      std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - begin;
      return time.count() / static_cast<double>(options.iterations);
    };
    for (int64_t i = 0; i < options.iterations; ++i)
      run();
    double hostTime = getUsec();
    check();
    double time = getUsec();
    times.push_back(getSlowest(time));
    hostTimes.push_back(getSlowest(hostTime));
  }
  auto getMedian = [](std::vector<double> &values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  measurement.usec = getMedian(times);
  measurement.hostUsec = getMedian(hostTimes);
  return measurement;
}

double Bench::getError(ElementType type, const std::vector<uint8_t> &measured,
                       const std::vector<uint8_t> &expected) const {
  double distance = 0, norm = 0;
  int64_t elements = expected.size() / elementBytes(type);
  for (int64_t i = 0; i < elements; ++i) {
    double want = readElement(type, expected.data(), i);
    double got = readElement(type, measured.data(), i);
    distance += (got - want) * (got - want);
    norm += want * want;
  }
  auto sum = [&](double value) {
    std::vector<double> all = gather(value);
    return std::accumulate(all.begin(), all.end(), 0.0);
  };
  distance = sum(distance);
  norm = sum(norm);
  return norm > 0 ? std::sqrt(distance / norm) : 0;
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

static void runCollective(const Bench &bench, rt::PlainCollective::Kind kind) {
  const Options &options = bench.options;
  int64_t ranks = bench.mesh.numDevices();
  bench.print("%12s %12s %10s %10s %10s %10s %12s %8s\n", "bytes", "time_usec",
              "host_usec", "algo_GB/s", "bus_GB/s", "rel_error", "plain_usec",
              "ratio");
  for (int64_t bytes = options.minBytes; bytes <= options.maxBytes;
       bytes *= 2) {
    int64_t unit = ranks * elementBytes(options.type);
    int64_t elements = (bytes + unit - 1) / unit * ranks;
    Plan plan =
        kind == rt::PlainCollective::AllGather
            ? makeAllGather(bench.mesh, options.type, elements,
                            options.formats.front(), options.block)
        : kind == rt::PlainCollective::AllReduce
            ? makeAllReduce(bench.mesh, options.type, elements, options.formats,
                            options.reduced, options.block, options.stages)
            : makeReduceScatter(bench.mesh, options.type, elements,
                                options.formats, options.block, options.stages);
    Measurement measured = bench.measure(plan, options.type);
    Measurement plain = bench.measure(
        makePlain(bench.mesh, options.type, elements, kind), options.type);
    double error = bench.getError(options.type, measured.result, plain.result);
    int64_t moved = elements * elementBytes(options.type);
    double algorithm = static_cast<double>(moved) / measured.usec / 1e3;
    // As nccl-tests count: an all-reduce crosses the links twice.
    int64_t times = kind == rt::PlainCollective::AllReduce ? 2 : 1;
    bench.print("%12lld %12.1f %10.1f %10.3f %10.3f %10.2e %12.1f %8.2f\n",
                static_cast<long long>(moved), measured.usec, measured.hostUsec,
                algorithm,
                algorithm * static_cast<double>(times * (ranks - 1)) /
                    static_cast<double>(ranks),
                error, plain.usec, plain.usec / measured.usec);
  }
}

/// Measures what each device sends over the links of a tier while all others do
/// so too.
static void calibrate(const Bench &bench) {
  bench.print("%12s %12s %12s %10s\n", "tier", "bytes", "time_usec", "GB/s");
  std::string links;
  for (size_t tier = 0; tier < bench.mesh.getAxes().size(); ++tier) {
    AxisRef axis = bench.mesh.getAxis(tier);
    // A tier of one has no links; any speed will do.
    double rate = 1;
    if (axis.size > 1) {
      int64_t chunk =
          std::max<int64_t>(bench.options.maxBytes / axis.size / 512, 1) * 512;
      Plan plan(axis.size * chunk, axis.size * chunk);
      plan.exchange(&zpp_rt_all_to_all, {axis}, chunk, Plan::input(),
                    Plan::output());
      Measurement measured = bench.measure(plan, ElementType::F32);
      int64_t sent = (axis.size - 1) * chunk;
      rate = static_cast<double>(sent) / measured.usec / 1e3;
      bench.print("%12s %12lld %12.1f %10.3f\n", axis.name.c_str(),
                  static_cast<long long>(sent), measured.usec, rate);
    }
    char text[64];
    std::snprintf(text, sizeof(text), "%.1fgbit", std::max(8 * rate, 0.1));
    links += (links.empty() ? "" : ",") + axis.name + "=" + text;
  }
  bench.print("links=%s\n", links.c_str());
}

static void runRank(const Options &options, const Mesh &mesh,
                    zpp_rt_world *world, int64_t index, int64_t device) {
  char message[512];
  zpp_rt_rank *rank;
  zpp_rt_rank_desc desc{sizeof(desc), index, device};
  if (zpp_rt_rank_create(world, &desc, &rank, message, sizeof(message)) !=
      ZPP_RT_OK)
    fail("rank " + std::to_string(index) + ": " + message);
  Bench bench(options, mesh, rank, index);
  if (options.operation == kReduceScatter)
    runCollective(bench, rt::PlainCollective::ReduceScatter);
  else if (options.operation == kAllGather)
    runCollective(bench, rt::PlainCollective::AllGather);
  else if (options.operation == kAllReduce)
    runCollective(bench, rt::PlainCollective::AllReduce);
  else
    calibrate(bench);
  zpp_rt_rank_destroy(rank);
}

static void run(int argc, char **argv) {
  Options options = parseOptions(argc, argv);
  if (options.isHelp) {
    std::fputs(kHelp, stdout);
    flushOutput();
    return;
  }
  std::string error;
  std::optional<Mesh> mesh = Mesh::parse(options.mesh, error);
  if (!mesh)
    fail(error);
  checkOptions(options, *mesh);
  tools::Launch launch = tools::detectLaunch(
      options.rendezvous, [](const char *name) { return std::getenv(name); });
  tools::RankRange ranks = tools::getRanks(launch, mesh->numDevices());

  zpp_rt_world_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.backend = options.backend.c_str();
  desc.mesh = options.mesh.c_str();
  desc.time_limit_usec = options.timeLimitUsec;
  desc.trace = !options.trace.empty();
  desc.rendezvous =
      launch.rendezvous.empty() ? nullptr : launch.rendezvous.c_str();
  desc.token = launch.token.c_str();
  char message[512];
  zpp_rt_world *world;
  if (zpp_rt_world_create(&desc, &world, message, sizeof(message)) != ZPP_RT_OK)
    fail(message);
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < ranks.count; ++i) {
    // One of several processes on a host takes the GPUs that belong to its
    // position.
    int64_t device =
        launch.localProcess < 0 ? -1 : launch.localProcess * ranks.count + i;
    int64_t index = ranks.first + i;
    std::string prefix = "rank " + std::to_string(index) + ": ";
    auto body = [&, index, device, prefix] {
      guarded(prefix, [&] { runRank(options, *mesh, world, index, device); });
    };
    try {
      threads.emplace_back(body);
    } catch (const std::exception &error) {
      // Fail here, because running threads must not be destroyed.
      fail(prefix + "expected a thread, but got " + quote(error.what()));
    }
  }
  for (std::thread &thread : threads)
    thread.join();
  if (!options.trace.empty()) {
    std::string path = tools::getProcessFile(options.trace, launch);
    if (zpp_rt_world_write_trace(world, path.c_str(), message,
                                 sizeof(message)) != ZPP_RT_OK)
      fail(message);
  }
  zpp_rt_world_destroy(world);
}

int main(int argc, char **argv) {
  guarded("", [&] { run(argc, argv); });
  return EXIT_SUCCESS;
}
