# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libzpp_rt: runs compiled buckets, through process groups of PyTorch."""

import ctypes
import datetime
import functools
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from zpp._library import Described, RankDesc, WorldDesc, call, find_library
from zpp._measures import collect
from zpp._option_kinds import write_mesh
from zpp.torch import _groups, _pytorch
from zpp.torch._bucket import Compiled, compiler_digest
from zpp.torch._mesh import find_parts, hosts_of

_SYSTEM_ERROR = 8  # ZPP_RT_SYSTEM_ERROR


class _Exchange(ctypes.Structure):
    """zpp_rt_exchange."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p),
        ("rank", ctypes.c_int64), ("members", ctypes.POINTER(ctypes.c_int64)),
        ("num_members", ctypes.c_int64), ("position", ctypes.c_int64),
        ("chunk_bytes", ctypes.c_int64), ("stream", ctypes.c_void_p)]


_ExchangeFunction = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(_Exchange), ctypes.c_void_p,
    ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)


class _Exchanges(Described):
    """zpp_rt_exchanges."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("all_to_all", _ExchangeFunction),
        ("all_gather", _ExchangeFunction), ("context", ctypes.c_void_p))


#: Process groups for exchanges, the caller's or made here, by the group that
#: they are a part of and their ranks. Groups of all ranks share their parts.
_known_parts: dict[tuple[dist.ProcessGroup, tuple[int, ...]],
                   dist.ProcessGroup] = {}
#: Those of them that were made here.
_made_parts: set[dist.ProcessGroup] = set()
#: Those that follow the time limit of a group, and the limit that they have.
_followers: dict[dist.ProcessGroup, list[dist.ProcessGroup]] = {}
_timeouts: dict[dist.ProcessGroup, datetime.timedelta] = {}
#: They live as long as the process.
_runners: dict[tuple, "Runner"] = {}


def use_groups(mesh: DeviceMesh) -> None:
    """Lets exchanges within a tier go through the groups of a device mesh."""
    for group in mesh.get_all_groups():
        ranks = tuple(dist.get_process_group_ranks(group))
        _known_parts[dist.group.WORLD, ranks] = group


def get_runner(group: dist.ProcessGroup, tiers: Mapping[str, int],
               device: torch.device, kind: str, is_separate: bool) -> "Runner":
    """The runner of a group for collectives of one kind.

    Args:
      kind: FSDP2 has a stream for each kind. What one runner queues is in
        order, so gathers would wait for scatters if they shared it.
      is_separate: whether hops within a part of the group have process groups
        of their own. All ranks of the group say the same.
    """
    key = group, write_mesh(tiers), device, kind, is_separate
    if key not in _runners:
        _runners[key] = Runner(group, tiers, device, is_separate)
    return _runners[key]


def measure(is_on: bool) -> None:
    """Starts or stops sampling what runners quantize."""
    for runner in _runners.values():
        runner.measure(is_on)


def read_measures() -> Iterator[tuple[str, dict]]:
    """The samples, each with the kind of its collective. Waits for the runners."""
    for (*_, kind, _), runner in _runners.items():
        for found in runner.read_measures():
            yield kind, found


def get_part(group: dist.ProcessGroup, ranks: tuple[int, ...],
             device: torch.device, owner: dist.ProcessGroup | None = None
             ) -> dist.ProcessGroup:
    """The process group of some of the ranks of `group`, all of which call this: one of
    the caller's, one that is known already, or a new one. Only exchanges of the owner use
    it, by default those of all groups."""
    key = owner or dist.group.WORLD, ranks
    if key not in _known_parts:
        made = _groups.part_of(group, ranks, device)
        _known_parts[key] = made
        _made_parts.add(made)
    part = _known_parts[key]
    if part in _made_parts and part not in _followers.get(group, ()):
        _followers.setdefault(group, []).append(part)
        # It may have been made for another group, with another limit.
        _timeouts.pop(group, None)
    return part


def follow_timeout(group: dist.ProcessGroup, device: torch.device) -> None:
    """Gives the parts of a group that were made here its present time limit."""
    parts = _followers.get(group)
    if parts is None:
        return
    timeout = _groups.timeout_of(group, device)
    if timeout is None or _timeouts.get(group) == timeout:
        return
    for part in parts:
        _groups.set_timeout(part, device, timeout)
    _timeouts[group] = timeout


class Runner:
    """Runs functions over the ranks of a process group, as this rank.

    All ranks of the group make it together. Exchanges within a part of the
    group use process groups of the caller if they are known, otherwise new
    ones, with the time limit of the group.
    """

    def __init__(self, group: dist.ProcessGroup, tiers: Mapping[str, int],
                 device: torch.device, is_separate: bool):
        self._group = group
        self._ranks = dist.get_process_group_ranks(group)
        self._device = device
        self._owner = group if is_separate else dist.group.WORLD
        #: By their members, as positions in the group.
        self._parts = {tuple(range(group.size())): group}
        for members in find_parts(tiers, group.rank()):
            self._part(members)
        #: Tensors that the running function may use, with their addresses and bytes.
        self._buffers: list[tuple[int, int, torch.Tensor]] = []
        #: The error of an exchange that failed.
        self._error: BaseException | None = None
        self._is_cuda = device.type == "cuda"
        self._hosts = hosts_of(group)
        #: By the members, whether they gather by sends.
        self._by_sends: dict[tuple[int, ...], bool] = {}
        library = _library()
        # ctypes frees functions without references.
        self._functions = _Exchanges(
            all_to_all=_ExchangeFunction(functools.partial(
                self._exchange, False)),
            all_gather=_ExchangeFunction(functools.partial(
                self._exchange, True)))
        desc = WorldDesc(
            backend=device.type.encode(), mesh=write_mesh(tiers).encode(),
            exchanges=ctypes.addressof(self._functions))
        # Both live as long as the process: functions may be under way.
        self._world, self._rank = ctypes.c_void_p(), ctypes.c_void_p()
        call(library, "zpp_rt_world_create", ctypes.byref(desc),
              ctypes.byref(self._world))
        rank = RankDesc(index=group.rank(), device=device.index if self._is_cuda else -1)
        call(library, "zpp_rt_rank_create", self._world, ctypes.byref(rank),
              ctypes.byref(self._rank))

    @functools.cached_property
    def stream(self) -> torch.cuda.Stream:
        """For collectives that the calling stream does not wait for."""
        return torch.cuda.Stream(self._device)

    def measure(self, is_on: bool) -> None:
        """Starts or stops sampling what functions quantize."""
        call(_library(), "zpp_rt_world_measure", self._world, is_on)

    def read_measures(self) -> list[dict]:
        """The samples, of functions that are done: waits for them."""
        library = _library()
        if library.zpp_rt_rank_synchronize(self._rank):
            raise RuntimeError(library.zpp_rt_rank_message(self._rank).decode(
                errors="replace"))
        return collect(lambda visit: call(
            library, "zpp_rt_world_visit_measures", self._world, visit, None))

    def run(self, compiled: Compiled, sources: Sequence[torch.Tensor],
            results: Sequence[torch.Tensor]) -> None:
        """Queues a function on the current stream; on the CPU, runs it. Results do not
        overlap the sources, unless the function updates one of them."""
        follow_timeout(self._group, self._device)
        function = compiled.function
        tensors = [
            *(_checked(sources[place], count) for place, count in
              zip(function["arguments"], function["inputs"])),
            *(_checked(results[place], count) for place, count in
              zip(function["results"], function["outputs"])),
            torch.empty(function["workspace"], dtype=torch.uint8,
                        device=self._device)]
        addresses = [tensor.data_ptr() for tensor in tensors]
        self._buffers = [
            (address, tensor.nbytes, tensor)
            for address, tensor in zip(addresses, tensors)]
        buffers = (ctypes.c_void_p * len(addresses))(*addresses)
        library = _library()
        try:
            if self._is_cuda:
                stream = torch.cuda.current_stream(self._device)
                library.zpp_rt_enter(self._rank, stream.cuda_stream)
            _function(compiled.library, function["name"])(self._rank, buffers)
        finally:
            self._buffers = []
        error, self._error = self._error, None
        if error is not None:
            raise error
        if message := library.zpp_rt_rank_message(self._rank):
            raise RuntimeError(message.decode(errors="replace"))

    def _exchange(self, is_gather: bool, _, exchange, source, result, message,
                  message_bytes) -> int:
        """zpp_rt_exchange_function. No exception may leave it."""
        try:
            call = exchange.contents
            count, chunk = call.num_members, call.chunk_bytes
            members = tuple(call.members[:count])
            group = self._part(members)
            collective = (self._gather(members) if is_gather else
                          _pytorch.all_to_all)
            collective(self._find(result, chunk * count),
                       self._find(source, chunk * (1 if is_gather else count)),
                       group)
            return 0
        except BaseException as error:
            self._error = error
            text = str(error).encode()[:message_bytes - 1] + b"\0"
            ctypes.memmove(message, text, len(text))
            return _SYSTEM_ERROR

    def _gather(self, members: tuple[int, ...]) -> Callable[..., Any]:
        """How the members gather. Between hosts, NCCL's sends fill a link that its
        rings, with fewer connections, do not."""
        if members not in self._by_sends:
            hosts = {self._hosts[member] for member in members}
            self._by_sends[members] = self._is_cuda and len(hosts) > 1
        return (_pytorch.all_gather_by_sends if self._by_sends[members]
                else dist.all_gather_into_tensor)

    def _find(self, address: int, count: int) -> torch.Tensor:
        """The bytes at an address."""
        for start, size, tensor in self._buffers:
            offset = address - start
            if 0 <= offset and offset + count <= size:
                if tensor.dtype != torch.uint8:
                    tensor = tensor.view(-1).view(torch.uint8)
                return (tensor if count == size else
                        tensor.narrow(0, offset, count))
        raise RuntimeError(f"expected an exchange within the buffers of its "
                           f"function, but got {count} bytes at {address:#x}")

    def _part(self, members: tuple[int, ...]) -> dist.ProcessGroup:
        if members not in self._parts:
            if list(members) != sorted(members):
                raise RuntimeError(f"expected members in the order of the "
                                   f"ranks, but got {members}")
            ranks = tuple(self._ranks[member] for member in members)
            self._parts[members] = get_part(self._group, ranks, self._device,
                                            self._owner)
        return self._parts[members]


#: The calls of the operator below, by number: an operator takes no objects.
_pending: dict[int, tuple] = {}
_numbers = itertools.count()
_operators = torch.library.Library("zpp", "DEF")
_operators.define("run(Tensor[] sources, Tensor(a!)[] results, int call) -> ()")


def run_as_op(get_runner: Callable[[], Runner], compiled: Compiled,
              sources: Sequence[torch.Tensor], results: Sequence[torch.Tensor],
              label: str) -> None:
    """Runs a function, as an operator of PyTorch where profiles or modes see it, with a
    label. Fake tensors, of a dry run, need no runner: nothing is sent, and results have
    their shapes already."""
    if not _pytorch.is_watched(results[0]):
        _run_labelled(get_runner, compiled, sources, results, label)
        return
    number = next(_numbers)
    _pending[number] = get_runner, compiled, label
    try:
        torch.ops.zpp.run(list(sources), list(results), number)
    finally:
        del _pending[number]


@torch.library.impl(_operators, "run", "CompositeExplicitAutograd")
def _run(sources: Sequence[torch.Tensor], results: Sequence[torch.Tensor],
         call: int) -> None:
    get_runner, compiled, label = _pending[call]
    _run_labelled(get_runner, compiled, sources, results, label)


def _run_labelled(get_runner: Callable[[], Runner], compiled: Compiled,
                  sources: Sequence[torch.Tensor],
                  results: Sequence[torch.Tensor], label: str) -> None:
    with _pytorch.record_range(label):
        if not results[0].is_cuda:
            get_runner().run(compiled, sources, results)
            return
        torch.cuda.nvtx.range_push(label)
        try:
            get_runner().run(compiled, sources, results)
        finally:
            torch.cuda.nvtx.range_pop()


@torch.library.register_fake("zpp::run", lib=_operators)
def _run_fake(sources: Sequence[torch.Tensor], results: Sequence[torch.Tensor],
              call: int) -> None:
    pass


@functools.cache
def _library() -> ctypes.CDLL:
    # Compiled buckets find its functions among the symbols of the process.
    library = ctypes.CDLL(find_library("zpp_rt"), mode=ctypes.RTLD_GLOBAL)
    library.zpp_rt_enter.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.zpp_rt_rank_message.restype = ctypes.c_char_p
    return library


@functools.cache
def versions() -> dict[str, str]:
    """Returns what ranks must agree on of all that compiles and runs: digests of the
    tools and of the runtime library, which it loads, and PyTorch's version."""
    _library()
    library = pathlib.Path(find_library("zpp_rt")).read_bytes()
    return {"compiler": compiler_digest()[:16], "PyTorch": torch.__version__,
            "runtime library": hashlib.sha256(library).hexdigest()[:16]}


@functools.cache
def _function(library: pathlib.Path, name: str):
    _library()
    function = getattr(ctypes.CDLL(str(library)), name)
    function.argtypes = (ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    function.restype = None
    return function


def _checked(tensor: torch.Tensor, count: int) -> torch.Tensor:
    if tensor.nbytes != count or not tensor.is_contiguous():
        raise RuntimeError(f"expected a contiguous tensor of {count} bytes, "
                           f"but got {tensor.nbytes} bytes in {tensor.shape}")
    return tensor
