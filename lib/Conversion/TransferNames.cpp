//===- TransferNames.cpp - What profilers call transfers ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TransferNames.h"

#include "zpp/Analysis/Collectives.h"
#include "zpp/Analysis/Location.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// Returns the name that the producer of the step has given, or the place.
static std::string getName(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  return describeLocation(loc);
}

static std::string formatBytes(int64_t bytes) {
  static constexpr StringLiteral units[] = {"B", "kB", "MB", "GB", "TB"};
  double number = static_cast<double>(bytes);
  size_t unit = 0;
  for (; number >= 1000 && unit + 1 < std::size(units); ++unit)
    number /= 1000;
  return llvm::formatv(unit == 0 ? "{0:F0} {1}" : "{0:F1} {1}", number,
                       units[unit]);
}

/// Returns the part about the bytes and formats that `function` sends: ", 12.6
/// MB over node, 1.2 MB over gpu, i8:i4".
static std::string describeSent(FunctionOpInterface function) {
  SmallVector<std::pair<std::string, int64_t>> tiers;
  llvm::SmallSetVector<StringRef, 2> formats;
  function->walk([&](Operation *op) {
    for (NamedAttribute attr : op->getAttrs())
      if (auto quant = dyn_cast<QuantAttr>(attr.getValue()))
        formats.insert(stringifyWireFormatKind(quant.getFormat()));
    auto exchange = dyn_cast<CollectiveOpInterface>(op);
    if (!exchange)
      return;
    Mesh mesh = exchange.getMeshAttr().getMesh();
    std::optional<CollectiveView> view = getCollective(op, mesh);
    if (!view)
      return;
    std::vector<int64_t> sent = view->getSentBytes(mesh);
    for (auto [axis, bytes] : llvm::zip_equal(mesh.getAxes(), sent)) {
      auto *tier = llvm::find_if(tiers, [&, &axis = axis](auto &each) {
        return each.first == axis.name;
      });
      if (tier == tiers.end())
        tier = &tiers.emplace_back(axis.name, 0);
      tier->second = addSaturating(tier->second, bytes);
    }
  });
  std::string text;
  for (auto &[name, bytes] : tiers)
    if (bytes > 0)
      text += ", " + formatBytes(bytes) + " over " + name;
  if (!formats.empty())
    text += ", " + llvm::join(formats, ":");
  return text;
}

std::string zpp::describeTransfer(StartOp start, FunctionOpInterface function) {
  SmallVector<Origin> origins = getStartedOrigins(start);
  llvm::SmallSetVector<int64_t, 4> ids;
  for (const Origin &origin : origins)
    ids.insert(origin.id);
  std::string text;
  if (!origins.empty() && origins.front().kind)
    text = (getKindName(origins.front().kind) + " ").str();
  text += getName(start.getLoc());
  if (ids.size() > 1)
    text += " and " + std::to_string(ids.size() - 1) + " more";
  return text + describeSent(function);
}
