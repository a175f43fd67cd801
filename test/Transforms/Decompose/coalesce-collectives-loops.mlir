// DEFINE: %{on} = --zero-import-collectives="mesh=node:2,gpu:4 links=node=50gbit,gpu=400gbyte"
// RUN: zpp-opt %s %{on} --zero-coalesce-collectives --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s %{on} --zero-coalesce-collectives --zero-coalesce-collectives --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s %{on} --zero-coalesce-collectives=bytes=100000 --remarks-filter=none --split-input-file | FileCheck %s --check-prefix=SMALL

// In a loop a buffer of two hops is full with a quarter of the bytes of the
// iteration, 294,916 here. The two small tensors do not fill one, and join.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @loop
func.func @loop(%a: tensor<1x524288xi8>, %b: tensor<1x524288xi8>, %c: tensor<1x131072xi8>, %d: tensor<1x16xi8>) -> (tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>) {
  // CHECK: stablehlo.while(
  // CHECK: zero.all_gather_chunks {{.*}} : tensor<1x524288xi8> into
  // CHECK: zero.all_gather_chunks {{.*}} : tensor<2x524288xi8> into
  // CHECK: tensor.concat dim(1) {{.*}} : (tensor<1x524288xi8>, tensor<1x131072xi8>, tensor<1x16xi8>) -> tensor<1x655376xi8>
  // CHECK: zero.all_gather_chunks {{.*}} : tensor<1x655376xi8> into
  // CHECK: zero.all_gather_chunks {{.*}} : tensor<2x655376xi8> into
  // CHECK-NOT: zero.all_gather_chunks
  // CHECK: return

  // A limit below holds as everywhere.
  // SMALL-LABEL: func @loop
  // SMALL: zero.all_gather_chunks {{.*}} : tensor<1x524288xi8> into
  // SMALL: zero.all_gather_chunks {{.*}} : tensor<1x524288xi8> into
  // SMALL: zero.all_gather_chunks {{.*}} : tensor<1x131088xi8> into
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %za = stablehlo.constant dense<0> : tensor<4x2x524288xi8>
  %zb = stablehlo.constant dense<0> : tensor<4x2x524288xi8>
  %zc = stablehlo.constant dense<0> : tensor<4x2x131072xi8>
  %zd = stablehlo.constant dense<0> : tensor<4x2x16xi8>
  %r:5 = stablehlo.while(%i = %zero, %oa = %za, %ob = %zb, %oc = %zc, %od = %zd) : tensor<i32>, tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>
  cond {
    %t = "stablehlo.compare"(%i, %ten) : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %a0 = tensor.empty() : tensor<2x1x524288xi8>
    %a1 = zero.all_gather_chunks %a along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %a2 = tensor.empty() : tensor<2x524288xi8>
    %a3 = zero.unpack_slices %a1 slices <dim = 0, factors = [2], chunk = [0]> into %a2
        : tensor<2x1x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %a4 = tensor.empty() : tensor<4x2x524288xi8>
    %a5 = zero.all_gather_chunks %a3 along ["gpu"] on #mesh into %a4 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<2x524288xi8> into tensor<4x2x524288xi8> -> tensor<4x2x524288xi8>
    %b0 = tensor.empty() : tensor<2x1x524288xi8>
    %b1 = zero.all_gather_chunks %b along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %b2 = tensor.empty() : tensor<2x524288xi8>
    %b3 = zero.unpack_slices %b1 slices <dim = 0, factors = [2], chunk = [0]> into %b2
        : tensor<2x1x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %b4 = tensor.empty() : tensor<4x2x524288xi8>
    %b5 = zero.all_gather_chunks %b3 along ["gpu"] on #mesh into %b4 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<2x524288xi8> into tensor<4x2x524288xi8> -> tensor<4x2x524288xi8>
    %c0 = tensor.empty() : tensor<2x1x131072xi8>
    %c1 = zero.all_gather_chunks %c along ["node"] on #mesh into %c0 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<1x131072xi8> into tensor<2x1x131072xi8> -> tensor<2x1x131072xi8>
    %c2 = tensor.empty() : tensor<2x131072xi8>
    %c3 = zero.unpack_slices %c1 slices <dim = 0, factors = [2], chunk = [0]> into %c2
        : tensor<2x1x131072xi8> into tensor<2x131072xi8> -> tensor<2x131072xi8>
    %c4 = tensor.empty() : tensor<4x2x131072xi8>
    %c5 = zero.all_gather_chunks %c3 along ["gpu"] on #mesh into %c4 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<2x131072xi8> into tensor<4x2x131072xi8> -> tensor<4x2x131072xi8>
    %d0 = tensor.empty() : tensor<2x1x16xi8>
    %d1 = zero.all_gather_chunks %d along ["node"] on #mesh into %d0 {zpp.origin = {id = 3, role = "weight"}}
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

// Outside of a loop the links go on with what comes next.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @outside
func.func @outside(%a: tensor<1x524288xi8>, %b: tensor<1x524288xi8>, %c: tensor<1x131072xi8>, %d: tensor<1x16xi8>) -> (tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>) {
  // CHECK: zero.all_gather_chunks {{.*}} : tensor<1x1179664xi8> into
  // CHECK: zero.all_gather_chunks {{.*}} : tensor<2x1179664xi8> into
  // CHECK-NOT: zero.all_gather_chunks
  // CHECK: return
    %a0 = tensor.empty() : tensor<2x1x524288xi8>
    %a1 = zero.all_gather_chunks %a along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %a2 = tensor.empty() : tensor<2x524288xi8>
    %a3 = zero.unpack_slices %a1 slices <dim = 0, factors = [2], chunk = [0]> into %a2
        : tensor<2x1x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %a4 = tensor.empty() : tensor<4x2x524288xi8>
    %a5 = zero.all_gather_chunks %a3 along ["gpu"] on #mesh into %a4 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<2x524288xi8> into tensor<4x2x524288xi8> -> tensor<4x2x524288xi8>
    %b0 = tensor.empty() : tensor<2x1x524288xi8>
    %b1 = zero.all_gather_chunks %b along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %b2 = tensor.empty() : tensor<2x524288xi8>
    %b3 = zero.unpack_slices %b1 slices <dim = 0, factors = [2], chunk = [0]> into %b2
        : tensor<2x1x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %b4 = tensor.empty() : tensor<4x2x524288xi8>
    %b5 = zero.all_gather_chunks %b3 along ["gpu"] on #mesh into %b4 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<2x524288xi8> into tensor<4x2x524288xi8> -> tensor<4x2x524288xi8>
    %c0 = tensor.empty() : tensor<2x1x131072xi8>
    %c1 = zero.all_gather_chunks %c along ["node"] on #mesh into %c0 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<1x131072xi8> into tensor<2x1x131072xi8> -> tensor<2x1x131072xi8>
    %c2 = tensor.empty() : tensor<2x131072xi8>
    %c3 = zero.unpack_slices %c1 slices <dim = 0, factors = [2], chunk = [0]> into %c2
        : tensor<2x1x131072xi8> into tensor<2x131072xi8> -> tensor<2x131072xi8>
    %c4 = tensor.empty() : tensor<4x2x131072xi8>
    %c5 = zero.all_gather_chunks %c3 along ["gpu"] on #mesh into %c4 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<2x131072xi8> into tensor<4x2x131072xi8> -> tensor<4x2x131072xi8>
    %d0 = tensor.empty() : tensor<2x1x16xi8>
    %d1 = zero.all_gather_chunks %d along ["node"] on #mesh into %d0 {zpp.origin = {id = 3, role = "weight"}}
        : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
    %d2 = tensor.empty() : tensor<2x16xi8>
    %d3 = zero.unpack_slices %d1 slices <dim = 0, factors = [2], chunk = [0]> into %d2
        : tensor<2x1x16xi8> into tensor<2x16xi8> -> tensor<2x16xi8>
    %d4 = tensor.empty() : tensor<4x2x16xi8>
    %d5 = zero.all_gather_chunks %d3 along ["gpu"] on #mesh into %d4 {zpp.origin = {id = 3, role = "weight"}}
        : tensor<2x16xi8> into tensor<4x2x16xi8> -> tensor<4x2x16xi8>
  return %a5, %b5, %c5, %d5 : tensor<4x2x524288xi8>, tensor<4x2x524288xi8>, tensor<4x2x131072xi8>, tensor<4x2x16xi8>
}

// -----

// With one hop there is no other one to run under.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @one_hop
func.func @one_hop(%a: tensor<1x524288xi8>, %b: tensor<1x524288xi8>, %c: tensor<1x131072xi8>, %d: tensor<1x16xi8>) -> (tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x131072xi8>, tensor<2x1x16xi8>) {
  // CHECK: stablehlo.while(
  // CHECK: zero.all_gather_chunks {{.*}} : tensor<1x1179664xi8> into
  // CHECK-NOT: zero.all_gather_chunks
  // CHECK: return
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %za = stablehlo.constant dense<0> : tensor<2x1x524288xi8>
  %zb = stablehlo.constant dense<0> : tensor<2x1x524288xi8>
  %zc = stablehlo.constant dense<0> : tensor<2x1x131072xi8>
  %zd = stablehlo.constant dense<0> : tensor<2x1x16xi8>
  %r:5 = stablehlo.while(%i = %zero, %oa = %za, %ob = %zb, %oc = %zc, %od = %zd) : tensor<i32>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x131072xi8>, tensor<2x1x16xi8>
  cond {
    %t = "stablehlo.compare"(%i, %ten) : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %a0 = tensor.empty() : tensor<2x1x524288xi8>
    %a5 = zero.all_gather_chunks %a along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %b0 = tensor.empty() : tensor<2x1x524288xi8>
    %b5 = zero.all_gather_chunks %b along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %c0 = tensor.empty() : tensor<2x1x131072xi8>
    %c5 = zero.all_gather_chunks %c along ["node"] on #mesh into %c0 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<1x131072xi8> into tensor<2x1x131072xi8> -> tensor<2x1x131072xi8>
    %d0 = tensor.empty() : tensor<2x1x16xi8>
    %d5 = zero.all_gather_chunks %d along ["node"] on #mesh into %d0 {zpp.origin = {id = 3, role = "weight"}}
        : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %a5, %b5, %c5, %d5 : tensor<i32>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x131072xi8>, tensor<2x1x16xi8>
  }
  return %r#1, %r#2, %r#3, %r#4 : tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x131072xi8>, tensor<2x1x16xi8>
}

// -----

// In a loop, chains of neighboring windows travel together if the compute
// between them takes less time than a transfer costs: the second and the third
// tensor. What an iteration needs first travels alone, unless the next ones are
// small. The last tensor comes after a large product.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @near
// CHECK: stablehlo.while(
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x524288xi8> into
// CHECK: tensor.concat dim(1) {{.*}} : (tensor<1x524288xi8>, tensor<1x524288xi8>) -> tensor<1x1048576xi8>
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x1048576xi8> into
// CHECK: tensor.concat dim(1) {{.*}} : (tensor<1x524288xi8>, tensor<1x16xi8>) -> tensor<1x524304xi8>
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x524304xi8> into
// CHECK-NOT: zero.all_gather_chunks
// CHECK: return
func.func @near(%a: tensor<1x524288xi8>, %b: tensor<1x524288xi8>, %c: tensor<1x524288xi8>, %d: tensor<1x524288xi8>, %e: tensor<1x16xi8>, %x: tensor<64x64xbf16>, %y: tensor<8192x8192xbf16>) -> (tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x16xi8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %za = stablehlo.constant dense<0> : tensor<2x1x524288xi8>
  %zb = stablehlo.constant dense<0> : tensor<2x1x524288xi8>
  %zc = stablehlo.constant dense<0> : tensor<2x1x524288xi8>
  %zd = stablehlo.constant dense<0> : tensor<2x1x524288xi8>
  %ze = stablehlo.constant dense<0> : tensor<2x1x16xi8>
  %l:6 = stablehlo.while(%i = %zero, %oa = %za, %ob = %zb, %oc = %zc, %od = %zd, %oe = %ze) : tensor<i32>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x16xi8>
  cond {
    %t = "stablehlo.compare"(%i, %ten) : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %a0 = tensor.empty() : tensor<2x1x524288xi8>
    %a1 = zero.all_gather_chunks %a along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %p = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
    %b0 = tensor.empty() : tensor<2x1x524288xi8>
    %b1 = zero.all_gather_chunks %b along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %q = stablehlo.dot_general %p, %p, contracting_dims = [1] x [0] : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
    %c0 = tensor.empty() : tensor<2x1x524288xi8>
    %c1 = zero.all_gather_chunks %c along ["node"] on #mesh into %c0 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %r = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0] : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
    %d0 = tensor.empty() : tensor<2x1x524288xi8>
    %d1 = zero.all_gather_chunks %d along ["node"] on #mesh into %d0 {zpp.origin = {id = 3, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %s = stablehlo.dot_general %r, %r, contracting_dims = [1] x [0] : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
    %e0 = tensor.empty() : tensor<2x1x16xi8>
    %e1 = zero.all_gather_chunks %e along ["node"] on #mesh into %e0 {zpp.origin = {id = 4, role = "weight"}}
        : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %a1, %b1, %c1, %d1, %e1 : tensor<i32>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x16xi8>
  }
  return %l#1, %l#2, %l#3, %l#4, %l#5 : tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x16xi8>
}

// -----

// Outside of loops each window has its own buffers. Only small tensors join those
// of another one.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @near_outside
// CHECK-COUNT-3: zero.all_gather_chunks {{.*}} : tensor<1x524288xi8> into
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x524304xi8> into
// CHECK-NOT: zero.all_gather_chunks
// CHECK: return
func.func @near_outside(%a: tensor<1x524288xi8>, %b: tensor<1x524288xi8>, %c: tensor<1x524288xi8>, %d: tensor<1x524288xi8>, %e: tensor<1x16xi8>, %x: tensor<64x64xbf16>, %y: tensor<8192x8192xbf16>) -> (tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x16xi8>) {
    %a0 = tensor.empty() : tensor<2x1x524288xi8>
    %a1 = zero.all_gather_chunks %a along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %p = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
    %b0 = tensor.empty() : tensor<2x1x524288xi8>
    %b1 = zero.all_gather_chunks %b along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %q = stablehlo.dot_general %p, %p, contracting_dims = [1] x [0] : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
    %c0 = tensor.empty() : tensor<2x1x524288xi8>
    %c1 = zero.all_gather_chunks %c along ["node"] on #mesh into %c0 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %r = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0] : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
    %d0 = tensor.empty() : tensor<2x1x524288xi8>
    %d1 = zero.all_gather_chunks %d along ["node"] on #mesh into %d0 {zpp.origin = {id = 3, role = "weight"}}
        : tensor<1x524288xi8> into tensor<2x1x524288xi8> -> tensor<2x1x524288xi8>
    %s = stablehlo.dot_general %r, %r, contracting_dims = [1] x [0] : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
    %e0 = tensor.empty() : tensor<2x1x16xi8>
    %e1 = zero.all_gather_chunks %e along ["node"] on #mesh into %e0 {zpp.origin = {id = 4, role = "weight"}}
        : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
  return %a1, %b1, %c1, %d1, %e1 : tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x524288xi8>, tensor<2x1x16xi8>
}

// -----

// A small gradient waits for the next one, a large one does not wait for a
// small one that is computed much later, though all are scattered at the end.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @scatters
// CHECK: stablehlo.while(
// CHECK: tensor.concat dim(1) {{.*}} -> tensor<2x524304xi8>
// CHECK: zero.all_to_all {{.*}} : tensor<2x524304xi8> into
// CHECK: zero.all_to_all {{.*}} : tensor<2x16xi8> into
// CHECK-NOT: zero.all_to_all
// CHECK: return
func.func @scatters(%x: tensor<2x16xi8>, %v: tensor<2x524288xi8>, %w: tensor<2x16xi8>, %y: tensor<8192x8192xbf16>) -> (tensor<2x16xi8>, tensor<2x524288xi8>, tensor<2x16xi8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %l:4 = stablehlo.while(%i = %zero, %oa = %x, %ob = %v, %oc = %w) : tensor<i32>, tensor<2x16xi8>, tensor<2x524288xi8>, tensor<2x16xi8>
  cond {
    %t = "stablehlo.compare"(%i, %ten) : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %p = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0] : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
    %b = stablehlo.add %ob, %ob : tensor<2x524288xi8>
    %q = stablehlo.dot_general %p, %p, contracting_dims = [1] x [0] : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
    %c = stablehlo.add %oc, %oc : tensor<2x16xi8>
    %a0 = tensor.empty() : tensor<2x16xi8>
    %a1 = zero.all_to_all %oa along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "gradient"}}
        : tensor<2x16xi8> into tensor<2x16xi8> -> tensor<2x16xi8>
    %b0 = tensor.empty() : tensor<2x524288xi8>
    %b1 = zero.all_to_all %b along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "gradient"}}
        : tensor<2x524288xi8> into tensor<2x524288xi8> -> tensor<2x524288xi8>
    %c0 = tensor.empty() : tensor<2x16xi8>
    %c1 = zero.all_to_all %c along ["node"] on #mesh into %c0 {zpp.origin = {id = 2, role = "gradient"}}
        : tensor<2x16xi8> into tensor<2x16xi8> -> tensor<2x16xi8>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %a1, %b1, %c1 : tensor<i32>, tensor<2x16xi8>, tensor<2x524288xi8>, tensor<2x16xi8>
  }
  return %l#1, %l#2, %l#3 : tensor<2x16xi8>, tensor<2x524288xi8>, tensor<2x16xi8>
}

// -----

// A tensor that depends on another one does not keep those of a window apart.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @dependent
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x32xi8> into
// CHECK: stablehlo.dot_general
// CHECK: zero.all_gather_chunks {{.*}} : tensor<1x32xi8> into
// CHECK-NOT: zero.all_gather_chunks
// CHECK: return
func.func @dependent(%a: tensor<1x16xi8>, %b: tensor<1x16xi8>, %x: tensor<64x64xbf16>) -> (tensor<2x1x16xi8>, tensor<2x1x16xi8>, tensor<2x1x32xi8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %za = stablehlo.constant dense<0> : tensor<2x1x16xi8>
  %zc = stablehlo.constant dense<0> : tensor<2x1x32xi8>
  %l:4 = stablehlo.while(%i = %zero, %oa = %za, %ob = %za, %oc = %zc) : tensor<i32>, tensor<2x1x16xi8>, tensor<2x1x16xi8>, tensor<2x1x32xi8>
  cond {
    %t = "stablehlo.compare"(%i, %ten) : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %a0 = tensor.empty() : tensor<2x1x16xi8>
    %a1 = zero.all_gather_chunks %a along ["node"] on #mesh into %a0 {zpp.origin = {id = 0, role = "weight"}}
        : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
    %b0 = tensor.empty() : tensor<2x1x16xi8>
    %b1 = zero.all_gather_chunks %b along ["node"] on #mesh into %b0 {zpp.origin = {id = 1, role = "weight"}}
        : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
    %p = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
    %c = stablehlo.reshape %a1 : (tensor<2x1x16xi8>) -> tensor<1x32xi8>
    %c0 = tensor.empty() : tensor<2x1x32xi8>
    %c1 = zero.all_gather_chunks %c along ["node"] on #mesh into %c0 {zpp.origin = {id = 2, role = "weight"}}
        : tensor<1x32xi8> into tensor<2x1x32xi8> -> tensor<2x1x32xi8>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %a1, %b1, %c1 : tensor<i32>, tensor<2x1x16xi8>, tensor<2x1x16xi8>, tensor<2x1x32xi8>
  }
  return %l#1, %l#2, %l#3 : tensor<2x1x16xi8>, tensor<2x1x16xi8>, tensor<2x1x32xi8>
}
