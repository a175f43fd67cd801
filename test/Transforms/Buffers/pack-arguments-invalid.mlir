// RUN: zpp-opt %s --zero-pack-arguments --split-input-file --verify-diagnostics

// expected-error@below {{expected the rank as the first argument of the public function 'f'; run convert-zero-to-runtime first}}
func.func @f(%x: memref<4xf32>) {
  return
}

// -----

// expected-error@below {{expected no results of the public function 'f', but got 'f32'}}
func.func @f(%rank: !llvm.ptr) -> f32 {
  %0 = arith.constant 0.0 : f32
  return %0 : f32
}

// -----

// expected-error@below {{expected dense buffers of static shape as arguments of the public function 'f', but got 'memref<?xf32>'}}
func.func @f(%rank: !llvm.ptr, %x: memref<?xf32>) {
  return
}

// -----

func.func @f(%rank: !llvm.ptr, %x: memref<4xf32>) {
  return
}
func.func @g(%rank: !llvm.ptr, %x: memref<4xf32>) {
  // expected-error@below {{expected no calls of the public function 'f' in its own module}}
  call @f(%rank, %x) : (!llvm.ptr, memref<4xf32>) -> ()
  return
}

// -----

// expected-error@below {{expected the attribute 'zpp.names' to be a global of address space 0, but got @missing}}
func.func @f(%rank: !llvm.ptr, %names: !llvm.ptr, %x: memref<4xf32>) attributes {zpp.names = @missing} {
  return
}

// -----

llvm.mlir.global internal constant @names() : !llvm.struct<(ptr)> {
  %0 = llvm.mlir.undef : !llvm.struct<(ptr)>
  llvm.return %0 : !llvm.struct<(ptr)>
}
func.func @f(%rank: !llvm.ptr, %names: !llvm.ptr, %x: memref<4xf32>) attributes {zpp.names = @names} {
  return
}
// expected-error@below {{expected the attribute 'zpp.names' to be a global of address space 0, but got none}}
zero.instance @g of @f from [loc("a")] to [loc("b")]

// -----

// expected-error@below {{expected the table of names as the second argument of the public function 'f', but got 'memref<4xf32>'}}
func.func @f(%rank: !llvm.ptr, %x: memref<4xf32>) attributes {zpp.names = @names} {
  return
}

// -----

// expected-error@below {{expected the table of names as the second argument of the public function 'f', but got none}}
func.func @f(%rank: !llvm.ptr) attributes {zpp.names = @names} {
  return
}
