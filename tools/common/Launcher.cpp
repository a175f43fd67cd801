//===- Launcher.cpp - The place of a process in its job -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Launcher.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>

using namespace zpp::tools;

namespace {
/// The variables of a launcher. The launcher has started this process if `rank`
/// is set and, unless it is null, `marker` too.
struct Launcher {
  const char *rank;
  const char *size;
  const char *localRank;
  const char *localSize;
  const char *marker;
};

class Detector {
public:
  Detector(const std::string &rendezvous, const Environment &environment)
      : rendezvous(rendezvous), environment(environment) {}

  Launch detect();

private:
  const char *get(const char *name) const;
  std::optional<int64_t> getNumber(const char *name) const;
  void readLauncher(const Launcher &launcher);
  void checkAgreement(const Launcher &launcher) const;
  std::string getRendezvous() const;
  std::string getToken() const;
  std::string getHost() const;
  int64_t getPort() const;

  const std::string &rendezvous;
  const Environment &environment;
  Launch launch;
  bool isOneHost = false;
  bool isSlurmStep = false;
};
} // namespace

static constexpr Launcher kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                       "LOCAL_WORLD_SIZE",
                                       "TORCHELASTIC_RUN_ID"};
static constexpr Launcher kOpenMpi = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr};
static constexpr Launcher kPmi = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS", nullptr};
static constexpr Launcher kSlurm = {"SLURM_PROCID", "SLURM_NTASKS",
                                    "SLURM_LOCALID", nullptr, "SLURM_STEP_ID"};
static constexpr Launcher kPlain = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE", nullptr};

static std::string quote(const std::string &text) { return "'" + text + "'"; }

static std::runtime_error expected(const std::string &what,
                                   const std::string &got) {
  return std::runtime_error("expected " + what + ", but got " + got);
}

/// Reads a number of up to 18 digits, which fits. Job numbers of Slurm have
/// ten.
static std::optional<int64_t> parseNumber(const std::string &text) {
  if (text.empty() || text.size() > 18 ||
      text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(text);
}

static void checkBelow(const std::string &name, int64_t value,
                       const std::string &sizeName, int64_t size) {
  if (value >= size)
    throw expected(name + " below " + sizeName + "=" + std::to_string(size),
                   std::to_string(value));
}

const char *Detector::get(const char *name) const {
  const char *value = name ? environment(name) : nullptr;
  return value && *value ? value : nullptr;
}

std::optional<int64_t> Detector::getNumber(const char *name) const {
  const char *text = get(name);
  if (!text)
    return std::nullopt;
  std::optional<int64_t> value = parseNumber(text);
  if (!value)
    throw expected(std::string("a number in ") + name, quote(text));
  return value;
}

//===----------------------------------------------------------------------===//
// The number of the process
//===----------------------------------------------------------------------===//

void Detector::readLauncher(const Launcher &launcher) {
  const std::string rank = launcher.rank, size = launcher.size;
  launch.process = getNumber(launcher.rank).value();
  std::optional<int64_t> numProcesses = getNumber(launcher.size);
  if (!numProcesses)
    throw expected(size + " beside " + rank + "=" +
                       std::to_string(launch.process),
                   "none");
  launch.numProcesses = *numProcesses;
  checkBelow(rank, launch.process, size, launch.numProcesses);

  std::optional<int64_t> localRank = getNumber(launcher.localRank);
  std::optional<int64_t> localSize = getNumber(launcher.localSize);
  if (localSize && *localSize > launch.numProcesses)
    throw expected(std::string(launcher.localSize) + " of at most " + size +
                       "=" + std::to_string(launch.numProcesses),
                   std::to_string(*localSize));
  if (localRank) {
    if (localSize)
      checkBelow(launcher.localRank, *localRank, launcher.localSize,
                 *localSize);
    else
      checkBelow(launcher.localRank, *localRank, size, launch.numProcesses);
  }
  launch.localProcess = localRank.value_or(-1);
  isOneHost = localSize == launch.numProcesses;
}

/// RANK and WORLD_SIZE may come from another launcher. If they disagree, it is
/// unclear which one is right.
void Detector::checkAgreement(const Launcher &launcher) const {
  auto check = [&](const char *name, int64_t value, const char *plainName) {
    std::optional<int64_t> plain = getNumber(plainName);
    if (*plain != value)
      throw expected(std::string(plainName) + " to agree with " + name + "=" +
                         std::to_string(value),
                     std::to_string(*plain));
  };
  if (!get(kPlain.rank) || !get(kPlain.size))
    return;
  check(launcher.rank, launch.process, kPlain.rank);
  check(launcher.size, launch.numProcesses, kPlain.size);
}

//===----------------------------------------------------------------------===//
// The rendezvous
//===----------------------------------------------------------------------===//

/// "rack2-node07" of "rack[2-3]-node[07,09-12],login1"
static std::string getFirstNode(const std::string &list) {
  std::string node;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      node += list[i];
      continue;
    }
    size_t close = list.find(']', i), end = list.find_first_of(",-]", i);
    if (close == std::string::npos)
      throw expected("a list of nodes from Slurm", quote(list));
    node += list.substr(i + 1, end - i - 1);
    i = close;
  }
  return node;
}

std::string Detector::getHost() const {
  if (const char *host = get("MASTER_ADDR"))
    return host;
  if (isOneHost)
    return "127.0.0.1";
  const char *nodes = isSlurmStep ? get("SLURM_STEP_NODELIST") : nullptr;
  if (!nodes)
    nodes = get("SLURM_JOB_NODELIST");
  if (nodes)
    return getFirstNode(nodes);
  throw expected("a rendezvous or MASTER_ADDR for " +
                     std::to_string(launch.numProcesses) +
                     " processes that may be on several hosts",
                 "none");
}

int64_t Detector::getPort() const {
  std::optional<int64_t> port = getNumber("MASTER_PORT");
  if (!port)
    return kDefaultPort + getNumber("SLURM_JOB_ID").value_or(0) % 1000;
  if (*port < 1 || *port > 65534)
    throw expected("a port in MASTER_PORT", std::to_string(*port));
  const char *isTaken = get("TORCHELASTIC_USE_AGENT_STORE");
  return *port + (isTaken && std::string(isTaken) == "True");
}

std::string Detector::getRendezvous() const {
  if (!rendezvous.empty())
    return rendezvous;
  std::string host = getHost();
  if (host.find(':') != std::string::npos)
    host = "[" + host + "]";
  return host + ":" + std::to_string(getPort());
}

//===----------------------------------------------------------------------===//
// Token
//===----------------------------------------------------------------------===//

/// Reads a file that only this user may be able to read.
static std::string readSecret(const std::string &path) {
  auto failed = [&] {
    return std::runtime_error("cannot read the token from " + quote(path) +
                              ": " + std::strerror(errno));
  };
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    throw failed();
  struct stat status{};
  char text[4096];
  ssize_t size = -1;
  if (::fstat(file, &status) == 0)
    size = ::read(file, text, sizeof(text));
  std::runtime_error error = failed();
  ::close(file);
  if (size < 0)
    throw error;
  const std::string wanted =
      "a file with the token that is readable by its owner, this user, alone "
      "(mode 600)";
  if (!S_ISREG(status.st_mode))
    throw expected(wanted, quote(path) + ", which is not a file");
  if (status.st_uid != ::geteuid())
    throw expected(wanted, quote(path) + " of another user");
  if (status.st_mode & 077) {
    char mode[16];
    std::snprintf(mode, sizeof(mode), "%o", status.st_mode & 0777);
    throw expected(wanted, quote(path) + " of mode " + mode);
  }
  std::string token(text, size);
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r'))
    token.pop_back();
  return token;
}

std::string Detector::getToken() const {
  if (const char *token = get("ZPP_TOKEN"))
    return token;
  if (const char *path = get("ZPP_TOKEN_FILE"))
    return readSecret(path);
  throw expected("a secret that all " + std::to_string(launch.numProcesses) +
                     " processes know, and nobody else, in ZPP_TOKEN or in the "
                     "file that ZPP_TOKEN_FILE names",
                 "neither");
}

Launch Detector::detect() {
  bool isLaunched = false;
  for (const Launcher *launcher :
       {&kTorchrun, &kOpenMpi, &kPmi, &kSlurm, &kPlain}) {
    if (!get(launcher->rank) || (launcher->marker && !get(launcher->marker)))
      continue;
    isLaunched = true;
    readLauncher(*launcher);
    if (launcher != &kTorchrun && launcher != &kPlain)
      checkAgreement(*launcher);
    if (launcher == &kSlurm) {
      isSlurmStep = true;
      isOneHost = getNumber("SLURM_STEP_NUM_NODES") == 1;
    }
    break;
  }
  if (launch.numProcesses > 1) {
    launch.rendezvous = getRendezvous();
    launch.token = getToken();
  } else if (!rendezvous.empty() && !isLaunched) {
    throw expected("several processes for rendezvous " + quote(rendezvous),
                   std::to_string(launch.numProcesses));
  }
  return launch;
}

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

Launch zpp::tools::detectLaunch(const std::string &rendezvous,
                                const Environment &environment) {
  return Detector(rendezvous, environment).detect();
}

RankRange zpp::tools::getRanks(const Launch &launch, int64_t numRanks) {
  if (numRanks % launch.numProcesses != 0)
    throw expected("a number of processes that divides " +
                       std::to_string(numRanks) + " ranks",
                   std::to_string(launch.numProcesses));
  int64_t count = numRanks / launch.numProcesses;
  return {launch.process * count, count};
}

std::string zpp::tools::getProcessFile(const std::string &path,
                                       const Launch &launch) {
  if (launch.numProcesses == 1)
    return path;
  std::filesystem::path file(path);
  std::string extension =
      "." + std::to_string(launch.process) + file.extension().string();
  return file.replace_extension(extension).string();
}
