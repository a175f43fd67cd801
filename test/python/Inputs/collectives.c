/*===- collectives.c - What zpp-bundle makes, by hand ---------------------===*\
|*
|* Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
\*===----------------------------------------------------------------------===*/

/* Host functions for a mesh of 2 nodes x 4 devices: f32 in, f32 out. */

#include "zpp/Runtime/zpp_rt.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const zpp_rt_axis axes[] = {{"node", 1, 2}, {"gpu", 1, 4}};

static void gather(zpp_rt_rank *rank, const char *name,
                   const zpp_rt_axis *along, int64_t num_axes, int64_t elements,
                   const void *input, void *output) {
  zpp_rt_exchange_desc desc = {0};
  desc.struct_size = sizeof(desc);
  desc.name = name;
  desc.axes = along;
  desc.num_axes = num_axes;
  desc.chunk_bytes = elements * (int64_t)sizeof(float);
  zpp_rt_all_gather_chunks(rank, &desc, input, output);
}

/* 16 elements to 128. */
void gather_16(zpp_rt_rank *rank, void *const *buffers) {
  gather(rank, "model.py:16", axes, 2, 16, buffers[0], buffers[1]);
}

/* 32 elements to 256. */
void gather_32(zpp_rt_rank *rank, void *const *buffers) {
  gather(rank, "model.py:32", axes, 2, 32, buffers[0], buffers[1]);
}

/* The first in two hops, through a workspace of 64. */
void gather_16_by_hops(zpp_rt_rank *rank, void *const *buffers) {
  gather(rank, "model.py:16", axes + 1, 1, 16, buffers[0], buffers[2]);
  gather(rank, "model.py:16", axes, 1, 64, buffers[2], buffers[1]);
}

/* Two tensors of 16 elements each to 128, one of them empty. */
void gather_16_and_nothing(zpp_rt_rank *rank, void *const *buffers) {
  gather(rank, "model.py:16", axes, 2, 16, buffers[0], buffers[3]);
}

void do_nothing(zpp_rt_rank *rank, void *const *buffers) {
  (void)rank;
  (void)buffers;
}

/* Fails on the rank whose first element is 3. */
void fail_on_three(zpp_rt_rank *rank, void *const *buffers) {
  int64_t elements = *(const float *)buffers[0] == 3 ? -1 : 16;
  gather(rank, "broken.py:3", axes, 2, elements, buffers[0], buffers[1]);
}

static void sleep_usec(int64_t usec) {
  struct timespec time = {usec / 1000000, usec % 1000000 * 1000};
  nanosleep(&time, NULL);
}

/* The rank whose first element is 3 comes two seconds late. */
void late_on_three(zpp_rt_rank *rank, void *const *buffers) {
  if (*(const float *)buffers[0] == 3)
    sleep_usec(2000000);
  gather(rank, "late.py:3", axes, 2, 16, buffers[0], buffers[1]);
}

/* Runs until the file that the environment names is there: the program makes it
 * when all devices are past their starts. */
void gather_16_after_all(zpp_rt_rank *rank, void *const *buffers) {
  const char *path = getenv("ZPP_TEST_ALL_STARTED");
  int tries;
  for (tries = 0; tries < 3000 && access(path, F_OK) != 0; ++tries)
    sleep_usec(10000);
  if (tries == 3000)
    zpp_rt_rank_abort(rank, "not all devices came past their starts");
  gather(rank, "model.py:16", axes, 2, 16, buffers[0], buffers[1]);
}
