// RUN: zpp-opt %s --zero-quantize-all-gather --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-quantize-all-gather --zero-quantize-all-gather \
// RUN:   --split-input-file --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-quantize-all-gather="format=i4 block=256" \
// RUN:   --split-input-file --remarks-filter=none | FileCheck %s --check-prefix=I4
// RUN: zpp-opt %s --zero-quantize-all-gather=format=none --split-input-file \
// RUN:   | FileCheck %s --check-prefix=NONE --implicit-check-not=zero.encode
// RUN: zpp-opt %s --zero-quantize-all-gather=moments=true --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=MOMENTS \
// RUN:   --implicit-check-not=zero.encode
// RUN: echo "module {}" | not zpp-opt --zero-quantize-all-gather=format=i2 2>&1 \
// RUN:   | FileCheck %s --check-prefix=FORMAT
// RUN: echo "module {}" | not zpp-opt --zero-quantize-all-gather=block=100 2>&1 \
// RUN:   | FileCheck %s --check-prefix=BLOCK

// FORMAT: error: expected a format none, i8 or i4, but got 'i2'
// BLOCK: error: expected a block that is a power of two from 32 to 2048, but got 100
// NONE: zero.all_gather

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<32x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<32x64xbf16, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @weight
func.func @weight(%w: tensor<4x64xbf16>) -> tensor<32x64xbf16> {
  // CHECK: %[[SHARD:.*]] = zero.from_local
  // CHECK: %[[CODES:.*]] = zero.encode %[[SHARD]] : {{.*}} to <32x64xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
  // CHECK: %[[MOVED:.*]] = zero.all_gather %[[CODES]] along ["node", "gpu"] {zpp.origin = {id = 7 : i64}}
  // CHECK-SAME: to <32x64xbf16, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>
  // CHECK: %[[WHOLE:.*]] = zero.decode %[[MOVED]]
  // CHECK: zero.to_local %[[WHOLE]]
  // I4: zero.encode {{.*}} #zero.quant<i4, block = 256>>
  %0 = zero.from_local %w : tensor<4x64xbf16> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 7}} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<32x64xbf16>
  return %2 : tensor<32x64xbf16>
}

// -----

// The layout pads a chunk to 16 bytes twice: what does not shrink stays.

#mesh = #zero.mesh<"gpu" = 2>
!a = !zero.shard<32xbf16, dim 0 = ("gpu") on #mesh>
!b = !zero.shard<32xbf16, dim 0 = (2) on #mesh>
!c = !zero.shard<34xbf16, dim 0 = ("gpu") on #mesh>
!d = !zero.shard<34xbf16, dim 0 = (2) on #mesh>
!e = !zero.shard<1x50xbf16, dim 1 = ("gpu") on #mesh>
!f = !zero.shard<1x50xbf16, dim 1 = (2) on #mesh>

// CHECK-LABEL: func @small
// I4-LABEL: func @small
func.func @small(%a: !a, %c: !c, %e: !e) -> (!b, !d, !f) {
  // CHECK: zero.all_gather %arg0 {{.*}} {zpp.reason = "a slice of 32 bytes would take 32 quantized"}
  // I4: zero.all_gather %arg0
  // expected-remark@+1 {{zero.all_gather is left alone: a slice of 32 bytes would take 32 quantized}}
  %0 = zero.all_gather %a along ["gpu"] : !a to !b
  // CHECK: zero.all_gather %arg1 {{.*}} {zpp.reason = "a slice of 34 bytes would take 48 quantized"}
  // I4: zero.encode %arg1
  // expected-remark@+1 {{a slice of 34 bytes would take 48 quantized}}
  %1 = zero.all_gather %c along ["gpu"] : !c to !d
  // CHECK: zero.encode %arg2
  %2 = zero.all_gather %e along ["gpu"] : !e to !f
  return %0, %1, %2 : !b, !d, !f
}

// -----

// Any element type, dim and order; padded dims.

#mesh = #zero.mesh<"rack" = 2, "node" = 1, "gpu" = 3>
!f32 = !zero.shard<4x100xf32, dim 1 = ("gpu", "rack") on #mesh>
!f32_whole = !zero.shard<4x100xf32, dim 1 = (3, 2) on #mesh>
!f16 = !zero.shard<100x4xf16, dim 0 = ("rack", "gpu") on #mesh>
!f16_part = !zero.shard<100x4xf16, dim 0 = (2, "gpu") on #mesh>

// CHECK-LABEL: func @shapes
func.func @shapes(%a: tensor<4x17xf32>, %b: tensor<17x4xf16>) -> (!f32_whole, !f16_part) {
  // CHECK: zero.all_gather {{.*}} along ["gpu", "rack"] : <4x100xf32, dim 1 = ("gpu", "rack") on #mesh, #zero.quant<i8, block = 128>>
  %0 = zero.from_local %a : tensor<4x17xf32> to !f32
  %1 = zero.all_gather %0 along ["gpu", "rack"] : !f32 to !f32_whole
  // CHECK: zero.all_gather {{.*}} along ["rack"] : {{.*}} to <100x4xf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i8, block = 128>>
  %2 = zero.from_local %b : tensor<17x4xf16> to !f16
  %3 = zero.all_gather %2 along ["rack"] : !f16 to !f16_part
  return %1, %3 : !f32_whole, !f16_part
}

// -----

// Only floats have a quantized form.

#mesh = #zero.mesh<"gpu" = 4>
// CHECK-LABEL: func @integers
// CHECK: zero.all_gather {{.*}} along ["gpu"] {zpp.reason = "expected f32, bf16 or f16 elements to quantize, but got i64"}
func.func @integers(%w: tensor<256xi64>) -> tensor<1024xi64> {
  %0 = zero.from_local %w : tensor<256xi64> to !zero.shard<1024xi64, dim 0 = ("gpu") on #mesh>
  // expected-remark@+1 {{zero.all_gather is left alone: expected f32, bf16 or f16 elements to quantize, but got i64}}
  %1 = zero.all_gather %0 along ["gpu"]
      : !zero.shard<1024xi64, dim 0 = ("gpu") on #mesh> to !zero.shard<1024xi64, dim 0 = (4) on #mesh>
  %2 = zero.to_local %1 : !zero.shard<1024xi64, dim 0 = (4) on #mesh> to tensor<1024xi64>
  return %2 : tensor<1024xi64>
}

// CHECK-LABEL: func @short_integers
// CHECK: zero.all_gather {{.*}} along ["gpu"] {zpp.reason = "expected f32, bf16 or f16 elements to quantize, but got i16"}
func.func @short_integers(%w: tensor<256xi16>) -> tensor<1024xi16> {
  %0 = zero.from_local %w : tensor<256xi16> to !zero.shard<1024xi16, dim 0 = ("gpu") on #mesh>
  // expected-remark@+1 {{zero.all_gather is left alone: expected f32, bf16 or f16 elements to quantize, but got i16}}
  %1 = zero.all_gather %0 along ["gpu"]
      : !zero.shard<1024xi16, dim 0 = ("gpu") on #mesh> to !zero.shard<1024xi16, dim 0 = (4) on #mesh>
  %2 = zero.to_local %1 : !zero.shard<1024xi16, dim 0 = (4) on #mesh> to tensor<1024xi16>
  return %2 : tensor<1024xi16>
}

// -----

// Momenta have an option of their own, and stay exact within a node.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<32x64xf32, dim 0 = ("node", "gpu") on #mesh>
!inner = !zero.shard<32x64xf32, dim 0 = ("gpu") on #mesh>
!whole = !zero.shard<32x64xf32, dim 0 = (2, 4) on #mesh>
!node = !zero.shard<32x64xf32, dim 0 = (4) on #mesh>

// CHECK-LABEL: func @moments
// MOMENTS-LABEL: func @moments
func.func @moments(%m: !primary, %n: !inner, %w: !primary) -> (!whole, !node, !whole) {
  // CHECK: zero.all_gather %arg0
  // MOMENTS: zero.encode %arg0
  %0 = zero.all_gather %m along ["node", "gpu"] {zpp.origin = {id = 0, role = "moment"}} : !primary to !whole
  // CHECK: zero.all_gather %arg1
  // MOMENTS: zero.all_gather %arg1 {{.*}}zpp.reason = "its devices share a node, and nothing of it crosses slower links"
  %1 = zero.all_gather %n along ["gpu"] {zpp.origin = {id = 1, role = "moment"}} : !inner to !node
  // CHECK: zero.encode %arg2
  // MOMENTS: zero.all_gather %arg2
  %2 = zero.all_gather %w along ["node", "gpu"] {zpp.origin = {id = 2, role = "weight"}} : !primary to !whole
  return %0, %1, %2 : !whole, !node, !whole
}
