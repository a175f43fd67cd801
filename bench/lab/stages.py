# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command line of an experiment on real text, which is exported, run and
shown on machines and at times of its own."""

import argparse
import math
import pathlib


def parser(description: str, needs_stage: bool = True) -> argparse.ArgumentParser:
    """--export, --run or --table with the folder of the experiment, and what all
    such experiments may be told."""
    result = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawTextHelpFormatter)
    stage = result.add_mutually_exclusive_group(required=needs_stage)
    stage.add_argument("--export", type=pathlib.Path, metavar="DIR")
    stage.add_argument("--run", type=pathlib.Path, metavar="DIR")
    stage.add_argument("--table", type=pathlib.Path, metavar="DIR")
    result.add_argument("--text", type=pathlib.Path, nargs="+", default=[],
                        metavar="FILE", help="packages, folders or files")
    result.add_argument("--tiny", action="store_true",
                        help="export a small model for a few steps")
    result.add_argument("--seconds", type=float, default=math.inf,
                        help="end after so many; called again, it goes on")
    return result
