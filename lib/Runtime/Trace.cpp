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

void Trace::add(Slice slice) {
  std::lock_guard<std::mutex> lock(mutex);
  slices.push_back(std::move(slice));
}

Status Trace::write(const Mesh &mesh, const std::string &path) {
  std::ofstream file(path);
  file << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  for (int64_t rank = 0, e = mesh.numDevices(); rank < e; ++rank)
    file << (rank == 0 ? "\n" : ",\n")
         << "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 0, \"tid\": "
         << rank << ", \"args\": {\"name\": " << escape(describe(mesh, rank))
         << "}}";

  auto usec = [](Clock::duration duration) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.3f",
                  std::chrono::duration<double, std::micro>(duration).count());
    return std::string(buffer);
  };
  std::lock_guard<std::mutex> lock(mutex);
  for (const Slice &slice : slices)
    file << ",\n{\"ph\": \"X\", \"name\": " << escape(slice.name)
         << ", \"cat\": " << escape(slice.entrypoint)
         << ", \"pid\": 0, \"tid\": " << slice.rank
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
