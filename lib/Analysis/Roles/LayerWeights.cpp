//===- LayerWeights.cpp - Inputs that layers take as their weights --------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step neither returns nor differentiates the base of a LoRA, a teacher, a
// reference policy or, when the generator of a GAN is trained, the
// discriminator. Only their use tells them from data that devices exchange:
// negatives of a contrastive loss, keys and values of a memory, images.
//
//===----------------------------------------------------------------------===//

#include "GradientProver.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;
using Direction = ValueGraph::Direction;

namespace {
/// The dims of a tensor that come from the gathered one, a bit each; none if
/// they are not known.
using Dims = uint64_t;

/// The evidence of one use of an input.
enum class Evidence { None, Layer, Data };
} // namespace

/// The dims of the result of a reshape that `dims` become a part of.
static Dims reshapeDims(ArrayRef<int64_t> from, ArrayRef<int64_t> to,
                        Dims dims) {
  Dims result = 0;
  size_t i = 0, j = 0;
  // Groups of dims, as small as possible, of as many elements on both sides.
  while (i < from.size() || j < to.size()) {
    size_t firstFrom = i, firstTo = j;
    int64_t left = i < from.size() ? from[i++] : 1;
    int64_t right = j < to.size() ? to[j++] : 1;
    while (left != right) {
      if (left < right && i < from.size())
        left *= from[i++];
      else if (right < left && j < to.size())
        right *= to[j++];
      else
        return 0;
    }
    bool isTouched = false;
    for (size_t dim = firstFrom; dim < i; ++dim)
      isTouched |= dims >> dim & 1;
    for (size_t dim = firstTo; isTouched && dim < j; ++dim)
      if (to[dim] != 1)
        result |= Dims(1) << dim;
  }
  return result;
}

/// True for lookups of single numbers, as a table of sixteen makes of codes in
/// 4 bits.
static bool isNumberLookup(Operation *op) {
  auto sizes = op->getAttrOfType<DenseI64ArrayAttr>("slice_sizes");
  auto table = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  return isLookup(op) && sizes && sizes.asArrayRef() == ArrayRef<int64_t>(1) &&
         table && table.getRank() == 1;
}

/// The dims of the result of `op` that come from `dims` of its operand.
static Dims moveDims(Operation *op, unsigned operand, Dims dims) {
  auto from = dyn_cast<RankedTensorType>(op->getOperand(operand).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!from || !to || from.getRank() > 64 || to.getRank() > 64)
    return 0;
  auto place = [&](StringRef name, bool isOfResult) {
    Dims moved = 0;
    auto numbers = op->getAttrOfType<DenseI64ArrayAttr>(name);
    if (!numbers)
      return moved;
    for (auto [index, number] : llvm::enumerate(numbers.asArrayRef())) {
      int64_t source = isOfResult ? number : index;
      int64_t target = isOfResult ? index : number;
      if (dims >> source & 1)
        moved |= Dims(1) << target;
    }
    return moved;
  };
  if (isNamed(op, guest::kTranspose))
    return place("permutation", /*isOfResult=*/true);
  if (isNamed(op, guest::kBroadcastInDim))
    return place("broadcast_dimensions", /*isOfResult=*/false);
  if (isNamed(op, guest::kReshape))
    return reshapeDims(from.getShape(), to.getShape(), dims);
  // A view as another type has or lacks the last dim, and indices may have one
  // more.
  if (op->getName().stripDialect() == "bitcast_convert" || isNumberLookup(op))
    return to.getRank() < from.getRank() ? dims & ~(Dims(1) << to.getRank())
                                         : dims;
  return from.getRank() == to.getRank() ? dims : 0;
}

/// The search for uses by layers.
class GradientProver::Layers {
public:
  explicit Layers(GradientProver &search)
      : search(search), graph(search.graph) {}

  std::vector<bool> find(ArrayRef<SmallVector<GatheredValue>> inputs) {
    findData(inputs);
    std::vector<bool> isLayer(inputs.size());
    std::vector<SmallVector<Node>> rows(inputs.size());
    for (auto [index, gathers] : llvm::enumerate(inputs)) {
      bool isData = false;
      SmallVector<Node> products;
      for (const GatheredValue &gathered : gathers)
        for (const Use &use : getUses(gathered)) {
          Evidence evidence = judge(use, gathers);
          isData |= evidence == Evidence::Data;
          if (evidence == Evidence::Layer)
            products.push_back(use.result);
          else if (isLookup(graph.getOp(use.result)))
            rows[index].push_back(use.result);
        }
      isLayer[index] = !isData && !products.empty();
      if (isData)
        rows[index].clear();
      if (isLayer[index])
        layers.insert_range(products);
    }
    // A table by whose rows a network of such layers begins.
    for (auto [index, found] : llvm::enumerate(rows))
      if (!isLayer[index])
        isLayer[index] = llvm::any_of(found, [&](Node node) {
          return reachesProduct(
              node, [&](Node product) { return layers.contains(product); });
        });
    return isLayer;
  }

private:
  /// A product or a lookup that takes what is gathered.
  struct Use {
    Node result;
    unsigned operand;
    Dims dims;
  };

  /// Finds the inputs that are data. Integers that are gathered may be weights
  /// that somebody has packed: what they become part of tells.
  void findData(ArrayRef<SmallVector<GatheredValue>> inputs) {
    for (Node leaf : graph.getLeaves())
      if (search.hasData[leaf])
        data = search.sets.unite(data, search.sets.getSingle(leaf));
    for (const SmallVector<GatheredValue> &gathers : inputs)
      for (const GatheredValue &gathered : gathers)
        if (std::optional<Node> node = graph.find(gathered.whole);
            node && !graph.isDifferentiable(*node))
          data = search.sets.subtract(data, search.leavesOf[*node]);
  }

  /// True if `target` is made of weights alone, as `source` is: of numbers, or
  /// of what those are cast to, such as packed integers.
  bool isOfWeights(Node source, Node target) {
    Operation *op = graph.getOp(target);
    return search.isWeight[target] ||
           ((graph.isDifferentiable(target) ||
             !graph.isDifferentiable(source) || (op && movesData(op))) &&
            !search.sets.haveCommon(search.leavesOf[target], data));
  }

  /// Finds where elements that are still those of weights alone are contracted
  /// or looked up.
  SmallVector<Use> getUses(const GatheredValue &gathered) {
    SmallVector<Use> uses;
    std::optional<Node> start = graph.find(gathered.whole);
    // Rows of a batch that devices exchange are none.
    if (!start || (search.hasData[*start] && graph.isDifferentiable(*start)))
      return uses;
    llvm::DenseSet<Node> seen{*start};
    SmallVector<std::pair<Node, Dims>> pending{
        {*start, Dims(1) << gathered.dim}};
    while (!pending.empty()) {
      auto [node, dims] = pending.pop_back_val();
      for (const Edge &edge : graph.getReaders(node)) {
        Node target = edge.target;
        Operation *op = graph.getOp(target);
        // What autodiff has transposed follows from the uses before it.
        if (graph.isTransposed(target) || edge.isCarried)
          continue;
        bool isOfOp = op && edge.operand >= 0;
        bool isCode = isOfOp && edge.operand == 1 && isNumberLookup(op);
        if (isOfOp && (isProduct(op) || isLookup(op)) && !isCode)
          uses.push_back({target, static_cast<unsigned>(edge.operand), dims});
        else if (isOfWeights(node, target) && seen.insert(target).second)
          pending.push_back(
              {target, isOfOp ? moveDims(op, edge.operand, dims) : dims});
      }
    }
    return uses;
  }

  Evidence judge(const Use &use, ArrayRef<GatheredValue> gathers) {
    Operation *op = graph.getOp(use.result);
    if (isLookup(op))
      return Evidence::None;
    Node other =
        use.operand < 2 ? graph.getOperands(use.result)[1 - use.operand] : -1;
    if (other < 0)
      return Evidence::None;
    // Weights contract data, not each other.
    if (search.isWeight[other])
      return Evidence::Data;
    std::optional<ProductDims> dims = getProductDims(op, use.operand);
    if (!dims || !dims->batching.empty() || !search.hasData[other] ||
        use.dims == 0 || isOfSame(other, gathers) || !isActivation(other))
      return Evidence::None;
    Dims summed = 0;
    for (int64_t dim : dims->summed)
      summed |= Dims(1) << dim;
    if ((use.dims & summed) == use.dims)
      return Evidence::Layer;
    // What each device has of it are features that another layer contracts;
    // scores of a softmax would be of data.
    bool isContracted = reachesProduct(use.result, [&](Node product) {
      return !graph.isTransposed(product) &&
             !llvm::is_contained(graph.getOperands(product), -1) &&
             llvm::none_of(graph.getOperands(product), [&](Node operand) {
               return search.isWeight[operand] && isOfSame(operand, gathers);
             });
    });
    return (use.dims & summed) == 0 && isContracted ? Evidence::Layer
                                                    : Evidence::None;
  }

  /// True if `node` depends on what `gathers` gather, as the second of two uses
  /// of one weight does, or the backward pass.
  bool isOfSame(Node node, ArrayRef<GatheredValue> gathers) {
    return llvm::any_of(gathers, [&](const GatheredValue &gathered) {
      std::optional<Node> whole = graph.find(gathered.whole);
      return whole && search.depends(node, *whole, /*byDerivative=*/false);
    });
  }

  /// True if a derivative leads from `node` to floating-point inputs, so that
  /// it is no choice of rows, and if its elements are no probabilities.
  bool isActivation(Node node) {
    bool isProbability = graph.walk(
        node, Direction::ToSources,
        [&](const Edge &edge) {
          // XLA makes 1 / (1 + exp(-x)) of a logistic function.
          bool isDivisor =
              graph.is(edge.target, guest::kDivide) && edge.operand == 1;
          return edge.isMoved && edge.isDifferentiable && !edge.isCarried &&
                 !isDivisor;
        },
        [&](Node source) { return graph.is(source, guest::kExponential); });
    return !isProbability && search.visitAncestors(node, 0, [&](Node leaf) {
      return graph.getInput(leaf) != nullptr;
    });
  }

  /// True if elements of `node` reach a product that `isWanted` accepts, and
  /// none of an exponential function.
  bool reachesProduct(Node node, llvm::function_ref<bool(Node)> isWanted) {
    return graph.walk(
        node, Direction::ToReaders,
        [&](const Edge &edge) {
          return edge.isMoved && edge.isDifferentiable &&
                 !graph.is(edge.target, guest::kExponential);
        },
        [&](Node from) {
          return llvm::any_of(graph.getReaders(from), [&](const Edge &edge) {
            Operation *op = graph.getOp(edge.target);
            return op && edge.operand >= 0 && isProduct(op) &&
                   isWanted(edge.target);
          });
        });
  }

  GradientProver &search;
  const ValueGraph &graph;
  /// The inputs that are data, and no integers that are gathered.
  Set data = NumberSets::kEmpty;
  /// Products with weights that are found.
  llvm::DenseSet<Node> layers;
};

std::vector<bool>
GradientProver::areLayerWeights(ArrayRef<SmallVector<GatheredValue>> inputs) {
  return Layers(*this).find(inputs);
}
