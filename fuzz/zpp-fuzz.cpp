//===- zpp-fuzz.cpp - Runs the compiler on programs nobody wrote ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An execution takes a program of the corpus, changes it at random and, where
// the result verifies, runs a pipeline on it. What must not happen, whatever
// the program is: a crash, a hang, too much memory, a failure without an error,
// and output that does not verify or that cannot be read again.
//
// Executions are numbered; the number is the seed of all that is random in one.
// They run in batches, each in a process of its own, so that one that crashes
// takes down no more than its batch, which goes on after it. Programs are
// parsed once, before the first batch; an execution changes a copy.
//
//===----------------------------------------------------------------------===//

#include "Mutator.h"
#include "Register.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "zpp/Dialect/Guest/GuestDialects.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Compiler.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"

#include <chrono>
#include <optional>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;
using namespace zpp::fuzz;
namespace cl = llvm::cl;

static cl::list<std::string> inputs(cl::Positional, cl::OneOrMore,
                                    cl::desc("FILE or FOLDER..."));
static cl::opt<uint64_t> seed("seed", cl::desc("Number of the first execution"),
                              cl::init(0));
static cl::opt<uint64_t> runs("runs", cl::desc("Executions; 0: no limit"),
                              cl::init(0));
static cl::opt<unsigned> seconds("seconds",
                                 cl::desc("Stop after so long; 0: no limit"),
                                 cl::init(0));
static cl::opt<unsigned>
    limit("time-limit", cl::desc("CPU seconds of one execution"), cl::init(10));
// The address sanitizer reserves terabytes. Under a limit it ends a process
// with exit code 1 as soon as it wants more, whatever the execution did.
static cl::opt<uint64_t>
    memory("memory-limit",
           cl::desc("MiB of address space of a batch; 0, the default under the "
                    "address sanitizer: no limit"),
           cl::init(LLVM_ADDRESS_SANITIZER_BUILD ? 0 : 4096));
static cl::opt<unsigned> jobs("jobs", cl::desc("Batches at the same time"),
                              cl::init(1));
static cl::opt<std::string> keep("keep", cl::desc("Folder for what was found"));
static cl::opt<bool> showOne("show",
                             cl::desc("Print the program and the pipeline of "
                                      "execution --seed, and run it here"));

//===----------------------------------------------------------------------===//
// The corpus
//===----------------------------------------------------------------------===//

namespace {
struct Entry {
  std::string name, text;
  /// The pipelines of the RUN lines of its file.
  std::vector<std::string> pipelines;
  /// In the context that all programs share.
  OwningOpRef<ModuleOp> module;
};
} // namespace

/// The pipeline of the command line `--a --b="x=1 y=2"`: a,b{x=1 y=2}.
static std::string getPipeline(StringRef command) {
  static const llvm::Regex kFlag(
      "--((zero|convert-zero)[a-z-]*|canonicalize|cse)(=(\"[^\"]*\"|[^ |]*))?");
  SmallVector<std::string> passes;
  SmallVector<StringRef> match;
  while (kFlag.match(command, &match)) {
    std::string pass = match[1].str();
    if (!match[4].empty())
      pass += "{" + match[4].trim('"').str() + "}";
    if (!StringRef(pass).contains('%'))
      passes.push_back(pass);
    command = command.drop_front(match[0].end() - command.begin());
  }
  return llvm::join(passes, ",");
}

static void addFile(StringRef path, std::vector<Entry> &corpus) {
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    return;
  SmallVector<StringRef> lines, parts;
  (*file)->getBuffer().split(lines, '\n');
  std::vector<std::string> pipelines;
  for (StringRef line : lines)
    if (line.contains("RUN:"))
      if (std::string pipeline = getPipeline(line); !pipeline.empty())
        pipelines.push_back(pipeline);
  (*file)->getBuffer().split(parts, "// -----");
  for (StringRef part : parts)
    corpus.push_back({path.str(), part.str(), pipelines, {}});
}

/// In the order of names.
static std::vector<Entry> readCorpus() {
  std::vector<std::string> paths;
  for (const std::string &input : inputs) {
    if (!llvm::sys::fs::is_directory(input)) {
      paths.push_back(input);
      continue;
    }
    std::error_code error;
    for (llvm::sys::fs::recursive_directory_iterator it(input, error), end;
         it != end && !error; it.increment(error))
      if (StringRef(it->path()).ends_with(".mlir"))
        paths.push_back(it->path());
  }
  llvm::sort(paths);
  std::vector<Entry> corpus;
  for (const std::string &path : paths)
    addFile(path, corpus);
  return corpus;
}

//===----------------------------------------------------------------------===//
// One execution
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral kMeshes[] = {"",
                                                  "node:2,gpu:4",
                                                  "gpu:8",
                                                  "node:4,gpu:2",
                                                  "data:1,gpu:8",
                                                  "rack:2,node:2,gpu:2",
                                                  "node:2,gpu:3"};

/// `pipeline` with the options of its passes spelled out, and one of these
/// another one.
static std::string mutateOption(StringRef pipeline, MLIRContext &context,
                                Random &random) {
  PassManager pm(&context);
  if (failed(parsePassPipeline(pipeline, pm, llvm::nulls())))
    return pipeline.str();
  std::string text;
  llvm::raw_string_ostream os(text);
  pm.printAsTextualPipeline(os);
  StringRef all = text;
  all.consume_front("builtin.module(");
  all.consume_back(")");
  // Not where output goes.
  static const llvm::Regex kOption("[{ ]([a-z-]+)=([^ {}]*)");
  SmallVector<std::pair<size_t, size_t>> places;
  SmallVector<StringRef> match;
  for (StringRef rest = all; kOption.match(rest, &match);
       rest = rest.drop_front(match[0].end() - rest.begin()))
    if (match[1] != "output")
      places.push_back({match[2].begin() - all.begin(), match[2].size()});
  if (places.empty())
    return pipeline.str();
  static constexpr llvm::StringLiteral kValues[] = {
      "",
      "none",
      "i8",
      "i4",
      "i8:i4",
      "i4:i4:i8",
      "i8:",
      "bf16",
      "node",
      "gpu",
      "rack",
      "0",
      "1",
      "2",
      "3",
      "-1",
      "64",
      "65536",
      "2147483648",
      "4294967297",
      "9223372036854775807",
      "9223372036854775808",
      "1e308",
      "true",
      "false",
      "node:2,gpu:4",
      "gpu:8",
      "a:0",
      "gpu:1048577",
      "node:2,gpu:4,x:1",
      "node=50gbit,gpu=400gbyte",
      "node=0gbit,gpu=1gbit",
      "node=1e308gbit,gpu=1e-308gbit",
      "any",
      "dependent",
      "cuda",
      "portable",
      "table",
      "json"};
  auto [begin, size] = random.pick(places);
  return (all.take_front(begin) + random.pick(kValues) +
          all.drop_front(begin + size))
      .str();
}

static std::string choosePipeline(const Entry &entry, Random &random) {
  if (!entry.pipelines.empty() && !random.oneIn(3)) {
    std::string pipeline = random.pick(entry.pipelines);
    return random.oneIn(8) ? mutateText(pipeline, random) : pipeline;
  }
  std::string mesh = random.pick(kMeshes).str();
  std::string option = mesh.empty() ? "" : "mesh=" + mesh + " ";
  static constexpr llvm::StringLiteral kOptions[] = {
      "",
      "target=cuda",
      "regather=true",
      "secondary=none",
      "weights=i4 gradients=i4 target=cuda",
      "weights=none gradients=none",
      "weights=i4:delta frozen=keep",
      "weights=i4:delta frozen=keep start=frozen target=cuda",
      "frozen=keep start=all",
      "weights=i4:delta start=all target=cuda",
      "accumulate=gpu",
      "accumulate=2 weights=i4:delta target=cuda",
      "updated=i8 reduced=i4",
      "floors=0=i8,1=none weights=i4 gradients=i4:i4 target=cuda",
      "floors=0=none,1=i8 weights=i4:delta updated=i4 accumulate=gpu",
      "updated=i4 weights=none secondary=none target=cuda",
      "links=node=50gbit,gpu=400gbyte",
      "target=cuda regather=true links=node=50gbit,gpu=400gbyte",
      "tuning.coalesce-bytes=65536",
      "target=cuda tuning.coalesce-bytes=0 tuning.prefetch-bytes=1024"};
  std::string zeropp = "zeropp{" + option + random.pick(kOptions).str() + "}";
  std::string report =
      "zero-report{" + option + (random.oneIn(2) ? "format=json " : "") +
      (random.oneIn(2) ? "device=h100 " : "") + "output=/dev/null}";
  static constexpr llvm::StringLiteral kLowerings[] = {
      "zero-to-llvm",
      "convert-zero-to-stablehlo",
      "convert-zero-to-stablehlo{outline=true}",
      "convert-zero-to-xla-ffi",
      "zero-bufferize-host",
      "zero-bufferize-host,zero-host-to-llvm",
      "zero-verify-decomposed",
      "convert-zero-to-runtime",
      "zero-plan-workspace,zero-pack-arguments"};
  static constexpr llvm::StringLiteral kSteps =
      "zero-quantize-all-gather,zero-partition-within-node,"
      "zero-split-hierarchy,zero-decompose-reduce-scatter,zero-reorder-slices,"
      "zero-quantize-all-to-all,zero-decompose-all-gather,"
      "zero-fuse-quantization,zero-coalesce-collectives";
  static constexpr llvm::StringLiteral kSchedule =
      "zero-outline-collectives,zero-pipeline-chunks,zero-plan-loops,"
      "zero-write-loops{layers},zero-overlap-collectives,zero-defer-starts";
  static constexpr llvm::StringLiteral kStages =
      "zero-import-collectives,zero-split-hierarchy,"
      "zero-decompose-reduce-scatter{stages=2},zero-reorder-slices,"
      "zero-quantize-all-to-all,zero-decompose-all-gather,"
      "zero-fuse-quantization,zero-outline-collectives,zero-pipeline-chunks";
  switch (random.below(9)) {
  case 0:
    return report;
  case 1:
    return zeropp + "," + report;
  case 2:
    return random.pick(kLowerings).str();
  case 3:
    return (kSteps + "," + random.pick(kLowerings)).str();
  case 4:
    return (kSteps + "," + kSchedule).str();
  case 5:
    return kSchedule.str();
  case 6:
    return kStages.str();
  default:
    return zeropp;
  }
}

namespace {
enum class Outcome { Rejected, Failed, Succeeded, Silent, Invalid, Unreadable };

/// The result of one execution, as it reports it.
struct Result {
  Outcome outcome;
  std::string message;
};
} // namespace

/// True for programs on which MLIR itself fails: its verifier of
/// tensor.from_elements lists the elements, that of tensor.concat reads the dim
/// before it is checked, that of tensor.expand_shape does not compare the shape
/// with the type, symbols without a name are printed but not read, and the
/// conversion of a call takes sizes of segments for its own.
static bool failsInMLIR(ModuleOp module) {
  auto isBad = [](Operation *op) {
    if (auto symbol =
            op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
        symbol && symbol.empty())
      return true;
    if (isa<func::CallOp>(op) && op->hasAttr("operandSegmentSizes"))
      return true;
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
      return expand.getStaticOutputShape() != expand.getResultType().getShape();
    if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
      if (concat.getInputs().empty())
        return true;
      auto type = dyn_cast<RankedTensorType>(concat.getType());
      return !type || concat.getDim() >= static_cast<uint64_t>(type.getRank());
    }
    auto list = dyn_cast<tensor::FromElementsOp>(op);
    if (!list)
      return false;
    constexpr int64_t kMost = 1 << 20;
    int64_t elements = 1;
    return llvm::any_of(list.getType().getShape(), [&](int64_t size) {
      return llvm::MulOverflow(elements, size, elements) || elements > kMost;
    });
  };
  return module
      ->walk([&](Operation *op) {
        return isBad(op) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Small programs more often than large ones: they take less time, and a change
/// hits more of what matters.
static const Entry &chooseEntry(const std::vector<Entry> &corpus,
                                Random &random) {
  const Entry *chosen = &random.pick(corpus);
  if (!random.oneIn(8))
    for (int tries = 0; tries < 2; ++tries)
      if (const Entry &other = random.pick(corpus);
          other.text.size() < chosen->text.size())
        chosen = &other;
  return *chosen;
}

/// Runs `pipeline` on `module`.
static Result compile(ModuleOp module, StringRef pipeline, bool readAgain,
                      std::string &lastError) {
  MLIRContext *context = module.getContext();
  PassManager pm(context);
  pm.enableVerifier(false);
  if (failed(parsePassPipeline(pipeline, pm, llvm::nulls())))
    return {Outcome::Rejected, ""};
  lastError.clear();
  if (failed(pm.run(module))) {
    if (lastError.empty())
      return {Outcome::Silent, "failed without an error"};
    return {Outcome::Failed, ""};
  }
  if (failed(verify(module)))
    return {Outcome::Invalid, "output does not verify: " + lastError};
  if (readAgain) {
    std::string text;
    llvm::raw_string_ostream os(text);
    module->print(os, OpPrintingFlags().printGenericOpForm());
    if (!parseSourceString<ModuleOp>(text, context))
      return {Outcome::Unreadable, "output cannot be read: " + lastError};
  }
  return {Outcome::Succeeded, ""};
}

/// With `print` the program and the pipeline go to standard output before they
/// run.
static Result execute(const std::vector<Entry> &corpus, uint64_t number,
                      const DialectRegistry &registry, bool print) {
  // Numbers in a row are not alike.
  Random random(number * 0x9e3779b97f4a7c15);
  const Entry &entry = chooseEntry(corpus, random);
  std::string pipeline = choosePipeline(entry, random);
  // A pass that makes ops of a dialect that it has not asked for works where
  // another program has loaded it.
  bool isAlone = random.oneIn(16);
  bool mutatesOption = random.oneIn(6), readAgain = random.oneIn(8);
  std::optional<MLIRContext> own;
  OwningOpRef<ModuleOp> module;
  std::string lastError;
  auto handle = [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      lastError = diagnostic.str();
    if (print)
      llvm::outs() << "// " << diagnostic.getLocation() << ": " << diagnostic
                   << "\n";
    return success();
  };
  std::optional<ScopedDiagnosticHandler> handler;
  if (isAlone) {
    own.emplace(registry, MLIRContext::Threading::DISABLED);
    handler.emplace(&*own, handle);
    module = parseSourceString<ModuleOp>(entry.text, &*own);
  } else {
    ModuleOp original = entry.module.get();
    handler.emplace(original.getContext(), handle);
    module = original.clone();
  }
  if (!module)
    return {Outcome::Rejected, ""};
  MLIRContext &context = *module->getContext();
  if (mutatesOption)
    pipeline = mutateOption(pipeline, context, random);
  if (!mutatesOption || random.oneIn(2))
    mutate(*module, random);
  if (print) {
    llvm::outs() << "// " << entry.name
                 << "\n// --pass-pipeline='builtin.module(" << pipeline
                 << ")'\n";
    llvm::outs().flush();
  }
  if (failsInMLIR(*module) || failed(verify(*module)) ||
      failed(zpp::verifyGuestOrder(*module)))
    return {Outcome::Rejected, ""};
  if (print) {
    module->print(llvm::outs(), OpPrintingFlags().printGenericOpForm());
    llvm::outs() << "\n";
    llvm::outs().flush();
  }
  return compile(*module, pipeline, readAgain, lastError);
}

//===----------------------------------------------------------------------===//
// Batches
//===----------------------------------------------------------------------===//

namespace {
constexpr uint64_t kBatch = 256;

/// The messages of a batch to the process that started it.
struct Shared {
  uint64_t current;
  uint64_t counts[6];
  char message[512];
};

/// A batch that runs, in the process `pid`, up to `last`.
struct Batch {
  pid_t pid = 0;
  uint64_t next = 0, last = 0;
  Shared *shared = nullptr;
};
} // namespace

/// CPU time: other processes may take theirs.
static void setTimer(unsigned seconds) {
  itimerval timer{};
  timer.it_value.tv_sec = seconds;
  setitimer(ITIMER_PROF, &timer, nullptr);
}

static void setLimits() {
  if (memory != 0) {
    rlimit bytes{memory << 20, memory << 20};
    setrlimit(RLIMIT_AS, &bytes);
  }
  rlimit noCore{0, 0};
  setrlimit(RLIMIT_CORE, &noCore);
}

namespace {
/// Starts batches, and looks at how they end.
class Search {
public:
  Search(const std::vector<Entry> &corpus, const DialectRegistry &registry)
      : corpus(corpus), registry(registry), next(seed) {
    if (seconds != 0)
      end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  }

  /// False, with errno, where the system gives no memory or no process.
  bool run();
  void printSummary() const;
  bool hasFound() const { return found != 0; }

private:
  bool isOver() const {
    return (runs != 0 && next >= seed + runs) ||
           (end && std::chrono::steady_clock::now() >= *end);
  }

  bool start(Batch &batch);
  [[noreturn]] void runBatch(const Batch &batch) const;
  /// Looks at how the process of `batch` has ended, which then has none.
  void finish(Batch &batch, int status);
  void keepExecution(uint64_t number) const;

  const std::vector<Entry> &corpus;
  const DialectRegistry &registry;
  uint64_t next;
  std::optional<std::chrono::steady_clock::time_point> end;
  std::vector<Batch> batches;
  uint64_t executed = 0, found = 0;
};
} // namespace

/// Runs executions from `next` on. Ends with 0 after the last one, or where
/// time is up, with 1 at one that found something.
void Search::runBatch(const Batch &batch) const {
  // Reports and remarks are not of interest.
  if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
    _exit(2);
  setLimits();
  for (uint64_t number = batch.next; number < batch.last; ++number) {
    batch.shared->current = number;
    if (end && std::chrono::steady_clock::now() >= *end)
      _exit(0);
    setTimer(limit);
    Result result = execute(corpus, number, registry, /*print=*/false);
    setTimer(0);
    ++batch.shared->counts[static_cast<size_t>(result.outcome)];
    if (!result.message.empty()) {
      strncpy(batch.shared->message, result.message.c_str(),
              sizeof(batch.shared->message) - 1);
      _exit(1);
    }
  }
  batch.shared->current = batch.last;
  _exit(0);
}

bool Search::start(Batch &batch) {
  if (batch.next == batch.last) {
    batch.next = next;
    batch.last = next + kBatch;
    if (runs != 0)
      batch.last = std::min<uint64_t>(batch.last, seed + runs);
    next = batch.last;
  }
  batch.shared->message[0] = '\0';
  batch.shared->current = batch.next;
  llvm::outs().flush();
  batch.pid = fork();
  if (batch.pid == 0)
    runBatch(batch);
  return batch.pid > 0;
}

static std::string describeEnd(int status, const char *message) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && *message)
    return message;
  if (WIFEXITED(status))
    return "exit code " + std::to_string(WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGPROF)
    return "hang: more than " + std::to_string(limit) + " CPU seconds";
  return "crash: " + std::string(strsignal(WTERMSIG(status)));
}

void Search::finish(Batch &batch, int status) {
  batch.pid = 0;
  uint64_t current = batch.shared->current;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    executed += current - batch.next;
    // Time is up where it has not come to the last one.
    batch.next = batch.last;
    return;
  }
  ++found;
  executed += current + 1 - batch.next;
  batch.next = current + 1;
  llvm::outs() << "execution " << current << ": "
               << describeEnd(status, batch.shared->message) << "\n";
  keepExecution(current);
}

/// Runs `number` again in a process of its own, which writes the program, and
/// what it says when it ends, to files of the folder. Nobody waits for it
/// before the end.
void Search::keepExecution(uint64_t number) const {
  if (keep.empty())
    return;
  (void)llvm::sys::fs::create_directories(keep);
  std::string path = (keep + "/" + llvm::Twine(number)).str();
  llvm::outs().flush();
  if (fork() != 0)
    return;
  if (!freopen((path + ".mlir").c_str(), "w", stdout) ||
      !freopen((path + ".log").c_str(), "w", stderr))
    _exit(1);
  setLimits();
  setTimer(limit);
  Result result = execute(corpus, number, registry, /*print=*/true);
  llvm::errs() << (result.message.empty() ? "nothing found the second time"
                                          : result.message)
               << "\n";
  llvm::outs().flush();
  _exit(0);
}

bool Search::run() {
  batches.resize(std::max(jobs.getValue(), 1u));
  for (Batch &batch : batches) {
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return false;
    batch.shared = static_cast<Shared *>(memory);
  }
  while (true) {
    for (Batch &batch : batches) {
      bool isDone = batch.next == batch.last
                        ? isOver()
                        : end && std::chrono::steady_clock::now() >= *end;
      if (batch.pid == 0 && !isDone && !start(batch))
        return false;
    }
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0)
      return true; // There is none left.
    for (Batch &batch : batches)
      if (batch.pid == pid)
        finish(batch, status);
  }
}

void Search::printSummary() const {
  auto count = [&](Outcome outcome) {
    uint64_t sum = 0;
    for (const Batch &batch : batches)
      sum += batch.shared->counts[static_cast<size_t>(outcome)];
    return sum;
  };
  llvm::outs() << executed << " executions: " << count(Outcome::Rejected)
               << " programs do not verify, " << count(Outcome::Failed)
               << " end in an error, " << count(Outcome::Succeeded)
               << " are compiled; " << found << " findings\n";
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::ParseCommandLineOptions(
      argc, argv, "zpp-fuzz: runs the compiler on programs nobody wrote\n");
  DialectRegistry registry;
  zpp::tools::registerEverything(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  std::vector<Entry> corpus = readCorpus();
  {
    // Many a test is about what is no program.
    ScopedDiagnosticHandler quiet(&context,
                                  [](Diagnostic &) { return success(); });
    for (Entry &entry : corpus)
      entry.module = parseSourceString<ModuleOp>(entry.text, &context);
  }
  llvm::erase_if(corpus, [](const Entry &entry) { return !entry.module; });
  if (corpus.empty()) {
    llvm::WithColor::error(llvm::errs(), "zpp-fuzz")
        << "expected programs in files that end in .mlir, but got none\n";
    return 1;
  }
  if (showOne) {
    Result result = execute(corpus, seed, registry, /*print=*/true);
    llvm::outs() << "// " << result.message << "\n";
    return result.message.empty() ? 0 : 1;
  }
  Search search(corpus, registry);
  if (!search.run()) {
    perror("zpp-fuzz");
    return 1;
  }
  search.printSummary();
  return search.hasFound() ? 1 : 0;
}
