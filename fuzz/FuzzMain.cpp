//===- FuzzMain.cpp - A small fuzzer for the targets of libFuzzer ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For the run in `make test`, with any compiler: the files of the corpus as
// they are, then with bytes changed, dropped, doubled and spliced. `make fuzz`
// links libFuzzer instead, which also looks where inputs lead.
//
//===----------------------------------------------------------------------===//

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const std::string &input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(input.data()),
                         input.size());
}

int main(int argc, char **argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " RUNS FOLDER\n";
    return 1;
  }
  std::vector<std::filesystem::path> paths;
  for (const auto &entry : std::filesystem::directory_iterator(argv[2]))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto &path : paths) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    corpus.push_back(text.str());
    run(corpus.back());
  }
  if (corpus.empty()) {
    std::cerr << "expected files in " << argv[2] << ", but got none\n";
    return 1;
  }
  std::mt19937_64 engine(1);
  auto below = [&](size_t limit) { return engine() % limit; };
  long runs = std::atol(argv[1]);
  for (long i = 0; i < runs; ++i) {
    std::string input = corpus[below(corpus.size())];
    for (size_t changes = 1 + below(4); changes > 0; --changes) {
      size_t position = below(input.size() + 1);
      const std::string &other = corpus[below(corpus.size())];
      switch (below(5)) {
      case 0:
        if (position < input.size())
          input[position] = static_cast<char>(below(256));
        break;
      case 1:
        input.erase(position, 1 + below(4));
        break;
      case 2:
        input.insert(position, input.substr(position, below(16)));
        break;
      case 3:
        input.insert(position, 1, "0123456789,:=()-'"[below(17)]);
        break;
      default:
        input = input.substr(0, position) +
                other.substr(std::min(position, other.size()));
        break;
      }
    }
    run(input);
  }
  std::cout << corpus.size() << " files and " << runs << " changed ones\n";
  return 0;
}
