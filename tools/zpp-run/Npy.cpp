//===- Npy.cpp - Arrays in NumPy's file format ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Npy.h"

#include "Program.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace zpp;

static constexpr StringLiteral kMagic("\x93NUMPY");
/// Magic, version and the length of the header's text.
static constexpr size_t kPrefixBytes = 10;

std::string zpp::getNpyType(mlir::Type element) {
  if (element.isBF16())
    return "|V2";
  if (element.isInteger(1))
    return "|b1";
  int64_t bytes = getElementBytes(element);
  char kind = isa<mlir::FloatType>(element) ? 'f'
              : element.isUnsignedInteger() ? 'u'
                                            : 'i';
  return std::string(1, bytes == 1 ? '|' : '<') + kind + std::to_string(bytes);
}

static Error fail(StringRef path, const Twine &message) {
  return createStringError(path + ": " + message);
}

/// What follows 'KEY': in a header's text.
static StringRef getField(StringRef header, StringRef key) {
  auto [before, after] = header.split(("'" + key + "':").str());
  return after.ltrim();
}

Expected<NpyArray> zpp::readNpy(StringRef path) {
  auto file = MemoryBuffer::getFile(path, /*IsText=*/false,
                                    /*RequiresNullTerminator=*/false);
  if (!file)
    return fail(path, file.getError().message());
  StringRef content = (*file)->getBuffer();
  if (content.size() < kPrefixBytes || !content.starts_with(kMagic) ||
      content[6] != 1)
    return fail(path, "expected a .npy file of version 1");
  size_t length = support::endian::read16le(content.data() + 8);
  StringRef header = content.substr(kPrefixBytes, length);
  NpyArray array;
  array.type = getField(header, "descr").drop_front().split('\'').first.str();
  if (!getField(header, "fortran_order").starts_with("False"))
    return fail(path, "expected row-major order, but got column-major order");
  StringRef shape =
      getField(header, "shape").drop_while([](char c) { return c == '('; });
  int64_t elements = 1;
  for (StringRef size : split(shape.split(')').first, ',')) {
    if (size.trim().empty())
      continue;
    int64_t value;
    if (size.trim().getAsInteger(10, value) || value < 0 ||
        MulOverflow(elements, value, elements))
      return fail(path, "expected sizes, but got '" + size.trim() + "'");
    array.shape.push_back(value);
  }
  int64_t elementBytes;
  if (array.type.size() < 3 ||
      StringRef(array.type).drop_front(2).getAsInteger(10, elementBytes))
    return fail(path,
                "expected a plain element type, but got '" + array.type + "'");
  StringRef data = content.drop_front(kPrefixBytes + header.size());
  if (data.size() / elementBytes != static_cast<uint64_t>(elements))
    return fail(path, "expected " + Twine(elements) + " elements, but got " +
                          Twine(data.size() / elementBytes));
  array.data.assign(data.bytes_begin(), data.bytes_end());
  return array;
}

Error zpp::writeNpy(StringRef path, StringRef type, ArrayRef<int64_t> shape,
                    ArrayRef<std::vector<uint8_t>> parts) {
  std::string header =
      "{'descr': '" + type.str() + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : shape)
    header += std::to_string(size) + ",";
  header += "), }";
  header.resize(
      alignTo(kPrefixBytes + header.size() + 1, 64) - kPrefixBytes - 1, ' ');
  header += '\n';

  std::error_code error;
  raw_fd_ostream file(path, error);
  if (error)
    return fail(path, error.message());
  char length[2];
  support::endian::write16le(length, header.size());
  file << kMagic << '\1' << '\0' << StringRef(length, 2) << header;
  for (const std::vector<uint8_t> &part : parts)
    file.write(reinterpret_cast<const char *>(part.data()), part.size());
  file.close();
  if (file.has_error()) {
    std::string message = file.error().message();
    file.clear_error();
    return fail(path, message);
  }
  return Error::success();
}
