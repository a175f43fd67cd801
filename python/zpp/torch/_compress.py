# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`compress` and `report`: FSDP2's collectives as zpp's functions."""

import copy
import dataclasses
import functools
import itertools
import math
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

from zpp._options import Options, parse_mesh, read_schedule
from zpp.torch import _mesh
from zpp.torch._bucket import (Bucket, Compiled, compile_bucket,
                               sent_as_it_is)
from zpp.torch._runtime import Runner, use_groups

#: What the compiler calls the types that it knows.
_TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
#: Where FSDP2 keeps the process group of the replicas of HSDP.
_REPLICAS = "replicate_process_group"
#: Options of steps that are compiled as a whole.
_OF_STEPS = ("weights_of", "updated", "regather", "prefetch_bytes",
             "coalesce_bytes")

#: What `compress` has attached, by the module of fully_shard.
_attached: "weakref.WeakKeyDictionary[FSDPModule, list[_Communication]]" = (
    weakref.WeakKeyDictionary())
#: They live as long as the process.
_runners: dict[tuple[dist.ProcessGroup, str, torch.device, str], Runner] = {}


def compress(model: nn.Module, options: Options | None = None, /, *,
             schedule: Mapping[int, Mapping[str, Any]] | None = None,
             steps_done: int = 0, **changes: Any) -> nn.Module:
    """Replaces the collectives of fully_shard (FSDP2) by those of ZeRO++.

        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        zpp.torch.compress(model, mesh="node:2,gpu:8", weights="i8",
                           gradients="i8:i4")

    Call it on all ranks, after fully_shard. It applies to all modules of
    fully_shard within `model`; another call for one of them overrides it there,
    and weights="none", gradients="none" restore PyTorch's collectives. State
    dicts and checkpoints do not change.

    Args:
      options: a `zpp.Options`.
      schedule: options that replace the others from some step on:
        {5000: {"gradients": "none"}} compresses gradients for 5000 steps. A
        step of a module is a backward pass in which its gradients are reduced.
      steps_done: steps before this call, for a training that is resumed.
      **changes: fields of `zpp.Options` that replace those in `options`. mesh:
        the tiers of all ranks, or a `DeviceMesh` of them, whose process groups
        are then used; None means hosts and the ranks on each. secondary: the
        group within which the backward pass gathers; it must agree with
        reshard_after_forward of fully_shard. Weights are not quantized again in
        it.

    Returns:
      `model`.

    Raises:
      TypeError: if `model` has no module of fully_shard, or one of FSDP1, or if
        `options` is something else.
      ValueError: if an option, the mesh or a group is not valid.
      RuntimeError: if this version of PyTorch is too old.
    """
    if not isinstance(options, Options | None):
        raise TypeError(f"expected zpp.Options, or options by name, such as "
                        f"weights='i8', but got {options!r}")
    if isinstance(changes.get("mesh"), DeviceMesh):
        devices = changes["mesh"]
        changes["mesh"] = _mesh.tiers_of_devices(devices)
        use_groups(devices)
    options = (options or Options()).replace(**changes)
    _check_options(options)
    if not isinstance(steps_done, int) or steps_done < 0:
        raise ValueError(f"steps_done: expected a number of steps, but got "
                         f"{steps_done!r}")
    modules = dict(_modules_of(model))
    if options.mesh is None:
        tiers = _mesh.tiers_of_hosts()
        options = options.replace(mesh=tiers)
    else:
        tiers = parse_mesh(options.mesh)
        _mesh.check_world(tiers)
    variants = []
    for step, variant in read_schedule(schedule or {}, options, "step"):
        _check_options(variant)
        if variant.mesh != options.mesh:
            raise ValueError(f"schedule: expected the mesh {options.mesh} at "
                             f"all steps, but got {variant.mesh}")
        variants.append((step, variant.replace(
            links=_mesh.read_links(variant.links, tiers))))
    for name, module in modules.items():
        for group in itertools.chain(*map(_process_groups,
                                          _parameter_groups(module))):
            try:
                _mesh.find_tiers(tiers, dist.get_process_group_ranks(group))
            except ValueError as error:
                raise ValueError(f"'{name}': {error}") from None
    others: list[_Communication] = []
    done = set()
    for name, module in modules.items():
        _attached[module] = []
        parameter_groups = _parameter_groups(module)
        for parameters in parameter_groups:
            # fully_shard([a, b]) makes one group of two modules.
            if parameters in done:
                continue
            done.add(parameters)
            communication = _Communication(name, options.mesh, variants,
                                           steps_done, others)
            others.append(communication)
            _attached[module].append(communication)
            gather = _AllGather(communication)
            scatter = _ReduceScatter(communication)
            if len(parameter_groups) == 1:
                module.set_custom_all_gather(gather)
                module.set_custom_reduce_scatter(scatter)
            else:
                # These refuse modules whose parameters have several meshes.
                parameters._all_gather_comm = gather
                parameters._reduce_scatter_comm = scatter
            _set_all_reduce(parameters, communication)
    return model


def report(model: nn.Module) -> dict:
    """What the modules of fully_shard within `model` have sent on this rank
    since `compress`.

    Returns:
      "mesh", the tiers; "collectives", for each collective of a module its
      "module", "kind", "type", "elements" of one rank's slice, "group",
      "calls", the bytes that a rank sends over each tier per call, "before" and
      "after", whether it was "rewritten", and the "reason" where not; "total",
      the bytes of all calls, "before" and "after".
    """
    communications = [(name, communication)
                      for name, module in _modules_of(model)
                      for communication in _attached.get(module, ())]
    if not communications:
        raise ValueError("expected a model that zpp.torch.compress was called "
                         "with, but got another one")
    mesh = parse_mesh(communications[0][1].mesh)
    entries = [entry for name, communication in communications
               for entry in communication.entries(name)]
    return {"mesh": mesh, "collectives": entries, "total": {
        side: {tier: sum(entry[side].get(tier, 0) * entry["calls"]
                         for entry in entries) for tier in mesh}
        for side in ("before", "after")}}


@dataclasses.dataclass(frozen=True, eq=False)
class _Plan:
    """The plan for one collective."""

    kind: str
    type: str
    elements: int
    #: None where the compiler does not know the type, or nothing is sent.
    bucket: Bucket | None
    #: None where PyTorch does it, for a reason.
    compiled: Compiled | None
    reason: str

    def entry(self, name: str, calls: int) -> dict:
        """The entry of the report."""
        bucket = self.bucket
        before = after = sent_as_it_is(bucket) if bucket else {}
        if self.compiled:
            after = self.compiled.sent
        return {
            "module": name, "kind": self.kind, "type": self.type,
            "elements": self.elements,
            "group": _mesh.describe(dict(bucket.tiers)) if bucket else "",
            "calls": calls, "before": dict(before), "after": dict(after),
            "rewritten": self.compiled is not None, "reason": self.reason}


@functools.cache
def _plan(kind: str, dtype: torch.dtype, elements: int, is_mean: bool,
          mesh: str, group: dist.ProcessGroup, options: Options, reason: str
          ) -> _Plan:
    """Args:
      mesh: the tiers of all ranks.
      reason: why it is left to PyTorch, if this is known already.
    """
    type_ = _TYPES.get(dtype)
    tiers = _mesh.find_tiers(parse_mesh(mesh),
                             dist.get_process_group_ranks(group))
    if type_ is None or not elements or not tiers:
        type_ = type_ or str(dtype).removeprefix("torch.")
        return _Plan(kind, type_, elements, None, None, reason or (
            "nothing is sent" if not elements or not tiers else
            "it has parameters of several types, which fully_shard gathers as "
            "bytes; set param_dtype, or shard them as modules of their own"
            if dtype == torch.uint8 else
            f"expected elements of float32, bfloat16 or float16, but got "
            f"{type_}"))
    bucket = Bucket(kind, type_, elements, tuple(tiers.items()), is_mean)
    compiled = None
    if not reason:
        formats = _mesh.gradient_formats(options.gradients, parse_mesh(mesh),
                                         tiers)
        compiled = compile_bucket(
            bucket, bucket.options(options.replace(gradients=formats)))
        reason = compiled.reason
    return _Plan(kind, type_, elements, bucket, None if reason else compiled,
                 reason)


class _Communication:
    """The state that the collectives of a group of parameters share. A module of
    fully_shard has one group, or one for each mesh of its parameters."""

    def __init__(self, name: str, mesh: str,
                 variants: list[tuple[int, Options]], steps: int,
                 others: list["_Communication"]):
        self.name = name
        self.mesh = mesh
        self._variants = variants
        #: Backward passes in which the gradients were reduced.
        self._steps = steps
        self._has_gradients = False
        #: The options of the latest scatter, until its result is reduced.
        self._reduced: Options | None = None
        #: Of all modules of the same call of `compress`.
        self._others = others
        #: Ranks of the largest group so far: that of the sharded weights.
        self._ranks = 0
        self._calls: Counter[_Plan] = Counter()

    def gather(self, result: torch.Tensor, source: torch.Tensor,
               group: dist.ProcessGroup, async_op: bool) -> Any:
        # A frozen module has no steps of its own.
        options = self._options_at(self._steps if self._has_gradients else
                                   max(other._steps for other in self._others))
        self._check_secondary(options, group)
        self._ranks = max(self._ranks, group.size())
        reason = ""
        if group.size() < self._ranks:
            reason = "it is gathered from a secondary partition"
        elif options.weights == "none":
            reason = "gathers of weights are to stay as they are"
        plan = _plan("all_gather", source.dtype, source.numel(), False,
                     self.mesh, group, options, reason)
        self._calls[plan] += 1
        if not plan.compiled:
            return dist.all_gather_into_tensor(result, source, group=group,
                                               async_op=async_op)
        # FSDP2 gathers in place, but a function's buffers must not overlap.
        self._run(plan, source.clone() if _overlap(source, result) else source,
                  result, group)

    def scatter(self, result: torch.Tensor, source: torch.Tensor,
                group: dist.ProcessGroup, op: Any, async_op: bool) -> Any:
        self._reduced = self._next_step()
        plan, factor = self._plan_reduction(
            "reduce_scatter", result, group, op, self._reduced)
        if not plan.compiled:
            return dist.reduce_scatter_tensor(result, source, op=op,
                                              group=group, async_op=async_op)
        self._run(plan, source, result, group)
        if factor is not None:
            result.mul_(factor)

    def all_reduce(self, tensor: torch.Tensor, group: dist.ProcessGroup, op: Any
                   ) -> None:
        """In place, over the replicas of HSDP."""
        # It is of the same step as the scatter, if there was one.
        options, self._reduced = self._reduced or self._next_step(), None
        plan, factor = self._plan_reduction(
            "all_reduce", tensor, group, op, options)
        if not plan.compiled:
            dist.all_reduce(tensor, op=op, group=group)
            return
        # A function's buffers must not overlap.
        self._run(plan, tensor.clone(), tensor, group)
        if factor is not None:
            tensor.mul_(factor)

    def _plan_reduction(self, kind: str, result: torch.Tensor,
                        group: dist.ProcessGroup, op: Any, options: Options
                        ) -> tuple[_Plan, float | None]:
        """With the number by which the sum is multiplied, if it is."""
        is_mean = op == dist.ReduceOp.AVG
        # PyTorch multiplies each summand, zpp multiplies the sum.
        factor = (op.__getstate__()[1] if op == dist.ReduceOp.PREMUL_SUM
                  else None)
        reason = ""
        if options.gradients == "none":
            reason = ("scatters of gradients are to stay as they are"
                      if kind == "reduce_scatter" else
                      "all-reduces of gradients are to stay as they are")
        elif not is_mean and factor is None and op != dist.ReduceOp.SUM:
            reason = f"it is no sum and no mean, but {op}"
        plan = _plan(kind, result.dtype, result.numel(), is_mean, self.mesh,
                     group, options, reason)
        self._calls[plan] += 1
        return plan, factor

    def _next_step(self) -> Options:
        """The options of a step whose gradients are reduced now."""
        options = self._options_at(self._steps)
        self._steps += 1
        self._has_gradients = True
        return options

    def entries(self, name: str) -> list[dict]:
        """The entries of the report."""
        return [plan.entry(name, calls) for plan, calls in self._calls.items()]

    def _run(self, plan: _Plan, source: torch.Tensor, result: torch.Tensor,
             group: dist.ProcessGroup) -> None:
        runner = _runner(group, dict(plan.bucket.tiers), source.device,
                         plan.kind)
        runner.run(plan.compiled, source, result)

    def _options_at(self, step: int) -> Options:
        return next(options for first, options in self._variants
                    if first <= step)

    def _check_secondary(self, options: Options, group: dist.ProcessGroup
                         ) -> None:
        """Checks that the backward pass gathers within the secondary group, if
        there is one. PyTorch does not provide the group earlier."""
        is_backward = torch._C._current_graph_task_id() != -1
        if options.secondary in (None, "none") or not is_backward:
            return
        wanted = _devices_of(options.secondary, parse_mesh(self.mesh))
        if group.size() != wanted:
            raise ValueError(
                f"secondary={options.secondary!r}: expected '{self.name}' to "
                f"gather over {wanted} ranks in the backward pass, but got "
                f"{group.size()}; call fully_shard with "
                f"reshard_after_forward={wanted}")


class _AllGather:
    """For FSDPModule.set_custom_all_gather."""

    def __init__(self, communication: _Communication):
        self._communication = communication

    def allocate(self, size, *, dtype: torch.dtype, device: torch.device
                 ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, async_op: bool = False) -> Any:
        return self._communication.gather(output_tensor, input_tensor, group,
                                          async_op)


class _ReduceScatter:
    """For FSDPModule.set_custom_reduce_scatter."""

    def __init__(self, communication: _Communication):
        self._communication = communication

    def allocate(self, size, *, dtype: torch.dtype, device: torch.device
                 ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, op: Any, async_op: bool = False
                 ) -> Any:
        return self._communication.scatter(output_tensor, input_tensor, group,
                                           op, async_op)


class _Replicas(dist.ProcessGroup):
    """The replicas of a module of HSDP, for dist.all_reduce.

    FSDP2 lets others reduce after it has reduced between replicas itself, but
    not in its place. So it gets a process group that does it.
    """

    def __init__(self, communication: _Communication,
                 group: dist.ProcessGroup):
        super().__init__(group.rank(), group.size())
        self.group = group
        self._communication = communication
        # PyTorch looks it up when it logs an error.
        known = dist.distributed_c10d._world.pg_map
        known[self] = known[group]

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> None:
        (tensor,) = tensors
        self._communication.all_reduce(tensor, self.group, opts.reduceOp)


def _process_groups(parameters: Any) -> list[dist.ProcessGroup]:
    """Those over which a group of parameters is sharded and replicated."""
    groups = [getattr(parameters.mesh_info, "shard_process_group", None),
              _replica_group(parameters)]
    return [group for group in groups if group is not None]


def _replica_group(parameters: Any) -> dist.ProcessGroup | None:
    group = getattr(parameters.mesh_info, _REPLICAS, None)
    return group.group if isinstance(group, _Replicas) else group


def _set_all_reduce(parameters: Any, communication: _Communication) -> None:
    group = _replica_group(parameters)
    if group is not None:
        # Other modules may have the same one.
        parameters.mesh_info = copy.copy(parameters.mesh_info)
        setattr(parameters.mesh_info, _REPLICAS,
                _Replicas(communication, group))


def _parameter_groups(module: FSDPModule) -> list[Any]:
    """What fully_shard knows of the weights of `module` itself."""
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return state._fsdp_param_groups
    return [state._fsdp_param_group] if state._fsdp_param_group else []


def _modules_of(model: nn.Module) -> Iterator[tuple[str, FSDPModule]]:
    """The modules of fully_shard within `model`, with their names."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a module of fully_shard, but got "
                        f"{type(model).__name__}")
    if not hasattr(FSDPModule, "set_custom_all_gather"):
        raise RuntimeError(f"expected PyTorch 2.9 or later, whose fully_shard "
                           f"lets others communicate, but got "
                           f"{torch.__version__}")
    found = False
    for name, module in model.named_modules():
        if isinstance(module, FullyShardedDataParallel):
            raise TypeError(
                f"expected modules of fully_shard (FSDP2), but got '{name}' of "
                f"FullyShardedDataParallel (FSDP1); shard the model with "
                f"torch.distributed.fsdp.fully_shard")
        if isinstance(module, FSDPModule):
            found = True
            yield name, module
    if not found:
        raise TypeError(f"expected a module of fully_shard, but got "
                        f"{type(model).__name__} without one; call fully_shard "
                        f"before compress")


def _check_options(options: Options) -> None:
    """Raises ValueError if an option has no meaning here."""
    for name in _OF_STEPS:
        if getattr(options, name) not in (None, "none"):
            raise ValueError(f"{name}: expected none for PyTorch, where "
                             f"fully_shard decides it, but got "
                             f"{getattr(options, name)!r}")
    if (options.weights or "").endswith(":delta"):
        raise ValueError(f"weights: expected 'none', 'i8' or 'i4' for PyTorch, "
                         f"where nothing is kept between steps, but got "
                         f"{options.weights!r}")
    for name in ("frozen", "feedback"):
        value = getattr(options, name)
        if value not in (None, "none"):
            raise ValueError(f"{name}: expected 'none' for PyTorch, where nothing "
                             f"is kept between steps, but got {value!r}")
    if options.target != "auto":
        raise ValueError(f"target: expected 'auto', because the model's device "
                         f"decides it, but got {options.target!r}")
    if options.mesh is not None and options.secondary not in (None, "none"):
        _devices_of(options.secondary, parse_mesh(options.mesh))


def _devices_of(secondary: str | int, tiers: Mapping[str, int]) -> int:
    """The size of a secondary group: the devices of a tier, with those of the
    faster ones."""
    if isinstance(secondary, int):
        return secondary
    names = list(tiers)
    if secondary not in names:
        raise ValueError(f"secondary: expected a tier of "
                         f"{_mesh.describe(tiers)} or a number of devices, but "
                         f"got {secondary!r}")
    return math.prod(list(tiers.values())[names.index(secondary):])


def _runner(group: dist.ProcessGroup, tiers: Mapping[str, int],
            device: torch.device, kind: str) -> Runner:
    # FSDP2 has a stream for each kind of collective. What one runner queues is
    # in order, so gathers would wait for scatters if they shared it.
    key = (group, _mesh.describe(tiers), device, kind)
    if key not in _runners:
        _runners[key] = Runner(group, tiers, device)
    return _runners[key]


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.data_ptr() < b.data_ptr() + b.nbytes and
            b.data_ptr() < a.data_ptr() + a.nbytes)
