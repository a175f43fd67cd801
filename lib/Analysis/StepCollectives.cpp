//===- StepCollectives.cpp - The collectives of a training step -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/StepCollectives.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Regex.h"

#include <map>

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

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

StringRef zpp::getRoleName(Role role) {
  switch (role) {
  case Role::Weight:
    return "weight";
  case Role::Gradient:
    return "gradient";
  case Role::Other:
    return "other";
  }
  llvm_unreachable("unknown role");
}

StringRef zpp::getPhaseName(Phase phase) {
  return phase == Phase::Forward ? "forward" : "backward";
}

static std::optional<CollectiveKind> getKind(StringRef name) {
  if (!name.consume_front("stablehlo.") && !name.consume_front("shard."))
    return std::nullopt;
  return llvm::StringSwitch<std::optional<CollectiveKind>>(name)
      .Case("all_gather", CollectiveKind::AllGather)
      .Case("reduce_scatter", CollectiveKind::ReduceScatter)
      .Case("all_reduce", CollectiveKind::AllReduce)
      .Case("all_to_all", CollectiveKind::AllToAll)
      .Case("collective_permute", CollectiveKind::CollectivePermute)
      .Case("collective_broadcast", CollectiveKind::CollectiveBroadcast)
      .Default(std::nullopt);
}

bool zpp::isCollective(Operation *op) {
  return isa<zero::CollectiveOpInterface>(op) ||
         (op->getNumOperands() > 0 && getKind(op->getName().getStringRef()));
}

bool zpp::isNamed(Operation *op, StringRef name) {
  return op->getName().getStringRef() == name;
}

bool zpp::isBarrier(Operation *op) {
  return isNamed(op, "stablehlo.optimization_barrier") &&
         op->getOperandTypes() == op->getResultTypes();
}

bool zpp::isWhile(Operation *op) {
  unsigned count = op->getNumOperands();
  return isNamed(op, "stablehlo.while") && op->getNumRegions() == 2 &&
         op->getNumResults() == count &&
         llvm::all_of(op->getRegions(),
                      [&](Region &region) {
                        return region.hasOneBlock() &&
                               !region.front().empty() &&
                               region.getNumArguments() == count;
                      }) &&
         op->getRegion(1).front().back().getNumOperands() == count;
}

Operation *zpp::extendLoop(Operation *loop, ValueRange init) {
  OpBuilder builder(loop);
  OperationState state(loop->getLoc(), loop->getName());
  state.addOperands(loop->getOperands());
  state.addOperands(init);
  state.addTypes(loop->getResultTypes());
  state.addTypes(init.getTypes());
  state.propertiesAttr = loop->getPropertiesAsAttribute();
  state.addAttributes(loop->getDiscardableAttrDictionary().getValue());
  for (Region &region : loop->getRegions())
    state.addRegion()->takeBody(region);
  Operation *extended = builder.create(state);
  for (Region &region : extended->getRegions())
    for (Value value : init)
      region.addArgument(value.getType(), value.getLoc());
  loop->replaceAllUsesWith(
      extended->getResults().take_front(loop->getNumResults()));
  loop->erase();
  return extended;
}

//===----------------------------------------------------------------------===//
// Meshes and groups
//===----------------------------------------------------------------------===//

static std::string getText(Attribute attr) {
  std::string text;
  llvm::raw_string_ostream(text) << attr;
  return text;
}

namespace {
/// The mesh of an `sdy.mesh` or a `shard.grid`; devices[i] is the device at
/// position i, empty for the identity.
struct ModuleMesh {
  Mesh mesh;
  std::vector<int64_t> devices;
};
} // namespace

/// Reads `#sdy.mesh<["node"=2, "gpu"=4], device_ids=[...]>` or the sizes of a
/// `shard.grid`, whose axes have no names of their own.
static std::optional<ModuleMesh> getModuleMesh(Operation *op) {
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
    return result;
  }
  Attribute attr = op->getAttr("mesh");
  if (!isNamed(op, "sdy.mesh") || !attr)
    return std::nullopt;
  std::string text = getText(attr);
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
  if (!result.devices.empty() &&
      static_cast<int64_t>(result.devices.size()) != result.mesh.numDevices())
    return std::nullopt;
  return result;
}

static std::optional<ModuleMesh> lookupMesh(Operation *from, StringRef name) {
  Operation *op = SymbolTable::lookupNearestSymbolFrom(
      from, StringAttr::get(from->getContext(), name));
  if (!op)
    return std::nullopt;
  return getModuleMesh(op);
}

using Groups = std::vector<std::vector<int64_t>>;

/// Groups of the axes that `names` refers to on `mesh`.
static Groups getGroups(const ModuleMesh &mesh,
                        const std::vector<AxisRef> &refs) {
  Groups groups = mesh.mesh.getGroups(refs);
  if (!mesh.devices.empty())
    for (std::vector<int64_t> &group : groups)
      for (int64_t &device : group)
        device = mesh.devices[device];
  return groups;
}

/// The devices of `groups`, which name replicas or partitions where `op` is no
/// collective of flattened ids (StableHLO, "process groups"); nullopt and
/// `error` where they do not fit those of the module.
static std::optional<Groups> getDevices(Operation *op, Groups groups,
                                        std::string &error) {
  auto module = op->getParentOfType<ModuleOp>();
  auto getCount = [&](StringRef name) -> int64_t {
    auto count =
        module ? module->getAttrOfType<IntegerAttr>(name) : IntegerAttr();
    return count ? count.getInt() : 1;
  };
  int64_t replicas = getCount("mhlo.num_replicas");
  int64_t partitions = getCount("mhlo.num_partitions");
  Attribute channel = op->getAttr("channel_handle");
  bool hasChannel =
      channel && llvm::Regex("handle *= *[1-9]").match(getText(channel));
  // Ids are flattened, or those of replicas of which each is one device.
  if (partitions <= 1 || op->hasAttr("use_global_device_ids"))
    return groups;
  // Partitions, of the one replica that there is.
  std::optional<CollectiveKind> kind = getKind(op->getName().getStringRef());
  bool isReduction = kind == CollectiveKind::AllReduce ||
                     kind == CollectiveKind::ReduceScatter ||
                     kind == CollectiveKind::AllGather;
  if (hasChannel && !isReduction && replicas <= 1)
    return groups;
  // Replicas: of one partition each, or of all partitions together.
  Groups result;
  for (const std::vector<int64_t> &group : groups) {
    for (int64_t replica : group)
      if (replica >= replicas) {
        error = "expected ids of " + std::to_string(replicas) +
                " replicas, as it has no use_global_device_ids, but got " +
                std::to_string(replica);
        return std::nullopt;
      }
    for (int64_t partition = 0; partition < partitions; ++partition) {
      if (!hasChannel || partition == 0)
        result.emplace_back();
      for (int64_t replica : group)
        result.back().push_back(replica * partitions + partition);
    }
  }
  return result;
}

/// Reads the groups of `op` in any of the spellings; nullopt and `error` where
/// there is none to read.
static std::optional<Groups> readGroups(Operation *op, std::string &error) {
  if (auto axes = op->getAttrOfType<DenseI16ArrayAttr>("grid_axes");
      axes || op->hasAttr("grid")) {
    auto grid = op->getAttrOfType<FlatSymbolRefAttr>("grid");
    std::optional<ModuleMesh> mesh =
        grid ? lookupMesh(op, grid.getValue()) : std::nullopt;
    if (!mesh) {
      error = "its grid has no static shape";
      return std::nullopt;
    }
    std::vector<AxisRef> refs;
    for (int16_t axis : axes ? axes.asArrayRef() : ArrayRef<int16_t>()) {
      if (axis < 0 ||
          axis >= static_cast<int64_t>(mesh->mesh.getAxes().size())) {
        error = "its grid has no axis " + std::to_string(axis);
        return std::nullopt;
      }
      refs.push_back(mesh->mesh.getAxis(axis));
    }
    return getGroups(*mesh, refs);
  }

  Attribute attr = op->getAttr("replica_groups");
  if (auto dense = dyn_cast_or_null<DenseIntElementsAttr>(attr)) {
    auto type = cast<ShapedType>(dense.getType());
    if (type.getRank() != 2) {
      error = "expected replica groups of rank 2, but got " + getText(dense);
      return std::nullopt;
    }
    Groups groups(type.getDimSize(0));
    int64_t index = 0;
    for (const APInt &device : dense.getValues<APInt>()) {
      // Groups of unequal size are padded with -1.
      if (!device.isNegative())
        groups[index / type.getDimSize(1)].push_back(device.getSExtValue());
      ++index;
    }
    return getDevices(op, std::move(groups), error);
  }
  if (!attr) {
    error = "it has no replica groups";
    return std::nullopt;
  }

  // #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes =
  //   [#stablehlo.axis_ref<name = "gpu", sub_axis_info = (1)2>]>
  std::string text = getText(attr);
  SmallVector<StringRef> match;
  if (!llvm::Regex("replica_group_mesh_axes<mesh *= *@\"?([^,\" ]+)")
           .match(text, &match)) {
    error =
        "expected replica groups as a dense list or as mesh axes, but got " +
        text;
    return std::nullopt;
  }
  std::optional<ModuleMesh> mesh = lookupMesh(op, match[1]);
  if (!mesh) {
    error = "expected a mesh '" + match[1].str() + "', but the module has none";
    return std::nullopt;
  }
  std::vector<AxisRef> refs;
  StringRef rest = text;
  llvm::Regex axis("name *= *\"([^\"]*)\"( *, *sub_axis_info *= *"
                   "\\(([0-9]+)\\)([0-9]+))?");
  while (axis.match(rest, &match)) {
    AxisRef ref{match[1].str(), 1, 0};
    if (!match[2].empty()) {
      (void)match[3].getAsInteger(10, ref.preSize);
      (void)match[4].getAsInteger(10, ref.size);
    } else if (int64_t index = mesh->mesh.findAxis(ref.name); index >= 0) {
      ref = mesh->mesh.getAxis(index);
    }
    error = mesh->mesh.verify(ref);
    if (!error.empty())
      return std::nullopt;
    refs.push_back(ref);
    rest = rest.substr(match[0].end() - rest.begin());
  }
  return getGroups(*mesh, refs);
}

/// Devices that the module says it runs on, or nullopt.
static std::optional<int64_t> getNumDevices(ModuleOp module) {
  for (Operation &op : module.getOps())
    if (std::optional<ModuleMesh> mesh = getModuleMesh(&op))
      if (mesh->mesh.numDevices() > 1)
        return mesh->mesh.numDevices();
  auto partitions = module->getAttrOfType<IntegerAttr>("mhlo.num_partitions");
  auto replicas = module->getAttrOfType<IntegerAttr>("mhlo.num_replicas");
  int64_t count = (partitions ? partitions.getInt() : 1) *
                  (replicas ? replicas.getInt() : 1);
  if (count > 1)
    return count;
  return std::nullopt;
}

/// The axes of the module's mesh that `mesh` has too, but in another order, as
/// which its names would stand for other links; or nullopt.
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
  // Errors at the module do not print all of it.
  std::optional<int64_t> devices = getNumDevices(module);
  // A rewritten module remembers its tiers.
  auto rewritten = module->getAttrOfType<StringAttr>("zpp.mesh");
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

std::string zpp::getAutomaticAxes(Operation *op) {
  Operation *manual = op->getParentOp();
  while (manual && !isNamed(manual, "sdy.manual_computation"))
    manual = manual->getParentOp();
  Attribute axes = manual ? manual->getAttr("manual_axes") : Attribute();
  auto module = op->getParentOfType<ModuleOp>();
  if (!axes || !module)
    return "";
  std::string text = getText(axes);
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

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

static int64_t getBytes(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasStaticShape())
    return 0;
  Type element = shaped.getElementType();
  int64_t parts = 1;
  if (auto complex = dyn_cast<ComplexType>(element)) {
    element = complex.getElementType();
    parts = 2;
  }
  if (!element.isIntOrFloat())
    return 0;
  // A predicate takes a byte.
  int64_t bits = element.isInteger(1) ? 8 : element.getIntOrFloatBitWidth();
  return llvm::divideCeil(shaped.getNumElements() * parts * bits, 8);
}

static std::optional<CollectiveView> getZeroCollective(Operation *op) {
  auto collective = dyn_cast<zero::CollectiveOpInterface>(op);
  if (!collective)
    return std::nullopt;
  CollectiveView view;
  view.op = op;
  llvm::append_range(view.axes, collective.getAxisRefs());
  if (isa<zero::ReduceScatterOp>(op))
    view.kind = CollectiveKind::ReduceScatter;
  else if (isa<zero::AllToAllOp>(op))
    view.kind = CollectiveKind::AllToAll;
  return view;
}

namespace {
/// The axes of groups, or why there are none.
struct GroupAxes {
  std::vector<AxisRef> axes;
  std::string error;
};

/// Reads groups that several collectives share only once.
class GroupReader {
public:
  explicit GroupReader(const Mesh &mesh) : mesh(mesh) {}

  const GroupAxes &read(Operation *op, CollectiveKind kind) {
    // All that the devices of a group depend on.
    SmallVector<const void *> key{op->getName().getAsOpaquePointer(),
                                  op->getParentOfType<ModuleOp>()};
    for (StringRef name : {"replica_groups", "channel_handle",
                           "use_global_device_ids", "grid", "grid_axes"})
      key.push_back(op->getAttr(name).getAsOpaquePointer());
    auto [it, isNew] = known.try_emplace(std::move(key));
    if (isNew)
      factor(op, kind, it->second);
    return it->second;
  }

private:
  void factor(Operation *op, CollectiveKind kind, GroupAxes &result) {
    std::optional<Groups> groups = readGroups(op, result.error);
    if (!groups)
      return;
    // Of a reduction to everyone, all orders of a group are the same.
    if (kind == CollectiveKind::AllReduce)
      for (std::vector<int64_t> &group : *groups)
        llvm::sort(group);
    std::optional<std::vector<AxisRef>> axes =
        mesh.factorGroups(*groups, result.error);
    if (axes)
      result.axes = std::move(*axes);
  }

  const Mesh &mesh;
  std::map<SmallVector<const void *>, GroupAxes> known;
};
} // namespace

static std::optional<CollectiveView> getCollective(Operation *op,
                                                   GroupReader &groups) {
  if (std::optional<CollectiveView> view = getZeroCollective(op))
    return view;
  std::optional<CollectiveKind> kind = getKind(op->getName().getStringRef());
  if (!kind || op->getNumOperands() == 0)
    return std::nullopt;
  CollectiveView view;
  view.op = op;
  view.kind = *kind;
  for (StringRef name : {"all_gather_dim", "gather_axis", "scatter_dimension",
                         "scatter_axis", "split_dimension", "split_axis"})
    if (auto dim = op->getAttrOfType<IntegerAttr>(name))
      view.dim = dim.getInt();
  if (*kind == CollectiveKind::CollectivePermute) {
    view.groupError = "it has source-target pairs, no groups";
    return view;
  }
  const GroupAxes &group = groups.read(op, *kind);
  view.axes = group.axes;
  view.groupError = group.error;
  return view;
}

std::optional<CollectiveView> zpp::getCollective(Operation *op,
                                                 const Mesh &mesh) {
  GroupReader groups(mesh);
  return ::getCollective(op, groups);
}

std::vector<int64_t> CollectiveView::getSentBytes(const Mesh &mesh) const {
  size_t numAxes = mesh.getAxes().size();
  if (kind == CollectiveKind::CollectivePermute) {
    // Each pair over the slowest axis in which its devices differ; a tier
    // counts what the busiest device sends.
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
      sum += part;
  };
  if (axes.empty())
    return total;
  if (isa<zero::CollectiveOpInterface>(op)) {
    Type type = op->getOperand(0).getType();
    if (auto shard = dyn_cast<zero::ShardType>(type))
      type = shard.getLocalType();
    int64_t bytes = getBytes(type);
    bool isSplit = kind != CollectiveKind::AllGather;
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

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

bool zpp::isLoopInvariant(Operation *whileOp, unsigned index) {
  if (!isWhile(whileOp))
    return false;
  Block &body = whileOp->getRegion(1).front();
  return body.back().getOperand(index) == body.getArgument(index);
}

/// The integer that a scalar constant holds, also through operands that a loop
/// or a manual computation carries unchanged.
static std::optional<int64_t> getConstant(Value value) {
  Provenance provenance = getProvenance(value);
  Operation *op = provenance.root.getDefiningOp();
  if (!op || !isNamed(op, "stablehlo.constant"))
    return std::nullopt;
  auto dense = op->getAttrOfType<DenseIntElementsAttr>("value");
  if (!dense || !dense.isSplat())
    return std::nullopt;
  return dense.getSplatValue<APInt>().getSExtValue();
}

/// Iterations of a counting `stablehlo.while`: from a constant, by a constant,
/// while less than a constant. What `lax.scan` and `lax.fori_loop` give.
static std::optional<int64_t> getLoopTripCount(Operation *whileOp) {
  if (!isWhile(whileOp))
    return std::nullopt;
  Block &condition = whileOp->getRegion(0).front();
  Block &body = whileOp->getRegion(1).front();
  if (condition.back().getNumOperands() != 1)
    return std::nullopt;
  Operation *compare = condition.back().getOperand(0).getDefiningOp();
  if (!compare || !isNamed(compare, "stablehlo.compare") ||
      compare->getNumOperands() != 2)
    return std::nullopt;
  Attribute direction = compare->getAttr("comparison_direction");
  if (!direction || !StringRef(getText(direction)).contains(" LT"))
    return std::nullopt;
  auto counter = dyn_cast<BlockArgument>(compare->getOperand(0));
  if (!counter || counter.getOwner() != &condition)
    return std::nullopt;
  unsigned index = counter.getArgNumber();
  std::optional<int64_t> begin = getConstant(whileOp->getOperand(index));
  std::optional<int64_t> end = getConstant(compare->getOperand(1));
  Operation *add = body.back().getOperand(index).getDefiningOp();
  if (!begin || !end || !add || !isNamed(add, "stablehlo.add") ||
      add->getNumOperands() != 2)
    return std::nullopt;
  Value argument = body.getArgument(index);
  Value step = add->getOperand(0) == argument   ? add->getOperand(1)
               : add->getOperand(1) == argument ? add->getOperand(0)
                                                : Value();
  std::optional<int64_t> stride =
      step ? getConstant(step) : std::optional<int64_t>();
  if (!stride || *stride < 1)
    return std::nullopt;
  return std::max<int64_t>(0, llvm::divideCeilSigned(*end - *begin, *stride));
}

static bool isInLoop(Operation *op) {
  while ((op = op->getParentOp()))
    if (isNamed(op, "stablehlo.while"))
      return true;
  return false;
}

std::optional<int64_t> zpp::getTripCount(Operation *op) {
  int64_t trips = 1;
  for (Operation *parent = op->getParentOp(); parent;
       parent = parent->getParentOp()) {
    if (!isNamed(parent, "stablehlo.while"))
      continue;
    std::optional<int64_t> count = getLoopTripCount(parent);
    if (!count)
      return std::nullopt;
    trips *= *count;
  }
  return trips;
}

//===----------------------------------------------------------------------===//
// Provenance
//===----------------------------------------------------------------------===//

/// Ops that rearrange or cast the data of their first operand.
static bool isTransparent(Operation *op) {
  static const llvm::StringSet<> names = {"stablehlo.convert",
                                          "stablehlo.reshape",
                                          "stablehlo.transpose",
                                          "stablehlo.slice",
                                          "stablehlo.bitcast_convert",
                                          "stablehlo.reduce_precision",
                                          "stablehlo.dynamic_slice",
                                          "stablehlo.copy",
                                          "stablehlo.pad",
                                          "stablehlo.concatenate",
                                          "arith.truncf",
                                          "arith.extf",
                                          "tensor.cast",
                                          "tensor.extract_slice",
                                          "tensor.expand_shape",
                                          "tensor.collapse_shape",
                                          "zero.from_local",
                                          "zero.to_local"};
  if (op->getNumOperands() == 0 || op->getNumResults() != 1)
    return false;
  if (names.contains(op->getName().getStringRef()))
    return true;
  if (isNamed(op, "stablehlo.broadcast_in_dim")) {
    // One that only adds dims of size 1 is a reshape: what JAX makes in front
    // of a gather that is not tiled.
    auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
    auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    return from && to && from.hasStaticShape() && to.hasStaticShape() &&
           from.getNumElements() == to.getNumElements();
  }
  if (!isNamed(op, "stablehlo.custom_call"))
    return false;
  // How a partitioner of the time before Shardy marks the border of a
  // shard_map.
  auto target = op->getAttrOfType<StringAttr>("call_target_name");
  return target && (target == "Sharding" || target == "SPMDFullToShardShape");
}

bool zpp::isDataMovement(Operation *op) {
  return isBarrier(op) || isTransparent(op);
}

/// Ops whose further operands are data like the first, no indices.
static bool isJoin(Operation *op) {
  return isNamed(op, "stablehlo.concatenate") || isNamed(op, "stablehlo.pad");
}

/// The constant that `value` is, also through loops, or null.
static Operation *getConstantOp(Value value) {
  Operation *op = getProvenance(value).root.getDefiningOp();
  return op && isNamed(op, "stablehlo.constant") ? op : nullptr;
}

/// True if all that `join` adds to its first operand is constant or an input of
/// the step too.
static bool joinsStepInputs(Operation *join) {
  return llvm::all_of(join->getOperands().drop_front(), [](Value value) {
    return getConstantOp(value) || getProvenance(value).isStepInput;
  });
}

/// The operand of `call` that its result `index` passes on, if the callee does
/// only transparent things to it.
static Value getPassedOperand(func::CallOp call, unsigned index,
                              bool &isSliced) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
      call, call.getCalleeAttr());
  if (!callee || callee.isExternal() || !callee.getBody().hasOneBlock())
    return {};
  Value value = callee.getBody().front().back().getOperand(index);
  while (Operation *op = value.getDefiningOp()) {
    if (isBarrier(op)) {
      value = op->getOperand(cast<OpResult>(value).getResultNumber());
      continue;
    }
    if (!isTransparent(op) || isJoin(op))
      return {};
    isSliced |= isNamed(op, "stablehlo.dynamic_slice");
    value = op->getOperand(0);
  }
  auto argument = cast<BlockArgument>(value);
  if (argument.getOwner() != &callee.getBody().front())
    return {};
  return call.getOperand(argument.getArgNumber());
}

/// A call of `function` from another one.
static func::CallOp findCall(func::FuncOp function) {
  func::CallOp found;
  if (auto module = function->getParentOfType<ModuleOp>())
    module.walk([&](func::CallOp call) {
      if (call.getCallee() != function.getSymName() ||
          function->isAncestor(call))
        return WalkResult::advance();
      found = call;
      return WalkResult::interrupt();
    });
  return found;
}

/// The value that block argument `argument` stands for outside its region, or
/// null where it is an input of the step or changes in a loop.
static Value getOuterValue(BlockArgument argument, bool &isStepInput) {
  Operation *parent = argument.getOwner()->getParentOp();
  unsigned index = argument.getArgNumber();
  isStepInput = false;
  if (auto function = dyn_cast_or_null<func::FuncOp>(parent)) {
    isStepInput = function.isPublic();
    if (isStepInput)
      return {};
    // All calls of a layer's function pass weights in the same place.
    func::CallOp call = findCall(function);
    return call && index < call->getNumOperands() ? call.getOperand(index)
                                                  : Value();
  }
  if (!parent)
    return {};
  if (isNamed(parent, "sdy.manual_computation") &&
      index < parent->getNumOperands())
    return parent->getOperand(index);
  if (isLoopInvariant(parent, index))
    return parent->getOperand(index);
  return {};
}

Provenance zpp::getProvenance(Value value) {
  Provenance result{value, false, false, {}};
  // Functions that call each other have no one caller to look at.
  SmallPtrSet<Operation *, 4> functions;
  while (true) {
    result.root = value;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      Operation *parent = argument.getOwner()->getParentOp();
      if (isa_and_nonnull<func::FuncOp>(parent) &&
          !functions.insert(parent).second)
        return result;
      Value outer = getOuterValue(argument, result.isStepInput);
      if (!outer)
        return result;
      value = outer;
      continue;
    }
    auto opResult = cast<OpResult>(value);
    Operation *op = opResult.getOwner();
    unsigned index = opResult.getResultNumber();
    if (isBarrier(op)) {
      value = op->getOperand(index);
      continue;
    }
    if (isLoopInvariant(op, index)) {
      value = op->getOperand(index);
      continue;
    }
    if (auto call = dyn_cast<func::CallOp>(op)) {
      Value passed = getPassedOperand(call, index, result.isSliced);
      if (!passed)
        return result;
      result.path.push_back(op);
      value = passed;
      continue;
    }
    if (!isTransparent(op) || (isJoin(op) && !joinsStepInputs(op)))
      return result;
    result.isSliced |= isNamed(op, "stablehlo.dynamic_slice");
    result.path.push_back(op);
    value = op->getOperand(0);
  }
}

static void printSliceKey(Value value, bool inAnyIteration,
                          llvm::raw_ostream &os) {
  if (Operation *constant = getConstantOp(value)) {
    auto data = constant->getAttrOfType<DenseElementsAttr>("value");
    if (data && data.isSplat()) {
      os << data;
      return;
    }
  }
  Provenance provenance = getProvenance(value);
  bool isSliced = false;
  for (Operation *op : provenance.path) {
    // Casts of a slice do not matter; what comes before it says what it is.
    isSliced |= op->getNumOperands() > 1 || isa<func::CallOp>(op) ||
                isNamed(op, "stablehlo.slice") ||
                isNamed(op, "tensor.extract_slice");
    if (!isSliced)
      continue;
    os << op->getName() << op->getPropertiesAsAttribute()
       << op->getResultTypes();
    if (isa<func::CallOp>(op))
      os << static_cast<void *>(op);
    // What else the op reads: indices, or data that it joins.
    bool isAnyIndex = inAnyIteration && !isJoin(op) && isInLoop(op);
    for (Value operand : op->getOperands().drop_front()) {
      os << ",";
      if (isAnyIndex && !getConstantOp(operand))
        os << "*";
      else
        printSliceKey(operand, inAnyIteration, os);
    }
    os << ";";
  }
  os << provenance.root.getAsOpaquePointer();
}

std::string zpp::getSliceKey(Value value, bool inAnyIteration) {
  std::string key;
  llvm::raw_string_ostream os(key);
  printSliceKey(value, inAnyIteration, os);
  return key;
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

/// True if the reduction of `op` is a sum.
static bool isSum(Operation *op) {
  if (op->getNumRegions() == 0) {
    // shard.reduce_scatter: a kind that defaults to sum.
    Attribute reduction = op->getAttr("reduction");
    return !reduction || StringRef(getText(reduction)).contains("sum");
  }
  if (!op->getRegion(0).hasOneBlock() || op->getRegion(0).front().empty())
    return false;
  Block &block = op->getRegion(0).front();
  if (block.getNumArguments() != 2 || block.back().getNumOperands() != 1)
    return false;
  Operation *add = block.back().getOperand(0).getDefiningOp();
  // JAX writes one where axes are left to the partitioner.
  while (add && isNamed(add, "sdy.sharding_constraint"))
    add = add->getOperand(0).getDefiningOp();
  if (!add || !isNamed(add, "stablehlo.add") || add->getNumOperands() != 2)
    return false;
  Value a = add->getOperand(0), b = add->getOperand(1);
  return (a == block.getArgument(0) && b == block.getArgument(1)) ||
         (a == block.getArgument(1) && b == block.getArgument(0));
}

static bool isFloatTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return false;
  Type element = tensor.getElementType();
  return element.isF32() || element.isBF16() || element.isF16();
}

/// What a gather and the scatter of its gradient have in common.
static std::string getMirrorKey(int64_t dim, ArrayRef<AxisRef> axes,
                                Type whole) {
  std::string key;
  llvm::raw_string_ostream os(key);
  os << dim;
  for (const AxisRef &axis : axes)
    os << "," << axis.name << ":" << axis.preSize << ":" << axis.size;
  for (int64_t size : cast<ShapedType>(whole).getShape())
    os << "x" << size;
  return key;
}

namespace {
/// Numbers weights in the order of their first gather.
class WeightNumbering {
public:
  /// The weight that `gather` gathers, and whether no gather before it does.
  std::pair<int64_t, bool> insert(Operation *gather) {
    Value operand = gather->getOperand(0);
    // What other loops gather under the same key is the same; in one block,
    // other iterations' slices are other weights, numbered as they come.
    std::string shared = getSliceKey(operand, /*inAnyIteration=*/true);
    SmallVector<std::string> &keys = inBlock[{gather->getBlock(), shared}];
    std::string key = getSliceKey(operand, /*inAnyIteration=*/false);
    auto *it = llvm::find(keys, key);
    shared += "#" + std::to_string(it - keys.begin());
    if (it == keys.end())
      keys.push_back(std::move(key));
    auto [weight, isNew] = weights.try_emplace(shared, weights.size());
    return {weight->second, isNew};
  }

private:
  std::map<std::pair<Block *, std::string>, SmallVector<std::string>> inBlock;
  llvm::StringMap<int64_t> weights;
};
} // namespace

/// Sets role, weight and reason of a gather.
static void classifyGather(StepCollective &gather, WeightNumbering &weights) {
  Type type = gather.op->getOperand(0).getType();
  if (gather.op->getNumOperands() != 1 || gather.op->getNumResults() != 1 ||
      !isFloatTensor(type) ||
      !isFloatTensor(gather.op->getResult(0).getType())) {
    gather.reason = "it does not gather one f32, bf16 or f16 tensor of static "
                    "shape";
    return;
  }
  Provenance provenance = getProvenance(gather.op->getOperand(0));
  if (!provenance.isStepInput) {
    gather.reason = "its operand is computed in the step, not a weight";
    return;
  }
  gather.role = Role::Weight;
  bool isNew;
  std::tie(gather.weight, isNew) = weights.insert(gather.op);
  gather.phase = isNew ? Phase::Forward : Phase::Backward;
  auto whole = cast<ShapedType>(gather.op->getResult(0).getType());
  gather.modelBytes = getBytes(whole);
  auto root = dyn_cast<ShapedType>(provenance.root.getType());
  // A loop over stacked weights gathers all of the stack.
  if (provenance.isSliced && root && root.hasStaticShape() &&
      gather.trips.value_or(1) > 1)
    gather.modelBytes *= *gather.trips;
}

FunctionOpInterface zpp::getStartedFunction(Operation *op) {
  SymbolRefAttr callee;
  if (auto start = dyn_cast<zero::StartOp>(op)) {
    callee = start.getCallee();
  } else if (isNamed(op, "stablehlo.custom_call")) {
    auto target = op->getAttrOfType<StringAttr>("call_target_name");
    auto config = op->getAttrOfType<DictionaryAttr>("backend_config");
    if (!target || target.getValue() != kStartTarget || !config)
      return {};
    if (auto name = config.getAs<StringAttr>("function"))
      callee = SymbolRefAttr::get(
          StringAttr::get(op->getContext(), kHostModule),
          FlatSymbolRefAttr::get(op->getContext(), name.getValue()));
  }
  if (!callee)
    return {};
  return SymbolTable::lookupNearestSymbolFrom<FunctionOpInterface>(op, callee);
}

SmallVector<StepCollective> zpp::getStepCollectives(ModuleOp module,
                                                    const Mesh &mesh) {
  SmallVector<StepCollective> result;
  GroupReader groups(mesh);
  auto add = [&](Operation *op, Operation *start, int64_t index) {
    std::optional<CollectiveView> view = ::getCollective(op, groups);
    if (!view)
      return false;
    StepCollective collective;
    static_cast<CollectiveView &>(collective) = std::move(*view);
    collective.start = start;
    collective.index = index;
    collective.trips = getTripCount(start ? start : op);
    result.push_back(std::move(collective));
    return true;
  };
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    // What is outlined counts where it is started.
    if (auto nested = dyn_cast<ModuleOp>(op);
        nested && nested.getSymName() == kHostModule)
      return WalkResult::skip();
    if (FunctionOpInterface function = getStartedFunction(op)) {
      int64_t index = 0;
      function->walk(
          [&](Operation *exchange) { index += add(exchange, op, index); });
    } else {
      add(op, nullptr, 0);
    }
    return WalkResult::advance();
  });

  WeightNumbering weights;
  llvm::StringSet<> mirrors;
  for (StepCollective &collective : result) {
    if (collective.kind != CollectiveKind::AllGather ||
        isa<zero::CollectiveOpInterface>(collective.op))
      continue;
    classifyGather(collective, weights);
    if (collective.role == Role::Weight)
      mirrors.insert(getMirrorKey(collective.dim, collective.axes,
                                  collective.op->getResult(0).getType()));
  }

  bool isBackward = false;
  for (StepCollective &collective : result) {
    if (collective.role == Role::Weight) {
      isBackward |= collective.phase == Phase::Backward;
      continue;
    }
    if (collective.kind == CollectiveKind::ReduceScatter) {
      Type type = collective.op->getOperand(0).getType();
      if (collective.op->getNumOperands() != 1 ||
          collective.op->getNumResults() != 1 || !isFloatTensor(type) ||
          !isFloatTensor(collective.op->getResult(0).getType()))
        collective.reason = "it does not scatter one f32, bf16 or f16 tensor "
                            "of static shape";
      else if (!isSum(collective.op))
        collective.reason = "its reduction is not a sum";
      else if (!mirrors.contains(
                   getMirrorKey(collective.dim, collective.axes, type)))
        collective.reason = "it mirrors no weight gather";
      else
        collective.role = Role::Gradient;
    } else if (collective.reason.empty()) {
      collective.reason = "it is no gather of a weight and no scatter of a "
                          "gradient";
    }
    if (collective.role == Role::Other && !collective.groupError.empty() &&
        collective.kind != CollectiveKind::CollectivePermute)
      collective.reason +=
          "; its bytes are not counted: " + collective.groupError;
    isBackward |= collective.role == Role::Gradient;
    collective.phase = isBackward ? Phase::Backward : Phase::Forward;
  }
  return result;
}
