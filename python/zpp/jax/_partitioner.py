# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""XLA's partitioner, which makes the program of one device of a step with shardings.

It is a pass of XLA's compiler, and what it makes is taken from a dump. It asks how many
devices there are, and for none of them: a client of one virtual device compiles for any
number.
"""

import dataclasses
import functools
import math
import pathlib
import re
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from zpp.jax._modules import bytecode_of, main_of, operations_in, type_of
from zpp.jax._proto import read_fields
from zpp.jax._tiles import Axis, groups_along


class PartitionError(ValueError):
    """A step could not be partitioned; the message says why."""


@dataclasses.dataclass(frozen=True)
class Program:
    """The program that XLA makes of a step for each of its devices."""

    #: A module of StableHLO, and the text of HLO.
    module: bytes
    text: str
    #: The part of each argument and of each result that a device has.
    inputs: list
    results: list


def run_partitioner(module: ir.Module, devices: int, with_shardy: bool,
                    chosen: list[bool]) -> Program:
    """The program of a device of a step, by Shardy or by the partitioner that preceded
    it. `chosen` says for each result whether XLA chooses which part of it a device
    has."""
    from jax._src.lib import _jax, xla_client
    from jaxlib import _hlo
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    build.num_partitions = devices
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = with_shardy
    build.allow_spmd_sharding_propagation_to_output = [*chosen, True]
    # All partitions are on the device that is there.
    build.device_assignment = xla_client.DeviceAssignment.create(
        np.zeros((1, devices), np.int64))
    client = _client()
    failure = None
    with tempfile.TemporaryDirectory(prefix="zpp-") as folder:
        options.env_option_overrides = [
            ("xla_dump_to", folder),
            ("xla_dump_hlo_pass_re", "spmd-partitioning"),
            ("xla_dump_hlo_as_proto", True), ("xla_dump_hlo_as_text", True),
            # XLA_FLAGS may say others.
            ("xla_dump_hlo_module_re", ".*"), ("xla_dump_max_hlo_modules", -1),
            ("xla_backend_optimization_level", 0),
            ("xla_llvm_disable_expensive_passes", True)]
        try:
            client.compile_and_load(
                _with_end(module),
                _jax.DeviceList(tuple(client.devices()) * devices), options)
        except Exception as error:
            # Everything fails after the partitioner.
            failure = error
        dumps = sorted(pathlib.Path(folder).glob("*after_spmd-partitioning*.hlo.pb"))
        if len(dumps) != 1:
            raise PartitionError(
                f"expected one dump of XLA's partitioner, but got {len(dumps)}"
                if failure is None else f"XLA refuses the step: {failure}"
            ) from failure
        content = hlo_module_in(dumps[0].read_bytes())
        text = dumps[0].with_name(
            dumps[0].name.replace(".hlo.pb", ".txt")).read_text()
    parts = _hlo.HloModule.from_serialized_hlo_module_proto(content)
    return Program(_jax.mlir.hlo_to_stablehlo(content), text, *(
        list(map(_hlo.HloSharding.from_proto, shardings)) for shardings in (
            parts.spmd_parameters_shardings,
            parts.spmd_output_sharding.tuple_shardings[:len(chosen)])))


def _with_end(module: ir.Module) -> ir.Module:
    """A copy with one more result, which nothing can compute. XLA notices it once it has
    partitioned the module, and does not go on to plan the program of a device, which
    takes most of its time and more than in proportion to the operations."""
    copy = ir.Module.parse(bytecode_of(module))
    main = main_of(copy)
    number = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    *_, end = main.regions[0].blocks[0].operations
    with ir.InsertionPoint(end), main.location:
        nothing = ir.Operation.create("stablehlo.custom_call", [number], attributes={
            "call_target_name": ir.StringAttr.get("zpp.end")})
    set_results(main, [*end.operands, nothing.result])
    if "res_attrs" in main.attributes:
        main.attributes["res_attrs"] = ir.ArrayAttr.get(
            [*main.attributes["res_attrs"], ir.DictAttr.get({})])
    return copy


def set_results(function: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Has a function return other values."""
    *_, end = function.regions[0].blocks[0].operations
    with ir.InsertionPoint(end), end.location:
        ir.Operation.create("func.return", operands=list(values))
    end.operation.erase()
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(
        type_of(function).inputs, [value.type for value in values]))


@functools.cache
def _client():
    """The client for one virtual device of the CPU."""
    from jax._src.lib import xla_client
    return xla_client.make_cpu_client(num_devices=1)


def hlo_module_in(proto: bytes) -> bytes:
    """The HloModuleProto in an HloProto: its field 1, which comes first."""
    number, _, module = next(read_fields(proto), (0, b"", b""))
    if number != 1 or not isinstance(module, bytes):
        raise PartitionError("expected an HloProto in the dump, but got "
                             "something else")
    return module


# Groups ----------------------------------------------------------------------

#: Groups along axes of a mesh, whose devices may have an order of their own. The
#: translation to StableHLO loses this order. JAX has no bindings for HLO's text.
_GROUP_AXES = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, *device_ids="
    r"\((?:\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d, ]+))\))? *\{([^}]*)\}")
_GROUPS = re.compile(r"channel_id=(\d+),.*" + _GROUP_AXES.pattern)


def groups_in(text: str) -> dict[int, np.ndarray]:
    """Reads from HLO's text the channels of collectives along axes of a mesh, and the
    devices of each of their groups, one row each."""
    found: dict[int, np.ndarray] = {}
    for line in text.splitlines():
        if "replica_groups=mesh[" not in line:
            continue
        match = _GROUPS.search(line)
        if not match:
            raise PartitionError(f"expected groups with a channel and axes of "
                                 f"a mesh, but got {line.strip()[:200]}")
        channel, axes, shape, order, ids, chosen = match.groups()
        groups = _groups_of(axes, shape, order, ids, chosen)
        if not np.array_equal(found.setdefault(int(channel), groups), groups):
            raise PartitionError(f"expected one list of groups for channel "
                                 f"{channel}, but got two")
    return found


def with_listed_groups(text: str) -> str:
    """HLO's text with lists of devices in place of groups along axes."""
    def write(match: re.Match) -> str:
        rows = _groups_of(*match.groups()).tolist()
        return "replica_groups={" + ",".join(
            "{" + ",".join(map(str, row)) + "}" for row in rows) + "}"

    return _GROUP_AXES.sub(write, text)


@functools.lru_cache(64)
def _groups_of(axes: str, shape: str | None, order: str | None, ids: str | None,
               chosen: str) -> np.ndarray:
    if ids:
        devices = np.array(_numbers(ids))
    else:
        sizes = (_numbers(shape) if shape else
                 [int(size) for size in re.findall(r"=(\d+)", axes)])
        devices = np.arange(math.prod(sizes)).reshape(sizes)
        if order:
            devices = devices.transpose(_numbers(order))
        devices = devices.ravel()
    # 'a'=4 has a name and a size, 'b':(2)2 also the number of places outside of it.
    lengths = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    return groups_along(devices, lengths, [
        Axis(name, int(size or lengths[name]), int(before or 1)) for name, before, size in
        re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", chosen)])


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def list_groups(groups: np.ndarray) -> ir.Attribute:
    return ir.DenseElementsAttr.get(np.ascontiguousarray(groups, np.int64))


def restore_groups(module: ir.Module, groups: dict[int, np.ndarray],
                   write: Callable[[np.ndarray], ir.Attribute] = list_groups) -> None:
    """Sets the groups of the collectives with the channels of `groups`."""
    missing = set(groups)
    # Those of the same text are one array.
    written: dict[int, ir.Attribute] = {}
    for operation in operations_in(module) if groups else ():
        attributes = operation.attributes
        if "replica_groups" not in attributes or "channel_handle" not in attributes:
            continue
        channel = stablehlo.ChannelHandle(attributes["channel_handle"]).handle
        if channel in groups:
            missing.discard(channel)
            found = groups[channel]
            if id(found) not in written:
                written[id(found)] = write(found)
            attributes["replica_groups"] = written[id(found)]
    if missing:
        raise PartitionError(f"expected a collective of channel "
                             f"{min(missing)}, but got none")


def drop_layouts(module: ir.Module) -> None:
    """Removes the layouts that XLA's translation notes at operations. They were
    inferred for the old program, and what replaces an operation would keep them."""
    for operation in operations_in(module):
        for name in ("xla_shape", "result_layout", "operand_layout"):
            if name in operation.attributes:
                del operation.attributes[name]
