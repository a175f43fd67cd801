# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives of one kind, type and length, compiled to host functions.

FSDP2 gathers the weights of a module, and scatters their gradients, in one flat
buffer. Such a bucket becomes a module of the zero dialect with one collective,
which zpp-opt and zpp-bundle compile to a function. The result is kept on disk,
by its content, for other processes and later runs.
"""

import atexit
import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import math
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping

from zpp._bundle import MANIFEST, Bundle, read_bundle, read_file, seal, unseal
from zpp._bundle import write_folder
from zpp._compiler import (find_bundler, find_compiler, report_entries,
                           rewrite_text)
from zpp._options import Options, Tuning
from zpp._torch_options import TorchOptions
from zpp._warn import warn

_REPORT = "bucket.json"
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A collective over all ranks of a group."""

    #: "all_gather", "reduce_scatter" or "all_reduce".
    kind: str
    #: "f32", "bf16" or "f16".
    type: str
    #: Elements of one rank's slice; of an all_reduce all.
    elements: int
    #: The mesh of the group: (("node", 2), ("gpu", 4)).
    tiers: tuple[tuple[str, int], ...]
    #: Whether a reduction is a mean.
    is_mean: bool = False
    #: The tiers of the hop of a scatter, if it is not all: the innermost ones,
    #: or the outermost ones, of the result of the former.
    along: tuple[str, ...] = ()
    #: The format of a gather that sends differences to what is held, which it
    #: updates; empty if it sends whole values.
    difference: str = ""
    #: The elements that share a scale in it.
    block: int = 0

    def text(self, sent: Mapping[str, int] | None = None) -> str:
        """The module. `sent` has the bytes that a rank sends over each tier if
        nothing is rewritten. Without it the compiler cannot report the rewrite.
        """
        names = ", ".join(f'"{name}"' for name, _ in self.tiers)
        sizes = ", ".join(str(size) for _, size in self.tiers)
        mesh = ", ".join(f'"{name}" = {size}' for name, size in self.tiers)
        group = ",".join(name for name, _ in self.tiers)
        whole = self.elements
        if self.kind != "all_reduce":
            whole *= math.prod(size for _, size in self.tiers)
        part = f"tensor<{self.elements}x{self.type}>"
        full = f"tensor<{whole}x{self.type}>"
        if self.kind == "all_gather":
            operation, role, phase = "all_gather", "weight", "forward"
            source, result, held, given = part, full, "!part", "!whole"
        else:
            operation = f"{self.kind} {'mean' if self.is_mean else 'sum'}"
            role, phase = "gradient", "backward"
            source, result, held, given = full, part, "!whole", "!part"
        types = f"{held} to {given}"
        if self.kind == "all_reduce":
            result, given, types = full, held, held
        before = ", ".join(str(bytes_) for bytes_ in (sent or {}).values())
        origin = (f'zpp.origin = {{id = 0 : i64, kind = "{self.kind}", '
                  f'role = "{role}", phase = "{phase}", group = "{group}", '
                  f'trips = 1 : i64, before = [{before}]}}')
        # The text of errors and traces, regardless of where it was compiled.
        loc = f'loc("{role}s of {self.elements} {self.type}")'
        if self.along:
            return self._hop_text(mesh, names, origin, loc)
        if self.difference:
            return self._difference_text(mesh, names, sizes, origin, loc)
        return f"""\
#mesh = #zero.mesh<{mesh}>
!part = !zero.shard<{whole}x{self.type}, dim 0 = ({names}) on #mesh>
!whole = !zero.shard<{whole}x{self.type}, dim 0 = ({sizes}) on #mesh>
func.func @main(%source: {source}) -> {result} {{
  %0 = zero.from_local %source : {source} to {held} {loc}
  %1 = zero.{operation} %0 along [{names}] {{{origin}}} : {types} {loc}
  %2 = zero.to_local %1 : {given} to {result} {loc}
  return %2 : {result} {loc}
}} {loc}
"""

    def _hop_text(self, mesh: str, names: str, origin: str, loc: str) -> str:
        """The module of the inner or the outer hop of a scatter."""
        whole = self.elements * math.prod(size for _, size in self.tiers)
        is_outer = self.along[0] == self.tiers[0][0]
        inner = [name for name, _ in self.tiers
                 if (name in self.along) != is_outer]
        between = ", ".join(f'"{name}"' if name in inner else str(size)
                            for name, size in self.tiers)
        sizes = ", ".join(str(size) for _, size in self.tiers)
        middle = self.elements * math.prod(
            size for name, size in self.tiers if name not in inner)
        before, after = (middle, self.elements) if is_outer else (whole, middle)
        factors = (between, names) if is_outer else (sizes, between)
        along = ", ".join(f'"{name}"' for name in self.along)
        source, result = (f"tensor<{count}x{self.type}>"
                          for count in (before, after))
        held, given = (f"!zero.shard<{whole}x{self.type}, dim 0 = ({parts}) on "
                       f"#mesh>" for parts in factors)
        return f"""\
#mesh = #zero.mesh<{mesh}>
func.func @main(%source: {source}) -> {result} {{
  %0 = zero.from_local %source : {source} to {held} {loc}
  %1 = zero.reduce_scatter sum %0 along [{along}] {{{origin}}} : {held} to {given} {loc}
  %2 = zero.to_local %1 : {given} to {result} {loc}
  return %2 : {result} {loc}
}} {loc}
"""

    def _difference_text(self, mesh: str, names: str, sizes: str, origin: str,
                         loc: str) -> str:
        """The module of a gather of differences. What this rank's slice was is
        a part of what is held; the result may take the place of the latter."""
        whole = self.elements * math.prod(size for _, size in self.tiers)
        part = f"tensor<{self.elements}x{self.type}>"
        full = f"tensor<{whole}x{self.type}>"
        quant = f"#zero.quant<{self.difference}, block = {self.block}>"
        return f"""\
#mesh = #zero.mesh<{mesh}>
!part = !zero.shard<{whole}x{self.type}, dim 0 = ({names}) on #mesh>
!sent = !zero.shard<{whole}x{self.type}, dim 0 = ({names}) on #mesh, {quant}>
!arrived = !zero.shard<{whole}x{self.type}, dim 0 = ({sizes}) on #mesh, {quant}>
!whole = !zero.shard<{whole}x{self.type}, dim 0 = ({sizes}) on #mesh>
func.func @main(%source: {part}, %own: {part}, %held: {full}) -> {full} {{
  %0 = zero.from_local %source : {part} to !part {loc}
  %1 = zero.from_local %own : {part} to !part {loc}
  %2 = zero.encode %0 minus %1 : !part to !sent {loc}
  %3 = zero.all_gather %2 along [{names}] {{{origin}}} : !sent to !arrived {loc}
  %4 = zero.from_local %held : {full} to !whole {loc}
  %5 = zero.decode %3 plus %4 : !arrived to !whole {loc}
  %6 = zero.to_local %5 : !whole to {full} {loc}
  return %6 : {full} {loc}
}} {loc}
"""

    def options(self, options: TorchOptions) -> Options:
        """The options with which the bucket is compiled."""
        is_gather = self.kind == "all_gather"
        names = [name for name, _ in self.tiers]
        links = [link for link in str(options.links or "").split(",")
                 if link.partition("=")[0] in names]
        return Options(
            mesh=dict(self.tiers),
            weights=format_of(options.weights) if is_gather else "none",
            gradients="none" if is_gather else options.gradients,
            reduced=options.reduced if self.kind == "all_reduce" else "none",
            secondary="none", regather=False, links=",".join(links) or None,
            tuning=Tuning(**dataclasses.asdict(options.tuning),
                          coalesce_bytes=0))


#: The end of `Options.weights` for differences.
_DELTA = ":delta"


def sends_differences(options: TorchOptions) -> bool:
    return (options.weights or "").endswith(_DELTA)


def format_of(weights: str | None) -> str | None:
    """The format of the values in `Options.weights`."""
    return weights and weights.removesuffix(_DELTA)


#: The phases of zeropp after its decisions about weights and gradients. What a
#: bucket of differences sends is decided already.
_LATER_PHASES = ("zeropp-decompose", "zeropp-schedule", "zeropp-leave")


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled bucket."""

    #: The reason why it is left to PyTorch; empty if there is a function.
    reason: str
    #: The library with the function, in the cache.
    library: pathlib.Path
    #: Its name, and the bytes of its inputs, its output and its workspace.
    function: str = ""
    input_bytes: tuple[int, ...] = ()
    output_bytes: int = 0
    workspace_bytes: int = 0
    #: Bytes that a rank sends over each tier.
    sent: Mapping[str, int] = dataclasses.field(default_factory=dict)


#: Bytes of an element of each type.
_ITEM_BYTES = {"f32": 4, "bf16": 2, "f16": 2}


def sent_as_it_is(bucket: Bucket) -> dict[str, int]:
    """Bytes that a rank sends over each tier if nothing is rewritten."""
    if bucket.kind == "all_reduce":
        return _sent(bucket)
    # Of a gather and a scatter, each byte as often as any other.
    one = Bucket(bucket.kind, "f32", 1, bucket.tiers, along=bucket.along)
    return {tier: bytes_ * bucket.elements * _ITEM_BYTES[bucket.type] // 4
            for tier, bytes_ in _sent(one).items()}


@functools.cache
def _sent(bucket: Bucket) -> dict[str, int]:
    """Counts by the compiler, or finds what it counted in an earlier run."""
    text, options = bucket.text(), Options(mesh=dict(bucket.tiers))
    path = cache_folder() / f"{_key(text, options)}.json"
    with contextlib.suppress(OSError, ValueError):
        return unseal(path.name, path.read_bytes(), _VERSION)["sent"]
    report = report_entries(text, options)
    sent = {tier: report["total"]["after"][tier] for tier, _ in bucket.tiers}
    # Whoever reads it finds all of it or nothing. Without it, the compiler
    # counts again.
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(seal({"version": _VERSION, "sent": sent}, {}))
        os.replace(file.name, path)
    return sent


def _key(text: str, options: Options) -> str:
    """The name of a result in the cache."""
    # The time limit does not change the result.
    given = dataclasses.asdict(options.replace(
        tuning=options.tuning.replace(compile_timeout=None)))
    return hashlib.sha256(json.dumps(
        [_VERSION, text, given, _compiler_digest()]).encode()).hexdigest()


@functools.cache
def compile_bucket(bucket: Bucket, options: Options) -> Compiled:
    """Compiles a bucket, or finds the result of an earlier run.

    Args:
      options: the result of `Bucket.options`.

    Raises:
      CompileError: with the compiler's message.
    """
    key = _key(bucket.text(), options)
    return _compile_into(cache_folder() / f"{key}.zpp", bucket, options)


def _compile_into(folder: pathlib.Path, bucket: Bucket, options: Options
                  ) -> Compiled:
    """Finds a result in a folder of the cache, or writes it there."""
    # Compile again if files are damaged or missing. The folder is zpp's own:
    # whatever is in it may go.
    unusable = FileNotFoundError, NotADirectoryError, ValueError
    # Without a lock, for which the processes of a host would wait.
    with contextlib.suppress(*unusable):
        return _read(folder)
    with _locked(folder.with_suffix(".lock")):
        with contextlib.suppress(*unusable):
            return _read(folder)
        reason, files = _rewrite(bucket, options)
        _remove(folder)
        report = seal({"version": _VERSION, "reason": reason}, {})
        write_folder(folder, {**files, _REPORT: report}, (MANIFEST, _REPORT))
        return _read(folder)


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _rewrite(bucket: Bucket, options: Options
             ) -> tuple[str, Mapping[str, bytes]]:
    """The reason why a bucket is left to PyTorch, or the files of its bundle."""
    def rewrite(bucket, target):
        result = rewrite_text(
            bucket.text(sent_as_it_is(bucket)), options, target,
            phases=_LATER_PHASES if bucket.difference else ("zeropp",))
        (entry,) = result.report["collectives"]
        return entry["reason"], result.bundle

    if bucket.is_mean or bucket.difference:
        # The compiler has no op for a mean that it leaves alone. A difference
        # is sent where it would quantize whole values.
        reason, _ = rewrite(dataclasses.replace(
            bucket, is_mean=False, difference=""), "portable")
        if reason:
            return reason, {}
    reason, bundle = rewrite(bucket, "cuda")
    return reason, {} if reason else bundle.files


def cache_folder() -> pathlib.Path:
    """The folder for compiled buckets: `zpp` in the user's cache folder, or with
    a warning, where that cannot be written to, one of this process."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _make_cache_folder(pathlib.Path(base).expanduser() / "zpp")


@functools.cache
def _make_cache_folder(folder: pathlib.Path) -> pathlib.Path:
    try:
        # Its files are loaded as code.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return folder
    except OSError as error:
        warn(f"expected a cache folder '{folder}' to write to, but got: "
             f"{error.strerror}; compiling into a temporary folder, again in "
             f"each run; set XDG_CACHE_HOME to a folder that can be written to")
    private = tempfile.mkdtemp(prefix="zpp-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return pathlib.Path(private)


def _read(folder: pathlib.Path) -> Compiled:
    reason = unseal(_REPORT, read_file(folder, _REPORT), _VERSION)["reason"]
    library = folder / "libstep.so"
    if reason:
        return Compiled(reason, library)
    bundle: Bundle = read_bundle(folder)
    (function,) = bundle.manifest["functions"]
    (output_bytes,) = function["outputs"]
    return Compiled("", library, function["name"], tuple(function["inputs"]),
                    output_bytes, function["workspace"], function["bytes"])


def tool_versions() -> dict[str, str]:
    """Returns what ranks must agree on of the tools that compile."""
    return {"compiler": _compiler_digest()[:16]}


@functools.cache
def _compiler_digest() -> str:
    content = hashlib.sha256()
    for program in (find_compiler(), find_bundler()):
        content.update(pathlib.Path(program).read_bytes())
    return content.hexdigest()


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Among the processes of a host, one compiles and the others wait. Where the
    file system has no locks, each compiles: what they write is the same."""
    with path.open("w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
