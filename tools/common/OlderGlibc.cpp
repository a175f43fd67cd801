//===- OlderGlibc.cpp - Functions that older systems lack -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The functions of glibc 2.35 and 2.36 that the static libstdc++ and libgcc of
// newer systems call. A program that defines them also starts with glibc 2.34.
// They are hidden: other libraries of the process keep those of their glibc.
//
//===----------------------------------------------------------------------===//

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

// What is linked with an older glibc does not call them.
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 36)

#define ZPP_HIDDEN extern "C" __attribute__((visibility("hidden")))

//===----------------------------------------------------------------------===//
// Random numbers
//===----------------------------------------------------------------------===//

/// Returns 32 random bits of the kernel. Ends the program where there are none.
ZPP_HIDDEN uint32_t arc4random() noexcept {
  uint32_t number;
  ssize_t count;
  do
    count = getrandom(&number, sizeof(number), /*flags=*/0);
  while (count < 0 && errno == EINTR);
  // As in glibc: without a source of random numbers, no program goes on. The
  // kernel gives all or none of so few bytes.
  if (count != sizeof(number))
    std::abort();
  return number;
}

//===----------------------------------------------------------------------===//
// Unwinding
//===----------------------------------------------------------------------===//

namespace {
/// The address that is looked for, and what has been found of it.
struct Search {
  uintptr_t address;
  dl_find_object found;
  bool hasFrames = false;
};
} // namespace

/// Whether `info` is the object of the search. Fills it in.
static int visit(dl_phdr_info *info, size_t, void *data) {
  auto &search = *static_cast<Search *>(data);
  uintptr_t begin = UINTPTR_MAX, end = 0, table = 0;
  bool contains = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto &segment = info->dlpi_phdr[i];
    uintptr_t address = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_EH_FRAME)
      table = address;
    if (segment.p_type != PT_LOAD)
      continue;
    begin = std::min(begin, address);
    end = std::max(end, address + segment.p_memsz);
    contains |=
        search.address >= address && search.address - address < segment.p_memsz;
  }
  if (!contains)
    return 0;
  search.found.dlfo_map_start = reinterpret_cast<void *>(begin);
  search.found.dlfo_map_end = reinterpret_cast<void *>(end);
  search.found.dlfo_eh_frame = reinterpret_cast<void *>(table);
  search.hasFrames = table != 0;
  return 1;
}

/// Finds the loaded object with code or data at `address`. Returns 0, or -1 if
/// there is none, or one without a table for unwinding. Leaves dlfo_link_map
/// null, which unwinding does not need.
ZPP_HIDDEN int _dl_find_object(void *address, dl_find_object *result) noexcept {
  // As libgcc itself did before glibc had the function.
  Search search{reinterpret_cast<uintptr_t>(address), {}};
  if (dl_iterate_phdr(visit, &search) == 0 || !search.hasFrames)
    return -1;
  *result = search.found;
  return 0;
}

#endif
