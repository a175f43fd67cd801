// Types of elements that zpp-run knows: their values, and what it says of
// others.

// RUN: zpp-run %s --mesh=gpu:1 --entry=values --print --output=%t. | FileCheck %s
// RUN: zpp-run %s --mesh=gpu:1 --entry=values --expect=%t.0.npy --expect=%t.1.npy --expect=%t.2.npy --expect=%t.3.npy --tolerance=0 | FileCheck %s --check-prefix=SAME
// CHECK: result 0 on rank 0: 200 255
// CHECK-NEXT: result 1 on rank 0: 18446744073709551615 9007199254740993
// CHECK-NEXT: result 2 on rank 0: -56 127
// CHECK-NEXT: result 3 on rank 0: 1 0 1
// SAME-COUNT-4: relative L2 error 0.000e+00, bound 0.000e+00: ok

// Neither the sign nor what a double cannot hold is lost in a comparison.
// RUN: not zpp-run %s --mesh=gpu:1 --entry=u8 --compare=other_u8 --tolerance=0.2 2>&1 | FileCheck %s --check-prefix=U8
// U8: result 0: relative L2 error 2.500e-01, bound 2.000e-01: FAILED
// RUN: not zpp-run %s --mesh=gpu:1 --entry=u64 --compare=other_u64 --tolerance=0 2>&1 | FileCheck %s --check-prefix=U64
// U64: result 0: relative L2 error 5.421e-20, bound 0.000e+00: FAILED

// RUN: zpp-run %s --mesh=gpu:1 --entry=bools --print | FileCheck %s --check-prefix=BOOLS
// BOOLS: result 0 on rank 0: {{[01]( [01]){15}$}}

// RUN: not zpp-run %s --mesh=gpu:1 --entry=i24 2>&1 | FileCheck %s --check-prefix=I24
// I24: run-elements.mlir:[[#@LINE+37]]:1: error: expected static tensors of f16, bf16, f32, f64, i1 or integers of 8, 16, 32 or 64 bits in the signature of 'i24', but got 'tensor<2xi24>'
// I24: zpp-run: error: cannot call 'i24'
// RUN: not zpp-run %s --mesh=gpu:1 --entry=i128 2>&1 | FileCheck %s --check-prefix=I128
// I128: but got 'tensor<2xi128>'
// RUN: not zpp-run %s --mesh=gpu:1 --entry=f8 2>&1 | FileCheck %s --check-prefix=F8
// F8: but got 'tensor<2xf8E4M3FN>'
// RUN: not zpp-run %s --mesh=gpu:1 --entry=f80 2>&1 | FileCheck %s --check-prefix=F80
// F80: but got 'tensor<2xf80>'
// RUN: not zpp-run %s --mesh=gpu:1 --entry=bytes 2>&1 | FileCheck %s --check-prefix=BYTES
// BYTES: error: expected tensors of less than 2^63 bytes in the signature of 'bytes', but got 'tensor<4000000000x4000000000xf32>'

func.func @values() -> (tensor<2xui8>, tensor<2xui64>, tensor<2xsi8>, tensor<3xi1>) {
  %0 = arith.constant dense<[200, 255]> : tensor<2xui8>
  %1 = arith.constant dense<[18446744073709551615, 9007199254740993]> : tensor<2xui64>
  %2 = arith.constant dense<[-56, 127]> : tensor<2xsi8>
  %3 = arith.constant dense<[true, false, true]> : tensor<3xi1>
  return %0, %1, %2, %3 : tensor<2xui8>, tensor<2xui64>, tensor<2xsi8>, tensor<3xi1>
}
func.func @u8() -> tensor<1xui8> {
  %0 = arith.constant dense<150> : tensor<1xui8>
  return %0 : tensor<1xui8>
}
func.func @other_u8() -> tensor<1xui8> {
  %0 = arith.constant dense<200> : tensor<1xui8>
  return %0 : tensor<1xui8>
}
func.func @u64() -> tensor<1xui64> {
  %0 = arith.constant dense<18446744073709551614> : tensor<1xui64>
  return %0 : tensor<1xui64>
}
func.func @other_u64() -> tensor<1xui64> {
  %0 = arith.constant dense<18446744073709551615> : tensor<1xui64>
  return %0 : tensor<1xui64>
}
func.func @bools(%x: tensor<16xi1>) -> tensor<16xi1> {
  return %x : tensor<16xi1>
}
func.func @i24(%x: tensor<2xi24>) -> tensor<2xi24> {
  return %x : tensor<2xi24>
}
func.func @i128(%x: tensor<2xi128>) {
  return
}
func.func @f8(%x: tensor<2xf8E4M3FN>) {
  return
}
func.func @f80(%x: tensor<2xf80>) {
  return
}
func.func @bytes(%x: tensor<4000000000x4000000000xf32>) {
  return
}
