# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DeepSpeed's parameters as `zpp.torch` sees those of fully_shard.

Gathers, reductions, layouts and guards of `zpp.torch` know a group of parameters by
what FSDP2 says of it. Here DeepSpeed says the same.
"""

import types
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from zpp.deepspeed import _seams
from zpp.torch._fsdp import default_collectives


#: Bytes of which a slice begins at a multiple.
_ALIGNMENT = 16


class Parameter:
    """A parameter that DeepSpeed has cut into as many slices as there are ranks."""

    #: That of `_orig_size` with all elements.
    fsdp_placement = types.SimpleNamespace(dim=0)

    def __init__(self, weight: nn.Parameter, name: str):
        self.sharded_param = weight
        self.name = name
        # DeepSpeed cuts the flat tensor: as if one of its dims had all elements.
        wide = [size for size in weight.ds_shape if size > 1]
        self._orig_size = torch.Size([weight.ds_numel, *wide[1:]])
        #: The elements of the slice; those that follow are what memory has held.
        rank = dist.get_rank(weight.ds_process_group)
        self._real = max(0, min(self.elements, weight.ds_numel - rank * self.elements))

    @property
    def mp_policy(self) -> Any:
        return types.SimpleNamespace(
            param_dtype=_seams.gathered_type(self.sharded_param), reduce_dtype=None)

    @property
    def elements(self) -> int:
        """Those of a slice, wherever it is: of one on NVMe, memory has one element."""
        return self.sharded_param.ds_tensor.ds_numel

    @property
    def _sharded_param_data(self) -> torch.Tensor:
        return self.sharded_param.ds_tensor

    _sharded_local_tensor = _sharded_param_data

    @property
    def all_gather_inputs(self) -> list[torch.Tensor]:
        shard = self.sharded_param.ds_tensor
        return [self.made_ready(shard.to(_seams.gathered_type(self.sharded_param)))]

    def made_ready(self, source: torch.Tensor) -> torch.Tensor:
        """This rank's slice, aligned, where DeepSpeed has it anywhere in a buffer; with
        zeros where its weights end, which change no scale."""
        if source.numel() != self.elements:
            raise RuntimeError(f"'{self.name}': expected a slice of {self.elements} "
                               f"elements, but got {source.numel()}")
        is_aligned = source.storage_offset() * source.itemsize % _ALIGNMENT == 0
        if self._real < source.numel() or not is_aligned:
            source = source.clone()
            source[self._real:] = 0
        return source


class Group:
    """Parameters that are gathered, or whose gradients are reduced, together."""

    is_sharded = True
    gradient_divide_factor = None
    force_sum_reduction_for_comms = False
    modules = ()
    _all_gather_comm, _reduce_scatter_comm = default_collectives()

    def __init__(self, name: str, parameters: Sequence[Parameter], device: torch.device):
        self._module_fqn = name
        self.fsdp_params = list(parameters)
        self.device = device
        self.mesh_info = types.SimpleNamespace(
            shard_process_group=parameters[0].sharded_param.ds_process_group)
