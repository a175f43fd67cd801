//===- Options.cpp - The command line of zpp-perf -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include <algorithm>
#include <charconv>
#include <getopt.h>
#include <stdexcept>
#include <string_view>

using namespace zpp;
using namespace zpp::perf;

const char *const perf::kHelp =
    R"(zpp-perf: for quantized collectives what nccl-tests are for NCCL

  zpp-perf OPERATION [options]

An option and its value are one word or two: --mesh=gpu:4, --mesh gpu:4.

Collectives, with the time of the plain collective from the same run, which on
cuda is NCCL's own:
  reduce_scatter, all_gather, all_reduce
Speeds of the links, for the compiler's option `links`, with the largest size:
  --calibrate

  --mesh=node:2,gpu:2  tiers from slowest to fastest
  --bytes=1M:64M       sizes of the whole tensor, doubling (K, M, G: 2^10, ..)
  --type=bf16          elements: f32, bf16 or f16
  --format=i8:i4       none, i8 or i4 for each hop of a reduce_scatter, also in
                       an all_reduce, from the innermost outwards: the last for
                       the outermost tier, the one before it for all in between,
                       one alone for one hop; one, by default i8, for an
                       all_gather and for one tier
  --reduced=i8         none, i8 or i4 for the gathers of an all_reduce
  --block=128          elements that share a scale: 32 to 2048
  --stages=1           parts of a reduce_scatter or all_reduce that overlap
                       (host_usec in the table: until all is queued)
  --iterations=5       runs in a row; their mean is measured 5 times, and the
                       median of the slowest rank's is printed
  --backend=cpu        where ranks run: cpu (threads) or cuda (GPUs)
  --time-limit-usec=N  how long a collective waits for its last rank
  --trace=FILE         a timeline for Perfetto: when each operation ran on which
                       stream; slower. Of several processes each writes its own
                       ranks, process 1 to trace.1.json for trace.json

All ranks are in one process, unless a launcher starts one for each: mpirun,
srun, torchrun, or any other that sets RANK and WORLD_SIZE and, for several
hosts, MASTER_ADDR and MASTER_PORT. Processes need a secret that they all know
and nobody else does, in ZPP_TOKEN, or in the file that ZPP_TOKEN_FILE names.
  --rendezvous=H:P     where the process of rank 0 listens and others connect

  zpp-perf reduce_scatter --backend=cuda --bytes=1M:1G
  export ZPP_TOKEN=$(openssl rand -hex 32)
  mpirun -x ZPP_TOKEN -n 4 zpp-perf all_gather --backend=cuda --format=i8
)";

static std::runtime_error error(const std::string &message) {
  return std::runtime_error(message);
}

static std::string quote(std::string_view text) {
  return "'" + std::string(text) + "'";
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

static int64_t parseNumber(std::string_view text, bool isBytes) {
  // Small enough that sizes do not overflow.
  constexpr int64_t kMax = int64_t(1) << 60;
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
  if (code != std::errc() || unit == 0 || value < 1 || value > kMax / unit)
    throw error("expected a number from 1 to 2^60, but got " + quote(text));
  return value * unit;
}

static WireFormat parseFormat(std::string_view text) {
  if (text == "none")
    return WireFormat::None;
  for (WireFormat format : kCodedFormats)
    if (text == nameOf(format))
      return format;
  throw error("expected format none, i8 or i4, but got " + quote(text));
}

static ElementType parseType(std::string_view text) {
  if (text == "f32")
    return ElementType::F32;
  if (text == "bf16")
    return ElementType::BF16;
  if (text == "f16")
    return ElementType::F16;
  throw error("expected type f32, bf16 or f16, but got " + quote(text));
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

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

/// Reads the value of option `name`, which is not empty.
static void readOption(std::string_view name, std::string_view value,
                       Options &options) {
  if (name == "mesh") {
    options.mesh = value;
  } else if (name == "bytes") {
    std::vector<std::string_view> range = split(value);
    if (range.size() > 2)
      throw error("expected MIN:MAX bytes, but got " + quote(value));
    options.minBytes = parseNumber(range.front(), /*isBytes=*/true);
    options.maxBytes = parseNumber(range.back(), /*isBytes=*/true);
    if (options.minBytes > options.maxBytes)
      throw error("expected MIN:MAX bytes, but got " + quote(value));
  } else if (name == "type") {
    options.type = parseType(value);
  } else if (name == "format") {
    options.formats.clear();
    for (std::string_view format : split(value))
      options.formats.push_back(parseFormat(format));
  } else if (name == "reduced") {
    options.reduced = parseFormat(value);
  } else if (name == "block") {
    options.block = parseNumber(value, /*isBytes=*/false);
    if (!isValidBlock(options.block))
      throw error(
          "expected a block that is a power of two from 32 to 2048, but got " +
          quote(value));
  } else if (name == "stages") {
    options.stages = parseNumber(value, /*isBytes=*/false);
  } else if (name == "iterations") {
    options.iterations = parseNumber(value, /*isBytes=*/false);
  } else if (name == "time-limit-usec") {
    options.timeLimitUsec = parseNumber(value, /*isBytes=*/false);
  } else if (name == "rendezvous") {
    options.rendezvous = value;
  } else if (name == "trace") {
    options.trace = value;
  } else {
    options.backend = value;
  }
}

Options perf::parseOptions(int argc, char **argv) {
  enum : int { Help = 'h', Calibrate = 256, Value };
  const option longOptions[] = {
      {"help", no_argument, nullptr, Help},
      {"calibrate", no_argument, nullptr, Calibrate},
      {"mesh", required_argument, nullptr, Value},
      {"bytes", required_argument, nullptr, Value},
      {"type", required_argument, nullptr, Value},
      {"format", required_argument, nullptr, Value},
      {"reduced", required_argument, nullptr, Value},
      {"block", required_argument, nullptr, Value},
      {"stages", required_argument, nullptr, Value},
      {"iterations", required_argument, nullptr, Value},
      {"backend", required_argument, nullptr, Value},
      {"time-limit-usec", required_argument, nullptr, Value},
      {"trace", required_argument, nullptr, Value},
      {"rendezvous", required_argument, nullptr, Value},
      {nullptr, 0, nullptr, 0}};
  Options options;
  auto setOperation = [&](const char *operation) {
    if (!options.operation.empty())
      throw error("expected one operation, but got " +
                  quote(options.operation) + " and " + quote(operation));
    options.operation = operation;
  };
  // getopt prints no errors. The dash lets operations stand anywhere.
  opterr = 0;
  while (true) {
    int next = optind, index = 0;
    int found = getopt_long(argc, argv, "-:h", longOptions, &index);
    if (found == -1)
      break;
    switch (found) {
    case 1:
      setOperation(optarg);
      break;
    case Help:
      options.isHelp = true;
      return options;
    case Calibrate:
      setOperation(kCalibrate);
      break;
    case Value: {
      std::string name = longOptions[index].name;
      if (!*optarg)
        throw error("expected --" + name + "=VALUE, but got " +
                    quote(argv[next]));
      options.given["--" + name] = optarg;
      readOption(name, optarg, options);
      break;
    }
    case ':':
      throw error("expected " + std::string(argv[next]) + "=VALUE, but got " +
                  quote(argv[next]));
    default:
      throw error("expected an option, but got " + quote(argv[next]) +
                  "; see zpp-perf --help");
    }
  }
  if (optind < argc)
    setOperation(argv[optind]);
  if (options.operation.empty())
    throw error("expected an operation, but got none; see zpp-perf --help");
  return options;
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

void perf::checkOptions(Options &options, const Mesh &mesh) {
  const std::string name = quote(options.operation);
  bool isAllReduce = options.operation == kAllReduce;
  bool hasHops = isAllReduce || options.operation == kReduceScatter;
  bool isCalibration = options.operation == kCalibrate;
  if (!hasHops && !isCalibration && options.operation != kAllGather)
    throw error("expected an operation, but got " + name +
                "; see zpp-perf --help");
  auto refuse = [&](const char *option) {
    if (auto it = options.given.find(option); it != options.given.end())
      throw error("expected no " + it->first + " for " + name + ", but got " +
                  quote(it->second));
  };
  if (!hasHops)
    refuse("--stages");
  if (!isAllReduce)
    refuse("--reduced");
  if (isCalibration)
    for (const char *option : {"--type", "--format", "--block"})
      refuse(option);

  size_t maxFormats = hasHops ? mesh.getAxes().size() : isCalibration ? 0 : 1;
  if (options.formats.empty()) {
    options.formats = {WireFormat::I8, WireFormat::I4};
    options.formats.resize(std::min<size_t>(maxFormats, 2));
  }
  if (options.formats.size() > maxFormats)
    throw error("expected at most " + std::to_string(maxFormats) +
                (maxFormats == 1 ? " format for " : " formats for ") + name +
                (hasHops ? " on mesh " + quote(options.mesh) : "") +
                ", but got " + std::to_string(options.formats.size()));
}
