//===- OutlineCollectives.cpp - Collectives as functions of their own -----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Chains.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {
#define GEN_PASS_DEF_OUTLINECOLLECTIVESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// A chain, and the values that cross its border.
struct Outlined {
  explicit Outlined(Chain chain) : ops(std::move(chain)) {
    dependents = getDependents(ops);
    llvm::SmallPtrSet<Operation *, 16> inside(llvm::from_range, ops);
    for (Operation *op : ops) {
      for (Value operand : op->getOperands()) {
        Operation *source = operand.getDefiningOp();
        if (!source ||
            (!inside.contains(source) && !isa<tensor::EmptyOp>(source)))
          inputs.insert(operand);
      }
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) {
              return !inside.contains(user);
            }))
          outputs.push_back(result);
    }
  }

  Location getLoc() const { return getExchanges(ops).front()->getLoc(); }

  Chain ops;
  llvm::SetVector<Value> inputs;
  /// Results of `ops` that others read.
  SmallVector<Value> outputs;
  /// Ops that have to move after the chain.
  SmallVector<Operation *> dependents;
};

/// The functions created so far, and their instances.
class HostFunctions {
public:
  explicit HostFunctions(ModuleOp step) : step(step) {
    host = step.lookupSymbol<ModuleOp>(kHostModule);
    if (!host)
      return;
    symbols.emplace(host);
    for (auto function : host.getOps<func::FuncOp>())
      add(function, function.getSymNameAttr());
    for (auto instance : host.getOps<InstanceOp>())
      if (auto function = symbols->lookup<func::FuncOp>(instance.getFunction()))
        add(function, instance.getSymNameAttr(), instance);
  }

  /// Returns the name of the function for `chain`. Equal chains with equal
  /// locations share one, and others have instances of one.
  StringAttr get(const Outlined &chain) {
    if (!host) {
      host = ModuleOp::create(step.getLoc(), kHostModule);
      step.push_back(host);
      symbols.emplace(host);
    }
    func::FuncOp function = create(chain);
    SmallVector<Location> locations;
    Shared &shared = find(function, locations);
    StringAttr &name = shared.names[getKey(locations)];
    bool isFirst = shared.function == function;
    if (!name) {
      name = symbols->insert(
          isFirst ? function : createInstance(function, locations, shared));
      ++numNames;
    }
    if (!isFirst)
      function.erase();
    return name;
  }

private:
  /// A function, and its name and those of its instances by their locations.
  struct Shared {
    func::FuncOp function;
    SmallVector<Location> locations;
    llvm::DenseMap<Attribute, StringAttr> names;
  };

  using Places = llvm::MapVector<Attribute, size_t>;

  Attribute getKey(ArrayRef<Location> locations) {
    return getAttr(llvm::map_to_vector(
        locations, [](Location loc) -> Attribute { return loc; }));
  }
  ArrayAttr getAttr(ArrayRef<Attribute> attrs) {
    return ArrayAttr::get(step.getContext(), attrs);
  }

  /// Adds what is in the module already.
  void add(func::FuncOp function, StringAttr name, InstanceOp instance = {}) {
    SmallVector<Location> locations;
    Shared &shared = find(function, locations);
    if (instance)
      locations = instance.translate(locations);
    shared.names.try_emplace(getKey(locations), name);
    ++numNames;
  }

  /// Returns the entry of `function`, which may be the first that is like it.
  /// Writes the locations in which others like it may differ.
  Shared &find(func::FuncOp function, SmallVectorImpl<Location> &locations) {
    std::string name = function.getSymName().str();
    function.setSymName("f");
    std::string text;
    llvm::raw_string_ostream os(text);
    // Whether the output of the compiler has locations makes no difference.
    function.print(os,
                   OpPrintingFlags().useLocalScope().enableDebugInfo(false));
    function.setSymName(name);
    // Where one function has equal locations, so has the other.
    Places places;
    function.walk<WalkOrder::PreOrder>([&](Operation *op) {
      printPlace(op->getLoc(), places, os);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          for (BlockArgument argument : block.getArguments())
            printPlace(argument.getLoc(), places, os);
    });
    for (auto [location, place] : places)
      locations.push_back(cast<LocationAttr>(location));
    Shared &shared = functions[text];
    if (!shared.function) {
      shared.function = function;
      llvm::append_range(shared.locations, locations);
    }
    return shared;
  }

  /// Writes the place of `loc` among `places`. Passes take fused locations
  /// apart, and drop unknown ones.
  static void printPlace(Location loc, Places &places, raw_ostream &os) {
    if (isa<UnknownLoc>(loc)) {
      os << " ?";
    } else if (auto fused = dyn_cast<FusedLoc>(loc)) {
      os << " (" << fused.getMetadata().getAsOpaquePointer();
      for (Location part : fused.getLocations())
        printPlace(part, places, os);
      os << ")";
    } else {
      os << " " << places.try_emplace(loc, places.size()).first->second;
    }
  }

  /// An instance in place of `function`, which has `locations`.
  InstanceOp createInstance(func::FuncOp function, ArrayRef<Location> locations,
                            const Shared &shared) {
    SmallVector<Attribute> from, to;
    for (auto [old, other] : llvm::zip_equal(shared.locations, locations))
      if (old != other) {
        from.push_back(old);
        to.push_back(other);
      }
    OpBuilder builder(step.getContext());
    return InstanceOp::create(
        builder, function.getLoc(), function.getSymNameAttr(),
        FlatSymbolRefAttr::get(shared.function), getAttr(from), getAttr(to));
  }

  func::FuncOp create(const Outlined &chain) {
    OpBuilder builder(step.getContext());
    auto type = builder.getFunctionType(
        ValueRange(chain.inputs.getArrayRef()).getTypes(),
        ValueRange(chain.outputs).getTypes());
    auto function = func::FuncOp::create(
        chain.getLoc(), "zpp_collective_" + std::to_string(numNames), type);
    Block *body = function.addEntryBlock();
    builder.setInsertionPointToStart(body);
    IRMapping mapping;
    mapping.map(chain.inputs.getArrayRef(), body->getArguments());
    for (Operation *op : chain.ops) {
      // Give each op a destination of its own, so that one-shot bufferization
      // need not resolve conflicts.
      for (Value operand : op->getOperands())
        if (auto empty = operand.getDefiningOp<tensor::EmptyOp>())
          mapping.map(operand,
                      builder.clone(*empty.getOperation())->getResult(0));
      builder.clone(*op, mapping);
    }
    SmallVector<Value> results = llvm::map_to_vector(
        chain.outputs, [&](Value value) { return mapping.lookup(value); });
    func::ReturnOp::create(builder, function.getLoc(), results);
    return function;
  }

  ModuleOp step, host;
  std::optional<SymbolTable> symbols;
  llvm::StringMap<Shared> functions;
  size_t numNames = 0;
};

class OutlineCollectivesPass
    : public zpp::impl::OutlineCollectivesPassBase<OutlineCollectivesPass> {
public:
  void runOnOperation() override {
    Operation *host = getOperation().lookupSymbol(kHostModule);
    if (host && !isa<ModuleOp>(host)) {
      host->emitError("expected @")
          << kHostModule << " to be a module of host functions, but got '"
          << host->getName() << "'";
      return signalPassFailure();
    }
    HostFunctions functions(getOperation());
    for (Block *block : getStepBlocks(getOperation()))
      for (Chain &chain : getChains(*block))
        outline(Outlined(std::move(chain)), functions);
  }

private:
  /// Whether `chain` is outlined, or why it stays where it is.
  static Decision<> mayOutline(const Outlined &chain) {
    if (chain.outputs.empty())
      return LeftAlone("nothing reads its result");
    auto isStatic = [](Value value) { return hasStaticShape(value.getType()); };
    if (!llvm::all_of(chain.inputs, isStatic) ||
        !llvm::all_of(chain.outputs, isStatic))
      return LeftAlone("a tensor that it reads or makes has no static shape");
    for (Operation *op : chain.ops) {
      if (llvm::any_of(op->getOperands(), [](Value operand) {
            auto empty = operand.getDefiningOp<tensor::EmptyOp>();
            return empty && !empty.getDynamicSizes().empty();
          }))
        return LeftAlone("the size of a destination is not static");
      if (auto exchange = dyn_cast<AllToAllOp>(op);
          exchange && (exchange.getWireAttr() || exchange.getSlicesAttr()))
        return LeftAlone("it is not decomposed");
      if (auto view = dyn_cast<OffsetSizeAndStrideOpInterface>(op);
          view && (!view.getOffsets().empty() || !view.getSizes().empty() ||
                   !view.getStrides().empty()))
        return LeftAlone("its slices are not static");
    }
    llvm::SmallPtrSet<Operation *, 16> dependents(llvm::from_range,
                                                  chain.dependents);
    for (Value input : chain.inputs)
      if (dependents.contains(input.getDefiningOp()))
        return LeftAlone("one of its operands depends on one of its results");
    // Every rank must execute the start equally often.
    for (Operation *parent = chain.ops.front()->getParentOp(); parent;
         parent = parent->getParentOp()) {
      StringRef name = parent->getName().getStringRef();
      if (!isa<ModuleOp, func::FuncOp>(parent) && name != guest::kWhile &&
          name != guest::kSdyManualComputation)
        return LeftAlone(("it is in a region of " + name).str());
    }
    if (llvm::none_of(chain.ops, [](Operation *op) {
          return isa<QuantizeOp, DequantizeOp, QuantizeDifferenceOp,
                     DequantizeAddOp>(op) ||
                 (isa<CollectiveOpInterface>(op) && !op->hasAttr(kReasonAttr));
        }))
      return LeftAlone("it sends nothing quantized");
    return Yes();
  }

  void outline(const Outlined &chain, HostFunctions &functions) {
    if (Decision<> decision = mayOutline(chain); !decision) {
      remarkMissed(getExchanges(chain.ops).front(), getArgument(),
                   "not-outlined")
          << ("stays in the graph: " + decision.getReason());
      return;
    }
    // Functions, which starts share, have none.
    SmallVector<Attribute> origins;
    for (Operation *op : chain.ops) {
      Attribute origin = takeOrigin(op);
      if (isa<CollectiveOpInterface>(op))
        origins.push_back(origin);
    }
    StringAttr name = functions.get(chain);
    auto callee =
        SymbolRefAttr::get(StringAttr::get(&getContext(), kHostModule),
                           FlatSymbolRefAttr::get(name));
    // At the end of the chain, where all inputs are available.
    OpBuilder builder(chain.ops.back());
    Location loc = chain.getLoc();
    ValueRange inputs = chain.inputs.getArrayRef();
    TypeRange types = ValueRange(chain.outputs).getTypes();
    auto start =
        StartOp::create(builder, loc, types, TypeRange(), callee, inputs,
                        ValueRange(), builder.getArrayAttr(origins));
    auto wait = WaitOp::create(builder, loc, types, TypeRange(),
                               start.getOutputs(), inputs, ValueRange());
    Operation *last = wait;
    for (Operation *op : chain.dependents) {
      op->moveAfter(last);
      last = op;
    }
    for (auto [from, to] : llvm::zip_equal(chain.outputs, wait.getOutputs()))
      Value(from).replaceAllUsesWith(to);
    for (Operation *op : llvm::reverse(chain.ops)) {
      llvm::SmallSetVector<Value, 4> operands(op->operand_begin(),
                                              op->operand_end());
      op->erase();
      for (Value operand : operands)
        if (auto empty = operand.getDefiningOp<tensor::EmptyOp>();
            empty && empty->use_empty())
          empty.erase();
    }
    remarkPassed(start, getArgument(), "outlined")
        << ("outlined as " + name.str());
  }
};
} // namespace
