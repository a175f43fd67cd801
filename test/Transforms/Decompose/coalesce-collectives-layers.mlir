// DEFINE: %{node} = 50gbit
// DEFINE: %{on} = --zero-import-collectives="mesh=node:2,gpu:4 links=node=%{node},gpu=400gbyte"
// RUN: zpp-opt %s %{on} --zero-plan-loops --zero-coalesce-collectives --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s %{on} --zero-coalesce-collectives --remarks-filter=none --split-input-file | FileCheck %s --check-prefix=LOOP

// What takes less time than it takes to start waits for others: on fast links,
// that is more.
// REDEFINE: %{node} = 400gbyte
// RUN: zpp-opt %s %{on} --zero-coalesce-collectives --remarks-filter=none --split-input-file | FileCheck %s --check-prefix=FAST

// The weights of a layer share a buffer if the loop is planned to become layers,
// as outside of loops. Otherwise a quarter of them does.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @layers
// CHECK: stablehlo.while(
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x1179664xi8> into
// CHECK: zero.all_gather_chunks {{.*}} : tensor<2x1179664xi8> into
// CHECK-NOT: zero.all_gather_chunks
// CHECK: return
// LOOP-LABEL: func @layers
// LOOP: zero.all_gather_chunks {{.*}} : tensor<1x524288xi8> into
// LOOP: zero.all_gather_chunks {{.*}} : tensor<2x524288xi8> into
// LOOP: zero.all_gather_chunks {{.*}} : tensor<1x655376xi8> into
// LOOP: zero.all_gather_chunks {{.*}} : tensor<2x655376xi8> into
// LOOP-NOT: zero.all_gather_chunks
// LOOP: return
func.func @layers(%wa: tensor<2x524288xi8>, %wb: tensor<2x524288xi8>, %wc: tensor<2x131072xi8>, %wd: tensor<2x16xi8>) -> (tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %za = stablehlo.constant dense<0> : tensor<4x2x524288xi8>
  %zb = stablehlo.constant dense<0> : tensor<4x2x524288xi8>
  %zc = stablehlo.constant dense<0> : tensor<4x2x131072xi8>
  %zd = stablehlo.constant dense<0> : tensor<4x2x16xi8>
  %r:5 = stablehlo.while(%i = %zero, %oa = %za, %ob = %zb, %oc = %zc, %od = %zd) : tensor<i32>, tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>
  cond {
    %t = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %as = stablehlo.dynamic_slice %wa, %i, %zero, sizes = [1, 524288] : (tensor<2x524288xi8>, tensor<i32>, tensor<i32>) -> tensor<1x524288xi8>
    %a0 = tensor.empty() : tensor<2x1x524288xi8>
    %a1 = zero.all_gather_chunks %as along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %a2 = tensor.empty() : tensor<2x524288xi8>
    %a3 = zero.unpack_slices %a1 slices <dim = 0, factors = [2], chunk = [0]> into %a2
        : tensor<2x1x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %a4 = tensor.empty() : tensor<4x2x524288xi8>
    %a5 = zero.all_gather_chunks %a3 along ["gpu"] on #mesh into %a4 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<2x524288xi8> into tensor<4x2x524288xi8> -> tensor<4x2x524288xi8>
    %bs = stablehlo.dynamic_slice %wb, %i, %zero, sizes = [1, 524288] : (tensor<2x524288xi8>, tensor<i32>, tensor<i32>) -> tensor<1x524288xi8>
    %b0 = tensor.empty() : tensor<2x1x524288xi8>
    %b1 = zero.all_gather_chunks %bs along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %b2 = tensor.empty() : tensor<2x524288xi8>
    %b3 = zero.unpack_slices %b1 slices <dim = 0, factors = [2], chunk = [0]> into %b2
        : tensor<2x1x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %b4 = tensor.empty() : tensor<4x2x524288xi8>
    %b5 = zero.all_gather_chunks %b3 along ["gpu"] on #mesh into %b4 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<2x524288xi8> into tensor<4x2x524288xi8> -> tensor<4x2x524288xi8>
    %cs = stablehlo.dynamic_slice %wc, %i, %zero, sizes = [1, 131072] : (tensor<2x131072xi8>, tensor<i32>, tensor<i32>) -> tensor<1x131072xi8>
    %c0 = tensor.empty() : tensor<2x1x131072xi8>
    %c1 = zero.all_gather_chunks %cs along ["node"] on #mesh into %c0 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<1x131072xi8> into tensor<2x1x131072xi8> -> tensor<2x1x131072xi8>
    %c2 = tensor.empty() : tensor<2x131072xi8>
    %c3 = zero.unpack_slices %c1 slices <dim = 0, factors = [2], chunk = [0]> into %c2
        : tensor<2x1x131072xi8> into tensor<2x131072xi8> -> tensor<2x131072xi8>
    %c4 = tensor.empty() : tensor<4x2x131072xi8>
    %c5 = zero.all_gather_chunks %c3 along ["gpu"] on #mesh into %c4 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<2x131072xi8> into tensor<4x2x131072xi8> -> tensor<4x2x131072xi8>
    %ds = stablehlo.dynamic_slice %wd, %i, %zero, sizes = [1, 16] : (tensor<2x16xi8>, tensor<i32>, tensor<i32>) -> tensor<1x16xi8>
    %d0 = tensor.empty() : tensor<2x1x16xi8>
    %d1 = zero.all_gather_chunks %ds along ["node"] on #mesh into %d0 {zpp.origin = {id = 3, role = "weight"}}
        : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
    %d2 = tensor.empty() : tensor<2x16xi8>
    %d3 = zero.unpack_slices %d1 slices <dim = 0, factors = [2], chunk = [0]> into %d2
        : tensor<2x1x16xi8> into tensor<2x16xi8> -> tensor<2x16xi8>
    %d4 = tensor.empty() : tensor<4x2x16xi8>
    %d5 = zero.all_gather_chunks %d3 along ["gpu"] on #mesh into %d4 {zpp.origin = {id = 3, role = "weight"}}
        : tensor<2x16xi8> into tensor<4x2x16xi8> -> tensor<4x2x16xi8>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %a5, %b5, %c5, %d5 : tensor<i32>, tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>
  }
  return %r#1, %r#2, %r#3, %r#4 : tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>
}

// -----

// The iterations of this loop are micro-batches: all have the same weights.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @micro_batches
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x524288xi8> into
// CHECK: zero.all_gather_chunks {{.*}} : tensor<2x524288xi8> into
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x655376xi8> into
// CHECK: zero.all_gather_chunks {{.*}} : tensor<2x655376xi8> into
// CHECK-NOT: zero.all_gather_chunks
// CHECK: return
func.func @micro_batches(%wa: tensor<2x524288xi8>, %wb: tensor<2x524288xi8>, %wc: tensor<2x131072xi8>, %wd: tensor<2x16xi8>) -> (tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %za = stablehlo.constant dense<0> : tensor<4x2x524288xi8>
  %zb = stablehlo.constant dense<0> : tensor<4x2x524288xi8>
  %zc = stablehlo.constant dense<0> : tensor<4x2x131072xi8>
  %zd = stablehlo.constant dense<0> : tensor<4x2x16xi8>
  %r:5 = stablehlo.while(%i = %zero, %oa = %za, %ob = %zb, %oc = %zc, %od = %zd) : tensor<i32>, tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>
  cond {
    %t = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %as = stablehlo.dynamic_slice %wa, %one, %zero, sizes = [1, 524288] : (tensor<2x524288xi8>, tensor<i32>, tensor<i32>) -> tensor<1x524288xi8>
    %a0 = tensor.empty() : tensor<2x1x524288xi8>
    %a1 = zero.all_gather_chunks %as along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %a2 = tensor.empty() : tensor<2x524288xi8>
    %a3 = zero.unpack_slices %a1 slices <dim = 0, factors = [2], chunk = [0]> into %a2
        : tensor<2x1x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %a4 = tensor.empty() : tensor<4x2x524288xi8>
    %a5 = zero.all_gather_chunks %a3 along ["gpu"] on #mesh into %a4 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<2x524288xi8> into tensor<4x2x524288xi8> -> tensor<4x2x524288xi8>
    %bs = stablehlo.dynamic_slice %wb, %one, %zero, sizes = [1, 524288] : (tensor<2x524288xi8>, tensor<i32>, tensor<i32>) -> tensor<1x524288xi8>
    %b0 = tensor.empty() : tensor<2x1x524288xi8>
    %b1 = zero.all_gather_chunks %bs along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %b2 = tensor.empty() : tensor<2x524288xi8>
    %b3 = zero.unpack_slices %b1 slices <dim = 0, factors = [2], chunk = [0]> into %b2
        : tensor<2x1x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %b4 = tensor.empty() : tensor<4x2x524288xi8>
    %b5 = zero.all_gather_chunks %b3 along ["gpu"] on #mesh into %b4 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<2x524288xi8> into tensor<4x2x524288xi8> -> tensor<4x2x524288xi8>
    %cs = stablehlo.dynamic_slice %wc, %one, %zero, sizes = [1, 131072] : (tensor<2x131072xi8>, tensor<i32>, tensor<i32>) -> tensor<1x131072xi8>
    %c0 = tensor.empty() : tensor<2x1x131072xi8>
    %c1 = zero.all_gather_chunks %cs along ["node"] on #mesh into %c0 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<1x131072xi8> into tensor<2x1x131072xi8> -> tensor<2x1x131072xi8>
    %c2 = tensor.empty() : tensor<2x131072xi8>
    %c3 = zero.unpack_slices %c1 slices <dim = 0, factors = [2], chunk = [0]> into %c2
        : tensor<2x1x131072xi8> into tensor<2x131072xi8> -> tensor<2x131072xi8>
    %c4 = tensor.empty() : tensor<4x2x131072xi8>
    %c5 = zero.all_gather_chunks %c3 along ["gpu"] on #mesh into %c4 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<2x131072xi8> into tensor<4x2x131072xi8> -> tensor<4x2x131072xi8>
    %ds = stablehlo.dynamic_slice %wd, %one, %zero, sizes = [1, 16] : (tensor<2x16xi8>, tensor<i32>, tensor<i32>) -> tensor<1x16xi8>
    %d0 = tensor.empty() : tensor<2x1x16xi8>
    %d1 = zero.all_gather_chunks %ds along ["node"] on #mesh into %d0 {zpp.origin = {id = 3, role = "weight"}}
        : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
    %d2 = tensor.empty() : tensor<2x16xi8>
    %d3 = zero.unpack_slices %d1 slices <dim = 0, factors = [2], chunk = [0]> into %d2
        : tensor<2x1x16xi8> into tensor<2x16xi8> -> tensor<2x16xi8>
    %d4 = tensor.empty() : tensor<4x2x16xi8>
    %d5 = zero.all_gather_chunks %d3 along ["gpu"] on #mesh into %d4 {zpp.origin = {id = 3, role = "weight"}}
        : tensor<2x16xi8> into tensor<4x2x16xi8> -> tensor<4x2x16xi8>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %a5, %b5, %c5, %d5 : tensor<i32>, tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>
  }
  return %r#1, %r#2, %r#3, %r#4 : tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>
}

// -----

// What a layer needs first takes neighbors along that are near: the layer
// before hides it. In a loop it takes only small ones.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @first
// CHECK: tensor.concat dim(1) {{.*}} : (tensor<1x524288xi8>, tensor<1x524288xi8>) -> tensor<1x1048576xi8>
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x1048576xi8> into
// CHECK-NOT: zero.all_gather_chunks
// CHECK: return
// LOOP-LABEL: func @first
// FAST: zero.all_gather_chunks {{.*}} : tensor<1x1048576xi8> into
// LOOP-COUNT-2: zero.all_gather_chunks {{.*}} : tensor<1x524288xi8> into
// LOOP-NOT: zero.all_gather_chunks
// LOOP: return
func.func @first(%wa: tensor<2x524288xi8>, %wb: tensor<2x524288xi8>, %x: tensor<128x128xbf16>) -> (tensor<2x1x524288xi8>, tensor<2x1x524288xi8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %z = stablehlo.constant dense<0> : tensor<2x1x524288xi8>
  %r:3 = stablehlo.while(%i = %zero, %oa = %z, %ob = %z) : tensor<i32>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>
  cond {
    %t = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %as = stablehlo.dynamic_slice %wa, %i, %zero, sizes = [1, 524288] : (tensor<2x524288xi8>, tensor<i32>, tensor<i32>) -> tensor<1x524288xi8>
    %a0 = tensor.empty() : tensor<2x1x524288xi8>
    %a1 = zero.all_gather_chunks %as along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %p = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<128x128xbf16>, tensor<128x128xbf16>) -> tensor<128x128xbf16>
    %bs = stablehlo.dynamic_slice %wb, %i, %zero, sizes = [1, 524288] : (tensor<2x524288xi8>, tensor<i32>, tensor<i32>) -> tensor<1x524288xi8>
    %b0 = tensor.empty() : tensor<2x1x524288xi8>
    %b1 = zero.all_gather_chunks %bs along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %a1, %b1 : tensor<i32>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>
  }
  return %r#1, %r#2 : tensor<2x1x524288xi8>, tensor<2x1x524288xi8>
}

// -----

// The last gradients of a layer join the ones before them if they are small.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @scatters
// CHECK: zero.all_to_all {{.*}} : tensor<2x524304xi8> into
// CHECK-NOT: zero.all_to_all
// CHECK: return
// LOOP-LABEL: func @scatters
// LOOP: zero.all_to_all {{.*}} : tensor<2x524288xi8> into
// LOOP: zero.all_to_all {{.*}} : tensor<2x16xi8> into
// LOOP-NOT: zero.all_to_all
// LOOP: return
func.func @scatters(%v: tensor<2x524288xi8>, %w: tensor<2x16xi8>, %y: tensor<8192x8192xbf16>) -> (tensor<2x2x524288xi8>, tensor<2x2x16xi8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %za = stablehlo.constant dense<0> : tensor<2x2x524288xi8>
  %zb = stablehlo.constant dense<0> : tensor<2x2x16xi8>
  %r:4 = stablehlo.while(%i = %zero, %sa = %za, %sb = %zb, %d = %y) : tensor<i32>, tensor<2x2x524288xi8>, tensor<2x2x16xi8>, tensor<8192x8192xbf16>
  cond {
    %t = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %first = stablehlo.slice %d [0:1, 0:1] : (tensor<8192x8192xbf16>) -> tensor<1x1xbf16>
    %byte = stablehlo.convert %first : (tensor<1x1xbf16>) -> tensor<1x1xi8>
    %large = stablehlo.broadcast_in_dim %byte, dims = [0, 1] : (tensor<1x1xi8>) -> tensor<2x524288xi8>
    %small = stablehlo.broadcast_in_dim %byte, dims = [0, 1] : (tensor<1x1xi8>) -> tensor<2x16xi8>
    %p = stablehlo.dot_general %d, %d, contracting_dims = [1] x [0] : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
    %a = stablehlo.add %v, %large : tensor<2x524288xi8>
    %q = stablehlo.dot_general %p, %p, contracting_dims = [1] x [0] : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
    %b = stablehlo.add %w, %small : tensor<2x16xi8>
    %a0 = tensor.empty() : tensor<2x524288xi8>
    %a1 = zero.all_to_all %a along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "gradient"}}
        : tensor<2x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %a2 = stablehlo.reshape %a1 : (tensor<2x524288xi8>) -> tensor<1x2x524288xi8>
    %a3 = stablehlo.dynamic_update_slice %sa, %a2, %i, %zero, %zero : (tensor<2x2x524288xi8>, tensor<1x2x524288xi8>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x524288xi8>
    %b0 = tensor.empty() : tensor<2x16xi8>
    %b1 = zero.all_to_all %b along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "gradient"}}
        : tensor<2x16xi8> into tensor<2x16xi8> -> tensor<2x16xi8>
    %b2 = stablehlo.reshape %b1 : (tensor<2x16xi8>) -> tensor<1x2x16xi8>
    %b3 = stablehlo.dynamic_update_slice %sb, %b2, %i, %zero, %zero : (tensor<2x2x16xi8>, tensor<1x2x16xi8>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x16xi8>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %a3, %b3, %q : tensor<i32>, tensor<2x2x524288xi8>, tensor<2x2x16xi8>, tensor<8192x8192xbf16>
  }
  return %r#1, %r#2 : tensor<2x2x524288xi8>, tensor<2x2x16xi8>
}
