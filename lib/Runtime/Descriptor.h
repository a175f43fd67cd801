//===- Descriptor.h - Reading descriptors of any version --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_DESCRIPTOR_H
#define ZPP_LIB_RUNTIME_DESCRIPTOR_H

#include "Status.h"

#include <algorithm>
#include <cstring>

namespace zpp::rt {

/// The size of a descriptor in the first version of the interface. Specialized
/// for descriptors that have grown.
template <typename Desc> inline constexpr size_t kFirstSize = sizeof(Desc);

/// Copies a descriptor. Fields that the caller does not know are 0.
template <typename Desc> Status readDescriptor(const Desc *desc, Desc &copy) {
  if (!desc)
    return invalid(expected("a descriptor", "NULL"));
  // A caller that writes a negative number means no size.
  auto size = static_cast<int64_t>(desc->struct_size);
  if (size < static_cast<int64_t>(kFirstSize<Desc>))
    return invalid(expected(
        "a struct_size of at least " + std::to_string(kFirstSize<Desc>), size));
  copy = Desc{};
  std::memcpy(&copy, desc, std::min<size_t>(size, sizeof(Desc)));
  return {};
}

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_DESCRIPTOR_H
