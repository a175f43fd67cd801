// Ranks that do not all reach a collective end with errors on every rank.

// RUN: not zpp-run %s --entry=one_stays_away --input=%S/Inputs/rank.npy 2>&1 | FileCheck %s
// CHECK: zpp-run: error: execution failed
// CHECK-NEXT: rank 0: all_to_all 'train.py:7:1' along gpu: expected 2 ranks, but rank 1 left

// RUN: not zpp-run %s --entry=sizes_differ --input=%S/Inputs/rank.npy 2>&1 | FileCheck %s --check-prefix=SIZE
// SIZE: zpp-run: error: execution failed
// SIZE-NEXT: rank 0: all_to_all 'train.py:8:1' along gpu: expected chunks of 4 bytes on all ranks, as on rank 0 in all_to_all 'train.py:8:1' along gpu, but got 8 on rank 1 in all_to_all 'train.py:9:1' along gpu
// SIZE-NEXT: rank 1: all_to_all 'train.py:9:1' along gpu: expected chunks of 4 bytes

// RUN: not zpp-run %s --entry=one_is_late --input=%S/Inputs/rank.npy --time-limit-usec=100000 2>&1 | FileCheck %s --check-prefix=LATE
// LATE: zpp-run: error: execution failed
// LATE-NEXT: rank 0: all_to_all 'train.py:7:1' along gpu: expected 2 ranks within 100000 usec, but rank 1 did not arrive
// LATE-NEXT: rank 1: all_to_all 'train.py:7:1' along gpu: rank 0 failed: all_to_all 'train.py:7:1' along gpu: expected 2 ranks

#mesh = #zero.mesh<"gpu" = 2>

func.func private @exchange(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = tensor.empty() : tensor<2xf32>
  %1 = zero.all_to_all %x along ["gpu"] on #mesh into %0
      : tensor<2xf32> into tensor<2xf32> -> tensor<2xf32> loc("train.py":7:1)
  return %1 : tensor<2xf32>
}

// The argument is the number of the rank.
func.func @one_stays_away(%rank: tensor<2xi32>) -> tensor<2xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %r = tensor.extract %rank[%c0] : tensor<2xi32>
  %isFirst = arith.cmpi eq, %r, %zero : i32
  %x = arith.constant dense<0.0> : tensor<2xf32>
  %y = scf.if %isFirst -> tensor<2xf32> {
    %0 = func.call @exchange(%x) : (tensor<2xf32>) -> tensor<2xf32>
    scf.yield %0 : tensor<2xf32>
  } else {
    scf.yield %x : tensor<2xf32>
  }
  return %y : tensor<2xf32>
}

func.func @sizes_differ(%rank: tensor<2xi32>) -> tensor<2xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %r = tensor.extract %rank[%c0] : tensor<2xi32>
  %isFirst = arith.cmpi eq, %r, %zero : i32
  %x = arith.constant dense<0.0> : tensor<2xf32>
  %y = scf.if %isFirst -> tensor<2xf32> {
    %0 = tensor.empty() : tensor<2xf32>
    %1 = zero.all_to_all %x along ["gpu"] on #mesh into %0
        : tensor<2xf32> into tensor<2xf32> -> tensor<2xf32> loc("train.py":8:1)
    scf.yield %1 : tensor<2xf32>
  } else {
    %0 = arith.constant dense<0.0> : tensor<2x2xf32>
    %1 = tensor.empty() : tensor<2x2xf32>
    %2 = zero.all_to_all %0 along ["gpu"] on #mesh into %1
        : tensor<2x2xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
        loc("train.py":9:1)
    %3 = tensor.extract_slice %2[0, 0][1, 2][1, 1]
        : tensor<2x2xf32> to tensor<2xf32>
    scf.yield %3 : tensor<2xf32>
  }
  return %y : tensor<2xf32>
}

// Some seconds of work before rank 1 arrives.
func.func @one_is_late(%rank: tensor<2xi32>) -> tensor<2xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rounds = arith.constant 600000000 : index
  %r = tensor.extract %rank[%c0] : tensor<2xi32>
  %late = arith.index_cast %r : i32 to index
  %end = arith.muli %late, %rounds : index
  %seed = arith.constant 1.0 : f32
  %step = arith.constant 0.999 : f32
  %sum = scf.for %i = %c0 to %end step %c1 iter_args(%s = %seed) -> f32 {
    %0 = arith.mulf %s, %step : f32
    %1 = arith.addf %0, %step : f32
    scf.yield %1 : f32
  }
  %x = tensor.from_elements %sum, %sum : tensor<2xf32>
  %y = func.call @exchange(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
