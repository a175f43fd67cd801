# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit configuration of the GoogleTest binaries: everything named *Tests."""

import lit.formats

config.name = "zpp-unit"
# A collective that hangs must fail the test, not the run.
config.test_format = lit.formats.GoogleTest(".", "Tests", run_under="timeout 300")
config.suffixes = []
config.test_source_root = config.unittests_dir
config.test_exec_root = config.unittests_dir
