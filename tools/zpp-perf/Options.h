//===- Options.h - The command line of zpp-perf -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_PERF_OPTIONS_H
#define ZPP_TOOLS_ZPP_PERF_OPTIONS_H

#include "Launcher.h"
#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Mesh.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zpp::perf {

inline constexpr const char *kReduceScatter = "reduce_scatter";
inline constexpr const char *kAllGather = "all_gather";
inline constexpr const char *kAllReduce = "all_reduce";
inline constexpr const char *kCalibrate = "--calibrate";

extern const char *const kHelp;

struct Options {
  bool isHelp = false;
  std::string operation;
  std::string mesh = "node:2,gpu:2";
  int64_t minBytes = int64_t(1) << 20;
  int64_t maxBytes = int64_t(64) << 20;
  /// The options that were given, with their values.
  std::map<std::string, std::string> given;
  ElementType type = ElementType::BF16;
  /// Empty until checkOptions() fills in the default.
  std::vector<WireFormat> formats;
  WireFormat reduced = WireFormat::I8;
  int64_t block = 128;
  int64_t stages = 1;
  int64_t iterations = 5;
  std::string backend = "cpu";
  int64_t timeLimitUsec = 0;
  std::string trace;
  /// "HOST:PORT", for processes of a launcher.
  std::string rendezvous;
};

/// Reads the command line. Throws std::runtime_error if it is not valid.
Options parseOptions(int argc, char **argv);

/// Checks the options that depend on the mesh, and fills in the formats. Throws
/// as above.
void checkOptions(Options &options, const Mesh &mesh);

} // namespace zpp::perf

#endif // ZPP_TOOLS_ZPP_PERF_OPTIONS_H
