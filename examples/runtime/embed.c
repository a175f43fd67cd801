/*===- embed.c - libzpp_rt with the communicators of a program ------------===*\
|*
|* Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
\*===----------------------------------------------------------------------===*/

/* Gathers a weight in quantized form (qwZ) on 2 nodes of 2 ranks, which are
 * processes. A program that has communicators already, of MPI for instance,
 * keeps them: the runtime computes, and calls two functions of the program to
 * move bytes. Here these use a socket for each pair of processes.
 *
 *   cc embed.c -lzpp_rt -lm && ./a.out
 */

#define _POSIX_C_SOURCE 200809L
#include "zpp/Runtime/zpp_rt.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, VALUES = 100, BLOCK = 32 };
/* Payload and scales of a wire chunk, each to a multiple of 16 bytes. */
enum { CHUNK_BYTES = (VALUES + 15) / 16 * 16 + 16 };

/* What rank `rank` holds. */
static float value_of(int64_t rank, int i) {
  return sinf(0.1f * (float)i) * (float)(rank + 1);
}

/*===----------------------------------------------------------------------===*\
|* The program's own communication
\*===----------------------------------------------------------------------===*/

/* Of this process: the socket to each other rank. */
typedef struct {
  int sockets[RANKS];
} communicator;

/* Sends or receives all bytes. */
static int transfer(int socket, uint8_t *data, int64_t bytes, int is_send) {
  while (bytes > 0) {
    ssize_t done = is_send ? write(socket, data, (size_t)bytes)
                           : read(socket, data, (size_t)bytes);
    if (done <= 0)
      return 0;
    data += done;
    bytes -= done;
  }
  return 1;
}

/* Chunk i of the input, or all of it in a gather, goes to members[i], whose
 * chunk becomes chunk i of the output. Pairs of ranks take turns in an order
 * that is the same everywhere, so nobody waits in a circle. */
static zpp_rt_status move(communicator *self, const zpp_rt_exchange *exchange,
                          const uint8_t *input, uint8_t *output, int is_gather,
                          char *message, size_t message_bytes) {
  int64_t bytes = exchange->chunk_bytes, peer, i;
  for (peer = 0; peer < RANKS; ++peer)
    for (i = 0; i < exchange->num_members; ++i) {
      uint8_t *sent = (uint8_t *)input + (is_gather ? 0 : i * bytes);
      uint8_t *received = output + i * bytes;
      int socket = self->sockets[peer], goes_first = exchange->rank < peer;
      if (exchange->members[i] != peer)
        continue;
      if (peer == exchange->rank) {
        memcpy(received, sent, (size_t)bytes);
      } else if (!transfer(socket, goes_first ? sent : received, bytes,
                           goes_first) ||
                 !transfer(socket, goes_first ? received : sent, bytes,
                           !goes_first)) {
        snprintf(message, message_bytes, "%s: rank %d is gone", exchange->name,
                 (int)peer);
        return ZPP_RT_RANK_LOST;
      }
    }
  return ZPP_RT_OK;
}

static zpp_rt_status all_to_all(void *context, const zpp_rt_exchange *exchange,
                                const void *input, void *output, char *message,
                                size_t message_bytes) {
  return move(context, exchange, input, output, /*is_gather=*/0, message,
              message_bytes);
}

static zpp_rt_status all_gather(void *context, const zpp_rt_exchange *exchange,
                                const void *input, void *output, char *message,
                                size_t message_bytes) {
  return move(context, exchange, input, output, /*is_gather=*/1, message,
              message_bytes);
}

/*===----------------------------------------------------------------------===*\
|* What a rank does
\*===----------------------------------------------------------------------===*/

/* Statuses are sticky: one look at the end is enough. */
static void gather(zpp_rt_rank *rank, const float *mine, float *all) {
  static uint8_t sent[CHUNK_BYTES], received[RANKS * CHUNK_BYTES];
  const int64_t one_chunk = 0, ranks = RANKS;
  zpp_rt_axis axes[] = {{"node", 1, 2}, {"gpu", 1, 2}};
  zpp_rt_quantize_desc quantize = {.struct_size = sizeof(quantize)};
  zpp_rt_exchange_desc exchange = {.struct_size = sizeof(exchange)};
  zpp_rt_quantize_desc dequantize;

  /* All values are one chunk. */
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
  zpp_rt_dequantize(rank, &dequantize, received, all);
}

static int run(int index, communicator *communicator) {
  zpp_rt_exchanges exchanges = {.struct_size = sizeof(exchanges)};
  zpp_rt_world_desc world_desc = {.struct_size = sizeof(world_desc)};
  zpp_rt_rank_desc rank_desc = {.struct_size = sizeof(rank_desc)};
  static float mine[VALUES], all[RANKS * VALUES];
  char message[256];
  zpp_rt_world *world;
  zpp_rt_rank *rank;
  zpp_rt_status status;
  float worst = 0;
  int i;

  exchanges.all_to_all = all_to_all;
  exchanges.all_gather = all_gather;
  exchanges.context = communicator;
  world_desc.backend = "cpu";
  world_desc.mesh = "node:2,gpu:2";
  world_desc.exchanges = &exchanges;
  rank_desc.index = index;
  if (zpp_rt_world_create(&world_desc, &world, message, sizeof(message)) !=
          ZPP_RT_OK ||
      zpp_rt_rank_create(world, &rank_desc, &rank, message, sizeof(message)) !=
          ZPP_RT_OK) {
    fprintf(stderr, "rank %d: %s\n", index, message);
    return EXIT_FAILURE;
  }
  for (i = 0; i < VALUES; ++i)
    mine[i] = value_of(index, i);
  gather(rank, mine, all);
  status = zpp_rt_rank_synchronize(rank);
  if (status != ZPP_RT_OK)
    fprintf(stderr, "rank %d: %s\n", index, zpp_rt_rank_message(rank));
  zpp_rt_rank_destroy(rank);
  zpp_rt_world_destroy(world);

  for (i = 0; i < RANKS * VALUES; ++i) {
    float error = fabsf(all[i] - value_of(i / VALUES, i % VALUES));
    if (error > worst)
      worst = error;
  }
  printf("rank %d: %s, largest error %.4f\n", index, zpp_rt_status_name(status),
         worst);
  /* Half a step of the largest rank's blocks. */
  return status == ZPP_RT_OK && worst <= RANKS / 254.0f * 1.01f ? EXIT_SUCCESS
                                                                : EXIT_FAILURE;
}

int main(void) {
  communicator communicators[RANKS];
  int failed = 0, a, b, i;
  for (a = 0; a < RANKS; ++a)
    for (b = a + 1; b < RANKS; ++b) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return EXIT_FAILURE;
      communicators[a].sockets[b] = ends[0];
      communicators[b].sockets[a] = ends[1];
    }
  for (i = 0; i < RANKS; ++i) {
    pid_t child = fork();
    if (child < 0)
      return EXIT_FAILURE;
    if (child != 0)
      continue;
    /* Who waits for a rank that has ended must see the end. */
    for (a = 0; a < RANKS; ++a)
      for (b = 0; b < RANKS; ++b)
        if (a != i && b != a)
          close(communicators[a].sockets[b]);
    return run(i, &communicators[i]);
  }
  for (i = 0; i < RANKS; ++i) {
    int status;
    if (wait(&status) < 0)
      return EXIT_FAILURE;
    failed |= !WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS;
  }
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
