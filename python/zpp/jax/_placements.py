# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory kinds of values within a step, as `jax.device_put` to pinned_host gives
them, on their way through XLA's partitioner.

XLA for CPUs drops what says in which memory a value is, since it has one memory,
before it partitions. So these marks become barriers on the way, which every XLA
keeps, and marks again after it.
"""

from collections.abc import Callable, Iterator

from jax.extend.mlir import ir

from zpp.jax._modules import operations_in, string_in

#: The custom call that marks a value, and the barrier that stands for it.
_CALL, _MARK = "stablehlo.custom_call", "annotate_device_placement"
_BARRIER = "stablehlo.optimization_barrier"
#: The attributes that say how, and what they say of values and of calls.
_SAYS = "mhlo.frontend_attributes"
_PLACEMENT, _COMPUTE = "_xla_buffer_placement", "_xla_compute_type"


def mark(module: ir.Module) -> set[str]:
    """Changes the module for the partitioner; returns the memories and hosts it names."""
    named = set(_names(module))
    _replace(module, lambda each: string_in(each.attributes, "call_target_name") == _MARK,
             _BARRIER, ())
    return named


def restore(module: ir.Module, named: set[str]) -> set[str]:
    """Makes marks of the barriers again. Returns what is `named` no more."""
    _replace(module, lambda each: each.name == _BARRIER and _said(each, _PLACEMENT)
             is not None, _CALL, (("call_target_name", ir.StringAttr.get(_MARK)),
                                  ("has_side_effect", ir.BoolAttr.get(True))))
    return named - set(_names(module))


def _said(operation: ir.Operation, name: str) -> str | None:
    """The value of an attribute for XLA."""
    attributes = operation.attributes
    return string_in(ir.DictAttr(attributes[_SAYS]), name) if _SAYS in attributes else None


def _names(module: ir.Module) -> Iterator[str]:
    """Yields the memories other than the device's, and the kinds of hosts, that it names."""
    for operation in operations_in(module):
        for name in (_PLACEMENT, _COMPUTE):
            said = _said(operation, name)
            if said is not None and said != "device":
                yield said


def _replace(module: ir.Module, is_wanted: Callable[[ir.Operation], bool], name: str,
             attributes: tuple[tuple[str, ir.Attribute], ...]) -> None:
    """Replaces operations by others that give the same, and say the same to XLA."""
    for old in filter(is_wanted, operations_in(module)):
        with ir.InsertionPoint(old), old.location:
            new = ir.Operation.create(
                name, results=[each.type for each in old.results],
                operands=list(old.operands),
                attributes={_SAYS: old.attributes[_SAYS], **dict(attributes)})
        for result, other in zip(old.results, new.results, strict=True):
            result.replace_all_uses_with(other)
        old.erase()
