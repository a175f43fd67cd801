// RUN: zpp-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{expected a positive size of mesh axis "gpu", but got 0}}
func.func private @mesh_size() attributes {test.a = #zero.mesh<"node" = 2, "gpu" = 0>}

// -----

// expected-error@+1 {{expected strides of all mesh axes or of none, but got 1 of 2}}
func.func private @mesh_strides() attributes {test.a = #zero.mesh<"node" = 2 stride 1, "gpu" = 4>}

// -----

// expected-error@+1 {{expected a stride of 2 of axis 'gpu', but got 4 in 'node:2@1,gpu:4@4'}}
func.func private @mesh_stride() attributes {test.a = #zero.mesh<"node" = 2 stride 1, "gpu" = 4 stride 4>}

// -----

// expected-error@+1 {{expected the shortest form of the mesh, 'node:2,gpu:4'}}
func.func private @mesh_row_major() attributes {test.a = #zero.mesh<"node" = 2 stride 4, "gpu" = 4 stride 1>}

// -----

// expected-error@+1 {{expected distinct mesh axes, but got "gpu" twice}}
func.func private @mesh_twice() attributes {test.a = #zero.mesh<"gpu" = 2, "gpu" = 4>}

// -----

// expected-error@+1 {{expected a mesh of at most 1048576 devices, but got an axis "node" of size 4294967296}}
func.func private @mesh_overflow() attributes {test.a = #zero.mesh<"node" = 4294967296, "gpu" = 4294967296>}

// -----

// expected-error@+1 {{expected positive sizes of a part of an axis, but got (2)0}}
func.func private @axis_size() attributes {test.a = #zero.axis<"gpu":(2)0>}

// -----

// expected-error@+1 {{expected positive sizes of a part of an axis, but got (0)0}}
func.func private @axis_zeros() attributes {test.a = #zero.axis<"gpu":(0)0>}

// -----

// expected-error@+1 {{expected positive sizes of a part of an axis, but got (-1)2}}
func.func private @axis_pre_size() attributes {test.a = #zero.axis<"gpu":(-1)2>}

// -----

// expected-error@+1 {{expected a positive factor, but got 0}}
func.func private @factor() attributes {test.a = #zero.factor<0>}

// -----

// expected-error@+1 {{expected a block that is a power of two from 32 to 2048, but got 100}}
func.func private @quant_power() attributes {test.a = #zero.quant<i8, block = 100>}

// -----

// expected-error@+1 {{expected a block that is a power of two from 32 to 2048, but got 16}}
func.func private @quant_small() attributes {test.a = #zero.quant<i8, block = 16>}

// -----

// expected-error@+1 {{expected a block that is a power of two from 32 to 2048, but got 4096}}
func.func private @quant_large() attributes {test.a = #zero.quant<i4, block = 4096>}

// -----

// expected-error@+1 {{expected groups of 0 or 32 elements to rotate, but got 64}}
func.func private @quant_rotate() attributes {test.a = #zero.quant<i4, block = 64, rotate = 64>}

// -----

// expected-error@+2 {{expected ::zpp::zero::WireFormatKind to be one of: i8, i4}}
// expected-error@+1 {{failed to parse Zero_QuantAttr parameter 'format'}}
func.func private @quant_format() attributes {test.a = #zero.quant<i2, block = 64>}

// -----

// expected-error@+1 {{expected a dim of at least 0, but got -1}}
func.func private @slices_dim() attributes {test.a = #zero.slices<dim = -1, factors = [2], chunk = [0]>}

// -----

// expected-error@+1 {{expected positive factors, but got 0}}
func.func private @slices_factor() attributes {test.a = #zero.slices<dim = 0, factors = [2, 0], chunk = [0]>}

// -----

// expected-error@+1 {{expected fewer than 2^63 slices, with factor, but got 4294967296}}
func.func private @slices_overflow() attributes {test.a = #zero.slices<dim = 0, factors = [4294967296, 4294967296], chunk = [0]>}

// -----

// expected-error@+1 {{expected chunk factors in [0, 2), but got 2}}
func.func private @slices_chunk() attributes {test.a = #zero.slices<dim = 0, factors = [2, 4], chunk = [2]>}

// -----

// expected-error@+1 {{expected different chunk factors, but got 1 twice}}
func.func private @slices_chunk_twice() attributes {test.a = #zero.slices<dim = 0, factors = [2, 4], chunk = [1, 1]>}

// -----

// expected-error@+1 {{expected a stage in [0, 2), but got 2}}
func.func private @slices_stage() attributes {test.a = #zero.slices<dim = 0, factors = [2], chunk = [0], stage = 2 of 2>}

// -----

// expected-error@+1 {{expected at least one stage, but got 0}}
func.func private @slices_stages() attributes {test.a = #zero.slices<dim = 0, factors = [2], chunk = [0], stage = 0 of 0>}

// -----

// expected-error@+1 {{expected a dim below the rank 2, but got 2}}
func.func private @shard_dim(!zero.shard<4x4xf32, dim 2 = ("gpu") on #zero.mesh<"gpu" = 4>>)

// -----

// expected-error@+1 {{expected an axis of the mesh gpu:4 (or a part of one), but got #zero.axis<"node">}}
func.func private @shard_axis(!zero.shard<4x4xf32, dim 0 = ("node") on #zero.mesh<"gpu" = 4>>)

// -----

// expected-error@+1 {{expected an axis of the mesh gpu:4 (or a part of one), but got #zero.axis<"gpu":(2)4>}}
func.func private @shard_part(!zero.shard<4x4xf32, dim 0 = ("gpu":(2)4) on #zero.mesh<"gpu" = 4>>)

// -----

// expected-error@+1 {{expected distinct axes, but got #zero.axis<"gpu"> twice}}
func.func private @shard_axis_twice(!zero.shard<4x4xf32, dim 0 = ("gpu", "gpu") on #zero.mesh<"gpu" = 4>>)

// -----

// expected-error@+1 {{expected separate parts of axis 'gpu', but got "gpu":(1)4 and "gpu":(2)2}}
func.func private @shard_part_twice(!zero.shard<4x4xf32, dim 0 = ("gpu", "gpu":(2)2) on #zero.mesh<"gpu" = 4>>)

// -----

// expected-error@+1 {{expected a positive factor, but got -2}}
func.func private @shard_factor(!zero.shard<4x4xf32, dim 0 = (-2) on #zero.mesh<"gpu" = 4>>)

// -----

// expected-error@+1 {{expected fewer than 2^63 slices, but got a factor 4294967296}}
func.func private @shard_slices(!zero.shard<4x4xf32, dim 0 = (4294967296, 4294967296) on #zero.mesh<"gpu" = 4>>)

// -----

// expected-error@+1 {{expected fewer than 2^57 elements, but got 'tensor<1x16xf32>' in 1152921504606846976 slices}}
func.func private @shard_elements(!zero.shard<1x16xf32, dim 0 = (1152921504606846976) on #zero.mesh<"gpu" = 4>>)

// -----

// expected-error@+1 {{expected f32, bf16 or f16 in a quantized tensor, but got 'i32'}}
func.func private @shard_quant(!zero.shard<4xi32, dim 0 = ("gpu") on #zero.mesh<"gpu" = 4>, #zero.quant<i8, block = 32>>)

// -----

// expected-error@+1 {{expected f32, bf16 or f16 in a quantized tensor, but got 'i16'}}
func.func private @shard_quant(!zero.shard<4xi16, dim 0 = ("gpu") on #zero.mesh<"gpu" = 4>, #zero.quant<i8, block = 32>>)

// -----

// expected-error@+1 {{expected integer or float elements, but got 'vector<2xf32>'}}
func.func private @shard_of_vectors(!zero.shard<4xvector<2xf32>, dim 0 = ("gpu") on #zero.mesh<"gpu" = 4>>)

// -----

// A slice of each of them would not be a number of bytes.
// expected-error@+1 {{expected fewer than 2^57 elements, but got 'tensor<4611686018427387904xf32>' in 4 slices}}
func.func private @shard_bytes(!zero.shard<4611686018427387904xf32, dim 0 = ("gpu") on #zero.mesh<"gpu" = 4>>)

// -----

// expected-error@+1 {{expected a mesh of at most 1048576 devices, but got an axis "gpu" of size 33554432}}
func.func private @mesh_of_many() attributes {test.a = #zero.mesh<"node" = 2, "gpu" = 33554432>}
