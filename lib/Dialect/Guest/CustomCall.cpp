//===- CustomCall.cpp - Custom calls whose operands are results -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/CustomCall.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Names.h"

using namespace mlir;
using namespace zpp;

static ArrayAttr getRowMajorLayouts(Builder &builder, TypeRange types) {
  return builder.getArrayAttr(llvm::map_to_vector(types, [&](Type type) {
    SmallVector<int64_t> order = llvm::to_vector(llvm::reverse(
        llvm::seq<int64_t>(0, cast<RankedTensorType>(type).getRank())));
    return Attribute(builder.getIndexTensorAttr(order));
  }));
}

void CustomCallBuilder::passOn(ValueRange values) {
  for (Value value : values) {
    aliases.emplace_back(results.size(), operands.size());
    operands.push_back(value);
    results.push_back(value.getType());
  }
}

Operation *CustomCallBuilder::create(StringRef target,
                                     ArrayRef<NamedAttribute> config,
                                     bool hasSideEffect) {
  OperationState state(loc, guest::kCustomCall);
  state.addOperands(operands);
  state.addTypes(results);
  auto named = [&](StringRef name, Attribute value) {
    return builder.getNamedAttr(name, value);
  };
  state.propertiesAttr = builder.getDictionaryAttr({
      named("api_version", builder.getI32IntegerAttr(4)),
      named("backend_config", builder.getDictionaryAttr(config)),
      named("call_target_name", builder.getStringAttr(target)),
      named("called_computations", builder.getArrayAttr({})),
      named("has_side_effect", builder.getBoolAttr(hasSideEffect)),
      named("operand_layouts",
            getRowMajorLayouts(builder, ValueRange(operands).getTypes())),
      named("output_operand_aliases", getAliases()),
      named("result_layouts", getRowMajorLayouts(builder, results)),
  });
  return builder.create(state);
}

Attribute CustomCallBuilder::getAliases() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "[";
  llvm::interleaveComma(aliases, os, [&](std::pair<size_t, size_t> alias) {
    // Several results form a tuple.
    os << "#stablehlo.output_operand_alias<output_tuple_indices = [";
    if (results.size() > 1)
      os << alias.first;
    os << "], operand_index = " << alias.second
       << ", operand_tuple_indices = []>";
  });
  os << "]";
  return parseAttribute(text, builder.getContext());
}
