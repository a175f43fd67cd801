// RUN: zpp-opt %s --zero-verify-decomposed --split-input-file --verify-diagnostics

// Ops that break the contract are not changed, and passes before decomposition
// accept them.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!slice = !zero.shard<32x4xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<32x4xf32, dim 0 = (2, 4) on #mesh>
func.func @d1(%w: tensor<4x4xf32>) -> tensor<32x4xf32> {
  // expected-error@+1 {{expected decomposed IR, but got 'zero.from_local'; run zero-decompose-all-gather and zero-decompose-reduce-scatter first}}
  %0 = zero.from_local %w : tensor<4x4xf32> to !slice
  // expected-error@+1 {{expected decomposed IR, but got 'zero.all_gather'; run zero-decompose-all-gather first}}
  %1 = zero.all_gather %0 along ["node", "gpu"] : !slice to !whole
  // expected-error@+1 {{expected decomposed IR, but got 'zero.to_local'}}
  %2 = zero.to_local %1 : !whole to tensor<32x4xf32>
  return %2 : tensor<32x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @d2_slices(%x: tensor<32x4xf32>) -> tensor<4x8x4xf32> {
  %e = tensor.empty() : tensor<4x8x4xf32>
  // expected-error@+1 {{expected decomposed IR, but got 'zero.all_to_all'; run zero-reorder-slices first}}
  %0 = zero.all_to_all %x along ["gpu"] on #mesh
      slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<32x4xf32> into tensor<4x8x4xf32> -> tensor<4x8x4xf32>
  return %0 : tensor<4x8x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @d2_wire(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  // expected-error@+1 {{expected decomposed IR, but got 'zero.all_to_all'; run zero-quantize-all-to-all first}}
  %0 = zero.all_to_all %x along ["gpu"] on #mesh wire <i8, block = 32> into %e
      : tensor<4x8xf32> into tensor<4x8xf32> -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
// expected-error@+1 {{expected decomposed IR, but got a partitioned tensor in 'func.func'; run zero-decompose-all-gather and zero-decompose-reduce-scatter first}}
func.func private @d3(!zero.shard<32x4xf32, dim 0 = ("node", "gpu") on #mesh>)

// -----

func.func private @f(tensor<4xf32>) -> tensor<4xf32>
func.func @s1_no_wait(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.start' op expected 1 zero.wait to read its outputs, but got 0}}
  %y = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func private @f(tensor<4xf32>) -> tensor<4xf32>
func.func @s1_early_read(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'zero.start' op expected only a zero.wait to read its outputs, but got 'func.return'}}
  %y = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @f(tensor<4xf32>) -> tensor<4xf32>
func.func @s1_two_waits(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.start' op expected 1 zero.wait to read its outputs, but got 2}}
  %y = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %v = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  return
}

// -----

func.func private @f(tensor<4xf32>) -> tensor<4xf32>
func.func @s2(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.start' op expected origins of 0 exchanges in the callee, but got 1}}
  %y = zero.start @f(%x) {origins = [{id = 3}]} : (tensor<4xf32>) -> tensor<4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  return
}

// -----

func.func @s3_no_start(%x: tensor<4xf32>) {
  // expected-error@+1 {{'zero.wait' op expected outputs of a zero.start to wait for, but got none}}
  %w = zero.wait %x from(%x : tensor<4xf32>) : tensor<4xf32>
  return
}

// -----

func.func private @f(tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
func.func @s3_part(%x: tensor<4xf32>) {
  %y:2 = zero.start @f(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  // expected-error@+1 {{'zero.wait' op expected all 2 outputs of its zero.start, in order, but got 1 other values}}
  %w = zero.wait %y#0 from(%x : tensor<4xf32>) : tensor<4xf32>
  return
}

// -----

func.func private @f(tensor<4xf32>) -> tensor<4xf32>
func.func @s4(%x: tensor<4xf32>, %z: tensor<4xf32>) {
  %y = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'zero.wait' op expected the 1 inputs of its zero.start, but got 1 other values}}
  %w = zero.wait %y from(%z : tensor<4xf32>) : tensor<4xf32>
  return
}

// -----

func.func private @f(tensor<4xf32>) -> tensor<4xf32>
func.func @s5(%x: tensor<4xf32>, %c: i1) {
  %y = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  scf.if %c {
    // expected-error@+1 {{'zero.wait' op expected to be in the block of its zero.start, but got another block}}
    %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  }
  return
}
