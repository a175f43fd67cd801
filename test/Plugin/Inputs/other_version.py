# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes version 1 of a dialect in MLIR bytecode version 2.

other_version.py INPUT OUTPUT
"""

import pathlib
import sys

# A section of versions (7) of one byte, and the number, both as variable-length integers.
ONE, TWO = bytes([7, 3, 3]), bytes([7, 3, 5])

content = pathlib.Path(sys.argv[1]).read_bytes()
if content.count(ONE) != 1:
    sys.exit(f"expected one dialect of version 1, but got {content.count(ONE)}")
pathlib.Path(sys.argv[2]).write_bytes(content.replace(ONE, TWO))
