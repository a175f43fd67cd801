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

void Plan::pack(ElementType type, const SliceMap &map, Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         auto desc = makeDesc<zpp_rt_pack_desc>();
         desc.element_bytes = elementBytes(type);
         desc.slices = getSlices(map);
         zpp_rt_pack_slices(rank, &desc, input, output);
       },
       from, to});
}

static zpp_rt_quantize_desc makeQuantize(ElementType type, WireFormat format,
                                         int64_t block, const SliceMap &map) {
  auto desc = makeDesc<zpp_rt_quantize_desc>();
  desc.element_type = static_cast<int64_t>(type);
  desc.format = static_cast<int64_t>(format);
  desc.block = block;
  desc.slices = getSlices(map);
  return desc;
}

void Plan::quantize(ElementType type, WireFormat format, int64_t block,
                    const SliceMap &map, Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         auto desc = makeQuantize(type, format, block, map);
         zpp_rt_quantize(rank, &desc, input, output);
       },
       from, to});
}

void Plan::dequantize(ElementType type, WireFormat format, int64_t block,
                      const SliceMap &map, Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         auto desc = makeQuantize(type, format, block, map);
         zpp_rt_dequantize(rank, &desc, input, output);
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

void Plan::exchange(const std::vector<AxisRef> &axes, int64_t chunkBytes,
                    bool isGather, Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         std::vector<zpp_rt_axis> group = getAxes(axes);
         auto desc = makeDesc<zpp_rt_exchange_desc>();
         desc.axes = group.data();
         desc.num_axes = group.size();
         desc.chunk_bytes = chunkBytes;
         if (isGather)
           zpp_rt_all_gather_chunks(rank, &desc, input, output);
         else
           zpp_rt_all_to_all(rank, &desc, input, output);
       },
       from, to});
}

void Plan::allToAll(const std::vector<AxisRef> &axes, int64_t chunkBytes,
                    Place from, Place to) {
  exchange(axes, chunkBytes, /*isGather=*/false, from, to);
}

void Plan::allGather(const std::vector<AxisRef> &axes, int64_t chunkBytes,
                     Place from, Place to) {
  exchange(axes, chunkBytes, /*isGather=*/true, from, to);
}

void Plan::plain(const std::vector<AxisRef> &axes, ElementType type,
                 int64_t elements, bool isGather, Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         std::vector<zpp_rt_axis> group = getAxes(axes);
         auto desc = makeDesc<zpp_rt_plain_desc>();
         desc.axes = group.data();
         desc.num_axes = group.size();
         desc.elements = elements;
         desc.element_type = static_cast<int64_t>(type);
         if (isGather)
           zpp_rt_plain_all_gather(rank, &desc, input, output);
         else
           zpp_rt_plain_reduce_scatter(rank, &desc, input, output);
       },
       from, to});
}

void Plan::copy(int64_t count, Place from, Place to) {
  operations.push_back(
      {[=](zpp_rt_rank *rank, const void *input, void *output) {
         zpp_rt_copy(rank, output, input, count);
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

Plan perf::makeReduceScatter(const Mesh &mesh, ElementType type,
                             int64_t elements,
                             const std::vector<WireFormat> &formats,
                             int64_t block, int64_t stages) {
  HopPlan hops;
  hops.extent = elements;
  std::vector<AxisRef> axes;
  for (size_t axis = 0; axis < mesh.getAxes().size(); ++axis)
    axes.push_back(mesh.getAxis(axis));
  std::vector<WireFormat> hopFormats;
  for (TierHop &hop : getTierHops(mesh, axes, formats.size())) {
    hops.hops.push_back(std::move(hop.axes));
    hopFormats.push_back(formats[hop.format]);
  }
  int64_t numHops = hops.hops.size();
  int64_t unit = elements / mesh.numDevices();
  // Parts are as large as possible, and none is empty.
  int64_t part = (unit + stages - 1) / std::max<int64_t>(stages, 1);
  hops.stages = unit == 0 ? 1 : (unit + part - 1) / part;

  Plan plan(elements * elementBytes(type), unit * elementBytes(type));
  // The place of the previous hop's result, for each stage.
  std::vector<Plan::Place> arrived(hops.stages, Plan::input());
  // Step `hop` of a stage puts chunks in order and sends them. The last step
  // reduces what has arrived.
  auto addStep = [&](int64_t stage, int64_t hop) {
    WireFormat before = hop == 0 ? WireFormat::None : hopFormats[hop - 1];
    // Partial sums are f32.
    ElementType beforeType = hop <= 1 ? type : ElementType::F32;
    Plan::Place &place = arrived[stage];
    if (hop == numHops) {
      SliceMap map = hops.getHopMap(hop - 1, stage);
      int64_t begin = stage * part;
      plan.reduce(numDevices(hops.hops[hop - 1]), map.elementsPerChunk(),
                  beforeType, before, block, type, place,
                  {Plan::output().buffer, begin * elementBytes(type)});
      return;
    }
    SliceMap map = hops.getHopMap(hop, stage);
    ElementType held = hop == 0 ? type : ElementType::F32;
    WireFormat format = hopFormats[hop];
    int64_t chunkBytes =
        getChunkBytes(format, block, held, map.elementsPerChunk());
    int64_t bytes = map.numChunks() * chunkBytes;
    Plan::Place chunks = plan.addBuffer(bytes);
    if (before != WireFormat::None && format != WireFormat::None) {
      plan.reduceQuantize(numDevices(hops.hops[hop - 1]), before, block, format,
                          block, map, place, chunks);
    } else {
      if (hop > 0) {
        Plan::Place sum = plan.addBuffer(numElements(map) * elementBytes(held));
        plan.reduce(numDevices(hops.hops[hop - 1]), numElements(map),
                    beforeType, before, block, held, place, sum);
        place = sum;
      }
      if (format == WireFormat::None)
        plan.pack(held, map, place, chunks);
      else
        plan.quantize(held, format, block, map, place, chunks);
    }
    place = plan.addBuffer(bytes);
    plan.allToAll(hops.hops[hop], chunkBytes, chunks, place);
  };
  // In waves: before a stage's next hop, the stages after it do their earlier
  // hops.
  for (int64_t wave = 0; wave < hops.stages + numHops; ++wave)
    for (int64_t hop = 0; hop <= std::min(wave, numHops); ++hop)
      if (wave - hop < hops.stages)
        addStep(wave - hop, hop);
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
    plan.allGather(all, chunkBytes, Plan::input(), Plan::output());
    return plan;
  }
  Plan::Place chunk = plan.addBuffer(chunkBytes);
  Plan::Place chunks = plan.addBuffer(chunkBytes * mesh.numDevices());
  plan.quantize(type, format, block, slice, Plan::input(), chunk);
  plan.allGather(all, chunkBytes, chunk, chunks);
  plan.dequantize(type, format, block, whole, chunks, Plan::output());
  return plan;
}

Plan perf::makePlain(const Mesh &mesh, ElementType type, int64_t elements,
                     bool isGather) {
  int64_t all = elements * elementBytes(type), slice = all / mesh.numDevices();
  Plan plan(isGather ? slice : all, isGather ? all : slice);
  plan.plain(getAllAxes(mesh), type, elements, isGather, Plan::input(),
             Plan::output());
  return plan;
}
