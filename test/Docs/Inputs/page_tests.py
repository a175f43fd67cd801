# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the blocks of a page that have a title to files of this name.

page_tests.py PAGE FOLDER
"""

import pathlib
import re
import sys

BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def main() -> None:
    page, folder = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True)
    for name, text in BLOCK.findall(page.read_text()):
        (folder / name).write_text(text)


main()
