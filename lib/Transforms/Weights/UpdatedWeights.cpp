//===- UpdatedWeights.cpp - What devices hold of updated weights ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "UpdatedWeights.h"

#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Roles/Divisions.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace zpp;

std::vector<AxisRef> UpdatedWeight::getAxes() const {
  std::vector<AxisRef> axes;
  for (const CollectiveView &gather : gathers)
    llvm::append_range(axes, gather.axes);
  return axes;
}

UpdatedWeights::UpdatedWeights(ModuleOp module, const Mesh &mesh)
    : mesh(mesh), reader(mesh), copies(getModuleCopies(module)),
      tables(copies.partitions), graph(module) {
  SmallVector<Value> gradients;
  module.walk([&](Operation *op) {
    std::optional<Origin> origin = getOrigin(op);
    if (origin && origin->role == Role::Gradient)
      gradients.push_back(op->getOperand(0));
  });
  auto isNone = [](BlockArgument) { return false; };
  if (!gradients.empty())
    ancestors = StepFlow(graph, isNone, isNone).getAncestors(gradients);
}

//===----------------------------------------------------------------------===//
// Gathers
//===----------------------------------------------------------------------===//

/// Reads `op`, a gather of one tensor.
Decision<CollectiveView> UpdatedWeights::readGather(Operation *op) {
  std::optional<CollectiveView> view = reader.read(op);
  if (!view || view->kind != CollectiveKind::AllGather)
    return LeftAlone("it is no gather");
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return LeftAlone("it gathers several tensors at once");
  auto part = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto whole = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!part || !whole || !part.hasStaticShape() || !whole.hasStaticShape() ||
      !zero::isQuantizable(part.getElementType()))
    return LeftAlone("its tensor is not of f32, bf16 or f16 and of static "
                     "shape");
  if (!view->groupError.empty())
    return LeftAlone(view->groupError);
  if (view->dim < 0 || view->dim >= part.getRank())
    return LeftAlone("its dim is none of its tensor");
  SmallVector<int64_t> shape(part.getShape());
  shape[view->dim] =
      multiplySaturating(shape[view->dim], zpp::numDevices(view->axes));
  int64_t elements = 1;
  for (int64_t size : shape)
    elements = multiplySaturating(elements, size);
  if (part.clone(shape) != whole || elements == 0 || elements > kMaxElements)
    return LeftAlone("its tensor is not made of a part of each device");
  return std::move(*view);
}

/// `gather` and those before it, and where the slice of each device begins.
Decision<UpdatedWeight>
UpdatedWeights::readGathers(Operation *gather,
                            llvm::function_ref<bool(Operation *)> isGather) {
  UpdatedWeight weight;
  while (true) {
    Decision<CollectiveView> view = readGather(gather);
    if (!view)
      return view.getLeftAlone();
    weight.gathers.push_back(std::move(*view));
    Operation *before = gather->getOperand(0).getDefiningOp();
    if (!before || !isGather(before) || !before->hasOneUse() ||
        before->getBlock() != gather->getBlock())
      break;
    Decision<CollectiveView> next = readGather(before);
    if (!next || next->dim != weight.getDim())
      break;
    std::vector<AxisRef> axes = weight.getAxes();
    llvm::append_range(axes, next->axes);
    if (!mesh.verify(axes).empty())
      break;
    gather = before;
  }
  if (weight.getAxes().empty())
    return LeftAlone("its groups have one device each");
  Decision<std::vector<int64_t>> offsets = getOffsets(weight);
  if (!offsets)
    return offsets.getLeftAlone();
  weight.offsets = std::move(*offsets);
  return weight;
}

/// For each device where its slice begins.
Decision<std::vector<int64_t>>
UpdatedWeights::getOffsets(const UpdatedWeight &weight) const {
  std::vector<int64_t> offsets(copies.partitions, -1);
  for (const CollectiveView &gather : weight.gathers) {
    std::string error;
    std::optional<ReplicaGroups> groups = readReplicaGroups(gather.op, error);
    if (!groups)
      return LeftAlone(error);
    int64_t size =
        getTensorType(gather.op->getOperand(0)).getDimSize(gather.dim);
    std::vector<int64_t> places(copies.partitions, -1);
    for (const std::vector<int64_t> &group : *groups)
      for (auto [place, device] : llvm::enumerate(group))
        if (device >= 0 && device < copies.partitions)
          places[device] = place;
    for (auto [place, offset] : llvm::zip_equal(places, offsets)) {
      if (place < 0)
        return LeftAlone("its groups do not have all devices");
      offset = (offset < 0 ? 0 : offset) + static_cast<int64_t>(place) * size;
    }
  }
  return offsets;
}

//===----------------------------------------------------------------------===//
// Where what is gathered comes from
//===----------------------------------------------------------------------===//

/// Returns the slices at an offset from which `value` is made element by
/// element.
SmallVector<Operation *> UpdatedWeights::findSlices(Value value) {
  SmallVector<Operation *> slices;
  llvm::SetVector<Value> pending;
  pending.insert(value);
  int64_t elements = cast<ShapedType>(value.getType()).getNumElements();
  for (size_t i = 0; i < pending.size(); ++i) {
    Operation *op = pending[i].getDefiningOp();
    if (!op)
      continue;
    if (isNamed(op, guest::kDynamicSlice)) {
      slices.push_back(op);
      continue;
    }
    if (isBarrier(op)) {
      pending.insert(
          op->getOperand(cast<OpResult>(pending[i]).getResultNumber()));
      continue;
    }
    // Functions that a step calls are helpers, such as jnp.where.
    if (!isElementwise(op) && !isNamed(op, guest::kReshape) &&
        !isa<func::CallOp>(op))
      continue;
    for (Value operand : op->getOperands())
      if (auto type = dyn_cast<RankedTensorType>(operand.getType());
          type && type.hasStaticShape() && type.getNumElements() == elements)
        pending.insert(operand);
  }
  return slices;
}

/// Returns the elements of the dims of `type` before `dim`.
static int64_t getOuter(RankedTensorType type, int64_t dim) {
  return llvm::product_of(type.getShape().take_front(dim));
}

/// True if the gathers put the part of each device where `slice` cuts it out.
/// On the way from the one to the other, elements keep their order.
bool UpdatedWeights::isAtOffsets(const PartitionSlice &slice,
                                 const UpdatedWeight &weight) {
  RankedTensorType from = getTensorType(slice.op->getOperand(0));
  RankedTensorType to = weight.getWhole();
  if (from.getNumElements() != to.getNumElements())
    return false;
  // The elements of one row of `dim`.
  auto getInner = [](RankedTensorType type, int64_t dim) {
    return llvm::product_of(type.getShape().drop_front(dim + 1));
  };
  bool isSameDim =
      from.getShape() == to.getShape() && slice.dim == weight.getDim();
  if (!isSameDim &&
      (getOuter(from, slice.dim) != 1 || getOuter(to, weight.getDim()) != 1))
    return false;
  int64_t fromRow = getInner(from, slice.dim);
  int64_t toRow = getInner(to, weight.getDim());
  return llvm::equal(slice.offsets, weight.offsets, [&](int64_t a, int64_t b) {
    return multiplySaturating(a, fromRow) == multiplySaturating(b, toRow);
  });
}

/// Returns the arguments of `manual`, a manual computation, that `value` is
/// made of by casts, slices and changes of its shape that are the same on all
/// devices; nullopt if it is made of anything else.
std::optional<SmallVector<unsigned>>
UpdatedWeights::getArguments(Value value, Operation *manual) {
  SmallVector<unsigned> arguments;
  llvm::SetVector<Value> pending;
  pending.insert(value);
  for (size_t i = 0; i < pending.size(); ++i) {
    if (auto argument = dyn_cast<BlockArgument>(pending[i])) {
      if (argument.getOwner() != &ManualView(manual).getBody())
        return std::nullopt;
      arguments.push_back(argument.getArgNumber());
      continue;
    }
    Operation *op = pending[i].getDefiningOp();
    if (isNamed(op, guest::kConstant))
      continue;
    if (isBarrier(op))
      pending.insert(
          op->getOperand(cast<OpResult>(pending[i]).getResultNumber()));
    else if (isJoin(op))
      pending.insert(op->operand_begin(), op->operand_end());
    // Padding may be a constant that is broadcast.
    else if ((movesData(op) || isNamed(op, guest::kBroadcastInDim)) &&
             op->getNumOperands() == 1)
      pending.insert(op->getOperand(0));
    else
      return std::nullopt;
  }
  return arguments;
}

//===----------------------------------------------------------------------===//
// Where what is gathered goes
//===----------------------------------------------------------------------===//

/// Returns the results of the step that are `value`, or a part of it, in
/// another shape or type.
SmallVector<UpdatedWeights::Returned>
UpdatedWeights::findReturned(Value value, Operation *manual) {
  SmallVector<Returned> returned;
  struct Step {
    Value value;
    SmallVector<Operation *> path;
    bool isWhole;
  };
  SmallVector<Step> pending{{value, {}, true}};
  while (!pending.empty()) {
    Step step = pending.pop_back_val();
    for (OpOperand &use : step.value.getUses()) {
      Operation *op = use.getOwner();
      if (op == ManualView(manual).getYield()) {
        unsigned number = use.getOperandNumber();
        SmallVector<Value> outside{manual->getResult(number)};
        while (!outside.empty())
          for (OpOperand &reader : outside.pop_back_val().getUses()) {
            if (isa<func::ReturnOp>(reader.getOwner()))
              returned.push_back(
                  {reader.getOperandNumber(), number, step.path, step.isWhole});
            else if (isNamed(reader.getOwner(), guest::kSdyShardingConstraint))
              llvm::append_range(outside, reader.getOwner()->getResults());
          }
        continue;
      }
      if (isBarrier(op)) {
        pending.push_back(
            {op->getResult(use.getOperandNumber()), step.path, step.isWhole});
        continue;
      }
      bool isSlice = isNamed(op, guest::kSlice);
      if (!isConsistentMovement(op) ||
          !(isSlice || isNamed(op, guest::kReshape) ||
            isNamed(op, guest::kTranspose) || isNamed(op, guest::kConvert)))
        continue;
      Step next{op->getResult(0), step.path, step.isWhole && !isSlice};
      next.path.push_back(op);
      pending.push_back(std::move(next));
    }
  }
  return returned;
}

/// Returns the number of the operand of `manual` that is `argument` of the
/// step.
std::optional<unsigned> UpdatedWeights::getOperand(unsigned argument,
                                                   Operation *manual) {
  auto [known, isNew] = operands.try_emplace(manual);
  if (isNew)
    for (auto [number, value] : llvm::enumerate(manual->getOperands()))
      if (auto input = dyn_cast<BlockArgument>(value))
        known->second.try_emplace(input.getArgNumber(), number);
  auto found = known->second.find(argument);
  return found == known->second.end() ? std::nullopt
                                      : std::optional(found->second);
}

/// True if the step may return `returned` for what `argument` of `manual` is.
bool UpdatedWeights::mayReplace(const Returned &returned, unsigned argument,
                                Operation *manual,
                                const StepSignature &signature) {
  auto input = dyn_cast<BlockArgument>(manual->getOperand(argument));
  auto function = cast<func::FuncOp>(manual->getParentOp());
  return input && input.getOwner() == &function.getBody().front() &&
         input.getType() ==
             function.getFunctionType().getResult(returned.result) &&
         manuals.getOperandShardings(manual)[argument] ==
             manuals.getResultShardings(manual)[returned.number] &&
         signature.mayReplace(returned.result, input.getArgNumber());
}

/// True if all devices of a group have the same of `argument`.
bool UpdatedWeights::isReplicated(unsigned argument,
                                  const UpdatedWeight &weight,
                                  Operation *manual) {
  return llvm::all_of(weight.gathers, [&](const CollectiveView &gather) {
    std::string error;
    return sameValues.isReplicated(manual, argument,
                                   *readReplicaGroups(gather.op, error));
  });
}

/// True if a gradient is computed from `argument` of `manual`: it is no average
/// of weights, and not the optimizer's state.
bool UpdatedWeights::isWeight(unsigned argument, Operation *manual) {
  return !ancestors ||
         ancestors->contains(ManualView(manual).getArgument(argument));
}

//===----------------------------------------------------------------------===//
// What is held
//===----------------------------------------------------------------------===//

/// Returns the name of `argument` of `manual`, an argument of the step.
static std::string describe(unsigned argument, Operation *manual,
                            const StepSignature &signature) {
  auto input = cast<BlockArgument>(manual->getOperand(argument));
  return "argument " + signature.describeArgument(input.getArgNumber());
}

/// Returns the slices of returned arguments from which what is gathered is
/// made: equal ones of one tensor, or none.
Decision<SmallVector<UpdatedWeights::Source>>
UpdatedWeights::findSources(const UpdatedWeight &weight,
                            ArrayRef<Returned> returned, Operation *manual,
                            const StepSignature &signature) {
  auto isReturned = [&](const Source &source) {
    return llvm::any_of(source.arguments, [&](unsigned argument) {
      return llvm::any_of(returned, [&](const Returned &result) {
        return mayReplace(result, argument, manual, signature);
      });
    });
  };
  SmallVector<Source> sources;
  std::optional<unsigned> replacedElsewhere;
  for (Operation *op : findSlices(weight.getOperand())) {
    std::optional<SmallVector<unsigned>> arguments =
        getArguments(op->getOperand(0), manual);
    if (!arguments)
      continue;
    Source source{op, std::move(*arguments)};
    if (!isReturned(source)) {
      for (unsigned argument : source.arguments)
        if (isa<BlockArgument>(manual->getOperand(argument)) &&
            isWeight(argument, manual))
          replacedElsewhere = argument;
      continue;
    }
    if (llvm::any_of(sources, [&](const Source &other) {
          return other.slice->getOperands() == op->getOperands();
        }))
      continue;
    std::string error;
    std::optional<PartitionSlice> slice = tables.getSlice(op, error);
    if (!slice || !isAtOffsets(*slice, weight))
      return LeftAlone(
          "the slice of " +
          describe(source.arguments.front(), manual, signature) +
          " that it is made of is not the one that it puts in its place");
    sources.push_back(std::move(source));
  }
  if (sources.empty() && replacedElsewhere)
    return LeftAlone("it is made of a slice of " +
                     describe(*replacedElsewhere, manual, signature) +
                     ", and the step returns it in place of another one");
  // Equal slices that the step has cut twice.
  if (!sources.empty() && llvm::any_of(sources, [&](const Source &source) {
        return source.slice->getOperand(0) !=
               sources.front().slice->getOperand(0);
      }))
    return LeftAlone(
        "it is made of slices of " +
        describe(sources.front().arguments.front(), manual, signature) +
        " and " +
        describe(sources.back().arguments.front(), manual, signature) +
        ", and which of them it replaces is not certain: donate them, or "
        "return them under the names that they came with");
  return sources;
}

/// Returns the argument that what is gathered replaces, where the step cuts a
/// slice of none.
Decision<UpdatedWeights::Held>
UpdatedWeights::findReplaced(ArrayRef<Returned> returned, Operation *manual,
                             const StepSignature &signature) {
  for (const Returned &result : returned) {
    std::optional<unsigned> replaced =
        signature.getReplaced(result.result, [&](unsigned argument) {
          std::optional<unsigned> number = getOperand(argument, manual);
          return number && mayReplace(result, *number, manual, signature);
        });
    if (!result.isWhole || !replaced)
      continue;
    unsigned argument = *getOperand(*replaced, manual);
    return Held{ManualView(manual).getArgument(argument),
                nullptr,
                result.path,
                {argument}};
  }
  if (llvm::none_of(returned,
                    [](const Returned &result) { return result.isWhole; }))
    return LeftAlone("the step returns it in parts, and cuts the slice that it "
                     "is made of out of no argument");
  return LeftAlone("which argument it replaces is not certain: the step cuts "
                   "the slice of none; donate the weights, or return them "
                   "under the names that they came with");
}

/// Returns the value held of `weight`.
Decision<UpdatedWeights::Held>
UpdatedWeights::findHeld(const UpdatedWeight &weight, Operation *manual,
                         const StepSignature &signature) {
  SmallVector<Returned> returned =
      findReturned(weight.gathers.front().op->getResult(0), manual);
  if (returned.empty())
    return LeftAlone("no result of the step is what it gathers");
  Decision<SmallVector<Source>> sources =
      findSources(weight, returned, manual, signature);
  if (!sources)
    return sources.getLeftAlone();
  Decision<Held> held = sources->empty()
                            ? findReplaced(returned, manual, signature)
                            : Held{sources->front().slice->getOperand(0),
                                   sources->front().slice,
                                   {},
                                   sources->front().arguments};
  if (!held)
    return held;
  for (unsigned argument : held->arguments)
    if (!isWeight(argument, manual))
      return LeftAlone(describe(argument, manual, signature) +
                       " is no weight: no gradient is computed from it");
  for (unsigned argument : held->arguments)
    if (isDividedBy(graph, ManualView(manual).getArgument(argument)))
      return LeftAlone("the step divides by elements of " +
                       describe(argument, manual, signature) +
                       ", or takes logarithms or roots of them");
  for (unsigned argument : held->arguments)
    if (!isReplicated(argument, weight, manual))
      return LeftAlone("devices of its groups have different parts of " +
                       describe(argument, manual, signature));
  return held;
}

Decision<UpdatedWeight>
UpdatedWeights::find(Operation *gather,
                     llvm::function_ref<bool(Operation *)> isGather) {
  Operation *manual = gather->getParentOp();
  func::FuncOp function;
  if (manuals.contains(manual))
    function = dyn_cast<func::FuncOp>(manual->getParentOp());
  if (isInLoop(gather))
    return LeftAlone("it is in a loop, in which what devices hold changes");
  if (!function || !function.isPublic())
    return LeftAlone("it is not in a manual computation (jax.shard_map) of the "
                     "step itself");
  if (const std::string &axes = automatic.get(gather); !axes.empty())
    return LeftAlone("its manual computation leaves the axes " + axes +
                     " to the partitioner");
  if (copies.replicas != 1)
    return LeftAlone("the module has " + std::to_string(copies.replicas) +
                     " replicas, whose slices are not known");
  std::unique_ptr<StepSignature> &signature = signatures[function];
  if (!signature)
    signature = std::make_unique<StepSignature>(function);
  Decision<UpdatedWeight> weight = readGathers(gather, isGather);
  if (!weight)
    return weight;
  Decision<Held> held = findHeld(*weight, manual, *signature);
  if (!held)
    return held.getLeftAlone();
  weight->held = held->value;
  weight->slice = held->slice;
  weight->path = std::move(held->path);
  return weight;
}
