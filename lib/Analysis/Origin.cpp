//===- Origin.cpp - What a rewritten collective comes from ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Remarks.h"

#include "mlir/IR/Builders.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

StringRef zpp::getKindName(std::optional<CollectiveKind> kind) {
  return kind ? getKindName(*kind) : StringRef();
}

StringRef zpp::getRoleName(std::optional<Role> role) {
  return role ? getRoleName(*role) : StringRef();
}

StringRef zpp::getPhaseName(std::optional<Phase> phase) {
  return phase ? getPhaseName(*phase) : StringRef();
}

StringRef zpp::getFloorName(Floor floor) {
  static constexpr llvm::StringLiteral names[] = {"", "i8", "none"};
  return names[static_cast<unsigned>(floor)];
}

Origin zpp::getOrigin(const StepCollective &collective, const Mesh &mesh,
                      int64_t id) {
  Origin origin;
  origin.id = id;
  origin.kind = collective.kind;
  origin.role = collective.role;
  origin.phase = collective.phase;
  origin.rule = getRuleName(collective.rule).str();
  llvm::raw_string_ostream os(origin.group);
  llvm::interleave(
      collective.axes, os,
      [&](const AxisRef &axis) {
        os << axis.name;
        int64_t index = mesh.findAxis(axis.name);
        if (mesh.getAxes()[index].size != axis.size)
          os << ":(" << axis.preSize << ")" << axis.size;
      },
      ",");
  origin.weight = collective.weight;
  origin.modelBytes = collective.modelBytes;
  origin.trips = collective.trips.value_or(1);
  if (!collective.exact.empty()) {
    origin.exact =
        StringAttr::get(collective.op->getContext(), collective.exact);
    origin.floor = Floor::None;
  }
  origin.block = collective.block;
  origin.isConditional = collective.isConditional;
  origin.before = collective.getSentBytes(mesh);
  for (int64_t &bytes : origin.before)
    bytes = multiplySaturating(bytes, origin.trips);
  return origin;
}

DictionaryAttr zpp::getOriginAttr(MLIRContext *context, const Origin &origin) {
  Builder builder(context);
  SmallVector<NamedAttribute> attrs;
  auto add = [&](StringRef name, Attribute value) {
    attrs.push_back(builder.getNamedAttr(name, value));
  };
  auto addNumber = [&](StringRef name, int64_t number) {
    add(name, builder.getI64IntegerAttr(number));
  };
  auto addText = [&](StringRef name, StringRef text) {
    add(name, builder.getStringAttr(text));
  };
  // In the order in which a dictionary has them.
  add("before", builder.getI64ArrayAttr(origin.before));
  if (origin.block != 0)
    addNumber("block", origin.block);
  if (origin.isConditional)
    add("conditional", builder.getUnitAttr());
  if (origin.exact)
    add("exact", origin.exact);
  if (origin.floor != Floor::Any)
    addText("floor", getFloorName(origin.floor));
  if (!origin.gets.empty()) {
    SmallVector<StringRef> words(origin.gets.begin(), origin.gets.end());
    add("gets", builder.getStrArrayAttr(words));
  }
  addText("group", origin.group);
  addNumber("id", origin.id);
  addText("kind", getKindName(origin.kind));
  if (origin.lacks)
    add("lacks", origin.lacks);
  addNumber("model_bytes", origin.modelBytes);
  if (origin.isSlower)
    add("slower", builder.getUnitAttr());
  addText("phase", getPhaseName(origin.phase));
  if (!origin.reason.empty())
    addText("reason", origin.reason);
  addText("role", getRoleName(origin.role));
  if (!origin.rule.empty())
    addText("rule", origin.rule);
  if (origin.share != 0)
    addNumber("share", origin.share);
  addNumber("trips", origin.trips);
  addNumber("weight", origin.weight);
  return DictionaryAttr::getWithSorted(context, attrs);
}

/// Returns the number in `attr`, or 0. Attributes may come from anywhere, so
/// numbers are clamped to a range in which sums and map keys work.
static int64_t readNumber(Attribute attr) {
  auto value = dyn_cast_or_null<IntegerAttr>(attr);
  if (!value || value.getValue().getSignificantBits() > 64)
    return 0;
  return std::clamp<int64_t>(value.getValue().getSExtValue(), -1,
                             int64_t(1) << 62);
}

/// Returns the one of the values from `first` to `last` whose name is `name`,
/// if any.
template <typename T>
static std::optional<T> findNamed(T first, T last, StringRef name,
                                  StringRef (*getName)(T)) {
  for (auto number = static_cast<int>(first); number <= static_cast<int>(last);
       ++number)
    if (getName(static_cast<T>(number)) == name)
      return static_cast<T>(number);
  return std::nullopt;
}

std::optional<Floor> zpp::parseFloor(StringRef name) {
  return findNamed(Floor::I8, Floor::None, name, getFloorName);
}

static Floor readFloor(DictionaryAttr origin) {
  auto name = origin.getAs<StringAttr>("floor");
  return name ? parseFloor(name.getValue()).value_or(Floor::Any) : Floor::Any;
}

static Origin readOrigin(DictionaryAttr attr) {
  auto getInt = [&](StringRef name) { return readNumber(attr.get(name)); };
  auto getString = [&](StringRef name) {
    auto value = attr.getAs<StringAttr>(name);
    return value ? value.getValue() : StringRef();
  };
  Origin origin;
  origin.id = getInt("id");
  origin.kind =
      findNamed(CollectiveKind::AllGather, CollectiveKind::CollectiveBroadcast,
                getString("kind"), getKindName);
  origin.role =
      findNamed(Role::Weight, Role::Other, getString("role"), getRoleName);
  origin.phase = findNamed(Phase::Forward, Phase::Backward, getString("phase"),
                           getPhaseName);
  origin.rule = getString("rule").str();
  origin.group = getString("group").str();
  origin.weight = getInt("weight");
  origin.modelBytes = getInt("model_bytes");
  origin.trips = getInt("trips");
  origin.share = getInt("share");
  if (isValidBlock(getInt("block")))
    origin.block = getInt("block");
  origin.reason = getString("reason").str();
  if (auto before = attr.getAs<ArrayAttr>("before"))
    for (Attribute bytes : before)
      origin.before.push_back(readNumber(bytes));
  origin.share = std::max<int64_t>(origin.share, 0);
  if (auto gets = attr.getAs<ArrayAttr>("gets"))
    for (auto word : gets.getAsRange<StringAttr>())
      origin.gets.push_back(word.str());
  origin.lacks = attr.getAs<DictionaryAttr>("lacks");
  origin.isSlower = attr.contains("slower");
  origin.floor = readFloor(attr);
  origin.exact = attr.getAs<StringAttr>("exact");
  origin.isConditional = attr.contains("conditional");
  return origin;
}

/// Returns the origins of one exchange: a dictionary, or several in an array.
static SmallVector<DictionaryAttr, 1> getDictionaries(Attribute attr) {
  SmallVector<DictionaryAttr, 1> dictionaries;
  if (auto one = dyn_cast_or_null<DictionaryAttr>(attr))
    dictionaries.push_back(one);
  else if (auto several = dyn_cast_or_null<ArrayAttr>(attr))
    for (Attribute element : several)
      if (auto dictionary = dyn_cast<DictionaryAttr>(element))
        dictionaries.push_back(dictionary);
  return dictionaries;
}

static SmallVector<Origin> readOrigins(Attribute attr) {
  return llvm::map_to_vector(getDictionaries(attr), readOrigin);
}

std::optional<Origin> zpp::getOrigin(Operation *op) {
  auto attr = op->getAttrOfType<DictionaryAttr>(kOriginAttr);
  if (!attr)
    return std::nullopt;
  return readOrigin(attr);
}

SmallVector<Origin> zpp::getOrigins(Operation *op) {
  SmallVector<Origin> origins = readOrigins(op->getAttr(kOriginAttr));
  if (auto reason = op->getAttrOfType<StringAttr>(kReasonAttr))
    for (Origin &origin : origins)
      origin.reason = reason.str();
  return origins;
}

/// Returns the origins of what a start runs; null if they are not known.
static Attribute getStartOrigins(const StepCollective &collective) {
  auto start = dyn_cast<zero::StartOp>(collective.start);
  auto all = start ? start.getOriginsAttr()
                   : collective.start->getAttrOfType<ArrayAttr>(kOriginsAttr);
  if (!all || collective.index >= static_cast<int64_t>(all.size()))
    return {};
  return all[collective.index];
}

SmallVector<Origin> zpp::getOrigins(const StepCollective &collective) {
  return collective.start ? readOrigins(getStartOrigins(collective))
                          : getOrigins(collective.op);
}

bool zpp::hasOrigin(const StepCollective &collective) {
  return !getDictionaries(collective.start
                              ? getStartOrigins(collective)
                              : collective.op->getAttr(kOriginAttr))
              .empty();
}

Floor zpp::getFloor(Operation *op) {
  Floor floor = Floor::Any;
  for (DictionaryAttr origin : getDictionaries(op->getAttr(kOriginAttr)))
    floor = std::max(floor, readFloor(origin));
  return floor;
}

int64_t zpp::getLargestBlock(Operation *op) {
  int64_t block = 0;
  for (const Origin &origin : getOrigins(op))
    if (origin.block > 0)
      block = block ? std::min(block, origin.block) : origin.block;
  return block;
}

std::string zpp::getFloorReason(ArrayRef<Origin> origins) {
  const Origin *exact = llvm::find_if(
      origins, [](const Origin &origin) { return origin.exact != nullptr; });
  return exact == origins.end() ? "floors has it travel unquantized"
                                : exact->exact.str();
}

Attribute zpp::takeOrigin(Operation *op) {
  SmallVector<Attribute> attrs;
  for (const Origin &origin : getOrigins(op))
    attrs.push_back(getOriginAttr(op->getContext(), origin));
  for (StringRef name :
       {StringRef(kOriginAttr), StringRef(kReasonAttr), StringRef(kSourceAttr)})
    op->removeAttr(name);
  return attrs.size() == 1 ? attrs.front()
                           : ArrayAttr::get(op->getContext(), attrs);
}

Location zpp::getNamedLocation(Operation *op, Role role, Value input) {
  auto origin = op->getAttrOfType<DictionaryAttr>(kOriginAttr);
  if (!origin)
    return op->getLoc();
  int64_t id = readNumber(origin.get("id"));
  std::string name = (getRoleName(role) + " #" + Twine(id)).str();
  if (auto named = input ? dyn_cast<NameLoc>(input.getLoc()) : NameLoc())
    name += (" " + named.getName().getValue()).str();
  return NameLoc::get(StringAttr::get(op->getContext(), name), op->getLoc());
}

void zpp::copyOrigin(Operation *from, Operation *to) {
  for (StringRef name : {StringRef(kOriginAttr), StringRef(kReasonAttr)})
    if (Attribute attr = from->getAttr(name))
      to->setAttr(name, attr);
}

/// Changes each origin of `op`.
static void changeOrigins(Operation *op,
                          llvm::function_ref<void(NamedAttrList &)> change) {
  auto changed = [&](Attribute attr) -> Attribute {
    auto origin = dyn_cast<DictionaryAttr>(attr);
    if (!origin)
      return attr;
    NamedAttrList attrs(origin);
    change(attrs);
    return attrs.getDictionary(op->getContext());
  };
  Attribute origin = op->getAttr(kOriginAttr);
  if (auto several = dyn_cast_or_null<ArrayAttr>(origin))
    op->setAttr(kOriginAttr,
                ArrayAttr::get(op->getContext(),
                               llvm::map_to_vector(several, changed)));
  else if (origin)
    op->setAttr(kOriginAttr, changed(origin));
}

void zpp::addGets(Operation *op, StringRef what) {
  Builder builder(op->getContext());
  changeOrigins(op, [&](NamedAttrList &origin) {
    llvm::SmallSetVector<Attribute, 4> gets;
    if (auto earlier = dyn_cast_or_null<ArrayAttr>(origin.get("gets")))
      gets.insert_range(earlier);
    gets.insert(builder.getStringAttr(what));
    origin.set("gets", builder.getArrayAttr(gets.getArrayRef()));
  });
}

/// Adds a reason to earlier ones, once.
static StringAttr addReason(MLIRContext *context, Attribute earlier,
                            const Twine &more) {
  std::string all = more.str();
  if (auto first = dyn_cast_or_null<StringAttr>(earlier))
    all = first.getValue().contains(all)
              ? first.str()
              : (first.getValue() + "; " + all).str();
  return StringAttr::get(context, all);
}

void zpp::addLacks(Operation *op, StringRef what, const Twine &why) {
  changeOrigins(op, [&](NamedAttrList &origin) {
    NamedAttrList lacks;
    if (auto earlier = dyn_cast_or_null<DictionaryAttr>(origin.get("lacks")))
      lacks = earlier;
    lacks.set(what, addReason(op->getContext(), lacks.get(what), why));
    origin.set("lacks", lacks.getDictionary(op->getContext()));
  });
}

/// The keys of `zpp.source`.
static constexpr llvm::StringLiteral kProperties = "properties";
static constexpr llvm::StringLiteral kAttributes = "attributes";

void zpp::setSource(Operation *op, Operation *imported) {
  NamedAttrList attributes(op->getDiscardableAttrDictionary());
  attributes.erase(kOriginAttr);
  NamedAttrList source;
  // An op without properties has all attributes in `attributes`.
  if (Attribute properties = op->getPropertiesAsAttribute())
    source.append(kProperties, properties);
  source.append(kAttributes, attributes.getDictionary(op->getContext()));
  imported->setAttr(kSourceAttr, source.getDictionary(op->getContext()));
}

void zpp::copySource(Operation *from, Operation *to) {
  if (Attribute source = from->getAttr(kSourceAttr))
    to->setAttr(kSourceAttr, source);
}

void zpp::restoreSource(Operation *from, Operation *to) {
  auto source = from->getAttrOfType<DictionaryAttr>(kSourceAttr);
  if (!source)
    return;
  LogicalResult result = to->setPropertiesFromAttribute(
      source.get(kProperties), [&] { return to->emitError(); });
  assert(succeeded(result) && "expected properties of an op of this name");
  (void)result;
  if (auto attributes = source.getAs<DictionaryAttr>(kAttributes))
    to->setDiscardableAttrs(attributes);
}

void zpp::leaveAlone(Operation *op, StringRef pass, const LeftAlone &why,
                     StringRef lacks) {
  leaveAlone(op, pass, Twine(why.getReason()));
  if (!lacks.empty())
    addLacks(op, lacks, why.getReason());
  if (why.isSlower())
    changeOrigins(op, [&](NamedAttrList &origin) {
      origin.set("slower", UnitAttr::get(op->getContext()));
    });
}

void zpp::leaveAlone(Operation *op, StringRef pass, const Twine &reason) {
  // Several passes may each add theirs.
  op->setAttr(kReasonAttr,
              addReason(op->getContext(), op->getAttr(kReasonAttr), reason));
  remarkMissed(op, pass, "left-alone")
      << (op->getName().getStringRef() + " is left alone: " + reason).str();
}

std::string zpp::getWhyNoCollectives(ModuleOp module) {
  int64_t devices = getNumDevices(module).value_or(1);
  std::string why =
      hasUnappliedShardings(module)
          ? "it has shardings, of which XLA makes some when it compiles the "
            "step; the command `zpp rewrite` lets XLA make them first"
      : devices == 1 ? "it is for one device; export the step with its "
                       "arguments on a mesh"
                     : "its " + std::to_string(devices) +
                           " devices exchange nothing, and no sharding says "
                           "that they should";
  return "the module has no collectives: " + why;
}

void zpp::remarkNoCollectives(ModuleOp module, StringRef pass) {
  remarkMissed(module, pass, "no-collectives") << getWhyNoCollectives(module);
}

void zpp::remarkRewrite(Operation *op, StringRef pass, const Twine &what) {
  remarkPassed(op, pass, "rewritten") << what.str();
}

bool zpp::hasRole(ArrayRef<Origin> origins, Role role) {
  return !origins.empty() && llvm::all_of(origins, [&](const Origin &origin) {
    return origin.role == role;
  });
}
