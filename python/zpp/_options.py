# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a step is to be rewritten."""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

#: What a value can be on the wire.
FORMATS = ("i8", "i4")
TARGETS = ("auto", "portable", "cuda", "cpu")


class NamedMesh(Protocol):
    """Devices in named dimensions, such as a `jax.sharding.Mesh`."""

    @property
    def axis_names(self) -> tuple[str, ...]: ...

    @property
    def shape(self) -> Mapping[str, int]: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a step is to be rewritten; the same for every front end.

    None means the compiler's default. Structures are kept as the text that the
    compiler reads: mesh={"node": 2, "gpu": 4} becomes "node:2,gpu:4".

    Raises:
      ValueError: if a value is not valid.
    """

    #: Tiers from the slowest link to the fastest: {"node": 2, "gpu": 4},
    #: "node:2,gpu:4", or a mesh of the framework with its axes in this order.
    #: None means the axes of the step's own mesh, those first along which
    #: processes change, or if it has only one, the processes and their devices.
    mesh: str | Mapping[str, int] | NamedMesh | None = None
    #: Wire format of weight gathers (qwZ): "none", "i8" or "i4". With
    #: "i4:delta" or "i8:delta" devices send differences to what the others hold,
    #: which `zpp.jit` keeps between calls. It needs a secondary partition.
    weights: str | None = None
    #: Formats of the gradient scatter's hops (qgZ) from the innermost outwards:
    #: ("i8", "i4") or "i8:i4". A single format means one hop over the whole
    #: group. Or "none".
    gradients: str | Sequence[str] | None = None
    #: Format in which the sum of a gradient's all-reduce is gathered, where
    #: weights are replicated (HSDP, plain data parallelism): "none", "i8" or
    #: "i4". The scatter of that sum has the formats of `gradients`.
    reduced: str | None = None
    #: Where each device updates a slice of replicated weights (ZeRO-1, ZeRO-2):
    #: the format in which it sends by how much they have changed: "none", "i8"
    #: or "i4".
    updated: str | None = None
    #: The group that keeps a second copy of the weights for the backward pass
    #: (hpZ): the name of a tier, a number of devices, or "none".
    secondary: str | int | None = None
    #: "keep" sends weights that the step returns as they came in the first call
    #: only: what a device has received of them, the secondary partition, is kept
    #: between calls. Or "none".
    frozen: str | None = None
    #: Arguments to treat as weights even if the step does not show that they
    #: are, for instance in an evaluation: "all", the numbers of leaves of the
    #: arguments, or a function that returns for each leaf's path, as
    #: `jax.tree_util.keystr` writes it (`[0]['head']`), whether it is a weight.
    weights_of: str | Sequence[int] | Callable[[str], bool] | None = None
    #: Elements that share a scale: a power of two from 32 to 2048.
    block: int | None = None
    #: Elements of a gradient's group that is rotated before it is quantized,
    #: which spreads outliers: 32, or 0 for none.
    rotate: int | None = None
    #: What a gradient's hops have rounded is kept between calls and added to what
    #: the next call sends: "last", of the last hop, which needs the memory of
    #: partial sums; "all"; or "none".
    feedback: str | None = None
    #: Whether to drop gathered weights that a step keeps alive and to gather
    #: them again in the backward pass (ZeRO-3).
    regather: bool | None = None
    #: Parts that a gradient's hops are cut into; 0 picks the number that suits
    #: `links`.
    stages: int | None = None
    #: What a device sends per second over the links of each tier:
    #: {"node": "50gbit", "gpu": "400gbyte"}, "node=50gbit,gpu=400gbyte", or the
    #: path of a file with them (`zpp-perf --calibrate` measures and prints it).
    #: Techniques that would not make a collective faster are left out.
    links: str | os.PathLike | Mapping[str, str] | None = None
    #: Bytes for weights that are gathered before they are needed and for
    #: gradients that wait to be scattered; for targets cuda and cpu.
    prefetch_bytes: int | None = None
    #: Bytes that a device contributes to a buffer shared by several tensors;
    #: with 0 each tensor travels alone.
    coalesce_bytes: int | None = None
    #: Who executes the collectives. "portable": XLA, on any device. "cuda":
    #: the runtime on NVIDIA GPUs, with its kernels and NCCL. "cpu": the same
    #: on CPU devices of one process, for tests of correctness. "auto": "cuda"
    #: if the step was exported for it and the runtime is available, otherwise
    #: "portable"; the reason is logged.
    target: str = "auto"
    #: Seconds after which each run of the compiler is stopped with an error;
    #: None means never.
    compile_timeout: float | None = None

    def __post_init__(self):
        def put(name, value):
            object.__setattr__(self, name, value)

        put("mesh", _mesh_text(self.mesh))
        _check_choice("weights", self.weights, (
            None, "none", *FORMATS, *(f"{form}:delta" for form in FORMATS)))
        put("gradients", _gradients_text(self.gradients))
        _check_choice("reduced", self.reduced, (None, "none", *FORMATS))
        _check_choice("updated", self.updated, (None, "none", *FORMATS))
        if not isinstance(self.secondary, str | None):
            _check_number("secondary", self.secondary, 1)
        _check_choice("frozen", self.frozen, (None, "none", "keep"))
        put("weights_of", _weights_of(self.weights_of))
        _check_number("block", self.block, 32, 2048)
        if self.block is not None and self.block & (self.block - 1):
            raise ValueError(
                f"block: expected a power of two, but got {self.block}")
        _check_choice("rotate", self.rotate, (None, 0, 32))
        _check_choice("feedback", self.feedback, (None, "none", "last", "all"))
        _check_choice("regather", self.regather, (None, True, False))
        _check_number("stages", self.stages, 0, 1024)
        put("links", _links_text(self.links))
        _check_number("prefetch_bytes", self.prefetch_bytes, 0)
        _check_number("coalesce_bytes", self.coalesce_bytes, 0)
        _check_choice("target", self.target, TARGETS)
        limit = self.compile_timeout
        if limit is not None and not (
                isinstance(limit, int | float) and 0 < limit < math.inf):
            raise ValueError(f"compile_timeout: expected a positive number of "
                             f"seconds, but got {limit!r}")

    def replace(self, **changes: Any) -> "Options":
        """These options with some of them changed.

        Raises:
          TypeError: if an option does not exist.
        """
        if unknown := sorted(set(changes) - set(OPTION_NAMES)):
            raise TypeError(f"expected options among "
                            f"{', '.join(OPTION_NAMES)}, but got "
                            f"{', '.join(unknown)}")
        return dataclasses.replace(self, **changes)


#: The name of a tier.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)

OPTION_NAMES = tuple(field.name for field in dataclasses.fields(Options))


def read_schedule(schedule: Mapping[int, Mapping[str, Any]], options: Options,
                  unit: str) -> list[tuple[int, Options]]:
    """The entries of a schedule with all their options, the latest first. An
    entry replaces some of `options` from a number of calls or steps on.

    Args:
      unit: the unit that is counted, for errors: "call".

    Raises:
      ValueError: if an entry is not valid.
    """
    entries = [(0, options)]
    for first, changed in schedule.items():
        if not isinstance(first, int) or first < 1:
            raise ValueError(f"schedule: expected {unit}s counted from 1, but "
                             f"got {first!r}")
        if not isinstance(changed, Mapping):
            raise ValueError(f"schedule: expected a dict of options from "
                             f"{unit} {first} on, but got {changed!r}")
        try:
            entries.append((first, options.replace(**changed)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"schedule: {error}") from None
    return sorted(entries, key=lambda entry: -entry[0])


def parse_mesh(text: str) -> dict[str, int]:
    """The tiers in "node:2,gpu:4", or with strides "node:2@1,gpu:4@2".

    Raises:
      ValueError: if `text` is not a mesh.
    """
    tiers = {}
    for part in text.split(","):
        name, separator, numbers = part.partition(":")
        size, _, stride = numbers.partition("@")
        if not _NAME.fullmatch(name) or not separator or not all(
                number.isascii() and number.isdigit() and len(number) <= 18
                and int(number) > 0
                for number in (size, stride or size)) or numbers[-1] == "@":
            raise ValueError(f"expected a mesh such as 'node:2,gpu:4', but got "
                             f"{part!a} in {text!a}")
        if name in tiers:
            raise ValueError(f"expected every name once in a mesh, but got "
                             f"{name!a} twice in {text!a}")
        tiers[name] = int(size)
    return tiers


def _mesh_text(mesh: Any) -> str | None:
    if mesh is None:
        return None
    if isinstance(mesh, str):
        parse_mesh(mesh)
        return mesh
    tiers = mesh
    if hasattr(mesh, "axis_names"):
        tiers = {name: mesh.shape[name] for name in mesh.axis_names}
    if not isinstance(tiers, Mapping) or not tiers:
        raise ValueError(f"mesh: expected {{'node': 2, 'gpu': 4}}, "
                         f"'node:2,gpu:4' or a mesh with named axes, but got "
                         f"{mesh!r}")
    text = ",".join(f"{name}:{size}" for name, size in tiers.items())
    parse_mesh(text)
    return text


def _gradients_text(gradients: Any) -> str | None:
    if gradients is None or gradients == "none":
        return gradients
    formats = (gradients.split(":") if isinstance(gradients, str)
               else gradients if isinstance(gradients, Sequence) else ())
    # A hop may also send unquantized sums.
    per_hop = (*FORMATS, "none")
    if not formats or any(part not in per_hop for part in formats):
        raise ValueError(
            f"gradients: expected 'none', or one of {_list(per_hop)} per hop "
            f"as ('i8', 'i4') or 'i8:i4', but got {gradients!r}")
    return ":".join(formats)


def _weights_of(weights: Any) -> Any:
    if weights is None or weights == "all" or callable(weights):
        return weights
    if isinstance(weights, str) or not isinstance(weights, Sequence) or any(
            not isinstance(number, int) or number < 0 for number in weights):
        raise ValueError(
            f"weights_of: expected 'all', numbers of arguments or a function of "
            f"their paths, but got {weights!r}")
    return tuple(weights)


def _links_text(links: Any) -> str | None:
    if links is None or isinstance(links, str):
        return links
    if isinstance(links, os.PathLike):
        return os.fspath(links)
    if isinstance(links, Mapping) and links:
        return ",".join(f"{tier}={speed}" for tier, speed in links.items())
    raise ValueError(f"links: expected {{'node': '50gbit'}}, 'node=50gbit' or "
                     f"a file, but got {links!r}")


def _check_choice(name: str, value: Any, choices: Sequence) -> None:
    if not any(value is choice or isinstance(choice, str) and value == choice
               for choice in choices):
        raise ValueError(f"{name}: expected {_list(choices)}, but got "
                         f"{value!r}")


def _check_number(name: str, value: Any, least: int,
                  most: float = math.inf) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not (
            least <= value <= most):
        limits = (f"{least} or more" if most == math.inf
                  else f"{least} to {most}")
        raise ValueError(
            f"{name}: expected an integer, {limits}, but got {value!r}")


def _list(choices: Sequence) -> str:
    """'a', 'b' or 'c', without None, which stands for the default."""
    *first, last = (repr(choice) for choice in choices if choice is not None)
    return f"{', '.join(first)} or {last}"
