// If a result cannot be written, the error names the cause. OutputFileTest
// checks that no part of a file is left.

// RUN: rm -rf %t && mkdir %t && ln -s /dev/full %t/0.npy
// RUN: not zpp-run %s --mesh=gpu:2 --output=%t/ 2>&1 | FileCheck %s --check-prefix=DISK
// DISK: zpp-run: error: {{.*}}/0.npy: No space left on device
// RUN: ls %t | count 1
// RUN: rm %t/0.npy

// RUN: not zpp-run %s --mesh=gpu:2 --output=%t/none/ 2>&1 | FileCheck %s --check-prefix=FOLDER
// FOLDER: zpp-run: error: {{.*}}/none/0.npy: No such file or directory

// RUN: zpp-run %s --mesh=gpu:2 --output=%t/
// RUN: ls %t | count 1
// RUN: zpp-run %s --mesh=gpu:2 --input=%t/0.npy

func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
