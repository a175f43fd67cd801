#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the platform that a wheel with the binaries in a folder is for.

The versions of the symbols that they need from the system decide it, as the
policies of manylinux (PEP 600) do: "manylinux_2_34_x86_64" installs where glibc
is 2.34 or newer.
"""

import argparse
import pathlib
import platform
import struct
import sys
from collections.abc import Iterable, Iterator

Version = tuple[int, ...]
#: The policies, and the newest symbols that each allows.
POLICIES = {
    "manylinux_2_28": {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24),
                       "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)},
    "manylinux_2_31": {"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28),
                       "CXXABI": (1, 3, 12), "GCC": (7, 0, 0)},
    "manylinux_2_34": {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29),
                       "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)},
    "manylinux_2_35": {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30),
                       "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)},
    "manylinux_2_39": {"GLIBC": (2, 39), "GLIBCXX": (3, 4, 33),
                       "CXXABI": (1, 3, 15), "GCC": (14, 0, 0)},
}
SHT_DYNSYM, SHT_GNU_VERNEED = 11, 0x6FFFFFFE


def find_binaries(folder: pathlib.Path) -> list[pathlib.Path]:
    """The programs and libraries in a folder and those below."""
    def begins(path: pathlib.Path) -> bytes:
        with path.open("rb") as file:
            return file.read(4)
    return sorted(path for path in folder.rglob("*")
                  if path.is_file() and begins(path) == b"\x7fELF")


def _sections(data: bytes) -> list[tuple[int, int, int, int]]:
    """Type, offset, size and link of each section of a 64-bit ELF file."""
    if data[4:6] != b"\x02\x01":
        raise ValueError("expected a 64-bit little-endian ELF file")
    (begin,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    headers = (struct.unpack_from("<IIQQQQII", data, begin + i * size)
               for i in range(count))
    return [(header[1], header[4], header[5], header[6]) for header in headers]


def _text(data: bytes, begin: int) -> str:
    return data[begin:data.index(b"\0", begin)].decode()


def read_undefined(path: pathlib.Path) -> Iterator[str]:
    """The names of the symbols that a binary takes from others."""
    data = path.read_bytes()
    sections = _sections(data)
    for kind, position, size, link in sections:
        if kind != SHT_DYNSYM:
            continue
        for name, _, _, section, _, _ in struct.iter_unpack(
                "<IBBHQQ", data[position:position + size]):
            if section == 0 and name:
                yield _text(data, sections[link][1] + name)


def read_needs(path: pathlib.Path) -> Iterator[str]:
    """The versions of symbols that a binary needs: "GLIBC_2.34"."""
    data = path.read_bytes()
    sections = _sections(data)
    for kind, position, _, link in sections:
        if kind != SHT_GNU_VERNEED:
            continue
        strings = sections[link][1]
        while True:
            _, count, _, auxiliary, following = struct.unpack_from(
                "<HHIII", data, position)
            entry = position + auxiliary
            for _ in range(count):
                _, _, _, name, skip = struct.unpack_from("<IHHII", data, entry)
                yield _text(data, strings + name)
                entry += skip
            if not following:
                break
            position += following


def newest(needs: Iterable[str]) -> dict[str, Version]:
    """The newest version of each kind of symbol: {"GLIBC": (2, 34)}."""
    result: dict[str, Version] = {}
    for need in needs:
        kind, _, number = need.rpartition("_")
        if number.replace(".", "").isdecimal():
            version = tuple(map(int, number.split(".")))
            result[kind] = max(result.get(kind, ()), version)
    return result


def find_policy(needs: dict[str, Version]) -> str:
    """The oldest policy that allows the symbols."""
    for name, limits in POLICIES.items():
        if all(needs.get(kind, ()) <= limit for kind, limit in limits.items()):
            return name
    found = ", ".join(f"{kind}_{'.'.join(map(str, version))}"
                      for kind, version in sorted(needs.items()))
    raise ValueError(f"expected symbols that {[*POLICIES][-1]} allows, but got "
                     f"{found}")


def name_platform(folder: pathlib.Path) -> str:
    """The platform of a wheel with the binaries in a folder."""
    binaries = find_binaries(folder)
    if not binaries:
        raise ValueError(f"expected binaries in '{folder}', but got none")
    needs = newest(need for path in binaries for need in read_needs(path))
    return f"{find_policy(needs)}_{platform.machine()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    try:
        print(name_platform(parser.parse_args().folder))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
