//===- Words.h - Options that are one of several words ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Enumerations that options of passes and pipelines take by their words. LLVM's
// own parser says "Cannot find option named 'x'!" for others; this one says
// which words there are.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_WORDS_H
#define ZPP_TRANSFORMS_WORDS_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"

namespace zpp {

/// Temporary buffers that may share memory.
enum class Reuse { None, Dependent, Any };

/// The weights of which something is kept from step to step.
enum class KeptWeights { None, Frozen, All };

enum class ReportFormat { Table, Json };

/// The phases of the pipeline `zeropp`, in their order.
enum class PipelinePhase {
  Import,
  Weights,
  Gradients,
  Decompose,
  Schedule,
  Leave
};

/// Who executes the collectives.
enum class Target { Portable, Cuda };

enum class Frozen { None, Keep };

/// Reads a word of an enumeration. An error lists them all.
template <typename T> class WordParser : public llvm::cl::generic_parser_base {
public:
  using parser_data_type = T;

  WordParser(llvm::cl::Option &option) : generic_parser_base(option) {}

  unsigned getNumOptions() const override { return Values.size(); }
  llvm::StringRef getOption(unsigned index) const override {
    return Values[index].Name;
  }
  llvm::StringRef getDescription(unsigned index) const override {
    return Values[index].HelpStr;
  }
  const llvm::cl::GenericOptionValue &
  getOptionValue(unsigned index) const override {
    return Values[index].V;
  }

  bool parse(llvm::cl::Option &option, llvm::StringRef name,
             llvm::StringRef text, T &value) {
    llvm::SmallVector<llvm::StringRef> words;
    for (const Word &word : Values) {
      if (word.Name == text) {
        value = word.V.getValue();
        return false;
      }
      words.push_back(word.Name);
    }
    return option.error("expected one of " + llvm::join(words, ", ") +
                            ", but got '" + text + "'",
                        name);
  }

  /// Called by llvm::cl::values.
  template <typename ValueT>
  void addLiteralOption(llvm::StringRef name, const ValueT &value,
                        llvm::StringRef help) {
    Values.push_back(Word(name, static_cast<T>(value), help));
    AddLiteralOption(Owner, name);
  }

protected:
  // MLIR's pass options and llvm::cl::parser know these by their names.
  struct Word : GenericOptionInfo {
    Word(llvm::StringRef name, T value, llvm::StringRef help)
        : GenericOptionInfo(name, help), V(value) {}
    llvm::cl::OptionValue<T> V;
  };
  llvm::SmallVector<Word, 4> Values;
};

} // namespace zpp

// LLVM finds the parser of an option by the option's type.
#define ZPP_READ_WORDS(type)                                                   \
  template <>                                                                  \
  class llvm::cl::parser<zpp::type> : public zpp::WordParser<zpp::type> {      \
  public:                                                                      \
    using WordParser::WordParser;                                              \
  }
ZPP_READ_WORDS(Reuse);
ZPP_READ_WORDS(KeptWeights);
ZPP_READ_WORDS(ReportFormat);
ZPP_READ_WORDS(PipelinePhase);
ZPP_READ_WORDS(Target);
ZPP_READ_WORDS(Frozen);
#undef ZPP_READ_WORDS

#endif // ZPP_TRANSFORMS_WORDS_H
