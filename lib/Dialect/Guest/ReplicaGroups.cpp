//===- ReplicaGroups.cpp - The groups of guest collectives ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/ReplicaGroups.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace zpp;

static bool isSmallEnough(const Mesh &mesh) {
  int64_t devices = 1;
  for (const MeshAxis &axis : mesh.getAxes())
    devices = multiplySaturating(devices, axis.size);
  return devices <= kMaxDevices;
}

std::optional<ModuleMesh> zpp::getModuleMesh(Operation *op) {
  ModuleMesh result;
  if (isNamed(op, "shard.grid")) {
    auto shape = op->getAttrOfType<DenseI64ArrayAttr>("shape");
    if (!shape ||
        llvm::any_of(shape.asArrayRef(), [](int64_t size) { return size < 1; }))
      return std::nullopt;
    std::vector<MeshAxis> axes;
    for (auto [index, size] : llvm::enumerate(shape.asArrayRef()))
      axes.push_back({"axis" + std::to_string(index), size});
    result.mesh = Mesh(std::move(axes));
    if (!isSmallEnough(result.mesh))
      return std::nullopt;
    return result;
  }
  Attribute attr = op->getAttr("mesh");
  if (!isNamed(op, "sdy.mesh") || !attr)
    return std::nullopt;
  std::string text = toText(attr);
  auto [axesText, devicesText] = StringRef(text).split("device_ids");
  std::vector<MeshAxis> axes;
  llvm::Regex axis("\"([^\"]*)\" *= *([0-9]+)");
  SmallVector<StringRef> groups;
  while (axis.match(axesText, &groups)) {
    int64_t size;
    if (groups[2].getAsInteger(10, size) || size < 1)
      return std::nullopt;
    axes.push_back({groups[1].str(), size});
    axesText = axesText.substr(groups[0].end() - axesText.begin());
  }
  llvm::Regex number("[0-9]+");
  while (number.match(devicesText, &groups)) {
    int64_t device;
    if (groups[0].getAsInteger(10, device))
      return std::nullopt;
    result.devices.push_back(device);
    devicesText = devicesText.substr(groups[0].end() - devicesText.begin());
  }
  result.mesh = Mesh(std::move(axes));
  if (!isSmallEnough(result.mesh))
    return std::nullopt;
  if (!result.devices.empty() &&
      static_cast<int64_t>(result.devices.size()) != result.mesh.numDevices())
    return std::nullopt;
  return result;
}

std::optional<ModuleMesh> zpp::lookupMesh(Operation *from, StringRef name) {
  Operation *op = SymbolTable::lookupNearestSymbolFrom(
      from, StringAttr::get(from->getContext(), name));
  if (!op)
    return std::nullopt;
  return getModuleMesh(op);
}

/// Returns the axis `name` of `mesh`, or its part (preSize)size if `preSize`
/// has text. What `mesh` does not have is a reference that does not verify.
static AxisRef getAxisRef(const Mesh &mesh, StringRef name, StringRef preSize,
                          StringRef size) {
  AxisRef ref{name.str(), 1, 0};
  int64_t index = mesh.findAxis(ref.name);
  if (preSize.empty())
    return index >= 0 ? mesh.getAxis(index) : ref;
  // More than 64 bits hold: no axis has a part of size 0.
  if (preSize.getAsInteger(10, ref.preSize) || size.getAsInteger(10, ref.size))
    ref.size = 0;
  return ref;
}

/// Returns the groups of `refs` on `mesh`. If these overlap, or are not of the
/// mesh, returns nullopt and sets `error`.
static std::optional<ReplicaGroups> getGroups(const ModuleMesh &mesh,
                                              const std::vector<AxisRef> &refs,
                                              std::string &error) {
  error = mesh.mesh.verify(refs);
  if (!error.empty())
    return std::nullopt;
  ReplicaGroups groups = mesh.mesh.getGroups(refs);
  if (!mesh.devices.empty())
    for (std::vector<int64_t> &group : groups)
      for (int64_t &device : group)
        device = mesh.devices[device];
  return groups;
}

/// Sets `error`, which stands for groups that cannot be read.
static std::nullopt_t fail(std::string &error, const Twine &text) {
  error = text.str();
  return std::nullopt;
}

/// Returns the devices of `groups`. Ids are those of replicas or partitions
/// unless `op` uses flattened ids (StableHLO, "process groups"). If they do not
/// fit those of the module, returns nullopt and sets `error`.
static std::optional<ReplicaGroups>
getDevices(Operation *op, ReplicaGroups groups, std::string &error) {
  auto [replicas, partitions] =
      getModuleCopies(op->getParentOfType<ModuleOp>());
  Attribute channel = op->getAttr("channel_handle");
  bool hasChannel =
      channel && llvm::Regex("handle *= *[1-9]").match(toText(channel));
  // Ids are flattened, or are those of replicas that are one device each.
  if (partitions <= 1 || op->hasAttr("use_global_device_ids"))
    return groups;
  // Ids are those of partitions of the only replica.
  std::optional<CollectiveKind> kind = getGuestCollective(op);
  bool isReduction = kind == CollectiveKind::AllReduce ||
                     kind == CollectiveKind::ReduceScatter ||
                     kind == CollectiveKind::AllGather;
  if (hasChannel && !isReduction && replicas <= 1)
    return groups;
  if (replicas > kMaxDevices / partitions)
    return fail(error, "expected at most " + Twine(kMaxDevices) +
                           " devices, but got " + Twine(replicas) +
                           " replicas of " + Twine(partitions) + " partitions");
  // Ids are those of replicas: for each partition by itself, or for all
  // partitions together.
  ReplicaGroups result;
  for (const std::vector<int64_t> &group : groups) {
    for (int64_t replica : group)
      if (replica >= replicas)
        return fail(error,
                    "expected ids of " + Twine(replicas) +
                        " replicas, as it has no use_global_device_ids, but "
                        "got " +
                        Twine(replica));
    for (int64_t partition = 0; partition < partitions; ++partition) {
      if (!hasChannel || partition == 0)
        result.emplace_back();
      for (int64_t replica : group)
        result.back().push_back(replica * partitions + partition);
    }
  }
  return result;
}

std::optional<std::string> zpp::getGroupMeshName(Operation *op) {
  Attribute attr = op->getAttr("replica_groups");
  if (!attr || isa<DenseIntElementsAttr>(attr))
    return std::nullopt;
  SmallVector<StringRef> match;
  std::string text = toText(attr);
  if (!llvm::Regex("replica_group_mesh_axes<mesh *= *@\"?([^,\" ]+)")
           .match(text, &match))
    return std::nullopt;
  return match[1].str();
}

/// Groups by axes of a grid of the shard dialect.
static std::optional<ReplicaGroups>
readGridGroups(Operation *op, DenseI16ArrayAttr axes, std::string &error) {
  auto grid = op->getAttrOfType<FlatSymbolRefAttr>("grid");
  std::optional<ModuleMesh> mesh =
      grid ? lookupMesh(op, grid.getValue()) : std::nullopt;
  if (!mesh)
    return fail(error, "its grid has no static shape");
  std::vector<AxisRef> refs;
  for (int16_t axis : axes ? axes.asArrayRef() : ArrayRef<int16_t>()) {
    if (axis < 0 || axis >= static_cast<int64_t>(mesh->mesh.getAxes().size()))
      return fail(error, "its grid has no axis " + Twine(axis));
    refs.push_back(mesh->mesh.getAxis(axis));
  }
  return getGroups(*mesh, refs, error);
}

/// Groups as a list of ids.
static std::optional<ReplicaGroups>
readListedGroups(Operation *op, DenseIntElementsAttr list, std::string &error) {
  auto type = cast<ShapedType>(list.getType());
  if (type.getRank() != 2)
    return fail(error,
                "expected replica groups of rank 2, but got " + toText(list));
  // As an attribute, a splat or an empty list takes no memory, whatever its
  // type says.
  if (type.getDimSize(0) > kMaxDevices ||
      multiplySaturating(type.getDimSize(0), type.getDimSize(1)) > kMaxDevices)
    return fail(error, "expected at most " + Twine(kMaxDevices) +
                           " ids in the replica groups, but got " +
                           toText(list));
  ReplicaGroups groups(type.getDimSize(0));
  for (auto [index, device] : llvm::enumerate(list.getValues<APInt>()))
    // Groups of unequal size are padded with -1.
    if (!device.isNegative())
      groups[index / type.getDimSize(1)].push_back(device.getSExtValue());
  return getDevices(op, std::move(groups), error);
}

/// Groups by axes of a mesh:
/// #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes =
///   [#stablehlo.axis_ref<name = "gpu", sub_axis_info = (1)2>]>
static std::optional<ReplicaGroups>
readNamedGroups(Operation *op, Attribute attr, std::string &error) {
  std::string text = toText(attr);
  std::optional<std::string> name = getGroupMeshName(op);
  if (!name)
    return fail(error, "expected replica groups as a dense list or as mesh "
                       "axes, but got " +
                           text);
  std::optional<ModuleMesh> mesh = lookupMesh(op, *name);
  if (!mesh)
    return fail(error,
                "expected a mesh '" + *name + "', but the module has none");
  std::vector<AxisRef> refs;
  SmallVector<StringRef> match;
  StringRef rest = text;
  llvm::Regex axis("name *= *\"([^\"]*)\"( *, *sub_axis_info *= *"
                   "\\(([0-9]+)\\)([0-9]+))?");
  while (axis.match(rest, &match)) {
    refs.push_back(getAxisRef(mesh->mesh, match[1], match[3], match[4]));
    rest = rest.substr(match[0].end() - rest.begin());
  }
  return getGroups(*mesh, refs, error);
}

std::optional<ReplicaGroups> zpp::readReplicaGroups(Operation *op,
                                                    std::string &error) {
  auto axes = op->getAttrOfType<DenseI16ArrayAttr>("grid_axes");
  if (axes || op->hasAttr("grid"))
    return readGridGroups(op, axes, error);
  Attribute attr = op->getAttr("replica_groups");
  if (!attr)
    return fail(error, "it has no replica groups");
  if (auto list = dyn_cast<DenseIntElementsAttr>(attr))
    return readListedGroups(op, list, error);
  return readNamedGroups(op, attr, error);
}

SmallVector<const void *> zpp::getReplicaGroupsKey(Operation *op) {
  SmallVector<const void *> key{op->getName().getAsOpaquePointer(),
                                op->getParentOfType<ModuleOp>()};
  for (StringRef name :
       {"replica_groups", "use_global_device_ids", "grid", "grid_axes"})
    key.push_back(op->getAttr(name).getAsOpaquePointer());
  // Each collective has a channel of its own. What ids stand for depends on it
  // only if they are not flattened (getDevices).
  bool isFlattened =
      op->hasAttr("use_global_device_ids") ||
      !isa_and_nonnull<DenseIntElementsAttr>(op->getAttr("replica_groups"));
  key.push_back(isFlattened
                    ? nullptr
                    : op->getAttr("channel_handle").getAsOpaquePointer());
  return key;
}

ModuleCopies zpp::getModuleCopies(ModuleOp module) {
  auto getCount = [&](StringRef name) -> int64_t {
    auto count =
        module ? module->getAttrOfType<IntegerAttr>(name) : IntegerAttr();
    return count ? count.getInt() : 1;
  };
  return {getCount(guest::kNumReplicas), getCount(guest::kNumPartitions)};
}

std::optional<int64_t> zpp::getNumDevices(ModuleOp module) {
  for (Operation &op : module.getOps())
    if (std::optional<ModuleMesh> mesh = getModuleMesh(&op))
      if (mesh->mesh.numDevices() > 1)
        return mesh->mesh.numDevices();
  ModuleCopies copies = getModuleCopies(module);
  int64_t count;
  if (__builtin_mul_overflow(copies.replicas, copies.partitions, &count) ||
      count <= 1)
    return std::nullopt;
  return count;
}

bool zpp::hasUnappliedShardings(ModuleOp module) {
  // The partitioner notes which parts its program takes.
  if (module->hasAttr("mhlo.spmd_parameters_shardings"))
    return false;
  auto isSharding = [](Attribute attr) {
    if (auto text = dyn_cast_or_null<StringAttr>(attr))
      return text.getValue().contains("devices=");
    // #sdy.sharding<@mesh, [{"node"}, {}]>, where {} is not divided.
    return attr && StringRef(toText(attr)).contains("{\"");
  };
  bool isSharded = false;
  bool isManual = containsOp(module, [&](Operation *op) {
    for (StringRef name : {"mhlo.sharding", "sdy.sharding"}) {
      isSharded |= isSharding(op->getAttr(name));
      if (auto function = dyn_cast<FunctionOpInterface>(op))
        for (unsigned i = 0; i < function.getNumArguments(); ++i)
          isSharded |= isSharding(function.getArgAttr(i, name));
    }
    if (isNamed(op, "sdy.sharding_constraint"))
      isSharded |= isSharding(op->getAttr("sharding"));
    StringRef target = getCallTarget(op);
    return isNamed(op, guest::kSdyManualComputation) ||
           target == "SPMDFullToShardShape" ||
           target == "xla.sdy.GlobalToLocalShape";
  });
  return isSharded && !isManual;
}

const std::string &AutomaticAxes::get(Operation *op) {
  Operation *manual = op->getParentOp();
  while (manual && !isNamed(manual, guest::kSdyManualComputation))
    manual = manual->getParentOp();
  auto [it, isNew] = known.try_emplace(manual);
  if (isNew && manual)
    it->second = read(manual);
  return it->second;
}

std::string AutomaticAxes::read(Operation *manual) {
  Attribute axes = manual->getAttr("manual_axes");
  auto module = manual->getParentOfType<ModuleOp>();
  if (!axes || !module)
    return "";
  std::string text = toText(axes);
  for (Operation &symbol : module.getOps()) {
    std::optional<ModuleMesh> mesh = getModuleMesh(&symbol);
    if (!mesh || mesh->mesh.numDevices() == 1)
      continue;
    std::string automatic;
    llvm::raw_string_ostream os(automatic);
    llvm::ListSeparator separator;
    for (const MeshAxis &axis : mesh->mesh.getAxes())
      if (axis.size > 1 && !StringRef(text).contains("\"" + axis.name + "\""))
        os << separator << axis.name;
    return automatic;
  }
  return "";
}

OperandShardings::OperandShardings(Operation *manual) : manual(manual) {
  if (isManualComputation(manual))
    entries = getOperandShardings(manual);
}

const ReplicaGroups *OperandShardings::getGroups(unsigned index) {
  if (index >= entries.size())
    return nullptr;
  auto [it, isNew] = known.try_emplace(entries[index]);
  if (isNew)
    it->second = readGroups(entries[index]);
  return it->second ? &*it->second : nullptr;
}

std::optional<ReplicaGroups> OperandShardings::readGroups(StringRef entry) {
  // <@mesh, [{"node", "gpu":(1)2}, {}], replicated={"tensor"}>
  auto [name, dims] = entry.split('[');
  std::optional<ModuleMesh> mesh =
      lookupMesh(manual, name.trim("<@ ,").trim('"'));
  if (!mesh)
    return std::nullopt;
  // The dims alone, without replicated axes.
  dims = dims.split("replicated").first.split("unreduced").first;
  llvm::Regex axis("\"([^\"]*)\"(:\\(([0-9]+)\\)([0-9]+))?");
  SmallVector<StringRef> match;
  std::vector<AxisRef> refs;
  while (axis.match(dims, &match)) {
    refs.push_back(getAxisRef(mesh->mesh, match[1], match[3], match[4]));
    dims = dims.substr(match[0].end() - dims.begin());
  }
  if (refs.empty())
    return std::nullopt;
  std::string error;
  return ::getGroups(*mesh, refs, error);
}
