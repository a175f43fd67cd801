/*===- gather.c - libzpp_rt from plain C ----------------------------------===*\
|*
|* Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
\*===----------------------------------------------------------------------===*/

/* Gathers a weight in quantized form (qwZ) on 2 nodes of 2 ranks: every rank
 * holds 100 values, quantizes them to i8, and reads everybody's.
 *
 *   cc gather.c -lzpp_rt -lpthread -lm && ./a.out
 */

#include "zpp/Runtime/zpp_rt.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, VALUES = 100, BLOCK = 32 };
/* Payload and scales of a wire chunk, each to a multiple of 16 bytes. */
enum { CHUNK_BYTES = (VALUES + 15) / 16 * 16 + 16 };

/* What rank `rank` holds. */
static float value_of(int64_t rank, int i) {
  return sinf(0.1f * (float)i) * (float)(rank + 1);
}

typedef struct {
  zpp_rt_world *world;
  int64_t index;
  float worst;
  zpp_rt_status status;
} job;

/* Looks at statuses once: after the first error, calls do nothing. */
static void gather(zpp_rt_rank *rank, int64_t index, float *all) {
  const int64_t one_chunk = 0, ranks = RANKS;
  void *mine, *sent, *received, *result;
  float host[VALUES];
  int i;
  zpp_rt_axis axes[] = {{"node", 1, 2}, {"gpu", 1, 2}};
  zpp_rt_quantize_desc quantize = {.struct_size = sizeof(quantize)};
  zpp_rt_exchange_desc exchange = {.struct_size = sizeof(exchange)};
  zpp_rt_quantize_desc dequantize;

  for (i = 0; i < VALUES; ++i)
    host[i] = value_of(index, i);
  zpp_rt_alloc(rank, VALUES * sizeof(float), &mine);
  zpp_rt_alloc(rank, CHUNK_BYTES, &sent);
  zpp_rt_alloc(rank, RANKS * CHUNK_BYTES, &received);
  zpp_rt_alloc(rank, RANKS * VALUES * sizeof(float), &result);
  zpp_rt_copy(rank, mine, host, VALUES * sizeof(float));

  /* All values are one chunk. */
  quantize.name = "weight";
  quantize.element_type = ZPP_RT_F32;
  quantize.format = ZPP_RT_FORMAT_I8;
  quantize.block = BLOCK;
  quantize.slices.outer = quantize.slices.inner = quantize.slices.stages = 1;
  quantize.slices.unit = quantize.slices.extent = VALUES;
  zpp_rt_quantize(rank, &quantize, mine, sent);

  exchange.name = "weight";
  exchange.axes = axes;
  exchange.num_axes = 2;
  exchange.chunk_bytes = CHUNK_BYTES;
  zpp_rt_all_gather_chunks(rank, &exchange, sent, received);

  /* A chunk per rank. */
  dequantize = quantize;
  dequantize.slices.extent = RANKS * VALUES;
  dequantize.slices.factors = &ranks;
  dequantize.slices.num_factors = 1;
  dequantize.slices.chunk_factors = &one_chunk;
  dequantize.slices.num_chunk_factors = 1;
  zpp_rt_dequantize(rank, &dequantize, received, result);
  zpp_rt_copy(rank, all, result, RANKS * VALUES * sizeof(float));
}

static void *run(void *argument) {
  job *job_of_rank = argument;
  float all[RANKS * VALUES] = {0};
  zpp_rt_rank_desc desc = {.struct_size = sizeof(desc), .device = -1};
  char message[256];
  zpp_rt_rank *rank;
  int i;

  desc.index = job_of_rank->index;
  job_of_rank->status = zpp_rt_rank_create(job_of_rank->world, &desc, &rank,
                                           message, sizeof(message));
  if (job_of_rank->status != ZPP_RT_OK) {
    fprintf(stderr, "%s\n", message);
    return NULL;
  }
  gather(rank, job_of_rank->index, all);
  job_of_rank->status = zpp_rt_rank_synchronize(rank);
  if (job_of_rank->status != ZPP_RT_OK)
    fprintf(stderr, "%s\n", zpp_rt_rank_message(rank));
  zpp_rt_rank_destroy(rank);

  job_of_rank->worst = 0;
  for (i = 0; i < RANKS * VALUES; ++i) {
    float error = fabsf(all[i] - value_of(i / VALUES, i % VALUES));
    if (error > job_of_rank->worst)
      job_of_rank->worst = error;
  }
  return NULL;
}

int main(void) {
  zpp_rt_world_desc desc = {.struct_size = sizeof(desc)};
  zpp_rt_world *world;
  pthread_t threads[RANKS];
  job jobs[RANKS];
  char message[256];
  int failed = 0, i;

  desc.backend = "cpu";
  desc.mesh = "node:2,gpu:2";
  desc.time_limit_usec = 10000000;
  if (zpp_rt_world_create(&desc, &world, message, sizeof(message)) !=
      ZPP_RT_OK) {
    fprintf(stderr, "%s\n", message);
    return EXIT_FAILURE;
  }
  for (i = 0; i < RANKS; ++i) {
    jobs[i].world = world;
    jobs[i].index = i;
    if (pthread_create(&threads[i], NULL, run, &jobs[i]) != 0)
      return EXIT_FAILURE;
  }
  for (i = 0; i < RANKS; ++i) {
    pthread_join(threads[i], NULL);
    failed |= jobs[i].status != ZPP_RT_OK;
    /* Half a step of the largest rank's blocks. */
    failed |= !(jobs[i].worst <= RANKS / 254.0f * 1.01f);
    printf("rank %d: %s, largest error %.4f\n", i,
           zpp_rt_status_name(jobs[i].status), jobs[i].worst);
  }
  zpp_rt_world_destroy(world);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
