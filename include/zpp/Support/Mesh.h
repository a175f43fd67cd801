//===- Mesh.h - Device mesh, axes and replica groups ------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_MESH_H
#define ZPP_SUPPORT_MESH_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zpp {

/// One axis of a mesh: devices that differ in this coordinate only.
struct MeshAxis {
  std::string name;
  int64_t size;
};
bool operator==(const MeshAxis &a, const MeshAxis &b);

/// An axis, or the part of one that a factor of size `size` takes. As in sdy's
/// sub-axes, `preSize` is the product of the factors of the same axis more
/// major than this one: axis "gpu" = 4 split in two halves of pairs is
/// {"gpu", 1, 2} (which pair) and {"gpu", 2, 2} (which of the pair).
struct AxisRef {
  std::string name;
  int64_t preSize;
  int64_t size;
};
bool operator==(const AxisRef &a, const AxisRef &b);

/// Devices as a row-major grid; axes from the slowest link to the fastest.
/// Device d has coordinates (d / strides[0] % sizes[0], ...).
class Mesh {
public:
  Mesh() = default;
  explicit Mesh(std::vector<MeshAxis> axes) : axes(std::move(axes)) {}

  /// Parses "node:2,gpu:4". Names consist of letters, digits, '_', '-' and '.'
  /// and do not start with a digit; sizes are positive and their product fits
  /// in int64_t. On failure returns nullopt and sets `error` ("expected
  /// NAME:SIZE, but got 'gpu'").
  static std::optional<Mesh> parse(std::string_view text, std::string &error);

  const std::vector<MeshAxis> &getAxes() const { return axes; }
  int64_t numDevices() const;
  /// Index of the axis, or -1.
  int64_t findAxis(std::string_view name) const;
  /// Index of the axis with the slowest link of those of `refs`, of which there
  /// is at least one.
  int64_t findSlowest(const std::vector<AxisRef> &refs) const;
  /// Device id distance between neighbours along the referenced (sub-)axis.
  int64_t getStride(const AxisRef &ref) const;
  /// The whole axis as a reference.
  AxisRef getAxis(int64_t index) const;
  /// Coordinate of `device` along `ref`.
  int64_t getCoordinate(int64_t device, const AxisRef &ref) const;
  /// Empty, or what is wrong with `ref` on this mesh.
  std::string verify(const AxisRef &ref) const;
  /// Empty, or what is wrong with one of `refs` or with using them together:
  /// parts of one axis must be different digits of one mixed radix.
  std::string verify(const std::vector<AxisRef> &refs) const;
  /// "node:2,gpu:4"
  std::string str() const;

  /// The groups of devices that differ only along `refs` (which verify), each
  /// ordered with refs[0] most significant; groups ordered by their first
  /// device.
  std::vector<std::vector<int64_t>>
  getGroups(const std::vector<AxisRef> &refs) const;

  /// The inverse: the axes (and parts of axes, most significant first) whose
  /// groups are `groups`, in whatever order the groups are listed. Axes of size
  /// 1 do not appear; whole axes are given whole; a stride that runs over
  /// several axes is split at their borders. Returns nullopt and sets `error`
  /// when groups do not cover every device once or are no product over axes in
  /// the order of their devices. Always getGroups(*factorGroups(g)) == g, up to
  /// the order in which g lists the groups.
  std::optional<std::vector<AxisRef>>
  factorGroups(const std::vector<std::vector<int64_t>> &groups,
               std::string &error) const;

private:
  std::vector<MeshAxis> axes;
};

/// Splits `refs` (most significant first) into an outer and an inner part so
/// that the inner part has `innerSize` devices, cutting an axis in two where
/// the border falls inside it. Returns false, and leaves `outer` and `inner`
/// alone, where no such border exists: innerSize must be a product of the last
/// sizes, times a divisor of the size before them. The outputs may not alias
/// `refs`.
bool splitRefs(const std::vector<AxisRef> &refs, int64_t innerSize,
               std::vector<AxisRef> &outer, std::vector<AxisRef> &inner);

/// Product of the sizes.
int64_t numDevices(const std::vector<AxisRef> &refs);

} // namespace zpp

#endif // ZPP_SUPPORT_MESH_H
