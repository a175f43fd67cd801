// Where a value comes from takes linear time: each concatenation joins what the
// one before it has made with itself.

// RUN: %python %S/Inputs/concatenations.py 200 > %t.mlir
// RUN: zpp-opt %t.mlir --zero-import-collectives="mesh=node:2,gpu:4 weights-of=all" \
// RUN:   | FileCheck %s
// CHECK: zero.all_gather
