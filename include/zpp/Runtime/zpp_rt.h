/*===- zpp_rt.h - The runtime's C interface -----------------------*- C -*-===*\
|*                                                                            *|
|* Part of zpp, under the Apache License v2.0 with LLVM Exceptions.           *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* Executes the decomposed operations of the zero dialect on every rank of a  *|
|* mesh. docs/runtime.md is the guide; this is the reference.                 *|
|*                                                                            *|
|* Conventions                                                                *|
|*                                                                            *|
|* - Handles are opaque. What a function creates, its counterpart destroys.   *|
|*   Descriptors, strings and arrays belong to the caller and are read during *|
|*   the call only. Strings are UTF-8 and end with a zero.                    *|
|* - The first field of a descriptor is its size as the caller knows it:      *|
|*   sizeof. The library does not read fields that a newer header has         *|
|*   appended. Every field is 64 bits wide, so that a compiler can write a    *|
|*   descriptor without knowing about padding.                                *|
|* - Functions return a status, and no exception leaves the library. NULL     *|
|*   where a handle, a descriptor or the place for a result is needed is      *|
|*   ZPP_RT_INVALID_ARGUMENT. Functions that destroy or free something accept *|
|*   NULL and do nothing.                                                     *|
|* - A rank executes its operations in the order of the calls. The caller may *|
|*   read outputs and change inputs after zpp_rt_rank_synchronize; the next   *|
|*   operation needs no such wait. The last operation may start as late as    *|
|*   the next call of the rank.                                               *|
|* - A failure is sticky: the first error of a rank is its status from then   *|
|*   on. Later operations do nothing and return it. A program may therefore   *|
|*   queue all its operations and look at the status once, at the end. It     *|
|*   must not use any results unless that status is ZPP_RT_OK.                *|
|* - A rank that fails takes the world with it: collectives on all other      *|
|*   ranks end with a status and a message that names the collective and the  *|
|*   cause, at the latest when the world's time limit has passed. If all      *|
|*   members had joined a rank's collectives by then, the message says "after *|
|*   the call of" the last one. Before the first there is nothing to name.    *|
|* - A rank is used by one thread at a time, unless a function says           *|
|*   otherwise. Different ranks may be used by different threads at once.     *|
|*   World functions may be called from any thread.                           *|
|* - There must be one order of all collectives of a world in which every     *|
|*   rank calls those that it takes part in. A program that is the same on    *|
|*   all ranks has such an order by itself.                                   *|
|* - With "cuda", the first collective of a kind along some axes may create   *|
|*   communicators on all ranks of the world. So all ranks must make these    *|
|*   first calls, in the same order. This is checked: ranks that disagree get *|
|*   ZPP_RT_MISMATCH, and a rank that never makes the call is named when the  *|
|*   time limit has passed.                                                   *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef ZPP_RUNTIME_ZPP_RT_H
#define ZPP_RUNTIME_ZPP_RT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ZPP_RT_EXPORT __attribute__((visibility("default")))
#else
#define ZPP_RT_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*===----------------------------------------------------------------------===*\
|* Version
\*===----------------------------------------------------------------------===*/

/* The version of this interface. A library of the same major version and the
 * same or a later minor version runs what was compiled with this header. */
#define ZPP_RT_VERSION_MAJOR 2
#define ZPP_RT_VERSION_MINOR 0
#define ZPP_RT_VERSION (ZPP_RT_VERSION_MAJOR * 1000 + ZPP_RT_VERSION_MINOR)

/* ZPP_RT_VERSION of the header that the library was compiled with. */
ZPP_RT_EXPORT int32_t zpp_rt_version(void);

/*===----------------------------------------------------------------------===*\
|* Status
\*===----------------------------------------------------------------------===*/

typedef int32_t zpp_rt_status;

enum {
  ZPP_RT_OK = 0,
  /* An argument contradicts another, the mesh, or this header. */
  ZPP_RT_INVALID_ARGUMENT = 1,
  /* The back end does not have this element type, format or block. */
  ZPP_RT_UNSUPPORTED = 2,
  ZPP_RT_OUT_OF_MEMORY = 3,
  /* Not all ranks of a collective arrived within the time limit. */
  ZPP_RT_TIMEOUT = 4,
  /* A rank of a collective left the world instead of taking part. */
  ZPP_RT_RANK_LOST = 5,
  /* The ranks of a collective disagree about its kind or its size. */
  ZPP_RT_MISMATCH = 6,
  /* Given up because another rank had failed. */
  ZPP_RT_ABORTED = 7,
  /* A device, a file or the network failed; the message says which. */
  ZPP_RT_SYSTEM_ERROR = 8
};

/* The name of a status, "ZPP_RT_OK"; "unknown status" for other numbers. Never
 * freed. */
ZPP_RT_EXPORT const char *zpp_rt_status_name(zpp_rt_status status);

/*===----------------------------------------------------------------------===*\
|* Exchanges of the caller
|*
|* A caller that has communicators of its own, such as MPI's or the process
|* groups of PyTorch, can move the bytes of collectives itself. Everything else
|* stays as it is: kernels, order and numerics. The ranks of such a world may be
|* in any number of processes, because only the caller's functions connect them.
|* The runtime then compares nothing between ranks and limits no time: a
|* function that waits for other ranks must end when one of them is lost.
\*===----------------------------------------------------------------------===*/

typedef struct zpp_rt_exchange {
  size_t struct_size;
  /* The name of the collective for messages: "all_to_all 'layer' along node".
   */
  const char *name;
  /* The rank of the mesh that calls. */
  int64_t rank;
  /* The ranks of the group, at least 2, in the order of the chunks; the calling
   * rank is members[position]. */
  const int64_t *members;
  int64_t num_members;
  int64_t position;
  /* At least 1. */
  int64_t chunk_bytes;
  /* "cuda": the cudaStream_t on which the data is made and used, on the current
   * device. The function puts its work there, or on streams that it joins with
   * this one, and need not wait for it. "cpu": NULL; the function returns when
   * the output is there and the input may be changed. */
  void *stream;
} zpp_rt_exchange;

/* Moves chunks, which lie one after the other. Called by the thread that calls
 * the operation. A status other than ZPP_RT_OK fails the rank, with the message
 * that the function has written, of at most `message_bytes` bytes with its
 * final zero. Must not call the library. */
typedef zpp_rt_status (*zpp_rt_exchange_function)(
    void *context, const zpp_rt_exchange *exchange, const void *input,
    void *output, char *message, size_t message_bytes);

typedef struct zpp_rt_exchanges {
  size_t struct_size;
  /* Chunk i of the output is chunk `position` of the input of members[i]. */
  zpp_rt_exchange_function all_to_all;
  /* Chunk i of the output is the input, one chunk, of members[i]. */
  zpp_rt_exchange_function all_gather;
  void *context;
} zpp_rt_exchanges;

/*===----------------------------------------------------------------------===*\
|* World: what the ranks of a program share
\*===----------------------------------------------------------------------===*/

typedef struct zpp_rt_world zpp_rt_world;

typedef struct zpp_rt_world_desc {
  size_t struct_size;
  /* "cpu": the ranks are threads of this process. "cuda", where the library was
   * built with it: a GPU each, in any number of processes. */
  const char *backend;
  /* Axes from the slowest link to the fastest, "node:2,gpu:4". Rank r is device
   * r of the row-major grid; "node:2@1,gpu:4@2" is a grid in which neighbours
   * along an axis are 1 and 2 ranks apart. At most 2^20 ranks. */
  const char *mesh;
  /* How long a collective waits for its last rank. 0: five minutes. */
  int64_t time_limit_usec;
  /* Not 0: record when each operation ran, for zpp_rt_world_write_trace. */
  int64_t trace;
  /* Where the processes of a world find each other: "host:port". The process of
   * rank 0 listens there, and all others connect to it. Port 0 in the process
   * of rank 0: any free port, see zpp_rt_world_listen. NULL: all ranks are in
   * this process. For "cuda". */
  const char *rendezvous;
  /* Called once, with the cause, when this process learns that the world has
   * failed. Statuses tell only those who ask. This tells a process that waits
   * for something else, such as a collective of another library that the lost
   * rank does not join either. It comes from any thread, as long as the world
   * or one of its ranks lives, and must not call the library. NULL: nothing is
   * called. */
  void (*on_failure)(void *context, const char *message);
  void *on_failure_context;
  /* How the ranks exchange data: these functions, which must stay valid as long
   * as the world or a rank of it. `backend` then says where the data is and
   * what computes, time_limit_usec has no meaning, and `rendezvous` must be
   * NULL. NULL: the back end's own means. */
  const zpp_rt_exchanges *exchanges;
  /* A secret of at least 16 bytes that all processes of the world know and
   * nobody else does. Needed with a rendezvous. The processes prove to each
   * other that they know it, and tell nothing to anybody who does not. It is
   * never sent. */
  const char *token;
} zpp_rt_world_desc;

/* Creates a world in *world. On failure *world is NULL and `message`, if not
 * NULL, receives at most `message_bytes` bytes of text with its final zero. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_world_create(const zpp_rt_world_desc *desc,
                                                zpp_rt_world **world,
                                                char *message,
                                                size_t message_bytes);

/* Ranks that are not destroyed yet keep what they need of the world. NULL is
 * allowed. */
ZPP_RT_EXPORT void zpp_rt_world_destroy(zpp_rt_world *world);

/* Writes the number of ranks of the mesh to *size. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_world_size(const zpp_rt_world *world,
                                              int64_t *size);

/* Starts to listen at the rendezvous, and writes the endpoint: `endpoint`
 * receives at most `endpoint_bytes` bytes of "host:port" with the port that is
 * used. The process of rank 0 calls this before it creates a rank, if the
 * rendezvous has port 0 and it must tell the others the port. Otherwise
 * zpp_rt_rank_create of rank 0 starts to listen. `message` as above. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_world_listen(zpp_rt_world *world,
                                                char *endpoint,
                                                size_t endpoint_bytes,
                                                char *message,
                                                size_t message_bytes);

/* Stops recording (`on` is 0), or starts anew and forgets what was recorded
 * before. The world must have been created with `trace`, which starts it. While
 * it is stopped it costs nothing. `message` as above. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_world_record(zpp_rt_world *world, int64_t on,
                                                char *message,
                                                size_t message_bytes);

/* Writes what the ranks of this process have done so far in the Chrome trace
 * format: a row per rank and stream, a slice per operation, with the name of
 * its descriptor. The world must have been created with `trace`. `message` as
 * above. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_world_write_trace(zpp_rt_world *world,
                                                     const char *path,
                                                     char *message,
                                                     size_t message_bytes);

/* Stops measuring (`on` is 0), or starts anew and forgets what was measured
 * before. While the world measures, a few blocks of each operation that
 * quantizes are copied beside it, and compared by the next
 * zpp_rt_rank_synchronize. Operations that are captured in a CUDA graph are
 * left out. `message` as above. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_world_measure(zpp_rt_world *world,
                                                 int64_t on, char *message,
                                                 size_t message_bytes);

/* What was measured of operations of one name on the ranks of this process. */
typedef struct zpp_rt_measure {
  size_t struct_size;
  /* As in traces: the name of the operation, and that of its descriptor. */
  const char *name;
  /* The wire format to which it quantizes. */
  int64_t format;
  /* The operations that were sampled, and elements of them. Blocks with values
   * that are not finite are left out. */
  int64_t samples;
  int64_t elements;
  /* Sums of squares: of what the receiver gets less what was quantized, and of
   * the latter. Of a difference that is sent, the whole values. */
  double squared_error;
  double squared;
  /* Elements that the format has made NaN or Inf. */
  int64_t not_finite;
  /* Operations for whose samples there was no room. */
  int64_t left_out;
} zpp_rt_measure;

typedef void (*zpp_rt_measure_function)(void *context,
                                        const zpp_rt_measure *measure);

/* Calls `visit` for each name, with what ranks have measured until their last
 * zpp_rt_rank_synchronize. `message` as above. */
ZPP_RT_EXPORT zpp_rt_status
zpp_rt_world_visit_measures(zpp_rt_world *world, zpp_rt_measure_function visit,
                            void *context, char *message, size_t message_bytes);

/*===----------------------------------------------------------------------===*\
|* Rank
\*===----------------------------------------------------------------------===*/

typedef struct zpp_rt_rank zpp_rt_rank;

typedef struct zpp_rt_rank_desc {
  size_t struct_size;
  /* The number of the rank in the mesh. No other rank may have it. */
  int64_t index;
  /* The number of the GPU among those that this process sees; -1 stands for
   * `index` modulo their number. "cpu" has no devices. */
  int64_t device;
} zpp_rt_rank_desc;

/* Joins the world as a rank. With "cuda" this returns when all ranks of the
 * world have joined, so each rank of a process is created by a thread of its
 * own. The device is the calling thread's current one from then on. Other
 * threads that call functions of the rank keep their device. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_rank_create(zpp_rt_world *world,
                                               const zpp_rt_rank_desc *desc,
                                               zpp_rt_rank **rank,
                                               char *message,
                                               size_t message_bytes);

/* Leaves the world. Ranks that wait for this one in a collective, and those
 * that will, get ZPP_RT_RANK_LOST. NULL is allowed. */
ZPP_RT_EXPORT void zpp_rt_rank_destroy(zpp_rt_rank *rank);

/* Fails this rank, and with it the world, from the outside. `reason` is part of
 * the message of every other rank; NULL: no reason given. Unlike other
 * functions it may be called while another thread is inside an operation of the
 * rank. Returns the rank's status: ZPP_RT_ABORTED, or what it had failed with
 * before. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_rank_abort(zpp_rt_rank *rank,
                                              const char *reason);

/* Waits until all operations of the rank are done and returns its status. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_rank_synchronize(zpp_rt_rank *rank);

/* The message of the rank's status, empty for ZPP_RT_OK. The message of a
 * failure is valid as long as the rank. From any thread. */
ZPP_RT_EXPORT const char *zpp_rt_rank_message(zpp_rt_rank *rank);

/*===----------------------------------------------------------------------===*\
|* Memory that operations can use
\*===----------------------------------------------------------------------===*/

/* Writes to *data at least `bytes` bytes of the rank's memory, aligned to 64
 * bytes: device memory, or host memory with "cpu". NULL on failure. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_alloc(zpp_rt_rank *rank, int64_t bytes,
                                         void **data);

/* Frees memory of zpp_rt_alloc, after the operations that were called so far
 * and also on a rank that has failed. NULL is allowed as `data`. Memory that is
 * never freed is freed with the rank. Returns the rank's status. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_free(zpp_rt_rank *rank, void *data);

/* Writes to *data at least `bytes` bytes of scratch memory, aligned to 256
 * bytes. Every call returns the same memory, which stays the rank's and grows
 * to the largest request; its contents are undefined. A compiled program puts
 * its temporary buffers there, at offsets that the compiler has planned. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_workspace(zpp_rt_rank *rank, int64_t bytes,
                                             void **data);

/* Copies `bytes` bytes between memory of the rank and of the host, in any
 * direction, in order with the operations. They must not overlap. Host memory
 * must stay as it is until the next zpp_rt_rank_synchronize. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_copy(zpp_rt_rank *rank, void *dest,
                                        const void *source, int64_t bytes);

/* A copy of `rows` rows of `row_bytes` bytes. A stride is the number of bytes
 * from the start of one row to the start of the next: at least `row_bytes`; 0
 * means `row_bytes`. */
typedef struct zpp_rt_copy_desc {
  size_t struct_size;
  /* As in the descriptors of operations. */
  const char *name;
  int64_t rows;
  int64_t row_bytes;
  int64_t source_stride;
  int64_t dest_stride;
} zpp_rt_copy_desc;

/* Copies rows, under the name of the descriptor. The pointers may be NULL if
 * there are no bytes to copy. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_copy_rows(zpp_rt_rank *rank,
                                             const zpp_rt_copy_desc *desc,
                                             const void *source, void *dest);

/*===----------------------------------------------------------------------===*\
|* Streams of the caller
|*
|* Operations run on streams of the rank. If work on another stream, a
|* cudaStream_t of the rank's device, makes or uses their data, two calls join
|* the streams without waiting on the host. NULL is CUDA's default stream. Both
|* calls can be captured in a CUDA graph, which then contains everything that is
|* called in between. The CPU has no streams, and the calls do nothing.
|*
|* In a world with exchanges of the caller, operations run on the stream that
|* was entered last, and before that on CUDA's default stream.
|*
|* If one thread puts work on a stream while another thread calls the rank's
|* operations, they pass marks to each other, outside of graphs. A mark stands
|* for a moment of a stream, or for operations of the rank.
\*===----------------------------------------------------------------------===*/

typedef struct zpp_rt_buffer {
  const void *data;
  int64_t bytes;
} zpp_rt_buffer;

/* Operations called from now on start after all work that is on `stream`. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_enter(zpp_rt_rank *rank, void *stream);

/* Work that is put on `stream` from now on starts after the operations called
 * so far that read or write a byte of `buffers`. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_leave(zpp_rt_rank *rank, void *stream,
                                         const zpp_rt_buffer *buffers,
                                         int64_t num_buffers);

typedef struct zpp_rt_mark zpp_rt_mark;

/* Marks all work that is on `stream` now. From any thread. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_mark_stream(zpp_rt_rank *rank, void *stream,
                                               zpp_rt_mark **mark);

/* Operations called from now on start after `mark`, which must come from
 * zpp_rt_mark_stream. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_enter_mark(zpp_rt_rank *rank,
                                              const zpp_rt_mark *mark);

/* Marks the operations called so far that read or write a byte of `buffers`. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_mark_operations(zpp_rt_rank *rank,
                                                   const zpp_rt_buffer *buffers,
                                                   int64_t num_buffers,
                                                   zpp_rt_mark **mark);

/* Work that is put on `stream` from now on starts after `mark`, which must come
 * from zpp_rt_mark_operations. From any thread. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_leave_mark(zpp_rt_rank *rank, void *stream,
                                              const zpp_rt_mark *mark);

/* Copies device memory on `stream`, after the work that is there and with no
 * regard to operations. On the CPU it copies at once. From any thread. The
 * pointers may be NULL if `bytes` is 0; the memory must not overlap. */
ZPP_RT_EXPORT zpp_rt_status zpp_rt_copy_on_stream(zpp_rt_rank *rank,
                                                  void *stream, void *dest,
                                                  const void *source,
                                                  int64_t bytes);

/* From any thread, also after the rank is destroyed. NULL is allowed. */
ZPP_RT_EXPORT void zpp_rt_mark_destroy(zpp_rt_mark *mark);

/*===----------------------------------------------------------------------===*\
|* Operations
|*
|* zpp/Support/BlockQuant.h defines the numerics and the layout of wire chunks,
|* zpp/Support/SliceMap.h the order of slices. Sums start at +0 and add the
|* sources in order, in f32. A mean is the sum divided by their number. The
|* result is rounded once. A NaN that is computed has the bits 0x7fc00000 (f32),
|* 0x7fc0 (bf16) or 0x7e00 (f16). Tensors are dense, row-major and aligned to
|* their element type. Chunks follow each other without gaps, or start `stride`
|* bytes apart if a stride is not 0, so that the chunks of several tensors can
|* travel in one buffer. The addresses and strides of wire chunks are multiples
|* of 16 bytes. Input and output must not overlap, but the output of
|* dequantize_add may be what is held. Nothing else is read or written.
\*===----------------------------------------------------------------------===*/

/* Element types, as zpp::ElementType. */
enum { ZPP_RT_F32 = 0, ZPP_RT_BF16 = 1, ZPP_RT_F16 = 2 };

/* Wire formats, as zpp::WireFormat. */
enum { ZPP_RT_FORMAT_NONE = 0, ZPP_RT_FORMAT_I8 = 8, ZPP_RT_FORMAT_I4 = 4 };

/* Reductions. */
enum { ZPP_RT_SUM = 0, ZPP_RT_MEAN = 1 };

/* zpp::SliceMap: the tensor [outer, extent, inner] is cut along `extent` into
 * product(factors) slices of `unit` rows, those past `extent` being zero; the
 * factors at positions `chunk_factors` number the chunk. */
typedef struct zpp_rt_slices {
  int64_t outer;
  int64_t unit;
  int64_t inner;
  int64_t extent;
  const int64_t *factors;
  int64_t num_factors;
  const int64_t *chunk_factors;
  int64_t num_chunk_factors;
  int64_t stage;
  int64_t stages;
} zpp_rt_slices;

/* pack_slices: tensor to chunks. unpack_slices: chunks to tensor, one stage. */
typedef struct zpp_rt_pack_desc {
  size_t struct_size;
  /* A text that errors and traces add to the name of the operation: its purpose
   * or source location. May be NULL. The same in all descriptors below. */
  const char *name;
  /* Bytes of an element of any type. */
  int64_t element_bytes;
  zpp_rt_slices slices;
  int64_t chunk_stride;
} zpp_rt_pack_desc;

/* quantize: tensor to wire chunks. dequantize: wire chunks to tensor, one
 * stage. quantize_difference: a tensor minus `held`, which has its type, to
 * wire chunks. dequantize_add: to `held`, which has the type of the output, the
 * tensor of wire chunks is added. */
typedef struct zpp_rt_quantize_desc {
  size_t struct_size;
  const char *name;
  /* The element type of the tensor. */
  int64_t element_type;
  /* I8 or I4, with blocks of `block` elements. */
  int64_t format;
  int64_t block;
  zpp_rt_slices slices;
  int64_t chunk_stride;
  /* 32: groups of as many elements of a chunk are rotated before they are
   * quantized, and after they are dequantized. 0: none are, as in all
   * differences. */
  int64_t rotate;
} zpp_rt_quantize_desc;

/* reduce: sources are tensors of `elements` of type `source_type`; `format` is
 * NONE. dequantize_reduce: they are wire chunks of as many elements;
 * `source_type` is not read. */
typedef struct zpp_rt_reduce_desc {
  size_t struct_size;
  const char *name;
  /* SUM or MEAN. */
  int64_t kind;
  /* At least 1. */
  int64_t sources;
  int64_t elements;
  int64_t source_type;
  int64_t format;
  int64_t block;
  /* The element type of the output. */
  int64_t element_type;
  int64_t source_stride;
  /* 32: the sum or mean of wire chunks is rotated back in groups of as many
   * elements. 0: it is not. */
  int64_t rotate;
} zpp_rt_reduce_desc;

/* dequantize_reduce_quantize: as dequantize_reduce to a tensor
 * [slices.outer, slices.extent, slices.inner] of `element_type`, then quantize
 * to `to_format`. Chunks of rotated values have rotated sums. */
typedef struct zpp_rt_reduce_quantize_desc {
  size_t struct_size;
  const char *name;
  int64_t kind;
  int64_t sources;
  int64_t format;
  int64_t block;
  /* The type to which partial sums are rounded. */
  int64_t element_type;
  int64_t to_format;
  int64_t to_block;
  zpp_rt_slices slices;
  int64_t source_stride;
  int64_t chunk_stride;
} zpp_rt_reduce_quantize_desc;

/* A mesh axis, or the part of one of size `size` that follows parts of product
 * `pre_size` (1 for a whole axis). */
typedef struct zpp_rt_axis {
  const char *name;
  int64_t pre_size;
  int64_t size;
} zpp_rt_axis;

/* The group is the ranks that differ along `axes` only, ordered with axes[0]
 * most significant. all_to_all (ncclAlltoAll): chunk i of the output is the
 * chunk of member i of the group that bears this rank's number.
 * all_gather_chunks (ncclAllGather): chunk i of the output is the input, one
 * chunk, of member i. */
typedef struct zpp_rt_exchange_desc {
  size_t struct_size;
  const char *name;
  const zpp_rt_axis *axes;
  /* At least 1. */
  int64_t num_axes;
  int64_t chunk_bytes;
  /* The mesh that the program was compiled for, as in zpp_rt_world_desc. A
   * world with another mesh refuses the operation, because its axes may have
   * the same names. NULL: any mesh. */
  const char *mesh;
} zpp_rt_exchange_desc;

#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP)                                      \
  ZPP_RT_EXPORT zpp_rt_status zpp_rt_##NAME(zpp_rt_rank *rank,                 \
                                            const zpp_rt_##DESC *desc,         \
                                            const void *input, void *output);
#define ZPP_RT_HELD_ENTRYPOINT(NAME, DESC, OP)                                 \
  ZPP_RT_EXPORT zpp_rt_status zpp_rt_##NAME(                                   \
      zpp_rt_rank *rank, const zpp_rt_##DESC *desc, const void *input,         \
      const void *held, void *output);
#include "zpp/Runtime/Entrypoints.def"

#ifdef __cplusplus
}
#endif

#endif /* ZPP_RUNTIME_ZPP_RT_H */
