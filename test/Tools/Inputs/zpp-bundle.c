/*===- zpp-bundle.c - Calls a bundle's host functions on all ranks --------===*\
|*
|* Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
\*===----------------------------------------------------------------------===*/

#include "zpp/Runtime/zpp_rt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, ROWS = 3, COLUMNS = 5, WORKSPACE = 4096 };

typedef void (*host_function)(zpp_rt_rank *rank, void *const *buffers);

static zpp_rt_world *world;
static host_function gather, scatter;
static float gathered[RANKS][RANKS * ROWS][COLUMNS];
static float scattered[RANKS][ROWS][COLUMNS];

static void *run(void *argument) {
  int index = *(int *)argument, i, j;
  zpp_rt_rank *rank;
  float slice[ROWS][COLUMNS];
  void *workspace, *buffers[3];
  if (zpp_rt_rank_create(world, index, -1, &rank, NULL, 0) != ZPP_RT_OK)
    return NULL;
  /* Multiples of 127 times a power of two are exact in i8. */
  for (i = 0; i < ROWS; ++i)
    for (j = 0; j < COLUMNS; ++j)
      slice[i][j] = 127.0f * (float)(1 << index);
  workspace = malloc(WORKSPACE);
  buffers[0] = slice;
  buffers[1] = gathered[index];
  buffers[2] = workspace;
  gather(rank, buffers);
  buffers[0] = gathered[index];
  buffers[1] = scattered[index];
  scatter(rank, buffers);
  if (zpp_rt_rank_synchronize(rank) != ZPP_RT_OK)
    printf("rank %d: %s\n", index, zpp_rt_rank_message(rank));
  free(workspace);
  zpp_rt_rank_destroy(rank);
  return NULL;
}

int main(int argc, char **argv) {
  zpp_rt_world_desc desc = {sizeof(desc)};
  pthread_t threads[RANKS];
  int indices[RANKS], i;
  void *library;
  if (argc != 2)
    return 1;
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s\n", dlerror());
    return 1;
  }
  *(void **)&gather = dlsym(library, "gather");
  *(void **)&scatter = dlsym(library, "scatter");
  desc.backend = "cpu";
  desc.mesh = "node:2,gpu:2";
  desc.time_limit_usec = 10000000;
  if (!gather || !scatter ||
      zpp_rt_world_create(&desc, &world, NULL, 0) != ZPP_RT_OK)
    return 1;
  for (i = 0; i < RANKS; ++i) {
    indices[i] = i;
    if (pthread_create(&threads[i], NULL, run, &indices[i]) != 0)
      return 1;
  }
  for (i = 0; i < RANKS; ++i)
    pthread_join(threads[i], NULL);
  zpp_rt_world_destroy(world);
  dlclose(library);
  for (i = 0; i < RANKS; ++i) {
    printf("rank %d: gathered %g %g %g %g scattered %g %g\n", i,
           gathered[i][0][0], gathered[i][ROWS][0], gathered[i][2 * ROWS][0],
           gathered[i][4 * ROWS - 1][COLUMNS - 1], scattered[i][0][0],
           scattered[i][ROWS - 1][COLUMNS - 1]);
    if (memcmp(gathered[i], gathered[0], sizeof(gathered[0])) != 0)
      return 1;
  }
  return 0;
}
