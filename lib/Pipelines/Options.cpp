//===- Options.cpp - The meaning of the zeropp pipeline's options ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"

using namespace zpp;
using llvm::StringRef;
using llvm::Twine;

using Number = ZeroPPOptions::Option<int64_t>;

/// Whether each of several hops sends gradients in 4 bits. Trainings with the
/// paper's formats ended nearer to FSDP without rotation (docs/losses.md).
static bool hasShortHopsOnly(const ZeroPPOptions &options) {
  llvm::SmallVector<StringRef> formats;
  StringRef(options.gradients).split(formats, ':');
  return formats.size() > 1 && llvm::all_equal(formats) &&
         formats.front() == "i4";
}

Settings zpp::getSettings(const ZeroPPOptions &options) {
  const ZeroPPOptions::Tuning &tuning = options.tuning;
  Settings settings;
  settings.isCuda = options.target == Target::Cuda;
  settings.block = tuning.block;
  settings.rotate = tuning.rotate;
  if (settings.rotate == kDefaultRotate)
    settings.rotate = hasShortHopsOnly(options) ? 0 : 32;
  settings.coalesceBytes = tuning.coalesceBytes;
  if (settings.coalesceBytes == kDefaultCoalesceBytes)
    settings.coalesceBytes = settings.isCuda ? 4 << 20 : 0;
  settings.prefetchBytes = tuning.prefetchBytes;
  return settings;
}

bool zpp::accumulates(const ZeroPPOptions &options) {
  return !options.accumulate.empty() && options.accumulate != "none";
}

bool zpp::sendsDifferences(const ZeroPPOptions &options) {
  return StringRef(options.weights).ends_with(":delta");
}

bool zpp::roundsOthers(const ZeroPPOptions &options) {
  return options.updated != "none" || options.moments != "none" ||
         options.exchanges != "none";
}

llvm::SmallVector<std::string> zpp::findErrors(const ZeroPPOptions &options) {
  llvm::SmallVector<std::string> errors;
  auto add = [&](const Twine &error) { errors.push_back(error.str()); };
  const std::string &weights = options.weights;
  if (StringRef(weights).contains(':') && !sendsDifferences(options))
    add("expected weights as none, i8, i4, i8:delta or i4:delta, but got '" +
        weights + "'");
  if (options.moments != "none" && options.moments != "i8")
    add("expected moments as none or i8, but got '" + options.moments + "'");
  if (options.exchanges != "none" && options.exchanges != "i8")
    add("expected exchanges as none or i8, but got '" + options.exchanges +
        "'");
  StringRef leaveOut = "; write secondary=gpu, the name of a tier, or leave "
                       "secondary out";
  if (options.secondary == "none") {
    if (sendsDifferences(options))
      add("expected a secondary partition with weights=" + weights +
          ", which is what differences are taken to, but got secondary=none" +
          leaveOut);
    if (options.frozen == Frozen::Keep)
      add("expected a secondary partition with frozen=keep, which is what is "
          "kept, but got secondary=none" +
          leaveOut);
  }
  Settings settings = getSettings(options);
  for (auto [bytes, least, what] :
       {std::tuple{settings.coalesceBytes, int64_t(0), "coalesce"},
        std::tuple{settings.prefetchBytes, kDefaultPrefetchBytes, "prefetch"},
        std::tuple{options.memoryLimit.getValue(), int64_t(0), "fit into"}})
    if (bytes < least)
      add("expected a number of bytes to " + Twine(what) + ", but got " +
          Twine(bytes));
  return errors;
}

/// True if `option` is given, and is not the default.
static bool isWish(const Number &option) {
  return option.hasValue() && !option.getDefault().compare(option.getValue());
}

llvm::SmallVector<std::string> zpp::findWarnings(const ZeroPPOptions &options) {
  llvm::SmallVector<std::string> warnings;
  bool isFrozen = options.frozen == Frozen::Keep;
  bool hasState = isFrozen || sendsDifferences(options);
  if (options.start == KeptWeights::Frozen && !isFrozen)
    warnings.push_back("start=frozen has no effect with frozen=none; write "
                       "frozen=keep, or leave start out");
  if (options.start == KeptWeights::All && !hasState)
    warnings.push_back(
        "start=all has no effect, because the step keeps no state; write "
        "weights=i4:delta or frozen=keep, or leave start out");
  if (options.reduced.hasValue() && options.reduced != "none" &&
      options.gradients == "none")
    warnings.push_back("reduced=" + options.reduced +
                       " has no effect with gradients=none; write "
                       "gradients=i8:i4, or leave reduced out");
  if (accumulates(options) && options.gradients == "none")
    warnings.push_back("accumulate=" + options.accumulate +
                       " has no effect with gradients=none; write "
                       "gradients=none:none, for hops that round nothing, or "
                       "leave accumulate out");
  const ZeroPPOptions::Tuning &tuning = options.tuning;
  if (tuning.rotate.hasValue() && tuning.rotate != 32 &&
      options.gradients == "none")
    warnings.push_back(
        "tuning.rotate=" + std::to_string(tuning.rotate) +
        " has no effect with gradients=none; write gradients=i8:i4, or leave "
        "tuning.rotate out");
  if (isWish(tuning.block) && options.weights == "none" &&
      options.gradients == "none" && !roundsOthers(options))
    warnings.push_back("tuning.block=" + std::to_string(tuning.block) +
                       " has no effect, because nothing has a format; write "
                       "weights=i8 or gradients=i8:i4, or leave tuning.block "
                       "out");
  if (options.target == Target::Portable && tuning.prefetchBytes.hasValue())
    warnings.push_back("tuning.prefetch-bytes has no effect with "
                       "target=portable, where XLA orders collectives; write "
                       "target=cuda, or leave it out");
  return warnings;
}
