//===- FormatOptions.cpp - Wire formats as pass options -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "Schedule/Overlap/Plan.h"
#include "zpp/Support/Limits.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/LineIterator.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

FailureOr<QuantAttr> zpp::parseFormat(Operation *op, StringRef format,
                                      int64_t block, int64_t rotate) {
  // Errors are emitted at the location, because an error at an op, here a
  // module, prints the whole op.
  if (format == "none")
    return QuantAttr();
  std::optional<WireFormatKind> kind = symbolizeWireFormatKind(format);
  if (!kind)
    return emitError(op->getLoc(),
                     "expected a format none, i8 or i4, but got '")
           << format << "'";
  QuantAttr quant =
      QuantAttr::getChecked([&] { return emitError(op->getLoc()); },
                            op->getContext(), *kind, block, rotate);
  if (!quant)
    return failure();
  return quant;
}

FailureOr<SmallVector<QuantAttr>> zpp::parseFormats(Operation *op,
                                                    StringRef formats,
                                                    int64_t block,
                                                    int64_t rotate) {
  SmallVector<StringRef> names;
  formats.split(names, ':');
  SmallVector<QuantAttr> quants;
  for (StringRef name : names) {
    FailureOr<QuantAttr> quant = parseFormat(op, name, block, rotate);
    if (failed(quant))
      return failure();
    quants.push_back(*quant);
  }
  return quants;
}

bool zpp::hasFormat(ArrayRef<QuantAttr> quants) {
  return llvm::any_of(quants,
                      [](QuantAttr quant) { return static_cast<bool>(quant); });
}

LogicalResult zpp::checkStages(Operation *op, int64_t stages) {
  if (stages >= 0 && stages <= kMaxStages)
    return success();
  return emitError(op->getLoc(), "expected 1 to ")
         << kMaxStages << " stages, or 0 to choose, but got " << stages;
}

LogicalResult LinksOption::read() {
  if (text.contains('='))
    speeds = text.str();
  if (!speeds.empty())
    return success();
  auto emit = [&]() {
    return emitError(op->getLoc(), "in links '")
           << text << "': expected TIER=NUMBERgbit,... or a file with a line "
           << "'links=TIER=NUMBERgbit,...', but got ";
  };
  // A device such as /dev/zero has no end.
  llvm::sys::fs::file_status status;
  if (!llvm::sys::fs::status(text, status) &&
      (status.type() == llvm::sys::fs::file_type::character_file ||
       status.type() == llvm::sys::fs::file_type::block_file))
    return emit() << "a device";
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file =
      llvm::MemoryBuffer::getFile(text, /*IsText=*/true);
  if (!file)
    return emit() << "'" << file.getError().message() << "'";
  for (llvm::line_iterator line(**file); !line.is_at_end(); ++line) {
    StringRef rest = line->trim();
    if (rest.consume_front("links="))
      speeds = rest.str();
  }
  if (speeds.empty())
    return emit() << "none in this file";
  return success();
}

FailureOr<std::optional<LinkModel>> LinksOption::getModel(const Mesh &mesh) {
  if (text.empty() || text == "none")
    return std::optional<LinkModel>();
  auto found = models.find(mesh.str());
  if (found != models.end())
    return std::optional<LinkModel>(found->second);
  if (failed(read()))
    return failure();
  std::string error;
  std::optional<LinkModel> model = LinkModel::parse(speeds, mesh, error);
  if (!model)
    return emitError(op->getLoc(), "in links '") << text << "': " << error;
  models.try_emplace(mesh.str(), *model);
  return model;
}

LogicalResult zpp::verifyPrefetchBytes(Operation *op, int64_t bytes) {
  if (bytes >= 0 || bytes == kChooseBudget)
    return success();
  return emitError(op->getLoc(),
                   "expected a number of bytes to prefetch, but got ")
         << bytes;
}
