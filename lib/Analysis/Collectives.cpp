//===- Collectives.cpp - Collectives of all dialects ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Collectives.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp;

StringRef zpp::getKindName(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::AllGather:
    return "all_gather";
  case CollectiveKind::ReduceScatter:
    return "reduce_scatter";
  case CollectiveKind::AllReduce:
    return "all_reduce";
  case CollectiveKind::AllToAll:
    return "all_to_all";
  case CollectiveKind::CollectivePermute:
    return "collective_permute";
  case CollectiveKind::CollectiveBroadcast:
    return "collective_broadcast";
  }
  llvm_unreachable("unknown collective");
}

bool zpp::isCollective(Operation *op) {
  return isa<zero::CollectiveOpInterface>(op) ||
         (op->getNumOperands() > 0 && getGuestCollective(op));
}

//===----------------------------------------------------------------------===//
// The mesh of a step
//===----------------------------------------------------------------------===//

/// If `mesh` has the axes of the module's mesh in another order, these axes of
/// the module's mesh; otherwise nullopt. In another order, the names would
/// stand for other links.
static std::optional<Mesh> getReordered(ModuleOp module, const Mesh &mesh) {
  for (Operation &op : module.getOps()) {
    std::optional<ModuleMesh> own = getModuleMesh(&op);
    if (!own || own->mesh.getAxes() == mesh.getAxes())
      continue;
    if (std::is_permutation(own->mesh.getAxes().begin(),
                            own->mesh.getAxes().end(), mesh.getAxes().begin(),
                            mesh.getAxes().end()))
      return own->mesh;
  }
  return std::nullopt;
}

FailureOr<Mesh> zpp::getStepMesh(ModuleOp module, StringRef spec) {
  // Errors are emitted at the location, because an error at the module prints
  // all of it.
  std::optional<int64_t> devices = getNumDevices(module);
  // A rewritten module records its tiers.
  auto rewritten = module->getAttrOfType<StringAttr>(kMeshAttr);
  if (rewritten && !spec.empty() && spec != rewritten.getValue())
    return emitError(module.getLoc(), "expected the mesh of the rewrite, ")
           << rewritten << ", but got '" << spec << "'";
  if (rewritten)
    spec = rewritten.getValue();
  if (!spec.empty()) {
    std::string error;
    std::optional<Mesh> mesh = Mesh::parse(spec.str(), error);
    if (!mesh)
      return emitError(module.getLoc(), "in mesh '") << spec << "': " << error;
    if (mesh->numDevices() > kMaxDevices)
      return emitError(module.getLoc(), "expected a mesh of at most ")
             << kMaxDevices << " devices, but got '" << spec << "' of "
             << mesh->numDevices();
    if (devices && *devices != mesh->numDevices())
      return emitError(module.getLoc(), "expected a mesh of ")
             << *devices << " devices, on which the module runs, but got '"
             << spec << "' of " << mesh->numDevices();
    if (std::optional<Mesh> own = getReordered(module, *mesh))
      return emitError(module.getLoc(), "expected axes in the order of the "
                                        "module's mesh, '")
             << own->str() << "', but got '" << spec << "'";
    return *mesh;
  }
  for (Operation &op : module.getOps()) {
    std::optional<ModuleMesh> mesh = getModuleMesh(&op);
    if (!mesh || mesh->mesh.numDevices() == 1)
      continue;
    if (mesh->mesh.getAxes().size() < 2)
      return op.emitError("expected a mesh of at least 2 tiers, but got '")
             << mesh->mesh.str()
             << "'; name the tiers from slowest to fastest with "
                "mesh=node:N,gpu:M";
    std::string error;
    if (!Mesh::parse(mesh->mesh.str(), error))
      return op.emitError("in the module's mesh: ")
             << error
             << "; name the tiers from slowest to fastest with "
                "mesh=node:N,gpu:M";
    return mesh->mesh;
  }
  return emitError(module.getLoc(),
                   "expected a mesh, but the module has none; name the "
                   "tiers from slowest to fastest with "
                   "mesh=node:N,gpu:M");
}

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

static std::optional<CollectiveView> getZeroCollective(Operation *op,
                                                       const Mesh &mesh) {
  auto collective = dyn_cast<zero::CollectiveOpInterface>(op);
  if (!collective)
    return std::nullopt;
  CollectiveView view;
  view.op = op;
  // On another mesh, the same name stands for another axis.
  Mesh own = collective.getMeshAttr().getMesh();
  if (own.getAxes() == mesh.getAxes())
    llvm::append_range(view.axes, collective.getAxisRefs());
  else
    view.groupError = "expected an op on the mesh '" + mesh.str() +
                      "', but got one on '" + own.str() + "'";
  if (isa<zero::ReduceScatterOp>(op))
    view.kind = CollectiveKind::ReduceScatter;
  else if (isa<zero::AllReduceOp>(op))
    view.kind = CollectiveKind::AllReduce;
  else if (isa<zero::AllToAllOp>(op))
    view.kind = CollectiveKind::AllToAll;
  return view;
}

const CollectiveReader::GroupAxes &
CollectiveReader::readGroups(Operation *op, CollectiveKind kind) {
  auto [it, isNew] = known.try_emplace(getReplicaGroupsKey(op));
  GroupAxes &result = it->second;
  if (!isNew)
    return result;
  std::optional<ReplicaGroups> groups = readReplicaGroups(op, result.error);
  if (!groups)
    return result;
  // The order within a group does not matter for an all-reduce.
  if (kind == CollectiveKind::AllReduce)
    for (std::vector<int64_t> &group : *groups)
      llvm::sort(group);
  if (std::optional<std::vector<AxisRef>> axes =
          mesh.factorGroups(*groups, result.error))
    result.axes = std::move(*axes);
  return result;
}

std::optional<CollectiveView> CollectiveReader::read(Operation *op) {
  if (std::optional<CollectiveView> view = getZeroCollective(op, mesh))
    return view;
  std::optional<CollectiveKind> kind = getGuestCollective(op);
  if (!kind || op->getNumOperands() == 0)
    return std::nullopt;
  CollectiveView view;
  view.op = op;
  view.kind = *kind;
  view.dim = getCollectiveDim(op);
  if (*kind == CollectiveKind::CollectivePermute) {
    view.groupError = "it has source-target pairs instead of groups";
    return view;
  }
  const GroupAxes &group = readGroups(op, *kind);
  view.axes = group.axes;
  view.groupError = group.error;
  return view;
}

std::optional<CollectiveView> zpp::getCollective(Operation *op,
                                                 const Mesh &mesh) {
  return CollectiveReader(mesh).read(op);
}

std::vector<int64_t> CollectiveView::getSentBytes(const Mesh &mesh) const {
  size_t numAxes = mesh.getAxes().size();
  if (kind == CollectiveKind::CollectivePermute) {
    // Each pair sends over the slowest axis in which its devices differ. A tier
    // counts the bytes of the busiest device.
    std::vector<int64_t> sent(numAxes, 0);
    auto pairs = op->getAttrOfType<DenseIntElementsAttr>("source_target_pairs");
    if (!pairs)
      return sent;
    SmallVector<int64_t> devices =
        llvm::map_to_vector(pairs.getValues<APInt>(), [](const APInt &value) {
          return value.getSExtValue();
        });
    for (size_t i = 0; i + 1 < devices.size(); i += 2)
      for (size_t axis = 0; axis < numAxes; ++axis) {
        AxisRef ref = mesh.getAxis(axis);
        if (mesh.getCoordinate(devices[i], ref) ==
            mesh.getCoordinate(devices[i + 1], ref))
          continue;
        sent[axis] = getBytes(op->getOperand(0).getType());
        break;
      }
    return sent;
  }
  std::vector<int64_t> total(numAxes, 0);
  auto add = [&](int64_t bytes) {
    std::vector<int64_t> sent = zpp::getSentBytes(mesh, kind, axes, bytes);
    for (auto [sum, part] : llvm::zip_equal(total, sent))
      sum = addSaturating(sum, part);
  };
  if (axes.empty())
    return total;
  if (isa<zero::CollectiveOpInterface>(op)) {
    int64_t bytes = getBytes(op->getOperand(0).getType());
    bool isSplit = kind == CollectiveKind::ReduceScatter ||
                   kind == CollectiveKind::AllToAll;
    add(isSplit ? bytes / zpp::numDevices(axes) : bytes);
    return total;
  }
  for (Value operand : op->getOperands()) {
    int64_t bytes = getBytes(operand.getType());
    bool isSplit = kind == CollectiveKind::ReduceScatter ||
                   kind == CollectiveKind::AllToAll;
    add(isSplit ? bytes / zpp::numDevices(axes) : bytes);
  }
  return total;
}
