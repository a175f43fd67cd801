//===- Machine.cpp - The machine that a step runs on ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Machine.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/LineIterator.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace zpp;

StringRef zpp::getMachineWord(Operation *module, StringRef name) {
  auto words = module->getAttrOfType<DictionaryAttr>(kMachineAttr);
  auto word = words ? words.getAs<StringAttr>(name) : StringAttr();
  return word ? word.getValue() : StringRef();
}

/// Returns the speeds that `text` has or names a file with.
static FailureOr<std::string> readSpeeds(ModuleOp module, StringRef text) {
  if (text.contains('='))
    return text.str();
  auto emit = [&]() {
    return emitError(module.getLoc(), "in links '")
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
  std::string speeds;
  for (llvm::line_iterator line(**file); !line.is_at_end(); ++line) {
    StringRef rest = line->trim();
    if (rest.consume_front("links="))
      speeds = rest.str();
  }
  if (speeds.empty())
    return emit() << "none in this file";
  return speeds;
}

FailureOr<Machine> Machine::get(ModuleOp module) {
  if (!module->hasAttr(kMachineAttr))
    return Machine();
  std::string error;
  StringRef tiers = getMachineWord(module, "mesh");
  std::optional<Mesh> mesh = Mesh::parse(tiers.str(), error);
  if (!mesh)
    return emitError(module.getLoc(), "in the module's machine: ") << error;
  return read(module, *mesh, "", "");
}

FailureOr<Machine> Machine::read(ModuleOp module, const Mesh &mesh,
                                 StringRef links, StringRef device) {
  Machine machine;
  machine.meshWord = mesh.str();
  if (links.empty())
    links = getMachineWord(module, "links");
  if (!links.empty() && links != "none") {
    FailureOr<std::string> speeds = readSpeeds(module, links);
    if (failed(speeds))
      return failure();
    std::string error;
    machine.linksWord = *speeds;
    if (!LinkModel::parse(*speeds, mesh, error))
      return emitError(module.getLoc(), "in links '")
             << links << "': " << error;
  }
  if (device.empty())
    device = getMachineWord(module, "device");
  if (!device.empty()) {
    std::string error;
    machine.deviceWord = device.str();
    machine.device = DeviceModel::parse(device.str(), error);
    if (!machine.device)
      return emitError(module.getLoc(), error);
  }
  return machine;
}

void Machine::set(ModuleOp module) const {
  Builder builder(module.getContext());
  SmallVector<NamedAttribute> words;
  for (auto [name, word] : {std::pair("mesh", &meshWord),
                            {"links", &linksWord},
                            {"device", &deviceWord}})
    if (!word->empty())
      words.push_back(builder.getNamedAttr(name, builder.getStringAttr(*word)));
  module->setAttr(kMachineAttr, builder.getDictionaryAttr(words));
}

std::optional<LinkModel> Machine::findLinks(const Mesh &mesh) const {
  std::string error;
  return linksWord.empty() ? std::nullopt
                           : LinkModel::parse(linksWord, mesh, error);
}

LinkModel Machine::getLinks(const Mesh &mesh) const {
  return findLinks(mesh).value_or(LinkModel(mesh));
}

DeviceModel Machine::getDevice() const {
  return device.value_or(DeviceModel::getUsual());
}
