//===- Remarks.cpp - What passes say about an op --------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Remarks.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Analysis/Location.h"

using namespace mlir;
using namespace zpp;

static Location getPlace(Operation *op) {
  FileLineColLoc file = findFileLocation(op->getLoc());
  return file ? Location(file) : op->getLoc();
}

static remark::RemarkOpts getOptions(Operation *op, StringRef pass,
                                     StringRef name) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    function = op->getParentOfType<FunctionOpInterface>();
  return remark::RemarkOpts::name(name).category(pass).function(
      function ? function.getName() : "");
}

remark::detail::InFlightRemark zpp::remarkPassed(Operation *op, StringRef pass,
                                                 StringRef name) {
  return remark::passed(getPlace(op), getOptions(op, pass, name));
}

remark::detail::InFlightRemark zpp::remarkMissed(Operation *op, StringRef pass,
                                                 StringRef name) {
  return remark::missed(getPlace(op), getOptions(op, pass, name));
}

remark::detail::InFlightRemark
zpp::remarkAnalysis(Operation *op, StringRef pass, StringRef name) {
  return remark::analysis(getPlace(op), getOptions(op, pass, name));
}
