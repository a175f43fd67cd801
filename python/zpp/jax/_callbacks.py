# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that call Python: `jax.debug.print`, `io_callback`, `pure_callback`, and
`custom_partitioning`, whose rules are functions.

Their modules name what they call by numbers and addresses of this process. An
export cannot keep these, so zpp takes them aside and gives them back to JAX where
it compiles the rewritten module, in the same process.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import source_info_util
from jax.extend.core import Primitive, jaxprs_in_params
from jax.extend.mlir import ir
from jax.interpreters import mlir

from zpp.jax._modules import operations_in, string_in


@dataclasses.dataclass(frozen=True, eq=False)
class Callbacks:
    """Functions and objects of this process that a module calls."""

    #: The functions that its custom calls name by number.
    functions: tuple[Callable, ...] = ()
    #: The objects that they name by address.
    objects: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.functions or self.objects)

    def give(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Gives them to the jitted function that is being traced, which takes
        `leaves` and must have no others. Returns the leaves."""
        return _give_p.bind(*leaves, callbacks=self) if self and leaves else leaves


NO_CALLBACKS = Callbacks()


def _lower_give(context: mlir.LoweringRuleContext, *values: Any, callbacks: Callbacks
                ) -> Sequence[Any]:
    for function in callbacks.functions:
        context.module_context.add_host_callback(function)
    for each in callbacks.objects:
        context.module_context.add_keepalive(each)
    return values


_give_p = Primitive("zpp_callbacks")
_give_p.multiple_results = True
_give_p.def_abstract_eval(lambda *shapes, callbacks: shapes)
mlir.register_lowering(_give_p, _lower_give)


def take_callbacks(export: Callable[[], jax.export.Exported]
                   ) -> tuple[jax.export.Exported, Callbacks]:
    """Returns the result of `export`, and the callbacks that JAX would refuse."""
    from jax._src.export import _export
    check = _export._check_lowering
    taken = NO_CALLBACKS

    def check_others(lowering):
        nonlocal taken
        arguments = lowering.compile_args
        taken = Callbacks(tuple(arguments["host_callbacks"] or ()),
                          tuple(arguments["keepalive"] or ()))
        # JAX keeps what it has lowered for the next call.
        lowering.compile_args = arguments | {"host_callbacks": [], "keepalive": []}
        try:
            check(lowering)
        finally:
            lowering.compile_args = arguments

    _export._check_lowering = check_others
    try:
        return export(), taken
    finally:
        _export._check_lowering = check


#: Custom calls of JAX that name functions and objects of a process.
CALLS = ("CustomSPMDPartitioning", "InspectSharding", *(
    f"xla_ffi{part}_python_{device}_callback"
    for part in ("", "_partitioned") for device in ("cpu", "gpu")))
#: The name of a location, whose end is that of a primitive, and its first line.
_PLACE = re.compile(r'loc\("(?:[^"]*/)?([^":]*):?".*?"([^"]+)":(\d+)')


def find_calls(module: ir.Module) -> list[str]:
    """Names each such call of a module by its primitive and line."""
    found: dict[str, None] = {}
    for operation in operations_in(module):
        target = string_in(operation.attributes, "call_target_name")
        if target in CALLS:
            place = _PLACE.match(str(operation.location))
            found[f"{place[1]} at {place[2]}:{place[3]}" if place else target] = None
    return list(found)


def find_reference(jaxpr: Any) -> str | None:
    """Names the first equation that reads or writes a mutable array, and its line."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        inner = next(filter(None, map(
            find_reference, jaxprs_in_params(equation.params))), None)
        if inner is not None:
            return inner
        if any(hasattr(each.aval, "inner_aval") for each in equation.invars):
            return (f"{equation.primitive.name} at "
                    f"{source_info_util.summarize(equation.source_info)}")
    return None
