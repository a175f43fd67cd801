//===- Trace.cpp - When operations ran ------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Trace.h"

#include "Text.h"
#include "zpp/Support/OutputFile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>

using namespace zpp;
using namespace zpp::rt;

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
  OutputFile file(path);
  auto getStatus = [&](const std::string &cause) {
    return cause.empty() ? Status()
                         : Status{ZPP_RT_SYSTEM_ERROR,
                                  "cannot write " + quote(path) + ": " + cause};
  };
  if (std::string cause = file.open(); !cause.empty())
    return getStatus(cause);
  // A row for each stream of each rank.
  std::map<std::pair<int64_t, std::string>, size_t> rows;
  for (const Slice &slice : slices)
    rows.try_emplace({slice.rank, slice.stream});
  size_t numRows = 0;
  std::string header = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  for (auto &[key, row] : rows) {
    row = numRows++;
    std::string name = describe(mesh, key.first);
    if (!key.second.empty())
      name += ": " + key.second;
    header += row == 0 ? "\n" : ",\n";
    header +=
        "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 0, \"tid\": " +
        std::to_string(row) + ", \"args\": {\"name\": " + escape(name) + "}}";
  }
  if (std::string cause = file.write(header); !cause.empty())
    return getStatus(cause);

  auto usec = [](Clock::duration duration) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.3f",
                  std::chrono::duration<double, std::micro>(duration).count());
    return std::string(buffer);
  };
  for (const Slice &slice : slices) {
    std::string event = ",\n{\"ph\": \"X\", \"name\": " + escape(slice.name);
    event += ", \"cat\": " + escape(slice.entrypoint);
    event += ", \"pid\": 0, \"tid\": " +
             std::to_string(rows.at({slice.rank, slice.stream}));
    event += ", \"ts\": " + usec(slice.begin - since);
    event += ", \"dur\": " + usec(slice.end - slice.begin);
    event +=
        ", \"args\": {\"input_bytes\": " + std::to_string(slice.inputBytes);
    event += ", \"output_bytes\": " + std::to_string(slice.outputBytes);
    if (!slice.along.empty())
      event += ", \"along\": " + escape(slice.along);
    event += "}}";
    if (std::string cause = file.write(event); !cause.empty())
      return getStatus(cause);
  }
  file.write("\n]}\n");
  return getStatus(file.commit());
}
