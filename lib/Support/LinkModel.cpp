//===- LinkModel.cpp - How long communication takes -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/LinkModel.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

using namespace zpp;

LinkModel::LinkModel(const Mesh &mesh) {
  double speed = 4e5;
  for (size_t axis = mesh.getAxes().size(); axis-- > 0; speed /= 10)
    rates.insert(rates.begin(), {speed, speed});
  latencyUsec.assign(rates.size(), kExchangeUsec);
}

namespace {
struct Unit {
  const char *name;
  double factor;
};
} // namespace

/// Parses a number and one of `units`, as "50gbit"; negative on failure.
static double parseQuantity(const std::string &text,
                            std::initializer_list<Unit> units) {
  char *end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && number >= 0 && !std::isinf(number))
    for (const Unit &unit : units)
      if (std::string(end) == unit.name)
        return number * unit.factor;
  return -1;
}

/// Returns bytes per microsecond.
static double parseSpeed(const std::string &text) {
  return parseQuantity(text, {{"gbit", 125}, {"gbyte", 1e3}});
}

std::optional<LinkModel> LinkModel::parse(const std::string &spec,
                                          const Mesh &mesh,
                                          std::string &error) {
  LinkModel model(mesh);
  std::vector<bool> isGiven(mesh.getAxes().size(), false);
  for (size_t begin = 0; begin <= spec.size();) {
    size_t end = std::min(spec.find(',', begin), spec.size());
    std::string item = spec.substr(begin, end - begin);
    begin = end + 1;
    size_t equals = item.find('=');
    double speed = 0, ring = 0, latency = kExchangeUsec;
    if (equals != std::string::npos) {
      std::string value = item.substr(equals + 1);
      // A number may have a sign in its exponent.
      size_t plus = value.rfind('+');
      if (plus != std::string::npos && value.back() == 's') {
        latency =
            parseQuantity(value.substr(plus + 1), {{"us", 1}, {"ms", 1e3}});
        value.resize(plus);
      }
      size_t slash = std::min(value.find('/'), value.size());
      speed = parseSpeed(value.substr(0, slash));
      ring =
          slash == value.size() ? speed : parseSpeed(value.substr(slash + 1));
    }
    if (speed <= 0 || ring <= 0 || latency < 0) {
      error = "expected TIER=NUMBERgbit or TIER=NUMBERgbyte, but got '" + item +
              "'";
      return std::nullopt;
    }
    int64_t axis = mesh.findAxis(item.substr(0, equals));
    if (axis < 0 || isGiven[axis]) {
      error = "expected each tier of " + mesh.str() + " once, but got '" +
              item.substr(0, equals) + "'";
      return std::nullopt;
    }
    isGiven[axis] = true;
    model.rates[axis] = {speed, ring};
    model.latencyUsec[axis] = latency;
  }
  for (size_t axis = 0; axis < isGiven.size(); ++axis)
    if (!isGiven[axis]) {
      error = "expected a link for tier '" + mesh.getAxes()[axis].name +
              "', but got none";
      return std::nullopt;
    }
  return model;
}

double LinkModel::getExchangeUsec(const std::vector<int64_t> &sent) const {
  double usec = 0, latency = kExchangeUsec;
  for (size_t axis = 0; axis < sent.size(); ++axis) {
    usec =
        std::max(usec, static_cast<double>(sent[axis]) / rates[axis].exchange);
    if (sent[axis] > 0)
      latency = std::max(latency, latencyUsec[axis]);
  }
  return latency + usec;
}

bool LinkModel::isMostlyLatency(const std::vector<int64_t> &sent) const {
  std::vector<int64_t> least;
  for (int64_t bytes : sent)
    least.push_back(std::min<int64_t>(bytes, 1));
  return getExchangeUsec(sent) < 2 * getExchangeUsec(least);
}

double LinkModel::getRingUsec(const std::vector<int64_t> &sizes, int64_t bytes,
                              bool isTree) const {
  int64_t devices = 1;
  for (int64_t size : sizes)
    devices *= size;
  if (devices == 1)
    return 0;
  double steps = static_cast<double>(devices - 1), usec = 0;
  bool isTwoNodes = devices == 2 * sizes.back();
  double crossings =
      isTree && isTwoNodes ? static_cast<double>(devices) / 2 : steps;
  double faster = static_cast<double>(devices), nodes = 1;
  double latency = kExchangeUsec;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    // The last axis is within a node.
    bool isBetween = axis + 1 < sizes.size();
    // A ring crosses the links between two nodes once, whatever their number of
    // devices, which share these links.
    faster /= static_cast<double>(sizes[axis]);
    if (sizes[axis] > 1) {
      usec = std::max(usec, (isBetween ? crossings : steps) *
                                static_cast<double>(bytes) / faster /
                                rates[axis].ring);
      latency = std::max(latency, latencyUsec[axis]);
    }
    if (isBetween)
      nodes *= static_cast<double>(sizes[axis]);
  }
  double hops = nodes - 1;
  double least = std::numeric_limits<double>::infinity();
  for (const Protocol &protocol : kProtocols)
    least = std::min(least, usec / protocol.data + hops * protocol.hopUsec +
                                (steps - hops) * protocol.stepUsec);
  return latency + least;
}

double LinkModel::getCollectiveUsec(const Mesh &mesh, CollectiveKind kind,
                                    const std::vector<AxisRef> &refs,
                                    int64_t bytes) const {
  switch (kind) {
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
    return getRingUsec(mesh.getSizes(refs), bytes);
  case CollectiveKind::AllReduce:
    return 2 * getRingUsec(mesh.getSizes(refs), bytes / numDevices(refs),
                           /*isTree=*/true);
  default:
    return getExchangeUsec(getSentBytes(mesh, kind, refs, bytes));
  }
}

double LinkModel::getHopsUsec(const Mesh &mesh,
                              const std::vector<AxisRef> &refs,
                              int64_t bytes) const {
  std::vector<int64_t> sizes = mesh.getSizes(refs);
  double latencies = 0, slowest = 0;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    std::vector<int64_t> along(sizes.size(), 1);
    along[axis] = sizes[axis];
    double latency = getRingUsec(along, 0);
    latencies += latency;
    slowest = std::max(slowest, getRingUsec(along, bytes) - latency);
    bytes *= sizes[axis];
  }
  return latencies + slowest;
}

double LinkModel::getKernelUsec(int64_t bytes) {
  return kKernelUsec + static_cast<double>(bytes) / kMemoryBytesPerUsec;
}

int64_t zpp::chooseStages(const std::vector<double> &hopUsec, int64_t most) {
  // Each stage has all latencies; the rest of the time is divided among stages.
  auto getTotal = [&](int64_t stages) {
    double once = 0, slowest = 0;
    for (double usec : hopUsec) {
      double rest = std::max(0.0, usec - LinkModel::kExchangeUsec);
      double part = LinkModel::kExchangeUsec + rest / stages;
      once += part;
      slowest = std::max(slowest, part);
    }
    return once + (stages - 1) * slowest;
  };
  int64_t best = 1;
  for (int64_t stages = 2; stages <= most; ++stages)
    // More stages must gain more than 3 %.
    if (getTotal(stages) < 0.97 * getTotal(best))
      best = stages;
  return best;
}
