//===- Descriptor.h - Reading descriptors -----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_DESCRIPTOR_H
#define ZPP_LIB_RUNTIME_DESCRIPTOR_H

#include "Status.h"

#include <string>

namespace zpp::rt {

/// Copies a descriptor, without fields that only the caller knows.
template <typename Desc> Status readDescriptor(const Desc *desc, Desc &copy) {
  if (!desc)
    return invalid(expected("a descriptor", "NULL"));
  // A caller that writes a negative number means no size.
  auto size = static_cast<int64_t>(desc->struct_size);
  if (size < static_cast<int64_t>(sizeof(Desc)))
    return invalid(expected(
        "a struct_size of at least " + std::to_string(sizeof(Desc)), size));
  copy = *desc;
  return {};
}

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_DESCRIPTOR_H
