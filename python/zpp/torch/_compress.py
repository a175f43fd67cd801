# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`compress` and `report`: FSDP2's collectives as zpp's functions."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from zpp._cache import cache_folder
from zpp._guard import Guard
from zpp._option_kinds import MEASURED, parse_mesh
from zpp._options import read_schedule
from zpp._torch_options import TorchOptions as Options
from zpp._warn import warn
from zpp.torch import _agreement, _fsdp, _mesh, _pytorch
from zpp.torch._agreement import Ballots
from zpp.torch._bucket import sends_differences
from zpp.torch._communication import Communication
from zpp.torch._exact import check_patterns, warn_of_vectors
from zpp.torch._links import find_links
from zpp.torch._plans import Plan, make_all
from zpp.torch._runtime import use_groups, versions
from zpp.torch._shared import Call


def compress(model: nn.Module, options: Options | None = None, /, *,
             schedule: Mapping[int, Mapping[str, Any]] | None = None,
             steps_done: int = 0, guard: Guard | float | None = None, **changes: Any
             ) -> nn.Module:
    """Replaces the collectives of fully_shard (FSDP2) by those of ZeRO++.

        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        zpp.torch.compress(model, mesh="node:2,gpu:8", weights="i8",
                           gradients="i8:i4")

    Call it on all ranks, after fully_shard. It applies to all modules of
    fully_shard within `model`; another call for one of them overrides it there,
    and weights="none", gradients="none" give PyTorch its own collectives back.
    State dicts and checkpoints do not change.

    It compiles what the next steps need and makes process groups for hops, so
    that errors come here. All ranks must pass the same.

    Args:
      options: a `zpp.torch.Options`.
      schedule: options that replace the others from some step on:
        {5000: {"gradients": "none"}} compresses gradients for 5000 steps. A
        step of a module is a backward pass in which its gradients are reduced.
      steps_done: steps before this call, for a training that is resumed.
      guard: a bound on relative rounding errors of parameters, as a `zpp.Guard` or a
        number: the module of one above it sends weights, or gradients, in the next
        wider format from then on. In any case a warning names parameters that are lost
        by half.
      **changes: fields of `zpp.torch.Options` that replace those in `options`.

    Returns:
      `model`.

    Raises:
      TypeError: if `model` has no module of fully_shard, or one of FSDP1, or if
        an argument is of another type.
      ValueError: if an option, the mesh or a group is not valid, if a module has
        collectives of its user's, or if ranks pass different things.
      RuntimeError: if zpp does not know this version of PyTorch, or if other
        ranks do not call it.
      FileNotFoundError: if the compiler or the runtime library is not found.
      CompileError: with the compiler's message.
    """
    _pytorch.check_version()
    _check_arguments(options, schedule, steps_done)
    guarded = Guard.of(guard)
    modules = dict(_fsdp.modules_of(model))
    groups = _groups_of(modules)
    all_groups = [group for _, _, parameters in groups
                  for group in _fsdp.groups_of(parameters)]
    options = _with_mesh(options or Options(), changes,
                         [parameters for _, _, parameters in groups], all_groups)
    check_options(options)
    # There may be no parameters, as in a stage of a pipeline.
    device = next((parameters.device for _, _, parameters in groups), torch.device("cpu"))
    if is_measured(options, device):
        options = options.replace(links=_find_links(options, device, all_groups))
    variants = read_variants(schedule or {}, options)
    is_off = all(
        variant.weights == "none" and variant.gradients == "none"
        and {variant.secondary, variant.accumulate, variant.moments} <= {None, "none"}
        for _, variant in variants)
    _check_pending(modules)
    _check_rest(model)
    _check_groups(groups, str(options.mesh))

    names = _pytorch.names_of(model, [parameters for _, _, parameters in groups])
    all_names = {each: name for of_group in names.values()
                 for each, name in of_group.items()}
    for _, variant in variants if all_names else ():
        check_patterns(variant, [*all_names.values()])
    if any({variant.weights, variant.gradients} != {"none"} for _, variant in variants):
        warn_of_vectors(all_names)
    call = Call(options.mesh, variants, guarded,
                Ballots(at_once=device.type != "cpu"), steps_done)
    communications = [
        Communication(name, module, parameters, call, names[parameters])
        for name, module, parameters in groups]
    _agreement.check(all_groups, {
        **{f"options from step {step}": repr(variant)
           for step, variant in variants},
        "steps_done": steps_done, "guard": repr(guarded), **versions(),
        "slices of modules": [[each.shared.name, each.facts()]
                              for each in communications]})
    if not is_off:
        make_ready([(communication, maker) for communication in communications
                    for maker in communication.makers()])
        _check_use(communications, variants)
    _attach(modules, groups, communications, is_off)
    for module in modules.values():
        _pytorch.count_forward_passes(module)
    return model


def _attach(modules: Mapping[str, FSDPModule],
            groups: list[tuple[str, FSDPModule, Any]],
            communications: list[Communication], is_off: bool) -> None:
    """Attaches these to the modules, one for each group, or PyTorch's own collectives."""
    for module in modules.values():
        for communication in _fsdp.attached(module) or ():
            communication.detach()
        _fsdp.attach(module, [])
    for (_, module, parameters), communication in zip(groups, communications):
        reductions, mesh = communication.reductions, communication.shared.mesh
        accumulates = not is_off and reductions.can_accumulate()
        for name, call in ((_fsdp.POST_BACKWARD, reductions.accumulation.post_backward),
                           (_fsdp.RESET, reductions.accumulation.reset)):
            _fsdp.replace(parameters, name, call if accumulates else None)
        if is_off:
            _fsdp.restore_collectives(parameters)
            continue
        _fsdp.set_collectives(
            parameters, None if _keeps_own(parameters, mesh) else
            communication.collectives(), reductions.all_reduce)
        communication.attach()
        _fsdp.attached(module).append(communication)


def communications_of(model: nn.Module
                      ) -> Iterator[tuple[str, int, Communication]]:
    """Yields communications within `model`, after the module's name and their number."""
    seen = set()
    for name, module in _fsdp.modules_of(model):
        for number, communication in enumerate(_fsdp.attached(module) or ()):
            # A group of several modules has one.
            if communication not in seen:
                seen.add(communication)
                yield name, number, communication


def _check_arguments(options: Any, schedule: Any, steps_done: Any) -> None:
    if not isinstance(options, Options | None):
        raise TypeError(f"expected zpp.torch.Options, or options by name, such "
                        f"as weights='i8', but got {options!r}")
    if not isinstance(schedule, Mapping | None):
        raise TypeError(f"schedule: expected options by step, such as "
                        f"{{5000: {{'gradients': 'none'}}}}, but got "
                        f"{schedule!r}")
    if (not isinstance(steps_done, int) or isinstance(steps_done, bool)
            or steps_done < 0):
        raise ValueError(f"steps_done: expected a number of steps, but got "
                         f"{steps_done!r}")


def _check_rest(model: nn.Module) -> None:
    """Warns of trained parameters that fully_shard does not manage yet: those of a
    root that is sharded later would be left alone in silence."""
    managed = {id(parameter) for _, module in _fsdp.modules_of(model)
               for parameter in module.parameters()}
    rest = [name for name, parameter in model.named_parameters()
            if parameter.requires_grad and id(parameter) not in managed]
    if rest:
        warn(f"expected fully_shard to be called for all of the model before "
             f"compress, but got {len(rest)} parameters outside of it, such as "
             f"'{rest[0]}': they are not compressed, and neither is what "
             f"fully_shard is called for later")


def _check_pending(modules: Mapping[str, FSDPModule]) -> None:
    """Checks that no gradients wait, which would be lost."""
    for module in modules.values():
        for each in _fsdp.attached(module) or ():
            if each.reductions.accumulation.is_pending:
                raise RuntimeError(
                    f"{each.shared.title}: expected compress to be called between updates, but "
                    f"gradients wait for the last micro-batch of one; "
                    f"zpp.torch.forget(model) drops them")


def _check_use(communications: list[Communication],
               variants: list[tuple[int, Options]]) -> None:
    """Warns of options without effect."""
    if any(each.is_dry_run() for each in communications):
        return
    for _, options in variants:
        if sends_differences(options) and not any(
                each.gathers.sends_differences() for each in communications):
            warn(f"weights={options.weights!r}: no weights are gathered from "
                 f"another secondary group: what is gathered travels whole, in i8; "
                 f"with secondary=1 each device holds all weights")
            return
        if options.accumulate not in (None, "none") and not any(
                each.reductions.can_accumulate() for each in communications):
            warn(f"accumulate={options.accumulate!r}: no gradients are summed "
                 f"between such groups, so it has no effect")
            return
        if options.secondary not in (None, "none") and not any(
                each.gathers.can_hold(options) for each in communications):
            warn(f"secondary={options.secondary!r}: no weights are gathered from "
                 f"another such group, so it has no effect")
            return


def make_ready(makers: list[tuple[Communication, Callable[[], Plan]]]) -> None:
    """Compiles what the functions make for their communications; makes the runners."""
    cache_folder()  # A warning belongs to the caller's line.
    plans = make_all(maker for _, maker in makers)
    for (communication, _), plan in zip(makers, plans):
        if plan.compiled:
            communication.make_runner(plan)


def forget(model: nn.Module) -> None:
    """Drops what nodes hold of the weights within `model`, so that the next
    gathers cross nodes again, with whole weights, and the gradients that wait for the
    last micro-batch of an update. All ranks call it after weights were written to in a
    way that PyTorch does not see, through `.data` or by a kernel of your own, or to
    give up an update. Only with secondary=, weights="i4:delta" or accumulate=;
    otherwise it does nothing.

    Raises:
      RuntimeError: if steps have used other weights than there are.
    """
    for _, _, communication in communications_of(model):
        communication.forget()


def report(model: nn.Module) -> dict:
    """Reports what the modules of fully_shard within `model` have sent on this rank
    since `compress`.

    Returns:
      "mesh", the tiers; "links", as they were given or measured, or None;
      "collectives", for each collective of a module its
      "module", "kind", "type", "elements" of one rank's slice, "group",
      "calls", the bytes that a rank sends over each tier per call, "before" and
      "after", whether it was "rewritten", and the "reason" where not, and for those
      that are run by hops the same of each of the "hops" that was run; "total",
      the bytes of all calls, "before" and "after", and "state_bytes" that the
      device of this rank holds between gathers. What PyTorch's own collectives
      send is not in it, once compress has given them back.
    """
    if all(_fsdp.attached(module) is None
           for _, module in _fsdp.modules_of(model)):
        raise ValueError("expected a model that zpp.torch.compress was called "
                         "with, but got another one")
    found = [(name, communication) for name, _, communication in communications_of(model)]
    if not found:
        return report_of(found, {}, None)
    shared = found[0][1].shared
    return report_of(found, parse_mesh(shared.mesh), shared.options_at(shared.steps).links)


def report_of(communications: list[tuple[str, Communication]], mesh: dict[str, int],
              links: Any) -> dict:
    """The report of communications, with the names of their modules."""
    entries = [entry for name, communication in communications
               for entry in communication.entries(name)]
    # Parts of a model may have meshes of their own.
    tiers = dict.fromkeys([*mesh, *(tier for entry in entries for tier in entry["before"])])
    total: dict[str, Any] = {
        side: {tier: sum(entry[side].get(tier, 0) * entry["calls"]
                         for entry in entries) for tier in tiers}
        for side in ("before", "after")}
    total["state_bytes"] = sum(communication.state_bytes()
                               for _, communication in communications)
    return {"mesh": mesh, "links": links, "collectives": entries, "total": total}


def _groups_of(modules: Mapping[str, FSDPModule]
               ) -> list[tuple[str, FSDPModule, Any]]:
    """Each group of parameters with the first module that it belongs to:
    fully_shard([a, b]) makes one group of two modules."""
    groups: dict[Any, Any] = {}
    for name, module in modules.items():
        for parameters in _fsdp.parameter_groups(module):
            groups.setdefault(parameters, (name, module, parameters))
    return list(groups.values())


def _with_mesh(options: Options, changes: Mapping[str, Any],
               groups: list[Any], all_groups: list[dist.ProcessGroup]) -> Options:
    """The options with their changes, and with a mesh."""
    changes = dict(changes)
    if isinstance(changes.get("mesh"), DeviceMesh):
        devices = changes["mesh"]
        changes["mesh"] = _mesh.tiers_of_devices(devices)
        use_groups(devices)
    options = options.replace(**changes)
    if options.mesh is not None:
        _mesh.check_world(parse_mesh(options.mesh))
        return options
    for devices in map(_fsdp.mesh_of, groups):
        if tiers := _mesh.tiers_of_sharding(devices):
            use_groups(devices)
            return options.replace(mesh=tiers)
    _check_all_call("mesh", "that of the hosts", all_groups)
    return options.replace(mesh=_mesh.tiers_of_hosts())


def _check_all_call(option: str, value: Any, groups: list[dist.ProcessGroup]) -> None:
    """Checks that all ranks, not only those of the groups, find an option out together:
    they would take what others exchange for theirs, or wait for them."""
    for checked in (groups, [dist.group.WORLD]):
        _agreement.check(checked, {option: value}, hint=(
            f"; with {option}= only ranks that have a part of the model need to"))


def read_variants(schedule: Mapping[int, Mapping[str, Any]], options: Options
                   ) -> list[tuple[int, Options]]:
    """Options by the step from which on they hold, the latest first."""
    tiers = parse_mesh(options.mesh)
    variants = []
    for step, variant in read_schedule(schedule, options, "step"):
        check_options(variant)
        if variant.mesh != options.mesh:
            raise ValueError(f"schedule: expected the mesh {options.mesh} at "
                             f"all steps, but got {variant.mesh}")
        _mesh.check_formats(variant.gradients, tiers)
        variants.append((step, variant.replace(
            links=_mesh.read_links(variant.links, tiers))))
    return variants


def is_measured(options: Options, device: torch.device) -> bool:
    """Whether links are measured: where the options say so, by default on GPUs."""
    return options.links == MEASURED or options.links is None and device.type == "cuda"


def _find_links(options: Options, device: torch.device,
                all_groups: list[dist.ProcessGroup]) -> str | None:
    """The links of the mesh; None in a dry run."""
    if not all_groups or any(map(_pytorch.is_dry_run, all_groups)):
        return None
    _check_all_call("links", options.links, all_groups)
    return find_links(parse_mesh(options.mesh), device)


def _check_groups(groups: list[Any], mesh: str) -> None:
    """Checks that zpp can send what the groups of parameters send."""
    for name, _, parameters in groups:
        for group in _fsdp.groups_of(parameters):
            check_group(_fsdp.title_of(name, parameters), group, mesh)
        if not _keeps_own(parameters, mesh):
            _check_own(name, parameters)


def check_group(title: str, group: dist.ProcessGroup, mesh: str) -> None:
    """Checks that the ranks of what has a title differ in whole tiers."""
    try:
        _mesh.tiers_of_group(mesh, group)
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from None


def _check_own(name: str, parameters: Any) -> None:
    """Checks that nobody else has replaced PyTorch's collectives."""
    if found := _fsdp.foreign_collectives(parameters):
        raise ValueError(
            f"{_fsdp.title_of(name, parameters)}: expected PyTorch's own collectives, "
            f"which zpp replaces, but got {' and '.join(found)}; "
            f"leave out set_custom_all_gather and set_custom_reduce_scatter for this module, "
            f"compress the others alone, or shard this one within nodes and replicate "
            f"it between them (HSDP), where its collectives stay as they are, and zpp "
            f"reduces between the nodes")


def _keeps_own(parameters: Any, mesh: str) -> bool:
    """Whether a group's collectives are its user's, and stay within the fastest tier,
    where they are to be left alone: only replicas are on other nodes."""
    shards = _fsdp.shard_group(parameters)
    return (not _fsdp.has_default_collectives(parameters) and shards is not None
            and _fsdp.replica_group(parameters) is not None
            and [*_mesh.tiers_of_group(mesh, shards)] == [*parse_mesh(mesh)][-1:])


def check_options(options: Options) -> None:
    """Raises ValueError if the secondary group is none of the mesh."""
    if options.secondary == "none" and sends_differences(options):
        raise ValueError(
            f"secondary: expected a tier or a number of devices, whose group "
            f"holds what weights={options.weights!r} adds differences to, but "
            f"got 'none'; leave it out for the innermost tier")
    if options.mesh is not None and options.accumulate not in (None, "none"):
        _mesh.inner_tiers(options.accumulate, parse_mesh(options.mesh))
    if options.mesh is not None and options.secondary not in (None, "none"):
        _mesh.devices_of(options.secondary, parse_mesh(options.mesh))
