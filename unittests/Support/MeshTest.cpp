//===- MeshTest.cpp -------------------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/Mesh.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <random>

namespace zpp {
// How GoogleTest prints them.
// NOLINTBEGIN(readability-identifier-naming)
void PrintTo(const AxisRef &ref, std::ostream *os) {
  *os << ref.name << ":(" << ref.preSize << ")" << ref.size;
}
void PrintTo(const MeshAxis &axis, std::ostream *os) {
  *os << axis.name << ":" << axis.size;
}
// NOLINTEND(readability-identifier-naming)
} // namespace zpp

using namespace zpp;

namespace {

using Refs = std::vector<AxisRef>;
using Group = std::vector<int64_t>;
using Groups = std::vector<Group>;

Mesh parse(const std::string &text) {
  std::string error;
  std::optional<Mesh> mesh = Mesh::parse(text, error);
  EXPECT_TRUE(mesh) << error;
  return mesh.value_or(Mesh());
}

std::string parseError(const std::string &text) {
  std::string error;
  EXPECT_FALSE(Mesh::parse(text, error)) << text;
  return error;
}

const char *const kMeshes[] = {
    "gpu:1",
    "gpu:8",
    "node:2,gpu:4",
    "node:4,gpu:8",
    "a:2,b:3,c:4",
    "a:2,b:2,c:2",
    "a:1,b:4,c:1",
    "node:3,gpu:6",
    "a:4,t:2,b:12",
    "a:2,b:1,c:2,d:3",
    "x:1,y:1",
    "node:5,gpu:7",
    // Devices that are not numbered in the order of the tiers.
    "node:2@1,gpu:4@2",
    "a:2@3,b:3@1,c:4@6",
    "a:2@6,b:1@1,c:6@1,d:4@12",
};

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

TEST(Mesh, Parse) {
  Mesh mesh = parse("node:2,gpu:4");
  EXPECT_EQ(mesh.getAxes(), (std::vector<MeshAxis>{{"node", 2}, {"gpu", 4}}));
  EXPECT_EQ(mesh.numDevices(), 8);
  EXPECT_EQ(parse("_x-1.y:1").getAxes(),
            (std::vector<MeshAxis>{{"_x-1.y", 1}}));
  EXPECT_EQ(parse("a:9223372036854775807").numDevices(), INT64_MAX);
  for (const char *text : kMeshes)
    EXPECT_EQ(parse(text).str(), text);
  EXPECT_EQ(parse("node:2@4,gpu:4@1").str(), "node:2,gpu:4");
  EXPECT_EQ(parse("a:2@1,b:1@7,c:2@2").str(), "a:2@1,b:1@1,c:2@2");
  EXPECT_EQ(Mesh().str(), "");
  EXPECT_EQ(Mesh().numDevices(), 1);
}

TEST(Mesh, ParseErrors) {
  EXPECT_EQ(parseError(""), "expected NAME:SIZE, but got ''");
  EXPECT_EQ(parseError("gpu"), "expected NAME:SIZE, but got 'gpu'");
  EXPECT_EQ(parseError("node:2,gpu"), "expected NAME:SIZE, but got 'gpu'");
  EXPECT_EQ(parseError("node:2,"), "expected NAME:SIZE, but got ''");
  EXPECT_EQ(parseError(",node:2"), "expected NAME:SIZE, but got ''");
  EXPECT_EQ(parseError("node:2,,gpu:4"), "expected NAME:SIZE, but got ''");
  EXPECT_EQ(parseError("node=2"), "expected NAME:SIZE, but got 'node=2'");

  EXPECT_EQ(parseError(":2"), "expected an axis name, but got '' in ':2'");
  EXPECT_EQ(parseError("2:2"), "expected an axis name, but got '2' in '2:2'");
  EXPECT_EQ(parseError("4x:2"),
            "expected an axis name, but got '4x' in '4x:2'");
  EXPECT_EQ(parseError("no de:2"),
            "expected an axis name, but got 'no de' in 'no de:2'");
  EXPECT_EQ(parseError("node:2, gpu:4"),
            "expected an axis name, but got ' gpu' in ' gpu:4'");
  EXPECT_EQ(parseError("\"node\":2"),
            "expected an axis name, but got '\"node\"' in '\"node\":2'");
  EXPECT_EQ(parseError("n\xc3\xb6:2"),
            "expected an axis name, but got 'n\xc3\xb6' in 'n\xc3\xb6:2'");

  EXPECT_EQ(parseError("gpu:2,node:2,gpu:4"),
            "expected different axis names, but got 'gpu' twice in "
            "'gpu:2,node:2,gpu:4'");

  auto sizeError = [](const std::string &size) {
    return "expected a positive size for axis 'gpu', but got '" + size + "'";
  };
  for (const char *size :
       {"0", "-1", "", "x", "4x", " 4", "4 ", "+4", "4:2", "0x4", "4.0", "1e3",
        "9223372036854775808", "99999999999999999999"})
    EXPECT_EQ(parseError(std::string("node:2,gpu:") + size), sizeError(size));

  EXPECT_EQ(parseError("a:4294967296,b:2147483648"),
            "expected fewer than 2^63 devices, but got "
            "'a:4294967296,b:2147483648'");

  for (const char *stride : {"0", "-1", "", "x", "1@2"})
    EXPECT_EQ(parseError(std::string("a:2@2,b:2@") + stride),
              "expected a positive stride for axis 'b', but got '" +
                  std::string(stride) + "'");
  EXPECT_EQ(parseError("a:2@1,b:2"),
            "expected strides of all axes or of none, but got 'a:2@1,b:2'");
  EXPECT_EQ(parseError("a:2@1,b:2@1"), "expected a stride of 2 of axis 'a', "
                                       "but got 1 in 'a:2@1,b:2@1'");
  EXPECT_EQ(parseError("a:2@4,b:2@1"), "expected a stride of 2 of axis 'a', "
                                       "but got 4 in 'a:2@4,b:2@1'");
}

TEST(Mesh, ParseStopsAtTheEndOfTheView) {
  std::string error;
  std::optional<Mesh> mesh =
      Mesh::parse(std::string_view("gpu:42").substr(0, 5), error);
  ASSERT_TRUE(mesh);
  EXPECT_EQ(mesh->str(), "gpu:4");
}

//===----------------------------------------------------------------------===//
// Axes
//===----------------------------------------------------------------------===//

TEST(Mesh, FindAxis) {
  Mesh mesh = parse("node:2,gpu:4");
  EXPECT_EQ(mesh.findAxis("node"), 0);
  EXPECT_EQ(mesh.findAxis("gpu"), 1);
  EXPECT_EQ(mesh.findAxis("gp"), -1);
  EXPECT_EQ(mesh.findAxis(""), -1);
  EXPECT_EQ(mesh.getAxis(1), (AxisRef{"gpu", 1, 4}));
}

TEST(Mesh, FindSlowest) {
  Mesh mesh = parse("rack:2,node:2,gpu:4");
  EXPECT_EQ(mesh.findSlowest({{"gpu", 1, 4}}), 2);
  EXPECT_EQ(mesh.findSlowest({{"gpu", 2, 2}, {"node", 1, 2}}), 1);
  EXPECT_EQ(mesh.findSlowest({{"rack", 1, 2}, {"gpu", 1, 4}}), 0);
}

TEST(Mesh, Strides) {
  Mesh mesh = parse("a:2,t:3,b:12");
  EXPECT_EQ(mesh.getStride({"a", 1, 2}), 36);
  EXPECT_EQ(mesh.getStride({"t", 1, 3}), 12);
  EXPECT_EQ(mesh.getStride({"b", 1, 12}), 1);
  EXPECT_EQ(mesh.getStride({"b", 1, 2}), 6);
  EXPECT_EQ(mesh.getStride({"b", 2, 2}), 3);
  EXPECT_EQ(mesh.getStride({"b", 4, 3}), 1);
}

TEST(Mesh, StridesOfAGridThatIsNotRowMajor) {
  Mesh mesh = parse("node:2@1,gpu:4@2");
  EXPECT_EQ(mesh.getStride({"node", 1, 2}), 1);
  EXPECT_EQ(mesh.getStride({"gpu", 1, 4}), 2);
  EXPECT_EQ(mesh.getStride({"gpu", 1, 2}), 4);
  EXPECT_EQ(mesh.findSlowest({{"gpu", 1, 4}, {"node", 1, 2}}), 0);
  EXPECT_EQ(mesh.getGroups({{"gpu", 1, 4}}),
            (std::vector<Group>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_FALSE(mesh == parse("node:2,gpu:4"));
}

/// Coordinates along the axes, and along the digits of an axis, number the
/// devices; without strides, in row-major order.
TEST(Mesh, CoordinatesAreTheDigitsOfTheDevice) {
  for (const char *text : kMeshes) {
    Mesh mesh = parse(text);
    for (int64_t device = 0; device < mesh.numDevices(); ++device) {
      int64_t number = 0, digits = 0;
      for (size_t axis = 0; axis < mesh.getAxes().size(); ++axis) {
        AxisRef ref = mesh.getAxis(axis);
        int64_t coordinate = mesh.getCoordinate(device, ref);
        number += coordinate * mesh.getStride(ref);
        ASSERT_GE(coordinate, 0);
        ASSERT_LT(coordinate, ref.size);
        digits = digits * ref.size + coordinate;
        for (int64_t major = 1; major <= ref.size; ++major) {
          if (ref.size % major)
            continue;
          int64_t minor = ref.size / major;
          ASSERT_EQ(mesh.getCoordinate(device, {ref.name, 1, major}) * minor +
                        mesh.getCoordinate(device, {ref.name, major, minor}),
                    coordinate);
        }
      }
      ASSERT_EQ(number, device);
      if (mesh.getStrides().empty()) {
        ASSERT_EQ(digits, device);
      }
    }
  }
}

TEST(Mesh, VerifyRef) {
  Mesh mesh = parse("node:2,gpu:12");
  // A pair is valid exactly if preSize * size divides the axis.
  for (int64_t preSize = -1; preSize <= 13; ++preSize)
    for (int64_t size = -1; size <= 13; ++size) {
      bool valid = preSize > 0 && size > 0 && 12 % (preSize * size) == 0;
      EXPECT_EQ(mesh.verify(AxisRef{"gpu", preSize, size}).empty(), valid)
          << preSize << " " << size;
    }
  EXPECT_EQ(mesh.verify(AxisRef{"x", 1, 2}),
            "expected an axis of mesh 'node:2,gpu:12', but got 'x'");
  EXPECT_EQ(mesh.verify(AxisRef{"gpu", 2, 4}),
            "expected a part of axis 'gpu:12', but got \"gpu\":(2)4");
  EXPECT_EQ(mesh.verify(AxisRef{"gpu", int64_t(1) << 62, 4}),
            "expected a part of axis 'gpu:12', but got "
            "\"gpu\":(4611686018427387904)4");
}

TEST(Mesh, VerifyRefs) {
  Mesh mesh = parse("node:2,gpu:12");
  EXPECT_EQ(mesh.verify(Refs{}), "");
  EXPECT_EQ(mesh.verify(Refs{{"gpu", 1, 12}, {"node", 1, 2}}), "");
  EXPECT_EQ(mesh.verify(Refs{{"gpu", 6, 2}, {"gpu", 1, 2}, {"gpu", 2, 3}}), "");
  EXPECT_EQ(mesh.verify(Refs{{"gpu", 1, 2}, {"gpu", 4, 3}}), "");
  EXPECT_EQ(mesh.verify(Refs{{"gpu", 1, 1}, {"gpu", 1, 4}}), "");
  EXPECT_EQ(mesh.verify(Refs{{"gpu", 1, 4}, {"gpu", 1, 1}}), "");
  EXPECT_EQ(mesh.verify(Refs{{"gpu", 1, 12}, {"x", 1, 2}}),
            "expected an axis of mesh 'node:2,gpu:12', but got 'x'");
  EXPECT_EQ(mesh.verify(Refs{{"node", 1, 2}, {"gpu", 1, 12}, {"node", 1, 2}}),
            "expected separate parts of axis 'node', but got \"node\":(1)2 and "
            "\"node\":(1)2");
  // Parts that overlap, in either order.
  EXPECT_EQ(mesh.verify(Refs{{"gpu", 1, 4}, {"gpu", 2, 2}}),
            "expected separate parts of axis 'gpu', but got \"gpu\":(1)4 and "
            "\"gpu\":(2)2");
  EXPECT_NE(mesh.verify(Refs{{"gpu", 2, 2}, {"gpu", 1, 4}}), "");
  // Parts of different mixed radixes: which half, and which one of a triple.
  EXPECT_EQ(mesh.verify(Refs{{"gpu", 1, 2}, {"gpu", 3, 2}}),
            "expected separate parts of axis 'gpu', but got \"gpu\":(1)2 and "
            "\"gpu\":(3)2");
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

TEST(Mesh, GroupsOfTheUsualMesh) {
  Mesh mesh = parse("node:2,gpu:4");
  EXPECT_EQ(mesh.getGroups({{"gpu", 1, 4}}),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(mesh.getGroups({{"node", 1, 2}}),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(mesh.getGroups({{"node", 1, 2}, {"gpu", 1, 4}}),
            (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(mesh.getGroups({{"gpu", 1, 4}, {"node", 1, 2}}),
            (Groups{{0, 4, 1, 5, 2, 6, 3, 7}}));
  EXPECT_EQ(mesh.getGroups({{"gpu", 2, 2}}),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.getGroups({{"gpu", 1, 2}}),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.getGroups({}),
            (Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
}

/// Returns the definition of getGroups: devices with equal coordinates along
/// all other digits form a group, ordered by their number along refs.
Groups getGroupsByDefinition(const Mesh &mesh, const Refs &refs) {
  std::map<Group, std::map<int64_t, int64_t>> byRest;
  for (int64_t device = 0; device < mesh.numDevices(); ++device) {
    int64_t position = 0;
    int64_t rest = device;
    for (const AxisRef &ref : refs) {
      int64_t coordinate = mesh.getCoordinate(device, ref);
      position = position * ref.size + coordinate;
      rest -= coordinate * mesh.getStride(ref);
    }
    byRest[{rest}][position] = device;
  }
  Groups groups;
  for (const auto &[rest, members] : byRest) {
    Group &group = groups.emplace_back();
    for (const auto &[position, device] : members)
      group.push_back(device);
  }
  return groups;
}

/// Returns the whole axis, and all ways to cut it into two or three digits.
std::vector<Refs> getDigitLists(const AxisRef &axis) {
  std::vector<Refs> lists = {{axis}};
  for (int64_t major = 2; major < axis.size; ++major) {
    if (axis.size % major)
      continue;
    lists.push_back(
        {{axis.name, 1, major}, {axis.name, major, axis.size / major}});
    for (int64_t minor = 2; minor < axis.size / major; ++minor)
      if (axis.size / major % minor == 0)
        lists.push_back({{axis.name, 1, major},
                         {axis.name, major, axis.size / major / minor},
                         {axis.name, axis.size / minor, minor}});
  }
  return lists;
}

/// All digit lists of the whole mesh.
std::vector<Refs> getDigitLists(const Mesh &mesh) {
  std::vector<Refs> all = {{}};
  for (size_t axis = 0; axis < mesh.getAxes().size(); ++axis) {
    std::vector<Refs> next;
    for (const Refs &prefix : all)
      for (const Refs &digits : getDigitLists(mesh.getAxis(axis))) {
        Refs &list = next.emplace_back(prefix);
        list.insert(list.end(), digits.begin(), digits.end());
      }
    all = std::move(next);
  }
  return all;
}

/// The canonical form that factorGroups promises: no axis of size 1, and no two
/// neighbors that could be one digit.
Refs canonicalize(const Refs &refs) {
  Refs result;
  for (const AxisRef &ref : refs) {
    if (ref.size == 1)
      continue;
    if (!result.empty() && result.back().name == ref.name &&
        result.back().preSize * result.back().size == ref.preSize)
      result.back().size *= ref.size;
    else
      result.push_back(ref);
  }
  return result;
}

/// Checks all subsets and orders of all axes and parts of axes of all meshes.
TEST(Mesh, FactorGroupsInvertsGetGroups) {
  std::mt19937 random(1);
  int64_t cases = 0;
  for (const char *text : kMeshes) {
    Mesh mesh = parse(text);
    for (const Refs &digits : getDigitLists(mesh)) {
      // Five or more digits have too many orders.
      if (digits.size() > 5)
        continue;
      for (unsigned subset = 0; subset < 1u << digits.size(); ++subset) {
        std::vector<int> order;
        for (size_t i = 0; i < digits.size(); ++i)
          if (subset >> i & 1)
            order.push_back(i);
        do {
          Refs refs;
          for (int index : order)
            refs.push_back(digits[index]);
          ASSERT_EQ(mesh.verify(refs), "");
          Groups groups = mesh.getGroups(refs);
          ASSERT_EQ(groups, getGroupsByDefinition(mesh, refs)) << text;

          std::string error;
          std::shuffle(groups.begin(), groups.end(), random);
          std::optional<Refs> factored = mesh.factorGroups(groups, error);
          ASSERT_TRUE(factored) << text << ": " << error;
          ASSERT_EQ(*factored, canonicalize(refs)) << text;
          ASSERT_EQ(error, "");
          ++cases;
        } while (std::next_permutation(order.begin(), order.end()));
      }
    }
  }
  EXPECT_GT(cases, 1000);
}

/// The axes of one mesh on another are those that its groups have there.
TEST(FindRefs, IsFactorGroupsOfTheGroups) {
  int64_t found = 0, missing = 0;
  for (const char *text : kMeshes) {
    Mesh mesh = parse(text);
    int64_t devices = mesh.numDevices();
    std::vector<std::string> others(std::begin(kMeshes), std::end(kMeshes));
    // On most of these, an axis begins or ends inside of another's factor.
    for (int64_t size = 1; size <= devices; ++size)
      if (devices % size == 0)
        others.push_back("x:" + std::to_string(size) +
                         ",y:" + std::to_string(devices / size));
    for (const std::string &otherText : others) {
      Mesh other = parse(otherText);
      if (other.numDevices() != devices) {
        EXPECT_EQ(findRefs(mesh, {}, other), std::nullopt);
        continue;
      }
      for (const Refs &refs : getDigitLists(mesh)) {
        std::string error;
        std::optional<Refs> there = findRefs(mesh, refs, other);
        ASSERT_EQ(there, other.factorGroups(mesh.getGroups(refs), error))
            << text << " on " << otherText;
        ++(there ? found : missing);
      }
    }
  }
  EXPECT_GT(found, 400);
  EXPECT_GT(missing, 10);
}

TEST(FindRefs, CutsAndJoinsAxes) {
  Mesh tiers = parse("node:2048,gpu:8"), flat = parse("data:16384");
  EXPECT_EQ(findRefs(tiers, {{"gpu", 1, 8}}, flat), (Refs{{"data", 2048, 8}}));
  EXPECT_EQ(findRefs(tiers, {{"node", 1, 2048}, {"gpu", 1, 8}}, flat),
            (Refs{{"data", 1, 16384}}));
  EXPECT_EQ(findRefs(flat, {{"data", 512, 16}}, tiers),
            (Refs{{"node", 512, 4}, {"gpu", 1, 4}}));
  EXPECT_EQ(findRefs(parse("a:2,b:6"), {{"b", 1, 6}}, parse("c:3,d:4")),
            std::nullopt);
}

TEST(Mesh, FactorGroupsSplitsRunsAtTheBordersOfAxes) {
  std::string error;
  Mesh mesh = parse("node:2,gpu:4");
  EXPECT_EQ(mesh.factorGroups({{0, 1, 2, 3, 4, 5, 6, 7}}, error),
            (Refs{{"node", 1, 2}, {"gpu", 1, 4}}));
  // Distance 2, four devices: half of gpu and all of node.
  EXPECT_EQ(mesh.factorGroups({{0, 2, 4, 6}, {1, 3, 5, 7}}, error),
            (Refs{{"node", 1, 2}, {"gpu", 1, 2}}));
  // Groups over an axis of size 1.
  EXPECT_EQ(
      parse("a:2,b:1,c:4").factorGroups({{0, 1, 2, 3, 4, 5, 6, 7}}, error),
      (Refs{{"a", 1, 2}, {"c", 1, 4}}));
}

TEST(Mesh, FactorGroupsFindsStridedGroupsAroundTensorParallelism) {
  std::string error;
  Mesh mesh = parse("node:2,tensor:2,gpu:2");
  EXPECT_EQ(mesh.factorGroups({{0, 2}, {1, 3}, {4, 6}, {5, 7}}, error),
            (Refs{{"tensor", 1, 2}}));
  EXPECT_EQ(mesh.factorGroups({{0, 1, 4, 5}, {2, 3, 6, 7}}, error),
            (Refs{{"node", 1, 2}, {"gpu", 1, 2}}));
  // Tensor parallelism innermost, data parallelism at distance 2.
  mesh = parse("node:2,gpu:2,tensor:2");
  EXPECT_EQ(mesh.factorGroups({{1, 3, 5, 7}, {0, 2, 4, 6}}, error),
            (Refs{{"node", 1, 2}, {"gpu", 1, 2}}));
}

TEST(Mesh, FactorGroupsKeepsTheOrderInTheGroup) {
  std::string error;
  Mesh mesh = parse("node:2,gpu:4");
  EXPECT_EQ(mesh.factorGroups({{0, 4, 1, 5, 2, 6, 3, 7}}, error),
            (Refs{{"gpu", 1, 4}, {"node", 1, 2}}));
  EXPECT_EQ(mesh.factorGroups({{0, 2, 1, 3}, {4, 6, 5, 7}}, error),
            (Refs{{"gpu", 2, 2}, {"gpu", 1, 2}}));
}

TEST(Mesh, FactorGroupsErrors) {
  Mesh mesh = parse("node:2,gpu:4");
  auto errorOf = [&](const Groups &groups) {
    std::string error;
    EXPECT_FALSE(mesh.factorGroups(groups, error));
    return error;
  };
  auto noProduct = [](const std::string &group) {
    return "expected groups along axes of mesh 'node:2,gpu:4', but got " +
           group;
  };

  // Groups that do not have every device exactly once.
  EXPECT_EQ(errorOf({}), "expected groups that cover 8 devices, but got 0");
  EXPECT_EQ(errorOf({{0, 1, 2, 3}}),
            "expected groups that cover 8 devices, but got 4");
  EXPECT_EQ(errorOf({{}}),
            "expected groups of at least one device, but got []");
  EXPECT_EQ(errorOf({{0, 1}, {}}),
            "expected groups of at least one device, but got []");
  EXPECT_EQ(errorOf({{0, 1, 2}, {3, 4, 5}, {6, 7}}),
            "expected groups of one size, but got [0, 1, 2] and [6, 7]");
  EXPECT_EQ(errorOf({{0, 1, 2, 3}, {4, 5, 6, 8}}),
            "expected devices in [0, 8), but got 8");
  EXPECT_EQ(errorOf({{0, 1, 2, 3}, {4, 5, 6, -1}}),
            "expected devices in [0, 8), but got -1");
  EXPECT_EQ(errorOf({{0, 1, 2, 3}, {4, 5, 6, 3}}),
            "expected every device in one group, but got 3 twice");

  // Groups that are not a product over axes.
  EXPECT_EQ(errorOf({{0, 1, 2, 4}, {3, 5, 6, 7}}), noProduct("[0, 1, 2, 4]"));
  EXPECT_EQ(errorOf({{0, 3}, {1, 2}, {4, 7}, {5, 6}}), noProduct("[0, 3]"));
  // The first group is along an axis, but another one is not.
  EXPECT_EQ(errorOf({{0, 1}, {2, 3}, {4, 6}, {5, 7}}), noProduct("[4, 6]"));
  EXPECT_EQ(errorOf({{4, 5}, {0, 1}, {2, 3}, {7, 6}}), noProduct("[7, 6]"));
  // Groups across nodes with different GPUs.
  EXPECT_EQ(errorOf({{0, 5}, {1, 4}, {2, 7}, {3, 6}}), noProduct("[0, 5]"));
  // Orders that no list of axes yields.
  EXPECT_EQ(errorOf({{3, 2, 1, 0}, {7, 6, 5, 4}}), noProduct("[3, 2, 1, 0]"));
  EXPECT_EQ(errorOf({{0, 1, 3, 2}, {4, 5, 7, 6}}), noProduct("[0, 1, 3, 2]"));
  EXPECT_EQ(errorOf({{1, 0}, {3, 2}, {5, 4}, {7, 6}}), noProduct("[1, 0]"));

  EXPECT_EQ(errorOf({{7, 0}, {1, 2}, {3, 4}, {5, 6}}), noProduct("[7, 0]"));

  // Digits that are parts of the axis, but cannot be used together.
  mesh = parse("gpu:12");
  EXPECT_EQ(errorOf({{0, 1, 3, 4}, {2, 5, 6, 7}, {8, 9, 10, 11}}),
            "expected groups along axes of mesh 'gpu:12', but got "
            "[0, 1, 3, 4]");

  // Runs that end inside an axis whose size they do not divide.
  mesh = parse("node:2,gpu:6");
  EXPECT_EQ(errorOf({{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}}),
            "expected groups along axes of mesh 'node:2,gpu:6', but got "
            "[0, 1, 2, 3]");
  mesh = parse("node:6,gpu:4");
  EXPECT_EQ(errorOf({{0, 3, 6, 9},
                     {1, 4, 7, 10},
                     {2, 5, 8, 11},
                     {12, 15, 18, 21},
                     {13, 16, 19, 22},
                     {14, 17, 20, 23}}),
            "expected groups along axes of mesh 'node:6,gpu:4', but got "
            "[0, 3, 6, 9]");
}

/// For any groups, a factorization that is accepted yields exactly these
/// groups.
TEST(Mesh, FactorGroupsAcceptsNothingElse) {
  std::mt19937 random(1);
  Mesh mesh = parse("a:2,b:2,c:2");
  int64_t accepted = 0;
  Group devices = {0, 1, 2, 3, 4, 5, 6, 7};
  do {
    for (int64_t size : {1, 2, 4, 8}) {
      Groups groups;
      for (int64_t begin = 0; begin < 8; begin += size)
        groups.emplace_back(devices.begin() + begin,
                            devices.begin() + begin + size);
      std::string error;
      std::optional<Refs> refs = mesh.factorGroups(groups, error);
      ASSERT_EQ(refs.has_value(), error.empty());
      if (!refs)
        continue;
      ++accepted;
      std::sort(groups.begin(), groups.end());
      ASSERT_EQ(mesh.getGroups(*refs), groups);
    }
  } while (std::next_permutation(devices.begin(), devices.end()));
  // The ordered choices of axes of each size, times the orders of their groups.
  EXPECT_EQ(accepted, 1 * 40320 + 3 * 24 + 6 * 2 + 6 * 1);
}

//===----------------------------------------------------------------------===//
// Lists of axes
//===----------------------------------------------------------------------===//

TEST(SplitRefs, Examples) {
  Refs refs = {{"node", 1, 2}, {"gpu", 1, 8}};
  auto check = [&](int64_t innerSize, const Refs &outer, const Refs &inner) {
    Refs gotOuter, gotInner;
    ASSERT_TRUE(splitRefs(refs, innerSize, gotOuter, gotInner));
    EXPECT_EQ(gotOuter, outer) << innerSize;
    EXPECT_EQ(gotInner, inner) << innerSize;
  };
  check(1, refs, {});
  check(2, {{"node", 1, 2}, {"gpu", 1, 4}}, {{"gpu", 4, 2}});
  check(4, {{"node", 1, 2}, {"gpu", 1, 2}}, {{"gpu", 2, 4}});
  check(8, {{"node", 1, 2}}, {{"gpu", 1, 8}});
  check(16, {}, refs);

  // Parts of parts, and axes of size 1, can be split too.
  refs = {{"gpu", 2, 4}};
  check(2, {{"gpu", 2, 2}}, {{"gpu", 4, 2}});
  refs = {{"a", 1, 4}, {"b", 1, 1}, {"c", 1, 2}};
  check(2, {{"a", 1, 4}, {"b", 1, 1}}, {{"c", 1, 2}});
  check(4, {{"a", 1, 2}}, {{"a", 2, 2}, {"b", 1, 1}, {"c", 1, 2}});
  refs = {};
  check(1, {}, {});
}

TEST(SplitRefs, Failures) {
  Refs refs = {{"node", 1, 4}, {"gpu", 1, 6}};
  for (int64_t innerSize : {-1, 0, 4, 5, 7, 8, 9, 18, 23, 36, 48}) {
    Refs outer = {{"kept", 1, 1}}, inner = {{"kept", 1, 2}};
    EXPECT_FALSE(splitRefs(refs, innerSize, outer, inner)) << innerSize;
    EXPECT_EQ(outer, (Refs{{"kept", 1, 1}}));
    EXPECT_EQ(inner, (Refs{{"kept", 1, 2}}));
  }
  Refs outer, inner;
  EXPECT_FALSE(splitRefs({}, 2, outer, inner));
}

/// If refs can be split, outer followed by inner numbers the devices as refs
/// do.
TEST(SplitRefs, KeepsTheNumbering) {
  int64_t splits = 0;
  for (const char *text : kMeshes) {
    Mesh mesh = parse(text);
    for (const Refs &refs : getDigitLists(mesh)) {
      for (int64_t innerSize = 1; innerSize <= mesh.numDevices(); ++innerSize) {
        Refs outer, inner;
        if (!splitRefs(refs, innerSize, outer, inner))
          continue;
        ++splits;
        ASSERT_EQ(numDevices(inner), innerSize);
        ASSERT_EQ(numDevices(outer) * innerSize, numDevices(refs));
        Refs joined = outer;
        joined.insert(joined.end(), inner.begin(), inner.end());
        ASSERT_EQ(mesh.verify(joined), "");
        ASSERT_EQ(mesh.getGroups(joined), mesh.getGroups(refs));
      }
    }
  }
  EXPECT_GT(splits, 100);
}

TEST(NumDevices, OfRefs) {
  EXPECT_EQ(numDevices(Refs{}), 1);
  EXPECT_EQ(numDevices(Refs{{"a", 1, 3}, {"b", 2, 4}}), 12);
}

} // namespace
