//===- Operations.h - Checked descriptors -----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checked descriptors of zpp_rt.h in terms of Support. Back ends see nothing
// else.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_OPERATIONS_H
#define ZPP_LIB_RUNTIME_OPERATIONS_H

#include "Status.h"
#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Mesh.h"
#include "zpp/Support/SliceMap.h"

#include <memory>
#include <variant>
#include <vector>

namespace zpp::rt {

/// Format and block of wire chunks.
struct Wire {
  WireFormat format;
  int64_t block;
  /// Whether values are rotated.
  bool isRotated = false;

  int64_t chunkBytes(int64_t elements) const {
    return getChunkLayout(elements, format, block).chunkBytes;
  }
};

inline const uint8_t *bytesAt(const void *base, int64_t offset) {
  return static_cast<const uint8_t *>(base) + offset;
}
inline uint8_t *bytesAt(void *base, int64_t offset) {
  return static_cast<uint8_t *>(base) + offset;
}

/// Consecutive elements of a chunk that are consecutive in the tensor, too.
struct Run {
  int64_t element;
  /// Its first element in the tensor; -1 if it is padding.
  int64_t index;
  int64_t count;
};
/// Returns what is left from `element` on of a run of a chunk.
Run getRun(const SliceMap &map, int64_t chunk, int64_t element);

/// Memory that an operation reads or writes: `count` pieces of `bytes` bytes,
/// each `stride` bytes after the one before.
struct Pieces {
  Pieces(int64_t bytes = 0) : bytes(bytes) {}
  Pieces(int64_t count, int64_t bytes, int64_t stride)
      : count(count), bytes(bytes), stride(stride) {}

  int64_t count = 1;
  int64_t bytes;
  int64_t stride = 0;

  /// Bytes from the start of the first piece to the end of the last.
  int64_t span() const { return count > 0 ? (count - 1) * stride + bytes : 0; }
};

struct Footprint {
  Pieces input;
  Pieces output;
  /// A second input.
  Pieces held = {};

  int64_t bytesRead() const { return input.span() + held.span(); }
};

/// The names of an operation.
struct OperationName {
  /// `kind` is a literal, the name of the entry point. `name` is the
  /// descriptor's, and may be null.
  OperationName(const char *kind, const char *name);
  /// An exchange along `axes`.
  OperationName(const char *kind, const char *name,
                const std::vector<AxisRef> &axes);

  /// "all_to_all"
  const char *kind;
  /// The name in errors: "all_to_all 'name' along node, gpu".
  std::string title;
  /// The name in traces: "all_to_all name".
  std::string label;
  /// The axes of an exchange: "node,gpu".
  std::string along;
};

/// The common part of all operations.
struct Operation {
  /// Shared, because traces and errors may need it after the operation.
  std::shared_ptr<const OperationName> name;
  Footprint footprint;
};

/// Chunks and sources are the pieces of the footprint. Their stride is set even
/// if the descriptor's is 0.
struct PackOperation : Operation {
  bool isUnpack;
  int64_t elementBytes;
  SliceMap slices;
};

/// With a tensor that is held, of its difference to the input (to quantize), or
/// added to it (to dequantize).
struct QuantizeOperation : Operation {
  bool isDequantize;
  ElementType type;
  Wire wire;
  SliceMap slices;
};

/// If the format of `wire` is None, the sources are elements of `sourceType`.
struct ReduceOperation : Operation {
  bool isMean;
  int64_t sources;
  int64_t elements;
  ElementType sourceType;
  Wire wire;
  ElementType type;
};

struct ReduceQuantizeOperation : Operation {
  ReduceOperation reduce;
  Wire to;
  SliceMap slices;
};

/// An operation on the memory of one rank.
using LocalOperation =
    std::variant<const PackOperation *, const QuantizeOperation *,
                 const ReduceOperation *, const ReduceQuantizeOperation *>;

/// Returns what all operations have.
inline const Operation &getCommon(LocalOperation operation) {
  return std::visit([](auto *one) -> const Operation & { return *one; },
                    operation);
}

/// Members of a group must agree on the kind and the size.
struct ExchangeOperation : Operation {
  bool isGather;
  std::vector<AxisRef> axes;
  int64_t chunkBytes;
};

/// Orders groups by their axes, for maps.
struct ByAxes {
  bool operator()(const std::vector<AxisRef> &a,
                  const std::vector<AxisRef> &b) const;
};

/// The operations that compiled programs call.
enum class Entrypoint {
#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP) NAME,
#include "zpp/Runtime/Entrypoints.def"
};

/// Parse a descriptor, except its name, into `operation`, or return what is
/// wrong with it. The rows of a copy are the pieces of its footprint. `mesh` is
/// that of the world.
Status parse(const zpp_rt_copy_desc &desc, Operation &operation);
Status parse(const zpp_rt_pack_desc &desc, Entrypoint entrypoint,
             const Mesh &mesh, PackOperation &operation);
Status parse(const zpp_rt_quantize_desc &desc, Entrypoint entrypoint,
             const Mesh &mesh, QuantizeOperation &operation);
Status parse(const zpp_rt_reduce_desc &desc, Entrypoint entrypoint,
             const Mesh &mesh, ReduceOperation &operation);
Status parse(const zpp_rt_reduce_quantize_desc &desc, Entrypoint entrypoint,
             const Mesh &mesh, ReduceQuantizeOperation &operation);
Status parse(const zpp_rt_exchange_desc &desc, Entrypoint entrypoint,
             const Mesh &mesh, ExchangeOperation &operation);

/// Append the value of a descriptor to `key`, including what it points to.
/// Return false if that is too long for a key, or missing.
bool appendKey(zpp_rt_copy_desc desc, std::string &key);
bool appendKey(zpp_rt_pack_desc desc, std::string &key);
bool appendKey(zpp_rt_quantize_desc desc, std::string &key);
bool appendKey(zpp_rt_reduce_desc desc, std::string &key);
bool appendKey(zpp_rt_reduce_quantize_desc desc, std::string &key);
bool appendKey(zpp_rt_exchange_desc desc, std::string &key);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_OPERATIONS_H
