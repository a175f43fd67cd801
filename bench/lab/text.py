# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Real text to train on: bytes of pages, or files of tokens as public speedruns have
them."""

import gzip
import hashlib
import io
import json
import lzma
import pathlib
import subprocess
import sys
import tarfile

import numpy as np

#: Bytes of a piece of the text; each 20th piece is for validation.
PIECE, VALIDATION = 4096, 20
#: The first words of a file of tokens of a public speedrun. Its header has 256 words of four bytes,
#: the third says how many tokens of two bytes follow.
_MAGIC, _VERSION, _HEADER = 20240520, 1, 1024
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


def name_files(folder: pathlib.Path, paths: list[pathlib.Path]):
    """Writes down for `Tokens` which files of tokens an experiment reads, which stay
    where they are. Exits if one is no such file."""
    for path in paths:
        open_tokens(path)
    if not any(map(_is_held_out, paths)) or all(map(_is_held_out, paths)):
        sys.exit('expected files of tokens with "val" in their name and others, but got '
                 + ", ".join(path.name for path in paths))
    (folder / "tokens.json").write_text(json.dumps(
        [str(path.resolve()) for path in paths]))


def _is_held_out(path: pathlib.Path) -> bool:
    """Who has cut the tokens into files has named those that are held out."""
    return "val" in path.name


def open_tokens(path: pathlib.Path) -> np.ndarray:
    """Maps a file of tokens into memory. Exits if it is none."""
    with path.open("rb") as file:
        content = file.read(_HEADER)
    header = np.frombuffer(content[:len(content) // 4 * 4], np.dtype("<i4"))
    if len(content) < _HEADER or list(header[:2]) != [_MAGIC, _VERSION]:
        sys.exit(f"{path}: expected a file of tokens, of which {_HEADER} bytes begin with "
                 f"{_MAGIC} and {_VERSION}, but got {len(content)} that begin with "
                 f"{list(map(int, header[:2]))}")
    tokens = np.memmap(path, np.dtype("<u2"), "r", _HEADER)
    if len(tokens) != header[2]:
        sys.exit(f"{path}: expected {header[2]} tokens, but got {len(tokens)}")
    return tokens


def vocabulary(paths: list[pathlib.Path]) -> int:
    """Counts the tokens that files have, as a multiple of 128: 50304 of GPT-2's. Bytes
    are 256."""
    largest = max((int(open_tokens(path).max()) for path in paths), default=255)
    return (largest // 128 + 1) * 128


class Tokens:
    """Windows of the text in the folder of an experiment.

    Args:
      context: tokens that a model sees at once; windows have one more.
      sequences: windows of a batch.
    """

    def __init__(self, folder: pathlib.Path, context: int, sequences: int):
        self.length, self.sequences = context + 1, sequences
        if (folder / "tokens.json").exists():
            files = list(map(pathlib.Path, json.loads(
                (folder / "tokens.json").read_text())))
            self.train, self.held_out = (
                [open_tokens(file) for file in files if _is_held_out(file) == is_held]
                for is_held in (False, True))
            return
        text = np.frombuffer(
            lzma.decompress((folder / "text.xz").read_bytes()), np.uint8)
        pieces = text[:len(text) // PIECE * PIECE].reshape(-1, PIECE)
        held_out = np.arange(len(pieces)) % VALIDATION == VALIDATION - 1
        self.train = [pieces[~held_out].reshape(-1)]
        self.held_out = [pieces[held_out].reshape(-1)]

    def batch(self, seed: int, step: int) -> np.ndarray:
        """The same for every row: the seed is that of the data's order."""
        return self._windows(self.train, np.random.default_rng([seed, step]))

    def validation(self, number: int) -> np.ndarray:
        return self._windows(self.held_out,
                             np.random.default_rng([2**31, number]))

    def _windows(self, files: list[np.ndarray], rng) -> np.ndarray:
        """Takes windows from all places of all files alike."""
        places = [len(file) - self.length for file in files]
        if min(places) < 1:
            sys.exit(f"expected more than {self.length} tokens in each file, but got "
                     f"{min(map(len, files))}")
        ends = np.cumsum(places)
        starts = rng.integers(0, ends[-1], self.sequences)
        of = np.searchsorted(ends, starts, "right")
        starts -= np.concatenate([[0], ends])[of]
        return np.stack([files[file][start:start + self.length] for file, start in zip(
            of, starts, strict=True)]).astype(np.int32)
