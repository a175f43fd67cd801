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
  void *parts[2], *whole, *workspace, *buffers[3];
  char message[512];
  zpp_rt_rank_desc desc = {sizeof(desc), index, -1};
  if (zpp_rt_rank_create(world, &desc, &rank, message, sizeof(message)) !=
      ZPP_RT_OK) {
    printf("rank %d: %s\n", index, message);
    return NULL;
  }
  /* Multiples of 127 times a power of two are exact in i8. */
  for (i = 0; i < ROWS; ++i)
    for (j = 0; j < COLUMNS; ++j)
      slice[i][j] = 127.0f * (float)(1 << index);
  /* Errors are sticky: one look at the end sees them all. */
  zpp_rt_alloc(rank, sizeof(slice), &parts[0]);
  zpp_rt_alloc(rank, sizeof(slice), &parts[1]);
  zpp_rt_alloc(rank, sizeof(gathered[0]), &whole);
  zpp_rt_alloc(rank, WORKSPACE, &workspace);
  zpp_rt_copy(rank, parts[0], slice, sizeof(slice));
  buffers[0] = parts[0];
  buffers[1] = whole;
  buffers[2] = workspace;
  gather(rank, buffers);
  buffers[0] = whole;
  buffers[1] = parts[1];
  scatter(rank, buffers);
  zpp_rt_copy(rank, gathered[index], whole, sizeof(gathered[0]));
  zpp_rt_copy(rank, scattered[index], parts[1], sizeof(slice));
  if (zpp_rt_rank_synchronize(rank) != ZPP_RT_OK)
    printf("rank %d: %s\n", index, zpp_rt_rank_message(rank));
  zpp_rt_rank_destroy(rank);
  return NULL;
}

/* Takes the library and the back end. */
int main(int argc, char **argv) {
  zpp_rt_world_desc desc = {sizeof(desc)};
  pthread_t threads[RANKS];
  int indices[RANKS], i;
  void *library;
  if (argc != 3)
    return 1;
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s\n", dlerror());
    return 1;
  }
  *(void **)&gather = dlsym(library, "gather");
  *(void **)&scatter = dlsym(library, "scatter");
  desc.backend = argv[2];
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
