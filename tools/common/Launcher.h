//===- Launcher.h - The place of a process in its job -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_COMMON_LAUNCHER_H
#define ZPP_TOOLS_COMMON_LAUNCHER_H

#include <cstdint>
#include <functional>
#include <string>

namespace zpp::tools {

/// The default port at which processes meet. In a Slurm job, the job's number
/// modulo 1000 is added. It is below the ports that systems assign.
constexpr int64_t kDefaultPort = 28500;

struct Launch {
  int64_t process = 0;
  int64_t numProcesses = 1;
  /// The number of this process on its host; -1 if unknown.
  int64_t localProcess = -1;
  /// "HOST:PORT" of process 0. Empty if there is one process.
  std::string rendezvous;
  /// A secret that all processes know. Empty if there is one process.
  std::string token;
};

/// Returns the value of a variable, or null, as getenv() does.
using Environment = std::function<const char *(const char *name)>;

/// Reads the environment that a launcher has set for this process. Without a
/// launcher, the process is the only one.
///
/// The number of this process comes from the first of these that is present:
/// torchrun (RANK, WORLD_SIZE, LOCAL_RANK with TORCHELASTIC_RUN_ID, because it
/// may run inside others); Open MPI (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK);
/// other MPIs (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID); srun (SLURM_PROCID,
/// SLURM_NTASKS, SLURM_LOCALID with SLURM_STEP_ID, which batch scripts lack);
/// RANK and WORLD_SIZE. All but the first must agree with RANK and WORLD_SIZE
/// if these are set.
///
/// The rendezvous is the first of these that is present: `rendezvous`, which
/// the user gives as "HOST:PORT" or leaves empty; MASTER_ADDR; 127.0.0.1 if all
/// processes are on one host; the first node of the Slurm job. The port is
/// MASTER_PORT, or the next one if torchrun itself listens there, or
/// kDefaultPort.
///
/// The token is in ZPP_TOKEN, or in the file that ZPP_TOKEN_FILE names, which
/// only this user may be able to read.
///
/// Throws std::runtime_error for what contradicts itself.
Launch detectLaunch(const std::string &rendezvous,
                    const Environment &environment);

/// The ranks that a process runs. Each process gets the same number, in order.
struct RankRange {
  int64_t first = 0;
  int64_t count = 0;
};
/// Throws std::runtime_error if that is not possible.
RankRange getRanks(const Launch &launch, int64_t numRanks);

/// Returns the file that this process writes in place of `path` if there are
/// several processes: "trace.1.json" for "trace.json" and process 1.
std::string getProcessFile(const std::string &path, const Launch &launch);

} // namespace zpp::tools

#endif // ZPP_TOOLS_COMMON_LAUNCHER_H
