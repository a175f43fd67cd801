//===- zpp-perf.cpp - Times of quantized collectives ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plan.h"

#include "zpp/Support/Float16.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

using namespace zpp;
using namespace zpp::perf;

static constexpr const char *kHelp =
    R"(zpp-perf: for quantized collectives what nccl-tests are for NCCL

  zpp-perf OPERATION [options]

Collectives, with the time of the plain collective from the same run:
  reduce_scatter, all_gather
Kernels alone, with the bytes per second of a copy from the same run:
  quantize, dequantize, dequantize_reduce, dequantize_reduce_quantize

  --mesh=node:2,gpu:2  tiers from slowest to fastest
  --bytes=1M:64M       sizes of the whole tensor, doubling (K, M, G: 2^10, ..)
  --type=bf16          elements: f32, bf16 or f16
  --format=i8:i4       none, i8 or i4 for each hop of a reduce_scatter from the
                       innermost outwards, the last for all tiers that remain;
                       others use the first (and requantize to the second)
  --block=128          elements that share a scale: 32 to 2048
  --iterations=5       runs after the first, which is not counted; the median
                       of the slowest ranks is printed
  --backend=cpu        where ranks run
)";

[[noreturn]] static void fail(const std::string &message) {
  std::fprintf(stderr, "zpp-perf: error: %s\n", message.c_str());
  std::exit(EXIT_FAILURE);
}

static std::string quote(std::string_view text) {
  return "'" + std::string(text) + "'";
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

namespace {
struct Options {
  std::string operation;
  std::string mesh = "node:2,gpu:2";
  int64_t minBytes = int64_t(1) << 20;
  int64_t maxBytes = int64_t(64) << 20;
  ElementType type = ElementType::BF16;
  std::vector<WireFormat> formats = {WireFormat::I8, WireFormat::I4};
  int64_t block = 128;
  int64_t iterations = 5;
  std::string backend = "cpu";
};
} // namespace

static int64_t parseNumber(std::string_view text, bool isBytes) {
  int64_t value = 0;
  auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view suffix(end, text.data() + text.size() - end);
  int64_t unit = 1;
  if (isBytes && suffix.size() == 1)
    unit = suffix == "K"   ? int64_t(1) << 10
           : suffix == "M" ? int64_t(1) << 20
           : suffix == "G" ? int64_t(1) << 30
                           : 0;
  else if (!suffix.empty())
    unit = 0;
  if (code != std::errc() || unit == 0 || value < 1 || value > INT64_MAX / unit)
    fail("expected a positive number, but got " + quote(text));
  return value * unit;
}

static WireFormat parseFormat(std::string_view text) {
  if (text == "none")
    return WireFormat::None;
  if (text == "i8")
    return WireFormat::I8;
  if (text == "i4")
    return WireFormat::I4;
  fail("expected format none, i8 or i4, but got " + quote(text));
}

static ElementType parseType(std::string_view text) {
  if (text == "f32")
    return ElementType::F32;
  if (text == "bf16")
    return ElementType::BF16;
  if (text == "f16")
    return ElementType::F16;
  fail("expected type f32, bf16 or f16, but got " + quote(text));
}

static std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t colon = text.find(':');
    parts.push_back(text.substr(0, colon));
    if (colon == std::string_view::npos)
      return parts;
    text.remove_prefix(colon + 1);
  }
}

static void parseOption(std::string_view argument, Options &options) {
  size_t equals = argument.find('=');
  std::string_view name = argument.substr(0, equals);
  std::string_view value = equals == std::string_view::npos
                               ? std::string_view()
                               : argument.substr(equals + 1);
  if (name == "--mesh") {
    options.mesh = value;
  } else if (name == "--bytes") {
    std::vector<std::string_view> range = split(value);
    if (range.size() > 2)
      fail("expected MIN:MAX bytes, but got " + quote(value));
    options.minBytes = parseNumber(range.front(), /*isBytes=*/true);
    options.maxBytes = parseNumber(range.back(), /*isBytes=*/true);
  } else if (name == "--type") {
    options.type = parseType(value);
  } else if (name == "--format") {
    options.formats.clear();
    for (std::string_view format : split(value))
      options.formats.push_back(parseFormat(format));
  } else if (name == "--block") {
    options.block = parseNumber(value, /*isBytes=*/false);
    if (!isValidBlock(options.block))
      fail("expected a block that is a power of two from 32 to 2048, but got " +
           quote(value));
  } else if (name == "--iterations") {
    options.iterations = parseNumber(value, /*isBytes=*/false);
  } else if (name == "--backend") {
    options.backend = value;
  } else {
    fail("expected an option, but got " + quote(argument) +
         "; see zpp-perf --help");
  }
}

static Options parseOptions(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(kHelp, stdout);
      std::exit(EXIT_SUCCESS);
    }
    if (!argument.empty() && argument[0] != '-' && options.operation.empty())
      options.operation = argument;
    else
      parseOption(argument, options);
  }
  if (options.operation.empty())
    fail("expected an operation, but got none; see zpp-perf --help");
  return options;
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

static float readElement(ElementType type, const std::vector<uint8_t> &data,
                         int64_t index) {
  if (type == ElementType::F32) {
    float value;
    std::memcpy(&value, data.data() + 4 * index, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data.data() + 2 * index, 2);
  return type == ElementType::BF16 ? floatOfBF16Bits(bits)
                                   : floatOfF16Bits(bits);
}

/// Elements in (-1, 1), different on each rank.
static std::vector<uint8_t> makeData(ElementType type, int64_t elements,
                                     int64_t rank) {
  std::vector<uint8_t> data(elements * elementBytes(type));
  uint64_t state = 0x9e3779b97f4a7c15u * (rank + 1);
  for (int64_t i = 0; i < elements; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    float value =
        static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
    if (type == ElementType::F32) {
      std::memcpy(data.data() + 4 * i, &value, 4);
    } else {
      uint16_t bits = type == ElementType::BF16 ? bf16BitsOfFloat(value)
                                                : f16BitsOfFloat(value);
      std::memcpy(data.data() + 2 * i, &bits, 2);
    }
  }
  return data;
}

//===----------------------------------------------------------------------===//
// Measurement
//===----------------------------------------------------------------------===//

namespace {
/// What a plan took and, by rank, what it computed.
struct Measurement {
  double usec = 0;
  std::vector<std::vector<uint8_t>> results;
};

class Bench {
public:
  explicit Bench(const Options &options);

  const Mesh &getMesh() const { return mesh; }
  /// Runs `plan` on all ranks, its inputs being elements of `type` unless
  /// `input` (for all ranks) is given.
  Measurement measure(const Plan &plan, ElementType type,
                      const std::vector<uint8_t> *input = nullptr) const;

private:
  const Options &options;
  Mesh mesh;
};
} // namespace

Bench::Bench(const Options &options) : options(options) {
  std::string error;
  std::optional<Mesh> parsed = Mesh::parse(options.mesh, error);
  if (!parsed)
    fail(error);
  mesh = *parsed;
}

Measurement Bench::measure(const Plan &plan, ElementType type,
                           const std::vector<uint8_t> *input) const {
  zpp_rt_world_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.backend = options.backend.c_str();
  desc.mesh = options.mesh.c_str();
  char message[512];
  zpp_rt_world *world;
  if (zpp_rt_world_create(&desc, &world, message, sizeof(message)) != ZPP_RT_OK)
    fail(message);

  int64_t ranks = mesh.numDevices();
  Measurement measurement;
  measurement.results.resize(ranks);
  // By rank and iteration.
  std::vector<std::vector<double>> times(ranks);
  std::vector<std::string> errors(ranks);
  std::vector<AxisRef> all;
  for (size_t axis = 0; axis < mesh.getAxes().size(); ++axis)
    all.push_back(mesh.getAxis(axis));
  Plan barrier(1);
  barrier.allGather(all, 1);

  auto runRank = [&](int64_t index) {
    char text[512];
    zpp_rt_rank *rank;
    if (zpp_rt_rank_create(world, index, -1, &rank, text, sizeof(text)) !=
        ZPP_RT_OK) {
      errors[index] = text;
      return;
    }
    {
      std::vector<uint8_t> data =
          input ? *input
                : makeData(type, plan.inputBytes() / elementBytes(type), index);
      Plan::Run run(plan, rank, data.data()), wait(barrier, rank, "");
      for (int64_t i = 0; i <= options.iterations; ++i) {
        wait();
        zpp_rt_rank_synchronize(rank);
        auto begin = std::chrono::steady_clock::now();
        run();
        zpp_rt_rank_synchronize(rank);
        std::chrono::duration<double, std::micro> time =
            std::chrono::steady_clock::now() - begin;
        if (i > 0)
          times[index].push_back(time.count());
      }
      measurement.results[index] = run.read();
    }
    if (zpp_rt_rank_synchronize(rank) != ZPP_RT_OK)
      errors[index] = zpp_rt_rank_message(rank);
    zpp_rt_rank_destroy(rank);
  };
  std::vector<std::thread> threads;
  for (int64_t index = 0; index < ranks; ++index)
    threads.emplace_back(runRank, index);
  for (std::thread &thread : threads)
    thread.join();
  zpp_rt_world_destroy(world);
  for (int64_t index = 0; index < ranks; ++index)
    if (!errors[index].empty())
      fail("rank " + std::to_string(index) + ": " + errors[index]);

  std::vector<double> slowest(options.iterations, 0.0);
  for (const std::vector<double> &ofRank : times)
    for (size_t i = 0; i < slowest.size(); ++i)
      slowest[i] = std::max(slowest[i], ofRank[i]);
  std::sort(slowest.begin(), slowest.end());
  measurement.usec = slowest[slowest.size() / 2];
  return measurement;
}

/// L2 distance over all ranks, relative to `expected`.
static double getError(ElementType type, const Measurement &measured,
                       const Measurement &expected) {
  double distance = 0, norm = 0;
  for (size_t rank = 0; rank < expected.results.size(); ++rank) {
    int64_t elements = expected.results[rank].size() / elementBytes(type);
    for (int64_t i = 0; i < elements; ++i) {
      double want = readElement(type, expected.results[rank], i);
      double got = readElement(type, measured.results[rank], i);
      distance += (got - want) * (got - want);
      norm += want * want;
    }
  }
  return norm > 0 ? std::sqrt(distance / norm) : 0;
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

static void runCollective(const Options &options, const Bench &bench,
                          bool isGather) {
  const Mesh &mesh = bench.getMesh();
  int64_t ranks = mesh.numDevices();
  if (!isGather && options.formats.size() > mesh.getAxes().size())
    fail("expected at most " + std::to_string(mesh.getAxes().size()) +
         " formats on mesh " + quote(options.mesh) + ", but got " +
         std::to_string(options.formats.size()));
  auto makePlan = [&](const std::vector<WireFormat> &formats,
                      int64_t elements) {
    return isGather ? makeAllGather(mesh, options.type, elements, formats[0],
                                    options.block)
                    : makeReduceScatter(mesh, options.type, elements, formats,
                                        options.block);
  };
  std::printf("%12s %12s %10s %10s %10s %12s %8s\n", "bytes", "time_usec",
              "algo_GB/s", "bus_GB/s", "rel_error", "plain_usec", "ratio");
  for (int64_t bytes = options.minBytes; bytes <= options.maxBytes;
       bytes *= 2) {
    int64_t unit = ranks * elementBytes(options.type);
    int64_t elements = (bytes + unit - 1) / unit * ranks;
    Measurement measured =
        bench.measure(makePlan(options.formats, elements), options.type);
    Measurement plain =
        bench.measure(makePlan({WireFormat::None}, elements), options.type);
    int64_t moved = elements * elementBytes(options.type);
    double algorithm = static_cast<double>(moved) / measured.usec / 1e3;
    std::printf("%12lld %12.1f %10.3f %10.3f %10.2e %12.1f %8.2f\n",
                static_cast<long long>(moved), measured.usec, algorithm,
                algorithm * static_cast<double>(ranks - 1) /
                    static_cast<double>(ranks),
                getError(options.type, measured, plain), plain.usec,
                plain.usec / measured.usec);
    std::fflush(stdout);
  }
}

/// Kernels alone: the tensor is cut into a chunk per rank.
static void runKernel(const Options &options, const Bench &bench) {
  int64_t ranks = bench.getMesh().numDevices();
  WireFormat format = options.formats.front(), to = options.formats.back();
  if (format == WireFormat::None || to == WireFormat::None)
    fail("expected format i8 or i4 for " + quote(options.operation) +
         ", but got 'none'");
  const std::string &name = options.operation;
  std::printf("%12s %12s %10s %12s %8s\n", "bytes", "time_usec", "GB/s",
              "copy_GB/s", "percent");
  for (int64_t bytes = options.minBytes; bytes <= options.maxBytes;
       bytes *= 2) {
    int64_t unit = ranks * elementBytes(options.type);
    int64_t elements = (bytes + unit - 1) / unit * ranks;
    int64_t chunk = elements / ranks;
    SliceMap map;
    map.factors = {ranks};
    map.chunkFactors = {0};
    map.extent = elements;
    map.unit = chunk;

    Plan quantize(elements * elementBytes(options.type));
    quantize.quantize(options.type, format, options.block, map);
    Plan plan = quantize;
    std::vector<uint8_t> wire;
    if (name != "quantize") {
      wire = bench.measure(quantize, options.type).results.front();
      plan = Plan(static_cast<int64_t>(wire.size()));
      SliceMap partial = map;
      partial.extent = chunk;
      partial.unit = (chunk + ranks - 1) / ranks;
      if (name == "dequantize")
        plan.dequantize(options.type, format, options.block, map);
      else if (name == "dequantize_reduce")
        plan.reduce(ranks, chunk, options.type, format, options.block,
                    options.type);
      else
        plan.reduceQuantize(ranks, format, options.block, to, options.block,
                            partial);
    }
    Measurement measured =
        bench.measure(plan, options.type, wire.empty() ? nullptr : &wire);
    Plan copy(plan.inputBytes());
    copy.copy();
    Measurement copied =
        bench.measure(copy, options.type, wire.empty() ? nullptr : &wire);
    double rate = static_cast<double>(plan.inputBytes() + plan.outputBytes()) /
                  measured.usec / 1e3;
    double copyRate =
        2 * static_cast<double>(copy.inputBytes()) / copied.usec / 1e3;
    std::printf("%12lld %12.1f %10.3f %12.3f %8.1f\n",
                static_cast<long long>(elements * elementBytes(options.type)),
                measured.usec, rate, copyRate, 100 * rate / copyRate);
    std::fflush(stdout);
  }
}

int main(int argc, char **argv) {
  Options options = parseOptions(argc, argv);
  Bench bench(options);
  constexpr const char *kernels[] = {"quantize", "dequantize",
                                     "dequantize_reduce",
                                     "dequantize_reduce_quantize"};
  if (options.operation == "reduce_scatter" ||
      options.operation == "all_gather")
    runCollective(options, bench, options.operation == "all_gather");
  else if (std::find(std::begin(kernels), std::end(kernels),
                     options.operation) != std::end(kernels))
    runKernel(options, bench);
  else
    fail("expected an operation, but got " + quote(options.operation) +
         "; see zpp-perf --help");
  return EXIT_SUCCESS;
}
