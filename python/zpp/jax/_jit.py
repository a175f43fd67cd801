# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`jit`: export, rewrite and load on the first call with new arguments."""

import functools
import types
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, NamedTuple, overload

import jax

from zpp._compiler import Diagnostic, Rewritten
from zpp._guard import Guard
from zpp._option_kinds import join_floors, parse_floors
from zpp._options import OPTION_NAMES, Options, read_schedule
from zpp._plan import Auto, Plan, plan_text, split_auto
from zpp._warn import warn
from zpp.jax._callbacks import find_reference
from zpp.jax._export import Step, check_callable, export_call
from zpp.jax._libraries import call_with, is_jitted_by_library
from zpp.jax._load import Program, check_not_traced, find_mesh
from zpp.jax._metrics import Floors, Gauge
from zpp.jax._rewrite import find_device, module_of_step, rewrite_step
from zpp.jax._rewrite import with_links
from zpp.jax._state import Keeper, StatefulStep

#: Options of `jax.jit` that may be named again beside a jitted step.
_NAMED_AGAIN = {"static_argnums", "static_argnames", "compiler_options"}


@overload
def jit(step: Callable, /, *,
        options: Options | Auto | Literal["auto"] | None = None,
        schedule: Mapping[int, Mapping[str, Any]] | None = None,
        guard: Guard | float | None = None,
        **more: Any) -> "JittedStep": ...


@overload
def jit(step: None = None, /, *,
        options: Options | Auto | Literal["auto"] | None = None,
        schedule: Mapping[int, Mapping[str, Any]] | None = None,
        guard: Guard | float | None = None,
        **more: Any) -> "Callable[[Callable], JittedStep]": ...


def jit(step: Callable | None = None, /, *,
        options: Options | Auto | Literal["auto"] | None = None,
        schedule: Mapping[int, Mapping[str, Any]] | None = None,
        guard: Guard | float | None = None,
        **more: Any) -> "JittedStep | Callable[[Callable], JittedStep]":
    """`jax.jit` for training steps, with ZeRO++ collectives.

        fast = zpp.jit(step, mesh={"node": 2, "gpu": 4}, weights="i8",
                       gradients=("i8", "i4"), donate_argnums=0)
        params, loss = fast(params, batch)

    Also a decorator: `@zpp.jit`, or `@zpp.jit(mesh="node:2,gpu:4")`.

    Args:
      step: a function, or the result of `jax.jit`, `flax.nnx.jit`,
        `equinox.filter_jit` or `haliax.named_jit`, which is called as before.
      options: a `zpp.Options`; or "auto" or a `zpp.Auto`, for the techniques
        that `zpp.plan` predicts to be the fastest.
      schedule: options that replace the others from some call on:
        {5000: {"gradients": "none"}} trains with compressed gradients for 5000
        steps and without from then on. The first call compiles all variants, so
        switching takes no time. `JittedStep.calls` counts the calls.
      guard: a bound on the relative rounding error of each collective: a
        `zpp.Guard`, or a number for weights and gradients alike. What is above
        it travels in a wider format from the next call on.
      **more: fields of `zpp.Options`, which replace those in `options`. All
        others, such as donate_argnums, static_argnums and out_shardings, are
        passed to `jax.jit`. If `step` is jitted already, it keeps its own; only
        compiler_options must be given again.
    """
    ours = {name: value for name, value in more.items()
            if name in OPTION_NAMES}
    jit_options = {name: value for name, value in more.items()
                   if name not in OPTION_NAMES}
    given, auto = split_auto(options)
    complete = given.replace(**ours)
    guarded = Guard.of(guard)
    if guarded is not None and auto is not None:
        raise ValueError("guard: expected formats in the options, but got "
                         "options='auto', which chooses them again")

    def make(step: Callable) -> "JittedStep":
        check_callable(step)
        return JittedStep(step, read_schedule(schedule or {}, complete, "call"), auto,
                          guarded, jit_options)

    return make if step is None else make(step)


#: Any custom call: an export stays in this process, where they mean the same.
_ANY_CALL = (jax.export.DisabledSafetyCheck.custom_call("ALL"),)


class _Loaded(NamedTuple):
    rewritten: Rewritten
    #: None where JAX does not export the step.
    program: Program | None
    #: The step itself where nothing was rewritten, which is called in place of
    #: the program. Takes all arguments.
    original: Callable | None = None
    #: The step with the formats of its options, where a guard has widened some.
    given: Rewritten | None = None


class JittedStep(StatefulStep):
    """The result of `jit`, which is called like the original step.

    Each new combination of argument shapes, types, shardings and static values
    is exported and compiled once, as `jax.jit` does.
    """

    #: How many calls there have been: what `schedule` goes by. Set it when a
    #: training is resumed.
    calls: int
    __name__: str

    def __init__(self, step: Callable, schedule: list[tuple[int, Options]],
                 auto: Auto | None, guard: Guard | None, jit_options: dict[str, Any]):
        """schedule: from which call on which options, the latest first."""
        is_librarys = is_jitted_by_library(step)
        functools.update_wrapper(self, step, updated=() if is_librarys else ("__dict__",))
        self.calls = 0
        self._keeper, self._gauge = Keeper(), Gauge(guard)
        self._schedule, self._auto = schedule, auto
        self._compiler_options = jit_options.get("compiler_options")
        self._step: Any = step
        if is_librarys or isinstance(step, jax.stages.Wrapped):
            if others := sorted(set(jit_options) - _NAMED_AGAIN):
                raise TypeError(
                    f"expected {', '.join(sorted(_NAMED_AGAIN))} beside a step that is "
                    f"jitted already, but got {', '.join(others)}; name them in its "
                    f"jit")
        else:
            self._step = jax.jit(step, **jit_options)
        #: By what `jax.jit` made of the step: a library may call it several times.
        self._functions: dict[jax.stages.Wrapped, _Function] = {}
        self._latest: _Function | None = None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method where the step is one of a class, as what `jax.jit` returns."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args, **kwargs):
        results = self._with(_Function.call, args, kwargs)
        self.calls += 1
        return results

    def metrics(self) -> dict[str, float]:
        """Numbers about the latest call that was measured, by name, for a log.
        The next call is measured, and waits for its results; others cost
        nothing. Empty before the first.

            if step % 100 == 0:
                wandb.log(fast.metrics(), step=step)

        Each is of one device of this process, or of all of them:
          call: which call it was, counted as `calls`.
          bytes/TIER, bytes_as_written/TIER: bytes that a device sends, and would
            send in the original step.
          state_bytes: what a device keeps from call to call.
          step_ms: the call and its results.
          link_ms/TIER: the time in which the busiest device exchanged data over
            this tier or those within it, and waited for others to do so.
          exposed_ms: the longest that a device stood still for it.
          error/ROLE, largest_error/ROLE: the L2 norm of the rounding errors of
            sampled blocks by that of their values, for ROLE weights, gradients
            and updates: of all collectives, and of the one where it is largest.
          not_finite/ROLE: values of the sample that a format has made NaN or Inf.

        Times and errors need target cuda or cpu.
        """
        return self._gauge.ask()

    def rewritten(self, *args, **kwargs) -> Rewritten:
        """The rewritten step that the next call with these arguments runs.
        Without arguments, those of the latest call are meant."""
        if args or kwargs:
            return self._ask(_Function.rewritten, args, kwargs)
        if not self._latest or not self._latest.loaded:
            raise ValueError(
                "expected arguments or an earlier call, but got neither")
        return self._latest.latest()

    def report(self, *args, **kwargs) -> dict:
        """The report of the rewrite; arguments as for `rewritten`."""
        return self.rewritten(*args, **kwargs).report

    def lower(self, *args, **kwargs) -> jax.stages.Lowered:
        """As in `jax.jit`, for the variant that the next call runs. It takes
        flat arguments, and after them the state if there is one."""
        return self._ask(_Function.lower, args, kwargs)

    def plan(self, *args, device: str | None = None,
             compute: float | None = None, memory_limit: int | None = None,
             **kwargs) -> Plan:
        """Predicts a call with these arguments, as it is written and with
        each technique: see `zpp.plan`. Nothing is compiled for a device, and the
        arguments may be `jax.ShapeDtypeStruct`s. Formats are those of the options,
        also where a guard has widened some."""
        return self._ask(functools.partial(
            _Function.plan, auto=Auto(device or find_device(), compute, memory_limit)),
            args, kwargs)

    def _with(self, use: Callable[["_Function", tuple, dict], Any], args: tuple,
              kwargs: dict) -> Any:
        """Calls the step, with `use` of what `jax.jit` made in the place of that."""
        def replace(jitted: jax.stages.Wrapped) -> Callable:
            def call(*args, **kwargs):
                if jitted not in self._functions:
                    self._functions[jitted] = _Function(jitted, self)
                self._latest = self._functions[jitted]
                return use(self._latest, args, kwargs)
            return call

        return call_with(self._step, replace, args, kwargs)

    def _ask(self, question: Callable[["_Function", tuple, dict], Any], args: tuple,
             kwargs: dict) -> Any:
        """Answers about arguments. A library would make objects of what is returned."""
        def ask(*given):
            raise _Answer(question(*given))

        try:
            self._with(ask, args, kwargs)
        except _Answer as answer:
            return answer.args[0]
        raise RuntimeError(f"expected {self.__name__} to call what jax.jit "
                           f"made of it, but it did not")

    def _place(self) -> int:
        """The place in the schedule of the options of the next call."""
        if self.calls < 0:
            raise ValueError(f"calls: expected a number of calls, but got "
                             f"{self.calls}")
        return next(place for place, (first, _) in enumerate(self._schedule)
                    if first <= self.calls)


class _Function:
    """A function that `jax.jit` made, with its variants for arguments and options."""

    def __init__(self, jitted: Any, step: JittedStep):
        self._jitted, self._step = jitted, step
        self._keeper, self._gauge = step._keeper, step._gauge
        self._schedule, self._compiler_options = step._schedule, step._compiler_options
        # jax.jit has no public way to ask for them.
        info = getattr(jitted, "_jit_info", None)
        self._static_numbers = info.static_argnums if info else ()
        self._static_names = info.static_argnames if info else ()
        #: The variants by the schedule, for each kind of arguments; and the latest kind.
        self.loaded: dict[Hashable, list[_Loaded]] = {}
        self._key: Hashable = None
        #: Variants that the guard asks for, by key, place and floors.
        self.widened: dict[tuple[Hashable, int, Floors], _Loaded] = {}

    def call(self, args: tuple, kwargs: dict) -> Any:
        loaded, leaves = self._load(args, kwargs)
        if loaded.original is None:
            call = functools.partial(loaded.program.call, leaves, self._keeper)
        else:
            self._keeper.check_not_given()
            call = functools.partial(loaded.original, *args, **kwargs)
        return self._gauge.run(
            self._step.calls, loaded.rewritten, loaded.given or loaded.rewritten, call,
            lambda: find_mesh(loaded.program.step, leaves))

    def lower(self, args: tuple, kwargs: dict) -> jax.stages.Lowered:
        loaded, leaves = self._load(args, kwargs)
        return (loaded.program.lower(leaves) if loaded.program else
                self._jitted.lower(*args, **kwargs))

    def rewritten(self, args: tuple, kwargs: dict) -> Rewritten:
        return self._load(args, kwargs)[0].rewritten

    def latest(self) -> Rewritten:
        place = self._step._place()
        loaded = self.loaded[self._key][place]
        floors = self._gauge.floors_of(loaded.rewritten)
        return self.widened.get((self._key, place, floors), loaded).rewritten

    def plan(self, args: tuple, kwargs: dict, auto: Auto) -> Plan:
        step = export_call(self._jitted, args, kwargs, None, _ANY_CALL)
        _, options = self._schedule[self._step._place()]
        text, options = module_of_step(step, options)
        # By default nothing runs on devices.
        options = with_links(options, "portable",
                             find_mesh(step, jax.tree.leaves((args, kwargs))))
        return plan_text(text, options, auto)

    def _load(self, args: tuple, kwargs: dict) -> tuple[_Loaded, list]:
        static, dynamic = self._split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        check_not_traced(leaves)
        key = (static, tree, tuple(map(_leaf_key, leaves)),
               jax.sharding.get_abstract_mesh())

        def export() -> Step:
            return export_call(self._jitted, args, kwargs, None, _ANY_CALL)

        if key not in self.loaded:
            try:
                step = export()
            except (NotImplementedError, ValueError) as error:
                variants = [self._leave(error, args, kwargs)] * len(self._schedule)
            else:
                if step.exported.in_tree != tree:
                    raise TypeError(
                        f"expected arguments of the structure "
                        f"{step.exported.in_tree}, but got {tree}; name static "
                        f"arguments in zpp.jit, not in a jax.jit around the step")
                variants = [self._compile(step, options, leaves, (args, kwargs))
                            for _, options in self._schedule]
            self.loaded[key] = variants
        self._key = key
        place = self._step._place()
        loaded = self.loaded[key][place]
        floors = self._gauge.floors_of(loaded.rewritten)
        if not floors:
            return loaded, leaves
        if (key, place, floors) not in self.widened:
            _, options = self._schedule[place]
            self.widened[key, place, floors] = self._compile(
                export(), options.replace(floors=join_floors(
                    parse_floors(options.floors or ""), dict(floors))), leaves,
                (args, kwargs))._replace(given=loaded.rewritten)
        return self.widened[key, place, floors], leaves

    def _compile(self, step: Step, options: Options, leaves: list,
                 given: tuple[tuple, dict]) -> _Loaded:
        rewritten = rewrite_step(step, options, self._step._auto, find_mesh(step, leaves),
                                 is_strict=False)
        program = Program.of(rewritten.step, self._compiler_options)
        if rewritten.step is step:
            return _Loaded(rewritten, program, self._original(*given))
        program.prepare(leaves)
        return _Loaded(rewritten, program if len(self._schedule) == 1
                       else program.compile_ahead(leaves))

    def _leave(self, error: Exception, args: tuple, kwargs: dict) -> _Loaded:
        """The step itself, since JAX does not export it."""
        traced = self._jitted.trace(*args, **kwargs)
        # If JAX cannot compile it either, that is its own error.
        traced.lower()
        place = find_reference(traced.jaxpr)
        why = (f"it changes a mutable array, {place}" if place else
               str(error).partition("\n")[0].rstrip(".") or type(error).__name__)
        warn(f"zpp leaves the step as it was written, since jax.export does not take "
             f"it: {why}; zpp run rewrites such steps on NVIDIA GPUs")
        report: dict[str, Any] = {
            "mesh": {}, "tiers": [], "links": None, "collectives": [],
            "total": {"before": {}, "after": {}, "model_bytes": 0,
                      "secondary_bytes": 0, "accumulated_bytes": 0,
                      "state_bytes": 0}}
        return _Loaded(Rewritten("", report, (Diagnostic("zpp.jit", "remark", why),)),
                       None, self._original(args, kwargs))

    def _original(self, args: tuple, kwargs: dict) -> Callable:
        """The step itself, compiled now for several variants or for options of its own."""
        if len(self._schedule) == 1 and not self._compiler_options:
            return self._jitted
        compiled = self._jitted.lower(*args, **kwargs).compile(
            self._compiler_options)

        def call(*args, **kwargs):
            _, (positional, named) = self._split(args, kwargs)
            return compiled(*positional, **named)

        return call

    def _split(self, args: tuple, kwargs: dict) -> tuple[Hashable, Any]:
        """Returns the static arguments as a key, and the others: (positional, by name)."""
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


class _Answer(Exception):
    """Leaves a library's call with what was to be found out."""


def _leaf_key(leaf: Any) -> Hashable:
    """The properties of an argument that decide how a step is compiled."""
    placed = isinstance(leaf, jax.ShapeDtypeStruct) or getattr(
        leaf, "committed", False)
    sharding = leaf.sharding if placed else None
    if isinstance(sharding, jax.sharding.NamedSharding):
        # Results have the same placement in a shorter spelling: P("data")
        # instead of P("data", None) or, if that has one device, P("data", "x").
        mesh = sharding.mesh
        spec = [tuple(axis for axis in ((entry,) if isinstance(entry, str)
                                        else entry or ())
                      if mesh.shape[axis] > 1) if entry is not
                jax.sharding.PartitionSpec.UNCONSTRAINED else entry
                for entry in sharding.spec]
        while spec and not spec[-1]:
            spec.pop()
        sharding = (mesh, tuple(spec), sharding.memory_kind)
    return jax.typeof(leaf), sharding
