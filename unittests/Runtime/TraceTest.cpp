//===- TraceTest.cpp - Timelines ------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

using namespace zpp;

namespace {

std::string write(const TestWorld &world, const std::string &path,
                  zpp_rt_status expected) {
  char message[256] = "";
  EXPECT_EQ(zpp_rt_world_write_trace(world.get(), path.c_str(), message,
                                     sizeof(message)),
            expected);
  return message;
}

/// Returns the text of a trace.
std::string read(const TestWorld &world) {
  std::string path =
      testing::TempDir() + "zpp-trace-" + std::to_string(getpid()) + ".json";
  EXPECT_EQ(write(world, path, ZPP_RT_OK), "");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  return text.str();
}

TEST(Trace, SlicesOfAllRanks) {
  TestWorld world("cpu", "node:1,gpu:2", 0, /*isTraced=*/true);
  world.runAll([](zpp_rt_rank *rank, int64_t) {
    zpp_rt_axis axis = {"gpu", 1, 2};
    auto desc = makeDesc<zpp_rt_exchange_desc>();
    desc.name = "weights of \"layer\\1\"\n";
    desc.axes = &axis;
    desc.num_axes = 1;
    desc.chunk_bytes = 4;
    uint8_t input[4] = {}, output[8];
    EXPECT_EQ(zpp_rt_all_gather_chunks(rank, &desc, input, output), ZPP_RT_OK);
    desc.name = nullptr;
    EXPECT_EQ(zpp_rt_all_gather_chunks(rank, &desc, input, output), ZPP_RT_OK);
  });
  std::string text = read(world);

  auto count = [&](const std::string &part) {
    int64_t found = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at)
      ++found;
    return found;
  };
  EXPECT_EQ(count("\"name\": \"rank 0 (node 0, gpu 0)\""), 1);
  EXPECT_EQ(count("\"name\": \"rank 1 (node 0, gpu 1)\""), 1);
  EXPECT_EQ(count("\"ph\": \"X\""), 4);
  EXPECT_EQ(count("\"name\": \"all_gather_chunks weights of "
                  "\\\"layer\\\\1\\\"\\u000a\", \"cat\": "
                  "\"all_gather_chunks\""),
            2);
  EXPECT_EQ(count("\"name\": \"all_gather_chunks\""), 2);
  EXPECT_EQ(count("\"args\": {\"input_bytes\": 4, \"output_bytes\": 8, "
                  "\"along\": \"gpu\"}"),
            4);
}

/// JSON is UTF-8, whatever a name is.
TEST(Trace, NamesThatAreNotUtf8) {
  TestWorld world("cpu", "gpu:1", 0, /*isTraced=*/true);
  world.runAll([](zpp_rt_rank *rank, int64_t) {
    auto desc = makeDesc<zpp_rt_copy_desc>();
    // Characters of 2, 3 and 4 bytes; then a lone continuation byte, a byte
    // that is never valid, two overlong encodings, a surrogate, a character
    // beyond the last, and a truncated one.
    desc.name = "\u00fc\u20ac\U0001f600 \x80 \xff \xc0\xaf \xe0\x80\x80 "
                "\xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82";
    EXPECT_EQ(zpp_rt_copy_rows(rank, &desc, nullptr, nullptr), ZPP_RT_OK);
  });
  std::string text = read(world);
  auto bad = [](int count) {
    std::string characters = " ";
    for (int i = 0; i < count; ++i)
      characters += "\\ufffd";
    return characters;
  };
  EXPECT_NE(text.find("\u00fc\u20ac\U0001f600" + bad(1) + bad(1) + bad(2) +
                      bad(3) + bad(3) + bad(4) + bad(2) + "\""),
            std::string::npos)
      << text;
}

TEST(Trace, RecordsWhatItIsAskedTo) {
  TestWorld world("cpu", "gpu:1", 0, /*isTraced=*/true);
  // "before" is recorded and forgotten, "between" and "after" never were.
  world.runAll([&](zpp_rt_rank *rank, int64_t) {
    zpp_rt_axis axis = {"gpu", 1, 1};
    auto desc = makeDesc<zpp_rt_exchange_desc>();
    desc.axes = &axis;
    desc.num_axes = 1;
    desc.chunk_bytes = 4;
    uint8_t input[4] = {}, output[4];
    auto run = [&](const char *name, int64_t recordNext) {
      desc.name = name;
      EXPECT_EQ(zpp_rt_all_gather_chunks(rank, &desc, input, output),
                ZPP_RT_OK);
      EXPECT_EQ(zpp_rt_world_record(world.get(), recordNext, nullptr, 0),
                ZPP_RT_OK);
    };
    run("before", 0);
    run("between", 1);
    run("during", 0);
    run("after", 0);
  });
  std::string text = read(world);
  EXPECT_NE(text.find("during"), std::string::npos);
  for (const char *name : {"before", "between", "after"})
    EXPECT_EQ(text.find(name), std::string::npos) << name;
}

/// If the disk is full in the middle, for which a limit on file sizes stands,
/// the old file stays and nothing is left beside it.
TEST(Trace, IsWholeOrNotWritten) {
  std::string folder = testing::TempDir() + "zpp-trace-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/trace.json";
  TestWorld world("cpu", "gpu:1", 0, /*isTraced=*/true);
  world.runAll([](zpp_rt_rank *rank, int64_t) {
    auto desc = makeDesc<zpp_rt_copy_desc>();
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(zpp_rt_copy_rows(rank, &desc, nullptr, nullptr), ZPP_RT_OK);
  });
  auto listFolder = [&] {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      names.push_back(entry.path().filename());
    return names;
  };
  auto writeLimited = [&] {
    rlimit old{};
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    rlimit limit = {1000, old.rlim_max};
    auto *handler = std::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    std::string message = write(world, path, ZPP_RT_SYSTEM_ERROR);
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    std::signal(SIGXFSZ, handler);
    return message;
  };
  EXPECT_EQ(writeLimited(), "cannot write '" + path + "': File too large");
  EXPECT_TRUE(listFolder().empty());

  std::ofstream(path) << "old";
  writeLimited();
  EXPECT_EQ(listFolder(), std::vector<std::string>{"trace.json"});
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "old");

  // A link stays one, and so does the mode of the file.
  std::filesystem::create_symlink("trace.json", folder + "/link");
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  EXPECT_EQ(write(world, folder + "/link", ZPP_RT_OK), "");
  EXPECT_TRUE(std::filesystem::is_symlink(folder + "/link"));
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms(0640));
  EXPECT_GT(std::filesystem::file_size(path), 1000u);
  EXPECT_EQ(listFolder().size(), 2u);
  std::filesystem::remove_all(folder);
}

TEST(Trace, Errors) {
  TestWorld traced("cpu", "gpu:1", 0, /*isTraced=*/true);
  EXPECT_EQ(
      write(traced, "/nonexistent/trace.json", ZPP_RT_SYSTEM_ERROR),
      "cannot write '/nonexistent/trace.json': No such file or directory");
  EXPECT_EQ(write(traced, "/dev/full", ZPP_RT_SYSTEM_ERROR),
            "cannot write '/dev/full': No space left on device");
  EXPECT_EQ(write(traced, "/dev/null", ZPP_RT_OK), "");
  TestWorld other("cpu", "gpu:1");
  EXPECT_EQ(write(other, "trace.json", ZPP_RT_INVALID_ARGUMENT),
            "expected a world with a trace, but got one without");
  char message[256];
  EXPECT_EQ(zpp_rt_world_record(other.get(), 1, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected a world with a trace, but got one without");
}

} // namespace
