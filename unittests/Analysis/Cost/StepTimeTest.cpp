//===- StepTimeTest.cpp - The problem of a predicted step -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Cost/StepTime.h"

#include "StepText.h"

using namespace mlir;
using namespace zpp;

namespace {

std::string makeGather(const std::string &name, const std::string &operand) {
  return makeOp(name, "all_gather", operand,
                ", all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, "
                "3]]> : tensor<1x4xi64>} : (" +
                    kSlice.str() + ") -> " + kMatrix.str());
}

StepTime predict(const std::string &body) {
  ParsedModule module("func.func @main(%x: " + kMatrix.str() +
                      ", %p: " + kSlice.str() + ", %q: " + kSlice.str() +
                      ") -> " + kMatrix.str() + " {\n" + body +
                      "return %y : " + kMatrix.str() + "\n}");
  std::string error;
  Mesh mesh = *Mesh::parse("node:4", error);
  StepTime time = predictStepTime(module.get(), mesh, {},
                                  *LinkModel::parse("node=8gbit", mesh, error),
                                  *DeviceModel::parse("h100", error), 1);
  EXPECT_LE(time.problem.getBound().usec, time.usec * (1 + 1e-9));
  return time;
}

TEST(StepTimeTest, LinksAreTheBound) {
  // XLA starts the second gather when the first product begins, which is as
  // early as the link allows.
  StepTime time =
      predict(makeGather("a", "%p") + makeGather("b", "%q") +
              makeProduct("c", "%x, %a") + makeProduct("y", "%c, %b"));
  EXPECT_NEAR(time.problem.getBound().usec,
              time.busyUsec[0] + time.computeUsec / 2, time.computeUsec / 100);
}

TEST(StepTimeTest, WhatANewPlanCouldHide) {
  // XLA's one gather stands still until a product that does not need it.
  StepTime time = predict(makeProduct("c", "%x, %x") + makeGather("a", "%p") +
                          makeProduct("y", "%c, %a"));
  EXPECT_NEAR(time.problem.getBound().usec,
              time.busyUsec[0] + time.computeUsec / 2, time.computeUsec / 100);
}

TEST(StepTimeTest, IterationsDependOnEachOther) {
  std::string body = makeGather("a", "%p") + makeProduct("z", "%v, %a");
  for (int trips : {3, 300}) {
    StepTime time =
        predict(makeLoop("%l:2", trips, "%x", kMatrix.str(),
                         "%v: " + kMatrix.str(), body, "%z") +
                "%y = \"stablehlo.add\"(%l#1, %l#1) : (" + kMatrix.str() +
                ", " + kMatrix.str() + ") -> " + kMatrix.str() + "\n");
    EXPECT_NEAR(time.busyUsec[0] / time.problem.getBound().usec, 1, 0.05)
        << trips;
  }
}

} // namespace
