# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libzpp_xla: the collectives that rewritten steps leave to the runtime."""

import atexit
import contextlib
import ctypes
import dataclasses
import functools
import os
import pathlib
import secrets
import socket
import tempfile
import threading
from collections.abc import Sequence

import jax

from zpp._bundle import Bundle
from zpp._library import Described, call, find_library
from zpp._measures import collect
from zpp.jax._export import Step
from zpp.jax._processes import get_service, next_key

#: The platforms that the runtime has back ends for, of the same names.
BACKENDS = ("cpu", "cuda")


#: void (*on_listening)(void *context, const char *endpoint)
_OnListening = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


class _WorldDesc(Described):
    """zpp_xla_world_desc."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("backend", ctypes.c_char_p),
        ("mesh", ctypes.c_char_p), ("rendezvous", ctypes.c_char_p),
        ("time_limit_usec", ctypes.c_int64), ("trace", ctypes.c_int64),
        ("ranks", ctypes.POINTER(ctypes.c_int64)),
        ("device_ordinals", ctypes.POINTER(ctypes.c_int64)),
        ("num_ranks", ctypes.c_int64), ("on_listening", _OnListening),
        ("on_listening_context", ctypes.c_void_p), ("token", ctypes.c_char_p))


class _HostTimes(ctypes.Structure):
    """zpp_xla_host_times."""

    _fields_ = [
        ("start_usec", ctypes.c_double), ("num_starts", ctypes.c_int64),
        ("wait_usec", ctypes.c_double), ("num_waits", ctypes.c_int64),
        ("queue_usec", ctypes.c_double), ("num_queued", ctypes.c_int64)]



@dataclasses.dataclass
class _World:
    handle: ctypes.c_void_p
    #: The world of libzpp_rt.
    runtime: ctypes.c_void_p
    #: Whether it has ranks in other processes.
    is_shared: bool
    #: The libraries of the loaded bundles, by id.
    bundles: dict[str, bytes] = dataclasses.field(default_factory=dict)


#: How long a collective waits for its last rank.
_time_limit_seconds = 300.0

#: Worlds by back end, mesh and devices. They live as long as the process.
_worlds: dict[tuple, _World] = {}
_lock = threading.RLock()
_is_recording = False
#: Whether a step that the runtime takes part in was called while recording.
_has_recorded = False

#: A result of the latest step.
_latest: jax.Array | None = None


def obstacle(platform: str) -> str | None:
    """Why steps for this platform cannot use the runtime here, or None."""
    if platform not in BACKENDS:
        return f"the runtime has no back end for {platform}"
    try:
        library = _library()
    except OSError as error:
        return str(error)
    desc = _WorldDesc(backend=platform.encode(), mesh=b"probe:1")
    handle = ctypes.c_void_p()
    try:
        call(library, "zpp_xla_world_create", ctypes.byref(desc),
              ctypes.byref(handle))
    except RuntimeError as error:
        return str(error)
    library.zpp_xla_world_destroy(handle)
    return None


def load_bundle(bundle: Bundle, devices: Sequence[jax.Device]) -> None:
    """Lets the runtime execute the step's collectives on these devices: device
    r is rank r. Does nothing the second time;
    another library of the same id is an error."""
    key = (devices[0].platform, bundle.mesh, tuple(device.id for device in
                                                   devices))
    world = _worlds.get(key)
    if (world is not None
            and world.bundles.get(bundle.id) == bundle.library):
        return
    with _lock:
        # XLA's calls name the bundle, not the devices.
        for other, world in _worlds.items():
            if other != key and bundle.id in world.bundles:
                raise ValueError(
                    f"expected a rewritten step on one mesh of devices per "
                    f"process, {other[2]} as before, but got {key[2]}; "
                    f"target portable runs on any")
        if key not in _worlds:
            _worlds[key] = _create_world(bundle.mesh, devices)
        world = _worlds[key]
        with tempfile.NamedTemporaryFile(prefix="zpp-", suffix=".so") as file:
            file.write(bundle.library)
            file.flush()
            call(_library(), "zpp_xla_bundle_load", world.handle,
                  bundle.id.encode(), file.name.encode())
        world.bundles[bundle.id] = bundle.library


def keep(step: Step, results: Sequence[jax.Array]) -> None:
    """Remembers the latest step by its smallest result, which is held until the next."""
    global _latest, _has_recorded
    if step.smallest_result is not None:
        _latest = results[step.smallest_result]
    if step.uses_runtime:
        _has_recorded |= _is_recording


def finish() -> None:
    """Waits for the latest step, and thereby for all."""
    global _latest
    array, _latest = _latest, None
    if array is not None and not array.is_deleted():
        array.block_until_ready()


def set_time_limit(seconds: float) -> None:
    """How long a collective that the runtime executes waits for its last rank
    before the step fails; 300 s if this is not called. Call it before the
    first step, in every process."""
    global _time_limit_seconds
    if not 0 < seconds < float("inf"):
        raise ValueError(f"expected a positive number of seconds, but got "
                         f"{seconds!r}")
    with _lock:
        if _worlds:
            raise RuntimeError("expected a time limit before the first step "
                               "that the runtime takes part in, but one has "
                               "been loaded")
        _time_limit_seconds = seconds


def synchronize() -> None:
    """Waits for all steps, and raises RuntimeError if one has failed.

    On GPUs the failure of a collective may become known after the results of
    its step, which are then not valid. The next step raises the error in any
    case. Call this before results leave the process, for example as a
    checkpoint.
    """
    finish()
    with _lock:
        for world in _worlds.values():
            call(_library(), "zpp_xla_world_synchronize", world.handle)


def host_times() -> dict[str, float]:
    """How long the "start" and the "wait" of a collective occupied XLA's
    threads in this process since the last call, and on GPUs how long the
    ranks' own threads took to "queue" it: medians in microseconds. Empty if no
    step has started a collective."""
    times = _HostTimes()
    if _worlds:
        _library().zpp_xla_take_host_times(ctypes.byref(times))
    if not times.num_starts:
        return {}
    medians = {"start": times.start_usec, "wait": times.wait_usec}
    if times.num_queued:
        medians["queue"] = times.queue_usec
    return medians


@atexit.register
def _leave() -> None:
    """Leaves worlds of several processes properly: if a process just ended,
    operations in flight on others would fail. A world of this process alone may
    end with it."""
    with contextlib.suppress(Exception):
        finish()  # An error concerns only those who need the results.
    with _lock:
        for key in [key for key, world in _worlds.items() if world.is_shared]:
            _library().zpp_xla_world_destroy(_worlds.pop(key).handle)


def record(is_on: bool) -> None:
    """Starts or stops recording on all worlds, and those to come."""
    global _is_recording, _has_recorded
    with _lock:
        _is_recording = is_on
        _has_recorded = False
        for world in _worlds.values():
            call(_library(), "zpp_rt_world_record", world.runtime, is_on)


def is_recording() -> bool:
    """Whether `record` was started."""
    return _is_recording


def write_traces(path: pathlib.Path) -> list[pathlib.Path]:
    """Writes the recorded traces: that of the first world to `path`, the others
    beside it. Returns the files, none if nothing was recorded."""
    paths: list[pathlib.Path] = []
    with _lock:
        if not _has_recorded:
            return paths
        for number, world in enumerate(_worlds.values()):
            place = path if number == 0 else path.with_name(
                f"{path.stem}-world{number}{path.suffix}")
            # Times are known when operations are done.
            _library().zpp_xla_world_synchronize(world.handle, None, 0)
            call(_library(), "zpp_rt_world_write_trace", world.runtime,
                 os.fsencode(place))
            paths.append(place)
    return paths


def measure(is_on: bool) -> None:
    """Starts or stops sampling what operations quantize, on all worlds."""
    with _lock:
        for world in _worlds.values():
            call(_library(), "zpp_rt_world_measure", world.runtime, is_on)
            if is_on:
                _library().zpp_xla_world_take_stalled(world.handle)


def read_measures() -> tuple[list[dict], float]:
    """Returns the samples, and the longest wait of a rank without streams, in seconds."""
    longest = 0.0

    def visit_all(visit):
        nonlocal longest
        for world in _worlds.values():
            # Samples are compared by then.
            _library().zpp_xla_world_synchronize(world.handle, None, 0)
            call(_library(), "zpp_rt_world_visit_measures", world.runtime, visit, None)
            longest = max(longest, _library().zpp_xla_world_take_stalled(world.handle))

    with _lock:
        found = collect(visit_all)
    return found, longest / 1e6


def _create_world(mesh: str, devices: Sequence[jax.Device]) -> _World:
    library = _library()
    platform = platform_of(devices[0])
    if platform not in BACKENDS:
        raise RuntimeError(f"expected devices of {' or '.join(BACKENDS)}, but "
                           f"got {platform}")
    _register(platform)
    mine = [(rank, device.local_hardware_id)
            for rank, device in enumerate(devices)
            if device.process_index == jax.process_index()]
    ranks, ordinals = ((ctypes.c_int64 * len(mine))(*column)
                       for column in zip(*mine))
    desc = _WorldDesc(
        backend=platform.encode(), mesh=mesh.encode(),
        time_limit_usec=round(_time_limit_seconds * 1e6), trace=1,
        ranks=ranks, device_ordinals=ordinals, num_ranks=len(mine))
    if len(mine) < len(devices):
        _meet(desc, devices)
    handle = ctypes.c_void_p()
    call(library, "zpp_xla_world_create", ctypes.byref(desc),
          ctypes.byref(handle))
    world = _World(handle, ctypes.c_void_p(library.zpp_xla_world_get_runtime(handle)),
                   is_shared=len(mine) < len(devices))
    if not _is_recording:
        call(library, "zpp_rt_world_record", world.runtime, 0)
    return world


def platform_of(device: jax.Device) -> str:
    """"cpu", "cuda", "rocm", ...: JAX calls both of the latter "gpu"."""
    if device.platform != "gpu":
        return device.platform
    return device.client.platform_version.split()[0].lower()


def _meet(desc: _WorldDesc, devices: Sequence[jax.Device]) -> None:
    """Fills in the rendezvous and the token of a world. The process of rank 0
    chooses both, and tells the others through JAX's coordination service."""
    from jax._src.distributed import global_state
    service = get_service()
    # All processes create the worlds of the same devices in the same order.
    name = next_key(desc.mesh.decode(), (device.id for device in devices))
    if devices[0].process_index == jax.process_index():
        token = secrets.token_hex(32)
        own = _own_address(global_state.coordinator_address)
        desc.rendezvous = f"{own}:0".encode()
        desc.on_listening = _OnListening(
            lambda _, endpoint: service.key_value_set(
                name, f"{endpoint.decode()} {token}"))
    else:
        endpoint, token = service.blocking_key_value_get(
            name, round(_time_limit_seconds * 1e3)).split()
        desc.rendezvous = endpoint.encode()
    desc.token = token.encode()


def _own_address(coordinator: str) -> str:
    """Returns the address of this host from which it reaches JAX's coordinator."""
    host, _, port = coordinator.rpartition(":")
    host = host.strip("[]")
    family, *_, target = socket.getaddrinfo(
        host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # Sends nothing.
        own = probe.getsockname()[0]
    return f"[{own}]" if ":" in own else own


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(find_library("zpp_xla"))
    library.zpp_xla_world_get_runtime.restype = ctypes.c_void_p
    library.zpp_xla_world_take_stalled.restype = ctypes.c_double
    return library


@functools.cache
def _register(platform: str) -> None:
    """Registers the handlers of the custom calls with XLA."""
    suffix, name = {"cpu": ("host", "cpu"), "cuda": ("cuda", "CUDA")}[platform]
    for target in ("start", "wait"):
        handler = getattr(_library(), f"zpp_xla_{target}_{suffix}")
        jax.ffi.register_ffi_target(
            f"zpp.{target}", jax.ffi.pycapsule(handler), platform=name)
