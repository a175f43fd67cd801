# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps whose collectives XLA creates: `jax.jit` with shardings.

XLA's partitioner turns such a step into the program of one device, with
explicit collectives. Here this happens ahead of time: the exported module is
compiled once, and the partitioned program is taken from a dump. It becomes the
body of one manual computation over all devices, in a module with the signature
of the step. A step that is one `jax.shard_map` has the same form.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Iterator

import jax
import numpy as np
from jax.extend import source_info_util
from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import sdy, stablehlo
from jax.interpreters.mlir import make_ir_context
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from zpp._compiler import logger
from zpp._warn import warn
from zpp.jax import _partition_cache


# Locations of ops are lines of the step, and never of this file.
source_info_util.register_exclusion(__file__)


class PartitionError(ValueError):
    """A step could not be partitioned; the message says why."""


#: Compute that decides where weights are gathered.
_PRODUCTS = {"stablehlo.dot_general", "stablehlo.dot",
             "stablehlo.convolution", "stablehlo.custom_call"}
#: Custom calls that only say how values are placed.
_MARKS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape")


def needs_partitioning(module: ir.Module, devices: int) -> bool:
    """Whether XLA decides where this step communicates: it has shardings, and
    matrix products outside of every manual computation (`jax.shard_map`)."""
    if devices == 1 or _find_mesh(module, devices) is None:
        return False
    manual = _called_in_manual(module)
    return any(_has_global_product(operation.operation)
               for operation in module.body.operations
               if operation.operation.name == "func.func"
               and _symbol(operation) not in manual)


def warn_of_shardings(reason: Exception) -> None:
    warn(f"zpp sees only the collectives that the step names itself, not those "
         f"that follow from its shardings: {reason}")


def count_partitions(module: ir.Module) -> int:
    name = "mhlo.num_partitions"
    attributes = module.operation.attributes
    return (ir.IntegerAttr(attributes[name]).value if name in attributes
            else 1)


def partition(exported: jax.export.Exported, mesh: Mesh | None) -> str:
    """The module of an exported step with explicit collectives, as text in the generic
    form. It may have operations that zpp-opt reads but an export cannot have. It is
    kept where JAX keeps what it compiles.

    mesh: the devices of the step, where it has any.

    Raises:
      PartitionError: with the reason.
    """
    with make_ir_context() as context, ir.Location.unknown():
        module = stablehlo.deserialize_portable_artifact(
            context, exported.mlir_module_serialized)
        found = _find_mesh(module, exported.nr_devices)
        assert found is not None, "needs_partitioning"
        name, axes = found
        mesh = _devices_for(exported, mesh, axes)
        place = _partition_cache.place_of(exported, mesh, __file__)
        if place is not None and (kept := _partition_cache.read(place)) is not None:
            logger.info("the partitioned step '%s' is in JAX's compilation cache",
                        exported.fun_name)
            return kept
        start = time.monotonic()
        logger.info("XLA partitions the step '%s', which takes one more "
                    "compilation", exported.fun_name)
        local, text, inputs, results = _partition_by_compiling(
            exported, mesh, _Shardings.read(exported, module, mesh))
        logger.info("XLA has partitioned the step '%s' in %.1f s",
                    exported.fun_name, time.monotonic() - start)
        try:
            partitioned = ir.Module.parse(local, context)
        except ir.MLIRError as error:
            raise PartitionError(f"its partitioned program is not StableHLO: "
                                 f"{error}") from None
        restore_groups(partitioned, groups_in(text))
        _wrap(module, partitioned, name, mesh, inputs, results,
              exported.module_kept_var_idx)
        text = module.operation.get_asm(print_generic_op_form=True,
                                        enable_debug_info=True)
        if place is not None:
            _partition_cache.write(place, text)
        return text


# The module ------------------------------------------------------------------


def _symbol(operation) -> str:
    return ir.StringAttr(operation.attributes["sym_name"]).value


def _find_mesh(module: ir.Module, devices: int
               ) -> tuple[str, dict[str, int]] | None:
    """Name and axes of the first mesh of all devices."""
    for operation in module.body.operations:
        if operation.operation.name != "sdy.mesh":
            continue
        mesh = sdy.MeshAttr(operation.attributes["mesh"])
        axes = {axis.name: axis.size
                for axis in map(sdy.MeshAxisAttr, mesh.axes)}
        if math.prod(axes.values()) == devices and not list(mesh.device_ids):
            return _symbol(operation), axes
    return None


def _called_in_manual(module: ir.Module) -> set[str]:
    """Functions that manual computations call, directly or not."""
    calls: dict[str, set[str]] = {}
    found: set[str] = set()
    for operation in module.body.operations:
        if operation.operation.name == "func.func":
            own = calls.setdefault(_symbol(operation), set())
            _collect_calls(operation.operation, own, found)
    pending = list(found)
    while pending:
        for callee in calls.get(pending.pop(), ()):
            if callee not in found:
                found.add(callee)
                pending.append(callee)
    return found


def _collect_calls(operation: ir.Operation, own: set[str], manual: set[str]):
    def visit(inner):
        if inner.name == "func.call":
            own.add(ir.FlatSymbolRefAttr(inner.attributes["callee"]).value)
        if inner.name == "sdy.manual_computation" and own is not manual:
            _collect_calls(inner, manual, manual)
            return ir.WalkResult.SKIP
        return ir.WalkResult.ADVANCE

    for region in operation.regions:
        for block in region:
            for inner in block:
                inner.operation.walk(visit, ir.WalkOrder.PRE_ORDER)


def _has_global_product(function: ir.Operation) -> bool:
    found = False

    def visit(operation):
        nonlocal found
        if operation.name == "sdy.manual_computation":
            return ir.WalkResult.SKIP
        if operation.name in _PRODUCTS and (
                "call_target_name" not in operation.attributes or
                ir.StringAttr(operation.attributes["call_target_name"]).value
                not in _MARKS):
            found = True
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    function.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


# The partitioner -------------------------------------------------------------


def _devices_for(exported: jax.export.Exported, mesh: Mesh | None,
                 axes: dict[str, int]) -> Mesh:
    """The devices of the step, or as many others as it needs: the result does
    not depend on the choice."""
    count = exported.nr_devices
    for given in (mesh, jax.sharding.get_mesh()):
        if isinstance(given, Mesh) and given.size == count:
            return given
    devices = next((devices for devices in (jax.devices(), jax.devices("cpu"))
                    if len(devices) >= count), None)
    if devices is None:
        raise PartitionError(
            f"expected {count} devices to partition it for, but got "
            f"{len(jax.devices())}; jax_num_cpu_devices gives virtual ones")
    return Mesh(np.array(devices[:count]).reshape(list(axes.values())),
                tuple(axes))


def provide_devices(count: int) -> None:
    """Makes so many virtual devices, if JAX has not looked for devices yet."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "host_platform_device_count" in flags or (
            jax.config.jax_num_cpu_devices >= count):
        return
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", count)


#: Options that make the extra compilation cheap, by platform.
_CHEAP = {"cpu": {"xla_backend_optimization_level": 0,
                  "xla_llvm_disable_expensive_passes": True},
          "gpu": {"xla_gpu_autotune_level": 0}}


@dataclasses.dataclass(frozen=True)
class _Shardings:
    """Those that a step asks for; None where XLA may choose."""

    #: The shardings of all flat arguments.
    inputs: list[NamedSharding | None]
    #: The shardings of all flat results; None if the exported function has them itself.
    results: list[NamedSharding | None] | None
    #: The mesh for both, if it is not that of the context.
    mesh: Mesh | None = None

    @classmethod
    def read(cls, exported: jax.export.Exported, module: ir.Module,
             mesh: Mesh) -> "_Shardings":
        inputs = list(exported.in_shardings_jax(mesh))
        if any(sharding is not None for sharding in (
                *inputs, *exported.out_shardings_jax(mesh))):
            return cls(inputs, None)
        # A step that was read from a module has them in its attributes alone. Its
        # results can be constrained if no axis is explicit.
        mesh = Mesh(mesh.devices, mesh.axis_names)
        main = ir.SymbolTable(module.operation)["main"].operation
        for index, sharding in zip(exported.module_kept_var_idx,
                                   _read_shardings(main, "arg_attrs", mesh)):
            inputs[index] = sharding
        return cls(inputs, _read_shardings(main, "res_attrs", mesh), mesh)


def _read_shardings(main: ir.Operation, attributes: str, mesh: Mesh
                    ) -> list[NamedSharding | None]:
    if attributes not in main.attributes:
        return []
    return [_read_sharding(entries["sdy.sharding"], mesh)
            if "sdy.sharding" in entries else None
            for entries in main.attributes[attributes]]


def _read_sharding(attribute: ir.Attribute, mesh: Mesh) -> NamedSharding:
    """`#sdy.sharding<@mesh, [{"x", "y"}, {}]>`."""
    dims = [list(map(sdy.AxisRefAttr, sdy.DimensionShardingAttr(dim).axes))
            for dim in sdy.TensorShardingAttr(attribute).dimension_shardings]
    if any(axis.sub_axis_info for axes in dims for axis in axes):
        raise PartitionError(f"expected shardings over whole axes, but got "
                             f"{attribute}")
    return NamedSharding(mesh, PartitionSpec(*(
        tuple(axis.name for axis in axes) for axes in dims)))


def _partition_by_compiling(exported: jax.export.Exported, mesh: Mesh,
                            shardings: _Shardings
                            ) -> tuple[bytes, str, list, list]:
    """The program of a device, also as the text of HLO, and the shardings of all
    flat arguments and results."""
    exported = dataclasses.replace(exported, disabled_safety_checks=(
        *exported.disabled_safety_checks,
        jax.export.DisabledSafetyCheck.platform()))
    whole = NamedSharding(mesh, PartitionSpec())
    arguments = [
        jax.ShapeDtypeStruct(
            aval.shape, aval.dtype,
            sharding=sharding if isinstance(sharding, NamedSharding) else whole)
        for aval, sharding in zip(exported.in_avals, shardings.inputs)]

    def call(*leaves):
        args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
        results = jax.tree.leaves(exported.call(*args, **kwargs))
        return [result if sharding is None else
                jax.lax.with_sharding_constraint(result, sharding)
                for result, sharding in itertools.zip_longest(
                    results, shardings.results or ())]

    with tempfile.TemporaryDirectory(prefix="zpp-") as folder:
        try:
            with no_cache(), (jax.set_mesh(shardings.mesh) if shardings.mesh
                               else contextlib.nullcontext()):
                compiled = jax.jit(call).lower(*arguments).compile({
                    "xla_dump_to": folder,
                    "xla_dump_hlo_pass_re": "spmd-partitioning",
                    "xla_dump_hlo_as_proto": True,
                    "xla_dump_hlo_as_text": True,
                    # XLA_FLAGS may say others.
                    "xla_dump_hlo_module_re": ".*",
                    "xla_dump_max_hlo_modules": -1,
                    **_CHEAP.get(mesh.devices.flat[0].platform, {})})
        except Exception as error:
            # If the step itself is wrong, its compilation reports it later.
            raise PartitionError(f"XLA does not compile it: {error}"
                                 ) from error
        dumps = list(pathlib.Path(folder).glob(
            "*after_spmd-partitioning*.hlo.pb"))
        if len(dumps) != 1:
            raise PartitionError(f"expected one dump of the partitioner, but "
                                 f"got {len(dumps)}")
        content = hlo_module_in(dumps[0].read_bytes())
        text = "".join(path.read_text() for path in pathlib.Path(folder).glob(
            "*after_spmd-partitioning*.txt"))
    from jaxlib import _jax
    return (_jax.mlir.hlo_to_stablehlo(content), text,
            jax.tree.leaves(compiled.input_shardings),
            jax.tree.leaves(compiled.output_shardings))


@contextlib.contextmanager
def no_cache() -> Iterator[None]:
    """Compiles even if JAX's persistent compilation cache has the result: XLA
    dumps nothing for what comes from the cache."""
    from jax._src import compilation_cache
    is_used = compilation_cache.is_cache_used
    compilation_cache.is_cache_used = lambda *_: False
    try:
        yield
    finally:
        compilation_cache.is_cache_used = is_used


def hlo_module_in(proto: bytes) -> bytes:
    """The HloModuleProto in an HloProto: its field 1, which comes first."""
    size, position = 0, 1
    if proto[:1] != b"\x0a":
        raise PartitionError("expected an HloProto in the dump, but got "
                             "something else")
    while True:
        byte = proto[position]
        size |= (byte & 0x7f) << 7 * (position - 1)
        position += 1
        if byte < 0x80:
            return proto[position:position + size]


# Groups ----------------------------------------------------------------------

#: Groups along axes of a mesh whose devices have an order of their own. The
#: translation to StableHLO loses this order. JAX has no bindings for HLO's text.
_GROUPS = re.compile(
    r"channel_id=(\d+),.*replica_groups=mesh\[([^\]]*)\](?:, *device_ids="
    r"\((?:\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d, ]+))\))? *\{([^}]*)\}")


def groups_in(text: str, is_of_all: bool = False) -> dict[int, np.ndarray]:
    """Reads from HLO's text the channels of collectives along such axes, or along
    axes of any mesh, and the devices of each of their groups, one row each."""
    found: dict[int, np.ndarray] = {}
    marker = "replica_groups=mesh[" if is_of_all else "device_ids=("
    for line in text.splitlines():
        if marker not in line:
            continue
        match = _GROUPS.search(line)
        if not match:
            raise PartitionError(f"expected groups with a channel and axes of "
                                 f"a mesh, but got {line.strip()[:200]}")
        channel, axes, shape, order, ids, chosen = match.groups()
        if ids:
            devices = np.array(_numbers(ids))
        else:
            sizes = (_numbers(shape) if shape else
                     [int(size) for size in re.findall(r"=(\d+)", axes)])
            devices = np.arange(math.prod(sizes)).reshape(sizes)
            if order:
                devices = devices.transpose(_numbers(order))
            devices = devices.ravel()
        groups = _groups_along(devices, axes, chosen)
        if not np.array_equal(found.setdefault(int(channel), groups), groups):
            raise PartitionError(f"expected one list of groups for channel "
                                 f"{channel}, but got two")
    return found


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _groups_along(devices: np.ndarray, axes: str, chosen: str) -> np.ndarray:
    """The groups along `chosen` ('a', 'b':(2)2) on a mesh of `axes` ('a'=4)."""
    sizes = {name: int(size)
             for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    wanted = [(name, int(pre or 1), int(size or sizes[name]))
              for name, pre, size in re.findall(
                  r"'([^']*)'(?::\((\d+)\)(\d+))?", chosen)]
    # Every place where a part of an axis begins or ends.
    cuts = {name: {1, size} for name, size in sizes.items()}
    for name, pre, size in wanted:
        cuts[name] |= {pre, pre * size}
    shape: list[int] = []
    places: dict[tuple[str, int], int] = {}
    for name in sizes:
        ordered = sorted(cuts[name])
        for begin, end in zip(ordered, ordered[1:]):
            places[name, begin] = len(shape)
            shape.append(end // begin)
    inner = [places[name, begin] for name, pre, size in wanted
             for begin in sorted(cuts[name]) if pre <= begin < pre * size]
    outer = [place for place in range(len(shape)) if place not in inner]
    size = math.prod(shape[place] for place in inner)
    return devices.reshape(shape).transpose(outer + inner).reshape(-1, size)


def restore_groups(module: ir.Module, groups: dict[int, np.ndarray]) -> None:
    """Lists the devices of the collectives with the channels of `groups`."""
    missing = set(groups)

    def visit(operation):
        if "replica_groups" in operation.attributes and (
                "channel_handle" in operation.attributes):
            channel = stablehlo.ChannelHandle(
                operation.attributes["channel_handle"]).handle
            if channel in groups:
                missing.discard(channel)
                operation.attributes["replica_groups"] = (
                    ir.DenseElementsAttr.get(
                        np.ascontiguousarray(groups[channel], np.int64)))
        return ir.WalkResult.ADVANCE

    if groups:
        module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    if missing:
        raise PartitionError(f"expected a collective of channel "
                             f"{min(missing)}, but got none")


def drop_layouts(module: ir.Module) -> None:
    """Removes the layouts that XLA's translation notes at operations. They were
    inferred for the old program, and what replaces an operation would keep them."""
    def visit(operation):
        for name in ("xla_shape", "result_layout", "operand_layout"):
            if name in operation.attributes:
                del operation.attributes[name]
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)


# One manual computation ------------------------------------------------------


def _wrap(module: ir.Module, local: ir.Module, mesh_name: str, mesh: Mesh,
          inputs: list, results: list, kept: tuple[int, ...]) -> None:
    """Puts the program of a device into `module`, the step. `main` keeps its
    signature, and everything else is erased."""
    symbols = ir.SymbolTable(module.operation)
    main = symbols["main"].operation
    for operation in list(module.body.operations):
        if operation.operation.name == "func.func" and operation != main:
            operation.operation.erase()
    body = _rename(local)

    function = ir.FunctionType(
        ir.TypeAttr(main.attributes["function_type"]).value)
    local_type = ir.FunctionType(
        ir.TypeAttr(body.attributes["function_type"]).value)
    entry = main.regions[0].blocks[0]
    for operation in reversed(list(entry.operations)):
        operation.operation.erase()
    if len(local_type.inputs) != len(inputs):
        raise PartitionError(f"expected {len(inputs)} arguments of the "
                             f"partitioned program, but got "
                             f"{len(local_type.inputs)}")

    def per_value(shardings, types):
        return sdy.TensorShardingPerValueAttr.get([
            _make_sharding(sharding, ir.RankedTensorType(value).rank,
                           mesh_name, mesh)
            for sharding, value in zip(shardings, types)])

    location = main.location
    with ir.InsertionPoint(entry), location:
        manual = ir.Operation.create(
            "sdy.manual_computation", results=function.results,
            operands=list(entry.arguments), regions=1, attributes={
                "in_shardings": per_value([inputs[index] for index in kept],
                                          function.inputs),
                "out_shardings": per_value(results, function.results),
                "manual_axes": sdy.ManualAxesAttr.get(
                    list(map(ir.StringAttr.get, mesh.axis_names)))})
        ir.Operation.create("func.return", operands=list(manual.results))
    block = ir.Block.create_at_start(
        manual.regions[0], [local_type.inputs[index] for index in kept],
        [location] * len(kept))
    with ir.InsertionPoint(block), location:
        operands = dict(zip(kept, block.arguments))
        for index, value in enumerate(local_type.inputs):
            if index not in operands:
                # Neither the step nor the program uses this argument.
                operands[index] = _zeros(value)
        call = ir.Operation.create(
            "func.call", results=local_type.results,
            operands=[operands[index] for index in sorted(operands)],
            attributes={"callee": ir.FlatSymbolRefAttr.get(_symbol(body))})
        ir.Operation.create("sdy.return", operands=list(call.results))
    for operation in list(local.body.operations):
        operation.operation.detach_from_parent()
        module.body.append(operation)
    passmanager.PassManager.parse("builtin.module(symbol-dce)").run(
        module.operation)
    module.operation.verify()


def _rename(local: ir.Module) -> ir.Operation:
    """Gives the functions of the partitioned program names that the step does
    not have. Returns its main function."""
    body = None
    for operation in list(local.body.operations):
        name = _symbol(operation)
        ir.SymbolTable.replace_all_symbol_uses(
            name, f"partitioned_{name}", local.operation)
        ir.SymbolTable.set_symbol_name(operation, f"partitioned_{name}")
        if name == "main":
            body = operation.operation
    if body is None:
        raise PartitionError("expected a main function in the partitioned "
                             "program, but got none")
    body.attributes["sym_visibility"] = ir.StringAttr.get("private")
    # They are XLA's: shardings and layouts of its parameters.
    for name in ("arg_attrs", "res_attrs"):
        if name in body.attributes:
            del body.attributes[name]
    return body


def _zeros(value: ir.Type) -> ir.Value:
    tensor = ir.RankedTensorType(value)
    element = tensor.element_type
    zero = (ir.FloatAttr.get(element, 0) if isinstance(element, ir.FloatType)
            else ir.IntegerAttr.get(element, 0))
    return ir.Operation.create(
        "stablehlo.constant", results=[tensor], attributes={
            "value": ir.DenseElementsAttr.get_splat(tensor, zero)}).result


def _make_sharding(sharding, rank: int, mesh_name: str, mesh: Mesh
                   ) -> sdy.TensorShardingAttr:
    """A sharding as Shardy has it, over the axes of `mesh`."""
    if isinstance(sharding, NamedSharding) and (
            dict(sharding.mesh.shape) == dict(mesh.shape)):
        spec = sharding.spec
    else:
        from jax._src.sharding_impls import parse_flatten_op_sharding
        try:
            (spec,) = parse_flatten_op_sharding(
                sharding._to_xla_hlo_sharding(rank), mesh)
        except Exception as error:
            raise PartitionError(
                f"expected a sharding over the axes "
                f"{', '.join(mesh.axis_names)}, but got {sharding}; name "
                f"out_shardings in jax.jit ({error})") from None
    dims = [names if isinstance(names, tuple) else
            () if names is None else (names,) for names in spec]
    dims += [()] * (rank - len(dims))
    return sdy.TensorShardingAttr.get(mesh_name, [
        sdy.DimensionShardingAttr.get(list(map(sdy.AxisRefAttr.get, names)),
                                      is_closed=True) for names in dims])
