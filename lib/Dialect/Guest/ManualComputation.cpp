//===- ManualComputation.cpp - Shardy's manual computations ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/ManualComputation.h"

#include "mlir/AsmParser/AsmParser.h"
#include "zpp/Dialect/Guest/Branches.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace zpp;

static constexpr llvm::StringLiteral kInShardings = "in_shardings";
static constexpr llvm::StringLiteral kOutShardings = "out_shardings";
static constexpr llvm::StringLiteral kManualAxes = "manual_axes";
/// The text around a list of shardings.
static constexpr llvm::StringLiteral kListBegin = "#sdy.sharding_per_value<[";
static constexpr llvm::StringLiteral kListEnd = "]>";

/// The shardings in `attr`, or nullopt if it is not a list of shardings.
static std::optional<SmallVector<std::string>> readShardings(Attribute attr) {
  if (!attr)
    return std::nullopt;
  std::string text = toText(attr);
  StringRef rest = text;
  if (!rest.consume_front(kListBegin) || !rest.consume_back(kListEnd))
    return std::nullopt;
  SmallVector<std::string> shardings;
  int64_t depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < rest.size(); ++i) {
    depth += llvm::is_contained("<[{(", rest[i]);
    depth -= llvm::is_contained(">]})", rest[i]);
    if (depth == 0 && rest[i] == ',') {
      shardings.push_back(rest.slice(begin, i).trim().str());
      begin = i + 1;
    }
  }
  if (!rest.trim().empty())
    shardings.push_back(rest.substr(begin).trim().str());
  return shardings;
}

/// Returns the shardings in the attribute `name` of a manual computation.
static SmallVector<std::string> getShardings(Operation *manual,
                                             StringRef name) {
  return *readShardings(manual->getAttr(name));
}

SmallVector<std::string> zpp::getShardingDims(Attribute attribute) {
  SmallVector<std::string> shardings;
  if (!attribute)
    return shardings;
  std::string text = toText(attribute);
  llvm::Regex regex("<@[^,>]*, ([^>]*)>");
  SmallVector<StringRef, 2> match;
  for (StringRef rest = text; regex.match(rest, &match);
       rest = rest.substr(match[0].end() - rest.begin()))
    shardings.push_back(match[1].str());
  return shardings;
}

const ManualComputations::Shardings &ManualComputations::get(Operation *manual,
                                                             StringRef name) {
  Attribute attr = manual->getAttr(name);
  auto [place, isNew] = lists.try_emplace(attr);
  if (isNew)
    place->second = readShardings(attr);
  return place->second;
}

bool ManualComputations::contains(Operation *op) {
  if (!isNamed(op, "sdy.manual_computation") || op->getNumRegions() != 1 ||
      !op->getRegion(0).hasOneBlock() || op->getRegion(0).front().empty() ||
      op->getRegion(0).getNumArguments() != op->getNumOperands() ||
      !isNamed(&op->getRegion(0).front().back(), guest::kSdyReturn) ||
      op->getRegion(0).front().back().getNumOperands() != op->getNumResults() ||
      !op->getAttr(kManualAxes))
    return false;
  for (auto [name, count] :
       {std::pair(StringRef(kInShardings), op->getNumOperands()),
        std::pair(StringRef(kOutShardings), op->getNumResults())}) {
    if (!op->getAttr(name))
      return false;
    const Shardings &shardings = get(op, name);
    if (!shardings || shardings->size() != count)
      return false;
  }
  return true;
}

ArrayRef<std::string>
ManualComputations::getOperandShardings(Operation *manual) {
  return *get(manual, kInShardings);
}

ArrayRef<std::string>
ManualComputations::getResultShardings(Operation *manual) {
  return *get(manual, kOutShardings);
}

bool ManualComputations::namesMesh(Operation *manual) {
  auto [place, isNew] = meshes.try_emplace(manual->getAttrDictionary());
  if (isNew)
    place->second = !getSharedNothingSharding(manual).empty();
  return place->second;
}

bool zpp::isManualComputation(Operation *op) {
  return ManualComputations().contains(op);
}

SmallVector<std::string> zpp::getOperandShardings(Operation *manual) {
  return getShardings(manual, kInShardings);
}

std::string zpp::getSharedNothingSharding(Operation *manual) {
  std::string mesh;
  for (StringRef name : {kInShardings, kOutShardings}) {
    SmallVector<std::string> shardings = getShardings(manual, name);
    for (const std::string &sharding : shardings) {
      SmallVector<StringRef> match;
      if (mesh.empty() && llvm::Regex("^<(@[^,]+), ").match(sharding, &match))
        mesh = match[1].str();
    }
  }
  std::string axes = toText(manual->getAttr(kManualAxes));
  size_t begin = axes.find('{'), end = axes.find('}');
  if (mesh.empty() || begin == std::string::npos || end == std::string::npos)
    return "";
  return "<" + mesh + ", [" + axes.substr(begin, end + 1 - begin) + "]>";
}

DictionaryAttr zpp::getSharedNothingAttributes(Operation *manual) {
  MLIRContext *context = manual->getContext();
  Attribute sharding = parseAttribute(
      "#sdy.sharding" + getSharedNothingSharding(manual), context);
  return DictionaryAttr::get(
      context,
      NamedAttribute(StringAttr::get(context, "sdy.sharding"), sharding));
}

ManualView zpp::extendManualComputation(Operation *manual, ValueRange operands,
                                        ValueRange results, int64_t devices) {
  std::string sharding = getSharedNothingSharding(manual);
  for (auto [name, count] :
       {std::pair(StringRef(kInShardings), operands.size()),
        std::pair(StringRef(kOutShardings), results.size())}) {
    SmallVector<std::string> shardings = getShardings(manual, name);
    shardings.append(count, sharding);
    manual->setAttr(
        name, parseAttribute(
                  (kListBegin + llvm::join(shardings, ", ") + kListEnd).str(),
                  manual->getContext()));
  }
  SmallVector<Type> types;
  for (Value result : results) {
    RankedTensorType local = getTensorType(result);
    types.push_back(local.clone({local.getDimSize(0) * devices}));
  }
  ManualView extended(extendOp(manual, operands, types));
  Block &body = extended.getBody();
  for (Value operand : operands) {
    RankedTensorType global = getTensorType(operand);
    body.addArgument(global.clone({global.getDimSize(0) / devices}),
                     operand.getLoc());
  }
  body.back().insertOperands(body.back().getNumOperands(), results);
  return extended;
}
