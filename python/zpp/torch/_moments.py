# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Momenta that an optimizer orthogonalizes, as Muon does (moments="i8").

It needs whole momenta, and DTensor gathers them, or what is made of them, in each
iteration. Here each is gathered once per update: between nodes in int8, within them as
it is. All ranks orthogonalize the same bits, and each keeps its slice of the update.
"""

import functools
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._compile import _disable_dynamo
from torch.distributed.tensor import DTensor
from torch.optim import _muon
from torch.utils.weak import WeakIdKeyDictionary

from zpp._option_kinds import parse_mesh
from zpp._torch_options import TorchOptions as Options
from zpp.torch import _fsdp, _pytorch
from zpp.torch._layout import Layout, Segment
from zpp.torch._plans import Plan, block_of, make_plan, plan_hops
from zpp.torch._runtime import follow_timeout
from zpp.torch._secondary import Hops, gather_within, make_hops
from zpp.torch._shared import Shared, once

#: The kind of these gathers in reports and metrics.
KIND = "moment"
#: PyTorch's functions that are replaced: of the momenta of some parameters, and of one.
_OF_ALL, _OF_ONE = "_single_tensor_muon", "_zeropower_via_newtonschulz"
#: Those that are attached, and what is known of their parameters.
_attached: "weakref.WeakSet[Moments]" = weakref.WeakSet()
_owners = WeakIdKeyDictionary()


class Moments:
    """The gathers of momenta of a group of parameters."""

    def __init__(self, shared: Shared):
        self.shared = shared

    @property
    def parameters(self) -> list[Any]:
        return self.shared.parameters.fsdp_params

    def attach(self) -> None:
        """Has `gather_moment`, and PyTorch's Muon, find it."""
        if any(map(_is_on, self.shared.options)):
            _replace()
            _attached.add(self)
            _owners.clear()

    def detach(self) -> None:
        _attached.discard(self)
        _owners.clear()

    def makers(self) -> list[Callable[[], Plan]]:
        """Functions that make the plans of the gathers of momenta in float32."""
        return [
            functools.partial(self._plan, options, each, torch.float32, hops)
            for options in filter(_is_on, self.shared.options)
            for each in _pytorch.trained_parameters(self.shared.parameters)
            if _pytorch.dims_of(each) == 2 and (hops := self._hops(options, each))]

    def gathers(self, each: Any) -> bool:
        """Whether it gathers the momentum of a parameter, at this step."""
        options = self._options()
        return _is_on(options) and self._hops(options, each) is not None

    def gather(self, each: Any, moment: DTensor) -> torch.Tensor:
        """The whole momentum of a parameter; all ranks of its group call it."""
        options, parameters = self._options(), self.shared.parameters
        hops, group = self._hops(options, each), _fsdp.shard_group(parameters)
        assert hops and group
        self.shared.check_capture(moment)
        follow_timeout(group, parameters.device)
        dim, local = each.fsdp_placement.dim, moment.to_local()
        # The last slices may be short.
        source = local.new_zeros(_slice_size(each, group), device=parameters.device)
        source.narrow(dim, 0, local.size(dim)).copy_(local)
        outer = self._plan(options, each, moment.dtype, hops)
        held = source.new_empty(source.numel() * hops.outer.size())
        if outer.compiled:
            self.shared.function(outer)([source.view(-1)], held)
        else:
            dist.all_gather_into_tensor(held, source.view(-1), hops.outer)
        result = source.new_empty(group.size(), *source.shape)
        gather_within(result.view(-1), held, hops)
        self.shared.calls[plan_hops(
            outer, self.shared.mesh, group, hops.inner, moment.dtype, False)] += 1
        whole = torch.cat(result.unbind(), dim).narrow(dim, 0, each._orig_size[dim])
        return whole.to(local.device)

    def slice_of(self, each: Any, whole: torch.Tensor, like: DTensor) -> DTensor:
        """A whole tensor, sharded as a momentum."""
        group, dim = _fsdp.shard_group(self.shared.parameters), each.fsdp_placement.dim
        begin = min(group.rank() * _slice_size(each, group)[dim], whole.size(dim))
        local = whole.narrow(dim, begin, like.to_local().size(dim)).contiguous()
        return DTensor.from_local(local, like.device_mesh, like.placements,
                                  run_check=False, shape=like.shape, stride=like.stride())

    def _options(self) -> Options:
        """Those of the step whose gradients were reduced last."""
        return self.shared.options_at(max(0, self.shared.steps - 1))

    @once
    def _hops(self, options: Options, each: Any) -> Hops | None:
        """The hops of a gather, of which the outer one is between nodes; None if it is
        PyTorch's: within nodes, or with tensor parallelism."""
        group = _fsdp.shard_group(self.shared.parameters)
        if group is None or _pytorch.is_dry_run(group) or each.is_dtensor:
            return None
        _, *inner = parse_mesh(self.shared.mesh).values()
        return make_hops(group, math.prod(inner), self.shared.parameters.device)

    @once
    def _plan(self, options: Options, each: Any, dtype: torch.dtype, hops: Hops) -> Plan:
        group = _fsdp.shard_group(self.shared.parameters)
        elements, block = _slice_size(each, group).numel(), block_of(options)
        layout = Layout((Segment(dtype, elements, self.shared.exact.is_exact(
            each, options, block)),), block)
        return make_plan(
            "all_gather", dtype, elements, False, self.shared.mesh, hops.outer,
            options.replace(weights=options.moments), "", layout, role=KIND)


def _is_on(options: Options) -> bool:
    return options.moments not in (None, "none")


def _slice_size(each: Any, group: dist.ProcessGroup) -> torch.Size:
    """The size of a slice of a parameter, with padding."""
    size = list(each._orig_size)
    dim = each.fsdp_placement.dim
    size[dim] = -(-size[dim] // group.size())
    return torch.Size(size)


def _find(parameter: Any, moment: torch.Tensor) -> tuple[Any, Moments] | None:
    """Returns what gathers the momentum of a parameter; None if PyTorch does."""
    if parameter is None or not isinstance(moment, DTensor):
        return None
    if parameter not in _owners:
        # FSDP2 may have made it since.
        _owners[parameter] = next((
            (number, weakref.ref(moments)) for moments in _attached
            for number, each in enumerate(moments.parameters)
            if each.sharded_param is parameter), None)
    if _owners[parameter] is None:
        return None
    number, weak = _owners[parameter]
    moments = weak()
    if moments is None or (
            (moment.shape, moment.placements, moment.device_mesh) !=
            (parameter.shape, parameter.placements, parameter.device_mesh)):
        return None
    each = moments.parameters[number]
    return (each, moments) if moments.gathers(each) else None


@torch.no_grad()
def gather_moment(moment: torch.Tensor, parameter: nn.Parameter) -> torch.Tensor:
    """Returns a whole momentum, for optimizers that orthogonalize it. All ranks call it,
    in the place of `moment.full_tensor()`:

        momentum.lerp_(parameter.grad, 0.05)
        update = newton_schulz(zpp.torch.gather_moment(momentum, parameter))

    With moments="i8" of `zpp.torch.compress` it travels in int8 between nodes, and all
    ranks have the same bits; otherwise it is `moment.full_tensor()`. The momentum itself
    stays as it is. PyTorch's own Muon needs no such call.

    Args:
      moment: the momentum, or a sum of it and the gradient; sharded as the parameter.
    """
    if found := _find(parameter, moment):
        each, moments = found
        return moments.gather(each, moment)
    return moment.full_tensor() if isinstance(moment, DTensor) else moment


#: The parameter whose momentum a thread orthogonalizes.
_now = threading.local()


@functools.cache
def _replace() -> None:
    """Has PyTorch's Muon gather what `_find` finds."""
    of_all, of_one = getattr(_muon, _OF_ALL), getattr(_muon, _OF_ONE)

    @_disable_dynamo
    def orthogonalize_all(params: list, grads: list, momenta: list, **rest: Any) -> None:
        for parameter, gradient, momentum in zip(params, grads, momenta, strict=True):
            _now.parameter = parameter
            try:
                of_all([parameter], [gradient], [momentum], **rest)
            finally:
                _now.parameter = None

    def orthogonalize(moment: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        found = _find(getattr(_now, "parameter", None), moment)
        if not found:
            return of_one(moment, *args, **kwargs)
        each, moments = found
        whole = of_one(moments.gather(each, moment), *args, **kwargs)
        return moments.slice_of(each, whole, moment)

    setattr(_muon, _OF_ALL, orthogonalize_all)
    setattr(_muon, _OF_ONE, orthogonalize)
