# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The state that a rewritten step keeps from call to call (weights=i4:delta,
frozen=keep)."""

import dataclasses
import functools
import math
import weakref
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir
from jax.sharding import NamedSharding, PartitionSpec

from zpp._warn import warn
from zpp.jax._modules import main_of, shape_of, type_of

#: The name of the array that says of which mesh a saved state is.
_MESH = "mesh"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The elements of a weight that each device keeps: slices of one of its dims."""

    shape: tuple[int, ...]
    dim: int
    #: Factors of the dim, the most significant first: the size of each, and the
    #: difference of the ids of devices that are neighbors along it; 0 where a
    #: device holds all of it.
    factors: tuple[tuple[int, int], ...]

    def slices(self, devices: int) -> np.ndarray:
        """The numbers of the slices of each device, [devices, slices]."""
        found: np.ndarray = np.zeros((devices, 1), np.int64)
        ids = np.arange(devices)[:, None]
        for size, stride in self.factors:
            digits = (ids // stride % size if stride
                      else np.broadcast_to(np.arange(size), (devices, size)))
            found = (found[:, :, None] * size + digits[:, None, :]).reshape(
                devices, -1)
        return found

    def owners(self, devices: int) -> np.ndarray | None:
        """The device of each slice, or None unless each device has one slice, of
        its own and of the same size as the others."""
        if (math.prod(size for size, _ in self.factors) != devices
                or self.shape[self.dim] % devices):
            return None
        slices = self.slices(devices).reshape(-1)
        return (np.argsort(slices) if len(slices) == devices
                and len(set(slices.tolist())) == devices else None)


@dataclasses.dataclass(frozen=True)
class State:
    """The state of a rewritten step: by name, flat arrays, of which each device
    holds a part of its own."""

    #: Shapes of all, in the order of the results.
    kept: Mapping[str, jax.ShapeDtypeStruct]
    #: Names of those that the step takes as arguments, in order. The others it begins.
    taken: tuple[str, ...]
    #: Those that follow from arguments that do not change: flat numbers of an
    #: argument and of the result that returns it, or -1.
    frozen: Mapping[str, tuple[tuple[int, int], ...]]
    #: The tiers and the axes of the step, each in their order: which device has
    #: which part follows from them, and does not show in the shapes.
    order: str = ""
    #: The elements of weights that the arrays hold, where they are known.
    layouts: Mapping[str, Layout] = dataclasses.field(default_factory=dict)
    #: Flat numbers of the arguments that saved ones are of, where each is of one.
    sources: Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: The devices, where they are known.
    mesh: jax.sharding.Mesh | None = None

    @property
    def saved(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Those that do not follow from arguments."""
        return {name: shape for name, shape in self.kept.items()
                if name not in self.frozen}

    @property
    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of what is saved, with the array that says of which mesh it is."""
        sharding = self.mesh and NamedSharding(self.mesh, PartitionSpec())
        mesh = jax.ShapeDtypeStruct((len(self._numbers),), np.uint32,
                                    sharding=sharding)
        return self.saved and self.saved | {_MESH: mesh}

    @functools.cached_property
    def _numbers(self) -> list[int]:
        """The array that says of which mesh a state is: a digest of the mesh.
        Where a step on another mesh can go on from the state, also a digest of the
        weights, and the factors of all own parts."""
        numbers = [zlib.crc32(self.order.encode())]
        names = [name for name in self.saved if name.startswith("own.")]
        own = [self.layouts[name] for name in names if name in self.layouts]
        if len(own) < len(names) or len({each.factors for each in own}) != 1:
            return numbers
        weights = [(name, str(self.saved[name].dtype), each.shape, each.dim)
                   for name, each in zip(names, own, strict=True)]
        numbers.append(zlib.crc32(repr(weights).encode()))
        for factor in own[0].factors:
            numbers.extend(factor)
        return numbers

    @property
    def arguments(self) -> list[jax.ShapeDtypeStruct]:
        return [self.kept[name] for name in self.taken]

    def continues(self, other: "State | None") -> bool:
        """Whether what is saved of a step with the state `other` is, array by
        array, of the same arguments in the same way, as in a step for another size
        of the batch."""
        return (other is not None and bool(self.saved)
                and self.sources.keys() == self.saved.keys()
                and (self.sources, self.saved, self.layouts, self.order, self.mesh)
                == (other.sources, other.saved, other.layouts, other.order,
                    other.mesh))

    def stamp(self) -> jax.Array | np.ndarray:
        """The array that says of which mesh a state is."""
        digest = np.array(self._numbers, np.uint32)
        return digest if self.mesh is None else jax.make_array_from_callback(
            digest.shape, self.shapes[_MESH].sharding, lambda index: digest)

    def is_own(self, stamp: Any) -> bool:
        """Whether this is the stamp of such a state."""
        return _numbers_of(stamp)[:1] == self._numbers[:1]

    def redistribute(self, arrays: Mapping[str, Any]
                     ) -> dict[str, jax.Array] | None:
        """A state of this step from one of another mesh, or None where the parts of
        one of them are not known. The parts that a node holds of the others are
        made from their own ones, so `arrays` need not have them."""
        _, *known = numbers = _numbers_of(arrays[_MESH])
        if (self.mesh is None or known[:1] != self._numbers[1:2]
                or len(numbers) % 2 or not known):
            return None
        factors = tuple(zip(known[1::2], known[2::2], strict=True))
        found = {}
        for name, shape in self.saved.items():
            kind, _, number = name.partition(".")
            layout, array = self.layouts.get(name), arrays.get(f"own.{number}")
            if kind not in ("own", "held") or layout is None or array is None:
                return None
            before = dataclasses.replace(
                self.layouts[f"own.{number}"], factors=factors)
            if (before.owners(math.prod(size for size, _ in factors)) is None
                    or self.layouts[f"own.{number}"].owners(self.mesh.size) is None
                    or (array.size, array.dtype)
                    != (math.prod(before.shape), shape.dtype)):
                return None
            found[name] = _moved(array, before, layout, shape)
        return found

    def on(self, mesh: jax.sharding.Mesh | None) -> "State":
        """The same, on the devices of a mesh if there is one."""
        sharding = mesh and NamedSharding(
            mesh, PartitionSpec(mesh.axis_names))
        return dataclasses.replace(self, mesh=mesh, kept={
            name: jax.ShapeDtypeStruct(shape.shape, shape.dtype,
                                       sharding=sharding)
            for name, shape in self.kept.items()})


def read_state(module: ir.Module, arguments: Sequence[int], tokens: int,
               mesh: jax.sharding.Mesh | None) -> State | None:
    """The state that the compiler has given to a module, by the flat numbers of the
    arguments that it had before, and how many tokens stand before its arguments and its
    results."""
    if "zpp.state" not in module.operation.attributes:
        return None
    kept: dict[str, Any] = {}
    counts: dict[str, int] = {}
    frozen: dict[str, Any] = {}
    layouts: dict[str, Layout] = {}
    sources: dict[str, int] = {}
    for entry in module.operation.attributes["zpp.state"]:
        kind = ir.StringAttr(entry["kind"]).value
        number = counts[kind] = counts.get(kind, -1) + 1
        name = f"{kind}.{number}"
        kept[name] = jax.ShapeDtypeStruct(*shape_of(ir.TypeAttr(entry["type"]).value))
        if "factors" in entry:
            factors = list(ir.DenseI64ArrayAttr(entry["factors"]))
            layouts[name] = Layout(
                tuple(ir.DenseI64ArrayAttr(entry["shape"])),
                ir.IntegerAttr(entry["dim"]).value,
                tuple(zip(factors[::2], factors[1::2], strict=True)))
        if "source" in entry:
            sources[name] = arguments[ir.IntegerAttr(entry["source"]).value - tokens]
        if kind == "frozen":
            frozen[name] = tuple(
                (arguments[argument - tokens], max(result - tokens, -1))
                for argument, result in zip(
                    ir.DenseI64ArrayAttr(entry["arguments"]),
                    ir.DenseI64ArrayAttr(entry["results"]), strict=True))
    taken = sum(isinstance(each, ir.RankedTensorType)
                for each in type_of(main_of(module)).inputs) - len(arguments)
    machine = ir.DictAttr(module.operation.attributes["zpp.machine"])
    order = [ir.StringAttr(machine["mesh"]).value]
    if mesh is not None:
        order += (f"{name}:{size}" for name, size in mesh.shape.items())
    return State(kept, tuple(
        () if taken == 0 else kept if taken == len(kept) else
        (name for name in kept if name not in frozen)), frozen,
        " ".join(order), layouts, sources).on(mesh)


def extend(exported: jax.export.Exported, state: State | None
           ) -> jax.export.Exported:
    """Appends arguments and results of the state to those of a flat `exported`."""
    shapes = list(state.kept.values()) if state else []
    avals = tuple(jax.core.ShapedArray(shape.shape, shape.dtype)
                  for shape in shapes)
    taken = tuple(jax.core.ShapedArray(shape.shape, shape.dtype)
                  for shape in (state.arguments if state else ()))
    in_avals, out_avals = exported.in_avals + taken, exported.out_avals + avals
    changes = {
        "in_avals": in_avals, "out_avals": out_avals,
        "in_tree": jax.tree.structure((tuple(in_avals), {})),
        "out_tree": jax.tree.structure(list(out_avals)),
        "in_shardings_hlo": exported.in_shardings_hlo + (None,) * len(taken),
        "out_shardings_hlo": exported.out_shardings_hlo + (None,) * len(avals),
        "module_kept_var_idx": exported.module_kept_var_idx + tuple(
            range(len(exported.in_avals), len(in_avals)))}
    # JAX 0.10 has a field that says whether there are any, 0.11.2 always has them.
    if len(exported._in_named_shardings) == len(exported.in_avals):
        named = tuple(
            shape.sharding and NamedSharding(
                shape.sharding.mesh.abstract_mesh, shape.sharding.spec)
            for shape in shapes)
        changes["_in_named_shardings"] = (
            exported._in_named_shardings + named[:len(taken)])
        changes["_out_named_shardings"] = exported._out_named_shardings + named
    return dataclasses.replace(exported, **changes)


class Keeper:
    """Carries the state from one call to the next, and knows when it does not
    belong to the weights that a call is given."""

    def __init__(self):
        self._arrays: dict[str, jax.Array] | None = None
        self._state: State | None = None
        self._owner: Any = None
        self._is_given = False
        self._results: list[weakref.ref] = []
        #: Arguments of the latest call that were results of the one before; where it
        #: began the state, those that this is of.
        self._passed_on: set[int] = set()
        #: Arguments of the latest call, by flat number.
        self._arguments: dict[int, weakref.ref] = {}

    @property
    def arrays(self) -> dict[str, jax.Array] | None:
        """The arrays that must be saved to go on elsewhere."""
        if self._arrays is None or self._state is None:
            return self._arrays
        saved = self._saved()
        return saved and saved | {_MESH: self._state.stamp()} or None

    def _saved(self) -> dict[str, jax.Array]:
        return {name: self._arrays[name] for name in self._state.saved}

    def give(self, arrays: Mapping[str, jax.Array] | None) -> None:
        """Sets what the next call starts from."""
        if not isinstance(arrays, Mapping | None):
            raise TypeError(
                f"state: expected a dict of arrays, as it was read, or None, but "
                f"got {type(arrays).__name__}")
        self._arrays = None if arrays is None else dict(arrays)
        self._state, self._is_given = None, arrays is not None

    def check_not_given(self) -> None:
        """Raises ValueError if a state was given to a step that keeps none."""
        if self._is_given:
            raise ValueError(
                "state: expected None for a step that keeps nothing between "
                "calls, but got arrays; weights=i4:delta would keep some. Restore "
                "it with the options with which it was saved, or set it to None")

    def take(self, owner: Any, state: State, leaves: Sequence[Any]
             ) -> dict[str, jax.Array]:
        """Returns the state from which a call of `owner`, a program, can go on: all of
        it, the part that does not follow from the arguments, or nothing. Whole weights
        must be sent for the rest, where none is kept, or where it is of other weights
        than the results of the latest call.

        A state that was given, of another mesh, is redistributed, or dropped with a
        warning where that is not possible."""
        sources = set(state.sources.values())
        if self._arrays is None or self._is_given:
            self._passed_on = sources
        if self._arrays is None:
            return {}
        if self._is_given:
            if _MESH in self._arrays and not state.is_own(self._arrays[_MESH]):
                moved = state.redistribute(self._arrays)
                if moved is not None:
                    return moved
                warn(f"state: expected one of a step on the mesh "
                     f"{state.order}, but got one of another mesh, or of another "
                     f"order of its axes, whose parts are not known. It is "
                     f"dropped: this call sends whole weights")
                self.give(None)
                return {}
            _check(self._arrays, state)
            _check_copies(self._arrays)
            return dict(self._arrays)
        is_own = self._owner is owner
        if not (is_own or state.continues(self._state)):
            self._passed_on = sources
            return {}
        if state.saved and not self._follow(leaves, sources):
            self._passed_on = self._passed_on or sources
            return {}
        if is_own and all(self._is_same(leaves, argument, result)
               for pairs in state.frozen.values()
               for argument, result in pairs):
            return self._arrays
        return self._saved()

    def _follow(self, leaves: Sequence[Any], sources: set[int]) -> bool:
        """Whether arguments are results of the latest call: one at least, and
        all that were in the call before, but for those that have not changed."""
        results = {id(array) for ref in self._results
                   if (array := ref()) is not None}
        before, self._passed_on = self._passed_on, {
            number for number, leaf in enumerate(leaves) if id(leaf) in results}
        unchanged = {number for number in sources
                     if (ref := self._arguments.get(number)) is not None
                     and ref() is leaves[number]}
        return bool(self._passed_on) and before <= self._passed_on | unchanged

    def _is_same(self, leaves: Sequence[Any], argument: int, result: int
                 ) -> bool:
        """Whether an argument is that of the latest call."""
        known = (self._arguments.get(argument),
                 self._results[result] if result >= 0 else None)
        return any(ref is not None and ref() is leaves[argument]
                   for ref in known)

    def put(self, owner: Any, state: State, arrays: Sequence[jax.Array],
            leaves: Sequence[Any], results: Sequence[jax.Array]) -> None:
        self._arrays = dict(zip(state.kept, arrays, strict=True))
        self._owner, self._state, self._is_given = owner, state, False
        self._results = [weakref.ref(result) for result in results]
        frozen = {argument for pairs in state.frozen.values() for argument, _ in pairs}
        self._arguments = {
            argument: weakref.ref(leaves[argument])
            for argument in frozen | set(state.sources.values())
            if isinstance(leaves[argument], jax.Array)}


class StatefulStep:
    """A step that goes on from what its latest call has kept."""

    _keeper: Keeper

    @property
    def state(self) -> dict[str, jax.Array] | None:
        """The arrays that weights=i4:delta keeps between calls, by name; None
        before the first call. Save it with the weights, and set it when they are
        restored, on the same mesh. Without it the next call sends whole weights
        once, as it does when no argument is a result of the latest call.
        """
        return self._keeper.arrays

    @state.setter
    def state(self, arrays: Mapping[str, jax.Array] | None) -> None:
        self._keeper.give(arrays)


def _numbers_of(stamp: Any) -> list[int]:
    """The numbers of the array that says of which mesh a state is."""
    if isinstance(stamp, jax.Array):
        stamp = stamp.addressable_data(0)
    return np.ravel(stamp).tolist()


def _moved(array: Any, before: Layout, after: Layout,
           target: jax.ShapeDtypeStruct) -> jax.Array:
    """The parts that the devices of `target` keep of a weight whose own parts
    `array` has. For a moment a device may hold the whole weight."""
    sharding = target.sharding
    if isinstance(array, jax.Array) and (
            array.sharding.device_set != sharding.device_set):
        # On devices of another step: not in the same program.
        array = np.asarray(array)
    return jax.jit(_move, static_argnums=(1, 2, 3), out_shardings=sharding)(
        array, before, after, sharding.mesh.size)


def _move(array: jax.Array, before: Layout, after: Layout, devices: int) -> jax.Array:
    dim, shape = before.dim, before.shape
    from_devices = math.prod(size for size, _ in before.factors)
    rest = (*shape[:dim], -1, *shape[dim + 1:])
    parts = array.reshape(from_devices, *shape[:dim], shape[dim] // from_devices,
                          *shape[dim + 1:])
    whole = jnp.moveaxis(parts[before.owners(from_devices)], 0, dim).reshape(shape)
    count = math.prod(size for size, _ in after.factors)
    slices = jnp.moveaxis(whole.reshape(
        *shape[:dim], count, shape[dim] // count, *shape[dim + 1:]), dim, 0)
    kept = slices[after.slices(devices)]
    return jnp.moveaxis(kept, 1, dim + 1).reshape(devices, *rest).reshape(-1)


def _check(arrays: Mapping[str, jax.Array], state: State) -> None:
    shapes = state.shapes
    begin = "Set it to None to send whole weights once"
    place = ("Place it with jax.device_put as rewritten().step.state.shapes "
             "says, or set it to None")
    if set(arrays) != set(shapes):
        raise ValueError(
            f"state: expected {len(shapes)} arrays, "
            f"{', '.join(shapes) or 'none'}, but got "
            f"{', '.join(arrays) or 'none'}; "
            f"it is of another step or of other options. {begin}")
    for name, shape in state.saved.items():
        got = arrays[name]
        if not isinstance(got, jax.Array):
            raise TypeError(
                f"state: expected '{name}' as an array of JAX, sharded over all "
                f"devices of the mesh, but got {type(got).__name__}. {place}")
        if got.is_deleted():
            raise ValueError(
                f"state: expected '{name}', but a call has used it up; state is "
                f"donated. Copy it before the call. {begin}")
        if (got.shape, got.dtype) != (shape.shape, shape.dtype):
            raise ValueError(
                f"state: expected '{name}' of {shape.dtype}{list(shape.shape)}, "
                f"but got {got.dtype}{list(got.shape)}; it is of another mesh "
                f"or format. {begin}")
        if shape.sharding is not None and not got.sharding.is_equivalent_to(
                shape.sharding, 1):
            raise ValueError(
                f"state: expected '{name}' sharded over all devices of the "
                f"mesh, {shape.sharding.spec}, but got {got.sharding}. {place}")


@jax.jit
def _sum_bits(array: jax.Array) -> jax.Array:
    """A sum that changes with (almost) any change of the elements."""
    bits = jax.lax.bitcast_convert_type(
        array, np.dtype(f"uint{8 * array.dtype.itemsize}"))
    return bits.astype(np.uint32).sum(dtype=np.uint32)


def _check_copies(arrays: Mapping[str, jax.Array]) -> None:
    """Raises ValueError where what devices hold of the others is not what these
    hold of themselves: they would never agree again."""
    for name, held in arrays.items():
        kind, _, number = name.partition(".")
        if kind != "held":
            continue
        own = arrays[f"own.{number}"]
        # Otherwise one of them is padded.
        if held.size % own.size == 0 and (
                int(_sum_bits(held)) != held.size // own.size
                * int(_sum_bits(own)) % 2**32):
            raise ValueError(
                f"state: expected '{name}' as copies of 'own.{number}', but got "
                f"other values; they are of different steps. Restore all arrays "
                f"of one step, or set it to None to send whole weights once")
