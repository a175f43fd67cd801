/*===- zpp_xla.h - libzpp_rt behind XLA custom calls --------------*- C -*-===*\
|*                                                                            *|
|* Part of zpp, under the Apache License v2.0 with LLVM Exceptions.           *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* What a program that runs steps through XLA (the Python package, by ctypes) *|
|* sets up so that the custom calls zpp.start and zpp.wait find their ranks   *|
|* and host functions. docs/xla.md describes the two calls.               *|
|*                                                                            *|
|* Conventions are those of zpp_rt.h: statuses are its statuses, `message`    *|
|* receives at most `message_bytes` bytes with their final zero, strings and  *|
|* arrays belong to the caller. All functions may be called from any thread.  *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef ZPP_XLA_ZPP_XLA_H
#define ZPP_XLA_ZPP_XLA_H

#include "zpp/Runtime/zpp_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A world of zpp_rt.h, with those of its ranks that are devices of this process
 * and the bundles that run on them. */
typedef struct zpp_xla_world zpp_xla_world;

typedef struct zpp_xla_world_desc {
  size_t struct_size;
  /* As in zpp_rt_world_desc. */
  const char *backend;
  const char *mesh;
  const char *rendezvous;
  int64_t time_limit_usec;
  int64_t trace;
  /* The ranks of this process, and for each the number that XLA gives to its
   * device in this process. */
  const int64_t *ranks;
  const int64_t *device_ordinals;
  int64_t num_ranks;
  /* If there is a rendezvous, called once in the process of rank 0, before the
   * ranks join, with the "host:port" at which the other processes reach it. If
   * `rendezvous` has port 0, the process needs this to tell the others. NULL:
   * nothing is called. */
  void (*on_listening)(void *context, const char *endpoint);
  void *on_listening_context;
  /* As in zpp_rt_world_desc. */
  const char *token;
} zpp_xla_world_desc;

/* Returns when the ranks have joined the world; with "cuda", when those of all
 * processes have. */
ZPP_RT_EXPORT zpp_rt_status zpp_xla_world_create(const zpp_xla_world_desc *desc,
                                                 zpp_xla_world **world,
                                                 char *message,
                                                 size_t message_bytes);

/* Leaves the world and forgets its bundles. On "cpu", operations in flight
 * fail. No step may start on it while it is destroyed. NULL is allowed. */
ZPP_RT_EXPORT void zpp_xla_world_destroy(zpp_xla_world *world);

/* Loads the host library of a bundle: custom calls with the bundle's id run its
 * functions on this world from now on. Loading the same library again does
 * nothing. Another library with the same id, or the same id for another world,
 * is an error, because a program does not say which of two it means. A library
 * is code: load only what you trust. */
ZPP_RT_EXPORT zpp_rt_status zpp_xla_bundle_load(zpp_xla_world *world,
                                                const char *id,
                                                const char *library_path,
                                                char *message,
                                                size_t message_bytes);

/* Waits for what was started on the ranks of this process, and returns the
 * status of the first one that has failed. On GPUs a failure may become known
 * after a step has returned its results, which must then not be used. */
ZPP_RT_EXPORT zpp_rt_status zpp_xla_world_synchronize(zpp_xla_world *world,
                                                      char *message,
                                                      size_t message_bytes);

/* Returns the world of the runtime, for the functions of zpp_rt.h that record
 * and measure. It belongs to `world`. NULL of NULL. */
ZPP_RT_EXPORT zpp_rt_world *zpp_xla_world_get_runtime(zpp_xla_world *world);

/* Returns how long the waits of a rank have taken since the last call until
 * their operations were done, in microseconds: the longest of all ranks of this
 * process. 0 with streams, whose traces say it. */
ZPP_RT_EXPORT double zpp_xla_world_take_stalled(zpp_xla_world *world);

/* How long calls of the handlers have occupied XLA's threads since the last
 * call of this function: the median in microseconds and the number of calls,
 * both 0 if there were none. With streams also how long the functions of starts
 * have occupied the ranks' threads until everything was queued. For all worlds
 * of the process together. */
typedef struct zpp_xla_host_times {
  double start_usec;
  int64_t num_starts;
  double wait_usec;
  int64_t num_waits;
  double queue_usec;
  int64_t num_queued;
} zpp_xla_host_times;
ZPP_RT_EXPORT zpp_rt_status zpp_xla_take_host_times(zpp_xla_host_times *times);

/* The handlers of the custom calls, of XLA's type XLA_FFI_Handler: to be
 * registered as "zpp.start" and "zpp.wait" for the platforms "Host" and "CUDA".
 * They are declared here without XLA's headers. */
struct XLA_FFI_Error;
struct XLA_FFI_CallFrame;
ZPP_RT_EXPORT struct XLA_FFI_Error *
zpp_xla_start_host(struct XLA_FFI_CallFrame *call_frame);
ZPP_RT_EXPORT struct XLA_FFI_Error *
zpp_xla_wait_host(struct XLA_FFI_CallFrame *call_frame);
ZPP_RT_EXPORT struct XLA_FFI_Error *
zpp_xla_start_cuda(struct XLA_FFI_CallFrame *call_frame);
ZPP_RT_EXPORT struct XLA_FFI_Error *
zpp_xla_wait_cuda(struct XLA_FFI_CallFrame *call_frame);

#ifdef __cplusplus
}
#endif

#endif /* ZPP_XLA_ZPP_XLA_H */
