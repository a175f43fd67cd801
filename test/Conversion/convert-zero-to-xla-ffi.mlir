// RUN: zpp-opt %s --convert-zero-to-xla-ffi | FileCheck %s
// RUN: zpp-opt %s --convert-zero-to-xla-ffi --convert-zero-to-xla-ffi | FileCheck %s
// RUN: zpp-opt %s --convert-zero-to-xla-ffi=bundle=1234 | FileCheck %s --check-prefix=BUNDLE

// BUNDLE: backend_config = {bundle = "1234",

#mesh = #zero.mesh<"gpu" = 2>

// One call after the other: the token goes from each to the next. Outputs of a
// wait, ties and the token alias.

// CHECK-LABEL: func @order
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>, %[[T:.*]]: tensor<8x3xbf16>, %[[Z:.*]]: tensor<f32>)
func.func @order(%x: tensor<4xf32>, %t: tensor<8x3xbf16>, %z: tensor<f32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<8x3xbf16>, tensor<f32>) {
  // CHECK-NEXT: %[[C:.*]] = stablehlo.constant dense<0> : tensor<1xi8>
  // CHECK-NEXT: %[[S:.*]]:3 = stablehlo.custom_call @zpp.start(%[[X]], %[[T]], %[[C]]) {api_version = 4 : i32,
  // CHECK-SAME: backend_config = {bundle = "", deferrable = false, function = "gather", inputs = 1 : i64, outputs = 1 : i64, workspace = 0 : i64},
  // CHECK-SAME: operand_layouts = [dense<0> : tensor<1xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>],
  // CHECK-SAME: output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 1, operand_tuple_indices = []>, #stablehlo.output_operand_alias<output_tuple_indices = [2], operand_index = 2, operand_tuple_indices = []>],
  // CHECK-SAME: result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>],
  // CHECK-SAME: zpp.origins = [{id = 3 : i64}]} : (tensor<4xf32>, tensor<8x3xbf16>, tensor<1xi8>) -> (tensor<2x4xf32>, tensor<8x3xbf16>, tensor<1xi8>)
  %y, %u = zero.start @zpp_host::@gather(%x) ties(%t : tensor<8x3xbf16>) {origins = [{id = 3}]} : (tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %[[S2:.*]]:2 = stablehlo.custom_call @zpp.start(%[[X]], %[[S]]#2)
  // CHECK-SAME: deferrable = true
  %y2 = zero.start @zpp_host::@gather(%x) {deferrable} : (tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %[[W:.*]]:3 = stablehlo.custom_call @zpp.wait(%[[X]], %[[S]]#0, %[[Z]], %[[S2]]#1)
  // CHECK-NOT: has_side_effect
  // CHECK-SAME: operand_layouts = [dense<0> : tensor<1xindex>, dense<[1, 0]> : tensor<2xindex>, dense<> : tensor<0xindex>, dense<0> : tensor<1xindex>]
  // CHECK-SAME: output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 1, operand_tuple_indices = []>, #stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 2, operand_tuple_indices = []>, #stablehlo.output_operand_alias<output_tuple_indices = [2], operand_index = 3, operand_tuple_indices = []>]
  // CHECK-SAME: -> (tensor<2x4xf32>, tensor<f32>, tensor<1xi8>)
  %w, %v = zero.wait %y from(%x : tensor<4xf32>) ties(%z : tensor<f32>) : tensor<2x4xf32>
  // CHECK-NEXT: %[[W2:.*]]:2 = stablehlo.custom_call @zpp.wait(%[[X]], %[[S2]]#0, %[[W]]#2)
  %w2 = zero.wait %y2 from(%x : tensor<4xf32>) : tensor<2x4xf32>
  // CHECK-NEXT: return %[[W]]#0, %[[W2]]#0, %[[S]]#1, %[[W]]#1
  return %w, %w2, %u, %v : tensor<2x4xf32>, tensor<2x4xf32>, tensor<8x3xbf16>, tensor<f32>
}

// A function on buffers tells its workspace, which start makes and wait reads.
// What nothing reads is waited for all the same.

// CHECK-LABEL: func @workspace
func.func @workspace(%x: tensor<4xf32>) {
  // CHECK: %[[S:.*]]:3 = stablehlo.custom_call @{{.*}}(%arg0, %{{.*}}workspace = 1 : i64{{.*}}output_tuple_indices = [2], operand_index = 1
  // CHECK-SAME: -> (tensor<2x4xf32>, tensor<64xi8>, tensor<1xi8>)
  %y = zero.start @zpp_host::@gather_buffers(%x) : (tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: stablehlo.custom_call @zpp.wait(%arg0, %[[S]]#0, %[[S]]#1, %[[S]]#2)
  // CHECK-SAME: has_side_effect = true
  // CHECK-SAME: output_tuple_indices = [0], operand_index = 1{{.*}}output_tuple_indices = [1], operand_index = 3
  // CHECK-SAME: -> (tensor<2x4xf32>, tensor<1xi8>)
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<2x4xf32>
  return
}

// What is held is updated in place if the callee does not read it later: the
// wait gets the sum only.

// CHECK-LABEL: func @in_place
func.func @in_place(%w: tensor<4x8xbf16>, %own: tensor<4x8xbf16>) -> (tensor<4x8xbf16>, tensor<4x32xi8>) {
  // CHECK: %[[S:.*]]:3 = stablehlo.custom_call @zpp.start(%arg0, %arg1, %{{[^)]*}}) {{.*}}in_place = array<i64: 1, 0>
  // CHECK-SAME: output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 1, operand_tuple_indices = []>, #stablehlo.output_operand_alias<output_tuple_indices = [2], operand_index = 2, operand_tuple_indices = []>]
  %y:2 = zero.start @zpp_host::@update(%w, %own) : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> (tensor<4x8xbf16>, tensor<4x32xi8>)
  // CHECK-NEXT: stablehlo.custom_call @zpp.wait(%arg0, %[[S]]#0, %[[S]]#1, %[[S]]#2) {{.*}}function = "update", inputs = 1 : i64, outputs = 2 : i64
  %z:2 = zero.wait %y#0, %y#1 from(%w, %own : tensor<4x8xbf16>, tensor<4x8xbf16>) : tensor<4x8xbf16>, tensor<4x32xi8>
  return %z#0, %z#1 : tensor<4x8xbf16>, tensor<4x32xi8>
}

// CHECK-LABEL: func @not_in_place
func.func @not_in_place(%w: tensor<4x8xbf16>, %own: tensor<4x8xbf16>) -> (tensor<4x8xbf16>, tensor<4x32xi8>) {
  // CHECK: %[[S:.*]]:3 = stablehlo.custom_call @zpp.start(%arg0, %arg1, %{{[^)]*}})
  // CHECK-SAME: output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [2], operand_index = 2, operand_tuple_indices = []>]
  %y:2 = zero.start @zpp_host::@read_later(%w, %own) : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> (tensor<4x8xbf16>, tensor<4x32xi8>)
  // CHECK-NEXT: stablehlo.custom_call @zpp.wait(%arg0, %arg1, %[[S]]#0, %[[S]]#1, %[[S]]#2)
  %z:2 = zero.wait %y#0, %y#1 from(%w, %own : tensor<4x8xbf16>, tensor<4x8xbf16>) : tensor<4x8xbf16>, tensor<4x32xi8>
  return %z#0, %z#1 : tensor<4x8xbf16>, tensor<4x32xi8>
}

// Loops carry the token: what comes after one starts after what it starts.

// CHECK-LABEL: func @loop
func.func @loop(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2x4xf32>) {
  // CHECK-NEXT: %[[C:.*]] = stablehlo.constant
  // CHECK-NEXT: %[[LOOP:.*]]:2 = stablehlo.while(%[[A:[^ ]+]] = %arg0, %[[TOKEN:[^ ]+]] = %[[C]])
  %r = "stablehlo.while"(%x) <{a = 1 : i64}> ({
  // CHECK-NEXT: cond {
  ^bb0(%a: tensor<4xf32>):
    %true = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %true : tensor<i1>
  }, {
  // CHECK: } do {
  ^bb0(%a: tensor<4xf32>):
    // CHECK-NEXT: %[[S:.*]]:2 = stablehlo.custom_call @zpp.start(%[[A]], %[[TOKEN]])
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    // CHECK-NEXT: %[[W:.*]]:2 = stablehlo.custom_call @zpp.wait(%[[A]], %[[S]]#0, %[[S]]#1)
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    %s = "stablehlo.first"(%w) : (tensor<2x4xf32>) -> tensor<4xf32>
    // CHECK: stablehlo.return %{{.*}}, %[[W]]#1
    stablehlo.return %s : tensor<4xf32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: stablehlo.custom_call @zpp.start(%arg0, %[[LOOP]]#1)
  %y = zero.start @zpp_host::@gather(%x) : (tensor<4xf32>) -> tensor<2x4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<2x4xf32>
  // CHECK: return %[[LOOP]]#0
  return %r, %w : tensor<4xf32>, tensor<2x4xf32>
}

// Each branch reads the token and returns its last one.

// CHECK-LABEL: func @branches
// CHECK-SAME: (%[[P:.*]]: tensor<i1>, %[[X:.*]]: tensor<4xf32>)
func.func @branches(%p: tensor<i1>, %x: tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  // CHECK-NEXT: %[[C:.*]] = stablehlo.constant dense<0> : tensor<1xi8>
  // CHECK-NEXT: %[[S:.*]]:2 = stablehlo.custom_call @zpp.start(%[[X]], %[[C]])
  %y = zero.start @zpp_host::@gather(%x) : (tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %[[IF:.*]]:2 = "stablehlo.if"(%[[P]]) ({
  %r = "stablehlo.if"(%p) ({
    // CHECK-NEXT: %[[S2:.*]]:2 = stablehlo.custom_call @zpp.start(%[[X]], %[[S]]#1)
    %z = zero.start @zpp_host::@gather(%x) : (tensor<4xf32>) -> tensor<2x4xf32>
    // CHECK-NEXT: %[[W:.*]]:2 = stablehlo.custom_call @zpp.wait(%[[X]], %[[S2]]#0, %[[S2]]#1)
    %w = zero.wait %z from(%x : tensor<4xf32>) : tensor<2x4xf32>
    // CHECK-NEXT: stablehlo.return %[[W]]#0, %[[W]]#1
    stablehlo.return %w : tensor<2x4xf32>
  }, {
    %e = stablehlo.constant dense<0.0> : tensor<2x4xf32>
    // CHECK: stablehlo.return %{{.*}}, %[[S]]#1
    stablehlo.return %e : tensor<2x4xf32>
  // CHECK-NEXT: }) : (tensor<i1>) -> (tensor<2x4xf32>, tensor<1xi8>)
  }) : (tensor<i1>) -> tensor<2x4xf32>
  // CHECK-NEXT: stablehlo.custom_call @zpp.wait(%[[X]], %[[S]]#0, %[[IF]]#1)
  %v = zero.wait %y from(%x : tensor<4xf32>) : tensor<2x4xf32>
  return %r, %v : tensor<2x4xf32>, tensor<2x4xf32>
}

// A manual computation, and a function, begin with tokens of their own.

// CHECK-LABEL: func @manual
func.func @manual(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: "sdy.manual_computation"(%arg0) ({
  %r = "sdy.manual_computation"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    // CHECK: stablehlo.constant
    // CHECK: @zpp.start(
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    // CHECK: sdy.return %{{.*}} : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  }) : (tensor<4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// The functions stay.
// CHECK: module @zpp_host
// CHECK: zero.all_gather_chunks
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
  func.func @gather_buffers(%x: memref<4xf32>, %y: memref<2x4xf32>, %workspace: memref<64xi8>) {
    zero.all_gather_chunks %x along ["gpu"] on #mesh into %y : memref<4xf32> into memref<2x4xf32>
    return
  }
  func.func @update(%w: memref<4x8xbf16>, %own: memref<4x8xbf16>, %after: memref<4x8xbf16>, %sent: memref<4x32xi8>) {
    zero.quantize_difference %w minus %own quant <i8, block = 32> into %sent
        : memref<4x8xbf16>, memref<4x8xbf16> into memref<4x32xi8>
    zero.dequantize_add %sent plus %own quant <i8, block = 32> into %after
        : memref<4x32xi8>, memref<4x8xbf16> into memref<4x8xbf16>
    return
  }
  func.func @read_later(%w: memref<4x8xbf16>, %own: memref<4x8xbf16>, %after: memref<4x8xbf16>, %sent: memref<4x32xi8>) {
    zero.quantize_difference %w minus %own quant <i8, block = 32> into %sent
        : memref<4x8xbf16>, memref<4x8xbf16> into memref<4x32xi8>
    zero.dequantize_add %sent plus %own quant <i8, block = 32> into %after
        : memref<4x32xi8>, memref<4x8xbf16> into memref<4x8xbf16>
    zero.quantize_difference %after minus %own quant <i8, block = 32> into %sent
        : memref<4x8xbf16>, memref<4x8xbf16> into memref<4x32xi8>
    return
  }
}
