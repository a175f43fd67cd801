# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hook in XLA's compiler, and all that zpp takes for granted about it.

`jax.extend.xla.register_hlo_module_transformation` hands over each module that
XLA compiles for NVIDIA GPUs, as a serialized HloModuleProto, after the
partitioner and before layouts, fusions and the schedule. It is new and may
change; so may the private parts of JAX that this file uses. `probe` says whether
this JAX keeps the contract. Nothing else in zpp depends on it. `_modules` makes HLO of
StableHLO, for files as well, and `_processes` asks JAX's coordination service.
"""

import dataclasses
import functools
import hashlib
import itertools
import re
import sys
from collections.abc import Callable

import jax
from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context

from zpp.jax._modules import text_of, to_hlo
from zpp.jax._partitioner import drop_layouts, groups_in, restore_groups
from zpp.jax._proto import messages_in, numbers_in, read_fields, read_numbers
from zpp.jax._proto import replace_field, write_field

#: The oldest JAX whose hook was seen to work on GPUs.
OLDEST = (0, 11)
#: JAX's name for the platform.
_PLATFORM = "cuda"
_USE_JIT = "zpp.jit works without the hook"


class ContractError(RuntimeError):
    """Says what this JAX does not do as zpp expects it of the hook."""


# Registration -----------------------------------------------------------------


def obstacle() -> str | None:
    """The reason why the hook cannot be used in this process, or None."""
    if jax.__version_info__ < OLDEST:
        return (f"expected JAX {'.'.join(map(str, OLDEST))} or later, whose "
                f"compiler calls zpp on GPUs, but got {jax.__version__}; "
                f"{_USE_JIT}")
    try:
        from jax.extend.xla import register_hlo_module_transformation  # noqa: F401
    except ImportError:
        return (f"expected jax.extend.xla.register_hlo_module_transformation, "
                f"but JAX {jax.__version__} has none; {_USE_JIT}")
    platforms = _initialized_platforms()
    if platforms and _PLATFORM not in platforms:
        return (f"expected NVIDIA GPUs, whose compiler calls zpp, but JAX runs "
                f"on {', '.join(sorted(platforms))}; {_USE_JIT}")
    if jax.config.jax_share_binary_between_hosts:
        return (f"expected each process to compile, but got "
                f"jax_share_binary_between_hosts=True; {_USE_JIT}")
    return None


def _initialized_platforms() -> set[str]:
    """The platforms that JAX has looked for devices of and found some."""
    from jax._src import xla_bridge
    if not xla_bridge.backends_are_initialized():
        return set()
    return set(xla_bridge.backends())


def has_gpus() -> bool:
    """Whether JAX uses NVIDIA GPUs; False if it has not looked for devices."""
    return _PLATFORM in _initialized_platforms()


@functools.cache
def register(callback: Callable[[bytes], bytes | None]) -> None:
    """Lets XLA call `callback`, from any thread, for each module that it compiles."""
    from jax._src import xla_bridge
    if xla_bridge.backends_are_initialized():
        _register_now(callback)
        return
    # JAX's function looks for devices, which must not be before the program has
    # called jax.distributed.initialize. So it is called once the program looks.
    look = xla_bridge.backends
    is_done = False

    def look_and_register():
        nonlocal is_done
        found = look()
        if not is_done:
            is_done = True
            try:
                _register_now(callback)
            except Exception as error:
                print(f"zpp: nothing is rewritten: JAX {jax.__version__} does "
                      f"not take zpp: {error}; {_USE_JIT}", file=sys.stderr,
                      flush=True)
        return found

    xla_bridge.backends = look_and_register


def _register_now(callback: Callable[[bytes], bytes | None]) -> None:
    """Registers it where there are GPUs."""
    from jax.extend.xla import register_hlo_module_transformation
    if has_gpus():
        register_hlo_module_transformation(callback, name="zpp",
                                           platforms=_PLATFORM)


@functools.cache
def extend_cache_keys(key: Callable[[], str], is_bypassed: Callable[[], bool]) -> None:
    """Adds `key` to the keys of JAX's persistent compilation cache, which know of no
    transformation of modules. While `is_bypassed`, nothing is read or written."""
    from jax._src import cache_key, compilation_cache
    other_key, is_used = cache_key.custom_hook, compilation_cache.is_cache_used
    cache_key.custom_hook = lambda: other_key() + key()
    compilation_cache.is_cache_used = lambda *arguments: (
        is_used(*arguments) and not is_bypassed())


# Modules ----------------------------------------------------------------------

#: Fields of HloModuleProto by what zpp does with them.
_NAME, _ENTRY_NAME, _COMPUTATIONS, _ENTRY_ID = 1, 2, 3, 6
_SCHEDULE, _DEVICE_ASSIGNMENT, _STACK_FRAMES, _RECOVERY = 7, 15, 17, 20
#: The fields that belong to the instructions, and come from the new module. All
#: others stay: aliases, donors, shardings, the layouts of arguments and results.
_REPLACED = {_ENTRY_NAME, _COMPUTATIONS, _ENTRY_ID, _STACK_FRAMES, _RECOVERY}
#: Fields of HloComputationProto and HloInstructionProto.
_INSTRUCTIONS, _OPCODE, _SHAPE, _CONTROL_PREDECESSORS = 2, 2, 3, 37
_INSTRUCTION_ID = 35
_COMPUTATION_SHAPE, _COMPUTATION_ID, _ROOT_ID = 4, 5, 6
#: Fields of ProgramShapeProto.
_PARAMETERS, _RESULT = 1, 2

_COLLECTIVES = {"all-gather", "all-reduce", "reduce-scatter", "all-to-all",
                "collective-permute", "all-gather-start", "all-reduce-start",
                "ragged-all-to-all", "collective-broadcast"}


@dataclasses.dataclass(frozen=True)
class HloModule:
    """A module as XLA hands it over."""

    content: bytes = dataclasses.field(repr=False)

    @functools.cached_property
    def _fields(self) -> list[tuple[int, bytes, bytes | int]]:
        return list(read_fields(self.content))

    @functools.cached_property
    def name(self) -> str:
        return b"".join(messages_in(self.content, _NAME)).decode()

    @functools.cached_property
    def _instructions(self) -> list[dict[int, bytes | int]]:
        return [{number: value for number, _, value in read_fields(instruction)}
                for computation in messages_in(self.content, _COMPUTATIONS)
                for instruction in messages_in(computation, _INSTRUCTIONS)]

    @functools.cached_property
    def opcodes(self) -> list[str]:
        return [opcode.decode() for instruction in self._instructions
                if isinstance(opcode := instruction.get(_OPCODE), bytes)]

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the opcodes and shapes of its instructions. Their names,
        their order and where they come from may differ between processes."""
        lines = sorted(repr((each.get(_OPCODE), each.get(_SHAPE)))
                       for each in self._instructions)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def has_collectives(self) -> bool:
        # Most modules have none: a quick look first.
        return (any(name.encode() in self.content for name in _COLLECTIVES)
                and not _COLLECTIVES.isdisjoint(self.opcodes))

    @functools.cached_property
    def devices(self) -> list[int] | None:
        """Ids of the devices that run it; None if it does not say, or has replicas."""
        assignment = b"".join(messages_in(self.content, _DEVICE_ASSIGNMENT))
        # DeviceAssignmentProto: replica_count 1, computation_devices 3.
        if numbers_in(assignment).get(1, 1) != 1:
            return None
        return [number for computation in messages_in(assignment, 3)
                for _, _, ids in read_fields(computation)
                for number in read_numbers(ids)] or None

    def why_not(self) -> str | None:
        """The reason why StableHLO cannot stand for the module, or None."""
        if any(number == _SCHEDULE for number, _, _ in self._fields):
            return "XLA has scheduled it before it called zpp"
        if any(_CONTROL_PREDECESSORS in instruction
               for instruction in self._instructions):
            return ("it has instructions with control dependences, which "
                    "StableHLO does not have")
        if not {"send", "recv"}.isdisjoint(self.opcodes):
            return "it has a send or a receive, whose channels come in pairs"
        if "fusion" in self.opcodes:
            return "XLA has fused it before it called zpp"
        return None

    def to_stablehlo(self) -> str:
        """The program of one device in the generic form."""
        from jax._src.lib import _jax, hlo
        text = hlo.HloModule.from_serialized_hlo_module_proto(
            self.content).to_string()
        with make_ir_context() as context, ir.Location.unknown():
            module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(self.content),
                                     context)
            # The translation mixes up the meshes of a module that has several.
            restore_groups(module, groups_in(text))
            drop_layouts(module)
            return text_of(module)

    def with_stablehlo(self, text: str) -> bytes:
        """The module with another program of the same signature, serialized.
        Every field that does not belong to its instructions stays."""
        new = _to_hlo(_renumber_channels(text))
        old_entry, entry = _entry_of(self.content), _entry_of(new)
        if _signature(old_entry) != _signature(entry):
            raise ContractError("expected a module with the arguments and "
                                "results of the old one, but got others")
        # XLA would infer layouts for the new results, e.g. of a transpose, and
        # take them, but JAX was told those of the old ones.
        _, result = _shapes_of(old_entry)[-1]
        return b"".join(
            [written for number, written, _ in self._fields if number not in _REPLACED]
            + [write_field(number, _with_result(entry, result))
               if value == entry else written for number, written, value in
               read_fields(new) if number in _REPLACED - {_RECOVERY}])


def _renumber_channels(text: str) -> str:
    """The module with a channel of its own for each collective, as XLA wants
    them after its partitioner, which gives them out otherwise."""
    numbers = itertools.count(1)
    return re.sub(r"(#stablehlo\.channel_handle<handle = )\d+",
                  lambda match: f"{match[1]}{next(numbers)}", text)


def _entry_of(content: bytes) -> bytes:
    """The entry computation, serialized."""
    entry = numbers_in(content).get(_ENTRY_ID, 0)
    for computation in messages_in(content, _COMPUTATIONS):
        if entry == numbers_in(computation).get(_COMPUTATION_ID, 0):
            return computation
    raise ContractError("expected a module with an entry computation, but got none")


def _shapes_of(computation: bytes) -> list[tuple[int, bytes]]:
    """The shapes of its parameters, then that of its result, each with its field."""
    (shapes,) = messages_in(computation, _COMPUTATION_SHAPE)
    return [(part, shape) for part in (_PARAMETERS, _RESULT)
            for shape in messages_in(shapes, part)]


def _signature(computation: bytes) -> list:
    """Element types and sizes of arguments and result, without layouts and names."""
    def read_shape(proto: bytes) -> tuple:
        # Shape: element_type 2, dimensions 3, tuple_shapes 4.
        sizes = [size for number, _, value in read_fields(proto) if number == 3
                 for size in read_numbers(value)]
        return numbers_in(proto).get(2), sizes, list(map(read_shape, messages_in(proto, 4)))

    return [(part, read_shape(shape)) for part, shape in _shapes_of(computation)]


def _with_result(computation: bytes, shape: bytes) -> bytes:
    """The computation with this shape of its result. Only layouts differ, which mean
    nothing within a module before XLA has assigned them."""
    root = numbers_in(computation).get(_ROOT_ID)
    written = []
    for number, field, value in read_fields(computation):
        if number == _COMPUTATION_SHAPE and isinstance(value, bytes):
            field = write_field(number, replace_field(value, _RESULT, shape))
        elif number == _INSTRUCTIONS and isinstance(value, bytes) and (
                numbers_in(value).get(_INSTRUCTION_ID) == root):
            field = write_field(number, replace_field(value, _SHAPE, shape))
        written.append(field)
    return b"".join(written)


def _to_hlo(text: str) -> bytes:
    with make_ir_context() as context:
        return to_hlo(ir.Module.parse(text, context)).as_serialized_hlo_module_proto()


# The probe ----------------------------------------------------------------------

#: A loop, a sum over two devices, a donated argument and a sharding.
_TINY = """
module @probe attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(
      %x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %loop:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %three = stablehlo.constant dense<3> : tensor<i32>
      %less = stablehlo.compare LT, %i, %three :
        (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %sum = "stablehlo.all_reduce"(%y) <{
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
        use_global_device_ids}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }) : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %next, %sum : tensor<i32>, tensor<4xf32>
    }
    return %loop#1 : tensor<4xf32>
  }
}
"""
_INPUT_OUTPUT_ALIAS = 8


@functools.cache
def probe() -> None:
    """Takes a tiny module apart and puts it together, as the callback does. Raises
    ContractError if this JAX does not keep the contract."""
    try:
        module = HloModule(_to_hlo(_TINY))
        again = HloModule(module.with_stablehlo(module.to_stablehlo()))
        kept = [[written for number, written, _ in each._fields
                 if number not in _REPLACED] for each in (module, again)]
        aliases = sum(number == _INPUT_OUTPUT_ALIAS and bool(value)
                      for number, _, value in module._fields)
        is_same = (module.name == "probe" and aliases == 1
                   and kept[0] == kept[1]
                   and sorted(again.opcodes) == sorted(module.opcodes)
                   and again.has_collectives and module.why_not() is None)
    except Exception as error:
        reason = re.sub(r"\s+", " ", str(error))[:300]
        raise ContractError(f"expected JAX {jax.__version__} to give a tiny "
                            f"module back as it was, but got {reason}; "
                            f"{_USE_JIT}") from error
    if not is_same:
        raise ContractError(f"expected JAX {jax.__version__} to give a tiny "
                            f"module back as it was, but got another one; "
                            f"{_USE_JIT}")


# Processes -----------------------------------------------------------------------


def process_index() -> int:
    """The number of this process; 0 if JAX has not looked for devices."""
    from jax._src import xla_bridge
    return (jax.process_index() if xla_bridge.backends_are_initialized()
            else 0)
