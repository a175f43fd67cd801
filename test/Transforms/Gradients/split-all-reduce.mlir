// RUN: zpp-opt %s --zero-split-all-reduce --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-split-all-reduce --zero-split-all-reduce \
// RUN:   --zero-split-hierarchy --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-split-all-reduce="formats=i4 reduced=i4 block=64" \
// RUN:   --split-input-file | FileCheck %s --check-prefix=ONE
// RUN: zpp-opt %s --zero-split-all-reduce="formats=none:none reduced=none" \
// RUN:   --split-input-file | FileCheck %s --check-prefix=PLAIN \
// RUN:   --implicit-check-not=encode
// RUN: zpp-opt %s --zero-split-all-reduce=split-small=true \
// RUN:   --split-input-file | FileCheck %s --check-prefix=SMALL
// RUN: echo "module {}" | not zpp-opt --zero-split-all-reduce=reduced=i7 2>&1 \
// RUN:   | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: error: expected a format none, i8 or i4, but got 'i7'

// Plain data parallelism: faster tiers are scattered over first and gathered
// over last. Sums stay in f32 until they are encoded.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32x64xbf16, dim 0 = () on #mesh>

// CHECK-LABEL: func @two_tiers
// ONE-LABEL: func @two_tiers
// PLAIN-LABEL: func @two_tiers
func.func @two_tiers(%g: tensor<32x64xbf16>) -> tensor<32x64xbf16> {
  // CHECK: %[[FLAT:.*]] = stablehlo.reshape %arg0 : (tensor<32x64xbf16>) -> tensor<2048xbf16>
  // CHECK: %[[WHOLE:.*]] = zero.from_local %[[FLAT]] : tensor<2048xbf16> to <2048xbf16, dim 0 = (4, 2) on #[[MESH:.*]]>
  // CHECK: %[[HOP:.*]] = zero.reduce_scatter sum %[[WHOLE]] along ["gpu"] wire <i8, block = 128> {zpp.origin = {id = 3 : i64}}
  // CHECK-SAME: to <2048xf32, dim 0 = ("gpu", 2) on #[[MESH]]>
  // CHECK: %[[SUM:.*]] = zero.reduce_scatter sum %[[HOP]] along ["node"] wire <i4, block = 128> {zpp.origin = {id = 3 : i64}}
  // CHECK-SAME: to <2048xf32, dim 0 = ("gpu", "node") on #[[MESH]]>
  // CHECK: %[[SENT:.*]] = zero.encode %[[SUM]] : {{.*}} to <2048xbf16, dim 0 = ("gpu", "node") on #[[MESH]], #zero.quant<i8, block = 128>>
  // CHECK: %[[NODE:.*]] = zero.all_gather %[[SENT]] along ["node"] {zpp.origin = {id = 3 : i64}}
  // CHECK-SAME: to <2048xbf16, dim 0 = ("gpu", 2)
  // CHECK: %[[ALL:.*]] = zero.all_gather %[[NODE]] along ["gpu"] {zpp.origin = {id = 3 : i64}}
  // CHECK: %[[READ:.*]] = zero.decode %[[ALL]] : {{.*}} to <2048xbf16, dim 0 = (4, 2) on
  // CHECK: %[[LOCAL:.*]] = zero.to_local %[[READ]]
  // CHECK: %[[RESULT:.*]] = stablehlo.reshape %[[LOCAL]] : (tensor<2048xbf16>) -> tensor<32x64xbf16>
  // CHECK: return %[[RESULT]]
  // One format is one hop.
  // ONE: zero.reduce_scatter sum %{{.*}} along ["node", "gpu"] wire <i4, block = 64>
  // ONE: zero.all_gather %{{.*}} along ["node", "gpu"] {{.*}}#zero.quant<i4, block = 64>
  // ONE-NOT: zero.all_gather
  // PLAIN: along ["gpu"] {{.*}} to <2048xbf16, dim 0 = ("gpu", 2)
  // PLAIN: along ["node"] {{.*}} to <2048xbf16, dim 0 = ("gpu", "node")
  // PLAIN: zero.all_gather %{{.*}} along ["node"]
  // PLAIN: zero.all_gather %{{.*}} along ["gpu"]
  %0 = zero.from_local %g : tensor<32x64xbf16> to !whole
  %1 = zero.all_reduce sum %0 along ["node", "gpu"] {zpp.origin = {id = 3}} : !whole
  %2 = zero.to_local %1 : !whole to tensor<32x64xbf16>
  return %2 : tensor<32x64xbf16>
}

// -----

// A mean; 1000 elements, which 8 devices do not divide evenly into blocks, and
// of which 3 do not divide at all.

#mesh = #zero.mesh<"node" = 2, "gpu" = 3>
!whole = !zero.shard<1000xf32, dim 0 = () on #mesh>

// CHECK-LABEL: func @mean
// ONE-LABEL: func @mean
func.func @mean(%g: tensor<1000xf32>) -> tensor<1000xf32> {
  // CHECK: zero.reduce_scatter mean %{{.*}} along ["gpu"] wire <i8, block = 128> : <1000xf32, dim 0 = (3, 2) on
  // CHECK: zero.reduce_scatter mean %{{.*}} along ["node"] wire <i4, block = 128>
  // CHECK: zero.decode {{.*}} to <1000xf32, dim 0 = (3, 2) on
  %0 = zero.from_local %g : tensor<1000xf32> to !whole
  %1 = zero.all_reduce mean %0 along ["node", "gpu"] : !whole
  %2 = zero.to_local %1 : !whole to tensor<1000xf32>
  return %2 : tensor<1000xf32>
}

// -----

// HSDP: the scatter within the node and the all-reduce between nodes are one.
// What is between them comes after the gather.

#mesh = #zero.mesh<"data" = 2, "fsdp" = 4>
!whole = !zero.shard<32x64xbf16, dim 0 = (4) on #mesh>
!part = !zero.shard<32x64xbf16, dim 0 = ("fsdp") on #mesh>
!summed = !zero.shard<64x8xf32, dim 0 = () on #mesh>

// CHECK-LABEL: func @hsdp
// ONE-LABEL: func @hsdp
// PLAIN-LABEL: func @hsdp
func.func @hsdp(%g: tensor<32x64xbf16>) -> tensor<64x8xf32> {
  // CHECK: %[[MEAN:.*]] = stablehlo.constant
  // CHECK: %[[WHOLE:.*]] = zero.from_local %arg0 : tensor<32x64xbf16> to <32x64xbf16, dim 0 = (4, 2) on
  // CHECK: %[[HOP:.*]] = zero.reduce_scatter sum %[[WHOLE]] along ["fsdp"] wire <i8, block = 128> {zpp.origin = {id = 1 : i64}}
  // CHECK-SAME: to <32x64xf32, dim 0 = ("fsdp", 2) on
  // CHECK: %[[SUM:.*]] = zero.reduce_scatter sum %[[HOP]] along ["data"] wire <i4, block = 128> {zpp.origin = {id = 2 : i64}}
  // CHECK: zero.encode %[[SUM]] : <32x64xf32{{.*}} to <32x64xf32, dim 0 = ("fsdp", "data") on
  // CHECK: zero.all_gather %{{.*}} along ["data"] {zpp.origin = {id = 2 : i64}}
  // CHECK-NOT: zero.all_gather
  // CHECK: %[[READ:.*]] = zero.decode {{.*}} to <32x64xf32, dim 0 = ("fsdp", 2)
  // CHECK: %[[LOCAL:.*]] = zero.to_local %[[READ]] {{.*}} to tensor<8x64xf32>
  // CHECK: %[[TURNED:.*]] = stablehlo.transpose %[[LOCAL]]{{.*}} : (tensor<8x64xf32>) -> tensor<64x8xf32>
  // CHECK: %[[SCALED:.*]] = stablehlo.multiply %[[TURNED]], %[[MEAN]] : tensor<64x8xf32>
  // CHECK: return %[[SCALED]]
  // Hops of the scatter and of the all-reduce stay apart.
  // ONE: zero.reduce_scatter sum %{{.*}} along ["fsdp"] wire <i4, block = 64>
  // ONE: zero.reduce_scatter sum %{{.*}} along ["data"] wire <i4, block = 64>
  // ONE: zero.all_gather %{{.*}} along ["data"]
  // What the all-reduce summed in f32 it still does.
  // PLAIN: along ["fsdp"] {{.*}} to <32x64xf32, dim 0 = ("fsdp", 2)
  // PLAIN: along ["data"] {{.*}} to <32x64xf32, dim 0 = ("fsdp", "data")
  %mean = stablehlo.constant dense<1.250000e-01> : tensor<64x8xf32>
  %0 = zero.from_local %g : tensor<32x64xbf16> to !whole
  %1 = zero.reduce_scatter sum %0 along ["fsdp"] {zpp.origin = {id = 1}} : !whole to !part
  %2 = zero.to_local %1 : !part to tensor<8x64xbf16>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<8x64xbf16>) -> tensor<64x8xbf16>
  %4 = stablehlo.convert %3 : (tensor<64x8xbf16>) -> tensor<64x8xf32>
  %5 = stablehlo.multiply %4, %mean : tensor<64x8xf32>
  %6 = zero.from_local %5 : tensor<64x8xf32> to !summed
  %7 = zero.all_reduce sum %6 along ["data"] {zpp.origin = {id = 2}} : !summed
  %8 = zero.to_local %7 : !summed to tensor<64x8xf32>
  return %8 : tensor<64x8xf32>
}

// -----

// 12 rows are 3 per device, which 2 nodes do not divide: the tensor is flat. In
// dim 1 that is not possible, and the two stay apart. The all-reduce over the
// slow tier takes that tier's format.

#mesh = #zero.mesh<"data" = 2, "fsdp" = 4>
!whole = !zero.shard<12x640xf32, dim 0 = (4) on #mesh>
!part = !zero.shard<12x640xf32, dim 0 = ("fsdp") on #mesh>
!summed = !zero.shard<3x640xf32, dim 0 = () on #mesh>
!whole1 = !zero.shard<640x12xf32, dim 1 = (4) on #mesh>
!part1 = !zero.shard<640x12xf32, dim 1 = ("fsdp") on #mesh>
!summed1 = !zero.shard<640x3xf32, dim 0 = () on #mesh>

// CHECK-LABEL: func @indivisible
func.func @indivisible(%g: tensor<12x640xf32>, %h: tensor<640x12xf32>) -> (tensor<3x640xf32>, tensor<640x3xf32>) {
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["fsdp"] {{.*}} : <7680xf32, dim 0 = (4, 2) on
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["data"]
  // CHECK: stablehlo.reshape %{{.*}} : (tensor<1920xf32>) -> tensor<3x640xf32>
  %0 = zero.from_local %g : tensor<12x640xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["fsdp"] : !whole to !part
  %2 = zero.to_local %1 : !part to tensor<3x640xf32>
  %3 = zero.from_local %2 : tensor<3x640xf32> to !summed
  %4 = zero.all_reduce sum %3 along ["data"] : !summed
  %5 = zero.to_local %4 : !summed to tensor<3x640xf32>
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["fsdp"]{{.*}} : <640x12xf32, dim 1 = (4) on
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["data"] wire <i4, block = 128> : <1920xf32, dim 0 = (2) on
  %6 = zero.from_local %h : tensor<640x12xf32> to !whole1
  // A format was chosen for it, or will be.
  %7 = zero.reduce_scatter sum %6 along ["fsdp"] wire <i8, block = 128> : !whole1 to !part1
  %8 = zero.to_local %7 : !part1 to tensor<640x3xf32>
  %9 = zero.from_local %8 : tensor<640x3xf32> to !summed1
  %10 = zero.all_reduce sum %9 along ["data"] : !summed1
  %11 = zero.to_local %10 : !summed1 to tensor<640x3xf32>
  return %5, %11 : tensor<3x640xf32>, tensor<640x3xf32>
}

// -----

// Something else reads the scattered gradient, or is computed with it: the two
// stay apart.

#mesh = #zero.mesh<"data" = 2, "fsdp" = 4>
!whole = !zero.shard<32x64xf32, dim 0 = (4) on #mesh>
!part = !zero.shard<32x64xf32, dim 0 = ("fsdp") on #mesh>
!summed = !zero.shard<8x64xf32, dim 0 = () on #mesh>

// CHECK-LABEL: func @apart
func.func @apart(%g: tensor<32x64xf32>, %s: tensor<8x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>) {
  // CHECK: %[[PART:.*]] = zero.reduce_scatter sum %{{.*}} along ["fsdp"] wire <i8, block = 32> : <32x64xf32, dim 0 = (4) on
  // CHECK: %[[LOCAL:.*]] = zero.to_local %[[PART]]
  // CHECK: %[[FLAT:.*]] = stablehlo.reshape %[[LOCAL]]
  // CHECK: zero.from_local %[[FLAT]] : tensor<512xf32> to <512xf32, dim 0 = (2) on
  %0 = zero.from_local %g : tensor<32x64xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["fsdp"] wire <i8, block = 32> : !whole to !part
  %2 = zero.to_local %1 : !part to tensor<8x64xf32>
  %3 = zero.from_local %2 : tensor<8x64xf32> to !summed
  %4 = zero.all_reduce sum %3 along ["data"] : !summed
  %5 = zero.to_local %4 : !summed to tensor<8x64xf32>
  // CHECK: %[[OTHER:.*]] = zero.reduce_scatter sum %{{.*}} along ["fsdp"] wire <i8, block = 64>
  // CHECK: zero.to_local %[[OTHER]]
  // CHECK: stablehlo.multiply %{{.*}}, %arg1
  %6 = zero.reduce_scatter sum %0 along ["fsdp"] wire <i8, block = 64> : !whole to !part
  %7 = zero.to_local %6 : !part to tensor<8x64xf32>
  %8 = stablehlo.multiply %7, %s : tensor<8x64xf32>
  %9 = zero.from_local %8 : tensor<8x64xf32> to !summed
  %10 = zero.all_reduce sum %9 along ["data"] : !summed
  %11 = zero.to_local %10 : !summed to tensor<8x64xf32>
  return %2, %5, %11 : tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>
}

// -----

// What is too small to shrink becomes the op that it was, unless it can travel
// with others.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!small = !zero.shard<16xf32, dim 0 = () on #mesh>
!large = !zero.shard<4096xf32, dim 0 = () on #mesh>

// CHECK-LABEL: func @small
// SMALL-LABEL: func @small
func.func @small(%g: tensor<16xf32>, %h: tensor<4096xf32>) -> (tensor<16xf32>, tensor<4096xf32>) {
  // CHECK: %[[RESULT:.*]] = "stablehlo.all_reduce"(%arg0) <{channel_handle = {{.*}}, replica_groups = dense<{{.*}}> : tensor<1x8xi64>, use_global_device_ids}> ({
  // CHECK: zpp.reason = "its pieces are so small that they would not shrink"
  // SMALL: zero.reduce_scatter sum %{{.*}} along ["gpu"] : <16xf32
  // SMALL: zero.reduce_scatter sum %{{.*}} along ["node"] : <16xf32
  // SMALL: zero.all_gather %{{.*}} along ["node"]
  // SMALL: zero.all_gather %{{.*}} along ["gpu"]
  %0 = zero.from_local %g : tensor<16xf32> to !small
  // expected-remark@+1 {{zero.all_reduce is left alone: its pieces are so small that they would not shrink}}
  %1 = zero.all_reduce sum %0 along ["node", "gpu"] : !small
  %2 = zero.to_local %1 : !small to tensor<16xf32>
  %3 = zero.from_local %h : tensor<4096xf32> to !large
  %4 = zero.all_reduce sum %3 along ["node", "gpu"] : !large
  %5 = zero.to_local %4 : !large to tensor<4096xf32>
  return %2, %5 : tensor<16xf32>, tensor<4096xf32>
}

// -----

// What lies between the two is not what StableHLO knows: the all-reduce is done
// by itself. Nothing has verified these ops.

#mesh = #zero.mesh<"data" = 2, "fsdp" = 4>
!whole = !zero.shard<32x64xbf16, dim 0 = (4) on #mesh>
!part = !zero.shard<32x64xbf16, dim 0 = ("fsdp") on #mesh>
!summed = !zero.shard<64x8xf32, dim 0 = () on #mesh>

// CHECK-LABEL: func @malformed
func.func @malformed(%g: tensor<32x64xbf16>) -> (tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>) {
  // CHECK-COUNT-3: zero.reduce_scatter {{.*}} along ["fsdp"]
  %shape = zero.from_local %g : tensor<32x64xbf16> to !whole
  %shape1 = zero.reduce_scatter sum %shape along ["fsdp"] : !whole to !part
  %shape2 = zero.to_local %shape1 : !part to tensor<8x64xbf16>
  %shape3 = stablehlo.convert %shape2 : (tensor<8x64xbf16>) -> tensor<64x4xf32>
  %shape4 = stablehlo.reshape %shape3 : (tensor<64x4xf32>) -> tensor<64x8xf32>
  %shape5 = zero.from_local %shape4 : tensor<64x8xf32> to !summed
  %shape6 = zero.all_reduce sum %shape5 along ["data"] : !summed
  %shape7 = zero.to_local %shape6 : !summed to tensor<64x8xf32>

  %scale = stablehlo.constant dense<0.125> : tensor<64x8xf32>
  %type = zero.from_local %g : tensor<32x64xbf16> to !whole
  %type1 = zero.reduce_scatter sum %type along ["fsdp"] : !whole to !part
  %type2 = zero.to_local %type1 : !part to tensor<8x64xbf16>
  %type3 = stablehlo.multiply %type2, %scale : (tensor<8x64xbf16>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %type5 = zero.from_local %type3 : tensor<64x8xf32> to !summed
  %type6 = zero.all_reduce sum %type5 along ["data"] : !summed
  %type7 = zero.to_local %type6 : !summed to tensor<64x8xf32>

  %nothing = "stablehlo.convert"() : () -> tensor<64x8xf32>
  %none = zero.from_local %g : tensor<32x64xbf16> to !whole
  %none1 = zero.reduce_scatter sum %none along ["fsdp"] : !whole to !part
  %none2 = zero.to_local %none1 : !part to tensor<8x64xbf16>
  %none3 = stablehlo.convert %none2 : (tensor<8x64xbf16>) -> tensor<8x64xf32>
  %none4 = stablehlo.reshape %none3 : (tensor<8x64xf32>) -> tensor<64x8xf32>
  %none5 = stablehlo.multiply %none4, %nothing : tensor<64x8xf32>
  %none6 = zero.from_local %none5 : tensor<64x8xf32> to !summed
  %none7 = zero.all_reduce sum %none6 along ["data"] : !summed
  %none8 = zero.to_local %none7 : !summed to tensor<64x8xf32>
  return %shape7, %type7, %none8 : tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>
}

// -----

// What is done as one has the wider floor of the two. There is no mean of StableHLO
// to go back to: its hops round nothing.

#mesh = #zero.mesh<"data" = 2, "fsdp" = 4>
!whole = !zero.shard<32x64xbf16, dim 0 = (4) on #mesh>
!part = !zero.shard<32x64xbf16, dim 0 = ("fsdp") on #mesh>
!summed = !zero.shard<8x64xbf16, dim 0 = () on #mesh>
!same = !zero.shard<32x64xbf16, dim 0 = () on #mesh>

// CHECK-LABEL: func @floors
// ONE-LABEL: func @floors
func.func @floors(%g: tensor<32x64xbf16>) -> (tensor<8x64xbf16>, tensor<32x64xbf16>) {
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["fsdp"] wire <i8, block = 128>
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["data"] wire <i8, block = 128>
  // ONE: zero.reduce_scatter sum %{{.*}} along ["fsdp"] wire <i8, block = 64>
  // ONE: zero.reduce_scatter sum %{{.*}} along ["data"] wire <i8, block = 64>
  // ONE: zero.encode {{.*}}#zero.quant<i8, block = 64>
  %0 = zero.from_local %g : tensor<32x64xbf16> to !whole
  %1 = zero.reduce_scatter sum %0 along ["fsdp"] {zpp.origin = {id = 1, floor = "i8"}} : !whole to !part
  %2 = zero.to_local %1 : !part to tensor<8x64xbf16>
  %3 = zero.from_local %2 : tensor<8x64xbf16> to !summed
  %4 = zero.all_reduce sum %3 along ["data"] {zpp.origin = {id = 2}} : !summed
  %5 = zero.to_local %4 : !summed to tensor<8x64xbf16>
  // CHECK-NOT: wire
  // CHECK: zero.reduce_scatter mean %{{.*}} along ["fsdp"] {zpp.origin
  // CHECK: zero.reduce_scatter mean %{{.*}} along ["data"] {zpp.origin
  // CHECK-NOT: zero.encode
  %6 = zero.from_local %g : tensor<32x64xbf16> to !same
  %7 = zero.all_reduce mean %6 along ["data", "fsdp"] {zpp.origin = {id = 3, floor = "none"}} : !same
  %8 = zero.to_local %7 : !same to tensor<32x64xbf16>
  return %5, %8 : tensor<8x64xbf16>, tensor<32x64xbf16>
}
