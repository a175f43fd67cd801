// RUN: zpp-opt %s --convert-zero-to-stablehlo --split-input-file --verify-diagnostics

// Every op that is left is named, with the pass that should have run; nothing of the
// module is converted.

#mesh = #zero.mesh<"gpu" = 4>

func.func @logical_gather(%w: tensor<4xf32>, %e: tensor<4x4xf32>) -> tensor<16xf32> {
  %0 = zero.all_gather_chunks %w along ["gpu"] on #mesh into %e : tensor<4xf32> into tensor<4x4xf32> -> tensor<4x4xf32>
  // expected-error@+1 {{failed to legalize 'zero.from_local': run zero-decompose-all-gather and zero-decompose-reduce-scatter first}}
  %1 = zero.from_local %w : tensor<4xf32> to !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>
  // expected-error@+1 {{failed to legalize 'zero.all_gather': run zero-decompose-all-gather first}}
  %2 = zero.all_gather %1 along ["gpu"]
      : !zero.shard<16xf32, dim 0 = ("gpu") on #mesh> to !zero.shard<16xf32, dim 0 = (4) on #mesh>
  // expected-error@+1 {{failed to legalize 'zero.to_local': run zero-decompose-all-gather and zero-decompose-reduce-scatter first}}
  %3 = zero.to_local %2 : !zero.shard<16xf32, dim 0 = (4) on #mesh> to tensor<16xf32>
  return %3 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

// expected-error@+1 {{failed to legalize 'func.func': expected local tensors, but got a partitioned one; run zero-decompose-all-gather and zero-decompose-reduce-scatter first}}
func.func @encoded(%p: !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>) {
  // expected-error@+1 {{failed to legalize 'zero.encode': run zero-decompose-all-gather first}}
  %0 = zero.encode %p : !zero.shard<16xf32, dim 0 = ("gpu") on #mesh> to
      !zero.shard<16xf32, dim 0 = ("gpu") on #mesh, #zero.quant<i8, block = 32>>
  // expected-error@+1 {{failed to legalize 'zero.decode': run zero-decompose-all-gather first}}
  %1 = zero.decode %0 : !zero.shard<16xf32, dim 0 = ("gpu") on #mesh, #zero.quant<i8, block = 32>> to
      !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>
  return
}

// -----

// A mean is no plain scatter.
#mesh = #zero.mesh<"gpu" = 4>

func.func @logical_scatter(%g: tensor<16xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{failed to legalize 'zero.from_local'}}
  %0 = zero.from_local %g : tensor<16xf32> to !zero.shard<16xf32, dim 0 = (4) on #mesh>
  // expected-error@+1 {{failed to legalize 'zero.reduce_scatter': run zero-decompose-reduce-scatter first}}
  %1 = zero.reduce_scatter mean %0 along ["gpu"]
      : !zero.shard<16xf32, dim 0 = (4) on #mesh> to !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>
  // expected-error@+1 {{failed to legalize 'zero.to_local'}}
  %2 = zero.to_local %1 : !zero.shard<16xf32, dim 0 = ("gpu") on #mesh> to tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

func.func @slices(%g: tensor<16xf32>, %e: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error@+1 {{failed to legalize 'zero.all_to_all': run zero-reorder-slices first}}
  %0 = zero.all_to_all %g along ["gpu"] on <"gpu" = 4> slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<16xf32> into tensor<4x4xf32> -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

func.func @wire(%c: tensor<4x4xbf16>, %e: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error@+1 {{failed to legalize 'zero.all_to_all': run zero-quantize-all-to-all first}}
  %0 = zero.all_to_all %c along ["gpu"] on <"gpu" = 4> wire <i8, block = 32> into %e
      : tensor<4x4xbf16> into tensor<4x4xf32> -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

func.func @buffers(%c: memref<4x4xf32>, %e: memref<4xf32>) {
  // expected-error@+1 {{failed to legalize 'zero.reduce': expected tensors, but got buffers of type 'memref<4x4xf32>'}}
  zero.reduce sum %c into %e : memref<4x4xf32> into memref<4xf32>
  return
}

// -----

func.func @other_tensor_op(%x: tensor<8xf32>, %i: index) -> (tensor<4xf32>, tensor<8xf32>) {
  // expected-error@+1 {{failed to legalize 'tensor.extract_slice': expected tensor.empty, or tensor.concat, a slice or a reshape of static tensors without strides}}
  %0 = tensor.extract_slice %x[%i] [4] [1] : tensor<8xf32> to tensor<4xf32>
  // expected-error@+1 {{failed to legalize 'tensor.insert_slice': expected tensor.empty, or tensor.concat, a slice or a reshape of static tensors without strides}}
  %1 = tensor.insert_slice %0 into %x[0] [4] [1] : tensor<4xf32> into tensor<8xf32>
  return %0, %1 : tensor<4xf32>, tensor<8xf32>
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

func.func @loop_carried(%w: tensor<4xf32>) {
  // expected-error@+1 {{failed to legalize 'stablehlo.while': expected local tensors, but got a partitioned one}}
  "stablehlo.while"(%w) ({
  ^bb0(%a: tensor<4xf32>):
    stablehlo.return %a : tensor<4xf32>
  }, {
  ^bb0(%a: !zero.shard<16xf32, dim 0 = ("gpu") on #mesh>):
    stablehlo.return %w : tensor<4xf32>
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func private @f(tensor<4xf32>) -> tensor<4xf32>
func.func @schedule(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{failed to legalize 'zero.start': run convert-zero-to-xla-ffi first}}
  %y = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{failed to legalize 'zero.wait': run convert-zero-to-xla-ffi first}}
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  return %w : tensor<4xf32>
}

// -----

func.func @dynamic_concat(%x: tensor<?xf32>, %y: tensor<4xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{failed to legalize 'tensor.concat': expected tensor.empty, or tensor.concat, a slice or a reshape of static tensors without strides}}
  %0 = tensor.concat dim(0) %x, %y : (tensor<?xf32>, tensor<4xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @vectors() -> tensor<4xvector<2xf32>> {
  // expected-error@+1 {{failed to legalize 'tensor.empty': expected integer, float or complex elements, but got 'vector<2xf32>'}}
  %0 = tensor.empty() : tensor<4xvector<2xf32>>
  return %0 : tensor<4xvector<2xf32>>
}

// -----

func.func @sources(%x: tensor<65537x2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{failed to legalize 'zero.reduce': expected at most 65536 sources, but got 65537}}
  %0 = zero.reduce sum %x into %y : tensor<65537x2xf32> into tensor<2xf32> -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
