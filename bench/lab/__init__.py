# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts that experiments share: the model and its exported steps, two nodes on
one host, processes of ranks, and tables."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
#: Folders with the example model and with the package of the source tree.
for _folder in (ROOT / "examples", ROOT / "python"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))
