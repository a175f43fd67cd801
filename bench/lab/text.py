# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Real text to train on. Tokens are bytes."""

import gzip
import hashlib
import io
import lzma
import pathlib
import subprocess
import sys
import tarfile

import numpy as np

#: Bytes of a piece of the text; each 20th piece is for validation.
PIECE, VALIDATION = 4096, 20
#: Files of packages and folders that nobody wrote to be read.
SKIPPED = (".html", ".js", ".css", ".svg", ".png", ".gif", ".woff", ".woff2",
           ".dot", ".inv", ".json", ".py")


def read(paths: list[pathlib.Path]) -> bytes:
    """All pages of packages, folders and files, each once."""
    pages, seen = [], set()
    for path in paths:
        for name, content in sorted(_find_pages(path)):
            if name.endswith(".gz"):
                content = gzip.decompress(content)
            digest = hashlib.sha256(content).digest()
            try:
                content.decode()
            except UnicodeDecodeError:
                continue
            if digest not in seen:
                seen.add(digest)
                pages.append(content)
    return b"\n".join(pages)


def _find_pages(path: pathlib.Path):
    def is_page(name):
        return (not name.removesuffix(".gz").endswith(SKIPPED)
                and "changelog" not in name)

    if path.is_dir():
        for file in path.rglob("*"):
            if file.is_file() and is_page(file.name):
                yield str(file), file.read_bytes()
    elif path.suffix == ".deb":
        archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", path],
                                 stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            for member in members:
                if member.isfile() and is_page(member.name):
                    yield member.name, members.extractfile(member).read()
    else:
        yield path.name, path.read_bytes()


def write(folder: pathlib.Path, pages: bytes):
    """Puts the text into the folder of an experiment, where `Tokens` finds it.
    Exits if it is too short for a piece to be held out."""
    if len(pages) < PIECE * VALIDATION:
        sys.exit(f"expected at least {PIECE * VALIDATION} bytes of text, but got "
                 f"{len(pages)}")
    (folder / "text.xz").write_bytes(lzma.compress(pages))


class Tokens:
    """Windows of the text in the folder of an experiment.

    Args:
      context: tokens that a model sees at once; windows have one more.
      sequences: windows of a batch.
    """

    def __init__(self, folder: pathlib.Path, context: int, sequences: int):
        text = np.frombuffer(
            lzma.decompress((folder / "text.xz").read_bytes()), np.uint8)
        self.length, self.sequences = context + 1, sequences
        pieces = text[:len(text) // PIECE * PIECE].reshape(-1, PIECE)
        held_out = np.arange(len(pieces)) % VALIDATION == VALIDATION - 1
        self.train = pieces[~held_out].reshape(-1)
        self.held_out = pieces[held_out].reshape(-1)

    def batch(self, seed: int, step: int) -> np.ndarray:
        """The same for every row: the seed is that of the data's order."""
        return self._windows(self.train, np.random.default_rng([seed, step]))

    def validation(self, number: int) -> np.ndarray:
        return self._windows(self.held_out,
                             np.random.default_rng([2**31, number]))

    def _windows(self, text, rng) -> np.ndarray:
        starts = rng.integers(0, len(text) - self.length, self.sequences)
        return text[starts[:, None] + np.arange(self.length)].astype(np.int32)
