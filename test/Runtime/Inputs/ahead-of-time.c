/*===- ahead-of-time.c - Calls a compiled step on all ranks ---------------===*\
|*
|* Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
\*===----------------------------------------------------------------------===*/

#include "zpp/Runtime/zpp_rt.h"

#include <pthread.h>
#include <stdio.h>

enum { RANKS = 6, IN = 7, OUT = 40 };

/* MLIR's memref<Nxf32>. */
typedef struct {
  float *allocated, *aligned;
  int64_t offset, size, stride;
} buffer;

void _mlir_ciface_step(zpp_rt_rank *rank, const buffer *w,
                       const buffer *result);

static zpp_rt_world *world;
static float results[RANKS][OUT];

static void *run(void *argument) {
  int64_t index = *(int *)argument, i;
  zpp_rt_rank_desc desc = {sizeof(desc), index, -1};
  zpp_rt_rank *rank;
  float w[IN];
  buffer in = {w, w, 0, IN, 1},
         out = {results[index], results[index], 0, OUT, 1};
  for (i = 0; i < IN; ++i)
    w[i] = 127.0f * (float)(index + 1);
  if (zpp_rt_rank_create(world, &desc, &rank, NULL, 0) != ZPP_RT_OK)
    return NULL;
  _mlir_ciface_step(rank, &in, &out);
  if (zpp_rt_rank_synchronize(rank) != ZPP_RT_OK)
    printf("rank %d: %s\n", (int)index, zpp_rt_rank_message(rank));
  zpp_rt_rank_destroy(rank);
  return NULL;
}

int main(void) {
  zpp_rt_world_desc desc = {sizeof(desc)};
  pthread_t threads[RANKS];
  int indices[RANKS], i, j;
  desc.backend = "cpu";
  desc.mesh = "node:2,gpu:3";
  desc.time_limit_usec = 10000000;
  if (zpp_rt_world_create(&desc, &world, NULL, 0) != ZPP_RT_OK)
    return 1;
  for (i = 0; i < RANKS; ++i) {
    indices[i] = i;
    if (pthread_create(&threads[i], NULL, run, &indices[i]) != 0)
      return 1;
  }
  for (i = 0; i < RANKS; ++i)
    pthread_join(threads[i], NULL);
  zpp_rt_world_destroy(world);
  for (j = 0; j < OUT; ++j)
    printf("%g%c", results[0][j], j + 1 < OUT ? ' ' : '\n');
  for (i = 1; i < RANKS; ++i)
    for (j = 0; j < OUT; ++j)
      if (results[i][j] != results[0][j])
        return 1;
  return 0;
}
