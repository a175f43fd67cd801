// Missing resources are errors and leave no output.

// A sanitizer has an allocator and address space of its own.
// UNSUPPORTED: sanitizer

// RUN: rm -f %t.0.npy
// RUN: not zpp-run %s --mesh=gpu:2 --entry=large --output=%t. 2>&1 | FileCheck %s --check-prefix=MEMORY
// RUN: not ls %t.0.npy 2> /dev/null
// MEMORY: zpp-run: error: out of memory: arguments and results of 2 ranks have 1600000000000000 bytes
// MEMORY-NOT: {{.}}

// RUN: not sh -c 'ulimit -v 4000000; exec zpp-run %s --mesh=gpu:3000 --output=%t.' 2>&1 | FileCheck %s --check-prefix=THREADS
// RUN: not ls %t.0.npy 2> /dev/null
// THREADS: zpp-run: error: expected a thread for each of 3000 ranks, but got {{[0-9]+: .}}

func.func @large(%x: tensor<100000000000000xf32>) -> tensor<100000000000000xf32> {
  return %x : tensor<100000000000000xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
