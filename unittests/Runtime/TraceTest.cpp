//===- TraceTest.cpp - Timelines ------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <cstdio>
#include <fstream>
#include <sstream>
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

/// The text of a trace.
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
  EXPECT_EQ(count("\"args\": {\"input_bytes\": 4, \"output_bytes\": 8}"), 4);
}

/// JSON is UTF-8, whatever a name is.
TEST(Trace, NamesThatAreNotUtf8) {
  TestWorld world("cpu", "gpu:1", 0, /*isTraced=*/true);
  world.runAll([](zpp_rt_rank *rank, int64_t) {
    auto desc = makeDesc<zpp_rt_copy_desc>();
    // Characters of 2, 3 and 4 bytes; a byte alone, one that never is, one too
    // long, a surrogate, one beyond the last, one that is cut.
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

TEST(Trace, Errors) {
  TestWorld traced("cpu", "gpu:1", 0, /*isTraced=*/true);
  EXPECT_EQ(write(traced, "/nonexistent/trace.json", ZPP_RT_SYSTEM_ERROR),
            "cannot write the trace to '/nonexistent/trace.json': No such file "
            "or directory");
  TestWorld other("cpu", "gpu:1");
  EXPECT_EQ(write(other, "trace.json", ZPP_RT_INVALID_ARGUMENT),
            "expected a world with a trace, but got one without");
  char message[256];
  EXPECT_EQ(zpp_rt_world_record(other.get(), 1, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected a world with a trace, but got one without");
}

} // namespace
