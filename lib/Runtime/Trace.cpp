//===- Trace.cpp - When operations ran ------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Trace.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>

using namespace zpp;
using namespace zpp::rt;

/// As a JSON string.
static std::string escape(const std::string &text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof(buffer), "\\u%04x", c);
      result += buffer;
    } else {
      result += c;
    }
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
         << ", \"ts\": " << usec(slice.begin - start)
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
