// RUN: zpp-opt %s | zpp-opt | FileCheck %s
// RUN: zpp-opt %s --mlir-print-op-generic | zpp-opt | FileCheck %s

// CHECK-DAG: #[[MESH:.*]] = #zero.mesh<"node" = 2, "gpu" = 4>
// CHECK-DAG: #[[ONE:.*]] = #zero.mesh<>
// CHECK-DAG: #[[STRIDED:.*]] = #zero.mesh<"node" = 2 stride 1, "gpu" = 4 stride 2>
// CHECK-DAG: #[[THREE:.*]] = #zero.mesh<"rack" = 2, "node" = 3, "gpu" = 1>
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func.func private @attributes
// CHECK-SAME: axis = #zero.axis<"gpu">
// CHECK-SAME: mesh = #[[MESH]]
// CHECK-SAME: one_device = #[[ONE]]
// CHECK-SAME: part = #zero.axis<"gpu":(2)2>
// CHECK-SAME: partitioned = #zero.factor<"gpu":(1)2>
// CHECK-SAME: quant4 = #zero.quant<i4, block = 32>
// CHECK-SAME: quant8 = #zero.quant<i8, block = 2048>
// CHECK-SAME: rotated = #zero.quant<i4, block = 128, rotate = 32>
// CHECK-SAME: slices = #zero.slices<dim = 1, factors = [2, 4], chunk = [1, 0]>
// CHECK-SAME: stage = #zero.slices<dim = 0, factors = [], chunk = [], stage = 1 of 3>
// CHECK-SAME: strided = #[[STRIDED]]
// CHECK-SAME: three = #[[THREE]]
// CHECK-SAME: whole = #zero.factor<2>
func.func private @attributes() attributes {
  test.axis = #zero.axis<"gpu">,
  test.mesh = #mesh,
  test.one_device = #zero.mesh<>,
  test.part = #zero.axis<"gpu":(2)2>,
  test.partitioned = #zero.factor<"gpu":(1)2>,
  test.quant4 = #zero.quant<i4, block = 32>,
  test.quant8 = #zero.quant<i8, block = 2048>,
  test.rotated = #zero.quant<i4, block = 128, rotate = 32>,
  test.slices = #zero.slices<dim = 1, factors = [2, 4], chunk = [1, 0]>,
  test.stage = #zero.slices<dim = 0, factors = [], chunk = [], stage = 1 of 3>,
  test.strided = #zero.mesh<"node" = 2 stride 1, "gpu" = 4 stride 2>,
  test.three = #zero.mesh<"rack" = 2, "node" = 3, "gpu" = 1>,
  test.whole = #zero.factor<2>
}

// One stage is how slices are written without stages.
// CHECK-LABEL: func.func private @one_stage
// CHECK-SAME: #zero.slices<dim = 0, factors = [2], chunk = [0]>
func.func private @one_stage() attributes {
  test.slices = #zero.slices<dim = 0, factors = [2], chunk = [0], stage = 0 of 1>
}

// CHECK-LABEL: func.func private @shard_types
func.func private @shard_types(
  // CHECK-SAME: !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #[[MESH]]>
  !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>,
  // CHECK-SAME: !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #[[MESH]]>
  !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh>,
  // CHECK-SAME: !zero.shard<7xf32, dim 0 = (2, 4) on #[[MESH]]>
  !zero.shard<7xf32, dim 0 = (2, 4) on #mesh>,
  // CHECK-SAME: !zero.shard<3x5x7xf16, dim 1 = ("node", 2, "gpu":(2)2) on #[[MESH]], #zero.quant<i8, block = 128>>
  !zero.shard<3x5x7xf16, dim 1 = ("node", 2, "gpu":(2)2) on #mesh, #zero.quant<i8, block = 128>>,
  // CHECK-SAME: !zero.shard<4xi32, dim 0 = () on #[[MESH]]>
  !zero.shard<4xi32, dim 0 = () on #mesh>)
