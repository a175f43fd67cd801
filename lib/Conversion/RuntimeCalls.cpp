//===- RuntimeCalls.cpp - Calls of libzpp_rt ------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeCalls.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Runtime/zpp_rt.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

// The numbers of the dialect, of Support and of zpp_rt.h are the same: casts
// lead from one to the next.
static_assert(static_cast<int>(WireFormatKind::I8) == ZPP_RT_FORMAT_I8 &&
              static_cast<int>(WireFormatKind::I4) == ZPP_RT_FORMAT_I4 &&
              static_cast<int>(zpp::WireFormat::I8) == ZPP_RT_FORMAT_I8 &&
              static_cast<int>(zpp::WireFormat::I4) == ZPP_RT_FORMAT_I4);

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

static int64_t getElementType(Type type) {
  if (type.isBF16())
    return ZPP_RT_BF16;
  return type.isF16() ? ZPP_RT_F16 : ZPP_RT_F32;
}

static int64_t getKind(ReduceKind kind) {
  return kind == ReduceKind::Mean ? ZPP_RT_MEAN : ZPP_RT_SUM;
}

/// Fills in `slices`, a field of the descriptor.
template <typename StructT>
static void setSlices(Descriptor<StructT> &desc, zpp_rt_slices &slices,
                      const SliceMap &map, RuntimeConstants &constants) {
  slices.outer = map.outer;
  slices.unit = map.unit;
  slices.inner = map.inner;
  slices.extent = map.extent;
  desc.setAddress(slices.factors, constants.getList(map.factors));
  slices.num_factors = map.factors.size();
  desc.setAddress(slices.chunk_factors, constants.getList(map.chunkFactors));
  slices.num_chunk_factors = map.chunkFactors.size();
  slices.stage = map.stage;
  slices.stages = map.stages;
}

/// Returns the map of a tensor whose chunks are its leading dim.
static SliceMap getLeadingDimMap(ArrayRef<int64_t> shape) {
  SliceMap map;
  map.extent = shape.front();
  // Without chunks there is one empty slice.
  map.factors = {std::max<int64_t>(shape.front(), 1)};
  map.unit = shape.front() == 0 ? 0 : 1;
  map.inner = llvm::product_of(shape.drop_front());
  map.chunkFactors = {0};
  return map;
}

static SliceMap getMap(SlicesAttr slices, ShapedType type) {
  return slices ? slices.getMap(type.getShape())
                : getLeadingDimMap(type.getShape());
}

static int64_t getFormat(QuantAttr quant) {
  return static_cast<int64_t>(quant.getWireFormat());
}

// Each of these fills in the descriptor of an op, except size and name.

/// PackSlicesOp and UnpackSlicesOp.
template <typename OpT>
static void fill(OpT op, Descriptor<zpp_rt_pack_desc> &desc,
                 RuntimeConstants &constants) {
  constexpr bool isUnpack = std::is_same_v<OpT, UnpackSlicesOp>;
  auto tensor =
      cast<MemRefType>(isUnpack ? op.getInitType() : op.getInputType());
  desc.values.element_bytes = getElementBytes(tensor);
  setSlices(desc, desc.values.slices, getMap(op.getSlices(), tensor),
            constants);
  desc.values.chunk_stride =
      *getChunkStride(isUnpack ? op.getInputMutable() : op.getInitMutable());
}

/// The four ends of a hop that quantizes.
template <typename OpT>
static void fill(OpT op, Descriptor<zpp_rt_quantize_desc> &desc,
                 RuntimeConstants &constants) {
  constexpr bool isDequantize =
      std::is_same_v<OpT, DequantizeOp> || std::is_same_v<OpT, DequantizeAddOp>;
  ShapedType tensor = isDequantize ? op.getInitType() : op.getInputType();
  desc.values.element_type = getElementType(tensor.getElementType());
  desc.values.format = getFormat(op.getQuant());
  desc.values.block = op.getQuant().getBlock();
  setSlices(desc, desc.values.slices, getMap(op.getSlicesAttr(), tensor),
            constants);
  desc.values.chunk_stride = *getChunkStride(
      isDequantize ? op.getInputMutable() : op.getInitMutable());
  desc.values.rotate = op.getQuant().getRotate();
}

/// ReduceOp and DequantizeReduceOp.
template <typename OpT>
static void fill(OpT op, Descriptor<zpp_rt_reduce_desc> &desc,
                 RuntimeConstants &) {
  desc.values.kind = getKind(op.getKind());
  desc.values.sources = op.getInputType().getDimSize(0);
  desc.values.elements = op.getInitType().getNumElements();
  desc.values.element_type = getElementType(op.getInitType().getElementType());
  desc.values.source_stride = *getChunkStride(op.getInputMutable());
  if constexpr (std::is_same_v<OpT, ReduceOp>) {
    desc.values.source_type =
        getElementType(op.getInputType().getElementType());
    desc.values.format = ZPP_RT_FORMAT_NONE;
  } else {
    desc.values.source_type = ZPP_RT_F32;
    desc.values.format = getFormat(op.getQuant());
    desc.values.block = op.getQuant().getBlock();
    desc.values.rotate = op.getQuant().getRotate();
  }
}

static void fill(DequantizeReduceQuantizeOp op,
                 Descriptor<zpp_rt_reduce_quantize_desc> &desc,
                 RuntimeConstants &constants) {
  auto partial = cast<RankedTensorType>(op.getPartial());
  desc.values.kind = getKind(op.getKind());
  desc.values.sources = op.getInputType().getDimSize(0);
  desc.values.format = getFormat(op.getQuant());
  desc.values.block = op.getQuant().getBlock();
  desc.values.element_type = getElementType(partial.getElementType());
  desc.values.to_format = getFormat(op.getTo());
  desc.values.to_block = op.getTo().getBlock();
  setSlices(desc, desc.values.slices, getMap(op.getSlices(), partial),
            constants);
  desc.values.source_stride = *getChunkStride(op.getInputMutable());
  desc.values.chunk_stride = *getChunkStride(op.getInitMutable());
}

/// AllToAllOp and AllGatherChunksOp.
template <typename OpT>
static void fill(OpT op, Descriptor<zpp_rt_exchange_desc> &desc,
                 RuntimeConstants &constants) {
  std::vector<zpp::AxisRef> axes = op.getAxisRefs();
  RuntimeFields axisFields;
  for (const zpp::AxisRef &axis : axes) {
    Descriptor<zpp_rt_axis> entry;
    entry.setAddress(entry.values.name, constants.getString(axis.name));
    entry.values.pre_size = axis.preSize;
    entry.values.size = axis.size;
    axisFields.append(entry.getFields());
  }
  desc.setAddress(
      desc.values.axes,
      constants.createStruct(op.getLoc(), "zpp_rt_axes", axisFields));
  desc.values.num_axes = axes.size();
  desc.values.chunk_bytes =
      getBytes(op.getInitType()) / zpp::numDevices({axes.begin(), axes.end()});
  desc.setAddress(desc.values.mesh,
                  constants.getString(op.getMeshAttr().getMesh().str()));
}

/// The address of the descriptor of `op`, a constant called `name` or a copy of
/// it. `fill(descriptor)` fills in the fields after size and name.
template <typename StructT, typename Fill>
static Value createDescriptor(OpBuilder &builder, Operation *op, StringRef name,
                              const Fill &fill, RuntimeConstants &constants,
                              RuntimeNames &names) {
  Location loc = op->getLoc();
  bool isShared = names.isShared(op);
  Descriptor<StructT> desc;
  desc.values.struct_size = sizeof(StructT);
  desc.setAddress(desc.values.name,
                  isShared ? LLVM::GlobalOp() : getName(loc, constants));
  fill(desc);
  LLVM::GlobalOp global = constants.createStruct(loc, name, desc.getFields());
  if (!isShared)
    return LLVM::AddressOfOp::create(builder, loc, global);
  return names.createNamed(builder, op, global, sizeof(StructT),
                           offsetof(StructT, name));
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Address of the first element of a dense buffer.
static Value getPointer(OpBuilder &builder, Location loc, Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  Value address =
      memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, buffer);
  if (!type.getLayout().isIdentity()) {
    auto metadata =
        memref::ExtractStridedMetadataOp::create(builder, loc, buffer);
    Value bytes =
        arith::ConstantIndexOp::create(builder, loc, getElementBytes(type));
    Value offset =
        arith::MulIOp::create(builder, loc, metadata.getOffset(), bytes);
    address = arith::AddIOp::create(builder, loc, address, offset);
  }
  address =
      arith::IndexCastOp::create(builder, loc, builder.getI64Type(), address);
  return LLVM::IntToPtrOp::create(
      builder, loc, LLVM::LLVMPointerType::get(builder.getContext()), address);
}

LLVM::CallOp zpp::createCall(OpBuilder &builder, Location loc, StringRef name,
                             ValueRange arguments,
                             RuntimeConstants &constants) {
  return LLVM::CallOp::create(builder, loc,
                              constants.getFunction(name, arguments.getTypes()),
                              arguments);
}

void zpp::lowerOp(OpBuilder &builder, Operation *op, Value rank,
                  RuntimeConstants &constants, RuntimeNames &names) {
  Location loc = op->getLoc();
  Value input = getPointer(builder, loc, op->getOperand(0));
  Value held;
  if (op->getNumOperands() > 2)
    held = getPointer(builder, loc, op->getOperand(2));
  Value init = getPointer(builder, loc, op->getOperand(1));
  StringRef entrypoint;
  Value descriptor;
#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP)                                      \
  if (auto typed = dyn_cast<OP>(op)) {                                         \
    entrypoint = "zpp_rt_" #NAME;                                              \
    descriptor = createDescriptor<zpp_rt_##DESC>(                              \
        builder, op, "zpp_rt_" #DESC,                                          \
        [&](auto &desc) { fill(typed, desc, constants); }, constants, names);  \
  }
#include "zpp/Runtime/Entrypoints.def"

  SmallVector<Value> arguments{rank, descriptor, input};
  if (held)
    arguments.push_back(held);
  arguments.push_back(init);
  createCall(builder, loc, entrypoint, arguments, constants);
}

void zpp::lowerCopy(OpBuilder &builder, memref::CopyOp op,
                    const StridedCopy &copy, Value rank,
                    RuntimeConstants &constants, RuntimeNames &names) {
  Location loc = op.getLoc();
  auto getConstant = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(builder, loc,
                                    builder.getI64IntegerAttr(value));
  };
  Value target = getPointer(builder, loc, op.getTarget());
  Value source = getPointer(builder, loc, op.getSource());
  // One call can do one of the loops: the longest that it supports.
  SmallVector<StridedCopy::Loop> loops(copy.loops);
  StridedCopy::Loop rows{1, copy.rowBytes, copy.rowBytes};
  auto *longest = loops.end();
  for (auto &loop : loops)
    if (std::min(loop.targetStride, loop.sourceStride) >= copy.rowBytes &&
        (longest == loops.end() || loop.size >= longest->size))
      longest = &loop;
  if (longest != loops.end()) {
    rows = *longest;
    loops.erase(longest);
  }
  for (const StridedCopy::Loop &loop : loops) {
    auto loopOp = scf::ForOp::create(builder, loc, getConstant(0),
                                     getConstant(loop.size), getConstant(1));
    builder.setInsertionPointToStart(loopOp.getBody());
    auto advance = [&](Value pointer, int64_t stride) -> Value {
      Value bytes = LLVM::MulOp::create(builder, loc, loopOp.getInductionVar(),
                                        getConstant(stride));
      return LLVM::GEPOp::create(builder, loc, pointer.getType(),
                                 builder.getI8Type(), pointer,
                                 ArrayRef<LLVM::GEPArg>{bytes});
    };
    target = advance(target, loop.targetStride);
    source = advance(source, loop.sourceStride);
  }
  Value descriptor = createDescriptor<zpp_rt_copy_desc>(
      builder, op, "zpp_rt_copy_desc",
      [&](Descriptor<zpp_rt_copy_desc> &desc) {
        desc.values.rows = rows.size;
        desc.values.row_bytes = copy.rowBytes;
        desc.values.source_stride = rows.sourceStride;
        desc.values.dest_stride = rows.targetStride;
      },
      constants, names);
  createCall(builder, loc, "zpp_rt_copy_rows",
             {rank, descriptor, source, target}, constants);
}
