//===- SymbolicPlacement.cpp - Which rank ends with which slice -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SymbolicPlacement.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <tuple>
#include <unordered_map>
#include <utility>

using namespace zpp;

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

bool zpp::operator==(const SymbolicValue::Term &a,
                     const SymbolicValue::Term &b) {
  return a.rank == b.rank && a.element == b.element && a.count == b.count;
}

namespace {
using Terms = std::vector<SymbolicValue::Term>;

struct TermsHash {
  size_t operator()(const Terms &terms) const {
    uint64_t hash = terms.size();
    for (const SymbolicValue::Term &term : terms)
      for (int64_t part : {term.rank, term.element, term.count})
        hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
  }
};

/// All sums so far. The empty one has number 0.
class SumTable {
public:
  static SumTable &get() {
    static SumTable table;
    return table;
  }

  const Terms &getTerms(uint32_t number) const { return *sums[number]; }

  uint32_t getNumber(const Terms &terms) {
    auto [it, isNew] = numbers.try_emplace(terms, sums.size());
    if (isNew)
      sums.push_back(&it->first);
    return it->second;
  }

  uint32_t add(uint32_t a, uint32_t b) { return combine(added, a, b, 1); }
  uint32_t subtract(uint32_t a, uint32_t b) {
    return combine(subtracted, a, b, -1);
  }

private:
  /// Two numbers -> the number of what is made of their sums.
  using Known = std::unordered_map<uint64_t, uint32_t>;

  uint32_t combine(Known &known, uint32_t a, uint32_t b, int64_t factor) {
    auto [it, isNew] = known.try_emplace(static_cast<uint64_t>(a) << 32 | b, 0);
    if (isNew)
      it->second = getNumber(merge(getTerms(a), getTerms(b), factor));
    return it->second;
  }

  static Terms merge(const Terms &a, Terms b, int64_t factor) {
    for (SymbolicValue::Term &term : b)
      term.count *= factor;
    Terms merged;
    merged.reserve(a.size() + b.size());
    std::merge(
        a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(merged),
        [](const SymbolicValue::Term &a, const SymbolicValue::Term &b) {
          return std::tie(a.rank, a.element) < std::tie(b.rank, b.element);
        });
    Terms sum;
    for (const SymbolicValue::Term &term : merged) {
      if (!sum.empty() && sum.back().rank == term.rank &&
          sum.back().element == term.element)
        sum.back().count += term.count;
      else
        sum.push_back(term);
      if (sum.back().count == 0)
        sum.pop_back();
    }
    return sum;
  }

  /// The keys stay where they are.
  std::unordered_map<Terms, uint32_t, TermsHash> numbers = {{Terms(), 0}};
  std::vector<const Terms *> sums = {&numbers.begin()->first};
  Known added, subtracted;
};
} // namespace

SymbolicValue SymbolicValue::ofSource(int64_t rank, int64_t element) {
  SymbolicValue value;
  value.number = SumTable::get().getNumber({{rank, element, 1}});
  return value;
}

const std::vector<SymbolicValue::Term> &SymbolicValue::getTerms() const {
  return SumTable::get().getTerms(number);
}

SymbolicValue &SymbolicValue::operator+=(const SymbolicValue &other) {
  number = SumTable::get().add(number, other.number);
  return *this;
}

SymbolicValue &SymbolicValue::operator-=(const SymbolicValue &other) {
  number = SumTable::get().subtract(number, other.number);
  return *this;
}

std::string SymbolicValue::str() const {
  std::string text;
  for (const Term &term : getTerms()) {
    if (!text.empty())
      text += " + ";
    if (term.count != 1)
      text += std::to_string(term.count) + '*';
    text += 'r' + std::to_string(term.rank) + '[' +
            std::to_string(term.element) + ']';
  }
  return text.empty() ? "0" : text;
}

SymbolicTensor zpp::makeSymbolicSource(int64_t rank, int64_t elements) {
  SymbolicTensor tensor;
  tensor.reserve(elements);
  for (int64_t element = 0; element < elements; ++element)
    tensor.push_back(SymbolicValue::ofSource(rank, element));
  return tensor;
}

//===----------------------------------------------------------------------===//
// Operations of one rank
//===----------------------------------------------------------------------===//

/// Calls `visit(position in the chunks, tensor index or -1)` for all elements
/// of `map`.
template <typename Visitor>
static void forEachElement(const SliceMap &map, Visitor visit) {
  int64_t position = 0;
  int64_t elements = map.elementsPerChunk();
  for (int64_t chunk = 0, e = map.numChunks(); chunk < e; ++chunk)
    for (int64_t element = 0; element < elements; ++element)
      visit(position++, map.tensorIndex(chunk, element));
}

SymbolicTensor zpp::packChunks(const SymbolicTensor &tensor,
                               const SliceMap &map) {
  assert(static_cast<int64_t>(tensor.size()) ==
             map.outer * map.extent * map.inner &&
         "expected a tensor of the map's size");
  SymbolicTensor chunks(map.numChunks() * map.elementsPerChunk());
  forEachElement(map, [&](int64_t position, int64_t index) {
    if (index != -1)
      chunks[position] = tensor[index];
  });
  return chunks;
}

void zpp::unpackChunks(const SymbolicTensor &chunks, const SliceMap &map,
                       SymbolicTensor &tensor) {
  assert(static_cast<int64_t>(chunks.size()) ==
             map.numChunks() * map.elementsPerChunk() &&
         static_cast<int64_t>(tensor.size()) ==
             map.outer * map.extent * map.inner &&
         "expected chunks and a tensor of the map's size");
  forEachElement(map, [&](int64_t position, int64_t index) {
    if (index != -1)
      tensor[index] = chunks[position];
  });
}

SymbolicTensor zpp::joinRows(const std::vector<SymbolicTensor> &tensors,
                             int64_t rows) {
  SymbolicTensor buffer;
  for (int64_t row = 0; row < rows; ++row)
    for (const SymbolicTensor &tensor : tensors) {
      assert(tensor.size() % rows == 0 && "expected equal rows");
      size_t size = tensor.size() / rows;
      auto begin = tensor.begin() + row * size;
      buffer.insert(buffer.end(), begin, begin + size);
    }
  return buffer;
}

std::vector<SymbolicTensor>
zpp::splitRows(const SymbolicTensor &buffer, int64_t rows,
               const std::vector<int64_t> &rowElements) {
  std::vector<SymbolicTensor> tensors(rowElements.size());
  auto begin = buffer.begin();
  for (int64_t row = 0; row < rows; ++row)
    for (size_t index = 0; index < tensors.size(); ++index) {
      auto end = begin + rowElements[index];
      tensors[index].insert(tensors[index].end(), begin, end);
      begin = end;
    }
  assert(begin == buffer.end() && "expected rows of these sizes");
  return tensors;
}

SymbolicTensor zpp::reduceChunks(const SymbolicTensor &chunks, int64_t count) {
  assert(count > 0 && chunks.size() % count == 0 && "expected equal parts");
  size_t elements = chunks.size() / count;
  SymbolicTensor sum(elements);
  for (size_t position = 0; position < chunks.size(); ++position)
    sum[position % elements] += chunks[position];
  return sum;
}

//===----------------------------------------------------------------------===//
// Operations of all ranks
//===----------------------------------------------------------------------===//

std::vector<SymbolicTensor>
zpp::symbolicAllToAll(const Mesh &mesh, const std::vector<AxisRef> &refs,
                      const std::vector<SymbolicTensor> &operands) {
  std::vector<SymbolicTensor> results(operands.size());
  for (const std::vector<int64_t> &group : mesh.getGroups(refs)) {
    for (size_t member = 0; member < group.size(); ++member) {
      SymbolicTensor &result = results[group[member]];
      for (int64_t peer : group) {
        const SymbolicTensor &operand = operands[peer];
        assert(operand.size() % group.size() == 0 && "expected equal parts");
        size_t part = operand.size() / group.size();
        auto begin = operand.begin() + member * part;
        result.insert(result.end(), begin, begin + part);
      }
    }
  }
  return results;
}

std::vector<SymbolicTensor>
zpp::symbolicAllGather(const Mesh &mesh, const std::vector<AxisRef> &refs,
                       const std::vector<SymbolicTensor> &operands) {
  std::vector<SymbolicTensor> results(operands.size());
  for (const std::vector<int64_t> &group : mesh.getGroups(refs)) {
    SymbolicTensor gathered;
    for (int64_t peer : group)
      gathered.insert(gathered.end(), operands[peer].begin(),
                      operands[peer].end());
    for (int64_t member : group)
      results[member] = gathered;
  }
  return results;
}

//===----------------------------------------------------------------------===//
// Hierarchical collectives
//===----------------------------------------------------------------------===//

std::string zpp::verifyPlan(const Mesh &mesh, const HopPlan &plan) {
  if (plan.hops.empty())
    return "expected at least one hop, but got 0";
  std::string error = mesh.verify(plan.getDimRefs());
  return error.empty() ? plan.getHopMap(0, 0).verify() : error;
}

SliceMap zpp::getPartMap(const HopPlan &plan, int64_t stage) {
  SliceMap map;
  map.outer = plan.outer;
  map.unit = plan.getUnit();
  map.inner = plan.inner;
  map.extent = map.unit;
  map.stage = stage;
  map.stages = plan.stages;
  return map;
}

std::vector<SymbolicTensor>
zpp::simulateReduceScatter(const Mesh &mesh, const HopPlan &plan,
                           const std::vector<SymbolicTensor> &operands) {
  assert(verifyPlan(mesh, plan).empty() && "expected a valid plan");
  std::vector<SymbolicTensor> slices(
      operands.size(),
      SymbolicTensor(plan.outer * plan.getUnit() * plan.inner));
  for (int64_t stage = 0; stage < plan.stages; ++stage) {
    std::vector<SymbolicTensor> current = operands;
    for (size_t hop = 0; hop < plan.hops.size(); ++hop) {
      SliceMap map = plan.getHopMap(hop, stage);
      for (SymbolicTensor &tensor : current)
        tensor = packChunks(tensor, map);
      current = symbolicAllToAll(mesh, plan.hops[hop], current);
      for (SymbolicTensor &tensor : current)
        tensor = reduceChunks(tensor, map.numChunks());
    }
    for (size_t device = 0; device < slices.size(); ++device)
      unpackChunks(current[device], getPartMap(plan, stage), slices[device]);
  }
  return slices;
}

std::vector<SymbolicTensor>
zpp::simulateAllGather(const Mesh &mesh, const HopPlan &plan,
                       const std::vector<SymbolicTensor> &slices) {
  assert(verifyPlan(mesh, plan).empty() && "expected a valid plan");
  std::vector<SymbolicTensor> tensors(
      slices.size(), SymbolicTensor(plan.outer * plan.extent * plan.inner));
  for (int64_t stage = 0; stage < plan.stages; ++stage) {
    std::vector<SymbolicTensor> current = slices;
    for (SymbolicTensor &part : current)
      part = packChunks(part, getPartMap(plan, stage));
    for (size_t hop = plan.hops.size(); hop-- > 0;) {
      SliceMap map = plan.getHopMap(hop, stage);
      current = symbolicAllGather(mesh, plan.hops[hop], current);
      for (size_t device = 0; device < tensors.size(); ++device) {
        // All stages share the result. The tensors between hops belong to one
        // stage.
        if (hop == 0) {
          unpackChunks(current[device], map, tensors[device]);
          continue;
        }
        SymbolicTensor unpacked(map.outer * map.extent * map.inner);
        unpackChunks(current[device], map, unpacked);
        current[device] = std::move(unpacked);
      }
    }
  }
  return tensors;
}

std::vector<std::vector<SymbolicTensor>> zpp::simulateReduceScatters(
    const Mesh &mesh, const std::vector<HopPlan> &plans,
    const std::vector<std::vector<SymbolicTensor>> &operands) {
  size_t numDevices = mesh.numDevices();
  std::vector<std::vector<SymbolicTensor>> slices;
  for (const HopPlan &plan : plans)
    slices.emplace_back(
        numDevices, SymbolicTensor(plan.outer * plan.getUnit() * plan.inner));
  for (int64_t stage = 0; stage < plans.front().stages; ++stage) {
    std::vector<std::vector<SymbolicTensor>> current = operands;
    for (size_t hop = 0; hop < plans.front().hops.size(); ++hop) {
      int64_t rows = plans.front().getHopMap(hop, stage).numChunks();
      std::vector<int64_t> rowElements;
      for (const HopPlan &plan : plans)
        rowElements.push_back(plan.getHopMap(hop, stage).elementsPerChunk());
      std::vector<SymbolicTensor> buffers;
      for (size_t device = 0; device < numDevices; ++device) {
        std::vector<SymbolicTensor> chunks;
        for (size_t index = 0; index < plans.size(); ++index)
          chunks.push_back(packChunks(current[index][device],
                                      plans[index].getHopMap(hop, stage)));
        buffers.push_back(joinRows(chunks, rows));
      }
      buffers = symbolicAllToAll(mesh, plans.front().hops[hop], buffers);
      for (size_t device = 0; device < numDevices; ++device) {
        std::vector<SymbolicTensor> received =
            splitRows(buffers[device], rows, rowElements);
        for (size_t index = 0; index < plans.size(); ++index)
          current[index][device] = reduceChunks(received[index], rows);
      }
    }
    for (size_t index = 0; index < plans.size(); ++index)
      for (size_t device = 0; device < numDevices; ++device)
        unpackChunks(current[index][device], getPartMap(plans[index], stage),
                     slices[index][device]);
  }
  return slices;
}

/// How the rows that arrive in hop `hop` of a gather are put in order. They
/// arrive with the factors of the hop first, before those gathered earlier.
static SliceMap getRowMap(const HopPlan &plan, int64_t hop,
                          int64_t rowElements) {
  SliceMap hopMap = plan.getHopMap(hop, 0);
  // The factors of outer hops and of this one are held whole by now.
  SliceMap map;
  map.factors = hopMap.factors;
  map.unit = 1;
  map.inner = rowElements;
  map.chunkFactors = hopMap.chunkFactors;
  for (int64_t factor = 0, e = map.factors.size(); factor < e; ++factor)
    if (std::find(hopMap.chunkFactors.begin(), hopMap.chunkFactors.end(),
                  factor) == hopMap.chunkFactors.end())
      map.chunkFactors.push_back(factor);
  map.extent = map.paddedExtent();
  return map;
}

std::vector<std::vector<SymbolicTensor>> zpp::simulateAllGathers(
    const Mesh &mesh, const std::vector<HopPlan> &plans,
    const std::vector<std::vector<SymbolicTensor>> &slices) {
  size_t numDevices = mesh.numDevices();
  std::vector<int64_t> rowElements;
  int64_t bufferElements = 0;
  for (const HopPlan &plan : plans) {
    assert(plan.stages == 1 && "expected one stage");
    rowElements.push_back(plan.outer * plan.getUnit() * plan.inner);
    bufferElements += rowElements.back();
  }
  // One unit of each tensor makes one row.
  std::vector<SymbolicTensor> buffers;
  for (size_t device = 0; device < numDevices; ++device) {
    std::vector<SymbolicTensor> units;
    for (const std::vector<SymbolicTensor> &tensor : slices)
      units.push_back(tensor[device]);
    buffers.push_back(joinRows(units, 1));
  }
  for (size_t hop = plans.front().hops.size(); hop-- > 0;) {
    buffers = symbolicAllGather(mesh, plans.front().hops[hop], buffers);
    SliceMap map = getRowMap(plans.front(), hop, bufferElements);
    for (SymbolicTensor &buffer : buffers) {
      SymbolicTensor ordered(buffer.size());
      unpackChunks(buffer, map, ordered);
      buffer = std::move(ordered);
    }
  }
  std::vector<std::vector<SymbolicTensor>> tensors;
  for (size_t index = 0; index < plans.size(); ++index) {
    const HopPlan &plan = plans[index];
    SliceMap units = plan.getHopMap(0, 0);
    units.chunkFactors.clear();
    for (int64_t factor = 0, e = units.factors.size(); factor < e; ++factor)
      units.chunkFactors.push_back(factor);
    auto &results = tensors.emplace_back();
    for (const SymbolicTensor &buffer : buffers) {
      SymbolicTensor tensor(plan.outer * plan.extent * plan.inner);
      unpackChunks(splitRows(buffer, units.numSlices(), rowElements)[index],
                   units, tensor);
      results.push_back(std::move(tensor));
    }
  }
  return tensors;
}

/// For each device, its group along `refs` and its position in the group.
static std::vector<std::pair<std::vector<int64_t>, int64_t>>
getGroupsByDevice(const Mesh &mesh, const std::vector<AxisRef> &refs) {
  std::vector<std::pair<std::vector<int64_t>, int64_t>> result(
      mesh.numDevices());
  for (const std::vector<int64_t> &group : mesh.getGroups(refs))
    for (size_t position = 0; position < group.size(); ++position)
      result[group[position]] = {group, position};
  return result;
}

/// The first difference between `got` and the `elements` values of `expected`,
/// or an empty string.
template <typename Expected>
static std::string compareElements(int64_t device, const SymbolicTensor &got,
                                   int64_t elements, Expected expected) {
  std::string rank = " of rank " + std::to_string(device);
  if (static_cast<int64_t>(got.size()) != elements)
    return "expected " + std::to_string(elements) + " elements" + rank +
           ", but got " + std::to_string(got.size());
  for (int64_t element = 0; element < elements; ++element) {
    SymbolicValue value = expected(element);
    if (got[element] != value)
      return "expected " + value.str() + " at element " +
             std::to_string(element) + rank + ", but got " + got[element].str();
  }
  return "";
}

static std::string compareDeviceCount(const Mesh &mesh, size_t got) {
  if (static_cast<int64_t>(got) == mesh.numDevices())
    return "";
  return "expected tensors of " + std::to_string(mesh.numDevices()) +
         " ranks, but got " + std::to_string(got);
}

std::string
zpp::verifyReduceScatter(const Mesh &mesh, const HopPlan &plan,
                         const std::vector<SymbolicTensor> &slices) {
  std::string error = compareDeviceCount(mesh, slices.size());
  auto groups = getGroupsByDevice(mesh, plan.getDimRefs());
  int64_t unit = plan.getUnit();
  for (size_t device = 0; device < slices.size() && error.empty(); ++device) {
    const auto &[group, slice] = groups[device];
    auto expected = [&, &group = group, slice = slice](int64_t element) {
      int64_t row = slice * unit + element / plan.inner % unit;
      SymbolicValue value;
      if (row >= plan.extent)
        return value;
      int64_t outer = element / plan.inner / unit;
      int64_t index =
          (outer * plan.extent + row) * plan.inner + element % plan.inner;
      for (int64_t rank : group)
        value += SymbolicValue::ofSource(rank, index);
      return value;
    };
    error = compareElements(device, slices[device],
                            plan.outer * unit * plan.inner, expected);
  }
  return error;
}

std::string zpp::verifyAllGather(const Mesh &mesh, const HopPlan &plan,
                                 const std::vector<SymbolicTensor> &tensors) {
  std::string error = compareDeviceCount(mesh, tensors.size());
  auto groups = getGroupsByDevice(mesh, plan.getDimRefs());
  int64_t unit = plan.getUnit();
  for (size_t device = 0; device < tensors.size() && error.empty(); ++device) {
    const std::vector<int64_t> &group = groups[device].first;
    auto expected = [&](int64_t element) {
      int64_t row = element / plan.inner % plan.extent;
      int64_t outer = element / plan.inner / plan.extent;
      int64_t index =
          (outer * unit + row % unit) * plan.inner + element % plan.inner;
      return SymbolicValue::ofSource(group[row / unit], index);
    };
    error = compareElements(device, tensors[device],
                            plan.outer * plan.extent * plan.inner, expected);
  }
  return error;
}
