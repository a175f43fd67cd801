//===- Bundle.cpp - A step and its host functions -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Bundle.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Location.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/CollectiveCost.h"
#include "zpp/Transforms/Buffers/RankFunctions.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"

#include <csignal>
#include <cstdio>

#include <fcntl.h>

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Adds what a device sends in one exchange.
static void addSentBytes(zero::CollectiveOpInterface exchange,
                         std::vector<int64_t> &sent) {
  auto kind = isa<zero::AllToAllOp>(exchange.getOperation())
                  ? CollectiveKind::AllToAll
                  : CollectiveKind::AllGather;
  int64_t bytes = getBytes(exchange->getOperand(0).getType());
  if (kind == CollectiveKind::AllToAll)
    bytes /= exchange.getGroupSize();
  std::vector<int64_t> each = getSentBytes(exchange.getMeshAttr().getMesh(),
                                           kind, exchange.getAxisRefs(), bytes);
  for (size_t i = 0; i < each.size(); ++i)
    sent[i] += each[i];
}

static FailureOr<HostFunction> describe(func::FuncOp function,
                                        size_t numTiers) {
  HostFunction row;
  row.name = function.getSymName().str();
  row.title = describeLocation(function.getLoc());
  row.sent.assign(numTiers, 0);
  if (function.getNumResults() != 0)
    return function.emitError("expected the host function '")
           << row.name << "' on buffers, but got a result of type "
           << function.getResultTypes()[0] << "; run zero-bufferize-host first";
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<MemRefType>(argument.getType());
    if (!type || !type.hasStaticShape())
      return function.emitError("expected the host function '")
             << row.name << "' on buffers, but got an argument of type "
             << argument.getType() << "; run zero-bufferize-host first";
    unsigned index = argument.getArgNumber();
    if (function.getArgAttr(index, kWorkspaceAttr))
      row.workspace = getBytes(type);
    else if (function.getArgAttr(index, kResultAttr))
      row.outputs.push_back(getBytes(type));
    else
      row.inputs.push_back(getBytes(type));
  }
  function.walk([&](zero::CollectiveOpInterface exchange) {
    addSentBytes(exchange, row.sent);
  });
  return row;
}

/// Adds a row for each public function of the host module and each instance.
static LogicalResult addFunctions(Bundle &bundle) {
  SymbolTable symbols(*bundle.host);
  llvm::DenseMap<Operation *, HostFunction> described;
  for (Operation &op : bundle.host->getOps()) {
    auto instance = dyn_cast<zero::InstanceOp>(op);
    auto function = instance
                        ? symbols.lookup<func::FuncOp>(instance.getFunction())
                        : dyn_cast<func::FuncOp>(op);
    if (!function || function.isPrivate())
      continue;
    auto [known, isNew] = described.try_emplace(function);
    if (isNew) {
      FailureOr<HostFunction> row = describe(function, bundle.tiers.size());
      if (failed(row))
        return failure();
      known->second = std::move(*row);
    }
    HostFunction &row = bundle.functions.emplace_back(known->second);
    row.name = SymbolTable::getSymbolName(&op).str();
    row.title = describeLocation(op.getLoc());
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Returns the dictionary of a call of zpp.start or zpp.wait, or null.
static DictionaryAttr getConfig(Operation *op) {
  StringRef target = getCallTarget(op);
  if (target != kStartTarget && target != kWaitTarget)
    return {};
  return op->getAttrOfType<DictionaryAttr>("backend_config");
}

/// Notes which buffers of `row`, that `start` calls, `main` takes and returns.
static void noteBuffers(Operation *start, HostFunction &row) {
  row.arguments.assign(row.inputs.size(), -1);
  row.results.assign(row.outputs.size(), -1);
  auto main = dyn_cast<func::FuncOp>(start->getParentOp());
  if (!main || main.getSymName() != "main")
    return;
  for (auto [number, operand] : llvm::zip(row.arguments, start->getOperands()))
    if (auto argument = dyn_cast<BlockArgument>(operand))
      number = argument.getArgNumber();
  Operation *end = start->getBlock()->getTerminator();
  for (auto [place, value] : llvm::enumerate(end->getOperands())) {
    auto result = dyn_cast<OpResult>(value);
    if (!result || result.getResultNumber() >= row.results.size())
      continue;
    Operation *wait = result.getOwner();
    if (getCallTarget(wait) == kWaitTarget &&
        llvm::is_contained(start->getUsers(), wait))
      row.results[result.getResultNumber()] = place;
  }
}

/// Verifies that a start passes the buffers that its function takes, and notes
/// those of its first call.
static LogicalResult verifyStart(Operation *call, DictionaryAttr config,
                                 const llvm::StringMap<HostFunction *> &rows) {
  auto name = config.getAs<StringAttr>("function");
  HostFunction *row = name ? rows.lookup(name.getValue()) : nullptr;
  if (!row)
    return call->emitError("expected a function of @")
           << kHostModule << ", but got "
           << (name ? Attribute(name) : Attribute(config));
  auto getBuffers = [](TypeRange types) {
    return llvm::map_to_vector(types, [](Type type) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      return tensor && tensor.hasStaticShape() ? getBytes(tensor) : -1;
    });
  };
  SmallVector<int64_t> operands = getBuffers(call->getOperandTypes());
  SmallVector<int64_t> results = getBuffers(call->getResultTypes());
  SmallVector<int64_t> outputs(row->outputs.begin(), row->outputs.end());
  if (row->workspace > 0)
    outputs.push_back(row->workspace);
  if (operands.size() < row->inputs.size() || results.size() < outputs.size() ||
      ArrayRef(operands).take_front(row->inputs.size()) !=
          ArrayRef<int64_t>(row->inputs) ||
      ArrayRef(results).take_front(outputs.size()) != ArrayRef(outputs))
    return call->emitError("expected the buffers of the host function '")
           << row->name << "', but got others; was it bufferized before "
           << "convert-zero-to-xla-ffi?";
  if (row->results.empty())
    noteBuffers(call, *row);
  return success();
}

//===----------------------------------------------------------------------===//
// The bundle
//===----------------------------------------------------------------------===//

/// Returns the mesh of all exchanges, or the one that the step names.
static FailureOr<std::string> getMesh(ModuleOp host, ModuleOp step,
                                      std::vector<std::string> &tiers) {
  zero::MeshAttr mesh;
  WalkResult result = host.walk([&](zero::CollectiveOpInterface op) {
    if (mesh && op.getMeshAttr().getMesh().str() != mesh.getMesh().str()) {
      op.emitError("expected the mesh '")
          << mesh.getMesh().str() << "' of the other host functions, but got '"
          << op.getMeshAttr().getMesh().str() << "'";
      return WalkResult::interrupt();
    }
    mesh = op.getMeshAttr();
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  if (!mesh)
    return getMachineWord(step, "mesh").str();
  Mesh value = mesh.getMesh();
  for (const MeshAxis &axis : value.getAxes())
    tiers.push_back(axis.name);
  return value.str();
}

FailureOr<Bundle> Bundle::split(OwningOpRef<ModuleOp> module) {
  Bundle bundle;
  bundle.step = std::move(module);
  if (auto host = bundle.step->lookupSymbol<ModuleOp>(kHostModule)) {
    host->remove();
    bundle.host = host;
  } else {
    bundle.host = ModuleOp::create(bundle.step->getLoc());
  }
  WalkResult result = bundle.step->walk([&](Operation *op) {
    if (!isa_and_present<zero::ZeroDialect>(op->getDialect()))
      return WalkResult::advance();
    op->emitError("expected a step in StableHLO, but got '")
        << op->getName() << "'; run zeropp with target=cuda first";
    return WalkResult::interrupt();
  });
  if (result.wasInterrupted())
    return failure();
  FailureOr<std::string> mesh =
      getMesh(*bundle.host, *bundle.step, bundle.tiers);
  if (failed(mesh))
    return failure();
  bundle.mesh = *mesh;
  if (failed(addFunctions(bundle)))
    return failure();
  llvm::StringMap<HostFunction *> rows;
  for (HostFunction &row : bundle.functions)
    rows[row.name] = &row;
  bool isConsistent = true;
  bundle.step->walk([&](Operation *op) {
    if (DictionaryAttr config = getConfig(op);
        config && getCallTarget(op) == kStartTarget)
      isConsistent &= succeeded(verifyStart(op, config, rows));
  });
  if (!isConsistent)
    return failure();
  return bundle;
}

void Bundle::setId(StringRef newId) {
  id = newId.str();
  step->walk([&](Operation *op) {
    DictionaryAttr config = getConfig(op);
    if (!config)
      return;
    NamedAttrList entries(config);
    entries.set("bundle", StringAttr::get(op->getContext(), id));
    op->setAttr("backend_config", entries.getDictionary(op->getContext()));
  });
}

std::string Bundle::getStepText() {
  std::string text;
  llvm::raw_string_ostream os(text);
  step->print(os, OpPrintingFlags().printGenericOpForm().enableDebugInfo());
  if (!StringRef(text).ends_with("\n"))
    os << "\n";
  return text;
}

std::string zpp::getDigest(StringRef text) {
  return llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(text)),
                     /*LowerCase=*/true);
}

std::string
Bundle::getManifest(ArrayRef<std::pair<StringRef, std::string>> digests) const {
  const std::string noDigest(64, '0');
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os, /*IndentSize=*/1);
  auto writeList = [&](StringRef key, ArrayRef<int64_t> values) {
    json.attributeArray(key, [&] {
      for (int64_t value : values)
        json.value(value);
    });
  };
  json.object([&] {
    json.attribute("version", 5);
    json.attribute("digest", noDigest);
    json.attribute("id", id);
    json.attributeObject("sha256", [&] {
      for (const auto &[file, digest] : digests)
        json.attribute(file, digest);
    });
    json.attribute("mesh", mesh);
    json.attributeArray("functions", [&] {
      for (const HostFunction &row : functions)
        json.object([&] {
          json.attribute("name", row.name);
          json.attribute("title", row.title);
          writeList("inputs", row.inputs);
          writeList("outputs", row.outputs);
          writeList("arguments", row.arguments);
          writeList("results", row.results);
          json.attribute("workspace", row.workspace);
          json.attributeObject("bytes", [&] {
            for (auto [tier, bytes] : llvm::zip_equal(tiers, row.sent))
              json.attribute(tier, bytes);
          });
        });
    });
  });
  os << "\n";
  std::string digest = getDigest(text);
  return text.replace(text.find(noDigest), noDigest.size(), digest);
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

static llvm::Error fail(const llvm::Twine &path, std::error_code code) {
  return llvm::createStringError(path + ": " + code.message());
}

/// Creates a new folder whose name begins with `prefix`, an absolute path.
static llvm::Expected<SmallString<128>> makeFolder(const llvm::Twine &prefix) {
  // llvm::sys::fs::createUniqueDirectory makes one that others cannot read.
  SmallString<128> path;
  std::error_code code;
  for (int tries = 0; tries < 128; ++tries) {
    llvm::sys::fs::createUniquePath(prefix + "-%%%%%%", path,
                                    /*MakeAbsolute=*/false);
    code = llvm::sys::fs::create_directory(path, /*IgnoreExisting=*/false,
                                           llvm::sys::fs::all_all);
    if (!code)
      return path;
    if (code != std::errc::file_exists)
      break;
  }
  return fail(path, code);
}

namespace {
/// Has signals wait that would end the process, for as long as it lives.
class SignalsWait {
public:
  SignalsWait() {
    struct sigaction note{};
    note.sa_handler = [](int number) { came = number; };
    note.sa_flags = SA_RESTART;
    for (auto [number, old] : llvm::zip_equal(kNumbers, actions))
      if (sigaction(number, nullptr, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &note, nullptr);
  }
  ~SignalsWait() {
    for (auto [number, old] : llvm::zip_equal(kNumbers, actions))
      sigaction(number, &old, nullptr);
    if (came)
      std::raise(came);
  }

private:
  static constexpr int kNumbers[] = {SIGHUP, SIGINT, SIGTERM};
  static inline volatile sig_atomic_t came = 0;
  struct sigaction actions[std::size(kNumbers)] = {};
};
} // namespace

/// Exchanges the names of two folders at one moment. False where the system or
/// the file system cannot.
static bool exchangeNames(const SmallString<128> &a,
                          const SmallString<128> &b) {
#ifdef RENAME_EXCHANGE
  return renameat2(AT_FDCWD, std::string(a).c_str(), AT_FDCWD,
                   std::string(b).c_str(), RENAME_EXCHANGE) == 0;
#else
  return false;
#endif
}

llvm::Error
zpp::writeFolder(StringRef path,
                 llvm::function_ref<llvm::Error(StringRef folder)> fill) {
  namespace fs = llvm::sys::fs;
  namespace names = llvm::sys::path;
  SmallString<128> target(path);
  if (std::error_code code = fs::make_absolute(target))
    return fail(path, code);
  // "step.zpp/" names the folder too.
  while (target.size() > 1 && names::is_separator(target.back()))
    target.pop_back();
  SmallString<128> manifest(target);
  names::append(manifest, "bundle.json");
  bool exists = fs::exists(target);
  if (exists ? !fs::exists(manifest) : fs::is_symlink_file(target))
    return llvm::createStringError("expected a bundle or nothing at '" + path +
                                   "', but got something else");
  if (exists) {
    // A symbolic link stays a link.
    SmallString<128> real;
    if (std::error_code code = fs::real_path(target, real))
      return fail(target, code);
    target = real;
  }
  SmallString<128> prefix(names::parent_path(target));
  names::append(prefix, "." + names::filename(target));
  // llvm::sys::RemoveFileOnSignal removes regular files alone.
  SignalsWait signals;
  auto made = makeFolder(prefix);
  if (!made)
    return made.takeError();
  SmallString<128> old;
  llvm::scope_exit cleanUp([&] {
    fs::remove_directories(*made);
    if (!old.empty())
      fs::remove_directories(old);
  });
  if (llvm::Error error = fill(*made))
    return error;
  // What has the name of the new folder then is removed.
  if (exists && exchangeNames(*made, target))
    return llvm::Error::success();
  if (exists) {
    auto aside = makeFolder(prefix + "-old");
    if (!aside)
      return aside.takeError();
    old = *aside;
    if (std::error_code code = fs::rename(target, old))
      return fail(target, code);
  }
  std::error_code code = fs::rename(*made, target);
  if (!code)
    return llvm::Error::success();
  if (exists) {
    (void)fs::rename(old, target);
    old.clear();
  }
  return fail(target, code);
}
