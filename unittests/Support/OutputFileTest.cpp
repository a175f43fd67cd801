//===- OutputFileTest.cpp - Tests of OutputFile.h -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/OutputFile.h"

#include "gtest/gtest.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zpp;
namespace fs = std::filesystem;

namespace {
class OutputFileTest : public testing::Test {
protected:
  void SetUp() override {
    std::string name =
        (fs::temp_directory_path() / "zpp-output-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    path = folder / "file";
  }
  void TearDown() override { fs::remove_all(folder); }

  static std::string read(const fs::path &file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  size_t countFiles() const {
    return std::distance(fs::directory_iterator(folder),
                         fs::directory_iterator());
  }

  fs::path folder, path;
};

TEST_F(OutputFileTest, WritesAllParts) {
  EXPECT_EQ(writeFile(path, {"head", "", "tail"}), "");
  EXPECT_EQ(read(path), "headtail");
  EXPECT_EQ(writeFile(path, {}), "");
  EXPECT_EQ(read(path), "");
  EXPECT_EQ(countFiles(), 1u);
}

TEST_F(OutputFileTest, KeepsModeAndLinks) {
  ASSERT_EQ(writeFile(path, {"old"}), "");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("file", folder / "link");
  EXPECT_EQ(writeFile(folder / "link", {"new"}), "");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read(path), "new");
  EXPECT_EQ(fs::status(path).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(OutputFileTest, NamesTheCause) {
  EXPECT_EQ(writeFile(folder / "none" / "file", {"x"}),
            "No such file or directory");
  EXPECT_EQ(writeFile(folder, {"x"}), "Is a directory");
  EXPECT_EQ(writeFile("/dev/full", {"x"}), "No space left on device");
  EXPECT_EQ(writeFile("/dev/null", {"x"}), "");
}

/// A limit on the size of files stands for a full disk.
TEST_F(OutputFileTest, LeavesTheOldFileAfterAFailure) {
  ASSERT_EQ(writeFile(path, {"old"}), "");
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit small{1 << 16, limit.rlim_max};
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string large(1 << 20, 'x');
  EXPECT_EQ(writeFile(path, {large}), "File too large");
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(countFiles(), 1u);
}

TEST_F(OutputFileTest, WritesPartByPart) {
  const std::string large(3 << 20, 'x');
  {
    OutputFile file(path);
    EXPECT_EQ(file.open(), "");
    EXPECT_EQ(file.write("head"), "");
    EXPECT_EQ(file.write(large), "");
    EXPECT_EQ(file.write("tail"), "");
    EXPECT_FALSE(fs::exists(path));
    EXPECT_EQ(file.commit(), "");
  }
  EXPECT_EQ(read(path), "head" + large + "tail");
  {
    OutputFile file(path);
    EXPECT_EQ(file.open(), "");
    EXPECT_EQ(file.write("not committed"), "");
  }
  EXPECT_EQ(read(path), "head" + large + "tail");
  EXPECT_EQ(countFiles(), 1u);
}

TEST_F(OutputFileTest, KeepsTheFirstCause) {
  OutputFile file("/dev/full");
  EXPECT_EQ(file.open(), "");
  EXPECT_EQ(file.write(std::string(2 << 20, 'x')), "No space left on device");
  EXPECT_EQ(file.write("x"), "No space left on device");
  EXPECT_EQ(file.commit(), "No space left on device");
}

/// Nothing can be done about this signal in the process itself.
TEST_F(OutputFileTest, LeavesTheOldFileWhereTheProcessIsKilled) {
  int probe = ::open(folder.c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe < 0)
    GTEST_SKIP() << "the file system has no files without names";
  close(probe);
  ASSERT_EQ(writeFile(path, {"old"}), "");
  pid_t child = fork();
  if (child == 0) {
    OutputFile file(path);
    file.open();
    file.write(std::string(3 << 20, 'x'));
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(countFiles(), 1u);
}
} // namespace
