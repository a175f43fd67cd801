//===- Plan.cpp - What is measured: operations in their order -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plan.h"

#include "zpp/Support/Placement.h"

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

void Plan::add(int64_t outputBytes, Operation operation) {
  bytes.push_back(outputBytes);
  operations.push_back(std::move(operation));
}

void Plan::pack(ElementType type, const SliceMap &map) {
  add(map.numChunks() * map.elementsPerChunk() * elementBytes(type),
      [=](zpp_rt_rank *rank, const void *input, void *output) {
        zpp_rt_pack_desc desc{};
        desc.struct_size = sizeof(desc);
        desc.element_bytes = elementBytes(type);
        desc.slices = getSlices(map);
        zpp_rt_pack_slices(rank, &desc, input, output);
      });
}

static zpp_rt_quantize_desc makeQuantize(ElementType type, WireFormat format,
                                         int64_t block, const SliceMap &map) {
  zpp_rt_quantize_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.element_type = static_cast<int64_t>(type);
  desc.format = static_cast<int64_t>(format);
  desc.block = block;
  desc.slices = getSlices(map);
  return desc;
}

void Plan::quantize(ElementType type, WireFormat format, int64_t block,
                    const SliceMap &map) {
  add(map.numChunks() *
          getChunkBytes(format, block, type, map.elementsPerChunk()),
      [=](zpp_rt_rank *rank, const void *input, void *output) {
        auto desc = makeQuantize(type, format, block, map);
        zpp_rt_quantize(rank, &desc, input, output);
      });
}

void Plan::dequantize(ElementType type, WireFormat format, int64_t block,
                      const SliceMap &map) {
  add(numElements(map) * elementBytes(type),
      [=](zpp_rt_rank *rank, const void *input, void *output) {
        auto desc = makeQuantize(type, format, block, map);
        zpp_rt_dequantize(rank, &desc, input, output);
      });
}

void Plan::reduce(int64_t sources, int64_t elements, ElementType sourceType,
                  WireFormat format, int64_t block, ElementType type) {
  add(elements * elementBytes(type),
      [=](zpp_rt_rank *rank, const void *input, void *output) {
        zpp_rt_reduce_desc desc{};
        desc.struct_size = sizeof(desc);
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
      });
}

void Plan::reduceQuantize(int64_t sources, WireFormat format, int64_t block,
                          WireFormat toFormat, int64_t toBlock,
                          const SliceMap &map) {
  add(map.numChunks() * getChunkBytes(toFormat, toBlock, ElementType::F32,
                                      map.elementsPerChunk()),
      [=](zpp_rt_rank *rank, const void *input, void *output) {
        zpp_rt_reduce_quantize_desc desc{};
        desc.struct_size = sizeof(desc);
        desc.kind = ZPP_RT_SUM;
        desc.sources = sources;
        desc.format = static_cast<int64_t>(format);
        desc.block = block;
        desc.element_type = ZPP_RT_F32;
        desc.to_format = static_cast<int64_t>(toFormat);
        desc.to_block = toBlock;
        desc.slices = getSlices(map);
        zpp_rt_dequantize_reduce_quantize(rank, &desc, input, output);
      });
}

void Plan::exchange(const std::vector<AxisRef> &axes, int64_t chunkBytes,
                    bool isGather) {
  add(numDevices(axes) * chunkBytes,
      [=](zpp_rt_rank *rank, const void *input, void *output) {
        std::vector<zpp_rt_axis> group;
        for (const AxisRef &axis : axes)
          group.push_back({axis.name.c_str(), axis.preSize, axis.size});
        zpp_rt_exchange_desc desc{};
        desc.struct_size = sizeof(desc);
        desc.axes = group.data();
        desc.num_axes = group.size();
        desc.chunk_bytes = chunkBytes;
        if (isGather)
          zpp_rt_all_gather_chunks(rank, &desc, input, output);
        else
          zpp_rt_all_to_all(rank, &desc, input, output);
      });
}

void Plan::allToAll(const std::vector<AxisRef> &axes, int64_t chunkBytes) {
  exchange(axes, chunkBytes, /*isGather=*/false);
}

void Plan::allGather(const std::vector<AxisRef> &axes, int64_t chunkBytes) {
  exchange(axes, chunkBytes, /*isGather=*/true);
}

void Plan::copy() {
  int64_t count = outputBytes();
  add(count, [=](zpp_rt_rank *rank, const void *input, void *output) {
    zpp_rt_copy(rank, output, input, count);
  });
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

Plan::Run::Run(const Plan &plan, zpp_rt_rank *rank, const void *input)
    : plan(plan), rank(rank), buffers(plan.bytes.size()) {
  for (size_t i = 0; i < buffers.size(); ++i)
    zpp_rt_alloc(rank, plan.bytes[i], &buffers[i]);
  zpp_rt_copy(rank, buffers.front(), input, plan.inputBytes());
}

Plan::Run::~Run() {
  for (void *buffer : buffers)
    zpp_rt_free(rank, buffer);
}

void Plan::Run::operator()() const {
  for (size_t i = 0; i < plan.operations.size(); ++i)
    plan.operations[i](rank, buffers[i], buffers[i + 1]);
}

std::vector<uint8_t> Plan::Run::read() const {
  std::vector<uint8_t> content(plan.outputBytes());
  zpp_rt_copy(rank, content.data(), buffers.back(), plan.outputBytes());
  zpp_rt_rank_synchronize(rank);
  return content;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

Plan perf::makeReduceScatter(const Mesh &mesh, ElementType type,
                             int64_t elements,
                             const std::vector<WireFormat> &formats,
                             int64_t block) {
  int64_t axes = mesh.getAxes().size();
  HopPlan hops;
  hops.extent = elements;
  for (int64_t axis = axes; axis-- > 0;) {
    if (hops.hops.size() < formats.size())
      hops.hops.push_back({});
    // Most significant first.
    hops.hops.back().insert(hops.hops.back().begin(), mesh.getAxis(axis));
  }

  Plan plan(elements * elementBytes(type));
  int64_t last = hops.hops.size() - 1;
  for (int64_t hop = 0; hop <= last; ++hop) {
    SliceMap map = hops.getHopMap(hop, 0);
    // Partial sums are f32.
    ElementType held = hop == 0 ? type : ElementType::F32;
    WireFormat format = formats[hop];
    WireFormat before = hop == 0 ? WireFormat::None : formats[hop - 1];
    if (before != WireFormat::None && format != WireFormat::None) {
      plan.reduceQuantize(numDevices(hops.hops[hop - 1]), before, block, format,
                          block, map);
    } else {
      if (hop > 0)
        plan.reduce(numDevices(hops.hops[hop - 1]), numElements(map),
                    hop == 1 ? type : ElementType::F32, before, block, held);
      if (format == WireFormat::None)
        plan.pack(held, map);
      else
        plan.quantize(held, format, block, map);
    }
    plan.allToAll(hops.hops[hop],
                  getChunkBytes(format, block, held, map.elementsPerChunk()));
    if (hop == last)
      plan.reduce(numDevices(hops.hops[hop]), map.elementsPerChunk(), held,
                  format, block, type);
  }
  return plan;
}

Plan perf::makeAllGather(const Mesh &mesh, ElementType type, int64_t elements,
                         WireFormat format, int64_t block) {
  std::vector<AxisRef> all;
  for (size_t axis = 0; axis < mesh.getAxes().size(); ++axis)
    all.push_back(mesh.getAxis(axis));
  SliceMap whole;
  whole.factors = {mesh.numDevices()};
  whole.chunkFactors = {0};
  whole.extent = elements;
  whole.unit = elements / mesh.numDevices();
  SliceMap slice;
  slice.extent = slice.unit = whole.unit;

  int64_t chunkBytes = getChunkBytes(format, block, type, whole.unit);
  Plan plan(whole.unit * elementBytes(type));
  if (format != WireFormat::None)
    plan.quantize(type, format, block, slice);
  plan.allGather(all, chunkBytes);
  if (format != WireFormat::None)
    plan.dequantize(type, format, block, whole);
  return plan;
}
