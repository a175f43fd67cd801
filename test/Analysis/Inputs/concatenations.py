# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a step that gathers a weight after N concatenations with itself."""

import sys

count = int(sys.argv[1])
print('module { "func.func"() ({ ^bb0(%w0: tensor<?x8xf32>):')
for i in range(count):
    print(
        f'  %w{i + 1} = "stablehlo.concatenate"(%w{i}, %w{i}) {{dimension = 0 : i64}}'
        " : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>"
    )
print(
    f'  %slice = "stablehlo.slice"(%w{count}) {{start_indices = array<i64: 0, 0>,'
    " limit_indices = array<i64: 8, 8>, strides = array<i64: 1, 1>}"
    " : (tensor<?x8xf32>) -> tensor<8x8xf32>\n"
    '  %whole = "stablehlo.all_gather"(%slice) {all_gather_dim = 0 : i64,'
    " replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>,"
    " channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,"
    " use_global_device_ids} : (tensor<8x8xf32>) -> tensor<64x8xf32>\n"
    '  "func.return"() : () -> () })'
    " {function_type = (tensor<?x8xf32>) -> (),"
    ' sym_name = "main", sym_visibility = "public"} : () -> () }'
)
