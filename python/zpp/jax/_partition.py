# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps whose collectives XLA creates: shardings, and no collectives of their own.

XLA's partitioner turns such a step into the program of one device, with
explicit collectives. It becomes the body of one manual computation over all devices,
in a module with the signature of the step. A step that is one `jax.shard_map` has the
same form: of Shardy where the step has its meshes, and otherwise of the partitioner
that preceded it (GSPMD), as PyTorch/XLA and HLO have it.
"""

import math
import re
import time
from collections.abc import Callable

import numpy as np
from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import sdy

from zpp._compiler import logger
from zpp._warn import warn
from zpp.jax import _partition_cache, _partitioner, _placements, _tiles
from zpp.jax._callbacks import CALLS
from zpp.jax._modules import entries_of, main_of, string_in, symbol_of, text_of, type_of
from zpp.jax._partitioner import PartitionError, Program, groups_in
from zpp.jax._partitioner import list_groups, restore_groups, run_partitioner
from zpp.jax._partitioner import set_results
from zpp.jax._tiles import Axis, DeviceMesh

#: Custom calls at the border of a manual computation where it is no operation.
_ENTER = ("SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape")
_LEAVE = ("SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape")
#: Compute that decides where weights are gathered.
_PRODUCTS = {"stablehlo.dot_general", "stablehlo.dot",
             "stablehlo.convolution", "stablehlo.custom_call"}
#: Custom calls that only say how values are placed, or which shapes they have.
_MARKS = (*_ENTER, *_LEAVE, "Sharding", "shape_assertion",
          "annotate_device_placement", "xla.sdy.FuncResultSharding",
          "xla.sdy.PropagationBarrier")
_COLLECTIVES = {f"stablehlo.{name}" for name in (
    "all_gather", "all_reduce", "all_to_all", "collective_broadcast",
    "collective_permute", "reduce_scatter")}
#: The shardings of arguments and results, of Shardy and of its predecessor.
_SHARDINGS = ("sdy.sharding", "mhlo.sharding")
#: The number of devices of a module.
_COUNT = "mhlo.num_partitions"
#: The sizes in "{devices=[2,4]<=[8]}".
_TILES = re.compile(r"devices=\[([\d,]+)\]")
#: Shardy's attributes in HLO, and in StableHLO of it.
_IN_HLO = "xla.sdy."


def warn_of_shardings(reason: Exception) -> None:
    warn(f"zpp sees only the collectives that the step names itself, not those "
         f"that follow from its shardings: {reason}")


# What a module says ----------------------------------------------------------


class Sharded:
    """Facts of a module that decide whether XLA partitions it."""

    def __init__(self, module: ir.Module):
        """Reads a module. Nothing of it is kept."""
        self.has_shardings = False
        self.has_collectives = False
        #: It calls Python by numbers or addresses of this process.
        self.has_callbacks = False
        #: A manual computation leaves axes to XLA, and has collectives over others.
        self._has_partial = False
        #: The axes by hand around the operation that is read.
        self._by_hand: frozenset[str] = frozenset()
        #: The numbers of devices that it names.
        self._counts: set[int] = set()
        self._calls: dict[str, set[str]] = {}
        self._manual: set[str] = set()
        self._products: set[str] = set()
        attributes = module.operation.attributes
        self.mesh = _find_mesh(module)
        #: Its shardings are Shardy's.
        frontend = "mhlo.frontend_attributes"
        self.is_shardys = self.mesh is not None or (
            frontend in attributes and _IN_HLO in str(attributes[frontend]))
        #: It is what the partitioner has made.
        self._is_local = "mhlo.spmd_parameters_shardings" in attributes
        if _COUNT in attributes:
            self._counts.add(ir.IntegerAttr(attributes[_COUNT]).value)
        for operation in module.body.operations:
            if operation.operation.name == "func.func":
                self._read_function(operation.operation)
        if self.mesh and not self._counts:
            self._counts.add(self.mesh[1].size)
        pending = list(self._manual)
        while pending:
            for callee in self._calls.get(pending.pop(), set()) - self._manual:
                self._manual.add(callee)
                pending.append(callee)

    @property
    def devices(self) -> int:
        return max(self._counts, default=1)

    @property
    def needs_partitioning(self) -> bool:
        """Whether XLA decides where this step communicates: it has shardings, and
        matrix products outside of every manual computation (`jax.shard_map`) over all
        axes, or collectives in one over some, or no collectives."""
        return (self.devices > 1 and self.has_shardings and not self._is_local
                and (not self.has_collectives or self._has_partial
                     or not self._products <= self._manual))

    def _read_function(self, function: ir.Operation) -> None:
        self._function = symbol_of(function)
        self._calls[self._function] = set()
        for name in ("arg_attrs", "res_attrs"):
            for entries in entries_of(function, name):
                self._read_sharding(entries)
        for region in function.regions:
            self._read_region(region, set())

    def _read_region(self, region: ir.Region, manual: set | None) -> None:
        """manual: values of a manual computation; None where all are."""
        for block in region:
            for operation in block:
                self._read_operation(operation.operation, manual)

    def _read_operation(self, operation: ir.Operation, manual: set | None) -> None:
        name, attributes = operation.name, operation.attributes
        target = string_in(attributes, "call_target_name")
        is_manual = manual is None or any(
            operand in manual for operand in operation.operands)
        self._read_sharding(attributes)
        self.has_shardings |= name == "sdy.sharding_constraint"
        self.has_collectives |= name in _COLLECTIVES
        self._has_partial |= (name in _COLLECTIVES and bool(self._by_hand)
                              and not is_manual)
        self.has_callbacks |= target in CALLS
        if name in _PRODUCTS and target not in _MARKS and not is_manual:
            self._products.add(self._function)
        if name == "func.call":
            callee = ir.FlatSymbolRefAttr(attributes["callee"]).value
            (self._manual if is_manual else self._calls[self._function]).add(callee)
        if manual is not None and target not in _LEAVE and (
                is_manual or target in _ENTER):
            manual.update(operation.results)
        around = self._by_hand
        if name == "sdy.manual_computation":
            self.has_shardings = True
            self._by_hand = around.union(sdy.ManualAxesAttr(attributes["manual_axes"]))
            # What comes out of it is global again.
            is_manual = self.mesh is None or self._by_hand.issuperset(
                axis for axis, size in self.mesh[1].axes.items() if size > 1)
        for region in operation.regions:
            self._read_region(region, None if is_manual else manual)
        self._by_hand = around

    def _read_sharding(self, attributes) -> None:
        if "sdy.sharding" in attributes:
            self.has_shardings = True
        # Of several values, a sharding each.
        for tiles in _TILES.findall(string_in(attributes, "mhlo.sharding") or ""):
            self.has_shardings = True
            self._counts.add(math.prod(map(int, re.findall(r"\d+", tiles))))


def _find_mesh(module: ir.Module) -> tuple[str, DeviceMesh] | None:
    """The first mesh of the most devices, and its name."""
    found = None
    for operation in module.body.operations:
        if operation.operation.name == "sdy.mesh":
            attribute = sdy.MeshAttr(operation.attributes["mesh"])
            axes = {axis.name: axis.size
                    for axis in map(sdy.MeshAxisAttr, attribute.axes)}
            # A mesh without axes is one device.
            if axes and (found is None or math.prod(axes.values()) > found[1].size):
                found = symbol_of(operation), DeviceMesh(axes, attribute.device_ids)
    return found


# The step with collectives ---------------------------------------------------


def partition(module: ir.Module, name: str) -> str:
    """A module that needs it with explicit collectives, as text in the generic form. It
    may have operations that zpp-opt reads but an export cannot have. It is kept where JAX
    keeps what it compiles. `module` is of no more use; the name is for the log."""
    with module.context, ir.Location.unknown():
        sharded = Sharded(module)
        place = None if sharded.has_callbacks else _partition_cache.place_of(
            module, (__file__, _partitioner.__file__, _tiles.__file__))
        if place is not None and (kept := _partition_cache.read(place)) is not None:
            logger.info("the partitioned step '%s' is in JAX's compilation cache",
                        name)
            return kept
        start = time.monotonic()
        logger.info("XLA partitions the step '%s', which takes one more "
                    "compilation", name)
        main = _main_to_partition(module)
        placements = _placements.mark(module)
        program = run_partitioner(
            module, sharded.devices, sharded.is_shardys,
            [not any(sharding in entries for sharding in _SHARDINGS)
             for entries in entries_of(main, "res_attrs")])
        logger.info("XLA has partitioned the step '%s' in %.1f s", name,
                    time.monotonic() - start)
        _wrap(module, main, program, sharded.mesh)
        if lost := _placements.restore(module, placements):
            raise PartitionError(f"XLA for CPUs has lost what the step puts or computes "
                                 f"on {', '.join(sorted(lost))}")
        # HLO does not say it, but its shardings do.
        module.operation.attributes[_COUNT] = ir.IntegerAttr.get(
            ir.IntegerType.get_signless(32), sharded.devices)
        text = text_of(module)
        if place is not None:
            _partition_cache.write(place, text)
        return text


def _main_to_partition(module: ir.Module) -> ir.Operation:
    """Finds the main function. Raises PartitionError if XLA cannot partition it ahead."""
    try:
        main = main_of(module)
    except ValueError as error:
        raise PartitionError(str(error)) from None
    for value in type_of(main).inputs:
        if isinstance(value, ir.RankedTensorType) and not value.has_static_shape:
            raise PartitionError(
                f"expected arguments of known sizes for XLA to partition, but got "
                f"{value}; export the step for the numbers that it is to run with, "
                f"or name its collectives in a jax.shard_map")
    name = "mhlo.num_replicas"
    attributes = module.operation.attributes
    replicas = ir.IntegerAttr(attributes[name]).value if name in attributes else 1
    if replicas > 1:
        raise PartitionError(f"expected one replica of a step with shardings, but "
                             f"got {replicas}")
    return main


def _wrap(module: ir.Module, main: ir.Operation, program: Program,
          mesh: tuple[str, DeviceMesh] | None) -> None:
    """Puts the program of a device into the step `module`, of which `main` stays."""
    border = _Gspmd() if mesh is None else _Shardy(*mesh)
    for operation in list(module.body.operations):
        if operation.operation.name == "func.func" and operation != main:
            operation.operation.erase()
    local = _read_program(program, border, set(map(symbol_of, module.body.operations)))
    body = main_of(local, _BODY)
    body.attributes["sym_visibility"] = ir.StringAttr.get("private")
    *_, end = body.regions[0].blocks[0].operations
    *values, nothing = end.operands
    set_results(body, values)
    nothing.owner.erase()
    # They are XLA's: shardings and layouts of its parameters.
    for name in ("arg_attrs", "res_attrs"):
        if name in body.attributes:
            del body.attributes[name]
    global_type, local_type = type_of(main), type_of(body)
    for what, shardings, whole, part in (
            ("arguments", program.inputs, global_type.inputs, local_type.inputs),
            ("results", program.results, global_type.results, local_type.results)):
        if not len(shardings) == len(whole) == len(part):
            raise PartitionError(f"expected {len(whole)} {what} of the partitioned "
                                 f"program, but got {len(part)}")
        for value in zip(shardings, whole, part):
            _check_parts(*value)
    entry = main.regions[0].blocks[0]
    for operation in reversed(list(entry.operations)):
        operation.operation.erase()

    def call(operands):
        return list(ir.Operation.create(
            "func.call", results=local_type.results, operands=operands,
            attributes={"callee": ir.FlatSymbolRefAttr.get(symbol_of(body))}).results)

    with ir.InsertionPoint(entry), main.location:
        ir.Operation.create("func.return", operands=border.build(
            list(entry.arguments), local_type.inputs, global_type.results, call,
            program))
    for operation in list(local.body.operations):
        operation.operation.detach_from_parent()
        module.body.append(operation)
    _drop_unused(module)
    if not module.operation.verify():
        raise PartitionError("its partitioned program does not verify")


def _check_parts(sharding, whole: ir.Type, part: ir.Type) -> None:
    """Raises PartitionError if parts differ in size: XLA pads, and nobody knows of it."""
    if isinstance(whole, ir.RankedTensorType) and sharding.is_tiled():
        tiles = sharding.tile_assignment_dimensions()[:whole.rank]
        if [size * count for size, count in zip(part.shape, tiles)] != whole.shape:
            raise PartitionError(f"expected arguments and results whose dims divide "
                                 f"by their shardings, but got {whole} with "
                                 f"{sharding}")


def _read_program(program: Program, border: "_Gspmd | _Shardy", taken: set[str]
                  ) -> ir.Module:
    """The program of a device, with the groups that HLO's text has, and without the
    symbols `taken` of the step. The translation to StableHLO loses the order of devices,
    and mixes up meshes where there are several."""
    try:
        local = ir.Module.parse(program.module)
    except ir.MLIRError as error:
        raise PartitionError(f"its partitioned program is not StableHLO: "
                             f"{error}") from None
    # Each name takes a walk through the program, which may have thousands.
    for operation in list(local.body.operations):
        name = symbol_of(operation)
        if name in taken or name == _BODY:
            new = _BODY if name == "main" else f"partitioned_{name}"
            ir.SymbolTable.replace_all_symbol_uses(name, new, local.operation)
            ir.SymbolTable.set_symbol_name(operation, new)
    restore_groups(local, groups_in(program.text), border.write_groups)
    return local


#: The function of a device's program.
_BODY = "partitioned_main"


class _Gspmd:
    """The border of a manual computation as custom calls."""

    def build(self, arguments: list, parts: list, results: list,
              call: Callable[[list], list], program: Program) -> list:
        def enter(value, part, sharding):
            marked = self._mark("Sharding", value, value.type, str(sharding))
            return self._mark("SPMDFullToShardShape", marked, part, "{manual}")

        def leave(value, whole, sharding):
            marked = self._mark("Sharding", value, value.type, "{manual}")
            return self._mark("SPMDShardToFullShape", marked, whole, str(sharding))

        return list(map(leave, call(list(map(
            enter, arguments, parts, program.inputs))), results, program.results))

    write_groups = staticmethod(list_groups)

    @staticmethod
    def _mark(target: str, value: ir.Value, result: ir.Type, sharding: str
              ) -> ir.Value:
        return ir.Operation.create(
            "stablehlo.custom_call", results=[result], operands=[value], attributes={
                "call_target_name": ir.StringAttr.get(target),
                "mhlo.sharding": ir.StringAttr.get(sharding)}).result


class _Shardy:
    """`sdy.manual_computation` over all axes of a mesh."""

    def __init__(self, name: str, mesh: DeviceMesh):
        self._name, self._mesh = name, mesh
        #: The axes of each dim by the sharding, of which a step has few.
        self._dims: dict[str, list] = {}

    def build(self, arguments: list, parts: list, results: list,
              call: Callable[[list], list], program: Program) -> list:
        def per_value(shardings, types):
            return sdy.TensorShardingPerValueAttr.get(
                list(map(self._make_sharding, shardings, types)))

        manual = ir.Operation.create(
            "sdy.manual_computation", results=results, operands=arguments, regions=1,
            attributes={
                "in_shardings": per_value(
                    program.inputs, [value.type for value in arguments]),
                "out_shardings": per_value(program.results, results),
                "manual_axes": sdy.ManualAxesAttr.get(
                    list(map(ir.StringAttr.get, self._mesh.axes)))})
        block = ir.Block.create_at_start(
            manual.regions[0], list(parts), [ir.Location.current] * len(parts))
        with ir.InsertionPoint(block):
            ir.Operation.create("sdy.return", operands=call(list(block.arguments)))
        return list(manual.results)

    def _make_sharding(self, sharding, value: ir.Type) -> sdy.TensorShardingAttr:
        rank = value.rank if isinstance(value, ir.RankedTensorType) else 0
        dims: list[list[Axis] | None] = [[] for _ in range(rank)]
        if sharding.is_tiled():
            name = str(sharding)
            if name not in self._dims:
                self._dims[name] = self._find_dims(sharding)
            dims = self._dims[name][:rank]
        if None in dims or not (sharding.is_tiled() or sharding.is_replicated()):
            raise PartitionError(
                f"expected shardings over the axes {', '.join(self._mesh.axes)}, but "
                f"got {sharding}; name out_shardings in jax.jit")
        return sdy.TensorShardingAttr.get(self._name, [
            sdy.DimensionShardingAttr.get(list(map(self._make_axis, axes or [])),
                                          is_closed=True) for axes in dims])

    def _find_dims(self, sharding) -> list[list[Axis] | None]:
        """The axes of each dim, and of what is replicated."""
        shape = sharding.tile_assignment_dimensions()
        devices = np.array(sharding.tile_assignment_devices())
        places = np.empty((len(shape), len(devices)), np.int64)
        places[:, devices] = np.unravel_index(np.arange(len(devices)), shape)
        return list(map(self._mesh.find_axes, places))

    def _make_axis(self, axis: Axis) -> sdy.AxisRefAttr:
        return sdy.AxisRefAttr.get(axis.name, (
            None if axis.size == self._mesh.axes[axis.name]
            else sdy.SubAxisInfoAttr.get(axis.before, axis.size)))

    def write_groups(self, groups: np.ndarray) -> ir.Attribute:
        """Groups as axes, which take no room however many devices there are."""
        axes = self._mesh.find_group_axes(groups)
        if axes is None:
            return list_groups(groups)
        return ir.Attribute.parse(
            f"#stablehlo.replica_group_mesh_axes<mesh = @{self._name}, axes = ["
            + ", ".join(
                f'#stablehlo.axis_ref<name = "{axis.name}"' + (
                    "" if axis.size == self._mesh.axes[axis.name] else
                    f", sub_axis_info = ({axis.before}){axis.size}") + ">" for axis in axes)
            + "]>")


def _drop_unused(module: ir.Module) -> None:
    """Erases functions and meshes that nothing names."""
    meshes = [operation for operation in module.body.operations
              if operation.operation.name == "sdy.mesh"]
    visibility = "sym_visibility"
    for mesh in meshes:
        mesh.attributes[visibility] = ir.StringAttr.get("private")
    passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module.operation)
    for operation in module.body.operations:
        if operation.operation.name == "sdy.mesh":
            del operation.attributes[visibility]
