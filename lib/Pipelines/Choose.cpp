//===- Choose.cpp - Choices between rewrites of a step --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a step takes in time and memory is known once it is rewritten. Where
// that decides, candidates for the rest of the pipeline run on copies of the
// module, and the best one takes its place.
//
//===----------------------------------------------------------------------===//

#include "Choose.h"

#include "Options.h"
#include "mlir/IR/Threading.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Support/OutputFile.h"
#include "zpp/Transforms/Report.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace zpp;

/// Each technique rounds, so a plan with more of them must be faster by this
/// part.
static constexpr double kPlanSaves = 0.02;
/// Nobody asked for whole weights: they must save this part of a step, and fit
/// into this part of the memory.
static constexpr double kWholeSaves = 0.05, kWholeFits = 0.9;

namespace {
/// A way to run the step.
struct Candidate {
  std::string name;
  /// Options in place of the given ones: "weights=none secondary=none".
  std::string words;
  /// The module that it makes, the remarks of passes, and the prediction.
  OwningOpRef<ModuleOp> module = nullptr;
  HeldRemarks remarks = {};
  report::Report report = {};

  double getUsec() const { return report.time->usec; }
  int64_t getPeakBytes() const { return report.time->peakBytes; }
};
/// The preferred ones first.
using Candidates = std::vector<Candidate>;

enum : unsigned {
  kWeights = 1,
  kSecondary = 2,
  kGradients = 4,
  kDifferences = 8,
  kOncePerUpdate = 16,
  kAll = kWeights | kSecondary | kGradients
};
} // namespace

static constexpr std::pair<StringLiteral, unsigned> kPlans[] = {
    {"FSDP", 0},
    {"qwZ", kWeights},
    {"hpZ", kSecondary},
    {"qgZ", kGradients},
    {"qwZ + hpZ", kWeights | kSecondary},
    {"ZeRO++", kAll},
    {"differences", kAll | kDifferences},
    {"ZeRO++, once per update", kAll | kOncePerUpdate},
    {"differences, once per update", kAll | kDifferences | kOncePerUpdate},
};

/// Returns the group that gradients are summed within: where none is named,
/// that of secondary partitions.
static StringRef getGroup(const ZeroPPOptions &options) {
  for (const auto *given : {&options.accumulate, &options.secondary})
    if (!given->empty())
      return given->getValue();
  StringRef fastest = StringRef(options.mesh).rsplit(',').second;
  return fastest.empty() ? "none" : fastest.split(':').first;
}

/// Returns the step as it is written, and all sets of techniques that `options`
/// allow.
static Candidates getPlans(const ZeroPPOptions &options) {
  StringRef group = getGroup(options);
  unsigned allowed = (options.weights != "none" ? kWeights : 0) |
                     (options.secondary != "none" ? kSecondary : 0) |
                     (options.gradients != "none" ? kGradients : 0) |
                     (sendsDifferences(options) ? kDifferences : 0) |
                     (group != "none" ? kOncePerUpdate : 0);
  Candidates plans;
  for (auto [name, on] : kPlans) {
    if (on & ~allowed)
      continue;
    std::string words =
        "accumulate=" + (on & kOncePerUpdate ? group : "none").str();
    if (!(on & kWeights))
      words += " weights=none";
    else if (sendsDifferences(options) && !(on & kDifferences))
      words += " weights=i8";
    if (!(on & kSecondary))
      words += " secondary=none frozen=none";
    if (!(on & kGradients))
      words += " gradients=none reduced=none";
    // Tuning of what is off would be a wish without effect.
    if (!(on & kGradients) && options.tuning.rotate != kDefaultRotate)
      words += " tuning.rotate=32";
    if (!(on & (kWeights | kGradients)) && options.tuning.block != 128 &&
        !roundsOthers(options))
      words += " tuning.block=128";
    plans.push_back({name.str(), words});
  }
  return plans;
}

/// Takes out plans that send as much once per update as the others do: the step
/// has no micro-batches.
static void removeEqualPlans(Candidates &plans) {
  llvm::erase_if(plans, [&](const Candidate &plan) {
    size_t comma = plan.name.find(',');
    return comma != std::string::npos &&
           llvm::any_of(plans, [&](const Candidate &other) {
             return other.name == plan.name.substr(0, comma) &&
                    other.report.after == plan.report.after;
           });
  });
}

/// Returns the first of `candidates` that needs at most `limit` bytes and takes
/// at most `margin` longer than the fastest of these. Where none fits, the one
/// that needs the least.
static Candidate &choose(Candidates &candidates, int64_t limit, double margin) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Candidate &candidate : candidates)
    if (candidate.getPeakBytes() <= limit)
      fastest = std::min(fastest, candidate.getUsec());
  for (Candidate &candidate : candidates)
    if (candidate.getPeakBytes() <= limit &&
        candidate.getUsec() <= fastest * (1 + margin))
      return candidate;
  return *llvm::min_element(candidates,
                            [](const Candidate &a, const Candidate &b) {
                              return a.getPeakBytes() < b.getPeakBytes();
                            });
}

static std::string formatGiB(int64_t bytes) {
  return llvm::formatv("{0:F2} GiB", static_cast<double>(bytes) / 0x1p30);
}

/// Says why `best` was chosen.
static std::string explain(const Candidates &candidates, const Candidate &best,
                           int64_t limit) {
  const Candidate &first = candidates.front();
  std::string text = llvm::formatv(
      "{0}: predicted {1} per step, of which {2} are exposed communication",
      best.name, report::formatUsec(best.getUsec()),
      report::formatUsec(best.report.time->exposedUsec));
  if (&best != &first && first.getPeakBytes() <= limit)
    text += llvm::formatv("; {0} {1}, {2:F2}x", first.name,
                          report::formatUsec(first.getUsec()),
                          first.getUsec() / best.getUsec());
  text += "; " + formatGiB(best.getPeakBytes()) + " at the peak";
  if (best.getPeakBytes() > limit)
    return text + "; nothing fits into " + formatGiB(limit) +
           ", and this needs the least";
  for (const Candidate &other : candidates)
    if (other.getPeakBytes() > limit && other.getUsec() < best.getUsec())
      text += llvm::formatv("; {0} would take {1}, but {2} of {3}", other.name,
                            report::formatUsec(other.getUsec()),
                            formatGiB(other.getPeakBytes()), formatGiB(limit));
  return text;
}

namespace {
class ChoosePass : public PassWrapper<ChoosePass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ChoosePass)

  ChoosePass() = default;
  ChoosePass(const ChoosePass &other) : PassWrapper(other) {}
  ChoosePass(Choice between, const ZeroPPOptions &options) {
    this->between = between;
    std::string text;
    llvm::raw_string_ostream os(text);
    options.print(os);
    given = StringRef(text).drop_front().drop_back().str();
  }

  StringRef getArgument() const override { return "zero-choose"; }
  StringRef getDescription() const override {
    return "Run candidates for the rest of the pipeline, and keep the best";
  }

  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager passes(ModuleOp::getOperationName());
    if (auto options = parse("", llvm::nulls()))
      addCandidate(passes, between, *options);
    passes.getDependentDialects(registry);
  }

  void runOnOperation() override {
    std::string error;
    llvm::raw_string_ostream os(error);
    options = parse("", os);
    if (!options)
      emitError(getOperation().getLoc(), StringRef(error).rtrim());
    if (!options || failed(run()))
      signalPassFailure();
  }

  Option<Choice> between{
      *this, "between", llvm::cl::desc("what to choose between"),
      llvm::cl::values(
          clEnumValN(Choice::Plans, "plans", "sets of techniques"),
          clEnumValN(Choice::Whole, "whole", "partitions and whole weights"),
          clEnumValN(Choice::Limits, "limits", "in-flight limits")),
      llvm::cl::init(Choice::Plans)};
  Option<std::string> given{*this, "options",
                            llvm::cl::desc("the options of zeropp")};

private:
  std::unique_ptr<ZeroPPOptions> parse(StringRef words,
                                       llvm::raw_ostream &errors) const {
    auto options = std::make_unique<ZeroPPOptions>();
    if (failed(options->parseFromString(given + " " + words.str(), errors)))
      return nullptr;
    return options;
  }

  LogicalResult run() {
    switch (between) {
    case Choice::Plans:
      return choosePlan();
    case Choice::Whole:
      return chooseWhole();
    case Choice::Limits:
      return chooseLimit();
    }
    llvm_unreachable("unknown choice");
  }

  LogicalResult choosePlan() {
    Candidates plans = getPlans(*options);
    if (failed(rewrite(plans)))
      return failure();
    const report::Report &first = plans.front().report;
    double scale = 1;
    if (options->computeUsec > 0 && first.time->computeUsec > 0)
      scale = options->computeUsec / first.time->computeUsec;
    if (scale != 1 && failed(predict(plans, scale)))
      return failure();
    if (first.entries.empty())
      return take(plans.front(), "");
    removeEqualPlans(plans);
    int64_t limit = options->memoryLimit > 0
                        ? options->memoryLimit.getValue()
                        : std::numeric_limits<int64_t>::max();
    Candidate &best = choose(plans, limit, kPlanSaves);
    std::string why = explain(plans, best, limit);
    if (failed(write(plans, best, why, scale)))
      return failure();
    return take(best, why);
  }

  LogicalResult chooseWhole() {
    if (!hasSingles()) {
      OpPassManager passes(ModuleOp::getOperationName());
      addCandidate(passes, between, *options);
      return runPipeline(passes, getOperation());
    }
    Candidates ways;
    ways.push_back({"as given", ""});
    auto limit = static_cast<int64_t>(kWholeFits * options->memoryLimit);
    // What it has in flight goes by its part of the memory, too.
    ways.push_back({"secondary=1: nodes have one device, so each keeps whole "
                    "weights for the backward pass",
                    "secondary=1 memory-limit=" + std::to_string(limit)});
    if (failed(rewrite(ways)))
      return failure();
    ways[1].words = "secondary=1";
    // Where links are fast, weights travel as they are.
    bool isSlow =
        llvm::any_of(ways.front().report.entries, [](const auto &entry) {
          return entry.origin.role == Role::Weight && entry.isRewritten;
        });
    if (!isSlow || ways[1].getPeakBytes() > limit)
      return take(ways[0], "");
    Candidate &best =
        choose(ways, options->memoryLimit, 1 / (1 - kWholeSaves) - 1);
    return take(best, &best == &ways[0]
                          ? ""
                          : explain(ways, best, options->memoryLimit));
  }

  /// Whether each node has one device, and the links between them are known.
  bool hasSingles() {
    FailureOr<Machine> machine = Machine::get(getOperation());
    FailureOr<Mesh> mesh = getStepMesh(getOperation(), "");
    return succeeded(machine) && succeeded(mesh) && machine->findLinks(*mesh) &&
           llvm::all_of(llvm::drop_begin(mesh->getAxes()),
                        [](const MeshAxis &axis) { return axis.size == 1; });
  }

  LogicalResult chooseLimit() {
    Candidates limits;
    limits.push_back({"", ""});
    if (failed(rewrite(limits)))
      return failure();
    int64_t bytes = limits[0].report.prefetchBytes.value_or(0);
    int64_t memory = options->memoryLimit;
    if (bytes == 0 || limits[0].getPeakBytes() <= memory)
      return take(limits[0], "");
    auto getName = [](int64_t bytes) {
      return "in-flight limit " + report::formatBytes(bytes);
    };
    limits[0].name = getName(bytes);
    Candidates smaller;
    for (int64_t size :
         {bytes / 2, bytes / 4, bytes / 8, bytes / 16, int64_t(0)})
      smaller.push_back(
          {getName(size), "tuning.prefetch-bytes=" + std::to_string(size)});
    if (failed(rewrite(smaller)))
      return failure();
    llvm::move(smaller, std::back_inserter(limits));
    // The first that fits, as time tells little of limits.
    Candidate &best =
        choose(limits, memory, std::numeric_limits<double>::max());
    return take(best, explain(limits, best, memory));
  }

  /// Runs all candidates, each on a copy of the module, and predicts them.
  LogicalResult rewrite(Candidates &candidates) {
    ModuleOp module = getOperation();
    auto run = [&](Candidate &candidate) {
      PassManager passes(&getContext(), ModuleOp::getOperationName());
      // What is kept is verified after this pass, as after any.
      passes.enableVerifier(false);
      addCandidate(passes, between, *parse(candidate.words, llvm::errs()));
      candidate.module = module.clone();
      LogicalResult result = success();
      candidate.remarks =
          holdRemarks([&] { result = passes.run(*candidate.module); });
      return result;
    };
    return success(
        succeeded(failableParallelForEach(&getContext(), candidates, run)) &&
        succeeded(predict(candidates, 1)));
  }

  LogicalResult predict(Candidates &candidates, double scale) {
    auto run = [&](Candidate &candidate) -> LogicalResult {
      auto report = report::predictReport(*candidate.module, scale);
      if (succeeded(report))
        candidate.report = std::move(*report);
      return report;
    };
    return failableParallelForEach(&getContext(), candidates, run);
  }

  /// The module becomes what a candidate made of it.
  LogicalResult take(Candidate &best, const std::string &why) {
    ModuleOp module = getOperation();
    module->setAttrs(best.module->getOperation()->getAttrDictionary());
    module.getBodyRegion().takeBody(best.module->getBodyRegion());
    sayRemarks(best.remarks);
    if (why.empty())
      return success();
    remarkAnalysis(module, getArgument(), "chosen") << why;
    Builder builder(&getContext());
    SmallVector<Attribute> choices{builder.getDictionaryAttr(
        {builder.getNamedAttr("options", builder.getStringAttr(best.words)),
         builder.getNamedAttr("why", builder.getStringAttr(why))})};
    // Those that the candidate has made itself.
    if (auto later = module->getAttrOfType<ArrayAttr>(report::kChoicesAttr))
      llvm::append_range(choices, later);
    module->setAttr(report::kChoicesAttr, builder.getArrayAttr(choices));
    return success();
  }

  /// Writes what is predicted of all plans, if it is wanted.
  LogicalResult write(Candidates &plans, const Candidate &best, StringRef why,
                      double scale) {
    if (options->plans.empty())
      return success();
    std::string text;
    llvm::raw_string_ostream os(text);
    llvm::json::OStream json(os);
    json.object([&] {
      json.attribute("best", best.name);
      json.attribute("why", why);
      json.attribute("scale", scale);
      json.attributeArray("plans", [&] {
        for (Candidate &plan : plans)
          json.object([&] {
            json.attribute("name", plan.name);
            json.attribute("options", plan.words);
            json.attributeBegin("report");
            plan.report.listsTasks = true;
            printJSON(plan.report, json.rawValueBegin());
            json.rawValueEnd();
            json.attributeEnd();
          });
      });
    });
    std::string cause = writeFile(options->plans, {text});
    if (!cause.empty())
      return emitError(getOperation().getLoc(), "cannot write plans to '")
             << options->plans << "': " << cause;
    return success();
  }

  std::unique_ptr<ZeroPPOptions> options;
};
} // namespace

void zpp::addChoice(OpPassManager &pm, Choice choice,
                    const ZeroPPOptions &options) {
  pm.addPass(std::make_unique<ChoosePass>(choice, options));
}

void zpp::registerChoosePass() { PassRegistration<ChoosePass>(); }
