// With a memory limit, or choose=true, the pipeline chooses by what it predicts of candidates.

// RUN: rm -rf %t && split-file %s %t
// DEFINE: %{more} =
// DEFINE: %{step} = layers
// DEFINE: %{run} = cd %t && zpp-opt %{step}.mlir --zeropp="mesh=node:2,gpu:4 weights-of=all target=cuda secondary=none gradients=none %{more}" --zero-report="format=json output=report.json"

// The default in-flight limit fits: the program and the remarks are as without a limit.
// RUN: %{run} -o given.mlir 2> given.log
// REDEFINE: %{more} = memory-limit=733347840
// RUN: %{run} -o met.mlir 2> met.log && diff given.mlir met.mlir && diff given.log met.log
// RUN: FileCheck %s --check-prefix=NONE --input-file=%t/report.json
// NONE: "choices": []

// It does not: the largest that does is taken, and said in the program, a remark and the report. Of the others nothing is said.
// REDEFINE: %{more} = memory-limit=733347839
// RUN: %{run} -o less.mlir 2> less.log && FileCheck %s --check-prefix=LESS --input-file=%t/less.mlir
// RUN: FileCheck %s --check-prefix=LESS-REMARK --input-file=%t/less.log
// RUN: FileCheck %s --check-prefix=LESS-REPORT --input-file=%t/report.json
// LESS: zpp.choices = [{options = "tuning.prefetch-bytes=134217728", why = "in-flight limit 128.0 MiB: predicted
// LESS-SAME: zpp.prefetch_bytes = 134217728
// LESS-REMARK: [Missed] exposed
// LESS-REMARK-NOT: exceed prefetch-bytes = 268435456
// LESS-REMARK: [Analysis] chosen | Category:zero-choose | Remark="in-flight limit 128.0 MiB: predicted 1.7 ms per step, of which 0.8 ms are exposed communication; 0.49 GiB at the peak; in-flight limit 256.0 MiB would take 1.5 ms, but 0.68 GiB of 0.68 GiB"
// LESS-REMARK-NOT: chosen
// LESS-REPORT: "options": "tuning.prefetch-bytes=134217728",
// LESS-REPORT-NEXT: "why": "in-flight limit 128.0 MiB:
// LESS-REPORT: "prefetch_bytes": 134217728

// As the program with this limit.
// REDEFINE: %{more} = tuning.prefetch-bytes=134217728
// RUN: %{run} -o same.mlir --remarks-filter=none && sed "s/zpp.choices = .*}], //" %t/less.mlir | diff %t/same.mlir -

// None fits.
// REDEFINE: %{more} = memory-limit=1
// RUN: %{run} -o least.mlir 2>&1 | FileCheck %s --check-prefix=LEAST
// LEAST: in-flight limit 64.0 MiB: predicted {{.*}}; nothing fits into 0.00 GiB, and this needs the least

// A limit that is given stays. So does XLA's order.
// REDEFINE: %{more} = memory-limit=1 tuning.prefetch-bytes=268435456
// RUN: %{run} -o stays.mlir 2>&1 | FileCheck %s --check-prefix=STAYS --allow-empty
// REDEFINE: %{more} = memory-limit=1 target=portable
// RUN: %{run} -o stays.mlir 2>&1 | FileCheck %s --check-prefix=STAYS --allow-empty
// STAYS-NOT: zero-choose

// Nodes of one device keep whole weights if links are slow, nobody asked for something else, and they fit.
// REDEFINE: %{step} = gathered-again
// REDEFINE: %{run} = cd %t && zpp-opt %{step}.mlir --zeropp="mesh=node:2,gpu:1 weights-of=all target=cuda memory-limit=1000000000 links=node=10gbit,gpu=400gbyte %{more}" --zero-report="format=json output=report.json"
// REDEFINE: %{more} =
// RUN: %{run} -o whole.mlir 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: FileCheck %s --check-prefix=WHOLE-REPORT --input-file=%t/report.json
// WHOLE: Remark="secondary=1: nodes have one device, so each keeps whole weights for the backward pass: predicted 55.7 ms per step, of which 54.5 ms are exposed communication; as given 109.5 ms, 1.97x; 0.71 GiB at the peak"
// WHOLE-REPORT: "options": "secondary=1"
// WHOLE-REPORT: "secondary_bytes": 136314880
// With less memory they fit with less in flight.
// REDEFINE: %{more} = memory-limit=780000000
// RUN: %{run} -o whole.mlir 2>&1 | FileCheck %s --check-prefix=TIGHT
// TIGHT: Remark="in-flight limit 128.0 MiB: {{.*}} 256.0 MiB would take 55.7 ms, but 0.71 GiB of 0.65 GiB"
// TIGHT: Remark="secondary=1: nodes have one device, {{.*}}; as given {{.*}}; 0.50 GiB at the peak
// REDEFINE: %{more} = secondary=gpu
// RUN: %{run} -o whole.mlir 2>&1 | FileCheck %s --check-prefix=PARTS --allow-empty
// REDEFINE: %{more} = links=node=400gbyte,gpu=400gbyte
// RUN: %{run} -o whole.mlir 2>&1 | FileCheck %s --check-prefix=PARTS --allow-empty
// REDEFINE: %{more} = links=none
// RUN: %{run} -o whole.mlir 2>&1 | FileCheck %s --check-prefix=PARTS --allow-empty
// REDEFINE: %{more} = memory-limit=400000000
// RUN: %{run} -o whole.mlir 2>&1 | FileCheck %s --check-prefix=PARTS --allow-empty
// REDEFINE: %{more} = mesh=node:1,gpu:2 links=node=10gbit,gpu=10gbit
// RUN: %{run} -o whole.mlir 2>&1 | FileCheck %s --check-prefix=PARTS --allow-empty
// PARTS-NOT: nodes have one device

// The best plan, with what it chooses itself.
// REDEFINE: %{more} = choose=true plans=plans.json
// RUN: %{run} -o best.mlir 2>&1 | FileCheck %s --check-prefix=BEST
// RUN: FileCheck %s --check-prefix=PLANS --input-file=%t/plans.json
// BEST: Remark="secondary=1: nodes have one device
// BEST: Remark="qwZ + hpZ: predicted 55.7 ms per step, of which 54.5 ms are exposed communication; FSDP 215.1 ms, 3.86x; 0.71 GiB at the peak"
// PLANS: "best":"qwZ + hpZ","why":"qwZ + hpZ: predicted {{.*}}","scale":1,
// PLANS-SAME: "name":"FSDP","options":"accumulate=none weights=none secondary=none frozen=none gradients=none reduced=none"
// PLANS: "name":"qwZ","options":"accumulate=none secondary=none frozen=none gradients=none reduced=none"
// PLANS: "options": "secondary=1"

// Only among what the options allow, and what fits. Compute that was measured scales all of it.
// REDEFINE: %{more} = choose=true plans=plans.json weights=none gradients=none compute-usec=5e5
// RUN: %{run} -o best.mlir 2>&1 | FileCheck %s --check-prefix=ALLOWED
// RUN: not grep -o '"name":"q' %t/plans.json
// ALLOWED: Remark="FSDP: predicted 553.7 ms
// Blocks are those of momenta, too.
// REDEFINE: %{more} = choose=true weights=none gradients=none moments=i8 tuning.block=64
// RUN: %{run} -o best.mlir && FileCheck %s --check-prefix=BLOCK --input-file=%t/report.json
// BLOCK-NOT: tuning.block
// REDEFINE: %{more} = choose=true memory-limit=1
// RUN: %{run} -o best.mlir 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: at the peak; nothing fits into 0.00 GiB, and this needs the least

// Errors of candidates are errors, and so is a file that cannot be written.
// RUN: not zpp-opt %t/gathered-again.mlir --zeropp="choose=true mesh=node:2 weights-of=all plans=%t/nowhere/plans.json" 2>&1 | FileCheck %s --check-prefix=FILE
// FILE: error: cannot write plans to '{{.*}}nowhere/plans.json': No such file or directory
// RUN: not zpp-opt %t/gathered-again.mlir --zeropp="choose=true mesh=node:3" 2>&1 | FileCheck %s --check-prefix=MESH
// MESH: error: expected a mesh of 2 devices

// RUN: not zpp-opt %t/gathered-again.mlir --zero-choose="options=mash=node:2" 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: error: {{.*}}no such option mash

// RUN: not zpp-opt %t/gathered-again.mlir --zeropp="memory-limit=-1 mesh=node:2" 2>&1 | FileCheck %s --check-prefix=LIMIT
// LIMIT: error: expected a number of bytes to fit into, but got -1

// A second run does not repeat what the first one chose.
// RUN: zpp-opt %t/less.mlir --zeropp="target=cuda" --remarks-filter=none | FileCheck %s --check-prefix=AGAIN
// AGAIN-NOT: zpp.choices

// What has no collectives has no best plan.
// REDEFINE: %{step} = nothing
// REDEFINE: %{more} = choose=true
// RUN: %{run} -o nothing.mlir 2>&1 | FileCheck %s --check-prefix=NOTHING-TO-DO
// NOTHING-TO-DO: the module has no collectives
// NOTHING-TO-DO-NOT: chosen

//--- layers.mlir
module attributes {mhlo.num_partitions = 8 : i32} {
func.func @main(%x: tensor<1024x8192xbf16>, %w0: tensor<1024x8192xbf16>, %w1: tensor<1024x8192xbf16>, %w2: tensor<1024x8192xbf16>, %w3: tensor<1024x8192xbf16>) -> tensor<1024x8192xbf16> {
  %g0 = "stablehlo.all_gather"(%w0) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<1024x8192xbf16>) -> tensor<8192x8192xbf16>
  %y0 = stablehlo.dot_general %x, %g0, contracting_dims = [1] x [0] : (tensor<1024x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<1024x8192xbf16>
  %g1 = "stablehlo.all_gather"(%w1) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<1024x8192xbf16>) -> tensor<8192x8192xbf16>
  %y1 = stablehlo.dot_general %y0, %g1, contracting_dims = [1] x [0] : (tensor<1024x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<1024x8192xbf16>
  %g2 = "stablehlo.all_gather"(%w2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<1024x8192xbf16>) -> tensor<8192x8192xbf16>
  %y2 = stablehlo.dot_general %y1, %g2, contracting_dims = [1] x [0] : (tensor<1024x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<1024x8192xbf16>
  %g3 = "stablehlo.all_gather"(%w3) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 4, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<1024x8192xbf16>) -> tensor<8192x8192xbf16>
  %y3 = stablehlo.dot_general %y2, %g3, contracting_dims = [1] x [0] : (tensor<1024x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<1024x8192xbf16>
  return %y3 : tensor<1024x8192xbf16>
}
}
//--- gathered-again.mlir
module attributes {mhlo.num_partitions = 2 : i32} {
func.func @main(%x: tensor<1024x8192xbf16>, %w0: tensor<4096x8192xbf16>, %w1: tensor<4096x8192xbf16>) -> tensor<1024x8192xbf16> {
  %ga = "stablehlo.all_gather"(%w0) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<4096x8192xbf16>) -> tensor<8192x8192xbf16>
  %ya = stablehlo.dot_general %x, %ga, contracting_dims = [1] x [0] : (tensor<1024x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<1024x8192xbf16>
  %gb = "stablehlo.all_gather"(%w1) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<4096x8192xbf16>) -> tensor<8192x8192xbf16>
  %yb = stablehlo.dot_general %ya, %gb, contracting_dims = [1] x [0] : (tensor<1024x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<1024x8192xbf16>
  %sc = "stablehlo.optimization_barrier"(%w1) : (tensor<4096x8192xbf16>) -> tensor<4096x8192xbf16>
  %gc = "stablehlo.all_gather"(%sc) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<4096x8192xbf16>) -> tensor<8192x8192xbf16>
  %yc = stablehlo.dot_general %yb, %gc, contracting_dims = [1] x [1] : (tensor<1024x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<1024x8192xbf16>
  %sd = "stablehlo.optimization_barrier"(%w0) : (tensor<4096x8192xbf16>) -> tensor<4096x8192xbf16>
  %gd = "stablehlo.all_gather"(%sd) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 4, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<4096x8192xbf16>) -> tensor<8192x8192xbf16>
  %yd = stablehlo.dot_general %yc, %gd, contracting_dims = [1] x [1] : (tensor<1024x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<1024x8192xbf16>
  return %yd : tensor<1024x8192xbf16>
}
}
//--- nothing.mlir
module attributes {mhlo.num_partitions = 2 : i32} {
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}
}
