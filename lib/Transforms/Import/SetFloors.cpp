//===- SetFloors.cpp - The narrowest formats of single collectives --------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Origin.h"
#include "zpp/Transforms/Passes.h"

#include <map>
#include <set>

namespace zpp {
#define GEN_PASS_DEF_SETFLOORSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

/// Floors by number of a collective, in their order.
using Floors = std::map<int64_t, Floor>;

/// The floors in `text`, the option of the pass. Emits an error at `module` if
/// it is malformed.
static FailureOr<Floors> parseFloors(ModuleOp module, StringRef text) {
  Floors floors;
  if (text.empty())
    return floors;
  for (StringRef part : llvm::split(text, ',')) {
    auto [number, name] = part.split('=');
    int64_t id;
    std::optional<Floor> floor = parseFloor(name.trim());
    if (number.trim().getAsInteger(10, id) || id < 0 || !floor)
      return emitError(module.getLoc(),
                       "expected floors as NUMBER=i8 or NUMBER=none, separated "
                       "by ',', but got '")
             << part << "'";
    if (!floors.try_emplace(id, *floor).second)
      return emitError(module.getLoc(),
                       "expected each collective once in floors, but got ")
             << id << " twice";
  }
  return floors;
}

namespace {
class SetFloorsPass : public zpp::impl::SetFloorsPassBase<SetFloorsPass> {
public:
  using SetFloorsPassBase::SetFloorsPassBase;

  void runOnOperation() override {
    FailureOr<Floors> asked = parseFloors(getOperation(), floors);
    if (failed(asked))
      return signalPassFailure();
    if (asked->empty())
      return;
    SmallVector<std::pair<Operation *, Origin>> collectives;
    // By number of the weight.
    Floors ofWeights;
    std::set<int64_t> known;
    getOperation().walk([&](Operation *op) {
      std::optional<Origin> origin = getOrigin(op);
      if (!origin)
        return;
      known.insert(origin->id);
      if (auto it = asked->find(origin->id); it != asked->end()) {
        origin->floor = std::max(origin->floor, it->second);
        if (origin->weight >= 0) {
          Floor &floor = ofWeights[origin->weight];
          floor = std::max(floor, origin->floor);
        }
      }
      collectives.emplace_back(op, std::move(*origin));
    });
    for (const auto &[id, floor] : *asked)
      if (known.count(id) == 0) {
        emitError(getOperation().getLoc(),
                  "expected numbers of the step's collectives in floors, ")
            << (known.empty() ? std::string("of which there are none")
                              : "up to " + std::to_string(*known.rbegin()))
            << ", but got " << id;
        return signalPassFailure();
      }
    for (auto &[op, origin] : collectives) {
      if (auto it = ofWeights.find(origin.weight); it != ofWeights.end())
        origin.floor = std::max(origin.floor, it->second);
      if (origin.floor == Floor::Any)
        continue;
      // Nothing else of the attribute changes, whoever has written it.
      NamedAttrList attrs(op->getAttrOfType<DictionaryAttr>(kOriginAttr));
      attrs.set("floor",
                StringAttr::get(&getContext(), getFloorName(origin.floor)));
      op->setAttr(kOriginAttr, attrs.getDictionary(&getContext()));
    }
  }
};
} // namespace
