//===- Npy.cpp - Arrays in NumPy's file format ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Npy.h"

#include "zpp/Support/OutputFile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace zpp;

static constexpr StringLiteral kMagic("\x93NUMPY");
/// The magic bytes, the version, and the length of the header's text.
static constexpr size_t kPrefixBytes = 10;

std::string zpp::getNpyType(mlir::Type element) {
  if (element.isBF16())
    return "|V2";
  if (element.isInteger(1))
    return "|b1";
  int64_t bytes = element.getIntOrFloatBitWidth() / 8;
  char kind = isa<mlir::FloatType>(element) ? 'f'
              : element.isUnsignedInteger() ? 'u'
                                            : 'i';
  return std::string(1, bytes == 1 ? '|' : '<') + kind + std::to_string(bytes);
}

static Error fail(StringRef path, const Twine &message) {
  return createStringError(path + ": " + message);
}

namespace {
/// Parses the text of a header, which is a dict in Python's syntax:
///   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class Header {
public:
  Header(StringRef path, StringRef text) : path(path), text(text) {}

  Expected<std::string> getType() const {
    Expected<StringRef> value = getField("descr");
    if (!value)
      return value.takeError();
    StringRef type = *value;
    if (!type.consume_front("'"))
      return fail(path, "expected a plain element type, but got " +
                            type.split(", '").first);
    return type.split('\'').first.str();
  }

  Error checkOrder() const {
    Expected<StringRef> value = getField("fortran_order");
    if (!value)
      return value.takeError();
    if (value->starts_with("False"))
      return Error::success();
    if (value->starts_with("True"))
      return fail(path, "expected row-major order, but got column-major order");
    return fail(path, "expected False as 'fortran_order', but got '" +
                          value->split(',').first + "'");
  }

  Expected<SmallVector<int64_t>> getShape() const {
    Expected<StringRef> value = getField("shape");
    if (!value)
      return value.takeError();
    auto [sizes, after] = value->split(')');
    if (!sizes.consume_front("(") || after.empty())
      return fail(path, "expected (SIZE, ...) as 'shape', but got '" +
                            value->rtrim() + "'");
    SmallVector<int64_t> shape;
    for (StringRef size : split(sizes, ',')) {
      if (size.trim().empty())
        continue;
      int64_t number;
      if (size.trim().getAsInteger(10, number) || number < 0)
        return fail(path, "expected sizes, but got '" + size.trim() + "'");
      shape.push_back(number);
    }
    return shape;
  }

private:
  /// Returns the text after 'KEY':.
  Expected<StringRef> getField(StringRef key) const {
    std::string start = ("'" + key + "':").str();
    size_t position = text.find(start);
    if (position == StringRef::npos)
      return fail(path, "expected '" + key + "' in the header, but got none");
    return text.drop_front(position + start.size()).ltrim();
  }

  StringRef path;
  StringRef text;
};
} // namespace

/// Returns the bytes of an element, 4 for '<f4'; 0 for a type that is not plain
/// numbers or has no bytes.
static uint64_t getBytesOfType(StringRef type) {
  uint64_t bytes;
  if (type.size() < 3 || !StringRef("biufV").contains(type[1]) ||
      type.drop_front(2).getAsInteger(10, bytes))
    return 0;
  return bytes;
}

Expected<NpyArray> zpp::readNpy(StringRef path) {
  auto file = MemoryBuffer::getFile(path, /*IsText=*/false,
                                    /*RequiresNullTerminator=*/false);
  if (!file)
    return fail(path, file.getError().message());
  return parseNpy(path, (*file)->getBuffer());
}

Expected<NpyArray> zpp::parseNpy(StringRef path, StringRef content) {
  if (!content.starts_with(kMagic))
    return fail(path,
                "expected a .npy file of version 1, but got another format");
  if (content.size() < kPrefixBytes)
    return fail(path, "expected a header, but the file ends after " +
                          Twine(content.size()) + " bytes");
  if (content[6] != 1)
    return fail(path,
                "expected a .npy file of version 1, but got version " +
                    Twine(static_cast<unsigned>(content.bytes_begin()[6])));
  size_t length = support::endian::read16le(content.data() + 8);
  StringRef text = content.substr(kPrefixBytes, length);
  if (text.size() < length)
    return fail(path, "expected a header of " + Twine(length) +
                          " bytes, but got " + Twine(text.size()));
  Header header(path, text);
  NpyArray array;
  if (Error error = header.getType().moveInto(array.type))
    return error;
  if (Error error = header.checkOrder())
    return error;
  if (Error error = header.getShape().moveInto(array.shape))
    return error;
  uint64_t bytes = getBytesOfType(array.type);
  if (bytes == 0)
    return fail(path,
                "expected a plain element type, but got '" + array.type + "'");
  for (uint64_t size : array.shape)
    bytes = SaturatingMultiply(bytes, size);
  StringRef data = content.drop_front(kPrefixBytes + length);
  if (data.size() != bytes)
    return fail(path, "expected " + Twine(bytes) +
                          " bytes of elements, but "
                          "got " +
                          Twine(data.size()));
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

  char length[2];
  support::endian::write16le(length, header.size());
  std::string begin =
      (kMagic + StringRef("\1\0", 2) + StringRef(length, 2)).str();
  std::vector<std::string_view> content{begin, header};
  for (const std::vector<uint8_t> &part : parts)
    content.emplace_back(reinterpret_cast<const char *>(part.data()),
                         part.size());
  std::string cause = writeFile(path.str(), content);
  return cause.empty() ? Error::success() : fail(path, cause);
}
