//===- DeviceModel.cpp - How fast a device computes -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/DeviceModel.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

using namespace zpp;

namespace {
/// The dense peak in 16 bits, in TFLOP/s, and memory in GB/s.
struct DataSheet {
  const char *name;
  double tflops, gbyte;
};
} // namespace

static const DataSheet kDataSheets[] = {
    {"v100", 125, 900},    {"a100", 312, 2039},    {"h100", 989, 3350},
    {"h200", 989, 4800},   {"b200", 2250, 8000},   {"l40s", 362, 864},
    {"mi250x", 383, 3277}, {"mi300x", 1307, 5300},
};

/// Reads "NUMBERunit" and moves `text` after it; 0 on failure.
static double readNumber(const char *&text, const std::string &unit) {
  char *end = nullptr;
  double number = std::strtod(text, &end);
  if (end == text || !(number > 0) || std::isinf(number) ||
      std::string(end).compare(0, unit.size(), unit) != 0)
    return 0;
  text = end + unit.size();
  return number;
}

std::optional<DeviceModel> DeviceModel::parse(const std::string &spec,
                                              std::string &error) {
  double tflops = 0, gbyte = 0;
  std::string names;
  for (const DataSheet &sheet : kDataSheets) {
    names += std::string(names.empty() ? "" : ", ") + sheet.name;
    if (spec == sheet.name) {
      tflops = sheet.tflops;
      gbyte = sheet.gbyte;
    }
  }
  if (tflops == 0) {
    const char *text = spec.c_str();
    tflops = readNumber(text, "tflops");
    bool hasComma = *text == ',';
    text += hasComma;
    gbyte = tflops > 0 && hasComma ? readNumber(text, "gbyte") : 0;
    if (gbyte == 0 || *text != '\0') {
      error = "expected a device (" + names +
              ") or NUMBERtflops,NUMBERgbyte, but got '" + spec + "'";
      return std::nullopt;
    }
  }
  DeviceModel model;
  model.flopsPerUsec = tflops * 1e6 * kProductEfficiency;
  model.bytesPerUsec = gbyte * 1e3 * kMemoryEfficiency;
  return model;
}

DeviceModel DeviceModel::getUsual() {
  std::string error;
  return *parse("h100", error);
}

double DeviceModel::getProductUsec(double flops, int64_t bits,
                                   double bytes) const {
  double usec = flops / flopsPerUsec * (bits > 16 ? kWideFactor : 1);
  return std::max(usec, getMemoryUsec(bytes));
}

double DeviceModel::getMemoryUsec(double bytes) const {
  return bytes / bytesPerUsec;
}
