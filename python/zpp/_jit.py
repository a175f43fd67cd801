# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`jit`: export, rewrite and load on the first call with new arguments."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Hashable
from typing import Any

import jax

from zpp._compiler import Rewritten, rewrite
from zpp._export import device_context, export, load_flat


def jit(step: Callable, *, mesh: str | None = None, weights: str | None = None,
        gradients: str | None = None, secondary: str | int | None = None,
        block: int | None = None, regather: bool | None = None,
        stages: int | None = None, **jit_options: Any) -> "JittedStep":
    """`jax.jit` for training steps, with ZeRO++ collectives.

    The first keyword arguments are those of `zpp.rewrite`; all others, such as
    donate_argnums, static_argnums and out_shardings, go to `jax.jit`. A step
    that is jitted already may be given as it is; its static_argnums and
    compiler_options have to be named here again.

        fast = zpp.jit(step, mesh="node:2,gpu:4", weights="i8",
                       gradients="i8:i4", secondary="gpu", donate_argnums=0)
        params, loss = fast(params, batch)
    """
    options = {"mesh": mesh, "weights": weights, "gradients": gradients,
               "secondary": secondary, "block": block, "regather": regather,
               "stages": stages}
    return JittedStep(step, options, jit_options)


@dataclasses.dataclass(frozen=True)
class _Loaded:
    rewritten: Rewritten
    #: Flat arguments to flat results.
    function: jax.stages.Wrapped


class JittedStep:
    """What `jit` returns: called like the step it was made from.

    Each new combination of argument shapes, types, shardings and static values
    is exported and compiled once, as `jax.jit` does.
    """

    def __init__(self, step: Callable, options: dict, jit_options: dict):
        functools.update_wrapper(self, step)
        self._options = options
        self._jitted = (step if isinstance(step, jax.stages.Wrapped)
                        and not jit_options else jax.jit(step, **jit_options))
        self._static_numbers, self._static_names = _static_arguments(
            step, jit_options)
        self._compiler_options = jit_options.get("compiler_options")
        self._loaded: dict[Hashable, _Loaded] = {}

    def __call__(self, *args, **kwargs):
        loaded, leaves = self._load(args, kwargs)
        step = loaded.rewritten.step
        with device_context(step, leaves):
            results = loaded.function(*leaves)
        return jax.tree.unflatten(step.exported.out_tree, results)

    def lower(self, *args, **kwargs) -> jax.stages.Lowered:
        """As of `jax.jit`; of the rewritten step with flat arguments."""
        loaded, leaves = self._load(args, kwargs)
        with device_context(loaded.rewritten.step, leaves):
            return loaded.function.lower(*leaves)

    def rewritten(self, *args, **kwargs) -> Rewritten:
        """The rewritten step for these arguments; without any, the latest."""
        if args or kwargs:
            return self._load(args, kwargs)[0].rewritten
        if not self._loaded:
            raise ValueError(
                "expected arguments or an earlier call, but got neither")
        return next(reversed(self._loaded.values())).rewritten

    def report(self, *args, **kwargs) -> dict:
        """Bytes per tier before and after; arguments as for `rewritten`."""
        return self.rewritten(*args, **kwargs).report

    def _load(self, args: tuple, kwargs: dict) -> tuple[_Loaded, list]:
        static, dynamic = self._split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        key = (static, tree, tuple(map(_leaf_key, leaves)),
               jax.sharding.get_abstract_mesh())
        if key not in self._loaded:
            step = export(self._jitted, *args, **kwargs)
            if step.exported.in_tree != tree:
                raise TypeError(
                    f"expected arguments of the structure "
                    f"{step.exported.in_tree}, but got {tree}; name static "
                    f"arguments in zpp.jit, not in a jax.jit around the step")
            rewritten = rewrite(step, **self._options)
            self._loaded[key] = _Loaded(
                rewritten, load_flat(rewritten.step, self._compiler_options))
        return self._loaded[key], leaves

    def _split(self, args: tuple, kwargs: dict) -> tuple[Hashable, Any]:
        """The static arguments as a key, and the others as `jax.export` takes
        them: (positional, by name)."""
        numbers = {number % len(args) for number in self._static_numbers
                   if -len(args) <= number < len(args)}
        static = (tuple(args[number] for number in sorted(numbers)),
                  tuple(sorted((name, value) for name, value in kwargs.items()
                               if name in self._static_names)))
        positional = tuple(value for number, value in enumerate(args)
                           if number not in numbers)
        named = {name: value for name, value in kwargs.items()
                 if name not in self._static_names}
        return static, (positional, named)


def _static_arguments(step: Callable, jit_options: dict
                      ) -> tuple[set[int], set[str]]:
    """Positions and names of static arguments. As in `jax.jit`, whichever of
    the two is given says the other, by the signature of `step`."""
    def as_set(value):
        return set() if value is None else {value} if isinstance(
            value, (int, str)) else set(value)

    numbers = as_set(jit_options.get("static_argnums"))
    names = as_set(jit_options.get("static_argnames"))
    if numbers and names or not numbers and not names:
        return numbers, names
    positional = [
        name for name, parameter in inspect.signature(step).parameters.items()
        if parameter.kind == parameter.POSITIONAL_OR_KEYWORD]
    if numbers:
        names = {positional[number] for number in numbers
                 if -len(positional) <= number < len(positional)}
    else:
        numbers = {positional.index(name) for name in names
                   if name in positional}
    return numbers, names


def _leaf_key(leaf: Any) -> Hashable:
    """What of an argument decides how a step is compiled."""
    placed = isinstance(leaf, jax.ShapeDtypeStruct) or getattr(
        leaf, "committed", False)
    sharding = leaf.sharding if placed else None
    if isinstance(sharding, jax.sharding.NamedSharding):
        # Results come back with the same placement spelled shorter:
        # P("data") for P("data", None).
        spec = list(sharding.spec)
        while spec and spec[-1] is None:
            spec.pop()
        sharding = (sharding.mesh, tuple(spec), sharding.memory_kind)
    return jax.typeof(leaf), sharding
