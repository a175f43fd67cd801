//===- Passes.td - Passes on the zero dialect --------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_PASSES
#define ZPP_TRANSFORMS_PASSES

include "zpp/Transforms/Import/Passes.td"
include "zpp/Transforms/Weights/Passes.td"
include "zpp/Transforms/Gradients/Passes.td"
include "zpp/Transforms/Decompose/Passes.td"
include "zpp/Transforms/Loops/Passes.td"
include "zpp/Transforms/Schedule/Passes.td"
include "zpp/Transforms/Buffers/Passes.td"

def ReportPass : Pass<"zero-report", "::mlir::ModuleOp"> {
  let summary = "Report the bytes that collectives send per tier (3.4)";
  let description = [{
    The report lists every collective of the step with its location, kind, role,
    phase and group, and with the bytes that a device sends over each tier in a
    step, before and after a rewrite earlier in the pipeline. For a collective
    that was left alone it gives the reason. It ends with totals, also in units
    of M as in the paper's volume table (a plain gather of all weights is 1),
    and with the memory that secondary partitions take.

    With `target=cuda` it also shows the schedule: every start and wait in
    order, the op of the compute before which it stands, the bytes in flight and
    the number of heavy ops between start and wait. It flags starts that are too
    early (more than the schedule's `prefetch-bytes` in flight), weights that are
    waited for before they are needed, and transfers without a heavy op to hide
    under.

    Bytes are those of the minimal algorithm: a plain gather or scatter crosses
    a tier once, and a direct all-to-all sends each pair's part. Scales and
    padding are counted.

    With the option `device` the report also predicts the time of a step. It
    places all ops on one stream for compute and one stream per tier, in the
    order of starts and waits if there are any, and otherwise as XLA orders its
    own collectives. The time of compute follows from floating-point operations
    and bytes and from the device's data sheet, the time of exchanges from
    `links`. The report then also gives the memory that a device holds as
    arguments of the step, and an estimate of its peak.
  }];
  let options = [
    MeshOption<"the tiers of the rewrite, otherwise the module's own mesh">,
    Option<"device", "device", "std::string", "\"\"",
           "Predict the time on this device: a name such as h200, or the peak in "
           "16 bits and the memory, such as 989tflops,4800gbyte">,
    Option<"computeScale", "compute-scale", "double", "1",
           "Measured time of compute, divided by the predicted one">,
    LinksOption<"those of the machine that the import has written down, "
                "otherwise NVLink on the fastest tier, a tenth of the speed "
                "on each slower one">,
    Option<"timeline", "timeline", "bool", "false",
           "List the predicted tasks as [stream, begin, end, label] (format=json)">,
    WeightsOfOption<"For a step that is not rewritten: ">,
    GradientsOfOption<"For a step that is not rewritten: ">,
    Option<"format", "format", "::zpp::ReportFormat",
           "::zpp::ReportFormat::Table", "Format of the report",
           [{::llvm::cl::values(
               clEnumValN(::zpp::ReportFormat::Table, "table", "for people"),
               clEnumValN(::zpp::ReportFormat::Json, "json", "for programs"))}]>,
    Option<"output", "output", "std::string", "\"\"",
           "File to write; - is standard output (default: standard error, "
           "beside the module on standard output)">,
  ];
}

def VerifyPhasePass : Pass<"zero-verify-phase", "::mlir::ModuleOp"> {
  let summary = "Check what a phase of zeropp leaves to the next one";
  let description = [{
    Closes each phase of the pipeline `zeropp`. The pass changes nothing. It
    fails with an error at each op that the next phase could not treat:

    - P1: after `import`, `zero` ops are collectives on partitioned tensors
      (`all_gather`, `reduce_scatter`, `all_reduce`) and the border around them
      (`from_local`, `to_local`). Nothing is encoded, and no scatter has a wire
      format.
    - P2: after `weights`, there may also be `encode` and `decode`. No gather
      waits for a decision about updates (`zpp.updated`).
    - P3: after `gradients`, there is no `all_reduce`.
    - P4: after `decompose`, the contract of `zero-verify-decomposed` holds,
      without starts and waits. A scatter that was left alone, for a reason
      (`zpp.reason`), may still be on partitioned tensors.
    - P5: after `schedule`, the same with starts and waits, which match. All
      loops are written as planned. No more is in flight under compute than the
      schedule's `prefetch-bytes`, but for one transfer alone, and weights are
      waited for where they are needed.
    - P6: after `leave`, there is no `zero` op and no partitioned tensor in the
      step, and none of the attributes that passes only leave to each other.

    Functions of the host (`@zpp_host`), which the schedule makes, are left out:
    the pipeline that bufferizes them verifies what it needs.
  }];
  let options = [
    Option<"after", "after", "::zpp::PipelinePhase",
           "::zpp::PipelinePhase::Import",
           "The phase that has run (default: import)",
           [{::llvm::cl::values(
               clEnumValN(::zpp::PipelinePhase::Import, "import", "P1"),
               clEnumValN(::zpp::PipelinePhase::Weights, "weights", "P2"),
               clEnumValN(::zpp::PipelinePhase::Gradients, "gradients", "P3"),
               clEnumValN(::zpp::PipelinePhase::Decompose, "decompose", "P4"),
               clEnumValN(::zpp::PipelinePhase::Schedule, "schedule", "P5"),
               clEnumValN(::zpp::PipelinePhase::Leave, "leave", "P6"))}]>,
  ];
}

#endif // ZPP_TRANSFORMS_PASSES
