//===- DeviceModelTest.cpp - Tests of the model of devices ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/DeviceModel.h"

#include "gtest/gtest.h"

using namespace zpp;

namespace {

DeviceModel parseDevice(const std::string &spec) {
  std::string error;
  std::optional<DeviceModel> model = DeviceModel::parse(spec, error);
  EXPECT_TRUE(model) << error;
  return model.value_or(DeviceModel());
}

TEST(DeviceModelTest, NamesStandForDataSheets) {
  DeviceModel named = parseDevice("h200"),
              given = parseDevice("989tflops,4800gbyte");
  EXPECT_EQ(named.getProductUsec(1e12, 16, 0),
            given.getProductUsec(1e12, 16, 0));
  EXPECT_EQ(named.getMemoryUsec(1e9), given.getMemoryUsec(1e9));
}

TEST(DeviceModelTest, AProductTakesTimeForOperationsOrForBytes) {
  DeviceModel model = parseDevice("100tflops,1000gbyte");
  EXPECT_DOUBLE_EQ(model.getProductUsec(60e6, 16, 0), 1);
  EXPECT_DOUBLE_EQ(model.getProductUsec(60e6, 32, 0), 8);
  EXPECT_DOUBLE_EQ(model.getProductUsec(60e6, 16, 7.5e6), 10);
  EXPECT_DOUBLE_EQ(model.getMemoryUsec(7.5e6), 10);
}

TEST(DeviceModelTest, RefusesWhatIsNoDevice) {
  for (const char *spec :
       {"", "h300", "100tflops", "100tflops,", "100tflops,5gbit",
        "-1tflops,1gbyte", "1tflops,0gbyte", "inftflops,1gbyte",
        "1tflops,1gbyte,"}) {
    std::string error;
    EXPECT_FALSE(DeviceModel::parse(spec, error)) << spec;
    EXPECT_NE(error.find("h200"), std::string::npos) << error;
    EXPECT_NE(error.find("but got '" + std::string(spec) + "'"),
              std::string::npos)
        << error;
  }
}

} // namespace
