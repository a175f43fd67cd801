# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tiers in which the ranks of a process group differ."""

import functools
import itertools
import math
import os
import pathlib
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from zpp._option_kinds import NO_LINKS, parse_mesh, write_mesh
from zpp._options import describe
from zpp._torch_options import TorchOptions

_SPEED = r"(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?g(?:bit|byte)"
#: A link as the compiler reads it: its speed, that of a ring, a latency.
_LINK = re.compile(rf"[^=]+={_SPEED}(?:/{_SPEED})?(?:\+\S+s)?")
#: The default of `Options.gradients`.
_GRADIENTS = str(describe(TorchOptions)["gradients"].default)


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


def tiers_of_sharding(mesh: DeviceMesh) -> dict[str, int] | None:
    """The dims of a mesh of fully_shard, as tiers; None where it has no two, or
    does not say which ranks are near each other."""
    if mesh.ndim < 2:
        return None
    try:
        return tiers_of_devices(mesh)
    except ValueError:
        return None


def hosts_of(group: dist.ProcessGroup) -> list[str]:
    """The host of each rank, as NCCL tells hosts apart. All ranks call it together."""
    hosts: list[Any] = [None] * group.size()
    dist.all_gather_object(
        hosts, os.environ.get("NCCL_HOSTID") or socket.gethostname(), group)
    return hosts


def tiers_of_hosts() -> dict[str, int]:
    """Hosts and the ranks on each. All ranks call this together."""
    hosts = hosts_of(dist.group.WORLD)
    runs = [len(list(run)) for _, run in itertools.groupby(hosts)]
    if len(set(runs)) > 1 or len(runs) > len(set(hosts)):
        raise ValueError(
            f"expected a mesh, such as mesh='node:2,gpu:4', because the hosts "
            f"do not have equally many ranks in a row: {', '.join(hosts)}")
    return ({"gpu": runs[0]} if len(runs) == 1
            else {"node": len(runs), "gpu": runs[0]})


def find_tiers(mesh: Mapping[str, int], ranks: Sequence[int]) -> dict[str, int]:
    """The mesh of the ranks of a group alone, in its order: {"gpu": 4} for one
    node of {"node": 2, "gpu": 4}. Rank r is device r of the mesh."""
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
            f"the mesh {write_mesh(mesh)}, in order, but got the ranks "
            f"{', '.join(map(str, ranks))}; name a mesh whose tiers "
            f"the groups of fully_shard consist of")
    return {name: len(part) for name, part in zip(mesh, coordinates)
            if len(part) > 1}


@functools.cache
def tiers_of_group(mesh: str, group: dist.ProcessGroup) -> dict[str, int]:
    """The same of a process group, and of a mesh as text."""
    return find_tiers(parse_mesh(mesh), dist.get_process_group_ranks(group))


def find_parts(tiers: Mapping[str, int], rank: int) -> list[tuple[int, ...]]:
    """The parts of a group within which hops of its collectives exchange: the
    ranks that differ from `rank`, one of the group, in a single tier, if there
    are several tiers."""
    sizes = list(tiers.values())
    parts = []
    for i, size in enumerate(sizes if len(sizes) > 1 else ()):
        stride = math.prod(sizes[i + 1:])
        first = rank - rank // stride % size * stride
        parts.append(tuple(range(first, first + size * stride, stride)))
    return parts


def devices_of(secondary: str | int, tiers: Mapping[str, int]) -> int:
    """The size of a secondary group: the devices of a tier and of the faster ones."""
    if isinstance(secondary, int):
        if math.prod(tiers.values()) % secondary:
            raise ValueError(
                f"secondary: expected a number that divides the devices of "
                f"{write_mesh(tiers)}, but got {secondary}")
        return secondary
    names = list(tiers)
    if secondary not in names:
        raise ValueError(f"secondary: expected a tier of {write_mesh(tiers)} or a "
                         f"number of devices, but got {secondary!r}")
    return math.prod(list(tiers.values())[names.index(secondary):])


def inner_tiers(group: str | int, tiers: Mapping[str, int]) -> tuple[str, ...]:
    """The tiers of a group: one with all that are faster; none for one device."""
    if group == 1:
        return ()
    names = list(tiers)
    for place, name in enumerate(names):
        if group in (name, math.prod(list(tiers.values())[place:])):
            return tuple(names[place:])
    raise ValueError(f"accumulate: expected a tier of {write_mesh(tiers)} or the "
                     f"number of devices of whole ones, but got {group!r}")


def read_links(links: str | None, mesh: Mapping[str, int]) -> str | None:
    """`Options.links` as text, where it is a file."""
    if links is None or links == NO_LINKS:
        return None
    text = links
    if "=" not in links:
        try:
            lines = pathlib.Path(links).read_text().splitlines()
        except OSError as error:
            raise ValueError(f"links: expected 'node=50gbit,...' or a file, "
                             f"but got {links!r}: {error.strerror}") from None
        found = [line.strip().removeprefix("links=") for line in lines
                 if line.strip().startswith("links=")]
        if not found:
            raise ValueError(f"links: expected a line 'links=...' in {links}, "
                             f"but got none")
        text = found[-1]
    for link in text.split(","):
        if not _LINK.fullmatch(link):
            raise ValueError(f"links: expected TIER=NUMBERgbit or "
                             f"TIER=NUMBERgbyte, but got {link!r}")
    names = [link.partition("=")[0] for link in text.split(",")]
    wanted = {name for name, size in mesh.items() if size > 1}
    if len(set(names)) < len(names) or not wanted <= set(names) <= set(mesh):
        raise ValueError(f"links: expected each tier of {write_mesh(mesh)} once, "
                         f"but got {text!r}")
    return text


def gradient_formats(formats: str | None, mesh: Mapping[str, int],
                     tiers: Mapping[str, int]) -> str | None:
    """The formats of the hops within a group, whose tiers, as `find_tiers` has them, are
    some of the mesh: a tier has the same format in all groups."""
    parts = (formats or _GRADIENTS).split(":")
    if tiers == mesh or len(parts) == 1:
        return formats
    innermost_first: list[str] = list(mesh)[::-1]
    by_tier = {name: parts[min(place, len(parts) - 2)]
               for place, name in enumerate(innermost_first)}
    by_tier[innermost_first[-1]] = parts[-1]
    return ":".join(by_tier[name] for name in innermost_first if name in tiers)


def check_formats(formats: str | None, mesh: Mapping[str, int]) -> None:
    """Raises ValueError if there are more formats of hops than tiers."""
    count = len((formats or _GRADIENTS).split(":"))
    tiers = [name for name, size in mesh.items() if size > 1]
    if formats and count > max(len(tiers), 2):
        raise ValueError(
            f"gradients: expected at most {max(len(tiers), 2)} formats on the "
            f"mesh {write_mesh(mesh)}, one for each tier, but got {formats!r}")


def check_world(mesh: Mapping[str, int]) -> None:
    """Raises ValueError if the mesh does not have a device per rank."""
    if math.prod(mesh.values()) != dist.get_world_size():
        raise ValueError(
            f"mesh: expected tiers of {dist.get_world_size()} devices, as many "
            f"as there are ranks, but got {write_mesh(mesh)}")
