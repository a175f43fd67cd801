// RUN: zpp-opt %s --zero-set-floors=floors=0=i8,3=none,4=i8 | FileCheck %s
// RUN: zpp-opt %s --zero-set-floors=floors=0=i8,3=none,4=i8 \
// RUN:   --zero-set-floors=floors=4=i8 | FileCheck %s

// Nothing is asked for, and nothing changes.
// RUN: zpp-opt %s -o %t.before
// RUN: zpp-opt %s --zero-set-floors -o %t.after
// RUN: diff %t.before %t.after

// The formats that follow: of the weights, of their differences, of the gradients.
// RUN: zpp-opt %s --zero-set-floors=floors=0=i8,3=none,4=i8 --remarks-filter=none \
// RUN:   --zero-quantize-all-gather=format=i4 --zero-split-all-reduce=formats=i4:i4 \
// RUN:   --zero-split-hierarchy=formats=i4:i4 | FileCheck %s --check-prefix=FORMATS
// RUN: zpp-opt %s --zero-set-floors=floors=2=none,4=none --remarks-filter=none \
// RUN:   --zero-quantize-all-gather=format=i4 --zero-split-all-reduce \
// RUN:   --zero-split-hierarchy | FileCheck %s --check-prefix=NONE
// RUN: zpp-opt %s --zero-set-floors=floors=3=none,4=none --remarks-filter=none \
// RUN:   --zero-split-all-reduce=split-exact=true \
// RUN:   --zero-split-hierarchy=split-exact=true | FileCheck %s --check-prefix=EXACT
// Also where on these links one collective is faster, since it may travel with others.
// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4 links=node=400gbyte,gpu=400gbyte" \
// RUN:   --zero-set-floors=floors=3=none,4=none --remarks-filter=none \
// RUN:   --zero-split-all-reduce=split-exact=true \
// RUN:   --zero-split-hierarchy=split-exact=true | FileCheck %s --check-prefix=EXACT

// A floor changes nothing where nothing has a format.
// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4 links=node=400gbyte,gpu=400gbyte" \
// RUN:   --zero-set-floors=floors=3=none --zero-split-hierarchy=formats=none:none -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=LINKS
// LINKS: zero.reduce_scatter is left alone: on these links it takes {{[0-9]+}} usec, in hops

// With micro-batches, an unquantized gradient still crosses the nodes once per
// update: with half of the bytes of the two that there are.
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-accumulate.mlir --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 accumulate=gpu floors=28=none" --zero-report=format=json -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ONCE
// ONCE: "node": 128
// ONCE: "before": {
// ONCE: "node": 256
// ONCE-NEXT: },
// ONCE-NEXT: "conditional": false,
// ONCE-NEXT: "floor": "none",
// ONCE-NEXT: "gets": [
// ONCE-NEXT: "accumulate"
// ONCE: "id": 28,
// ONCE: "lacks": {},

// What is no narrower than the floor stays.
// RUN: zpp-opt %s --zero-set-floors=floors=0=i8,3=i8 --remarks-filter=none \
// RUN:   --zero-quantize-all-gather=format=i8 --zero-split-hierarchy=formats=none:i8 -o %t.wide
// RUN: zpp-opt %s --remarks-filter=none \
// RUN:   --zero-quantize-all-gather=format=i8 --zero-split-hierarchy=formats=none:i8 -o %t.given
// RUN: sed 's/floor = "i8", //' %t.wide | diff - %t.given

// Remarks say what is not quantized.
// RUN: zpp-opt %s --zero-set-floors=floors=2=none,3=none --zero-quantize-all-gather \
// RUN:   --zero-split-hierarchy -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARKS
// REMARKS: zero.all_gather is not quantized: floors has it travel unquantized
// REMARKS: zero.reduce_scatter is left alone: floors has it travel unquantized

// DEFINE: %{floors} =
// DEFINE: %{run} = not zpp-opt %s --zero-set-floors=floors=%{floors} -o /dev/null 2>&1 | FileCheck %s --check-prefix
// REDEFINE: %{floors} = 7=i8
// RUN: %{run} UNKNOWN
// UNKNOWN: error: expected numbers of the step's collectives in floors, up to 4, but got 7
// REDEFINE: %{floors} = 1=i4
// RUN: %{run} FORM
// FORM: error: expected floors as NUMBER=i8 or NUMBER=none, separated by ',', but got '1=i4'
// REDEFINE: %{floors} = 1=i8,w=none
// RUN: %{run} NUMBER
// NUMBER: error: expected floors as NUMBER=i8 or NUMBER=none, separated by ',', but got 'w=none'
// REDEFINE: %{floors} = 1=i8,2
// RUN: %{run} ALONE
// ALONE: error: expected floors as NUMBER=i8 or NUMBER=none, separated by ',', but got '2'
// REDEFINE: %{floors} = -1=i8
// RUN: %{run} NEGATIVE
// NEGATIVE: error: expected floors as NUMBER=i8 or NUMBER=none, separated by ',', but got '-1=i8'
// REDEFINE: %{floors} = 1=i8,1=none
// RUN: %{run} TWICE
// TWICE: error: expected each collective once in floors, but got 1 twice
// RUN: echo "module {}" | not zpp-opt --zero-set-floors=floors=0=i8 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: error: expected numbers of the step's collectives in floors, of which there are none, but got 0

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
!same = !zero.shard<256x64xbf16, dim 0 = () on #mesh>

// Both gathers of the first weight have the floor of one of them; the second
// weight has none.
// CHECK-LABEL: func @step
// CHECK: zero.all_gather {{.*}}{floor = "i8", id = 0 : i64
// CHECK: zero.all_gather {{.*}}{floor = "i8", id = 1 : i64
// CHECK: zero.all_gather {{.*}}{id = 2 : i64
// CHECK: zero.reduce_scatter {{.*}}{floor = "none", id = 3 : i64
// CHECK: zero.all_reduce {{.*}}{floor = "i8", id = 4 : i64

// FORMATS-LABEL: func @step
// FORMATS: zero.all_gather {{.*}}id = 0 : i64{{.*}}#zero.quant<i8, block = 128>
// FORMATS: zero.all_gather {{.*}}id = 1 : i64{{.*}}#zero.quant<i8, block = 128>
// FORMATS: zero.all_gather {{.*}}id = 2 : i64{{.*}}#zero.quant<i4, block = 128>
// FORMATS: zero.reduce_scatter sum %{{.*}} along ["node", "gpu"] {zpp.origin = {floor = "none", id = 3 : i64{{.*}}zpp.reason = "floors has it travel unquantized"
// FORMATS: zero.reduce_scatter {{.*}} along ["gpu"] wire <i8, block = 128> {zpp.origin = {floor = "i8", id = 4
// FORMATS: zero.reduce_scatter {{.*}} along ["node"] wire <i8, block = 128>
// FORMATS: zero.encode {{.*}}#zero.quant<i8, block = 128>

// NONE-LABEL: func @step
// NONE: zero.all_gather {{.*}}id = 0 : i64{{.*}}#zero.quant<i4, block = 128>
// NONE: zero.all_gather {{.*}}id = 1 : i64{{.*}}#zero.quant<i4, block = 128>
// NONE: zero.all_gather %{{.*}} along ["node", "gpu"] {zpp.origin = {floor = "none", id = 2
// NONE: zero.reduce_scatter {{.*}} along ["gpu"] wire <i8, block = 128> {zpp.origin = {id = 3
// NONE: zero.reduce_scatter {{.*}} along ["node"] wire <i4, block = 128>
// NONE: "stablehlo.all_reduce"(%arg2)
// NONE: }) {zpp.origin = {floor = "none", id = 4 : i64{{.*}}zpp.reason = "floors has it travel unquantized"}

// Hops, but no formats.
// EXACT-LABEL: func @step
// EXACT: zero.reduce_scatter {{.*}} along ["gpu"] {zpp.origin = {floor = "none", id = 3
// EXACT: zero.reduce_scatter {{.*}} along ["node"] {zpp.origin = {floor = "none", id = 3
// EXACT: zero.reduce_scatter {{.*}} along ["gpu"] {zpp.origin = {floor = "none", id = 4
// EXACT: zero.reduce_scatter {{.*}} along ["node"] {zpp.origin = {floor = "none", id = 4
// EXACT-NOT: zero.encode
func.func @step(%w: tensor<32x64xbf16>, %v: tensor<32x64xbf16>, %g: tensor<256x64xbf16>)
    -> (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<32x64xbf16>, tensor<256x64xbf16>) {
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 0, kind = "all_gather", role = "weight", weight = 0}} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<256x64xbf16>
  %3:2 = stablehlo.optimization_barrier %w, %g : tensor<32x64xbf16>, tensor<256x64xbf16>
  %4 = zero.from_local %3#0 : tensor<32x64xbf16> to !primary
  %5 = zero.all_gather %4 along ["node", "gpu"] {zpp.origin = {id = 1, kind = "all_gather", role = "weight", weight = 0}} : !primary to !whole
  %6 = zero.to_local %5 : !whole to tensor<256x64xbf16>
  %7 = zero.from_local %v : tensor<32x64xbf16> to !primary
  %8 = zero.all_gather %7 along ["node", "gpu"] {zpp.origin = {id = 2, kind = "all_gather", role = "weight", weight = 1}} : !primary to !whole
  %9 = zero.to_local %8 : !whole to tensor<256x64xbf16>
  %10 = zero.from_local %3#1 : tensor<256x64xbf16> to !whole
  %11 = zero.reduce_scatter sum %10 along ["node", "gpu"] {zpp.origin = {id = 3, kind = "reduce_scatter", role = "gradient", weight = -1}} : !whole to !primary
  %12 = zero.to_local %11 : !primary to tensor<32x64xbf16>
  %13 = zero.from_local %g : tensor<256x64xbf16> to !same
  %14 = zero.all_reduce sum %13 along ["node", "gpu"] {zpp.origin = {id = 4, kind = "all_reduce", role = "gradient", weight = -1}} : !same
  %15 = zero.to_local %14 : !same to tensor<256x64xbf16>
  return %2, %6, %9, %12, %15 : tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<32x64xbf16>, tensor<256x64xbf16>
}
