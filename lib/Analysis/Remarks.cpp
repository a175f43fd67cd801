//===- Remarks.cpp - What passes say about an op --------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Remarks.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Analysis/Location.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace zpp;

/// Takes the remarks of this thread that are held back.
static thread_local HeldRemarks *heldRemarks = nullptr;

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

PassRemark::PassRemark(Operation *op, StringRef pass, StringRef name,
                       Begin begin)
    : place(getPlace(op)), options(getOptions(op, pass, name)), begin(begin) {}

PassRemark::~PassRemark() {
  sayRemarks({[place = place, options = options, begin = begin, text = text] {
    begin(place, options) << text;
  }});
}

PassRemark zpp::remarkPassed(Operation *op, StringRef pass, StringRef name) {
  return PassRemark(op, pass, name, remark::passed);
}

PassRemark zpp::remarkMissed(Operation *op, StringRef pass, StringRef name) {
  return PassRemark(op, pass, name, remark::missed);
}

PassRemark zpp::remarkAnalysis(Operation *op, StringRef pass, StringRef name) {
  return PassRemark(op, pass, name, remark::analysis);
}

HeldRemarks zpp::holdRemarks(llvm::function_ref<void()> body) {
  HeldRemarks remarks;
  llvm::SaveAndRestore scope(heldRemarks, &remarks);
  body();
  return remarks;
}

void zpp::sayRemarks(const HeldRemarks &remarks) {
  for (const auto &say : remarks)
    heldRemarks ? heldRemarks->push_back(say) : say();
}
