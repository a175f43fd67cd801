//===- PassOptions.td - What passes have in common ---------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_PASSOPTIONS
#define ZPP_TRANSFORMS_PASSOPTIONS

include "mlir/Pass/PassBase.td"

class Zpp_ModulePass<string flag> : Pass<flag, "::mlir::ModuleOp"> {
  let dependentDialects = ["::zpp::zero::ZeroDialect",
                           "::mlir::tensor::TensorDialect"];
}

class MeshOption<string defaultText>
    : Option<"mesh", "mesh", "std::string", "\"\"",
             "Tiers from slowest to fastest, such as node:2,gpu:4 (default: " #
                 defaultText # ")">;

class LinksOption<string defaultText>
    : Option<"links", "links", "std::string", "\"\"",
             "Speeds of the tiers' links, such as node=50gbit,gpu=400gbyte, or "
             "a file with them (default: " # defaultText # ")">;

class DeviceOption<string text>
    : Option<"device", "device", "std::string", "\"\"", text>;

class WeightsOfOption<string where = "">
    : Option<"weightsOf", "weights-of", "std::string", "\"\"",
             where # "Arguments of the step to treat as weights even if the "
             "step does not show that they are: all, or numbers and ranges, "
             "such as 0,3-7">;

class GradientsOfOption<string where = "">
    : Option<"gradientsOf", "gradients-of", "std::string", "\"\"",
             where # "Arguments of the step whose updates are sums of "
             "gradients even if nothing proves it: all, or numbers and ranges, "
             "such as 0,3-7">;

class FormatOption<string defaultFormat, string formats>
    : Option<"format", "format", "std::string", "\"" # defaultFormat # "\"",
             "Format on the wire: " # formats>;

def FormatsOption
    : Option<"formats", "formats", "std::string", "\"i8:i4\"",
             "Format of each hop from the innermost outwards: none, i8 or i4, "
             "separated by ':'">;

def BlockOption
    : Option<"block", "block", "int64_t", "128",
             "Elements that share a scale: a power of two from 32 to 2048">;

def SplitExactOption
    : Option<"splitExact", "split-exact", "bool", "false",
             "Split what floors keep unquantized into hops, too, which "
             "zero-accumulate-gradients needs">;

def RotateOption
    : Option<"rotate", "rotate", "int64_t", "0",
             "Elements of a group that is rotated before it is quantized: 32, "
             "or 0 for none">;

class StagesOption<string what>
    : Option<"stages", "stages", "int64_t", "1",
             "Cut every " # what # " into this many parts, sent one after the "
             "other (4.1.2); 0 picks the number that suits the links">;

class SplitSmallOption<string what>
    : Option<"splitSmall", "split-small", "bool", "false",
             "Also split " # what # ", so that they can travel with others "
             "(zero-coalesce-collectives)">;

def BetweenStepsOption
    : Option<"betweenSteps", "between-steps", "::zpp::KeptWeights",
             "::zpp::KeptWeights::None",
             "Keep the partitions of these weights for the next step too, also "
             "if they are gathered once, and if the group is one device",
             [{::llvm::cl::values(
                 clEnumValN(::zpp::KeptWeights::None, "none", "of no weights"),
                 clEnumValN(::zpp::KeptWeights::Frozen, "frozen",
                            "of those that the step does not change"),
                 clEnumValN(::zpp::KeptWeights::All, "all",
                            "of all weights"))}]>;

class StartOption<string what>
    : Option<"start", "start", "bool", "false", "Take no state, " # what>;

#endif // ZPP_TRANSFORMS_PASSOPTIONS
