//===- RoleFinder.h - How roles are decided ---------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_ROLEFINDER_H
#define ZPP_LIB_ANALYSIS_ROLES_ROLEFINDER_H

#include "GradientProver.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/Roles/Roles.h"
#include "zpp/Analysis/Roles/StepFlow.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace zpp {

/// Why a collective has no role, or is not rounded, and the rule that says so.
struct Objection {
  Rule rule;
  std::string reason;
};

/// Floating-point values of which a step reads the bits, or that it has made of
/// bits: packed integers that are stored as bf16, for instance. A rounded bf16
/// is close to the number, but other bits.
class Bits {
public:
  explicit Bits(const ValueGraph &graph);

  /// Why a collective from `operand` to `result` moves bits, such as "the step
  /// reads it as i8"; nullopt if it moves numbers.
  std::optional<std::string> explain(mlir::Value operand,
                                     mlir::Value result) const;

private:
  /// The type as which elements of a value are read, and that they are made of.
  llvm::DenseMap<mlir::Value, mlir::Type> readAs, madeOf;
};

/// The tensors of a step that are stacks of parameters, such as the gains of
/// all layers: it reads them one by one, or computes with all of them at once
/// but with none together. One parameter may be many times as large as its
/// neighbor, so a block that both share has a step too coarse for one of them.
class Stacks {
public:
  explicit Stacks(const ValueGraph &graph);

  /// Returns the elements of a parameter in the `part` that a device has of a
  /// tensor of type `whole`: in row-major order, each parameter begins at a
  /// multiple of it. `value` has this tensor, or a part or a sum of it. Returns
  /// 0 if it is no stack.
  int64_t getPartSize(mlir::Value value, mlir::RankedTensorType whole,
                      mlir::RankedTensorType part) const;

  /// Returns the stacks among the inputs of the step and what it gathers.
  llvm::ArrayRef<mlir::Value> getValues() const { return values; }

private:
  /// For each stack the elements of a parameter: in row-major order, each
  /// parameter begins at a multiple of it.
  llvm::DenseMap<mlir::Value, int64_t> parameters;
  llvm::SmallVector<mlir::Value> values;
};

/// Returns the dim of `type` along which a row has its elements, one after the
/// other: the last one that has several.
int64_t getRowDim(mlir::RankedTensorType type);

/// Has blocks of `collective` end where its rows of `size` elements do.
/// Objects, by `rule`, if these are no whole blocks.
std::optional<Objection> chooseRowBlock(StepCollective &collective,
                                        int64_t size, Rule rule);

/// A row of what a gather or an all-to-all sends to one device.
struct MatrixRow {
  /// The elements in it that are of one matrix: a divisor of all places where
  /// it is joined of parts, or cut. 0 if it is not known, or a row has an
  /// element of each matrix of a stack.
  int64_t size = 0;
  /// Whether matrices are known to be cut out of rows that arrive.
  bool isCut = false;
};
MatrixRow getMatrixRow(const ValueGraph &graph, const StepCollective &moved);

/// True if operand `operand` of a matrix product is a matrix, or a stack of
/// such: no vector.
bool isMatrix(mlir::Operation *product, unsigned operand);

/// True if `node` is made of constants alone, which are not all the same.
bool isPattern(const ValueGraph &graph, ValueGraph::Node node);

/// Returns the keys of a gather or a scatter. A scatter mirrors a gather if
/// they share a key: their shapes are equal either at the collective or where
/// the weight is stored, since XLA's partitioner leaves transposes after
/// scatters.
llvm::SmallVector<std::string> getMirrorKeys(const StepCollective &collective);

/// Finds the roles of the collectives of one module. Gathers.cpp decides what
/// is a weight, Sums.cpp what is a gradient, Moments.cpp what is a momentum,
/// Exchanges.cpp what goes to experts and back; WeightNumbers.cpp numbers
/// weights.
class RoleFinder {
public:
  RoleFinder(mlir::ModuleOp module, const Mesh &mesh,
             const Declarations &declared,
             llvm::MutableArrayRef<StepCollective> collectives);

  void run();

private:
  /// A gather that may be a weight gather.
  struct Candidate {
    StepCollective *gather;
    /// The input that it gathers, or null if its operand is computed from
    /// several inputs.
    mlir::BlockArgument input;
    /// True if the input is known to be a weight, even if no scatter mirrors
    /// the gather.
    bool isCertain;
    int64_t slice;
    /// True for integers, which have no gradient and are never rounded.
    bool isInteger = false;
  };
  class WeightChoice;
  class GradientChoice;
  class ExchangeChoice;

  using SplitInputs = llvm::MapVector<mlir::Value, std::vector<AxisRef>>;
  using Sums = llvm::ArrayRef<StepCollective *>;

  llvm::DenseSet<mlir::Value> findGatheredInputs();
  SplitInputs findSplitInputs(mlir::ModuleOp module, const Mesh &mesh);
  bool isData(mlir::BlockArgument input) const;
  void findDataAxes();
  std::optional<Objection> checkAxes(const StepCollective &collective,
                                     llvm::StringRef verb) const;

  std::optional<Objection> checkGather(StepCollective &gather,
                                       Candidate &candidate);
  bool isDeclared(const Candidate &candidate) const;
  std::optional<Objection> checkState(StepCollective &gather, int64_t &slice);
  llvm::SmallVector<Candidate> getGathers();
  llvm::SmallVector<mlir::Value> getSumsOfScalars() const;
  void addUpdatedWeights(llvm::SmallVectorImpl<Candidate> &gathers, Sums sums,
                         const NodeSet &ancestors);
  void chooseWeights(llvm::ArrayRef<Candidate> gathers, Sums sums,
                     const NodeSet &ancestors);

  /// R19: finds momenta that products contract before they update weights.
  void chooseMoments(const NodeSet &ancestors);
  /// R20: finds rows that travel to experts and back.
  void chooseExchanges(const NodeSet &ancestors);

  std::optional<Objection> checkSum(const StepCollective &sum);
  std::optional<Objection> checkProof(StepCollective &sum);
  bool isProven(const StepCollective &sum);
  llvm::SmallVector<StepCollective *> getSums();
  NodeSet chooseGradients(llvm::ArrayRef<Candidate> gathers, Sums sums);
  void keepDifferences(llvm::ArrayRef<StepCollective *> chosen);
  llvm::SmallVector<mlir::Operation *>
  getPoints(const GradientDifference &difference);
  bool isGradient(const StepCollective &sum) const {
    return sum.reason.empty();
  }

  void keepExact();
  std::optional<Objection> chooseBlock(StepCollective &collective);

  GradientProver &getProver();
  const Bits &getBits();
  bool isBroadcast(const StepCollective &sum) const;
  bool isOfNorm(const StepCollective &sum);
  llvm::SmallVector<int64_t, 2> getKeys(const StepCollective &collective);
  mlir::BlockArgument getArgument(const StepCollective &sum,
                                  const GradientProof &proof);
  /// Writes down what is decided.
  static void object(StepCollective &collective,
                     std::optional<Objection> objection) {
    collective.rule = objection ? objection->rule : Rule::None;
    collective.reason = objection ? std::move(objection->reason) : "";
  }

  void numberWeights(const NodeSet &ancestors);
  void setPhases();

  const Mesh &mesh;
  const Declarations &declared;
  ProvenanceAnalysis provenances;
  llvm::MutableArrayRef<StepCollective> collectives;
  llvm::DenseSet<mlir::Value> gathered;
  SplitInputs splitInputs;
  const ValueGraph graph;
  StepFlow flow;
  std::unique_ptr<GradientProver> prover;
  std::optional<Bits> bits;
  std::optional<Stacks> stacks;
  llvm::DenseMap<const StepCollective *, GradientProof> proofs;
  /// Sums of what a step collects beside gradients.
  llvm::DenseSet<const StepCollective *> besideGradients;
  /// Operands of sums of gradients that hold state, too.
  llvm::SmallVector<mlir::Value> operandsWithState;
  /// Sums without a proof, and what each lacks.
  llvm::SmallVector<std::pair<StepCollective *, Objection>> unproven;
  /// Gathers for gradients at two points that are subtracted from each other.
  llvm::DenseSet<mlir::Operation *> atPoints;
  /// True if each gradient updates a weight that the step returns.
  bool areAllUpdates = false;
  /// Values by which arguments that `gradients-of` names are updated.
  NodeSet declaredUpdates;
  /// Gathers of what the step computes.
  llvm::SmallVector<StepCollective *> computed;
  /// The axes along which data differs; empty if nothing is known about data.
  std::vector<AxisRef> dataAxes;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<int64_t, 2>> mirrorKeys;
  llvm::StringMap<int64_t> keyNumbers;
};

/// True for a tensor of static shape that can be quantized.
bool isFloatTensor(mlir::Type type);

/// True if an axis of `axes` contains all of `ref`.
bool covers(llvm::ArrayRef<AxisRef> axes, const AxisRef &ref);

/// True if an earlier run has imported `collective`.
bool isRewritten(const StepCollective &collective);

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_ROLEFINDER_H
