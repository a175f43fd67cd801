//===- Collectives.cpp - Collectives of all dialects ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Collectives.h"
#include "zpp/Analysis/Machine.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

StringRef zpp::getKindName(CollectiveKind kind) {
  static constexpr llvm::StringLiteral names[] = {
      "all_gather", "reduce_scatter",     "all_reduce",
      "all_to_all", "collective_permute", "collective_broadcast"};
  return names[static_cast<unsigned>(kind)];
}

bool zpp::isCollective(Operation *op) {
  return isa<zero::CollectiveOpInterface>(op) ||
         (op->getNumOperands() > 0 && getGuestCollective(op));
}

//===----------------------------------------------------------------------===//
// The mesh of a step
//===----------------------------------------------------------------------===//

/// Returns the mesh of a module as a grid of device ids; nullopt if its ids do
/// not form one.
static std::optional<Mesh> getGrid(const ModuleMesh &own) {
  // Nobody has verified the op: two axes may have one name.
  llvm::StringSet<> names;
  for (const MeshAxis &axis : own.mesh.getAxes())
    if (!names.insert(axis.name).second)
      return std::nullopt;
  if (own.devices.empty())
    return own.mesh;
  std::vector<int64_t> strides;
  for (size_t axis = 0; axis < own.mesh.getAxes().size(); ++axis) {
    int64_t neighbor = own.mesh.getStride(own.mesh.getAxis(axis));
    strides.push_back(own.mesh.getAxes()[axis].size > 1
                          ? own.devices[neighbor] - own.devices[0]
                          : 1);
  }
  std::string error;
  std::optional<Mesh> grid =
      Mesh::get(own.mesh.getAxes(), std::move(strides), error);
  if (!grid)
    return std::nullopt;
  for (auto [position, device] : llvm::enumerate(own.devices))
    for (size_t axis = 0; axis < own.mesh.getAxes().size(); ++axis) {
      AxisRef ref = own.mesh.getAxis(axis);
      if (own.mesh.getCoordinate(position, ref) !=
          grid->getCoordinate(device, ref))
        return std::nullopt;
    }
  return grid;
}

namespace {
/// Devices at equal distances: a tier, an axis, or several axes that follow
/// each other.
struct Run {
  int64_t stride;
  int64_t size;

  bool contains(const Run &other) const {
    return other.stride >= stride && other.stride * other.size <= stride * size;
  }
};
} // namespace

static Run getRun(const Mesh &mesh, size_t axis) {
  return {mesh.getStride(mesh.getAxis(axis)), mesh.getAxes()[axis].size};
}

/// The strides of those tiers of `mesh` that have none yet, which is 0: they
/// take the axes of `own` that are not in `taken`, in the order of its devices.
/// Returns the tier that does not fit, or nullopt.
static std::optional<size_t> placeRest(const Mesh &mesh, const Mesh &own,
                                       const llvm::SmallSet<size_t, 4> &taken,
                                       std::vector<int64_t> &strides) {
  SmallVector<Run> runs;
  for (size_t axis : own.getOrder()) {
    if (taken.contains(axis))
      continue;
    Run run = getRun(own, axis);
    if (!runs.empty() && runs.back().stride * runs.back().size == run.stride)
      runs.back().size *= run.size;
    else
      runs.push_back(run);
  }
  auto run = runs.begin();
  for (size_t tier = strides.size(); tier-- > 0;) {
    int64_t size = mesh.getAxes()[tier].size;
    if (strides[tier] != 0)
      continue;
    if (size == 1) {
      strides[tier] = 1;
      continue;
    }
    while (run != runs.end() && run->size == 1)
      ++run;
    if (run == runs.end() || run->size % size != 0)
      return tier;
    strides[tier] = run->stride;
    *run = {run->stride * size, run->size / size};
  }
  return std::nullopt;
}

/// The tiers `mesh`, which were named without strides, on the devices of a
/// module with the mesh `own`. A tier with the name of an axis is that axis or
/// a part of it; others take the devices in their order. Emits an error if a
/// tier has the name of an axis but not its size.
static FailureOr<Mesh> matchNames(Location loc, const Mesh &mesh,
                                  const Mesh &own) {
  SmallVector<std::pair<size_t, size_t>> named;
  bool isPlaced = true;
  for (size_t tier = 0; tier < mesh.getAxes().size(); ++tier) {
    int64_t axis = own.findAxis(mesh.getAxes()[tier].name);
    if (axis < 0 || mesh.getAxes()[tier].size == 1)
      continue;
    named.push_back({tier, axis});
    isPlaced &= getRun(own, axis).contains(getRun(mesh, tier));
  }
  if (isPlaced)
    return mesh;
  std::vector<int64_t> strides(mesh.getAxes().size(), 0);
  llvm::SmallSet<size_t, 4> taken;
  for (auto [tier, axis] : named) {
    if (mesh.getAxes()[tier].size != own.getAxes()[axis].size)
      return emitError(loc, "expected '")
             << own.getAxes()[axis].name << ':' << own.getAxes()[axis].size
             << "', an axis of the module's mesh '" << own.str()
             << "', but got '" << mesh.getAxes()[tier].name << ':'
             << mesh.getAxes()[tier].size << "' in '" << mesh.str()
             << "'; a tier that is no axis needs another name";
    strides[tier] = getRun(own, axis).stride;
    taken.insert(axis);
  }
  if (std::optional<size_t> tier = placeRest(mesh, own, taken, strides))
    return emitError(loc, "expected a size of tier '")
           << mesh.getAxes()[*tier].name
           << "' that divides the other axes of the module's mesh '"
           << own.str() << "', but got '" << mesh.str() << "'";
  std::string error;
  std::optional<Mesh> result =
      Mesh::get(mesh.getAxes(), std::move(strides), error);
  if (!result)
    return emitError(loc, "in mesh '") << mesh.str() << "': " << error;
  return *result;
}

/// The mesh `spec`, which must have the devices on which `module` runs. Errors
/// are emitted at the location, because an error at the module prints all of
/// it.
static FailureOr<Mesh> parseMesh(ModuleOp module, StringRef spec) {
  Location loc = module.getLoc();
  std::string error;
  std::optional<Mesh> mesh = Mesh::parse(spec.str(), error);
  if (!mesh)
    return emitError(loc, "in mesh '") << spec << "': " << error;
  if (mesh->numDevices() > kMaxDevices)
    return emitError(loc, "expected a mesh of at most ")
           << kMaxDevices << " devices, but got '" << spec << "' of "
           << mesh->numDevices();
  std::optional<int64_t> devices = getNumDevices(module);
  if (devices && *devices != mesh->numDevices())
    return emitError(loc, "expected a mesh of ")
           << *devices << " devices, on which the module runs, but got '"
           << spec << "' of " << mesh->numDevices();
  return *mesh;
}

/// `mesh`, matched with the first mesh of `module` that has an axis with the
/// name of a tier; `mesh` itself if there is none.
static FailureOr<Mesh> matchNames(ModuleOp module, const Mesh &mesh) {
  for (Operation &op : module.getOps()) {
    std::optional<ModuleMesh> own = getModuleMesh(&op);
    std::optional<Mesh> grid = own ? getGrid(*own) : std::nullopt;
    if (grid && grid->numDevices() == mesh.numDevices() &&
        llvm::any_of(mesh.getAxes(), [&](const MeshAxis &tier) {
          return grid->findAxis(tier.name) >= 0;
        }))
      return matchNames(op.getLoc(), mesh, *grid);
  }
  return mesh;
}

/// Returns the first mesh of `module` with several devices, whose axes are the
/// tiers.
static FailureOr<Mesh> getOwnMesh(ModuleOp module) {
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
    return getGrid(*mesh).value_or(mesh->mesh);
  }
  return emitError(module.getLoc(),
                   "expected a mesh, but the module has none; name the tiers "
                   "from slowest to fastest with mesh=node:N,gpu:M");
}

/// Returns the tiers `spec` without strides: "data:4" for "data:4@2".
static std::string dropStrides(StringRef spec) {
  std::string tiers;
  for (StringRef tier : llvm::split(spec, ','))
    tiers += (tiers.empty() ? "" : ",") + tier.split('@').first.str();
  return tiers;
}

FailureOr<Mesh> zpp::getStepMesh(ModuleOp module, StringRef spec) {
  // A rewritten module records its tiers, with their strides.
  StringRef rewritten = getMachineWord(module, "mesh");
  bool isOfRewrite =
      !rewritten.empty() && (spec.empty() || spec == dropStrides(rewritten));
  if (isOfRewrite)
    spec = rewritten;
  if (spec.empty())
    return getOwnMesh(module);
  FailureOr<Mesh> mesh = parseMesh(module, spec);
  if (succeeded(mesh) && !isOfRewrite && !spec.contains('@'))
    mesh = matchNames(module, *mesh);
  if (succeeded(mesh) && !rewritten.empty() && mesh->str() != rewritten)
    return emitError(module.getLoc(), "expected the mesh of the rewrite, \"")
           << rewritten << "\", but got '" << spec << "'";
  return mesh;
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
  if (own == mesh)
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
  if (axes.empty())
    return total;
  bool isSplit =
      kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::AllToAll;
  // Another operand of an op of ours is the buffer that it writes to.
  bool isOurs = isa<zero::CollectiveOpInterface>(op);
  for (Value operand :
       op->getOperands().take_front(isOurs ? 1 : op->getNumOperands())) {
    int64_t bytes = getBytes(operand.getType());
    std::vector<int64_t> sent = zpp::getSentBytes(
        mesh, kind, axes, isSplit ? bytes / zpp::numDevices(axes) : bytes);
    for (auto [sum, part] : llvm::zip_equal(total, sent))
      sum = addSaturating(sum, part);
  }
  return total;
}
