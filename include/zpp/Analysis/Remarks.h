//===- Remarks.h - What passes say about an op ------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_REMARKS_H
#define ZPP_ANALYSIS_REMARKS_H

#include "mlir/IR/Remarks.h"

namespace zpp {

/// A remark, to which `<<` adds the text. It is said when it is destroyed.
class PassRemark {
public:
  using Begin = mlir::remark::detail::InFlightRemark (*)(
      mlir::Location, mlir::remark::RemarkOpts);

  /// Files of remarks take only plain places: the place of this one is the
  /// first position in a file that the location of `op` names, and the function
  /// around `op`.
  PassRemark(mlir::Operation *op, llvm::StringRef pass, llvm::StringRef name,
             Begin begin);
  ~PassRemark();
  void operator<<(const llvm::Twine &more) { text += more.str(); }

private:
  mlir::Location place;
  mlir::remark::RemarkOpts options;
  Begin begin;
  std::string text;
};

/// A remark of `pass` about `op`.
PassRemark remarkPassed(mlir::Operation *op, llvm::StringRef pass,
                        llvm::StringRef name);
/// The same of what was not done.
PassRemark remarkMissed(mlir::Operation *op, llvm::StringRef pass,
                        llvm::StringRef name);
/// The same of what is not known.
PassRemark remarkAnalysis(mlir::Operation *op, llvm::StringRef pass,
                          llvm::StringRef name);

/// Remarks that are not said yet.
using HeldRemarks = std::vector<std::function<void()>>;
/// Runs `body`, and holds back the remarks of this thread.
HeldRemarks holdRemarks(llvm::function_ref<void()> body);
/// Says them, or has the `holdRemarks` around it hold them.
void sayRemarks(const HeldRemarks &remarks);

} // namespace zpp

#endif // ZPP_ANALYSIS_REMARKS_H
