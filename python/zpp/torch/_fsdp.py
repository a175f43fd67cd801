# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of fully_shard and their groups of parameters, with what zpp uses of them
beyond PyTorch's public interface."""

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.fsdp._fully_shard import _fsdp_collectives

from zpp.torch._groups import Replicas

#: Attribute in which FSDP2 keeps the process group of the replicas of HSDP.
_REPLICAS = "replicate_process_group"
#: FSDP2's functions at the end of a group's backward pass, and where the user gives an
#: update up after an exception, which older versions do not have.
POST_BACKWARD, RESET = "post_backward", "_reset_iter_state"
#: Attribute in which newer versions keep that gradients are not reduced yet.
_PENDING = "_post_backward_pending"
#: Attributes of zpp, on FSDP2's objects of a module and of a group of parameters, which
#: live as long as the module: what `attach` attaches, and the collectives before and
#: after `set_collectives`.
_ATTACHED, _REPLACED = "_zpp_attached", "_zpp_replaced"
#: FSDP2's own collectives, which others may replace, without their kinds, and those of
#: them whose memory others can use, too.
_DEFAULT, _IN_OTHER_MEMORY = "Default", ("SymmMem", "ProcessGroupAlloc")


def modules_of(model: nn.Module) -> Iterator[tuple[str, FSDPModule]]:
    """The modules of fully_shard within `model`, with their names."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a module of fully_shard, but got "
                        f"{type(model).__name__}")
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


def parameter_groups(module: FSDPModule) -> list[Any]:
    """Returns the groups of the weights of `module` itself: one for each mesh."""
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return state._fsdp_param_groups
    return [state._fsdp_param_group] if state._fsdp_param_group else []


def title_of(name: str, parameters: Any) -> str:
    """A module for messages: its name as FSDP2 knows it, or else within the model of a
    call of `compress`; for the root, what it is."""
    name = parameters._module_fqn or name
    return f"'{name}'" if name else (
        f"the root, {type(parameters.modules[0]).__name__.removeprefix('FSDP')}")


def mesh_of(parameters: Any) -> DeviceMesh:
    return parameters.mesh_info.mesh


def shard_group(parameters: Any) -> dist.ProcessGroup | None:
    """The ranks that gather the weights; None if they are only replicated."""
    return getattr(parameters.mesh_info, "shard_process_group", None)


def scatter_group(parameters: Any) -> dist.ProcessGroup | None:
    """The group that scatters gradients: set_separate_reduce_scatter_group's, if any."""
    separate = getattr(parameters.mesh_info, "reduce_scatter_process_group", None)
    return separate or shard_group(parameters)


def replica_group(parameters: Any) -> dist.ProcessGroup | None:
    """The ranks between which gradients are all-reduced; None without any."""
    group = getattr(parameters.mesh_info, _REPLICAS, None)
    return group.group if isinstance(group, Replicas) else group


def attach(module: FSDPModule, things: list[Any] | None) -> None:
    """Has `attached` return `things` for a module, until it is freed."""
    setattr(module._get_fsdp_state(), _ATTACHED, things)


def attached(module: FSDPModule) -> list[Any] | None:
    return getattr(module._get_fsdp_state(), _ATTACHED, None)


def groups_of(parameters: Any) -> list[dist.ProcessGroup]:
    """Those over which weights are sharded and replicated."""
    groups = shard_group(parameters), replica_group(parameters)
    return [group for group in groups if group is not None]


def groups_of_gradients(parameters: Any) -> list[dist.ProcessGroup]:
    """Those over which gradients are reduced, one after the other."""
    groups = scatter_group(parameters), replica_group(parameters)
    return [group for group in groups if group is not None]


#: FSDP2's objects for one group of parameters: gather and scatter.
Collectives = tuple[Any, Any]


def own_collectives(parameters: Any) -> Collectives:
    return parameters._all_gather_comm, parameters._reduce_scatter_comm


def default_collectives() -> Collectives:
    """Those of FSDP2, which are PyTorch's."""
    return (_fsdp_collectives.DefaultAllGather(),
            _fsdp_collectives.DefaultReduceScatter())


def original_collectives(parameters: Any) -> Collectives:
    """FSDP2's objects before zpp has replaced them, which may be its user's."""
    before, _ = getattr(parameters, _REPLACED, (own_collectives(parameters), None))
    return before


def others_collectives(parameters: Any) -> Collectives:
    """FSDP2's objects without those of zpp. They may be the user's, who may also have
    replaced zpp's since, even by what calls them."""
    own = own_collectives(parameters)
    before, after = getattr(parameters, _REPLACED, (own, own))
    gather, scatter = (original if each is zpps else each for original, zpps, each in
                       zip(before, after, own))
    return gather, scatter


def has_default_collectives(parameters: Any) -> bool:
    return all(type(each).__name__.startswith(_DEFAULT)
               for each in others_collectives(parameters))


def foreign_collectives(parameters: Any) -> list[str]:
    """The types of the objects without those of zpp, if one of them is not of FSDP2."""
    names = [type(each).__name__ for each in others_collectives(parameters)]
    is_known = all(name in {memory + kind for memory in (_DEFAULT, *_IN_OTHER_MEMORY)}
                   for name, kind in zip(names, ("AllGather", "ReduceScatter")))
    return [] if is_known else names


def set_collectives(parameters: Any, collectives: Collectives | None,
                    all_reduce: Callable[..., None]) -> None:
    """Replaces FSDP2's gather and scatter, unless they are None. `all_reduce` is called
    with a tensor, the replicas' group and the operation."""
    restore_collectives(parameters)
    before = own_collectives(parameters)
    if collectives is not None:
        parameters._all_gather_comm, parameters._reduce_scatter_comm = collectives
    setattr(parameters, _REPLACED, (before, own_collectives(parameters)))
    group = replica_group(parameters)
    if group is not None:
        # Other modules may have the same one.
        parameters.mesh_info = copy.copy(parameters.mesh_info)
        setattr(parameters.mesh_info, _REPLICAS,
                Replicas(all_reduce, group, parameters))


def restore_collectives(parameters: Any) -> None:
    """Gives PyTorch its own back, and leaves what the user has set since."""
    if _REPLACED not in vars(parameters):
        return
    (parameters._all_gather_comm, parameters._reduce_scatter_comm
     ) = others_collectives(parameters)
    delattr(parameters, _REPLACED)
    if (group := replica_group(parameters)) is not None:
        setattr(parameters.mesh_info, _REPLICAS, group)


# Backward passes --------------------------------------------------------------

def replace(parameters: Any, name: str, call: Callable[..., None] | None) -> None:
    """Has `call` called with FSDP2's function and its arguments; None restores that."""
    vars(parameters).pop(name, None)
    original = getattr(parameters, name, None)
    if call is not None and original is not None:
        setattr(parameters, name, functools.partial(call, original))


def reduces_fully(module: FSDPModule, parameters: Any) -> bool:
    """Whether gradients are reduced after this backward pass, and it is the last."""
    return (parameters.reduce_grads and
            (replica_group(parameters) is None or parameters.all_reduce_grads)
            and module._get_fsdp_state()._state_ctx.is_last_backward)


def gathered_parameters(parameters: Any) -> list[Any]:
    """FSDP2's trained parameters that have been gathered so far."""
    return [each for each in parameters.fsdp_params
            if each.sharded_param.requires_grad
            and hasattr(each, "_unsharded_param")]


def has_gradient(parameter: Any) -> bool:
    """Whether there is a gradient that has not been reduced."""
    return (getattr(parameter, "unsharded_accumulated_grad", None) is not None
            or parameter._unsharded_param.grad is not None)


def give_zero_gradient(parameter: Any) -> None:
    weight = parameter._unsharded_param
    dtype = getattr(weight, "grad_dtype", None) or weight.dtype
    weight.grad = torch.zeros_like(weight, dtype=dtype)


def leave_pending(parameters: Any) -> None:
    """Has FSDP2 reduce gradients where the user finalizes the backward pass."""
    if hasattr(parameters, _PENDING):
        setattr(parameters, _PENDING, True)


def reduces_unused(parameters: Any) -> bool:
    """Whether a rank reduces zeros of what only others use."""
    return getattr(parameters, "reduce_scatter_unused_params", False)


def has_gradient_hooks(parameters: Any) -> bool:
    """Whether the user sees gradients as soon as they are reduced."""
    return parameters._all_reduce_hook is not None or any(
        getattr(each.sharded_param, "_post_accumulate_grad_hooks", None)
        for each in parameters.fsdp_params)


def on_load(parameters: Any, call: Callable[..., None]) -> list[Any]:
    """Has `call` called after a load into one of the weights. Returns hooks to remove."""
    modules = {each._module_info.module for each in parameters.fsdp_params}
    return [module.register_load_state_dict_post_hook(call)
            for module in modules]
