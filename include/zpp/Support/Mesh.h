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

/// An axis, or a part of it of size `size`. As in sdy's sub-axes, `preSize` is
/// the product of the parts of the same axis that are more major than this one.
/// Axis "gpu" = 4, split into two pairs, is {"gpu", 1, 2} (which pair) and
/// {"gpu", 2, 2} (which one of the pair).
struct AxisRef {
  std::string name;
  int64_t preSize;
  int64_t size;
};
bool operator==(const AxisRef &a, const AxisRef &b);

/// Devices as a grid, with axes from the slowest link to the fastest. Device d
/// has coordinates (d / strides[0] % sizes[0], ...). Usually the grid is
/// row-major; in another one, devices that are neighbours along the fastest
/// link do not have consecutive ids.
class Mesh {
public:
  Mesh() = default;
  /// A row-major grid.
  explicit Mesh(std::vector<MeshAxis> axes) : axes(std::move(axes)) {}

  /// A grid with these strides, one per axis. On failure returns nullopt and
  /// sets `error`: the strides of the axes must be those of a row-major grid of
  /// the same axes in some order.
  static std::optional<Mesh> get(std::vector<MeshAxis> axes,
                                 std::vector<int64_t> strides,
                                 std::string &error);

  /// Parses "node:2,gpu:4", or "node:2@1,gpu:4@2" with strides. Names consist
  /// of letters, digits, '_', '-' and '.' and do not start with a digit; sizes
  /// are positive and their product fits in int64_t. On failure returns nullopt
  /// and sets `error` ("expected NAME:SIZE, but got 'gpu'").
  static std::optional<Mesh> parse(std::string_view text, std::string &error);

  const std::vector<MeshAxis> &getAxes() const { return axes; }
  /// Returns the strides of the axes, or nothing if the grid is row-major.
  const std::vector<int64_t> &getStrides() const { return strides; }
  int64_t numDevices() const;
  /// Returns the indices of the axes of more than one device, those with the
  /// smallest stride first.
  std::vector<size_t> getOrder() const;
  /// Index of the axis, or -1.
  int64_t findAxis(std::string_view name) const;
  /// Index of the axis with the slowest link among those of `refs`, which must
  /// not be empty.
  int64_t findSlowest(const std::vector<AxisRef> &refs) const;
  /// Returns how many devices of each axis are in a group of `refs`, whichever
  /// parts of the axes these are.
  std::vector<int64_t> getSizes(const std::vector<AxisRef> &refs) const;
  /// Returns the difference of the ids of devices that are neighbours along
  /// `ref`.
  int64_t getStride(const AxisRef &ref) const;
  /// Returns the whole axis as a reference.
  AxisRef getAxis(int64_t index) const;
  /// Coordinate of `device` along `ref`.
  int64_t getCoordinate(int64_t device, const AxisRef &ref) const;
  /// Returns the error of `ref` on this mesh, or an empty string.
  std::string verify(const AxisRef &ref) const;
  /// Returns the error of one of `refs` or of using them together, or an empty
  /// string. Parts of one axis must be different digits of one mixed radix.
  std::string verify(const std::vector<AxisRef> &refs) const;
  /// "node:2,gpu:4", or "node:2@1,gpu:4@2" if the grid is not row-major.
  std::string str() const;

  /// Returns the groups of devices that differ only along `refs`, which must be
  /// valid. Each group is ordered with refs[0] most significant; groups are
  /// ordered by their first device.
  std::vector<std::vector<int64_t>>
  getGroups(const std::vector<AxisRef> &refs) const;

  /// The inverse: the axes (and parts of axes, the most significant first)
  /// whose groups are `groups`; the order in which these are listed does not
  /// matter. Axes of size 1 do not appear. An axis that is used whole is one
  /// reference, and a stride that runs over several axes is split at their
  /// borders. Returns nullopt and sets `error` if the groups do not cover every
  /// device exactly once, or are not a product over axes in the order of their
  /// devices. getGroups(*factorGroups(g)) == g, up to the order in which g
  /// lists the groups.
  std::optional<std::vector<AxisRef>>
  factorGroups(const std::vector<std::vector<int64_t>> &groups,
               std::string &error) const;

private:
  int64_t getRowMajorStride(size_t index) const;

  std::vector<MeshAxis> axes;
  /// Empty for a row-major grid.
  std::vector<int64_t> strides;
};
bool operator==(const Mesh &a, const Mesh &b);

/// Splits `refs` (the most significant first) into an outer and an inner part
/// so that the inner part has `innerSize` devices. An axis is cut in two if the
/// border falls inside it. If there is no such border, returns false and does
/// not change `outer` and `inner`: innerSize must be a product of the last
/// sizes, times a divisor of the size before them. The outputs must not alias
/// `refs`.
bool splitRefs(const std::vector<AxisRef> &refs, int64_t innerSize,
               std::vector<AxisRef> &outer, std::vector<AxisRef> &inner);

/// Returns the axes (and parts of axes) of `other`, a grid of the same devices,
/// whose groups are those of `refs` on `mesh`, which must be valid. The same as
/// other.factorGroups(mesh.getGroups(refs)), without looking at each device.
/// nullopt if there are none.
std::optional<std::vector<AxisRef>>
findRefs(const Mesh &mesh, std::vector<AxisRef> refs, const Mesh &other);

/// Product of the sizes.
int64_t numDevices(const std::vector<AxisRef> &refs);

} // namespace zpp

#endif // ZPP_SUPPORT_MESH_H
