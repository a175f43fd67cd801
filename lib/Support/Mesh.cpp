//===- Mesh.cpp - Device mesh, axes and replica groups --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/Mesh.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <tuple>
#include <utility>

using namespace zpp;

bool zpp::operator==(const MeshAxis &a, const MeshAxis &b) {
  return a.name == b.name && a.size == b.size;
}

bool zpp::operator==(const Mesh &a, const Mesh &b) {
  return a.getAxes() == b.getAxes() && a.getStrides() == b.getStrides();
}

bool zpp::operator==(const AxisRef &a, const AxisRef &b) {
  return a.name == b.name && a.preSize == b.preSize && a.size == b.size;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static std::string quote(std::string_view text) {
  return "'" + std::string(text) + "'";
}

/// Names are ASCII, independent of the locale. They do not start with a digit,
/// so that options can tell "gpu" from a group size.
static bool isAxisName(std::string_view name) {
  auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  if (name.empty() || isDigit(name.front()))
    return false;
  return std::all_of(name.begin(), name.end(), [&](char c) {
    return isDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '_' || c == '-' || c == '.';
  });
}

/// The number that `digits` is, or nullopt if it is not positive.
static std::optional<int64_t> parsePositive(std::string_view digits) {
  int64_t number = 0;
  const char *last = digits.data() + digits.size();
  auto [end, code] = std::from_chars(digits.data(), last, number);
  if (code != std::errc() || end != last || number < 1)
    return std::nullopt;
  return number;
}

std::optional<Mesh> Mesh::parse(std::string_view text, std::string &error) {
  auto fail = [&](std::string why) {
    error = std::move(why);
    return std::nullopt;
  };
  Mesh mesh;
  std::vector<int64_t> strides;
  int64_t devices = 1;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    size_t colon = item.find(':');
    if (colon == std::string_view::npos)
      return fail("expected NAME:SIZE, but got " + quote(item));

    std::string_view name = item.substr(0, colon);
    if (!isAxisName(name))
      return fail("expected an axis name, but got " + quote(name) + " in " +
                  quote(item));
    if (mesh.findAxis(name) != -1)
      return fail("expected different axis names, but got " + quote(name) +
                  " twice in " + quote(text));

    std::string_view digits = item.substr(colon + 1);
    size_t at = digits.find('@');
    std::optional<int64_t> size = parsePositive(digits.substr(0, at));
    if (!size)
      return fail("expected a positive size for axis " + quote(name) +
                  ", but got " + quote(digits.substr(0, at)));
    if (__builtin_mul_overflow(devices, *size, &devices))
      return fail("expected fewer than 2^63 devices, but got " + quote(text));
    mesh.axes.push_back({std::string(name), *size});
    if (at == std::string_view::npos)
      continue;
    std::optional<int64_t> stride = parsePositive(digits.substr(at + 1));
    if (!stride)
      return fail("expected a positive stride for axis " + quote(name) +
                  ", but got " + quote(digits.substr(at + 1)));
    strides.push_back(*stride);
  }
  if (strides.empty())
    return mesh;
  if (strides.size() != mesh.axes.size())
    return fail("expected strides of all axes or of none, but got " +
                quote(text));
  return get(std::move(mesh.axes), std::move(strides), error);
}

std::optional<Mesh> Mesh::get(std::vector<MeshAxis> axes,
                              std::vector<int64_t> strides,
                              std::string &error) {
  Mesh mesh(std::move(axes));
  mesh.strides = std::move(strides);
  int64_t covered = 1;
  bool isRowMajor = true;
  for (size_t index : mesh.getOrder()) {
    if (mesh.strides[index] != covered) {
      error = "expected a stride of " + std::to_string(covered) + " of axis " +
              quote(mesh.axes[index].name) + ", but got " +
              std::to_string(mesh.strides[index]) + " in " + quote(mesh.str());
      return std::nullopt;
    }
    covered *= mesh.axes[index].size;
    isRowMajor &= mesh.strides[index] == mesh.getRowMajorStride(index);
  }
  if (isRowMajor) {
    mesh.strides.clear();
    return mesh;
  }
  // Along an axis of size 1 there are no neighbors: any stride would do.
  for (size_t index = 0; index < mesh.axes.size(); ++index)
    if (mesh.axes[index].size == 1)
      mesh.strides[index] = 1;
  return mesh;
}

std::string Mesh::str() const {
  std::string text;
  for (size_t index = 0; index < axes.size(); ++index) {
    if (index > 0)
      text += ',';
    text += axes[index].name + ':' + std::to_string(axes[index].size);
    if (!strides.empty())
      text += '@' + std::to_string(strides[index]);
  }
  return text;
}

//===----------------------------------------------------------------------===//
// Axes
//===----------------------------------------------------------------------===//

int64_t Mesh::numDevices() const {
  int64_t product = 1;
  for (const MeshAxis &axis : axes)
    product *= axis.size;
  return product;
}

int64_t Mesh::findAxis(std::string_view name) const {
  for (size_t index = 0; index < axes.size(); ++index)
    if (axes[index].name == name)
      return index;
  return -1;
}

int64_t Mesh::findSlowest(const std::vector<AxisRef> &refs) const {
  int64_t slowest = axes.size() - 1;
  for (const AxisRef &ref : refs)
    slowest = std::min(slowest, findAxis(ref.name));
  return slowest;
}

std::vector<int64_t> Mesh::getSizes(const std::vector<AxisRef> &refs) const {
  std::vector<int64_t> sizes(axes.size(), 1);
  for (const AxisRef &ref : refs)
    sizes[findAxis(ref.name)] *= ref.size;
  return sizes;
}

int64_t Mesh::getStride(const AxisRef &ref) const {
  assert(verify(ref).empty() && "expected a valid axis");
  int64_t index = findAxis(ref.name);
  return axes[index].size / ref.preSize / ref.size *
         (strides.empty() ? getRowMajorStride(index) : strides[index]);
}

int64_t Mesh::getRowMajorStride(size_t index) const {
  int64_t stride = 1;
  for (size_t faster = index + 1; faster < axes.size(); ++faster)
    stride *= axes[faster].size;
  return stride;
}

std::vector<size_t> Mesh::getOrder() const {
  std::vector<size_t> order;
  for (size_t index = axes.size(); index-- > 0;)
    if (axes[index].size > 1)
      order.push_back(index);
  // Only in meshes that are still to be checked are strides equal.
  if (!strides.empty())
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(strides[a], b) < std::pair(strides[b], a);
    });
  return order;
}

AxisRef Mesh::getAxis(int64_t index) const {
  return {axes[index].name, 1, axes[index].size};
}

int64_t Mesh::getCoordinate(int64_t device, const AxisRef &ref) const {
  return device / getStride(ref) % ref.size;
}

/// sdy's notation: "gpu", or "gpu":(1)2 for the part with preSize 1 and size 2.
static std::string describe(const AxisRef &ref) {
  return '"' + ref.name + "\":(" + std::to_string(ref.preSize) + ')' +
         std::to_string(ref.size);
}

std::string Mesh::verify(const AxisRef &ref) const {
  int64_t index = findAxis(ref.name);
  if (index == -1)
    return "expected an axis of mesh " + quote(str()) + ", but got " +
           quote(ref.name);
  int64_t size = axes[index].size;
  if (ref.preSize < 1 || ref.size < 1 || size % ref.preSize != 0 ||
      size / ref.preSize % ref.size != 0)
    return "expected a part of axis '" + ref.name + ":" + std::to_string(size) +
           "', but got " + describe(ref);
  return "";
}

std::string Mesh::verify(const std::vector<AxisRef> &refs) const {
  for (size_t i = 0; i < refs.size(); ++i) {
    std::string error = verify(refs[i]);
    if (!error.empty())
      return error;
    for (size_t j = 0; j < i; ++j) {
      if (refs[i].name != refs[j].name)
        continue;
      auto [major, minor] =
          std::minmax(refs[i], refs[j], [](const AxisRef &a, const AxisRef &b) {
            return std::tie(a.preSize, a.size) < std::tie(b.preSize, b.size);
          });
      // Even if they do not overlap, both must be digits of one mixed radix.
      if (minor.preSize % (major.preSize * major.size) != 0)
        return "expected separate parts of axis " + quote(refs[i].name) +
               ", but got " + describe(refs[j]) + " and " + describe(refs[i]);
    }
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

std::vector<std::vector<int64_t>>
Mesh::getGroups(const std::vector<AxisRef> &refs) const {
  assert(verify(refs).empty() && "expected valid axes");

  // The device ids of a group, relative to its first one.
  std::vector<int64_t> offsets = {0};
  for (const AxisRef &ref : refs) {
    int64_t stride = getStride(ref);
    std::vector<int64_t> next;
    next.reserve(offsets.size() * ref.size);
    for (int64_t offset : offsets)
      for (int64_t i = 0; i < ref.size; ++i)
        next.push_back(offset + i * stride);
    offsets = std::move(next);
  }

  std::vector<std::vector<int64_t>> groups;
  for (int64_t first = 0, e = numDevices(); first < e; ++first) {
    if (std::any_of(refs.begin(), refs.end(), [&](const AxisRef &ref) {
          return getCoordinate(first, ref) != 0;
        }))
      continue;
    std::vector<int64_t> &group = groups.emplace_back(offsets);
    for (int64_t &device : group)
      device += first;
  }
  return groups;
}

static std::string describe(const std::vector<int64_t> &group) {
  std::string text = "[";
  for (int64_t device : group) {
    if (text.size() > 1)
      text += ", ";
    text += std::to_string(device);
  }
  return text + "]";
}

/// An empty string if all `groups` have the same size and together cover
/// [0, devices) exactly once; otherwise what is wrong.
static std::string verifyGroups(const std::vector<std::vector<int64_t>> &groups,
                                int64_t devices) {
  std::vector<bool> seen(devices);
  int64_t covered = 0;
  for (const std::vector<int64_t> &group : groups) {
    if (group.empty())
      return "expected groups of at least one device, but got []";
    if (group.size() != groups.front().size())
      return "expected groups of one size, but got " +
             describe(groups.front()) + " and " + describe(group);
    for (int64_t device : group) {
      if (device < 0 || device >= devices)
        return "expected devices in [0, " + std::to_string(devices) +
               "), but got " + std::to_string(device);
      if (seen[device])
        return "expected every device in one group, but got " +
               std::to_string(device) + " twice";
      seen[device] = true;
      ++covered;
    }
  }
  if (covered != devices)
    return "expected groups that cover " + std::to_string(devices) +
           " devices, but got " + std::to_string(covered);
  return "";
}

/// Prepends to `refs` the parts of axes that number the devices at distance
/// `begin` below distance `end`. Returns false if an axis cannot be cut there.
static bool prependParts(const Mesh &mesh, int64_t begin, int64_t end,
                         std::vector<AxisRef> &refs) {
  int64_t axisBegin = 1;
  for (size_t index : mesh.getOrder()) {
    const MeshAxis &axis = mesh.getAxes()[index];
    int64_t axisEnd = axisBegin * axis.size;
    int64_t from = std::max(begin, axisBegin), to = std::min(end, axisEnd);
    if (from < to) {
      if (from % axisBegin != 0 || to % from != 0 || axisEnd % to != 0)
        return false;
      refs.insert(refs.begin(), {axis.name, axisEnd / to, to / from});
    }
    axisBegin = axisEnd;
  }
  return true;
}

std::optional<std::vector<AxisRef>>
Mesh::factorGroups(const std::vector<std::vector<int64_t>> &groups,
                   std::string &error) const {
  error = verifyGroups(groups, numDevices());
  if (!error.empty())
    return std::nullopt;

  auto fail = [&](const std::vector<int64_t> &group) {
    error = "expected groups along axes of mesh " + quote(str()) +
            ", but got " + describe(group);
    return std::nullopt;
  };

  // Read the first group as the numbers of a mixed radix, the least significant
  // digit first. The digit with weight `weight` ends where the stride changes.
  const std::vector<int64_t> &group = groups.front();
  int64_t groupSize = group.size();
  std::vector<AxisRef> refs;
  for (int64_t weight = 1; weight < groupSize;) {
    int64_t stride = group[weight] - group[0];
    if (stride < 1)
      return fail(group);
    int64_t size = 2;
    while (size * weight < groupSize &&
           group[size * weight] - group[0] == size * stride)
      ++size;
    if (!prependParts(*this, stride, stride * size, refs))
      return fail(group);
    weight *= size;
  }

  // If the groups are a product, it is the product of these digits. If the
  // product has groups of another size, already the first one differs.
  if (!verify(refs).empty())
    return fail(group);
  std::vector<std::vector<int64_t>> product = getGroups(refs);
  std::vector<std::vector<int64_t>> sorted = groups;
  std::sort(sorted.begin(), sorted.end());
  for (size_t index = 0; index < sorted.size(); ++index)
    if (sorted[index] != product[index])
      return fail(sorted[index]);
  return refs;
}

//===----------------------------------------------------------------------===//
// Lists of axes
//===----------------------------------------------------------------------===//

bool zpp::splitRefs(const std::vector<AxisRef> &refs, int64_t innerSize,
                    std::vector<AxisRef> &outer, std::vector<AxisRef> &inner) {
  if (innerSize < 1)
    return false;
  std::vector<AxisRef> outerPart = refs;
  std::vector<AxisRef> innerPart;
  while (innerSize > 1) {
    if (outerPart.empty())
      return false;
    AxisRef ref = outerPart.back();
    outerPart.pop_back();
    if (innerSize % ref.size == 0) {
      innerSize /= ref.size;
    } else if (ref.size % innerSize == 0) {
      int64_t major = ref.size / innerSize;
      outerPart.push_back({ref.name, ref.preSize, major});
      ref = {ref.name, ref.preSize * major, innerSize};
      innerSize = 1;
    } else {
      return false;
    }
    innerPart.insert(innerPart.begin(), ref);
  }
  outer = std::move(outerPart);
  inner = std::move(innerPart);
  return true;
}

int64_t zpp::numDevices(const std::vector<AxisRef> &refs) {
  int64_t product = 1;
  for (const AxisRef &ref : refs)
    product *= ref.size;
  return product;
}

std::optional<std::vector<AxisRef>>
zpp::findRefs(const Mesh &mesh, std::vector<AxisRef> refs, const Mesh &other) {
  if (mesh.numDevices() != other.numDevices())
    return std::nullopt;
  // One of a single device says nothing, wherever it stands.
  refs.erase(std::remove_if(refs.begin(), refs.end(),
                            [](const AxisRef &ref) { return ref.size == 1; }),
             refs.end());
  std::vector<AxisRef> found;
  for (size_t index = refs.size(); index > 0;) {
    int64_t begin = mesh.getStride(refs[--index]);
    int64_t end = begin * refs[index].size;
    // Parts that continue each other are one run.
    for (; index > 0 && mesh.getStride(refs[index - 1]) == end; --index)
      end *= refs[index - 1].size;
    if (!prependParts(other, begin, end, found))
      return std::nullopt;
  }
  return found;
}
