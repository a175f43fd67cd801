# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From JAX functions to the StableHLO text that the compiler reads, and
back."""

import dataclasses
import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.experimental.layout import Layout
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters.mlir import make_ir_context

from zpp._bundle import Bundle
from zpp._compiler import import_partitioned, source_of
from zpp._text import read_message
from zpp.jax._callbacks import CALLS, NO_CALLBACKS, Callbacks, find_calls
from zpp.jax._callbacks import take_callbacks
from zpp.jax._modules import artifact_of, entries_of, main_of, shape_of, string_in, text_of
from zpp.jax._modules import type_of
from zpp.jax._partition import Sharded, partition, warn_of_shardings
from zpp.jax._partitioner import PartitionError
from zpp.jax._state import State, read_state


@dataclasses.dataclass(frozen=True)
class Step:
    """An exported function, with information that `jax.export` does not
    keep."""

    exported: jax.export.Exported
    #: Flat indices of the donated arguments.
    donated: tuple[int, ...]
    #: The devices that the function, or else its arguments name.
    mesh: jax.sharding.Mesh | None
    #: The bundle of a step that was rewritten for target cuda or cpu.
    bundle: Bundle | None = None
    #: The state that it keeps from call to call: more arguments and results of the
    #: module, after those of `exported`.
    state: State | None = None
    #: The programs that begin the state which this step takes: all of it, and what
    #: follows from the arguments. None where that is nothing or all of it.
    start: "Step | None" = None
    resume: "Step | None" = None
    #: Functions of this process that the module calls.
    callbacks: Callbacks = NO_CALLBACKS

    @property
    def uses_runtime(self) -> bool:
        """Whether the runtime executes any of its collectives."""
        return self.bundle is not None and bool(
            self.bundle.manifest["functions"])

    @functools.cached_property
    def smallest_result(self) -> int | None:
        """The index of the smallest flat result; None without results."""
        sizes = [math.prod(shape.shape) for shape in self.exported.out_avals]
        return sizes.index(min(sizes)) if sizes else None

    @functools.cached_property
    def layouts(self) -> dict[int, Layout]:
        """The layouts of flat results for which the step names others than XLA's."""
        # Few steps do, and a large module takes long to read.
        if b"mhlo.layout_mode" not in self.exported.mlir_module_serialized:
            return {}
        with make_ir_context() as context:
            modes = [string_in(entries, "mhlo.layout_mode") or ""
                     for entries in entries_of(main_of(self._read(context)), "res_attrs")]
        # Dims are from the fastest to the slowest, and tokens stand before the results.
        dims = {number - len(self.exported.ordered_effects): re.findall(
            r"\d+", mode.partition(":")[0]) for number, mode in enumerate(modes)}
        return {number: Layout(tuple(map(int, reversed(minor_to_major))))
                for number, minor_to_major in dims.items() if minor_to_major}

    @functools.cached_property
    def calls(self) -> list[str]:
        """The calls of this process that the module has, by primitive and line."""
        if not self.callbacks:
            return []
        with make_ir_context() as context:
            return find_calls(self._read(context))

    @functools.cached_property
    def sharded(self) -> Sharded:
        with make_ir_context() as context:
            return Sharded(self._read(context))

    @property
    def needs_partitioning(self) -> bool:
        """Whether XLA decides where this step communicates."""
        return self.exported.nr_devices > 1 and self.sharded.needs_partitioning

    @functools.cached_property
    def complete_text(self) -> str:
        """`text` with all collectives, including those that XLA makes from the
        step's shardings. This takes a compilation.

        Raises:
          ValueError: if XLA cannot partition the step ahead of time.
        """
        if not self.needs_partitioning:
            return self.text()
        with make_ir_context() as context:
            return partition(self._read(context), self.exported.fun_name)

    def partitioned(self) -> "Step":
        """The same step with all collectives, as in `complete_text`. Runs the
        compiler."""
        return (self.with_text(import_partitioned(self.complete_text))
                if self.needs_partitioning else self)

    def text(self, locations: bool = True) -> str:
        """The module as StableHLO in the generic form, which zpp-opt reads.

        With `locations`, every operation carries the user's source line, so
        that the compiler's remarks point there.
        """
        with make_ir_context() as context:
            return text_of(self._read(context), locations)

    def _read(self, context: ir.Context) -> ir.Module:
        return stablehlo.deserialize_portable_artifact(
            context, self.exported.mlir_module_serialized)

    def with_state(self, order: str) -> "Step":
        """The same step with the state of its module, on devices in this order."""
        with make_ir_context() as context:
            state = self._state_in(self._read(context))
        assert state
        return dataclasses.replace(self, state=dataclasses.replace(state, order=order))

    def _state_in(self, module: ir.Module) -> State | None:
        return read_state(module, self.exported.module_kept_var_idx,
                          len(self.exported.ordered_effects), self.mesh)

    def with_text(self, text: str, bundle: Bundle | None = None) -> "Step":
        """The same step with another module of its signature, or with state besides."""
        with make_ir_context() as context:
            module = ir.Module.parse(text, context)
            state = self._state_in(module)
            serialized = artifact_of(module)
        exported = dataclasses.replace(self.exported,
                                       mlir_module_serialized=serialized)
        return dataclasses.replace(
            self, exported=exported, bundle=bundle, state=state)

    def beginning(self, text: str, bundle: Bundle | None = None) -> "Step":
        """The program with this module that returns state which it begins, nothing else."""
        begins = self.with_text(text, bundle)
        return dataclasses.replace(
            begins, donated=(), callbacks=NO_CALLBACKS, exported=dataclasses.replace(
                begins.exported, ordered_effects=(), unordered_effects=(),
                out_avals=(), out_tree=jax.tree.structure([]),
                out_shardings_hlo=(), _out_named_shardings=()))


def export(step: Callable, *args: Any, platforms: Sequence[str] | None = None,
           disabled_checks: Sequence[jax.export.DisabledSafetyCheck] = (),
           partition: str | None = None, **kwargs: Any) -> Step:
    """Exports `step` for these arguments.

    Args:
      step: a function; `jax.jit` of one keeps its donation, shardings and
        static arguments.
      *args: arrays or `jax.ShapeDtypeStruct`s. Their shardings become those of
        the exported function.
      platforms: as in `jax.export.export`.
      disabled_checks: as in `jax.export.export`. Calls of Python are allowed in any
        case, for steps that run in this process.
      partition: "xla" makes the collectives of a step with shardings now, with
        the compiler's help; it can then be rewritten where there are not as
        many devices. By default they are made when the step is rewritten.
      **kwargs: as `args`.

    Raises:
      ValueError: if XLA cannot partition the step.
    """
    if partition not in (None, "xla"):
        raise ValueError(f"partition: expected None or 'xla', but got "
                         f"{partition!r}")
    exported = export_call(step, args, kwargs, platforms, (
        *disabled_checks, *map(jax.export.DisabledSafetyCheck.custom_call, CALLS)))
    return exported.partitioned() if partition else exported


def check_callable(step: Any) -> None:
    """Raises TypeError if `step` is no function, as a jaxpr is none."""
    if not callable(step):
        raise TypeError(f"step: expected a function, but got "
                        f"{type(step).__name__}{_hint_of_jaxpr(step)}")


def _hint_of_jaxpr(step: Any) -> str:
    return ("; pass the function that jax.make_jaxpr was given, or "
            "jax.extend.core.jaxpr_as_fun of the ClosedJaxpr"
            if isinstance(step, ClosedJaxpr | Jaxpr) else "")


def export_call(step: Callable, args: tuple, kwargs: dict,
                platforms: Sequence[str] | None,
                disabled_checks: Sequence[jax.export.DisabledSafetyCheck]
                ) -> Step:
    """`export`; `kwargs` may have names of its parameters."""
    check_callable(step)
    jitted = step if isinstance(step, jax.stages.Wrapped) else jax.jit(step)
    traced = jitted.trace(*args, **kwargs)
    exported, callbacks = take_callbacks(lambda: jax.export.export(
        jitted, platforms=platforms,
        disabled_checks=disabled_checks)(*args, **kwargs))
    donated = tuple(index for index, info in enumerate(
        jax.tree.leaves(traced.args_info)) if info.donated)
    meshes = itertools.chain(
        _meshes(traced.jaxpr), _meshes_of((args, kwargs)),
        # in_shardings and out_shardings of jax.jit, for which there is no
        # public interface.
        _meshes_of(list(getattr(traced, "_params", {}).values())))
    return Step(_callable(exported), donated, next(meshes, None),
                callbacks=callbacks)


def _callable(exported: jax.export.Exported) -> jax.export.Exported:
    """The same, as JAX can call it. Without Shardy, JAX 0.10 calls nothing that has
    names of axes in its shardings, not even what it has exported itself."""
    name = "_has_named_shardings"
    if jax.config.jax_use_shardy_partitioner or not hasattr(exported, name):
        return exported
    return dataclasses.replace(exported, **{name: False})


def read_step(step: Any) -> Step | str:
    """The step in any form: the result of `zpp.export` or
    `jax.jit(...).lower()`, a `jax.export.Exported` or its bytes; as text, where these
    are of a module alone, in bytecode or a portable artifact.

    Raises:
      TypeError, ValueError: if it is something else.
    """
    if isinstance(step, Step):
        return step
    if isinstance(step, jax.stages.Lowered):
        return _from_lowered(step)
    if isinstance(step, bytes | bytearray | memoryview):
        step = bytes(step)
        if step.startswith(_BYTECODE):
            return _to_text(step)
        step = _deserialize(step)
    if isinstance(step, jax.export.Exported):
        return Step(_callable(step), _donated_in(step), None)
    hint = ("; call .lower(...) of it with its arguments, or zpp.export"
            if isinstance(step, jax.stages.Wrapped | jax.stages.Traced)
            or callable(step) else _hint_of_jaxpr(step))
    raise TypeError(
        f"expected a zpp.Step, what jax.jit(...).lower() returns, a "
        f"jax.export.Exported, its serialized bytes or StableHLO text, but got "
        f"{type(step).__name__}{hint}")


def from_text(text: str, devices: int) -> Step:
    """A step that consists of a module alone, for the platform of this process.
    It takes flat arguments, donates none and returns a list."""
    with make_ir_context() as context:
        module = ir.Module.parse(text, context)
        function = type_of(main_of(module))
        inputs, results = (
            tuple(jax.core.ShapedArray(*shape_of(each)) for each in types)
            for types in (function.inputs, function.results))
        serialized = artifact_of(module)

    def step(*_):
        return [0] * len(results)

    # Of another function with as many arguments and results.
    exported = jax.export.export(jax.jit(step, keep_unused=True))(*inputs)
    return Step(dataclasses.replace(
        exported, in_avals=inputs, out_avals=results, nr_devices=devices,
        mlir_module_serialized=serialized), (), None)


def complete_module(text: str) -> str:
    """A module with the collectives that XLA makes of its shardings, as
    text. If there are none, it is the same module. If XLA cannot partition it
    ahead of time, and it has others, that is a warning.

    Raises:
      ValueError: if XLA cannot partition it ahead of time, and it has no others.
    """
    with make_ir_context() as context:
        try:
            module = ir.Module.parse(text, context)
        except ir.MLIRError:
            # The compiler says what is wrong.
            return text
        sharded = Sharded(module)
        if not sharded.needs_partitioning:
            return text
        try:
            return partition(ir.Module.parse(_with_lines(
                module, source_of(text)[0]), context), "main")
        except PartitionError as error:
            if not sharded.has_collectives:
                raise
            warn_of_shardings(error)
            return text


#: How MLIR's bytecode begins.
_BYTECODE = b"ML\xefR"


def _to_text(module: bytes) -> str:
    with make_ir_context() as context:
        try:
            parsed = stablehlo.deserialize_portable_artifact(context, module)
        except (ir.MLIRError, ValueError) as error:
            raise ValueError(f"expected a module of StableHLO, but got "
                             f"something else: {read_message(error)}") from None
        return text_of(parsed)


def _with_lines(module: ir.Module, name: str) -> str:
    """A module whose locations have names, as HLO keeps no others."""
    # What was parsed without locations is in no file. A string has no quotes, only what
    # stands for them.
    quoted = json.dumps("stdin" if name == "-" else name)
    return _LINE.sub(r'loc("line \2"(\1:\2))', re.sub(
        r'"-":(?=\d+:\d+)', lambda _: f"{quoted}:", text_of(module)))


#: A location that is a line.
_LINE = re.compile(r'loc\(("(?:[^"\\]|\\.)*"):(\d+:\d+)\)')


def _deserialize(content: bytes) -> jax.export.Exported:
    try:
        return jax.export.deserialize(bytearray(content))
    except Exception as error:
        # The deserializer does not check its input.
        raise ValueError(
            f"expected the serialized bytes of a jax.export.Exported, but got "
            f"{len(content)} other bytes: {error or type(error).__name__}") from None


def _donated_in(exported: jax.export.Exported) -> tuple[int, ...]:
    """Flat indices of the arguments whose memory a module uses for results."""
    with make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(
            context, exported.mlir_module_serialized)
        return tuple(
            index for index, entries in zip(exported.module_kept_var_idx,
                                            entries_of(main_of(module), "arg_attrs"))
            if "tf.aliasing_output" in entries or "jax.buffer_donor" in entries)


def _from_lowered(lowered: jax.stages.Lowered) -> Step:
    from jax._src.export import _export
    arguments = lowered._lowering.compile_args
    exported, callbacks = take_callbacks(lambda: _export._export_lowered(
        lowered, None, "step", (jax.export.DisabledSafetyCheck.custom_call("ALL"),)))
    donated = tuple(index for index, info in enumerate(
        jax.tree.leaves(lowered.args_info)) if info.donated)
    mesh = next(_meshes_of(list(arguments["in_shardings"])), None)
    return Step(_callable(exported), donated, mesh, callbacks=callbacks)


def _meshes(jaxpr: Any) -> Iterator[jax.sharding.Mesh]:
    """Finds the device meshes of shard_maps and sharding constraints in a jaxpr."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        for value in equation.params.values():
            if isinstance(value, jax.sharding.Mesh):
                # The mesh of the context may have no devices.
                yield from () if value.empty else (value,)
            elif hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                yield from _meshes(value)
            else:
                yield from _meshes_of(value)


def _meshes_of(tree: Any) -> Iterator[jax.sharding.Mesh]:
    """The device meshes of shardings, and of arrays' shardings, in a pytree."""
    for leaf in jax.tree.leaves(tree):
        sharding = getattr(leaf, "sharding", leaf)
        if isinstance(sharding, jax.sharding.NamedSharding) and isinstance(
                sharding.mesh, jax.sharding.Mesh):
            yield sharding.mesh
