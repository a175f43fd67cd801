# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State of weights="i4:delta" in checkpoints.

Each rank saves what all others hold of its own slices. Loaded, it is gathered
between the nodes as it is, once. The entries of a rank have names of their own, since
slices differ between any two ranks of a mesh with tensor parallelism.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch import nn

from zpp._warn import warn
from zpp.torch import _agreement, _fsdp
from zpp.torch._communication import Communication
from zpp.torch._compress import communications_of


def state_dict(model: nn.Module) -> dict[str, Any]:
    """Returns what the modules within `model` keep for weights="i4:delta" or
    "i8:delta", for a checkpoint. All ranks call it, and save it beside the weights:

        dcp.save({"model": model.state_dict(),
                  "zpp": zpp.torch.state_dict(model)}, checkpoint_id=folder)

    It is no part of the model's state dict, and a training goes on without it: then
    whole weights are sent once. It costs each rank the bytes of its slices, in the
    type that is gathered. Values are copies. Before the first step they are zeros of
    the shapes to load to.
    """
    own: dict[str, Any] = {}
    held = []
    for name, communication in _named(model):
        slice_ = communication.gathers.own()
        if slice_ is not None:
            held.append(name)
        else:
            slice_ = communication.gathers.empty_own()
        if slice_ is not None:
            own[name] = slice_
    # Ranks may have other modules, as stages of a pipeline do.
    return {f"rank{dist.get_rank()}": {
        **own, "mesh": _mesh_of(model), "held": ",".join(held)}}


def load_state_dict(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Loads what `state_dict` has returned on this rank, after the weights. All ranks
    that have a part of the model call it, between steps, and the next step sends the
    difference to it: the training continues as if it had not stopped.

    A state of another mesh or of other slices is dropped with a warning. Whole weights
    are then sent once.

    Raises:
      ValueError: if ranks that gather weights together have different states.
    """
    named = dict(_named(model))
    mesh = _mesh_of(model)
    own = state.get(f"rank{dist.get_rank()}", {})
    held = [name for name in str(own.get("held", "")).split(",")
            if name in own]
    reason = ""
    if own.get("mesh") != mesh:
        reason = f"expected one of the mesh {mesh}, but got {own.get('mesh')}"
    for name in held:
        wanted = named[name].gathers.empty_own() if name in named else None
        if not reason and (wanted is None or wanted.shape != own[name].shape
                           or wanted.dtype != own[name].dtype):
            reason = (f"expected slices of the same model and options, but got "
                      f"{tuple(own[name].shape)} of {own[name].dtype} for "
                      f"'{name}'")
    groups = [group for each in named.values()
              for group in _fsdp.groups_of(each.shared.parameters)]
    _agreement.check(groups, {"state of zpp.torch": [held, bool(reason)]},
                     "zpp.torch.load_state_dict")
    if reason:
        warn(f"the state of zpp.torch is dropped, and whole weights are sent "
             f"once: {reason}")
        return
    for name in held:
        named[name].gathers.load_own(own[name])


def _named(model: nn.Module) -> Iterator[tuple[str, Communication]]:
    """Those that send differences, by names that checkpoints have."""
    for name, number, communication in communications_of(model):
        if communication.gathers.sends_differences():
            yield f"{name or 'root'}.{number}", communication


def _mesh_of(model: nn.Module) -> str:
    return ";".join(sorted({communication.shared.mesh for _, _, communication in
                            communications_of(model)}))
