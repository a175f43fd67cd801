//===- Trace.cpp - When operations ran ------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string_view>

using namespace zpp;
using namespace zpp::rt;

/// The bytes of the UTF-8 character that `text`, which is not empty, starts
/// with; 0 if it starts with none.
static size_t getCharacterBytes(std::string_view text) {
  auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = at(0);
  if (first < 0x80)
    return 1;
  size_t bytes = first < 0xc2   ? 0
                 : first < 0xe0 ? 2
                 : first < 0xf0 ? 3
                 : first < 0xf5 ? 4
                                : 0;
  if (bytes == 0 || text.size() < bytes)
    return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((at(i) & 0xc0) != 0x80)
      return 0;
  // An overlong encoding, a surrogate, or beyond U+10FFFF.
  bool isNone =
      (first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) >= 0xa0) ||
      (first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) >= 0x90);
  return isNone ? 0 : bytes;
}

/// Returns `text` as a JSON string. JSON is UTF-8, but names may be anything: a
/// byte that is not UTF-8 becomes U+FFFD.
static std::string escape(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    char c = text.front();
    size_t bytes = getCharacterBytes(text);
    if (bytes == 0) {
      result += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (bytes == 1 && c < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof(buffer), "\\u%04x", c);
      result += buffer;
    } else {
      result += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return result + '"';
}

/// "rank 5 (node 1, gpu 1)"
static std::string describe(const Mesh &mesh, int64_t rank) {
  std::string text = "rank " + std::to_string(rank);
  for (size_t i = 0; i < mesh.getAxes().size(); ++i) {
    int64_t coordinate = mesh.getCoordinate(rank, mesh.getAxis(i));
    text += (i == 0 ? " (" : ", ") + mesh.getAxes()[i].name + " " +
            std::to_string(coordinate);
  }
  return text + ")";
}

void Trace::record(bool on) {
  std::lock_guard<std::mutex> lock(mutex);
  recording = on;
  if (!on)
    return;
  slices.clear();
  since = Clock::now();
  ++numRecordings;
}

void Trace::add(Slice slice) {
  std::lock_guard<std::mutex> lock(mutex);
  if (slice.begin >= since)
    slices.push_back(std::move(slice));
}

Status Trace::write(const Mesh &mesh, const std::string &path) {
  std::lock_guard<std::mutex> lock(mutex);
  // A row for each stream of each rank.
  std::map<std::pair<int64_t, std::string>, size_t> rows;
  for (const Slice &slice : slices)
    rows.try_emplace({slice.rank, slice.stream});
  size_t numRows = 0;
  std::ofstream file(path);
  file << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  for (auto &[key, row] : rows) {
    row = numRows++;
    std::string name = describe(mesh, key.first);
    if (!key.second.empty())
      name += ": " + key.second;
    file << (row == 0 ? "\n" : ",\n")
         << "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 0, \"tid\": "
         << row << ", \"args\": {\"name\": " << escape(name) << "}}";
  }

  auto usec = [](Clock::duration duration) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.3f",
                  std::chrono::duration<double, std::micro>(duration).count());
    return std::string(buffer);
  };
  for (const Slice &slice : slices)
    file << ",\n{\"ph\": \"X\", \"name\": " << escape(slice.name)
         << ", \"cat\": " << escape(slice.entrypoint)
         << ", \"pid\": 0, \"tid\": " << rows.at({slice.rank, slice.stream})
         << ", \"ts\": " << usec(slice.begin - since)
         << ", \"dur\": " << usec(slice.end - slice.begin)
         << ", \"args\": {\"input_bytes\": " << slice.inputBytes
         << ", \"output_bytes\": " << slice.outputBytes << "}}";
  file << "\n]}\n";
  file.close();
  if (!file)
    return {ZPP_RT_SYSTEM_ERROR, "cannot write the trace to " + quote(path) +
                                     ": " + std::strerror(errno)};
  return {};
}
