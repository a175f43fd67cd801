//===- Launcher.h - Which of several processes this is ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_COMMON_LAUNCHER_H
#define ZPP_TOOLS_COMMON_LAUNCHER_H

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace zpp::tools {

/// Where processes of one host meet unless something else is said; in a Slurm
/// job, its number modulo 1000 is added. Below the ports that systems give out.
constexpr int64_t kDefaultPort = 28500;

/// What the command line says. The environment says the rest.
struct LaunchOptions {
  /// Both or none.
  std::optional<int64_t> process;
  std::optional<int64_t> numProcesses;
  /// "HOST:PORT", for processes of a launcher.
  std::string rendezvous;
};

struct Launch {
  int64_t process = 0;
  int64_t numProcesses = 1;
  /// Among those of its host; -1 if unknown.
  int64_t localProcess = -1;
  /// "HOST:PORT" of process 0. Empty if there is one process.
  std::string rendezvous;
};

/// The value of a variable, or null; getenv() is one.
using Environment = std::function<const char *(const char *name)>;

/// Finds out what a launcher has told this process; without one it is alone.
///
/// Who it is, from the first that says so: the options; torchrun (RANK,
/// WORLD_SIZE, LOCAL_RANK with TORCHELASTIC_RUN_ID, since it runs within
/// others); Open MPI (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK); other MPIs
/// (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID); srun (SLURM_PROCID, SLURM_NTASKS,
/// SLURM_LOCALID with SLURM_STEP_ID, which batch scripts lack); RANK and
/// WORLD_SIZE, with which all but the first two must agree.
///
/// Where processes meet: the options; MASTER_ADDR; 127.0.0.1 if all processes
/// are on one host; the first node of the Slurm job. The port is MASTER_PORT,
/// or the next one where torchrun itself listens on it, or kDefaultPort.
///
/// On failure returns false and sets `error`.
bool detectLaunch(const LaunchOptions &options, const Environment &environment,
                  Launch &launch, std::string &error);

/// Ranks that a process runs when each gets as many, in order.
struct RankRange {
  int64_t first = 0;
  int64_t count = 0;
};
bool getRanks(const Launch &launch, int64_t numRanks, RankRange &ranks,
              std::string &error);

/// The file of this process where each of several writes one: "trace.1.json"
/// for "trace.json" and process 1. `path` itself if there is one process.
std::string getProcessFile(const std::string &path, const Launch &launch);

} // namespace zpp::tools

#endif // ZPP_TOOLS_COMMON_LAUNCHER_H
