// The links of the tiers decide: on slow links large tensors are quantized and
// cut into stages, on fast ones nothing is. Every choice has a remark.

// DEFINE: %{links} =
// DEFINE: %{on} = --zero-import-collectives="mesh=node:2,gpu:4 links=%{links}"
// DEFINE: %{slow} = --zero-import-collectives="mesh=node:2,gpu:4 links=node=50gbit,gpu=400gbyte"
// DEFINE: %{fast} = --zero-import-collectives="mesh=node:2,gpu:4 links=node=400gbyte,gpu=400gbyte"

// RUN: zpp-opt %s %{slow} --zero-quantize-all-gather --remarks-filter=none | FileCheck %s --check-prefix=GATHER
// RUN: zpp-opt %s %{fast} --zero-quantize-all-gather --remarks-filter="zero-.*" 2>&1 | FileCheck %s --check-prefix=PLAIN
// RUN: zpp-opt %s %{slow} --zero-split-hierarchy --remarks-filter=none | FileCheck %s --check-prefix=SCATTER
// RUN: zpp-opt %s %{fast} --zero-split-hierarchy=split-small=true --remarks-filter="zero-.*" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=WHOLE
// RUN: zpp-opt %s --zero-split-hierarchy="formats=i8:i8" --remarks-filter=none \
// RUN:   | zpp-opt --zero-import-collectives="mesh=node:2,gpu:4 links=node=60gbyte,gpu=400gbyte" --zero-decompose-reduce-scatter=stages=0 --remarks-filter="zero-.*" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=STAGES
// RUN: zpp-opt %s --zero-split-hierarchy --zero-decompose-reduce-scatter=stages=0 --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=ONE
// REDEFINE: %{links} = node=fast
// RUN: not zpp-opt %s %{on} 2>&1 | FileCheck %s --check-prefix=ERROR

// A file, as zpp-perf --calibrate prints it.
// RUN: mkdir -p %t.dir
// RUN: printf 'tier  bytes  time_usec  GB/s\nlinks=node=50.0gbit,gpu=3200.0gbit\n' > %t.dir/slow.txt
// RUN: printf 'tier  bytes  time_usec  GB/s\n' > %t.dir/empty.txt
// RUN: printf 'links=node=50gbit,gpu=fast\n' > %t.dir/bad.txt
// REDEFINE: %{links} = %t.dir/slow.txt
// RUN: zpp-opt %s %{on} --zero-quantize-all-gather --remarks-filter=none | FileCheck %s --check-prefix=GATHER
// REDEFINE: %{links} = %t.dir/empty.txt
// RUN: not zpp-opt %s %{on} 2>&1 | FileCheck %s --check-prefix=EMPTY
// REDEFINE: %{links} = %t.dir/bad.txt
// RUN: not zpp-opt %s %{on} 2>&1 | FileCheck %s --check-prefix=BAD
// REDEFINE: %{links} = %t.dir/none.txt
// RUN: not zpp-opt %s %{on} 2>&1 | FileCheck %s --check-prefix=NONE
// REDEFINE: %{links} = /dev/zero
// RUN: not zpp-opt %s %{on} 2>&1 | FileCheck %s --check-prefix=DEVICE

// What a module has of its machine is read as options are.
// RUN: not zpp-opt %s --zero-split-hierarchy --split-input-file 2>&1 | FileCheck %s --check-prefix=WORDS

// EMPTY: error: in links '{{.*}}empty.txt': expected TIER=NUMBERgbit,... or a file with a line 'links=TIER=NUMBERgbit,...', but got none in this file
// BAD: error: in links '{{.*}}bad.txt': expected TIER=NUMBERgbit or TIER=NUMBERgbyte, but got 'gpu=fast'
// NONE: error: in links '{{.*}}none.txt': expected {{.*}}, but got 'No such file or directory'
// DEVICE: error: in links '/dev/zero': expected {{.*}}, but got a device
// ERROR: error: in links 'node=fast': expected TIER=NUMBERgbit or TIER=NUMBERgbyte, but got 'node=fast'

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<8192x8192xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<8192x8192xbf16, dim 0 = (2, 4) on #mesh>
!small = !zero.shard<2048xbf16, dim 0 = ("node", "gpu") on #mesh>
!small_whole = !zero.shard<2048xbf16, dim 0 = (2, 4) on #mesh>

// GATHER-LABEL: func @gathers
// GATHER: zero.encode %{{.*}} : <8192x8192xbf16
// GATHER-NOT: zero.encode
// GATHER: zpp.reason = "on these links it takes 21 usec, quantized {{[0-9]+}}"

// PLAIN: [Missed] left-alone | Category:zero-quantize-all-gather | {{.*}}Remark="zero.all_gather is left alone: on these links it takes {{[0-9]+}} usec, quantized {{[0-9]+}}"
// PLAIN-LABEL: func @gathers
// PLAIN-NOT: zero.encode
func.func @gathers(%w: !primary, %v: !small) -> (!whole, !small_whole) {
  %0 = zero.all_gather %w along ["node", "gpu"] : !primary to !whole
  %1 = zero.all_gather %v along ["node", "gpu"] : !small to !small_whole
  return %0, %1 : !whole, !small_whole
}

// SCATTER-LABEL: func @scatters
// SCATTER: zero.reduce_scatter sum %arg0 along ["gpu"] wire <i8, block = 128>
// SCATTER: along ["node"] wire <i4, block = 128>

// Without a large one that is split there is nothing for small ones to join.
// WHOLE: [Missed] left-alone | Category:zero-split-hierarchy | {{.*}}Remark="zero.reduce_scatter is left alone: on these links it takes {{[0-9]+}} usec, in hops {{[0-9]+}}"
// WHOLE-LABEL: func @scatters
// WHOLE-COUNT-2: along ["node", "gpu"]

// STAGES: [Passed] stages | Category:zero-decompose-reduce-scatter | {{.*}}Remark="cut into {{[2-8]}} stages"
// STAGES-LABEL: func @scatters
// STAGES: stage = 1 of {{[2-8]}}

// ONE-LABEL: func @scatters
// ONE-NOT: stage =
// ONE: return
func.func @scatters(%g: !whole, %h: !small_whole) -> (!primary, !small) {
  %0 = zero.reduce_scatter sum %g along ["node", "gpu"] : !whole to !primary
  %1 = zero.reduce_scatter sum %h along ["node", "gpu"] : !small_whole to !small
  return %0, %1 : !primary, !small
}

// -----

// WORDS: error: in links 'node=fast': expected TIER=NUMBERgbit or TIER=NUMBERgbyte, but got 'node=fast'
module attributes {zpp.machine = {mesh = "node:2,gpu:4", links = "node=fast"}} {
}

// -----

// WORDS: error: in the module's machine: expected
module attributes {zpp.machine = {mesh = "node:2,gpu"}} {
}

// -----

// WORDS: error: expected a device ({{.*}}) or NUMBERtflops,NUMBERgbyte, but got 'abacus'
module attributes {zpp.machine = {mesh = "node:2,gpu:4", device = "abacus"}} {
}
