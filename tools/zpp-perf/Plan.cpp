//===- Plan.cpp - The operations that are measured ------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plan.h"

#include "zpp/Support/Placement.h"

#include <algorithm>

using namespace zpp;
using namespace zpp::perf;

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

static int64_t numElements(const SliceMap &map) {
  return map.outer * map.extent * map.inner;
}

/// `map` outlives the result.
static zpp_rt_slices getSlices(const SliceMap &map) {
  zpp_rt_slices slices{};
  slices.outer = map.outer;
  slices.unit = map.unit;
  slices.inner = map.inner;
  slices.extent = map.extent;
  slices.factors = map.factors.data();
  slices.num_factors = map.factors.size();
  slices.chunk_factors = map.chunkFactors.data();
  slices.num_chunk_factors = map.chunkFactors.size();
  slices.stage = map.stage;
  slices.stages = map.stages;
  return slices;
}

static int64_t getChunkBytes(WireFormat format, int64_t block, ElementType type,
                             int64_t elements) {
  return format == WireFormat::None
             ? elements * elementBytes(type)
             : getChunkLayout(elements, format, block).chunkBytes;
}

static std::vector<zpp_rt_axis> getAxes(const std::vector<AxisRef> &axes) {
  std::vector<zpp_rt_axis> result;
  for (const AxisRef &axis : axes)
    result.push_back({axis.name.c_str(), axis.preSize, axis.size});
  return result;
}

static std::vector<AxisRef> getAllAxes(const Mesh &mesh) {
  std::vector<AxisRef> all;
  for (size_t axis = 0; axis < mesh.getAxes().size(); ++axis)
    all.push_back(mesh.getAxis(axis));
  return all;
}

template <typename Desc> static Desc makeDesc() {
  Desc desc{};
  desc.struct_size = sizeof(Desc);
  return desc;
}

Plan::Place Plan::addBuffer(int64_t count) {
  bytes.push_back(count);
  return {bytes.size() - 1};
}

void Plan::reorder(decltype(zpp_rt_pack_slices) *call, ElementType type,
                   const SliceMap &map, Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         auto desc = makeDesc<zpp_rt_pack_desc>();
         desc.element_bytes = elementBytes(type);
         desc.slices = getSlices(map);
         call(rank, &desc, input, output);
       },
       from, to});
}

void Plan::convert(decltype(zpp_rt_quantize) *call, ElementType type,
                   WireFormat format, int64_t block, const SliceMap &map,
                   Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         auto desc = makeDesc<zpp_rt_quantize_desc>();
         desc.element_type = static_cast<int64_t>(type);
         desc.format = static_cast<int64_t>(format);
         desc.block = block;
         desc.slices = getSlices(map);
         call(rank, &desc, input, output);
       },
       from, to});
}

void Plan::reduce(int64_t sources, int64_t elements, ElementType sourceType,
                  WireFormat format, int64_t block, ElementType type,
                  Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         auto desc = makeDesc<zpp_rt_reduce_desc>();
         desc.kind = ZPP_RT_SUM;
         desc.sources = sources;
         desc.elements = elements;
         desc.source_type = static_cast<int64_t>(sourceType);
         desc.format = static_cast<int64_t>(format);
         desc.block = block;
         desc.element_type = static_cast<int64_t>(type);
         if (format == WireFormat::None)
           zpp_rt_reduce(rank, &desc, input, output);
         else
           zpp_rt_dequantize_reduce(rank, &desc, input, output);
       },
       from, to});
}

void Plan::reduceQuantize(int64_t sources, WireFormat format, int64_t block,
                          WireFormat toFormat, int64_t toBlock,
                          const SliceMap &map, Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         auto desc = makeDesc<zpp_rt_reduce_quantize_desc>();
         desc.kind = ZPP_RT_SUM;
         desc.sources = sources;
         desc.format = static_cast<int64_t>(format);
         desc.block = block;
         desc.element_type = ZPP_RT_F32;
         desc.to_format = static_cast<int64_t>(toFormat);
         desc.to_block = toBlock;
         desc.slices = getSlices(map);
         zpp_rt_dequantize_reduce_quantize(rank, &desc, input, output);
       },
       from, to});
}

void Plan::exchange(decltype(zpp_rt_all_to_all) *call,
                    const std::vector<AxisRef> &axes, int64_t chunkBytes,
                    Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         std::vector<zpp_rt_axis> group = getAxes(axes);
         auto desc = makeDesc<zpp_rt_exchange_desc>();
         desc.axes = group.data();
         desc.num_axes = group.size();
         desc.chunk_bytes = chunkBytes;
         call(rank, &desc, input, output);
       },
       from, to});
}

void Plan::plain(const rt::PlainCollective &collective, Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         rt::runPlain(rank, collective, input, output);
       },
       from, to});
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

Plan::Run::Run(const Plan &plan, zpp_rt_rank *rank)
    : plan(plan), rank(rank), buffers(plan.bytes.size()) {
  for (size_t i = 0; i < buffers.size(); ++i)
    zpp_rt_alloc(rank, plan.bytes[i], &buffers[i]);
}

Plan::Run::~Run() {
  for (void *buffer : buffers)
    zpp_rt_free(rank, buffer);
}

void Plan::Run::write(const void *data) const {
  zpp_rt_copy(rank, at(input()), data, plan.inputBytes());
  zpp_rt_rank_synchronize(rank);
}

std::vector<uint8_t> Plan::Run::read() const {
  std::vector<uint8_t> content(plan.outputBytes());
  zpp_rt_copy(rank, content.data(), at(output()), plan.outputBytes());
  zpp_rt_rank_synchronize(rank);
  return content;
}

void Plan::Run::operator()() const {
  // A round trip over a stream of the caller, so that runs do not overlap: the
  // time of one run is measured.
  std::vector<zpp_rt_buffer> all;
  for (size_t i = 0; i < buffers.size(); ++i)
    all.push_back({buffers[i], plan.bytes[i]});
  zpp_rt_leave(rank, nullptr, all.data(), all.size());
  zpp_rt_enter(rank, nullptr);
  for (const Operation &operation : plan.operations)
    operation.call(rank, at(operation.from), at(operation.to));
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

namespace {
/// A scatter in hops, and where its plan has places for it.
struct ScatterPlan {
  ScatterPlan(const Mesh &mesh, ElementType type, int64_t elements,
              const std::vector<WireFormat> &formats, int64_t block)
      : type(type), block(block) {
    hops.extent = elements;
    for (TierHop &hop : getTierHops(mesh, getAllAxes(mesh), formats.size())) {
      hops.hops.push_back(std::move(hop.axes));
      hopFormats.push_back(formats[hop.format]);
    }
    numHops = hops.hops.size();
  }

  /// The type of what hop `hop` sends where it is not quantized: partial sums
  /// are f32.
  ElementType sentType(int64_t hop) const {
    return hop == 0 ? type : ElementType::F32;
  }
  int64_t lastSources() const { return numDevices(hops.hops.back()); }

  /// Puts the chunks of hop `hop` of stage `stage` in order and sends them.
  /// `place` is where what they come from is, and where they arrive.
  void addHop(Plan &plan, int64_t hop, int64_t stage,
              Plan::Place &place) const {
    SliceMap map = hops.getHopMap(hop, stage);
    ElementType held = sentType(hop);
    WireFormat format = hopFormats[hop];
    int64_t chunkBytes =
        getChunkBytes(format, block, held, map.elementsPerChunk());
    int64_t bytes = map.numChunks() * chunkBytes;
    Plan::Place chunks = plan.addBuffer(bytes);
    WireFormat before = hop == 0 ? WireFormat::None : hopFormats[hop - 1];
    if (before != WireFormat::None && format != WireFormat::None) {
      plan.reduceQuantize(numDevices(hops.hops[hop - 1]), before, block, format,
                          block, map, place, chunks);
    } else {
      if (hop > 0) {
        Plan::Place sum = plan.addBuffer(numElements(map) * elementBytes(held));
        plan.reduce(numDevices(hops.hops[hop - 1]), numElements(map),
                    sentType(hop - 1), before, block, held, place, sum);
        place = sum;
      }
      if (format == WireFormat::None)
        plan.reorder(&zpp_rt_pack_slices, held, map, place, chunks);
      else
        plan.convert(&zpp_rt_quantize, held, format, block, map, place, chunks);
    }
    place = plan.addBuffer(bytes);
    plan.exchange(&zpp_rt_all_to_all, hops.hops[hop], chunkBytes, chunks,
                  place);
  }

  ElementType type;
  int64_t block;
  HopPlan hops;
  std::vector<WireFormat> hopFormats;
  int64_t numHops;
};
} // namespace

/// Calls `addStep(stage, step)` in waves: before a stage's next step, the
/// stages after it do their earlier steps.
template <typename Function>
static void addInWaves(int64_t stages, int64_t steps, Function addStep) {
  for (int64_t wave = 0; wave < stages + steps - 1; ++wave)
    for (int64_t step = 0; step <= std::min(wave, steps - 1); ++step)
      if (wave - step < stages)
        addStep(wave - step, step);
}

Plan perf::makeReduceScatter(const Mesh &mesh, ElementType type,
                             int64_t elements,
                             const std::vector<WireFormat> &formats,
                             int64_t block, int64_t stages) {
  ScatterPlan scatter(mesh, type, elements, formats, block);
  int64_t unit = elements / mesh.numDevices();
  // Parts are as large as possible, and none is empty.
  int64_t part = (unit + stages - 1) / std::max<int64_t>(stages, 1);
  scatter.hops.stages = unit == 0 ? 1 : (unit + part - 1) / part;

  Plan plan(elements * elementBytes(type), unit * elementBytes(type));
  // Where the previous hop has left its result, for each stage.
  std::vector<Plan::Place> arrived(scatter.hops.stages, Plan::input());
  // The last step of a stage reduces what has arrived.
  auto addStep = [&](int64_t stage, int64_t hop) {
    if (hop < scatter.numHops)
      return scatter.addHop(plan, hop, stage, arrived[stage]);
    SliceMap map = scatter.hops.getHopMap(hop - 1, stage);
    plan.reduce(scatter.lastSources(), map.elementsPerChunk(),
                scatter.sentType(hop - 1), scatter.hopFormats.back(), block,
                type, arrived[stage],
                {Plan::output().buffer, stage * part * elementBytes(type)});
  };
  addInWaves(scatter.hops.stages, scatter.numHops + 1, addStep);
  return plan;
}

Plan perf::makeAllReduce(const Mesh &mesh, ElementType type, int64_t elements,
                         const std::vector<WireFormat> &formats,
                         WireFormat reduced, int64_t block, int64_t stages) {
  Plan plan(elements * elementBytes(type), elements * elementBytes(type));
  // Each stage is an all-reduce of its part of the tensor.
  int64_t devices = mesh.numDevices(), units = elements / devices;
  int64_t part = (units + stages - 1) / std::max<int64_t>(stages, 1);
  int64_t numStages = units == 0 ? 1 : (units + part - 1) / part;
  std::vector<ScatterPlan> scatters;
  std::vector<Plan::Place> arrived;
  std::vector<int64_t> chunks(numStages, 1);
  for (int64_t stage = 0; stage < numStages; ++stage) {
    int64_t begin = stage * part;
    scatters.emplace_back(mesh, type,
                          (std::min(units, begin + part) - begin) * devices,
                          formats, block);
    arrived.push_back(
        {Plan::input().buffer, begin * devices * elementBytes(type)});
  }
  int64_t numHops = scatters.front().numHops;
  auto addStep = [&](int64_t stage, int64_t step) {
    const ScatterPlan &scatter = scatters[stage];
    Plan::Place &place = arrived[stage];
    if (step < numHops)
      return scatter.addHop(plan, step, 0, place);
    int64_t unit = scatter.hops.extent / devices;
    WireFormat before = scatter.hopFormats.back();
    int64_t chunkBytes = getChunkBytes(reduced, block, type, unit);
    if (step == numHops) {
      // The chunk that all devices read, its owner too.
      Plan::Place chunk = plan.addBuffer(chunkBytes);
      SliceMap one;
      one.extent = one.unit = unit;
      if (reduced == WireFormat::None) {
        plan.reduce(scatter.lastSources(), unit, scatter.sentType(numHops - 1),
                    before, block, type, place, chunk);
      } else if (before != WireFormat::None) {
        plan.reduceQuantize(scatter.lastSources(), before, block, reduced,
                            block, one, place, chunk);
      } else {
        Plan::Place sum = plan.addBuffer(unit * elementBytes(ElementType::F32));
        plan.reduce(scatter.lastSources(), unit, scatter.sentType(numHops - 1),
                    before, block, ElementType::F32, place, sum);
        plan.convert(&zpp_rt_quantize, ElementType::F32, reduced, block, one,
                     sum, chunk);
      }
      place = chunk;
    }
    // Slower tiers are gathered over first.
    int64_t hop = 2 * numHops - 1 - step;
    if (hop >= 0) {
      const std::vector<AxisRef> &axes = scatter.hops.hops[hop];
      Plan::Place gathered =
          plan.addBuffer(chunks[stage] * numDevices(axes) * chunkBytes);
      plan.exchange(&zpp_rt_all_gather_chunks, axes, chunks[stage] * chunkBytes,
                    place, gathered);
      chunks[stage] *= numDevices(axes);
      place = gathered;
      return;
    }
    // What arrives is ordered by the hops: the innermost is most significant.
    SliceMap whole;
    for (const AxisRef &axis : scatter.hops.getDimRefs())
      whole.factors.push_back(axis.size);
    int64_t end = whole.factors.size();
    for (const std::vector<AxisRef> &axes : scatter.hops.hops) {
      end -= axes.size();
      for (size_t index = 0; index < axes.size(); ++index)
        whole.chunkFactors.push_back(end + index);
    }
    whole.extent = scatter.hops.extent;
    whole.unit = unit;
    Plan::Place output = {Plan::output().buffer,
                          stage * part * devices * elementBytes(type)};
    if (reduced != WireFormat::None)
      plan.convert(&zpp_rt_dequantize, type, reduced, block, whole, place,
                   output);
    else
      plan.reorder(&zpp_rt_unpack_slices, type, whole, place, output);
  };
  addInWaves(numStages, 2 * numHops + 1, addStep);
  return plan;
}

Plan perf::makeAllGather(const Mesh &mesh, ElementType type, int64_t elements,
                         WireFormat format, int64_t block) {
  SliceMap whole;
  whole.factors = {mesh.numDevices()};
  whole.chunkFactors = {0};
  whole.extent = elements;
  whole.unit = elements / mesh.numDevices();
  SliceMap slice;
  slice.extent = slice.unit = whole.unit;

  int64_t chunkBytes = getChunkBytes(format, block, type, whole.unit);
  Plan plan(whole.unit * elementBytes(type), elements * elementBytes(type));
  std::vector<AxisRef> all = getAllAxes(mesh);
  if (format == WireFormat::None) {
    plan.exchange(&zpp_rt_all_gather_chunks, all, chunkBytes, Plan::input(),
                  Plan::output());
    return plan;
  }
  Plan::Place chunk = plan.addBuffer(chunkBytes);
  Plan::Place chunks = plan.addBuffer(chunkBytes * mesh.numDevices());
  plan.convert(&zpp_rt_quantize, type, format, block, slice, Plan::input(),
               chunk);
  plan.exchange(&zpp_rt_all_gather_chunks, all, chunkBytes, chunk, chunks);
  plan.convert(&zpp_rt_dequantize, type, format, block, whole, chunks,
               Plan::output());
  return plan;
}

Plan perf::makePlain(const Mesh &mesh, ElementType type, int64_t elements,
                     rt::PlainCollective::Kind kind) {
  int64_t all = elements * elementBytes(type), slice = all / mesh.numDevices();
  Plan plan(kind == rt::PlainCollective::AllGather ? slice : all,
            kind == rt::PlainCollective::ReduceScatter ? slice : all);
  plan.plain({kind, getAllAxes(mesh), type, elements}, Plan::input(),
             Plan::output());
  return plan;
}
