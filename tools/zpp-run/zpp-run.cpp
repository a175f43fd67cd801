//===- zpp-run.cpp - Executes programs on all ranks -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ErrorBound.h"
#include "Program.h"
#include "Tensors.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "zpp/InitAll.h"
#include "zpp/Support/ProgramText.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>

using namespace mlir;
using namespace zpp;
namespace cl = llvm::cl;

namespace {
struct Options {
  cl::OptionCategory category{"zpp-run options"};
  cl::opt<std::string> input{cl::Positional, cl::desc("<program>"),
                             cl::init("-"), cl::cat(category)};
  cl::opt<std::string> mesh{
      "mesh", cl::cat(category),
      cl::desc("Tiers from slowest to fastest, such as node:2,gpu:4 (default: "
               "the program's mesh)")};
  cl::opt<std::string> backend{"backend", cl::cat(category), cl::init("cpu"),
                               cl::desc("The back end: cpu (ranks are threads) "
                                        "or cuda (a GPU per rank)")};
  cl::opt<std::string> entry{"entry", cl::cat(category), cl::init("main"),
                             cl::desc("Function to execute")};
  cl::list<std::string> inputs{
      "input", cl::cat(category),
      cl::desc("File (.npy) of the next argument: one tensor for all ranks, or "
               "one per rank in a leading dim; empty or left out: random")};
  cl::opt<uint64_t> seed{"seed", cl::cat(category), cl::init(0),
                         cl::desc("The seed of random arguments")};
  cl::opt<std::string> compareWith{
      "compare", cl::cat(category),
      cl::desc("Function that computes the same: fail if results differ by "
               "more than the bound derived from both")};
  cl::list<std::string> expect{
      "expect", cl::cat(category),
      cl::desc("File (.npy) of the next result, like --input: fail if it "
               "differs by more than the derived bound")};
  cl::opt<double> tolerance{
      "tolerance", cl::cat(category),
      cl::desc("Relative L2 error allowed, instead of the derived bound")};
  cl::opt<std::string> output{
      "output", cl::cat(category),
      cl::desc("Write result N of all ranks to <prefix>N.npy"),
      cl::value_desc("prefix")};
  cl::opt<bool> print{"print", cl::cat(category),
                      cl::desc("Print the results of every rank")};
  cl::opt<std::string> trace{
      "trace", cl::cat(category), cl::value_desc("file"),
      cl::desc("Write a timeline of all ranks for Perfetto or "
               "chrome://tracing")};
  cl::opt<int64_t> timeLimit{
      "time-limit-usec", cl::cat(category), cl::init(0),
      cl::desc("How long a collective waits for its last rank (default: the "
               "runtime's limit)")};
};

/// One execution of the tool.
class Runner {
public:
  Runner(const Options &options, ModuleOp module)
      : options(options), module(module) {}
  ~Runner() {
    llvm::remove_bad_alloc_error_handler();
    zpp_rt_world_destroy(world);
  }

  llvm::Error run();

private:
  /// A function and what it computed, result by result.
  struct Function {
    func::FuncOp op;
    Signature signature;
    std::vector<RankData> results;
  };

  llvm::Error checkTolerance();
  llvm::Expected<std::string> getMesh();
  llvm::Expected<Function> find(StringRef name);
  llvm::Error createWorld(StringRef mesh);
  /// From here on, running out of memory is reported with the memory needed.
  void describeMemory(const Signature &signature);
  llvm::Error makeInputs(const Signature &signature);
  /// Calls all functions, one after the other, on every rank.
  llvm::Error execute(const Program &program,
                      MutableArrayRef<Function> functions);
  llvm::Error readExpected(const Signature &signature);
  llvm::Expected<SmallVector<double>> getErrors(const Function &function);
  /// Each function contributes its own error to the bounds.
  llvm::Error deriveBounds(ArrayRef<Function> functions);
  llvm::Error check(ArrayRef<Function> functions);

  const Options &options;
  ModuleOp module;
  zpp_rt_world *world = nullptr;
  int64_t ranks = 0;
  std::vector<RankData> inputs;
  /// By result; empty if no file is given.
  std::vector<RankData> expected;
  /// By result; not used with --tolerance.
  SmallVector<double> bounds;
  std::string outOfMemory;
};
} // namespace

llvm::Error Runner::checkTolerance() {
  if (!options.tolerance.getNumOccurrences())
    return llvm::Error::success();
  if (!std::isfinite(options.tolerance) || options.tolerance < 0)
    return llvm::createStringError(
        llvm::formatv("expected a finite --tolerance of 0 or more, but got {0}",
                      options.tolerance));
  if (options.compareWith.empty() && options.expect.empty())
    return llvm::createStringError(
        "expected --compare or --expect beside --tolerance, but got neither");
  return llvm::Error::success();
}

llvm::Expected<std::string> Runner::getMesh() {
  llvm::SetVector<zero::MeshAttr> meshes;
  module.walk(
      [&](zero::CollectiveOpInterface op) { meshes.insert(op.getMeshAttr()); });
  for (zero::MeshAttr mesh : meshes)
    if (std::string text = mesh.getMesh().str();
        text != meshes[0].getMesh().str())
      return llvm::createStringError(
          "expected a program on one mesh, but got '" +
          meshes[0].getMesh().str() + "' and '" + text + "'");
  if (options.mesh.empty()) {
    if (meshes.empty())
      return llvm::createStringError("expected --mesh for a program without "
                                     "collectives, but got none");
    return meshes[0].getMesh().str();
  }
  if (!meshes.empty() && options.mesh != meshes[0].getMesh().str())
    return llvm::createStringError("expected the program's mesh '" +
                                   meshes[0].getMesh().str() + "', but got '" +
                                   options.mesh + "'");
  return options.mesh;
}

llvm::Expected<Runner::Function> Runner::find(StringRef name) {
  auto op = module.lookupSymbol<func::FuncOp>(name);
  if (!op || op.isExternal())
    return llvm::createStringError("expected a function '" + name +
                                   "' with a body in the program, but got " +
                                   (op ? "a declaration" : "none"));
  FailureOr<Signature> signature = Signature::get(op);
  if (failed(signature))
    return llvm::createStringError("cannot call '" + name + "'");
  return Function{op, std::move(*signature), {}};
}

llvm::Error Runner::createWorld(StringRef mesh) {
  std::string text = mesh.str();
  zpp_rt_world_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.backend = options.backend.c_str();
  desc.mesh = text.c_str();
  desc.time_limit_usec = options.timeLimit;
  desc.trace = !options.trace.empty();
  char message[512];
  if (zpp_rt_world_create(&desc, &world, message, sizeof(message)) != ZPP_RT_OK)
    return llvm::createStringError(message);
  zpp_rt_world_size(world, &ranks);
  return llvm::Error::success();
}

/// Ends the program with an error where LLVM would print a stack trace. Nothing
/// is lost: results are written after the last large allocation.
static void handleBadAlloc(void *message, const char *, bool) {
  // Never unlocked, since other threads may run out of memory too.
  static std::mutex mutex;
  mutex.lock();
  llvm::WithColor::error(llvm::errs(), "zpp-run")
      << *static_cast<std::string *>(message) << "\n";
  std::_Exit(EXIT_FAILURE);
}

void Runner::describeMemory(const Signature &signature) {
  uint64_t bytes = 0;
  for (const auto &types : {signature.arguments, signature.results})
    for (RankedTensorType type : types)
      bytes =
          llvm::SaturatingMultiplyAdd<uint64_t>(getBytes(type), ranks, bytes);
  outOfMemory = "out of memory: arguments and results of " +
                std::to_string(ranks) + " ranks have " + std::to_string(bytes) +
                " bytes";
  llvm::install_bad_alloc_error_handler(handleBadAlloc, &outOfMemory);
}

static llvm::Error checkAtMost(size_t count, StringRef what, size_t given) {
  if (given <= count)
    return llvm::Error::success();
  return llvm::createStringError("expected at most " + llvm::Twine(count) +
                                 " " + what + ", but got " +
                                 llvm::Twine(given));
}

llvm::Error Runner::makeInputs(const Signature &signature) {
  size_t count = signature.arguments.size();
  if (llvm::Error error = checkAtMost(count, "inputs", options.inputs.size()))
    return error;
  for (size_t i = 0; i < count; ++i) {
    RankedTensorType type = signature.arguments[i];
    if (i < options.inputs.size() && !options.inputs[i].empty()) {
      llvm::Expected<RankData> data =
          readTensors(options.inputs[i], type, ranks);
      if (!data)
        return data.takeError();
      inputs.push_back(std::move(*data));
      continue;
    }
    RankData &data = inputs.emplace_back();
    for (int64_t rank = 0; rank < ranks; ++rank)
      data.push_back(makeRandom(type, options.seed * 0x100000001b3 +
                                          (i * ranks + rank) * 0x10001));
  }
  return llvm::Error::success();
}

llvm::Error Runner::readExpected(const Signature &signature) {
  if (llvm::Error error = checkAtMost(signature.results.size(), "results",
                                      options.expect.size()))
    return error;
  for (auto [i, path] : llvm::enumerate(options.expect)) {
    RankData &result = expected.emplace_back();
    if (path.empty())
      continue;
    llvm::Expected<RankData> data =
        readTensors(path, signature.results[i], ranks);
    if (!data)
      return data.takeError();
    result = std::move(*data);
  }
  return llvm::Error::success();
}

llvm::Error Runner::execute(const Program &program,
                            MutableArrayRef<Function> functions) {
  for (Function &function : functions)
    function.results.assign(function.signature.results.size(), RankData(ranks));
  std::vector<std::string> errors(ranks);
  auto runRank = [&](int64_t index) {
    char message[512];
    zpp_rt_rank *rank;
    zpp_rt_rank_desc desc{sizeof(desc), index, /*device=*/-1};
    if (zpp_rt_rank_create(world, &desc, &rank, message, sizeof(message)) !=
        ZPP_RT_OK) {
      errors[index] = message;
      return;
    }
    std::vector<TensorData> arguments;
    for (const RankData &data : inputs)
      arguments.push_back(data[index]);
    for (Function &function : functions) {
      auto results = program.call(rank, function.op.getSymName(),
                                  function.signature, arguments);
      if (!results) {
        errors[index] = llvm::toString(results.takeError());
        zpp_rt_rank_abort(rank, errors[index].c_str());
        break;
      }
      if (zpp_rt_rank_synchronize(rank) != ZPP_RT_OK) {
        errors[index] = zpp_rt_rank_message(rank);
        break;
      }
      for (auto [i, result] : llvm::enumerate(*results))
        function.results[i][index] = std::move(result);
    }
    zpp_rt_rank_destroy(rank);
  };
  // No rank begins before all threads exist: it would wait for missing ones.
  std::promise<bool> areAllThere;
  std::shared_future<bool> begins = areAllThere.get_future().share();
  std::vector<std::thread> threads;
  std::string threadError;
  try {
    for (int64_t index = 0; index < ranks; ++index)
      threads.emplace_back([&runRank, begins, index] {
        if (begins.get())
          runRank(index);
      });
  } catch (const std::system_error &error) {
    threadError = error.code().message();
  }
  areAllThere.set_value(threadError.empty());
  for (std::thread &thread : threads)
    thread.join();
  if (!threadError.empty())
    return llvm::createStringError(
        "expected a thread for each of " + llvm::Twine(ranks) +
        " ranks, but got " + llvm::Twine(threads.size()) + ": " + threadError);

  std::string all;
  for (auto [index, error] : llvm::enumerate(errors))
    if (!error.empty())
      all += "\n  rank " + std::to_string(index) + ": " + error;
  if (!all.empty())
    return llvm::createStringError("execution failed" + all);
  return llvm::Error::success();
}

llvm::Expected<SmallVector<double>>
Runner::getErrors(const Function &function) {
  SmallVector<double> norms;
  for (auto [type, data] :
       llvm::zip_equal(function.signature.arguments, inputs))
    norms.push_back(getNorm(type, data));
  func::FuncOp op = function.op;
  FailureOr<SmallVector<Bound>> bounds = getResultBounds(op, norms, ranks);
  if (failed(bounds))
    return llvm::createStringError("no error bound for '" + op.getSymName() +
                                   "': give one with --tolerance");
  return llvm::map_to_vector(*bounds, [](Bound bound) { return bound.error; });
}

llvm::Error Runner::deriveBounds(ArrayRef<Function> functions) {
  bounds.assign(functions.front().signature.results.size(), 0.0);
  for (const Function &function : functions) {
    llvm::Expected<SmallVector<double>> errors = getErrors(function);
    if (!errors)
      return errors.takeError();
    for (auto [bound, error] : llvm::zip_equal(bounds, *errors))
      bound += error;
  }
  return llvm::Error::success();
}

llvm::Error Runner::check(ArrayRef<Function> functions) {
  const Function &function = functions.front();
  bool isWithin = true;
  auto compareResult = [&](size_t i, const RankData &reference) {
    RankedTensorType type = function.signature.results[i];
    double bound = options.tolerance.getNumOccurrences()
                       ? options.tolerance * getNorm(type, reference)
                       : bounds[i];
    isWithin &= compare("result " + std::to_string(i), type,
                        function.results[i], reference, bound);
  };
  if (functions.size() > 1)
    for (auto [i, reference] : llvm::enumerate(functions[1].results))
      compareResult(i, reference);
  for (auto [i, reference] : llvm::enumerate(expected))
    if (!reference.empty())
      compareResult(i, reference);
  if (!isWithin)
    return llvm::createStringError("results differ by more than the bound");
  return llvm::Error::success();
}

llvm::Error Runner::run() {
  if (llvm::Error error = checkTolerance())
    return error;
  llvm::Expected<std::string> mesh = getMesh();
  if (!mesh)
    return mesh.takeError();
  SmallVector<std::string> names{options.entry};
  if (!options.compareWith.empty())
    names.push_back(options.compareWith);
  SmallVector<Function> functions;
  for (const std::string &name : names) {
    llvm::Expected<Function> function = find(name);
    if (!function)
      return function.takeError();
    functions.push_back(std::move(*function));
  }
  if (functions.front().op.getFunctionType() !=
      functions.back().op.getFunctionType())
    return llvm::createStringError("expected '" + options.compareWith +
                                   "' to have the type of '" + options.entry +
                                   "'");
  // Only the "cpu" back end uses the host's memory.
  llvm::Expected<Program> program = Program::compile(
      module, names, /*deviceMemory=*/options.backend != "cpu");
  if (!program)
    return program.takeError();
  if (llvm::Error error = createWorld(*mesh))
    return error;
  describeMemory(functions.front().signature);
  if (llvm::Error error = makeInputs(functions.front().signature))
    return error;

  // Report what is wrong with a comparison before the program runs.
  if (llvm::Error error = readExpected(functions.front().signature))
    return error;
  bool compares = functions.size() > 1 || !options.expect.empty();
  if (compares && !options.tolerance.getNumOccurrences())
    if (llvm::Error error = deriveBounds(functions))
      return error;

  llvm::Error failure = execute(*program, functions);
  // A timeline is most useful if something went wrong, so write it even then.
  if (!options.trace.empty()) {
    char message[512];
    if (zpp_rt_world_write_trace(world, options.trace.c_str(), message,
                                 sizeof(message)) != ZPP_RT_OK)
      failure = llvm::joinErrors(std::move(failure),
                                 llvm::createStringError(message));
  }
  if (failure)
    return failure;

  for (auto [i, type] : llvm::enumerate(functions.front().signature.results)) {
    const RankData &data = functions.front().results[i];
    std::string number = std::to_string(i);
    if (options.print)
      printTensors("result " + number, type, data);
    if (!options.output.empty())
      if (llvm::Error error =
              writeTensors(options.output + number + ".npy", type, data))
        return error;
  }
  return check(functions);
}

static constexpr const char *kOverview =
    R"(zpp-run: executes a program with decomposed zero ops on all ranks

  zpp-opt prog.mlir --zero-decompose-all-gather --zero-fuse-quantization |
    zpp-run --entry=step --compare=reference --trace=trace.json

Functions take and return tensors. Arguments are random unless files are given.
)";

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // A file that exceeds the user's limit is an error of the write.
  std::signal(SIGXFSZ, SIG_IGN);
  Options options;
  cl::HideUnrelatedOptions(options.category);
  cl::ParseCommandLineOptions(argc, argv, kOverview);

  DialectRegistry registry;
  zpp::registerAllDialects(registry);
  zpp::registerAllExtensions(registry);
  MLIRContext context(registry);
  auto sources = std::make_shared<llvm::SourceMgr>();
  SourceMgrDiagnosticHandler diagnostics(*sources, &context);
  auto file = llvm::MemoryBuffer::getFileOrSTDIN(options.input);
  if (!file) {
    llvm::WithColor::error(llvm::errs(), "zpp-run")
        << "cannot open '" << options.input
        << "': " << file.getError().message() << "\n";
    return EXIT_FAILURE;
  }
  if (std::string error = verifyProgramText((*file)->getBuffer());
      !error.empty()) {
    llvm::errs() << options.input << ":" << error << "\n";
    return EXIT_FAILURE;
  }
  sources->AddNewSourceBuffer(std::move(*file), llvm::SMLoc());
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module || failed(verifyGuestOrder(*module)))
    return EXIT_FAILURE;
  if (llvm::Error error = Runner(options, *module).run()) {
    llvm::outs().flush();
    llvm::WithColor::error(llvm::errs(), "zpp-run")
        << llvm::toString(std::move(error)) << "\n";
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
