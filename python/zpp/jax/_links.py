# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what a device sends per second over each tier (links="measured")."""

import functools
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from zpp._links import agree_on_links, describe_host
from zpp._option_kinds import parse_mesh, write_mesh
from zpp.jax._processes import exchange_between

#: Bytes that a device sends to all peers, enough that latency does not matter.
_BYTES = {"gpu": 128 << 20, "cpu": 4 << 20}
#: Exchanges that are timed together, since a call takes time of its own.
_IN_ONE_CALL = 4
_WARM_UP, _TIMED = 1, 3
#: The speed that is told of a tier of one device, which sends nothing.
_NO_LINK = 1e4


def find_links(mesh: str | None, devices: jax.sharding.Mesh) -> str | None:
    """Returns the links of the tiers `mesh`, by default the axes of the devices, as
    `Options.links` has them: those of the slowest group of each tier, while all groups
    exchange. All processes of the devices call it, with the same. None if there is
    nothing to measure. Raises ValueError where `mesh` does not say which devices its
    tiers consist of."""
    if devices.size == 1:
        return None
    tiers = arrange(mesh, devices)
    name = write_mesh(tiers.shape)
    return agree_on_links(
        describe_host([f"{device.device_kind} {device.local_hardware_id}"
                       for device in tiers.devices.flat
                       if device.process_index == jax.process_index()]),
        name, functools.partial(exchange_between, [*devices.devices.flat], f"links/{name}"),
        lambda: measure(tiers))


def arrange(mesh: str | None, devices: jax.sharding.Mesh) -> jax.sharding.Mesh:
    """The devices by the tiers `mesh`, as the compiler arranges them (getStepMesh)."""
    if mesh is None:
        return devices
    sizes = parse_mesh(mesh)
    if math.prod(sizes.values()) != devices.size:
        raise ValueError(f"expected a mesh of {devices.size} devices, on which the "
                         f"step runs, but got {mesh!r}")
    strides = [part.partition("@")[2] for part in mesh.split(",")]
    named = [name for name, size in sizes.items()
             if size > 1 and name in devices.axis_names]
    if all(strides):
        numbers: Any = sum(np.ix_(*(np.arange(size) * int(stride) for size, stride in
                                    zip(sizes.values(), strides))))
        array = devices.devices.ravel()[numbers]
    elif not named:
        array = devices.devices.reshape(list(sizes.values()))
    else:
        order = {name: size for name, size in devices.shape.items() if size > 1}
        if order != {name: sizes.get(name) for name in order}:
            raise ValueError(
                f"links: expected tiers that are the axes of the step's mesh "
                f"{write_mesh(devices.shape)}, or have other names, but got {mesh!r}; write "
                f"the speeds of their links, such as 'node=50gbit,gpu=400gbyte'")
        array = devices.devices.transpose([
            *(devices.axis_names.index(name) for name in named),
            *(axis for axis, size in enumerate(devices.devices.shape) if size == 1)
        ]).reshape(list(sizes.values()))
    return jax.sharding.Mesh(array, tuple(sizes))


def measure(tiers: jax.sharding.Mesh) -> dict[str, float]:
    """Measures how fast a device sends over each tier, in Gbit/s, as seen here."""
    return {name: _measure_tier(tiers, name, size) if size > 1 else _NO_LINK
            for name, size in tiers.shape.items()}


def _measure_tier(tiers: jax.sharding.Mesh, name: str, size: int) -> float:
    platform = tiers.devices.flat[0].platform
    chunk = _BYTES.get(platform, _BYTES["gpu"]) // (size - 1)
    spec = PartitionSpec(tiers.axis_names)

    def exchange(array):
        for _ in range(_IN_ONE_CALL):
            array = jax.lax.optimization_barrier(jax.lax.all_to_all(
                array, name, split_axis=0, concat_axis=0, tiled=True))
        return array

    run = jax.jit(jax.shard_map(exchange, mesh=tiers, in_specs=spec, out_specs=spec),
                  donate_argnums=0)
    array = jax.jit(lambda: jnp.zeros(tiers.size * size * chunk, jnp.uint8),
                    out_shardings=NamedSharding(tiers, spec))()
    times = []
    for _ in range(_WARM_UP + _TIMED):
        jax.block_until_ready(array)
        start = time.perf_counter()
        array = jax.block_until_ready(run(array))
        times.append(time.perf_counter() - start)
    seconds = min(times[_WARM_UP:]) / _IN_ONE_CALL
    return chunk * (size - 1) * 8 / seconds / 1e9
