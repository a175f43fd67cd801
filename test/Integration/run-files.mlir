// The errors of zpp-run for .npy files that it cannot read.

// DEFINE: %{fails} = not zpp-run %s --mesh=gpu:2 --input=%t.npy 2>&1 | FileCheck %s
// DEFINE: %{file} = %S/Inputs/rank.npy

// RUN: head -c 9 %{file} > %t.npy && %{fails} --check-prefix=PREFIX
// PREFIX: zpp-run: error: {{.*}}.npy: expected a header, but the file ends after 9 bytes
// RUN: head -c 10 %{file} > %t.npy && %{fails} --check-prefix=NO-HEADER
// NO-HEADER: {{.*}}.npy: expected a header of 118 bytes, but got 0
// RUN: head -c 60 %{file} > %t.npy && %{fails} --check-prefix=HEADER
// HEADER: {{.*}}.npy: expected a header of 118 bytes, but got 50
// RUN: head -c 140 %{file} > %t.npy && %{fails} --check-prefix=SHORT
// SHORT: {{.*}}.npy: expected 16 bytes of elements, but got 12
// RUN: (cat %{file}; printf abc) > %t.npy && %{fails} --check-prefix=LONG
// LONG: {{.*}}.npy: expected 16 bytes of elements, but got 19
// RUN: (printf '\223NUMPY\002'; tail -c +8 %{file}) > %t.npy && %{fails} --check-prefix=VERSION
// VERSION: {{.*}}.npy: expected a .npy file of version 1, but got version 2

// RUN: env LC_ALL=C sed 's/descr/dtype/' %{file} > %t.npy && %{fails} --check-prefix=DESCR
// DESCR: {{.*}}.npy: expected 'descr' in the header, but got none
// RUN: env LC_ALL=C sed 's/fortran_order/c_order______/' %{file} > %t.npy && %{fails} --check-prefix=KEY
// KEY: {{.*}}.npy: expected 'fortran_order' in the header, but got none
// RUN: env LC_ALL=C sed 's/False/True /' %{file} > %t.npy && %{fails} --check-prefix=ORDER
// ORDER: {{.*}}.npy: expected row-major order, but got column-major order
// RUN: env LC_ALL=C sed 's/False/Maybe/' %{file} > %t.npy && %{fails} --check-prefix=NO-ORDER
// NO-ORDER: {{.*}}.npy: expected False as 'fortran_order', but got 'Maybe'
// RUN: env LC_ALL=C sed 's/<i4/|V0/' %{file} > %t.npy && %{fails} --check-prefix=EMPTY
// EMPTY: {{.*}}.npy: expected a plain element type, but got '|V0'
// RUN: env LC_ALL=C sed "s/'<i4'/[('x'/" %{file} > %t.npy && %{fails} --check-prefix=STRUCT
// STRUCT: {{.*}}.npy: expected a plain element type, but got [('x'
// RUN: env LC_ALL=C sed 's/(2, 2), }/(2, 2,  }/' %{file} > %t.npy && %{fails} --check-prefix=TUPLE
// TUPLE: {{.*}}.npy: expected (SIZE, ...) as 'shape', but got '(2, 2,  }'
// RUN: env LC_ALL=C sed 's/(2, 2), }/(2, x), }/' %{file} > %t.npy && %{fails} --check-prefix=SIZE
// SIZE: {{.*}}.npy: expected sizes, but got 'x'

func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  return %x : tensor<2xi32>
}
