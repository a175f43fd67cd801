# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`zpp.rewrite` of what JAX exports."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from zpp._compiler import Rewritten, find_bundler, logger, rewrite_text
from zpp._compiler import warn_if_nothing_was_rewritten, with_choices
from zpp._effects import WHY, warn_of_no_effect
from zpp._option_kinds import MEASURED
from zpp._options import Options
from zpp._plan import ANY_DEVICE, Auto
from zpp._warn import warn
from zpp.jax import _runtime
from zpp.jax._export import Step
from zpp.jax._links import find_links
from zpp.jax._partition import warn_of_shardings
from zpp.jax._partitioner import PartitionError
from zpp.jax._processes import exchange_between


def rewrite_step(step: Step, options: Options, auto: Auto | None = None,
                 devices: jax.sharding.Mesh | None = None,
                 is_strict: bool = True) -> Rewritten:
    """`zpp.rewrite` of a step. The result has the rewritten step, which is `step`
    itself if nothing was rewritten: XLA would round the same step elsewhere if
    it compiled what its partitioner has made of it.

    Args:
      devices: those that will run it, whose links may be measured.
      is_strict: a step of which XLA cannot make any collectives is an error, not a
        warning.
    """
    target = _target_of(step, options)
    options = with_links(_options_for(step, options), target, devices)
    is_partitioned = step.needs_partitioning
    try:
        text, is_complete = step.complete_text, True
    except PartitionError as error:
        if is_strict and not step.sharded.has_collectives:
            raise
        text, is_complete = step.text(), False
        warn_of_shardings(error)
    machine = find_machine(options, target, auto,
                           None if devices is None else [*devices.devices.flat])
    result = rewrite_text(text, options, target, machine=machine)
    options = with_choices(options, result)
    if is_complete and not (auto and result.report["choices"]):
        warn_if_nothing_was_rewritten(
            result, options, "it is a step for one device; place its arguments "
            "on a mesh (jax.sharding.NamedSharding)"
            if step.exported.nr_devices == 1 else
            "XLA makes none of its shardings" if is_partitioned else
            "it names none, and has no shardings of which XLA could make some")
    if is_complete:
        _warn_of_others(result, options, is_partitioned)
    rewritten = step if is_as_written(result) else step.with_text(
        result.text, result.bundle)
    warn_of_no_effect(result, options)
    if rewritten.state is not None:
        def begin(what: str) -> Step:
            # It keeps what the step takes, so it decides by the same device.
            begun = rewrite_text(text, options, target, start=what,
                                 machine={"device": machine.get("device")})
            return step.beginning(begun.text, begun.bundle)

        state = rewritten.state
        rewritten = dataclasses.replace(
            rewritten, start=begin("all"),
            resume=begin("frozen") if state.frozen and state.saved else None)
    return dataclasses.replace(result, step=rewritten)


def find_machine(options: Options, target: str, auto: Auto | None,
                 devices: Sequence[jax.Device] | None, topic: str = "memory") -> dict:
    """Returns the facts by which the compiler chooses: by default an in-flight limit that
    fits the memory of the devices, and whole weights where nodes have one device. With
    `auto`, all that the options leave open.

    Args:
      devices: those that will run the step, whose processes all call this, where it is
        known.
      topic: what they call it for.
    """
    if auto is None and (target == "portable" or devices is None
                         or options.tuning.prefetch_bytes is not None):
        return {}
    own = auto or Auto()
    device = own.device or find_device()
    limit = own.memory_limit or find_memory_limit(devices, topic)
    if auto is None:
        return {"memory-limit": limit, "device": device or ANY_DEVICE} if limit else {}
    return dataclasses.replace(auto, device=device, memory_limit=limit).machine()


def with_links(options: Options, target: str, devices: jax.sharding.Mesh | None
                ) -> Options:
    """The options with links that were measured, if they are to be: where they say
    so, and by default where the runtime communicates between GPUs."""
    if devices is None or options.links != MEASURED and (
            options.links is not None or target != "cuda"):
        return options
    try:
        links = find_links(options.mesh, devices)
    except ValueError as error:
        if options.links == MEASURED:
            raise
        logger.warning("%s", error)
        return options
    if links is not None:
        logger.info("links measured: %s", links)
    return options.replace(links=links)


def is_as_written(result: Rewritten) -> bool:
    """Whether nothing was rewritten, nor gathered once more, which sends more."""
    return not any(entry["rewritten"] or entry["before"] != entry["after"]
                   for entry in result.report["collectives"])


#: The part of the bytes that are left that may be of something else than weights and
#: gradients without a warning, and likewise of the bytes of the model.
_OTHERS, _OTHERS_OF_MODEL = 0.2, 0.001


def _warn_of_others(result: Rewritten, options: Options, is_partitioned: bool) -> None:
    """Says what else than weights and gradients most of the bytes that are left are
    of, and what helps against the rule (docs/rules.md) that has stopped them."""
    tier = next(iter(result.report["tiers"]), None)
    left = result.report["total"]["after"].get(tier, 0)
    entries = result.report["collectives"]
    if {options.weights, options.gradients, options.secondary} == {"none"}:
        return
    by_rule: dict[tuple[str, str], list[dict]] = {}
    for entry in entries:
        if (entry["role"] == "other" and entry["after"].get(tier, 0)
                and not entry["conditional"]):
            by_rule.setdefault((entry["rule"], entry["kind"]), []).append(entry)

    def sent(of: list[dict]) -> int:
        return sum(entry["after"][tier] for entry in of)

    others = sum(map(sent, by_rule.values()))
    if others <= max(_OTHERS * left,
                     _OTHERS_OF_MODEL * result.report["total"]["model_bytes"]):
        return
    # The advice is for what most of them are.
    (rule, kind), most = max(by_rule.items(), key=lambda each: sent(each[1]))
    largest = max(most, key=lambda entry: entry["after"][tier])
    advice = WHY
    if rule == "R4" and kind == "all_gather":
        advice = ("If it is a weight, name it: weights_of takes numbers of leaves of the "
                  "arguments, or a function of their path")
    elif is_partitioned and not any(entry["role"] == "weight" for entry in entries):
        advice = ("To get ZeRO-3, constrain activations to the axes of the batch "
                  "(jax.lax.with_sharding_constraint)")
    warn(f"{others / left:.0%} of the bytes that are left over {tier} are of neither "
         f"weights nor gradients, most of them as those of the {kind} at "
         f"{largest['location']}: {largest['reason']}. {advice}")


def module_of_step(step: Step, options: Options) -> tuple[str, Options]:
    """Returns the module of a step, with all collectives, and the options for it."""
    return step.complete_text, _options_for(step, options)


#: Devices that the compiler knows, as JAX calls them.
_DEVICES = ("v100", "a100", "h100", "h200", "b200", "l40s", "mi250x", "mi300x")


def find_device() -> str | None:
    """The name by which the compiler knows the devices of this process, if it does."""
    kind = jax.local_devices()[0].device_kind.lower()
    return next((name for name in _DEVICES if name in kind), None)


def find_memory_limit(devices: Sequence[jax.Device] | None, topic: str = "memory"
                      ) -> int | None:
    """Returns the bytes that JAX may use of the device that has the fewest; None where it
    does not say. All processes of the devices, by default this one, call it, and get the
    same."""
    own = jax.local_devices() if devices is None else [
        device for device in devices if device.process_index == jax.process_index()]
    limit = min(map(get_memory_limit, own), default=0)
    if devices is not None:
        limit = min(map(int, exchange_between(devices, topic, str(limit))))
    return limit or None


def get_memory_limit(device: jax.Device) -> int:
    """The bytes that JAX may use of a device; 0 where it does not say."""
    return (device.memory_stats() or {}).get("bytes_limit", 0)


def find_tiers(mesh: jax.sharding.Mesh | None) -> str | None:
    """Tiers for a mesh with one axis: the processes, and the devices of each.
    For a mesh with several axes: these, those first along which processes
    change. None if the tiers are the axes of the mesh in their order, if each
    process has one device, or if the devices of a process do not follow each
    other."""
    if mesh is None:
        return None
    owners = [device.process_index for device in mesh.devices.flat]
    count = len(set(owners))
    if sum(size > 1 for size in mesh.shape.values()) != 1:
        return _slowest_first(mesh) if 1 < count < len(owners) else None
    size = len(owners) // count
    if count == 1 or size == 1 or len(owners) % count or any(
            owner != owners[index - index % size]
            for index, owner in enumerate(owners)):
        return None
    return f"process:{count},device:{size}"


def _slowest_first(mesh: jax.sharding.Mesh) -> str | None:
    """The axes, those first along which processes change; None if they are so already."""
    owners = np.array([device.process_index for device in mesh.devices.flat]
                      ).reshape(mesh.devices.shape)
    is_inside = {name: not np.diff(owners, axis=axis).any()
                 for axis, (name, size) in enumerate(mesh.shape.items())
                 if size > 1}
    names = sorted(is_inside, key=is_inside.get)
    if names == list(is_inside):
        return None
    return ",".join(f"{name}:{mesh.shape[name]}" for name in names)


def _options_for(step: Step, options: Options) -> Options:
    """Completes options: a mesh, and numbers of the module's arguments for leaves."""
    return options.replace(mesh=options.mesh or find_tiers(step.mesh), **{
        name: _arguments_in(step, name, named)
        for name in ("weights_of", "gradients_of")
        if not isinstance(named := getattr(options, name), str | None)})


def _arguments_in(step: Step, option: str, named) -> tuple[int, ...]:
    """The numbers of the module's arguments that `named` names. The module has
    only those leaves of the arguments that are used."""
    exported = step.exported
    leaves = jax.tree.unflatten(exported.in_tree, range(len(exported.in_avals)))
    if callable(named):
        (args, kwargs) = leaves
        paths = jax.tree_util.tree_flatten_with_path(args)[0]
        paths += jax.tree_util.tree_flatten_with_path(kwargs)[0]
        chosen = {number for path, number in paths
                  if named(jax.tree_util.keystr(path))}
    else:
        chosen = set(named)
        if beyond := sorted(chosen - set(range(len(exported.in_avals)))):
            raise ValueError(f"{option}: expected arguments below "
                             f"{len(exported.in_avals)}, but got {beyond[0]}")
    # Tokens stand before the arguments.
    found = tuple(index for index, number in enumerate(
        exported.module_kept_var_idx, len(exported.ordered_effects))
        if number in chosen)
    if callable(named) and not found:
        example = jax.tree_util.keystr(paths[0][0]) if paths else "none"
        warn(f"{option}: the function chooses no argument that the step uses; paths "
             f"are such as {example}")
    elif len(found) < len(chosen) and not callable(named):
        unused = chosen - set(exported.module_kept_var_idx)
        warn(f"{option}: the step does not use argument {min(unused)}; numbers are of "
             "the leaves of all arguments, in their order")
    return found


def _target_of(step: Step, options: Options) -> str:
    """The target that executes the collectives of this step."""
    target, platforms = options.target, step.exported.platforms
    if target == "auto":
        # The runtime's cpu back end is for tests only.
        return cuda_if_possible() if platforms == ("cuda",) else "portable"
    if target != "portable" and platforms != (target,):
        raise ValueError(f"expected a step exported for {target}, but got one "
                         f"for {', '.join(platforms)}")
    return target


def cuda_if_possible() -> str:
    reason = _runtime.obstacle("cuda")
    if reason is None:
        try:
            find_bundler()
            return "cuda"
        except FileNotFoundError as error:
            reason = str(error)
    logger.warning("target portable instead of cuda: %s", reason)
    return "portable"
