//===- LinkModelTest.cpp --------------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/LinkModel.h"
#include "gtest/gtest.h"

using namespace zpp;

namespace {

const Mesh mesh({{"node", 2}, {"gpu", 4}});

TEST(LinkModel, TimesAreThoseOfTheSlowestTier) {
  std::string error;
  std::optional<LinkModel> model =
      LinkModel::parse("gpu=400gbyte,node=80gbit", mesh, error);
  ASSERT_TRUE(model) << error;
  // 80 Gbit/s are 10000 bytes per microsecond.
  EXPECT_DOUBLE_EQ(model->getExchangeUsec({1000000, 400000}),
                   LinkModel::kExchangeUsec + 100);
  EXPECT_DOUBLE_EQ(model->getExchangeUsec({0, 4000000}),
                   LinkModel::kExchangeUsec + 10);
  EXPECT_DOUBLE_EQ(LinkModel::getKernelUsec(2500000),
                   LinkModel::kKernelUsec + 1);
}

/// The protocols of NCCL: LL, LL128 and Simple.
enum Protocols { Short, Middle, Long };

/// Returns the time of a ring of `steps` steps within nodes and `hops` between
/// them, whose bytes take `usec` without overhead.
static double getRing(Protocols number, double usec, double steps, double hops,
                      double latency = LinkModel::kExchangeUsec) {
  const LinkModel::Protocol &protocol = LinkModel::kProtocols[number];
  return latency + usec / protocol.data + steps * protocol.stepUsec +
         hops * protocol.hopUsec;
}

TEST(LinkModel, RingsShareTheLinksOfANode) {
  std::string error;
  std::optional<LinkModel> model =
      LinkModel::parse("node=80gbit,gpu=400gbyte", mesh, error);
  ASSERT_TRUE(model) << error;
  // 7 steps of 4 MB, of which each of the 4 devices of a node sends a quarter
  // to the next node; one step goes there.
  EXPECT_DOUBLE_EQ(model->getRingUsec({2, 4}, 4000000),
                   getRing(Long, 7 * 1e6 / 1e4, 6, 1));
  EXPECT_DOUBLE_EQ(model->getRingUsec({1, 4}, 40000000),
                   getRing(Long, 300, 3, 0));
  EXPECT_DOUBLE_EQ(model->getRingUsec({2, 1}, 4000000),
                   getRing(Long, 400, 0, 1));
  EXPECT_EQ(model->getRingUsec({1, 1}, 400000), 0);
}

TEST(LinkModel, ShortMessagesHaveShortSteps) {
  std::string error;
  std::optional<LinkModel> model =
      LinkModel::parse("node=80gbit,gpu=400gbyte", mesh, error);
  ASSERT_TRUE(model) << error;
  EXPECT_DOUBLE_EQ(model->getRingUsec({2, 4}, 0), getRing(Short, 0, 6, 1));
  EXPECT_DOUBLE_EQ(model->getRingUsec({2, 4}, 400000),
                   getRing(Middle, 70, 6, 1));
  double last = 0;
  for (int64_t bytes = 1; bytes < 1 << 30; bytes *= 2) {
    double usec = model->getRingUsec({2, 4}, bytes);
    EXPECT_GT(usec, last);
    last = usec;
  }
}

TEST(LinkModel, CollectivesAreRings) {
  std::string error;
  std::optional<LinkModel> model =
      LinkModel::parse("node=80gbit,gpu=400gbyte", mesh, error);
  ASSERT_TRUE(model) << error;
  std::vector<AxisRef> all = {mesh.getAxis(0), mesh.getAxis(1)};
  for (CollectiveKind kind :
       {CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
    EXPECT_DOUBLE_EQ(model->getCollectiveUsec(mesh, kind, all, 400000),
                     model->getRingUsec({2, 4}, 400000));
    EXPECT_DOUBLE_EQ(
        model->getCollectiveUsec(mesh, kind, {mesh.getAxis(1)}, 400000),
        model->getRingUsec({1, 4}, 400000));
  }
  EXPECT_DOUBLE_EQ(model->getCollectiveUsec(mesh, CollectiveKind::AllReduce,
                                            {mesh.getAxis(0)}, 400000),
                   2 * model->getRingUsec({2, 1}, 200000));
  EXPECT_DOUBLE_EQ(model->getCollectiveUsec(mesh, CollectiveKind::AllReduce,
                                            {mesh.getAxis(1)}, 400000),
                   2 * model->getRingUsec({1, 4}, 100000));
  EXPECT_DOUBLE_EQ(
      model->getCollectiveUsec(mesh, CollectiveKind::AllToAll, all, 1000000),
      model->getExchangeUsec({4000000, 3000000}));
}

TEST(LinkModel, AllReducesOfTwoNodesAreTrees) {
  std::string error;
  std::optional<LinkModel> model =
      LinkModel::parse("node=80gbit,gpu=400gbyte", mesh, error);
  ASSERT_TRUE(model) << error;
  auto getUsec = [](const LinkModel &model, const Mesh &mesh, int64_t bytes) {
    return model.getCollectiveUsec(mesh, CollectiveKind::AllReduce,
                                   {mesh.getAxis(0), mesh.getAxis(1)}, bytes);
  };
  // All that is summed crosses once in each direction. A ring of 8 devices
  // would send 1.75 times as much.
  EXPECT_DOUBLE_EQ(getUsec(*model, mesh, 400000), 2 * getRing(Short, 5, 6, 1));
  EXPECT_DOUBLE_EQ(getUsec(*model, mesh, 400000000),
                   2 * getRing(Long, 5000, 6, 1));
  // Within the node nothing is saved.
  std::optional<LinkModel> inside =
      LinkModel::parse("node=400gbyte,gpu=80gbit", mesh, error);
  ASSERT_TRUE(inside) << error;
  EXPECT_DOUBLE_EQ(getUsec(*inside, mesh, 400000000),
                   2 * inside->getRingUsec({2, 4}, 50000000));
  const Mesh three({{"node", 3}, {"gpu", 2}});
  std::optional<LinkModel> ring =
      LinkModel::parse("node=80gbit,gpu=400gbyte", three, error);
  ASSERT_TRUE(ring) << error;
  EXPECT_DOUBLE_EQ(getUsec(*ring, three, 600000),
                   2 * ring->getRingUsec({3, 2}, 100000));
}

TEST(LinkModel, AGatherInHopsTakesItsSlowestHop) {
  std::string error;
  std::optional<LinkModel> model =
      LinkModel::parse("node=80gbit,gpu=400gbyte", mesh, error);
  ASSERT_TRUE(model) << error;
  std::vector<AxisRef> all = {mesh.getAxis(0), mesh.getAxis(1)};
  EXPECT_DOUBLE_EQ(model->getHopsUsec(mesh, all, 4000000),
                   model->getRingUsec({2, 1}, 4000000) +
                       model->getRingUsec({1, 4}, 0));
  EXPECT_DOUBLE_EQ(model->getHopsUsec(mesh, {mesh.getAxis(1)}, 4000000),
                   model->getRingUsec({1, 4}, 4000000));
  // Within a node each device passes on what both nodes have.
  std::optional<LinkModel> inside =
      LinkModel::parse("node=400gbyte,gpu=80gbit", mesh, error);
  ASSERT_TRUE(inside) << error;
  EXPECT_DOUBLE_EQ(inside->getHopsUsec(mesh, all, 4000000),
                   inside->getRingUsec({2, 1}, 0) +
                       inside->getRingUsec({1, 4}, 8000000));
}

TEST(LinkModel, RingsMayHaveAnotherSpeed) {
  std::string error;
  std::optional<LinkModel> model =
      LinkModel::parse("node=40gbit/80gbit,gpu=400gbyte", mesh, error);
  ASSERT_TRUE(model) << error;
  EXPECT_DOUBLE_EQ(model->getRingUsec({2, 1}, 4000000),
                   getRing(Long, 400, 0, 1));
  EXPECT_DOUBLE_EQ(model->getExchangeUsec({400000, 0}),
                   LinkModel::kExchangeUsec + 80);
}

TEST(LinkModel, TiersMayHaveLongerLatencies) {
  std::string error;
  for (const char *spec : {"node=80gbit+270us,gpu=400gbyte",
                           "node=80gbit/80gbit+0.27ms,gpu=4e+2gbyte+1us"}) {
    std::optional<LinkModel> model = LinkModel::parse(spec, mesh, error);
    ASSERT_TRUE(model) << error;
    EXPECT_DOUBLE_EQ(model->getExchangeUsec({1000000, 400000}), 270 + 100);
    EXPECT_DOUBLE_EQ(model->getExchangeUsec({0, 4000000}),
                     LinkModel::kExchangeUsec + 10);
    EXPECT_DOUBLE_EQ(model->getRingUsec({2, 1}, 4000000),
                     getRing(Long, 400, 0, 1, 270));
    EXPECT_DOUBLE_EQ(model->getRingUsec({1, 4}, 40000000),
                     getRing(Long, 300, 3, 0));
  }
}

TEST(LinkModel, SlowerTiersAreSlower) {
  LinkModel model(mesh);
  EXPECT_GT(model.getExchangeUsec({1000000, 0}),
            model.getExchangeUsec({0, 1000000}));
}

TEST(LinkModel, Errors) {
  auto parse = [](const char *spec) {
    std::string error;
    EXPECT_FALSE(LinkModel::parse(spec, mesh, error));
    return error;
  };
  EXPECT_EQ(parse(""),
            "expected TIER=NUMBERgbit or TIER=NUMBERgbyte, but got ''");
  EXPECT_EQ(parse("node=50,gpu=1gbit"),
            "expected TIER=NUMBERgbit or TIER=NUMBERgbyte, but got 'node=50'");
  EXPECT_EQ(parse("node=-1gbit,gpu=1gbit"), "expected TIER=NUMBERgbit or "
                                            "TIER=NUMBERgbyte, but got "
                                            "'node=-1gbit'");
  EXPECT_EQ(parse("node=1gbit/,gpu=1gbit"),
            "expected TIER=NUMBERgbit or TIER=NUMBERgbyte, but got "
            "'node=1gbit/'");
  for (std::string item : {"node=1gbit+270s", "node=1gbit+us",
                           "node=1gbit+-1us", "node=+270us", "node=s"})
    EXPECT_EQ(parse((item + ",gpu=1gbit").c_str()),
              "expected TIER=NUMBERgbit or TIER=NUMBERgbyte, but got '" + item +
                  "'");
  EXPECT_EQ(parse("rack=50gbit"),
            "expected each tier of node:2,gpu:4 once, but got 'rack'");
  EXPECT_EQ(parse("node=1gbit,node=1gbit"),
            "expected each tier of node:2,gpu:4 once, but got 'node'");
  EXPECT_EQ(parse("node=50gbit"),
            "expected a link for tier 'gpu', but got none");
}

TEST(LinkModel, StagesPayWhereHopsAreAlike) {
  double latency = LinkModel::kExchangeUsec;
  // A single hop has nothing to run under.
  EXPECT_EQ(chooseStages({1000}, 8), 1);
  EXPECT_GT(chooseStages({latency + 1000, latency + 1000}, 8), 2);
  EXPECT_EQ(chooseStages({latency + 1000, latency + 1000}, 2), 2);
  // Only latencies, or a second hop that is negligible.
  EXPECT_EQ(chooseStages({latency, latency}, 8), 1);
  EXPECT_EQ(chooseStages({latency + 1000, latency + 1}, 8), 1);
}

} // namespace
