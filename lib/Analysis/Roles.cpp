//===- Roles.cpp - What the collectives of a step are for -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

StringRef zpp::getRoleName(Role role) {
  switch (role) {
  case Role::Weight:
    return "weight";
  case Role::Gradient:
    return "gradient";
  case Role::Other:
    return "other";
  }
  llvm_unreachable("unknown role");
}
StringRef zpp::getPhaseName(Phase phase) {
  return phase == Phase::Forward ? "forward" : "backward";
}
static bool isFloatTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return false;
  Type element = tensor.getElementType();
  return element.isF32() || element.isBF16() || element.isF16();
}

namespace {
/// The whole tensor of a gather or scatter, without dims of size 1.
struct WholeTensor {
  WholeTensor(const StepCollective &collective, RankedTensorType whole) {
    for (int64_t dim = 0; dim < whole.getRank(); ++dim)
      if (whole.getDimSize(dim) != 1 || dim == collective.dim)
        dims.push_back({dim, whole.getDimSize(dim), dim == collective.dim});
  }

  /// What a gather and the scatter of its gradient have in common.
  std::string getKey(ArrayRef<AxisRef> axes) const {
    std::string key;
    llvm::raw_string_ostream os(key);
    for (const AxisRef &axis : axes)
      os << axis.name << ":" << axis.preSize << ":" << axis.size << ",";
    for (const Dim &dim : dims)
      os << (dim.isPartitioned ? "|" : "x") << dim.size;
    return key;
  }

  /// Puts the dims where those of the operand or the result of `op` are; false
  /// where `op` is not a cast, a transpose or the like.
  bool
  follow(Operation *op,
         llvm::function_ref<std::optional<int64_t>(Operation *, int64_t)> map) {
    SmallVector<Dim> moved(dims);
    for (Dim &dim : moved) {
      std::optional<int64_t> index = map(op, dim.index);
      if (!index)
        return false;
      dim.index = *index;
    }
    llvm::sort(moved,
               [](const Dim &a, const Dim &b) { return a.index < b.index; });
    dims = std::move(moved);
    return true;
  }

private:
  struct Dim {
    int64_t index;
    int64_t size;
    bool isPartitioned;
  };
  SmallVector<Dim> dims;
};
} // namespace

/// Keys of a gather, or of a scatter. A scatter mirrors a gather with which it
/// shares one: either the two are of one shape, or they are so where the
/// weight is stored, as XLA's partitioner leaves transposes behind a scatter.
static SmallVector<std::string> getMirrorKeys(const StepCollective &collective,
                                              Type whole) {
  WholeTensor tensor(collective, cast<RankedTensorType>(whole));
  SmallVector<std::string> keys{tensor.getKey(collective.axes)};
  if (collective.kind == CollectiveKind::AllGather) {
    Operation *op = collective.op->getOperand(0).getDefiningOp();
    while (op && tensor.follow(op, getOperandDim))
      op = op->getOperand(0).getDefiningOp();
  } else {
    Value value = collective.op->getResult(0);
    while (value.hasOneUse() &&
           tensor.follow(*value.user_begin(), getResultDim))
      value = value.user_begin()->getResult(0);
  }
  if (std::string key = tensor.getKey(collective.axes); key != keys[0])
    keys.push_back(key);
  return keys;
}

namespace {
/// Numbers weights in the order of their first gather.
class WeightNumbering {
public:
  explicit WeightNumbering(ProvenanceAnalysis &provenance)
      : provenance(provenance) {}

  /// The weight that `gather` gathers, and whether no gather before it does.
  std::pair<int64_t, bool> insert(Operation *gather) {
    Value operand = gather->getOperand(0);
    // What other loops gather under the same key is the same; in one block,
    // other iterations' slices are other weights, numbered as they come.
    int64_t shared = provenance.getSliceId(operand, /*inAnyIteration=*/true);
    llvm::MapVector<int64_t, int64_t> &slices =
        inBlock[{gather->getBlock(), shared}];
    int64_t slice = provenance.getSliceId(operand, /*inAnyIteration=*/false);
    int64_t number = slices.try_emplace(slice, slices.size()).first->second;
    auto [weight, isNew] =
        weights.try_emplace({shared, number}, weights.size());
    return {weight->second, isNew};
  }

private:
  ProvenanceAnalysis &provenance;
  llvm::DenseMap<std::pair<Block *, int64_t>, llvm::MapVector<int64_t, int64_t>>
      inBlock;
  llvm::DenseMap<std::pair<int64_t, int64_t>, int64_t> weights;
};
} // namespace

/// Sets role, weight and reason of a gather.
static void classifyGather(StepCollective &gather,
                           ProvenanceAnalysis &provenances,
                           WeightNumbering &weights) {
  Type type = gather.op->getOperand(0).getType();
  if (gather.op->getNumOperands() != 1 || gather.op->getNumResults() != 1 ||
      !isFloatTensor(type) ||
      !isFloatTensor(gather.op->getResult(0).getType())) {
    gather.reason = "it does not gather one f32, bf16 or f16 tensor of static "
                    "shape";
    return;
  }
  Provenance provenance = provenances.get(gather.op->getOperand(0));
  if (!provenance.isStepInput) {
    gather.reason = "its operand is computed in the step, not a weight";
    return;
  }
  gather.role = Role::Weight;
  bool isNew;
  std::tie(gather.weight, isNew) = weights.insert(gather.op);
  gather.phase = isNew ? Phase::Forward : Phase::Backward;
  auto whole = cast<ShapedType>(gather.op->getResult(0).getType());
  gather.modelBytes = getBytes(whole);
  auto root = dyn_cast<ShapedType>(provenance.root.getType());
  // A loop over stacked weights gathers all of the stack.
  if (provenance.isSliced && root && root.hasStaticShape() &&
      gather.trips.value_or(1) > 1)
    gather.modelBytes *= *gather.trips;
}

/// Forward and backward loops may cut one stack of weights into slices that
/// overlap (a number of layers that is no multiple of scan's `unroll`): the
/// weights of an input have together no more bytes than all of it.
static void limitModelBytes(MutableArrayRef<StepCollective> collectives,
                            ProvenanceAnalysis &provenances) {
  llvm::DenseMap<Value, int64_t> left;
  llvm::DenseMap<int64_t, int64_t> known;
  for (StepCollective &gather : collectives) {
    if (gather.role != Role::Weight)
      continue;
    auto [weight, isNew] = known.try_emplace(gather.weight, 0);
    Value root = provenances.get(gather.op->getOperand(0)).root;
    auto type = dyn_cast<RankedTensorType>(root.getType());
    auto part = cast<ShapedType>(gather.op->getOperand(0).getType());
    if (isNew && type && type.hasStaticShape() && part.getNumElements() > 0) {
      auto whole = cast<ShapedType>(gather.op->getResult(0).getType());
      // Outside of a manual computation an input is whole, inside it is what a
      // device has.
      Operation *manual = gather.op->getParentOp();
      while (manual && !isNamed(manual, "sdy.manual_computation"))
        manual = manual->getParentOp();
      bool isWhole =
          manual && !manual->isAncestor(root.getParentBlock()->getParentOp());
      int64_t devices =
          isWhole ? 1 : whole.getNumElements() / part.getNumElements();
      auto [bytes, isFirst] =
          left.try_emplace(root, type.getNumElements() * devices *
                                     whole.getElementTypeBitWidth() / 8);
      weight->second = std::min(gather.modelBytes, bytes->second);
      bytes->second -= weight->second;
    } else if (isNew) {
      weight->second = gather.modelBytes;
    }
    gather.modelBytes = weight->second;
  }
}

SmallVector<StepCollective> zpp::getStepCollectives(ModuleOp module,
                                                    const Mesh &mesh) {
  SmallVector<StepCollective> result;
  CollectiveReader reader(mesh);
  ProvenanceAnalysis provenances;
  auto add = [&](Operation *op, Operation *start, int64_t index) {
    std::optional<CollectiveView> view = reader.read(op);
    if (!view)
      return false;
    StepCollective collective;
    static_cast<CollectiveView &>(collective) = std::move(*view);
    collective.start = start;
    collective.index = index;
    collective.trips = provenances.getTripCount(start ? start : op);
    result.push_back(std::move(collective));
    return true;
  };
  // What is outlined counts where it is started.
  walkStep(module, [&](Operation *op) {
    if (FunctionOpInterface function = getStartedFunction(op)) {
      int64_t index = 0;
      function->walk(
          [&](Operation *exchange) { index += add(exchange, op, index); });
    } else {
      add(op, nullptr, 0);
    }
    return WalkResult::advance();
  });

  WeightNumbering weights(provenances);
  llvm::StringSet<> mirrors;
  for (StepCollective &collective : result) {
    if (collective.kind != CollectiveKind::AllGather ||
        isa<zero::CollectiveOpInterface>(collective.op))
      continue;
    classifyGather(collective, provenances, weights);
    if (collective.role == Role::Weight)
      for (const std::string &key :
           getMirrorKeys(collective, collective.op->getResult(0).getType()))
        mirrors.insert(key);
  }

  bool isBackward = false;
  for (StepCollective &collective : result) {
    if (collective.role == Role::Weight) {
      isBackward |= collective.phase == Phase::Backward;
      continue;
    }
    if (collective.kind == CollectiveKind::ReduceScatter) {
      Type type = collective.op->getOperand(0).getType();
      if (collective.op->getNumOperands() != 1 ||
          collective.op->getNumResults() != 1 || !isFloatTensor(type) ||
          !isFloatTensor(collective.op->getResult(0).getType()))
        collective.reason = "it does not scatter one f32, bf16 or f16 tensor "
                            "of static shape";
      else if (!isSum(collective.op))
        collective.reason = "its reduction is not a sum";
      else if (llvm::none_of(getMirrorKeys(collective, type),
                             [&](const std::string &key) {
                               return mirrors.contains(key);
                             }))
        collective.reason = "it mirrors no weight gather";
      else
        collective.role = Role::Gradient;
    } else if (collective.reason.empty()) {
      collective.reason = "it is no gather of a weight and no scatter of a "
                          "gradient";
    }
    if (collective.role == Role::Other && !collective.groupError.empty() &&
        collective.kind != CollectiveKind::CollectivePermute)
      collective.reason +=
          "; its bytes are not counted: " + collective.groupError;
    isBackward |= collective.role == Role::Gradient;
    collective.phase = isBackward ? Phase::Backward : Phase::Forward;
  }
  limitModelBytes(result, provenances);
  return result;
}
