# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`zpp plan`."""

import argparse
import json
import pathlib
from collections.abc import Callable

from zpp._files import write_file
from zpp._options import Options
from zpp._plan import parse_bytes, parse_seconds
from zpp._rewrite import plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `zpp plan` beside a step and the fields of zpp.Options."""
    parser.add_argument(
        "--device", metavar="NAME", help="a name such as h100, or the peak in 16 "
        "bits and the memory, such as 989tflops,4800gbyte (default: h100)")
    parser.add_argument(
        "--compute", type=_type(parse_seconds), metavar="TIME",
        help="measured compute of the step as it is written, such as 54ms")
    parser.add_argument(
        "--memory-limit", type=_type(parse_bytes), metavar="BYTES",
        help="memory of a device, such as 70GiB, for the best plan that fits")
    parser.add_argument(
        "--limits", action="store_true", help="also predict half, twice and all of "
        "what the fastest plan has in flight")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.svg",
                        help="draw what runs when")
    parser.add_argument("--format", choices=("table", "json"), default="table")


def run(arguments: argparse.Namespace, options: Options, text: str) -> None:
    found = plan(text, options, device=arguments.device,
                 compute=arguments.compute, memory_limit=arguments.memory_limit,
                 limits=arguments.limits)
    if arguments.plot:
        write_file(arguments.plot, found.svg().encode())
    if arguments.format == "json":
        print(json.dumps(found.to_json(), indent=1))
    else:
        print(f"{found.table()}\nbest: {found.why}")


def _type(parse: Callable) -> Callable:
    """For argparse, which otherwise hides the message."""
    def convert(text: str):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return convert
