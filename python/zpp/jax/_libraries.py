# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that other libraries jit: `flax.nnx.jit`, `equinox.filter_jit` and
`haliax.named_jit`.

Each of these turns its arguments into arrays, calls a function that `jax.jit`
made, and makes objects of the results. Here such a call is run with another
function in that place. There is no public way to do so.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax

#: Gives what is to be called in place of what `jax.jit` made.
Replace = Callable[[jax.stages.Wrapped], Callable]


def call_with(step: Callable, replace: Replace, args: tuple, kwargs: dict
              ) -> Any:
    """Calls `step` with what `replace` gives; of a library's, in that place."""
    call = _find(step)
    return call(step, replace, args, kwargs) if call else replace(step)(*args, **kwargs)


def is_jitted_by_library(step: Any) -> bool:
    """Whether `step` is what one of these libraries jitted."""
    library = type(step).__module__.partition(".")[0]
    if _find(step) is None and library in _OTHER_WAYS:
        raise TypeError(
            f"expected a function of arrays, but got {type(step).__name__} of "
            f"{library}; {_OTHER_WAYS[library]}")
    return _find(step) is not None


#: Advice on what to give zpp.jit where a library has not jitted it as zpp knows.
_OTHER_WAYS = {
    "flax": "give zpp.jit what flax.nnx.jit returns, or the step as a function "
            "of the state of flax.nnx.split, which calls flax.nnx.merge first "
            "and returns the new state",
    "equinox": "give zpp.jit what equinox.filter_jit returns, or the step as a "
               "function of the arrays of equinox.partition(model, "
               "equinox.is_array), which calls equinox.combine first and "
               "returns the new arrays",
    "haliax": "give zpp.jit what haliax.named_jit returns",
}


def _find(step: Any) -> Callable | None:
    library = type(step).__module__.partition(".")[0]
    if library == "flax" and isinstance(getattr(step, "jitted_fn", None),
                                        jax.stages.Wrapped):
        return _call_nnx
    if library == "equinox" and isinstance(getattr(step, "_cached", None),
                                           jax.stages.Wrapped):
        return _call_equinox
    if library == "haliax" and hasattr(sys.modules.get("haliax.partitioning"),
                                       "_named_pjit_cache"):
        return _call_haliax
    return None


def _call_nnx(step, replace, args, kwargs):
    # No copy: the function inside knows the object that calls it.
    with _attribute(step, "jitted_fn", replace(step.jitted_fn)):
        return step(*args, **kwargs)


def _call_equinox(step, replace, args, kwargs):
    return dataclasses.replace(step, _cached=replace(step._cached))(
        *args, **kwargs)


def _call_haliax(step, replace, args, kwargs):
    # It asks for the function in each call.
    module = sys.modules["haliax.partitioning"]
    original = module._named_pjit_cache

    def get(*args, **kwargs):
        jitted = original(*args, **kwargs)
        replaced = replace(jitted)

        def call(*args):
            # Others of its functions may be called while the step is traced.
            is_traced = any(isinstance(leaf, jax.core.Tracer)
                            for leaf in jax.tree.leaves(args))
            return (jitted if is_traced else replaced)(*args)

        return call

    with _attribute(module, "_named_pjit_cache", get):
        return step(*args, **kwargs)


@contextlib.contextmanager
def _attribute(of: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(of, name)
    setattr(of, name, value)
    try:
        yield
    finally:
        setattr(of, name, before)
