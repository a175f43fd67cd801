// RUN: zpp-opt %S/../Inputs/fsdp-2x4-locations.mlir --zeropp="mesh=node:2,gpu:4 secondary=gpu target=cuda" \
// RUN:   --remarks-filter=none --mlir-print-debuginfo | FileCheck %s
// RUN: zpp-opt %S/../Inputs/fsdp-2x4-locations.mlir --zeropp="mesh=node:2,gpu:4 weights=none target=cuda" \
// RUN:   --remarks-filter=none --mlir-print-debuginfo | FileCheck %s --check-prefix=PLAIN

// Profilers show what a call moves: the kind, the first tensor and how many go
// with it, what a device sends over each tier, and the formats.

// CHECK-DAG: loc("zpp.start all_gather weight #0 state['params']['embed'] and 9 more, 592 B over node, 3.6 kB over gpu, i8"
// CHECK-DAG: loc("zpp.wait all_gather weight #0 state['params']['embed'] and 9 more, 592 B over node, 3.6 kB over gpu, i8"
// CHECK-DAG: loc("zpp.start reduce_scatter gradient #11 and 10 more, 368 B over node, 3.3 kB over gpu, i8:i4"
// A gather within the node sends nothing between nodes.
// CHECK-DAG: loc("zpp.start all_gather weight #12 state['params']['layers'][0]['gain1'] and 6 more, 2.9 kB over gpu, i8"

// Without a format there is none to show.
// PLAIN-DAG: loc("zpp.start all_gather weight #14 state['params']['layers'][0]['proj'], 384 B over gpu"
// PLAIN-DAG: loc("zpp.start all_gather weight #4 state['params']['layers'][0]['proj'], 64 B over node, 384 B over gpu"
