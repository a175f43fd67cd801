//===- LauncherTest.cpp - Which of several processes this is --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Launcher.h"
#include "gtest/gtest.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>

using namespace zpp::tools;

namespace {

using Variables = std::map<std::string, std::string>;

/// Fills in `launch`, or returns the error.
std::string detect(const Variables &variables, const std::string &rendezvous,
                   Launch &launch) {
  auto environment = [&](const char *name) -> const char * {
    auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
  try {
    launch = detectLaunch(rendezvous, environment);
    return "";
  } catch (const std::runtime_error &error) {
    return error.what();
  }
}

/// "PROCESS of NUMBER, local LOCAL, at RENDEZVOUS", or the error.
std::string detect(Variables variables, const std::string &rendezvous = "") {
  variables.emplace("ZPP_TOKEN", "a token for this test");
  Launch launch;
  if (std::string error = detect(variables, rendezvous, launch); !error.empty())
    return error;
  return std::to_string(launch.process) + " of " +
         std::to_string(launch.numProcesses) + ", local " +
         std::to_string(launch.localProcess) + ", at " + launch.rendezvous;
}

/// The union; later values win.
Variables merge(Variables variables, const Variables &others) {
  for (const auto &[name, value] : others)
    variables[name] = value;
  return variables;
}

const Variables kTwo = {
    {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Variables kPmi = {{"PMI_RANK", "5"},
                        {"PMI_SIZE", "8"},
                        {"MPI_LOCALRANKID", "1"},
                        {"MPI_LOCALNRANKS", "4"}};
const Variables kSlurm = {{"SLURM_JOB_ID", "200505"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "6"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_LOCALID", "2"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_STEP_NODELIST", "gpu[11-12]"},
                          {"SLURM_JOB_NODELIST", "gpu[10-13]"}};
const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "host"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

TEST(Launcher, Alone) {
  EXPECT_EQ(detect({}), "0 of 1, local -1, at ");
  EXPECT_EQ(detect({{"RANK", ""}, {"MASTER_ADDR", "host"}}),
            "0 of 1, local -1, at ");
  EXPECT_EQ(detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
            "0 of 1, local -1, at ");
  // A batch script, which runs once for all tasks.
  Variables batch = kSlurm;
  batch.erase("SLURM_STEP_ID");
  EXPECT_EQ(detect(batch), "0 of 1, local -1, at ");
}

TEST(Launcher, OpenMpi) {
  EXPECT_EQ(detect(kOpenMpi), "3 of 4, local 3, at 127.0.0.1:28500");
  EXPECT_EQ(detect(merge(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                    {"MASTER_ADDR", "fd00::1"},
                                    {"MASTER_PORT", "1234"}})),
            "3 of 4, local 1, at [fd00::1]:1234");
  // Its daemons were started by srun.
  EXPECT_EQ(detect(merge(kSlurm, kOpenMpi)),
            "3 of 4, local 3, at 127.0.0.1:29005");
}

TEST(Launcher, Pmi) {
  EXPECT_EQ(detect(kPmi),
            "expected a rendezvous or MASTER_ADDR for 8 processes that may be "
            "on several hosts, but got none");
  EXPECT_EQ(detect(merge(kPmi, {{"SLURM_JOB_NODELIST", "a[3,7],b"}})),
            "5 of 8, local 1, at a3:28500");
  EXPECT_EQ(detect(merge(kPmi, {{"MPI_LOCALNRANKS", "8"}})),
            "5 of 8, local 1, at 127.0.0.1:28500");
}

TEST(Launcher, Slurm) {
  EXPECT_EQ(detect(kSlurm), "6 of 8, local 2, at gpu11:29005");
  EXPECT_EQ(detect(merge(kSlurm, {{"SLURM_JOB_ID", "2147483670"}})),
            "6 of 8, local 2, at gpu11:29170");
  EXPECT_EQ(detect(merge(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}})),
            "6 of 8, local 2, at 127.0.0.1:29005");
  EXPECT_EQ(detect(merge(kSlurm, {{"MASTER_ADDR", "gpu11-ib0"}})),
            "6 of 8, local 2, at gpu11-ib0:29005");
  EXPECT_EQ(detect(merge(kSlurm, {{"RANK", "6"}, {"WORLD_SIZE", "8"}})),
            "6 of 8, local 2, at gpu11:29005");
}

TEST(Launcher, SlurmNodes) {
  auto getNode = [](const char *list) {
    return detect(merge(kSlurm, {{"SLURM_STEP_NODELIST", list}}));
  };
  EXPECT_EQ(getNode("n1"), "6 of 8, local 2, at n1:29005");
  EXPECT_EQ(getNode("n1,n2"), "6 of 8, local 2, at n1:29005");
  EXPECT_EQ(getNode("n[007,9-12]"), "6 of 8, local 2, at n007:29005");
  EXPECT_EQ(getNode("rack[2-3]-node[07,09-12]-x,login1"),
            "6 of 8, local 2, at rack2-node07-x:29005");
  EXPECT_EQ(getNode("n[1-2"),
            "expected a list of nodes from Slurm, but got 'n[1-2'");
}

TEST(Launcher, Torchrun) {
  // Its own store listens on MASTER_PORT.
  EXPECT_EQ(detect(kTorchrun), "1 of 2, local 1, at host:29501");
  // One per node.
  EXPECT_EQ(detect(merge(kSlurm, kTorchrun)), "1 of 2, local 1, at host:29501");
}

TEST(Launcher, Plain) {
  EXPECT_EQ(detect({{"RANK", "1"},
                    {"WORLD_SIZE", "2"},
                    {"MASTER_ADDR", "host"},
                    {"MASTER_PORT", "29500"}}),
            "1 of 2, local -1, at host:29500");
  EXPECT_EQ(detect({{"RANK", "1"},
                    {"WORLD_SIZE", "2"},
                    {"LOCAL_WORLD_SIZE", "2"},
                    {"MASTER_PORT", "29500"}}),
            "1 of 2, local -1, at 127.0.0.1:29500");
}

TEST(Launcher, RendezvousOfTheUserWins) {
  EXPECT_EQ(detect(kSlurm, "here:1"), "6 of 8, local 2, at here:1");
  EXPECT_EQ(detect(merge(kTwo, {{"RANK", "1"}}), "here:1"),
            "1 of 2, local -1, at here:1");
  // A launcher may have started one.
  EXPECT_EQ(detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "here:1"),
            "0 of 1, local -1, at ");
}

TEST(Launcher, Errors) {
  EXPECT_EQ(detect({}, "here:1"),
            "expected several processes for rendezvous 'here:1', but got 1");
  EXPECT_EQ(detect({{"RANK", "3"}}),
            "expected WORLD_SIZE beside RANK=3, but got none");
  EXPECT_EQ(detect({{"RANK", "3"}, {"WORLD_SIZE", "3"}}),
            "expected RANK below WORLD_SIZE=3, but got 3");
  EXPECT_EQ(detect({{"RANK", "x"}, {"WORLD_SIZE", "3"}}),
            "expected a number in RANK, but got 'x'");
  EXPECT_EQ(detect({{"RANK", "-1"}, {"WORLD_SIZE", "3"}}),
            "expected a number in RANK, but got '-1'");
  EXPECT_EQ(detect(merge(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "4"}})),
            "expected OMPI_COMM_WORLD_LOCAL_RANK below "
            "OMPI_COMM_WORLD_LOCAL_SIZE=4, but got 4");
  EXPECT_EQ(detect(merge(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}})),
            "expected OMPI_COMM_WORLD_LOCAL_SIZE of at most "
            "OMPI_COMM_WORLD_SIZE=4, but got 5");
  EXPECT_EQ(detect(merge(kSlurm, {{"SLURM_LOCALID", "8"}})),
            "expected SLURM_LOCALID below SLURM_NTASKS=8, but got 8");
  EXPECT_EQ(detect(merge(kSlurm, {{"RANK", "5"}, {"WORLD_SIZE", "8"}})),
            "expected RANK to agree with SLURM_PROCID=6, but got 5");
  EXPECT_EQ(detect(merge(kOpenMpi, {{"RANK", "3"}, {"WORLD_SIZE", "8"}})),
            "expected WORLD_SIZE to agree with OMPI_COMM_WORLD_SIZE=4, but got "
            "8");
  EXPECT_EQ(detect(merge(kTorchrun, {{"MASTER_PORT", "65535"}})),
            "expected a port in MASTER_PORT, but got 65535");
}

TEST(Launcher, Ranks) {
  Launch launch;
  launch.process = 1;
  launch.numProcesses = 2;
  RankRange ranks = getRanks(launch, 8);
  EXPECT_EQ(ranks.first, 4);
  EXPECT_EQ(ranks.count, 4);
  try {
    getRanks(launch, 7);
    FAIL();
  } catch (const std::runtime_error &error) {
    EXPECT_EQ(std::string(error.what()),
              "expected a number of processes that divides 7 ranks, but got 2");
  }
}

TEST(Launcher, FilesOfProcesses) {
  Launch alone, second;
  second.process = 1;
  second.numProcesses = 4;
  EXPECT_EQ(getProcessFile("d/trace.json", alone), "d/trace.json");
  EXPECT_EQ(getProcessFile("d/trace.json", second), "d/trace.1.json");
  EXPECT_EQ(getProcessFile("d.x/trace", second), "d.x/trace.1");
  EXPECT_EQ(getProcessFile("a.b.json", second), "a.b.1.json");
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

/// Returns the token, or the error.
std::string getToken(const Variables &variables) {
  Launch launch;
  std::string error = detect(variables, "", launch);
  return error.empty() ? launch.token : error;
}

TEST(Token, FromTheEnvironment) {
  EXPECT_EQ(getToken(merge(kTwo, {{"ZPP_TOKEN", "secret"}})), "secret");
  EXPECT_EQ(getToken(kTwo),
            "expected a secret that all 2 processes know, and nobody else, in "
            "ZPP_TOKEN or in the file that ZPP_TOKEN_FILE names, but got "
            "neither");
  // A single process needs none.
  EXPECT_EQ(getToken({}), "");
}

TEST(Token, FromAFile) {
  const std::string path =
      testing::TempDir() + "zpp-token-" + std::to_string(getpid());
  auto read = [&](const std::string &path) {
    return getToken(merge(kTwo, {{"ZPP_TOKEN_FILE", path}}));
  };
  const std::string wanted =
      "expected a file with the token that is readable by its owner, this "
      "user, alone (mode 600), but got '";
  std::ofstream(path) << "secret of a file\n";
  for (int mode : {0644, 0640, 0604, 0620}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    char text[8];
    std::snprintf(text, sizeof(text), "%o", mode);
    EXPECT_EQ(read(path), wanted + path + "' of mode " + text);
  }
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(read(path), "secret of a file");
  std::remove(path.c_str());
  EXPECT_EQ(read(path), "cannot read the token from '" + path +
                            "': No such file or directory");
  EXPECT_EQ(read("/dev/null"), wanted + "/dev/null', which is not a file");
}

} // namespace
