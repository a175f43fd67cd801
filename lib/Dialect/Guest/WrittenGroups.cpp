//===- WrittenGroups.cpp - Groups of collectives that are built -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/WrittenGroups.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace zpp;

void zpp::noteGroupMesh(ModuleOp module) {
  if (module->hasAttr(kGroupMeshAttr))
    return;
  module.walk([&](Operation *op) {
    std::optional<std::string> name = getGroupMeshName(op);
    if (!name || !lookupMesh(op, *name))
      return WalkResult::advance();
    module->setAttr(kGroupMeshAttr,
                    FlatSymbolRefAttr::get(module.getContext(), *name));
    return WalkResult::interrupt();
  });
}

static WrittenGroups listGroups(MLIRContext *context,
                                const ReplicaGroups &groups) {
  SmallVector<int64_t> ids;
  for (const std::vector<int64_t> &group : groups)
    llvm::append_range(ids, group);
  int64_t size = groups.front().size();
  auto type = RankedTensorType::get({static_cast<int64_t>(groups.size()), size},
                                    IntegerType::get(context, 64));
  return {DenseElementsAttr::get(type, ArrayRef(ids)), size};
}

/// Returns the mesh that `kGroupMeshAttr` names, if its devices are in order.
static std::optional<Mesh> getGroupMesh(ModuleOp module) {
  auto name = module ? module->getAttrOfType<FlatSymbolRefAttr>(kGroupMeshAttr)
                     : FlatSymbolRefAttr();
  // Of several replicas, ids are not those of the mesh.
  if (!name || getModuleCopies(module).replicas > 1)
    return std::nullopt;
  std::optional<ModuleMesh> mesh = lookupMesh(module, name.getValue());
  if (!mesh || !mesh->devices.empty())
    return std::nullopt;
  return std::move(mesh->mesh);
}

static WrittenGroups nameGroups(ModuleOp module, const Mesh &mesh,
                                const std::vector<AxisRef> &refs) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "#stablehlo.replica_group_mesh_axes<mesh = "
     << module->getAttr(kGroupMeshAttr) << ", axes = [";
  llvm::interleaveComma(refs, os, [&](const AxisRef &ref) {
    os << "#stablehlo.axis_ref<name = "
       << StringAttr::get(module.getContext(), ref.name);
    if (mesh.getAxes()[mesh.findAxis(ref.name)].size != ref.size)
      os << ", sub_axis_info = (" << ref.preSize << ")" << ref.size;
    os << ">";
  });
  os << "]>";
  Attribute attr = parseAttribute(text, module.getContext());
  assert(attr && "expected the stablehlo dialect or its guest");
  return {attr, numDevices(refs)};
}

WrittenGroups zpp::writeGroups(ModuleOp module, const ReplicaGroups &groups) {
  std::string error;
  if (std::optional<Mesh> mesh = getGroupMesh(module))
    if (std::optional<std::vector<AxisRef>> refs =
            mesh->factorGroups(groups, error))
      return nameGroups(module, *mesh, *refs);
  return listGroups(module.getContext(), groups);
}

WrittenGroups zpp::writeGroups(ModuleOp module, const Mesh &mesh,
                               const std::vector<AxisRef> &refs) {
  if (std::optional<Mesh> named = getGroupMesh(module))
    if (std::optional<std::vector<AxisRef>> there =
            findRefs(mesh, refs, *named))
      return nameGroups(module, *named, *there);
  return listGroups(module.getContext(), mesh.getGroups(refs));
}

void zpp::listReplicaGroups(Operation *op, const ModuleMesh &mesh) {
  std::optional<std::string> name = getGroupMeshName(op);
  std::optional<ModuleMesh> own = name ? lookupMesh(op, *name) : std::nullopt;
  if (!own || (own->mesh.getAxes() == mesh.mesh.getAxes() &&
               own->devices == mesh.devices))
    return;
  std::string error;
  std::optional<ReplicaGroups> groups = readReplicaGroups(op, error);
  if (groups && !groups->empty())
    op->setAttr("replica_groups", listGroups(op->getContext(), *groups).attr);
}

/// Adds what follows each `@` of a text, which may be that of a guest's
/// attribute.
static void addNames(StringRef text, llvm::StringSet<> &names) {
  for (text = text.split('@').second; !text.empty();
       text = text.split('@').second)
    names.insert(text.consume_front("\"")
                     ? text.take_until([](char c) { return c == '"'; })
                     : text.take_while([](char c) {
                         return llvm::isAlnum(c) ||
                                StringRef("_$.").contains(c);
                       }));
}

void zpp::dropUnusedMeshes(ModuleOp module) {
  llvm::StringSet<> names;
  AttrTypeWalker walker;
  walker.addWalk([&](StringAttr text) { addNames(text, names); });
  walker.addWalk([&](OpaqueAttr attr) { addNames(attr.getAttrData(), names); });
  walker.addWalk([&](SymbolRefAttr ref) {
    names.insert(ref.getRootReference().getValue());
  });
  module.walk([&](Operation *op) {
    walker.walk(op->getDiscardableAttrDictionary());
    if (Attribute properties = op->getPropertiesAsAttribute())
      walker.walk(properties);
  });
  SmallVector<Operation *> unused;
  bool isAnyUsed = false;
  for (Operation &op : *module.getBody()) {
    auto name = op.getAttrOfType<StringAttr>("sym_name");
    if (op.getName().getStringRef() != "sdy.mesh" || !name)
      continue;
    if (names.contains(name.getValue()))
      isAnyUsed = true;
    else
      unused.push_back(&op);
  }
  for (Operation *op : unused)
    // Where JAX finds meshes, it asks for this one by name.
    if (!isAnyUsed ||
        op->getAttrOfType<StringAttr>("sym_name").getValue() != "mesh")
      op->erase();
}

bool zpp::isLongGroupList(Attribute attr) {
  constexpr int64_t kLong = 256;
  auto groups = dyn_cast_or_null<DenseIntElementsAttr>(attr);
  return groups && groups.getNumElements() >= kLong && !groups.isSplat() &&
         groups.getType().getRank() == 2 &&
         groups.getElementType().isInteger(64);
}

void zpp::noteGroupLists(ModuleOp module) {
  llvm::SetVector<Attribute> lists;
  module.walk([&](Operation *op) {
    if (Attribute groups = op->getAttr("replica_groups"))
      if (isLongGroupList(groups))
        lists.insert(groups);
  });
  module->removeAttr(kGroupListsAttr);
  if (!lists.empty())
    module->setAttr(kGroupListsAttr,
                    ArrayAttr::get(module.getContext(), lists.getArrayRef()));
}
