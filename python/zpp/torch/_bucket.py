# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives of one kind, type and length, compiled to host functions.

FSDP2 gathers the weights of a module, and scatters their gradients, in one flat
buffer. Such a bucket becomes a module of the zero dialect with one collective,
which zpp-opt and zpp-bundle compile to a function. The result is kept on disk,
by its content, for other processes and later runs.
"""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import math
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zpp._bundle import MANIFEST, Bundle, read_bundle, read_file, seal, unseal
from zpp._bundle import write_folder
from zpp._cache import cache_folder
from zpp._compiler import find_bundler, find_compiler, rewrite_text
from zpp._options import Options, Tuning
from zpp._torch_options import TorchOptions

#: Bytes of an element of each type.
_ITEM_BYTES = {"f32": 4, "bf16": 2, "f16": 2}
_REPORT = "bucket.json"
_VERSION = 3


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
    #: Types and elements of what else a gather quantizes in the same message.
    also: tuple[tuple[str, int], ...] = ()
    #: The type and elements of what travels there as it is; none if all is quantized.
    exact: tuple[str, int] | tuple[()] = ()

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """The types in a message, and the elements of each in one rank's slice."""
        exact = (self.exact,) if self.exact else ()
        return (self.type, self.elements), *self.also, *exact

    @property
    def sent(self) -> dict[str, int]:
        """Bytes that a rank sends over each tier if nothing is rewritten."""
        return self._sent(*self.parts)

    def _sent(self, *parts: tuple[str, int]) -> dict[str, int]:
        return sent_bytes(self.kind, [elements * _ITEM_BYTES[dtype]
                                      for dtype, elements in parts],
                          dict(self.tiers), self.along)

    def text(self) -> str:
        """The module."""
        arguments: list[str] = []
        results, body = [], ""
        for number in range(len(self.parts)):
            added, result, lines = self._part_text(number)
            arguments += added
            results.append(result)
            body += lines
        values = ", ".join(f"%result{number}" for number in range(len(results)))
        mesh = ", ".join(f'"{name}" = {size}' for name, size in self.tiers)
        return f"""\
#mesh = #zero.mesh<{mesh}>
func.func @main({", ".join(arguments)}) -> ({", ".join(results)}) {{
{body}  return {values} : {", ".join(results)}
}}
"""

    def _part_text(self, number: int) -> tuple[list[str], str, str]:
        """The arguments, the type of the result and the ops of a part. Of differences,
        what this rank's slice was is a part of what is held; the result may take the
        place of the latter."""
        dtype, elements = self.parts[number]
        role = "weights" if self.kind == "all_gather" else "gradients"
        # The text of errors and traces, regardless of where it was compiled.
        loc = f'loc("{role} of {elements} {dtype}")'
        (given, source), (got, result) = self._ends(dtype, elements)
        op = self.kind
        if op != "all_gather":
            op += " mean" if self.is_mean else " sum"
        along = ", ".join(f'"{name}"' for name in
                          self.along or [name for name, _ in self.tiers])
        is_exact = number > len(self.also)
        origin = self._origin(number, is_exact)
        arguments = [f"%source{number}: {source}"]
        lines = [f"%given{number} = zero.from_local %source{number} : {source} to {given}"]
        of_all = f"%given{number}", given, got
        if self.difference and not is_exact:
            quant = f", #zero.quant<{self.difference}, block = {self.block}>>"
            of_all = f"%sent{number}", given[:-1] + quant, got[:-1] + quant
            arguments += [f"%own{number}: {source}", f"%held{number}: {result}"]
            lines += [
                f"%before{number} = zero.from_local %own{number} : {source} to {given}",
                f"%sent{number} = zero.encode %given{number} minus %before{number} : "
                f"{given} to {of_all[1]}"]
        value, before, after = of_all
        types = before if self.kind == "all_reduce" else f"{before} to {after}"
        lines.append(f"%got{number} = zero.{op} {value} along [{along}] {{{origin}}} : "
                     f"{types}")
        value = f"%got{number}"
        if self.difference and not is_exact:
            value = f"%now{number}"
            lines += [
                f"%old{number} = zero.from_local %held{number} : {result} to {got}",
                f"{value} = zero.decode %got{number} plus %old{number} : {after} to "
                f"{got}"]
        lines.append(f"%result{number} = zero.to_local {value} : {got} to {result}")
        return arguments, result, "".join(f"  {line} {loc}\n" for line in lines)

    def _ends(self, dtype: str, elements: int) -> list[tuple[str, str]]:
        """The types of what goes in and of what comes out: partitioned, and on a device."""
        def end(whole_tiers: Sequence[str], count: int) -> tuple[str, str]:
            factors = ", ".join(str(size) if name in whole_tiers else f'"{name}"'
                                for name, size in self.tiers)
            return (f"!zero.shard<{whole}x{dtype}, dim 0 = ({factors}) on #mesh>",
                    f"tensor<{count}x{dtype}>")

        sizes = dict(self.tiers)
        whole = elements
        if self.kind != "all_reduce":
            whole *= math.prod(sizes.values())
        part, all_ = end((), elements), end(tuple(sizes), whole)
        if self.kind == "all_gather":
            return [part, all_]
        if self.kind == "all_reduce":
            return [all_, all_]
        if not self.along:
            return [all_, part]
        # The inner hop comes first.
        is_outer = self.along[0] == self.tiers[0][0]
        outer = self.along if is_outer else [name for name in sizes
                                             if name not in self.along]
        middle = end(outer, elements * math.prod(sizes[name] for name in outer))
        return [middle, part] if is_outer else [all_, middle]

    def _origin(self, number: int, is_exact: bool) -> str:
        role, phase = (("weight", "forward") if self.kind == "all_gather" else
                       ("gradient", "backward"))
        before = ", ".join(map(str, self._sent(self.parts[number]).values()))
        group = ",".join(name for name, _ in self.tiers)
        floor = ', floor = "none"' if is_exact else ""
        return (f'zpp.origin = {{id = {number} : i64, kind = "{self.kind}", '
                f'role = "{role}", phase = "{phase}", group = "{group}", '
                f'trips = 1 : i64, before = [{before}]{floor}}}')

    def options(self, options: TorchOptions) -> Options:
        """The options with which the bucket is compiled."""
        is_gather = self.kind == "all_gather"
        names = [name for name, _ in self.tiers]
        links = [link for link in str(options.links or "").split(",")
                 if link.partition("=")[0] in names]
        tuning = dataclasses.asdict(options.tuning)
        if is_gather:
            # Only gradients are rotated: it would be a warning.
            tuning["rotate"] = None
        return Options(
            mesh=dict(self.tiers),
            weights=format_of(options.weights) if is_gather else "none",
            gradients="none" if is_gather else options.gradients,
            reduced=options.reduced if self.kind == "all_reduce" else "none",
            secondary="none", regather=False, links=",".join(links) or None,
            # There is no loop here; it has exact gradients take the same hops.
            accumulate=names[-1] if self.exact and not is_gather else None,
            tuning=Tuning(**tuning,
                          coalesce_bytes=_ONE_MESSAGE if len(self.parts) > 1 else 0))


#: More bytes than a buffer has.
_ONE_MESSAGE = 1 << 62
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
    #: Its entry in bundle.json: the "name"; the bytes of its "inputs", its "outputs" and
    #: its "workspace"; the places of the bucket's "arguments" that are its inputs, and of
    #: the "results" that are its outputs; the "bytes" that a rank sends over each tier.
    function: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def sent(self) -> Mapping[str, int]:
        return self.function.get("bytes", {})


def sent_bytes(kind: str, slices: Sequence[int], tiers: Mapping[str, int],
               along: Sequence[str] = ()) -> dict[str, int]:
    """Bytes that a rank sends over each tier if nothing is rewritten, as getSentBytes of
    CollectiveCost.h counts them.

    Args:
      slices: the bytes of one rank's slice of each tensor; of an all_reduce all.
      along: as `Bucket` has it.
    """
    sizes = {tier: size if not along or tier in along else 1
             for tier, size in tiers.items()}
    count = math.prod(sizes.values())
    if kind == "all_reduce":
        # A scatter and a gather of padded parts.
        slices = [2 * -(-each // count) for each in slices]
    slower = sum(slices)
    if along and along[0] != next(iter(tiers)):
        # The outer hop cuts what the inner one leaves.
        slower *= math.prod(tiers.values()) // count
    sent = {}
    for tier, size in sizes.items():
        sent[tier] = (size - 1) * slower
        slower *= size
    return sent


def _key(text: str, options: Options) -> str:
    """The name of a result in the cache."""
    # The time limit does not change the result.
    given = dataclasses.asdict(options.replace(
        tuning=options.tuning.replace(compile_timeout=None)))
    return hashlib.sha256(json.dumps(
        [_VERSION, text, given, compiler_digest()]).encode()).hexdigest()


@functools.cache
def compile_bucket(bucket: Bucket, options: Options) -> Compiled:
    """Compiles a bucket with options of its own, or finds an earlier result."""
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
    """Returns why a bucket is left to PyTorch, or an empty text, and its bundle's files."""
    def rewrite(bucket, target, options=options):
        result = rewrite_text(
            bucket.text(), options, target,
            phases=_LATER_PHASES if bucket.difference else ("zeropp",))
        # What does not shrink, or is exact, travels with what does.
        reasons = [entry["reason"] for entry in result.report["collectives"]
                   if entry["floor"] != "none"]
        return "" if "" in reasons else reasons[0], result

    if bucket.is_mean or bucket.difference:
        # The compiler has no op for a mean that it leaves alone. A difference
        # is sent where it would quantize whole values.
        reason, _ = rewrite(dataclasses.replace(
            bucket, is_mean=False, difference=""), "portable")
        if reason:
            return reason, {}
    reason, result = rewrite(bucket, "cuda")
    if not reason and bucket.exact and len(result.bundle.manifest["functions"]) > 1:
        # Nothing can travel with stages, which links ask for. They are not missed: all
        # exchanges of a function are on one stream, so stages would overlap nothing, at
        # the same bytes in more messages.
        reason, result = rewrite(bucket, "cuda", options.replace(links=None))
    if not reason and len(result.bundle.manifest["functions"]) > 1:
        reason = "its types would not travel in one message"
    return reason, {} if reason else result.bundle.files


def _read(folder: pathlib.Path) -> Compiled:
    found = unseal(_REPORT, read_file(folder, _REPORT), _VERSION)
    library = folder / "libstep.so"
    if found["reason"]:
        return Compiled(found["reason"], library)
    bundle: Bundle = read_bundle(folder)
    (function,) = bundle.manifest["functions"]
    return Compiled("", library, function)


@functools.cache
def compiler_digest() -> str:
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
