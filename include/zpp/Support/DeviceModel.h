//===- DeviceModel.h - How fast a device computes ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the data sheets of devices say, and how much of it programs reach.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_DEVICEMODEL_H
#define ZPP_SUPPORT_DEVICEMODEL_H

#include <cstdint>
#include <optional>
#include <string>

namespace zpp {

class DeviceModel {
public:
  /// The parts of a data sheet's numbers that matrix products and kernels that
  /// read and write memory reach.
  static constexpr double kProductEfficiency = 0.6;
  static constexpr double kMemoryEfficiency = 0.75;
  /// The time of a product in f32 or wider, relative to one in 16 bits.
  static constexpr double kWideFactor = 8;

  /// Parses the name of a device that is known ("h200"), or its dense peak in
  /// 16 bits and the speed of its memory, "989tflops,4800gbyte". On failure
  /// returns nullopt and sets `error`.
  static std::optional<DeviceModel> parse(const std::string &spec,
                                          std::string &error);

  /// A device that is as fast as many.
  static DeviceModel getUsual();

  /// Returns the time of a product of `flops` operations on elements of `bits`
  /// bits that moves `bytes` bytes: one of the two takes longer.
  double getProductUsec(double flops, int64_t bits, double bytes) const;
  /// Returns the time of a kernel that reads and writes `bytes` bytes.
  double getMemoryUsec(double bytes) const;

private:
  double flopsPerUsec = 0;
  double bytesPerUsec = 0;
};

} // namespace zpp

#endif // ZPP_SUPPORT_DEVICEMODEL_H
