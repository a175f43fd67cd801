// The phases of zeropp, one after the other and with the same options, are
// zeropp. Each can be run alone, and ends with its check.

// RUN: zpp-opt %S/../Inputs/fsdp-2x4.mlir --zeropp -o %t.whole.mlir --remarks-filter=none
// RUN: zpp-opt %S/../Inputs/fsdp-2x4.mlir --zeropp-import -o %t.1.mlir --remarks-filter=none
// RUN: zpp-opt %t.1.mlir --zeropp-weights -o %t.2.mlir --remarks-filter=none
// RUN: zpp-opt %t.2.mlir --zeropp-gradients -o %t.3.mlir --remarks-filter=none
// RUN: zpp-opt %t.3.mlir --zeropp-decompose -o %t.4.mlir --remarks-filter=none
// RUN: zpp-opt %t.4.mlir --zeropp-schedule -o %t.5.mlir --remarks-filter=none
// RUN: zpp-opt %t.5.mlir --zeropp-leave -o %t.6.mlir --remarks-filter=none
// RUN: FileCheck %s --check-prefix=IMPORT --implicit-check-not=zero.encode < %t.1.mlir
// RUN: FileCheck %s --check-prefix=WEIGHTS --implicit-check-not=wire < %t.2.mlir
// RUN: FileCheck %s --check-prefix=GRADIENTS < %t.3.mlir
// RUN: FileCheck %s --check-prefix=DECOMPOSE --implicit-check-not=zero.shard < %t.4.mlir
// RUN: cmp %t.4.mlir %t.5.mlir
// RUN: cmp %t.whole.mlir %t.6.mlir

// IMPORT: zero.all_gather
// IMPORT: zero.reduce_scatter
// WEIGHTS: zero.encode
// WEIGHTS: zero.all_gather
// GRADIENTS: zero.reduce_scatter {{.*}} along ["gpu"] wire <i8, block = 128, rotate
// GRADIENTS: zero.reduce_scatter {{.*}} along ["node"] wire <i4, block = 128
// DECOMPOSE: zero.all_gather_chunks

// With i4 on each of several hops gradients are not rotated, unless told.

// RUN: zpp-opt %t.1.mlir --zeropp-gradients="gradients=i4:i4" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=SHORT --implicit-check-not=rotate
// RUN: zpp-opt %t.1.mlir --zeropp-gradients="gradients=i4:i4 tuning.rotate=32" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=TOLD

// SHORT: zero.reduce_scatter {{.*}} along ["gpu"] wire <i4, block = 128
// SHORT: zero.reduce_scatter {{.*}} along ["node"] wire <i4, block = 128
// TOLD: zero.reduce_scatter {{.*}} along ["gpu"] wire <i4, block = 128, rotate

// Plans of loops go from one phase to the next.

// RUN: zpp-opt %S/../Inputs/fsdp-2x4-scan.mlir --zeropp="target=cuda weights=i4:delta" \
// RUN:   -o %t.whole.mlir --remarks-filter=none
// RUN: zpp-opt %S/../Inputs/fsdp-2x4-scan.mlir --remarks-filter=none \
// RUN:   --zeropp-import="target=cuda weights=i4:delta" \
// RUN:   --zeropp-weights="target=cuda weights=i4:delta" \
// RUN:   --zeropp-gradients="target=cuda weights=i4:delta" \
// RUN:   --zeropp-decompose="target=cuda weights=i4:delta" \
// RUN:   --zeropp-schedule="target=cuda weights=i4:delta" \
// RUN:   --zeropp-leave="target=cuda weights=i4:delta" -o %t.6.mlir
// RUN: cmp %t.whole.mlir %t.6.mlir

// All errors of options are said at once, whatever phase is run.

// RUN: echo "module {}" | not zpp-opt \
// RUN:   --zeropp="weights=i4:delta secondary=none frozen=keep gradients=none tuning.coalesce-bytes=-2 tuning.prefetch-bytes=-2" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ERRORS
// RUN: echo "module {}" | not zpp-opt \
// RUN:   --zeropp-leave="weights=i4:delta secondary=none frozen=keep gradients=none tuning.coalesce-bytes=-2 tuning.prefetch-bytes=-2" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ERRORS

// ERRORS: error: expected a secondary partition with weights=i4:delta, which is what differences are taken to, but got secondary=none
// ERRORS: error: expected a secondary partition with frozen=keep, which is what is kept, but got secondary=none
// ERRORS: error: expected a number of bytes to coalesce, but got -2
// ERRORS: error: expected a number of bytes to prefetch, but got -2
