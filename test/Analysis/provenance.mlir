// Provenance takes linear time: each concatenation joins the result of the one
// before it with itself.

// RUN: %python %S/Inputs/concatenations.py 200 > %t.mlir
// RUN: zpp-opt %t.mlir --zero-import-collectives="mesh=node:2,gpu:4 weights-of=all" \
// RUN:   | FileCheck %s
// CHECK: zero.all_gather
