//===- PlacementTest.cpp --------------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SymbolicPlacement.h"
#include "gtest/gtest.h"

#include <ostream>

namespace zpp {
// How GoogleTest prints it.
// NOLINTBEGIN(readability-identifier-naming)
void PrintTo(const SymbolicValue &value, std::ostream *os) {
  *os << value.str();
}
// NOLINTEND(readability-identifier-naming)
} // namespace zpp

using namespace zpp;

namespace {

using Refs = std::vector<AxisRef>;
using Hops = std::vector<Refs>;

SymbolicValue source(int64_t rank, int64_t element) {
  return SymbolicValue::ofSource(rank, element);
}

SymbolicValue sum(std::initializer_list<SymbolicValue> values) {
  SymbolicValue result;
  for (const SymbolicValue &value : values)
    result += value;
  return result;
}

std::vector<SymbolicTensor> makeSources(const Mesh &mesh, int64_t elements) {
  std::vector<SymbolicTensor> sources;
  for (int64_t device = 0; device < mesh.numDevices(); ++device)
    sources.push_back(makeSymbolicSource(device, elements));
  return sources;
}

//===----------------------------------------------------------------------===//
// Values and operations
//===----------------------------------------------------------------------===//

TEST(SymbolicValue, SumsCountPerRankAndElement) {
  EXPECT_EQ(SymbolicValue().str(), "0");
  EXPECT_EQ(source(2, 5).str(), "r2[5]");
  SymbolicValue value = sum({source(1, 5), source(0, 7), source(1, 5)});
  EXPECT_EQ(value.str(), "r0[7] + 2*r1[5]");
  value += SymbolicValue();
  EXPECT_EQ(value.str(), "r0[7] + 2*r1[5]");
  SymbolicValue doubled = value;
  doubled += value;
  EXPECT_EQ(doubled.str(), "2*r0[7] + 4*r1[5]");
  doubled -= sum({source(1, 5), source(0, 7), source(0, 7)});
  EXPECT_EQ(doubled.str(), "3*r1[5]");
  doubled -= source(2, 1);
  EXPECT_EQ(doubled.str(), "3*r1[5] + -1*r2[1]");
  // The order does not matter.
  EXPECT_EQ(sum({source(3, 1), source(0, 1)}),
            sum({source(0, 1), source(3, 1)}));
  EXPECT_NE(source(0, 1), source(0, 2));
  EXPECT_NE(source(0, 1), source(1, 1));
  EXPECT_NE(source(0, 1), sum({source(0, 1), source(0, 1)}));
  EXPECT_NE(source(0, 1), SymbolicValue());
}

TEST(SymbolicOps, PackAndUnpack) {
  SliceMap map;
  map.factors = {2, 2};
  map.extent = 3;
  map.chunkFactors = {1};
  SymbolicTensor tensor = makeSymbolicSource(0, 3);
  SymbolicTensor chunks = packChunks(tensor, map);
  EXPECT_EQ(chunks, (SymbolicTensor{source(0, 0), source(0, 2), source(0, 1),
                                    SymbolicValue()}));
  SymbolicTensor unpacked(3);
  unpackChunks(chunks, map, unpacked);
  EXPECT_EQ(unpacked, tensor);
}

TEST(SymbolicOps, UnpackKeepsOtherStages) {
  SliceMap map;
  map.factors = {2};
  map.unit = 2;
  map.extent = 4;
  map.chunkFactors = {0};
  map.stages = 2;
  map.stage = 1;
  SymbolicTensor tensor = makeSymbolicSource(0, 4);
  unpackChunks({source(1, 10), source(1, 11)}, map, tensor);
  EXPECT_EQ(tensor, (SymbolicTensor{source(0, 0), source(1, 10), source(0, 2),
                                    source(1, 11)}));
}

TEST(SymbolicOps, ReduceChunks) {
  SymbolicTensor chunks = makeSymbolicSource(0, 6);
  EXPECT_EQ(reduceChunks(chunks, 3),
            (SymbolicTensor{sum({source(0, 0), source(0, 2), source(0, 4)}),
                            sum({source(0, 1), source(0, 3), source(0, 5)})}));
  EXPECT_EQ(reduceChunks(chunks, 1), chunks);
  EXPECT_EQ(reduceChunks({}, 4), SymbolicTensor());
}

TEST(SymbolicOps, AllToAll) {
  Mesh mesh({{"node", 2}, {"gpu", 2}});
  std::vector<SymbolicTensor> results =
      symbolicAllToAll(mesh, {{"node", 1, 2}}, makeSources(mesh, 4));
  EXPECT_EQ(results[1], (SymbolicTensor{source(1, 0), source(1, 1),
                                        source(3, 0), source(3, 1)}));
  EXPECT_EQ(results[3], (SymbolicTensor{source(1, 2), source(1, 3),
                                        source(3, 2), source(3, 3)}));
  // The order of the axes numbers the members.
  results = symbolicAllToAll(mesh, {{"gpu", 1, 2}, {"node", 1, 2}},
                             makeSources(mesh, 4));
  EXPECT_EQ(results[2], (SymbolicTensor{source(0, 1), source(2, 1),
                                        source(1, 1), source(3, 1)}));
}

TEST(SymbolicOps, AllGather) {
  Mesh mesh({{"node", 2}, {"gpu", 2}});
  std::vector<SymbolicTensor> results =
      symbolicAllGather(mesh, {{"gpu", 1, 2}}, makeSources(mesh, 2));
  for (int64_t device : {2, 3})
    EXPECT_EQ(results[device], (SymbolicTensor{source(2, 0), source(2, 1),
                                               source(3, 0), source(3, 1)}));
}

//===----------------------------------------------------------------------===//
// The proof
//===----------------------------------------------------------------------===//

void provePlan(const Mesh &mesh, const HopPlan &plan) {
  ASSERT_EQ(verifyPlan(mesh, plan), "");
  int64_t elements = plan.outer * plan.extent * plan.inner;
  ASSERT_EQ(verifyReduceScatter(
                mesh, plan,
                simulateReduceScatter(mesh, plan, makeSources(mesh, elements))),
            "");
  int64_t sliceElements = plan.outer * plan.getUnit() * plan.inner;
  ASSERT_EQ(verifyAllGather(mesh, plan,
                            simulateAllGather(
                                mesh, plan, makeSources(mesh, sliceElements))),
            "");
}

/// Tensors that travel together end up where they do when they travel alone.
void proveTogether(const Mesh &mesh, const std::vector<HopPlan> &plans) {
  std::vector<std::vector<SymbolicTensor>> operands, slices;
  for (const HopPlan &plan : plans) {
    operands.push_back(
        makeSources(mesh, plan.outer * plan.extent * plan.inner));
    slices.push_back(
        makeSources(mesh, plan.outer * plan.getUnit() * plan.inner));
  }
  auto scattered = simulateReduceScatters(mesh, plans, operands);
  for (size_t index = 0; index < plans.size(); ++index)
    ASSERT_EQ(verifyReduceScatter(mesh, plans[index], scattered[index]), "");
  if (plans.front().stages > 1)
    return;
  auto gathered = simulateAllGathers(mesh, plans, slices);
  for (size_t index = 0; index < plans.size(); ++index)
    ASSERT_EQ(verifyAllGather(mesh, plans[index], gathered[index]), "");
}

/// A matrix that is cut along its middle dim, a vector that does not divide,
/// and a small one.
void proveHopsTogether(const Mesh &mesh, const Hops &hops) {
  for (int64_t stages = 1; stages <= 3; ++stages) {
    HopPlan matrix, vector, small;
    matrix.hops = vector.hops = small.hops = hops;
    matrix.stages = vector.stages = small.stages = stages;
    int64_t slices = numDevices(matrix.getDimRefs());
    matrix.outer = matrix.inner = 2;
    matrix.extent = 2 * slices;
    vector.extent = 2 * slices - 1;
    small.extent = slices / 2;
    ASSERT_NO_FATAL_FAILURE(proveTogether(mesh, {matrix, vector, small}))
        << mesh.str() << " stages " << stages;
  }
}

TEST(Placement, TogetherOnAllMeshesUpTo4x4) {
  for (int64_t nodes = 1; nodes <= 4; ++nodes)
    for (int64_t gpus = 1; gpus <= 4; ++gpus) {
      Mesh mesh({{"node", nodes}, {"gpu", gpus}});
      for (const Hops &hops : {Hops{{mesh.getAxis(1)}, {mesh.getAxis(0)}},
                               Hops{{mesh.getAxis(0), mesh.getAxis(1)}}})
        ASSERT_NO_FATAL_FAILURE(proveHopsTogether(mesh, hops));
    }
}

TEST(Placement, TogetherOverThreeTiers) {
  Mesh mesh({{"rack", 2}, {"node", 3}, {"gpu", 2}});
  AxisRef rack = mesh.getAxis(0), node = mesh.getAxis(1), gpu = mesh.getAxis(2);
  for (const Hops &hops :
       {Hops{{gpu}, {node}, {rack}}, Hops{{gpu, node}, {rack}},
        Hops{{node}, {gpu}, {rack}}})
    ASSERT_NO_FATAL_FAILURE(proveHopsTogether(mesh, hops));
}

/// All numbers of stages, with dims that divide and dims that do not, both as a
/// tensor's middle dim and as its only one.
void proveHops(const Mesh &mesh, const Hops &hops) {
  HopPlan plan;
  plan.hops = hops;
  int64_t slices = numDevices(plan.getDimRefs());
  for (plan.stages = 1; plan.stages <= 4; ++plan.stages) {
    for (int64_t extent : {slices, 3 * slices, 2 * slices - 1, slices / 2}) {
      plan.extent = extent;
      plan.outer = plan.inner = 1;
      ASSERT_NO_FATAL_FAILURE(provePlan(mesh, plan))
          << mesh.str() << " extent " << extent << " stages " << plan.stages;
    }
    plan.extent = 2 * slices + 1;
    plan.outer = 2;
    plan.inner = 2;
    ASSERT_NO_FATAL_FAILURE(provePlan(mesh, plan))
        << mesh.str() << " [2, " << plan.extent << ", 2] stages "
        << plan.stages;
  }
}

TEST(Placement, TwoHopsOnAllMeshesUpTo4x8) {
  for (int64_t nodes = 1; nodes <= 4; ++nodes)
    for (int64_t gpus = 1; gpus <= 8; ++gpus) {
      Mesh mesh({{"node", nodes}, {"gpu", gpus}});
      ASSERT_NO_FATAL_FAILURE(
          proveHops(mesh, {{mesh.getAxis(1)}, {mesh.getAxis(0)}}));
    }
}

TEST(Placement, OneHopOnAllMeshesUpTo4x8) {
  for (int64_t nodes = 1; nodes <= 4; ++nodes)
    for (int64_t gpus = 1; gpus <= 8; ++gpus) {
      Mesh mesh({{"node", nodes}, {"gpu", gpus}});
      ASSERT_NO_FATAL_FAILURE(
          proveHops(mesh, {{mesh.getAxis(0), mesh.getAxis(1)}}));
    }
}

/// Checks every way to group the tiers into hops.
TEST(Placement, ThreeTiersUpTo2x3x4) {
  for (int64_t racks = 1; racks <= 2; ++racks)
    for (int64_t nodes = 1; nodes <= 3; ++nodes)
      for (int64_t gpus = 1; gpus <= 4; ++gpus) {
        Mesh mesh({{"rack", racks}, {"node", nodes}, {"gpu", gpus}});
        AxisRef rack = mesh.getAxis(0);
        AxisRef node = mesh.getAxis(1);
        AxisRef gpu = mesh.getAxis(2);
        for (const Hops &hops :
             {Hops{{gpu}, {node}, {rack}}, Hops{{node, gpu}, {rack}},
              Hops{{gpu}, {rack, node}}, Hops{{rack, node, gpu}}})
          ASSERT_NO_FATAL_FAILURE(proveHops(mesh, hops));
      }
}

/// Any order of axes may be the order of hops: placement does not depend on
/// which tiers are fast.
TEST(Placement, OtherOrdersAndOtherParallelism) {
  Mesh mesh({{"node", 2}, {"tensor", 2}, {"gpu", 3}});
  AxisRef node = mesh.getAxis(0), tensor = mesh.getAxis(1),
          gpu = mesh.getAxis(2);
  for (const Hops &hops :
       {Hops{{gpu}, {node}}, Hops{{node}, {gpu}}, Hops{{gpu, node}},
        Hops{{tensor}, {gpu}}, Hops{{gpu}}, Hops{{tensor, node}, {gpu}}})
    ASSERT_NO_FATAL_FAILURE(proveHops(mesh, hops));
}

/// Groups that cut an axis, such as a secondary partition over half a node.
TEST(Placement, PartsOfAxes) {
  Mesh mesh({{"node", 2}, {"gpu", 8}});
  AxisRef node = mesh.getAxis(0);
  AxisRef half = {"gpu", 1, 2}, quarter = {"gpu", 2, 2}, pair = {"gpu", 4, 2};
  AxisRef four = {"gpu", 2, 4};
  for (const Hops &hops :
       {Hops{{four}, {node, half}}, Hops{{pair}, {quarter}, {half}, {node}},
        Hops{{half}, {four}, {node}}, Hops{{four}, {half}}})
    ASSERT_NO_FATAL_FAILURE(proveHops(mesh, hops));
}

TEST(Placement, EmptyTensors) {
  Mesh mesh({{"node", 2}, {"gpu", 2}});
  HopPlan plan;
  plan.hops = {{mesh.getAxis(1)}, {mesh.getAxis(0)}};
  for (plan.stages = 1; plan.stages <= 2; ++plan.stages)
    ASSERT_NO_FATAL_FAILURE(provePlan(mesh, plan));
  plan.extent = 5;
  plan.inner = 0;
  ASSERT_NO_FATAL_FAILURE(provePlan(mesh, plan));
}

/// The result of simulating one plan, written out.
TEST(Placement, TwoByTwoSpelledOut) {
  Mesh mesh({{"node", 2}, {"gpu", 2}});
  HopPlan plan;
  plan.hops = {{mesh.getAxis(1)}, {mesh.getAxis(0)}};
  plan.extent = 7; // Slices of two rows, the last one padded.
  std::vector<SymbolicTensor> slices =
      simulateReduceScatter(mesh, plan, makeSources(mesh, 7));
  auto all = [](int64_t element) {
    return sum({source(0, element), source(1, element), source(2, element),
                source(3, element)});
  };
  EXPECT_EQ(slices, (std::vector<SymbolicTensor>{{all(0), all(1)},
                                                 {all(2), all(3)},
                                                 {all(4), all(5)},
                                                 {all(6), SymbolicValue()}}));
  std::vector<SymbolicTensor> tensors =
      simulateAllGather(mesh, plan, makeSources(mesh, 2));
  SymbolicTensor whole = {source(0, 0), source(0, 1), source(1, 0),
                          source(1, 1), source(2, 0), source(2, 1),
                          source(3, 0)};
  EXPECT_EQ(tensors, std::vector<SymbolicTensor>(4, whole));
}

TEST(Placement, HopMapsOfThreeTiers) {
  Mesh mesh({{"rack", 2}, {"node", 3}, {"gpu", 4}});
  HopPlan plan;
  plan.hops = {{mesh.getAxis(2)}, {mesh.getAxis(1)}, {mesh.getAxis(0)}};
  plan.outer = 5;
  plan.extent = 70; // 24 slices of 3.
  plan.inner = 7;
  plan.stages = 2;
  EXPECT_EQ(plan.getDimRefs(),
            (Refs{mesh.getAxis(0), mesh.getAxis(1), mesh.getAxis(2)}));
  EXPECT_EQ(plan.getUnit(), 3);

  SliceMap map = plan.getHopMap(0, 1);
  EXPECT_EQ(map.factors, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(map.chunkFactors, (std::vector<int64_t>{2}));
  EXPECT_EQ(map.unit, 3);
  EXPECT_EQ(map.extent, 70);
  EXPECT_EQ(map.stage, 1);
  EXPECT_EQ(map.stages, 2);
  EXPECT_EQ(map.partSize(), 1);

  map = plan.getHopMap(1, 0);
  EXPECT_EQ(map.factors, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(map.chunkFactors, (std::vector<int64_t>{1}));
  EXPECT_EQ(map.unit, 2);
  EXPECT_EQ(map.extent, 12);
  EXPECT_EQ(map.stages, 1);
  EXPECT_EQ(map.outer, 5);
  EXPECT_EQ(map.inner, 7);

  map = plan.getHopMap(2, 1);
  EXPECT_EQ(map.factors, (std::vector<int64_t>{2}));
  EXPECT_EQ(map.chunkFactors, (std::vector<int64_t>{0}));
  EXPECT_EQ(map.unit, 1);
  EXPECT_EQ(map.extent, 2);

  // The next hop cuts what this one leaves into chunks.
  for (int64_t stage : {0, 1})
    for (int64_t hop : {0, 1}) {
      SliceMap next = plan.getHopMap(hop + 1, stage);
      EXPECT_EQ(plan.getHopMap(hop, stage).elementsPerChunk(),
                next.outer * next.extent * next.inner);
    }

  map = getPartMap(plan, 1);
  EXPECT_EQ(map.verify(), "");
  EXPECT_EQ(map.extent, 3);
  EXPECT_EQ(map.partBegin(), 2);
  EXPECT_EQ(map.elementsPerChunk(), 5 * 1 * 7);
}

//===----------------------------------------------------------------------===//
// What the proof rejects
//===----------------------------------------------------------------------===//

class PlacementErrorTest : public testing::Test {
protected:
  PlacementErrorTest() {
    plan.hops = {{mesh.getAxis(1)}, {mesh.getAxis(0)}};
    plan.extent = 4;
    slices = simulateReduceScatter(mesh, plan, makeSources(mesh, 4));
    tensors = simulateAllGather(mesh, plan, makeSources(mesh, 1));
  }
  std::string scatterError() const {
    return verifyReduceScatter(mesh, plan, slices);
  }
  std::string gatherError() const {
    return verifyAllGather(mesh, plan, tensors);
  }

  Mesh mesh = Mesh({{"node", 2}, {"gpu", 2}});
  HopPlan plan;
  std::vector<SymbolicTensor> slices;
  std::vector<SymbolicTensor> tensors;
};

/// The misplacement of section 3.3.3: without reordering, G1 ends up with
/// partition 3 and G2 with partition 2 (counted from 1).
TEST_F(PlacementErrorTest, HopsWithoutReorderingMisplaceSlices) {
  // Contiguous chunks: the most significant factor numbers the chunk.
  SliceMap first;
  first.factors = {2, 2};
  first.extent = 4;
  first.chunkFactors = {0};
  SliceMap second;
  second.factors = {2};
  second.extent = 2;
  second.chunkFactors = {0};

  slices = makeSources(mesh, 4);
  for (size_t hop = 0; hop < 2; ++hop) {
    for (SymbolicTensor &tensor : slices)
      tensor = packChunks(tensor, hop == 0 ? first : second);
    slices = symbolicAllToAll(mesh, plan.hops[hop], slices);
    for (SymbolicTensor &tensor : slices)
      tensor = reduceChunks(tensor, 2);
  }
  EXPECT_EQ(scatterError(),
            "expected r0[1] + r1[1] + r2[1] + r3[1] at element 0 of rank 1, "
            "but got r0[2] + r1[2] + r2[2] + r3[2]");
  std::swap(slices[1], slices[2]);
  EXPECT_EQ(scatterError(), "");
}

TEST_F(PlacementErrorTest, ReduceScatter) {
  ASSERT_EQ(scatterError(), "");
  SymbolicTensor correct = slices[2];
  slices[2] = {sum({source(0, 2), source(1, 2), source(3, 2)})};
  EXPECT_EQ(scatterError(),
            "expected r0[2] + r1[2] + r2[2] + r3[2] at element 0 of rank 2, "
            "but got r0[2] + r1[2] + r3[2]");
  slices[2] = correct;
  slices[2][0] += source(1, 2);
  EXPECT_EQ(scatterError(),
            "expected r0[2] + r1[2] + r2[2] + r3[2] at element 0 of rank 2, "
            "but got r0[2] + 2*r1[2] + r2[2] + r3[2]");
  slices[2] = correct;
  slices[2].push_back(SymbolicValue());
  EXPECT_EQ(scatterError(), "expected 1 elements of rank 2, but got 2");
  slices.pop_back();
  EXPECT_EQ(scatterError(), "expected tensors of 4 ranks, but got 3");
}

TEST_F(PlacementErrorTest, PaddingMustBeZero) {
  plan.extent = 3;
  slices = simulateReduceScatter(mesh, plan, makeSources(mesh, 3));
  ASSERT_EQ(scatterError(), "");
  slices[3][0] = source(0, 2);
  EXPECT_EQ(scatterError(), "expected 0 at element 0 of rank 3, but got r0[2]");
}

TEST_F(PlacementErrorTest, OtherGroupsMustNotContribute) {
  plan.hops = {{mesh.getAxis(1)}};
  plan.extent = 2;
  slices = simulateReduceScatter(mesh, plan, makeSources(mesh, 2));
  ASSERT_EQ(scatterError(), "");
  std::swap(slices[1], slices[3]);
  EXPECT_EQ(scatterError(), "expected r0[1] + r1[1] at element 0 of rank 1, "
                            "but got r2[1] + r3[1]");
}

TEST_F(PlacementErrorTest, AllGather) {
  ASSERT_EQ(gatherError(), "");
  std::swap(tensors[3][1], tensors[3][2]);
  EXPECT_EQ(gatherError(),
            "expected r1[0] at element 1 of rank 3, but got r2[0]");
  std::swap(tensors[3][1], tensors[3][2]);
  tensors[3][3] = SymbolicValue();
  EXPECT_EQ(gatherError(), "expected r3[0] at element 3 of rank 3, but got 0");
  tensors[3].pop_back();
  EXPECT_EQ(gatherError(), "expected 4 elements of rank 3, but got 3");
  tensors.pop_back();
  EXPECT_EQ(gatherError(), "expected tensors of 4 ranks, but got 3");
}

TEST_F(PlacementErrorTest, Plan) {
  EXPECT_EQ(verifyPlan(mesh, plan), "");
  plan.hops.clear();
  EXPECT_EQ(verifyPlan(mesh, plan), "expected at least one hop, but got 0");
  plan.hops = {{{"x", 1, 2}}};
  EXPECT_EQ(verifyPlan(mesh, plan),
            "expected an axis of mesh 'node:2,gpu:2', but got 'x'");
  plan.hops = {{mesh.getAxis(1)}, {mesh.getAxis(1)}};
  EXPECT_EQ(verifyPlan(mesh, plan),
            "expected separate parts of axis 'gpu', but got \"gpu\":(1)2 and "
            "\"gpu\":(1)2");
  plan.hops = {{mesh.getAxis(1)}};
  plan.stages = 0;
  EXPECT_EQ(verifyPlan(mesh, plan), "expected at least one stage, but got 0");
  plan.stages = 1;
  plan.extent = -1;
  EXPECT_EQ(verifyPlan(mesh, plan), "expected an extent in [0, 2], but got -1");
}

//===----------------------------------------------------------------------===//
// Hops and their formats
//===----------------------------------------------------------------------===//

/// "gpu:0 node:1": the axes of each hop and the position of its format.
std::string getHopText(const std::string &meshText, int64_t numFormats,
                       const Refs *refs = nullptr) {
  std::string error;
  Mesh mesh = *Mesh::parse(meshText, error);
  Refs all;
  for (size_t axis = 0; axis < mesh.getAxes().size(); ++axis)
    all.push_back(mesh.getAxis(axis));
  std::string text;
  for (const TierHop &hop : getTierHops(mesh, refs ? *refs : all, numFormats)) {
    text += text.empty() ? "" : " ";
    for (const AxisRef &axis : hop.axes)
      text += (&axis == &hop.axes.front() ? "" : ",") + axis.name;
    text += ":" + std::to_string(hop.format);
  }
  return text;
}

TEST(TierHops, TheLastFormatIsThatOfTheOutermostTier) {
  EXPECT_EQ(getHopText("node:2,gpu:4", 2), "gpu:0 node:1");
  EXPECT_EQ(getHopText("pod:2,node:4,gpu:2", 2), "gpu:0 node:0 pod:1");
  EXPECT_EQ(getHopText("pod:2,node:4,gpu:2", 3), "gpu:0 node:1 pod:2");
  EXPECT_EQ(getHopText("a:2,b:2,c:2,d:2", 2), "d:0 c:0 b:0 a:1");
  EXPECT_EQ(getHopText("a:2,b:2,c:2,d:2", 3), "d:0 c:1 b:1 a:2");
}

TEST(TierHops, OfManyFormatsTheLastIsStillThatOfTheOutermostTier) {
  EXPECT_EQ(getHopText("gpu:8", 2), "gpu:1");
  EXPECT_EQ(getHopText("node:2,gpu:4", 3), "gpu:0 node:2");
}

TEST(TierHops, ATierHasItsFormatInAllGroups) {
  Refs node = {{"node", 1, 2}}, gpu = {{"gpu", 1, 4}};
  EXPECT_EQ(getHopText("node:2,gpu:4", 2, &node), "node:1");
  EXPECT_EQ(getHopText("node:2,gpu:4", 2, &gpu), "gpu:0");
  EXPECT_EQ(getHopText("pod:2,node:2,gpu:4", 2, &node), "node:0");
  EXPECT_EQ(getHopText("pod:2,node:2,gpu:4", 3, &node), "node:1");
  EXPECT_EQ(getHopText("node:2,gpu:4", 1, &node), "node:0");
}

TEST(TierHops, ATierOfOneDeviceCounts) {
  Refs node = {{"node", 1, 2}}, gpu = {{"gpu", 1, 8}};
  EXPECT_EQ(getHopText("node:2,gpu:1", 2, &node), "node:1");
  EXPECT_EQ(getHopText("node:1,gpu:8", 2, &gpu), "gpu:0");
}

TEST(TierHops, OneFormatIsOneHop) {
  EXPECT_EQ(getHopText("gpu:8", 1), "gpu:0");
  EXPECT_EQ(getHopText("pod:2,node:4,gpu:2", 1), "pod,node,gpu:0");
}

TEST(TierHops, PartsOfAnAxisAreOneTierAndOtherAxesNone) {
  Refs refs = {{"gpu", 1, 2}, {"node", 1, 2}, {"gpu", 2, 2}};
  EXPECT_EQ(getHopText("node:2,tensor:2,gpu:4", 2, &refs), "gpu,gpu:0 node:1");
}

} // namespace
