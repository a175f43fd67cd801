# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tiers in which the ranks of a process group differ."""

import itertools
import math
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh


def tiers_of_devices(mesh: DeviceMesh) -> dict[str, int]:
    """The dims of a device mesh of all ranks, as tiers."""
    if mesh.mesh_dim_names is None:
        raise ValueError(f"mesh: expected a device mesh whose dims have names, "
                         f"but got {mesh}")
    if mesh.mesh.flatten().tolist() != list(range(dist.get_world_size())):
        raise ValueError(f"mesh: expected a device mesh of all "
                         f"{dist.get_world_size()} ranks in their order, but "
                         f"got {mesh}")
    return dict(zip(mesh.mesh_dim_names, mesh.shape))


def tiers_of_hosts() -> dict[str, int]:
    """Hosts and the ranks on each. All ranks call this together."""
    hosts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    runs = [len(list(run)) for _, run in itertools.groupby(hosts)]
    if len(set(runs)) > 1 or len(runs) > len(set(hosts)):
        raise ValueError(
            f"expected a mesh, such as mesh='node:2,gpu:4', because the hosts "
            f"do not have equally many ranks in a row: {', '.join(hosts)}")
    return ({"gpu": runs[0]} if len(runs) == 1
            else {"node": len(runs), "gpu": runs[0]})


def find_tiers(mesh: Mapping[str, int], ranks: Sequence[int]) -> dict[str, int]:
    """The mesh of the ranks of a group alone, in its order: {"gpu": 4} for one
    node of {"node": 2, "gpu": 4}. Rank r is device r of the mesh.

    Raises:
      ValueError: if the group is not such a part of the mesh.
    """
    sizes = list(mesh.values())
    strides = [math.prod(sizes[i + 1:]) for i in range(len(sizes))]
    coordinates = [
        sorted({rank // stride % size for rank in ranks})
        for size, stride in zip(sizes, strides)]
    product = [sum(map(int.__mul__, point, strides))
               for point in itertools.product(*coordinates)]
    if product != list(ranks):
        raise ValueError(
            f"expected a process group of ranks that differ in whole tiers of "
            f"the mesh {describe(mesh)}, in order, but got the ranks "
            f"{', '.join(map(str, ranks))}; name a mesh whose tiers "
            f"the groups of fully_shard consist of")
    return {name: len(part) for name, part in zip(mesh, coordinates)
            if len(part) > 1}


def check_world(mesh: Mapping[str, int]) -> None:
    """Raises ValueError if the mesh does not have a device per rank."""
    if math.prod(mesh.values()) != dist.get_world_size():
        raise ValueError(
            f"mesh: expected tiers of {dist.get_world_size()} devices, as many "
            f"as there are ranks, but got {describe(mesh)}")


def describe(mesh: Mapping[str, int]) -> str:
    """As in `Options.mesh`."""
    return ",".join(f"{name}:{size}" for name, size in mesh.items())
