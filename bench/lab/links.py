# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One host with a few GPUs as two nodes.

NCCL_HOSTID makes NCCL believe that the second half of the ranks is on another
host, so that it uses NVLink within a node and TCP over the loopback device
between the nodes. `tc` (iproute2, needs root) limits the rate of that device,
which both directions and all ranks share.

Links are named "50gbit" (or any other number), "shared" (the loopback device as
it is) and "nvlink" (one host, NVLink everywhere). The first are of the kind
"shaped", the others are kinds of their own. Processes can train on links of one
kind in turn.
"""

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable

from lab import launch

NODES = 2
#: Threads of NCCL for each of its channels, and sockets of each, by the kind of links
#: between nodes. With more threads than processors some stand still for milliseconds,
#: as do the messages that they send. A link that is not shaped needs more of both to
#: be full.
_THREADS = {"shaped": ("1", "4"), "shared": ("2", "8")}
#: The packets that a processor's queue of received ones holds.
_BACKLOG = pathlib.Path("/proc/sys/net/core/netdev_max_backlog")
#: The processors that take what the loopback device has sent, as a mask.
_RECEIVERS = pathlib.Path("/sys/class/net/lo/queues/rx-0/rps_cpus")
_CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")


def rate(link: str) -> float:
    """Bits per second of a shaped link, 0 for the others. Exits with an error if
    there is no such link."""
    match = re.fullmatch(r"(\d+)gbit", link)
    if not match and kind(link) == "shaped":
        sys.exit(f"expected Ngbit, shared or nvlink, but got '{link}'")
    return float(match[1]) * 1e9 if match else 0.0


def kind(link: str) -> str:
    return link if link in ("nvlink", "shared") else "shaped"


def by_kind(links: Iterable[str]) -> list[list[str]]:
    """The links of each kind."""
    found: dict[str, list[str]] = {}
    for link in links:
        found.setdefault(kind(link), []).append(link)
    return list(found.values())


def check(tc: str, links: Iterable[str]):
    """Exits if one of the links is shaped, and `tc` does not run: its ranks would fail in
    the middle of an experiment."""
    if not any(map(rate, links)):
        return
    try:
        subprocess.run([*tc.split(), "qdisc", "show", "dev", "lo"], check=True,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", None) or str(error)
        sys.exit(f"expected '{tc}' to run (iproute2) for links that are shaped, but got: "
                 f"{why.strip()}")


def shape(tc: str, link: str | None):
    """Limits the loopback device to the rate of `link`; None removes the limit.
    Queues hold what all senders together may have on the way, so that nothing is
    dropped: a sender whose last segments are dropped waits for 200 ms. How the host
    receives and sends stays as it is set here."""
    if link is None:
        subprocess.run([*tc.split(), "qdisc", "del", "dev", "lo", "root"],
                       check=False)
        return
    # Where what has been sent waits for the receiver's thread. A network
    # namespace of its own cannot set it: it has what the host has.
    if _BACKLOG.exists():
        _BACKLOG.write_text("250000")
    # What is shaped is received on the processor that happens to send, so that
    # segments overtake each other and seem to be lost. Here the flow decides on
    # which of 8 processors. With all of 64, steps take longer.
    _RECEIVERS.write_text(f"{(1 << min(8, os.cpu_count() or 1)) - 1:x}")
    # One that sends until something is lost. BBR stands still for 200 ms now and
    # then to measure how long a packet takes.
    _CONGESTION.write_text("reno")
    subprocess.run(
        [*tc.split(), "qdisc", "replace", "dev", "lo", "root", "tbf",
         "rate", link, "burst", "16mb", "latency", "200ms"], check=True)


def sent_bytes() -> int:
    """Returns the bytes that the loopback device has sent since the host booted."""
    return int(pathlib.Path(
        "/sys/class/net/lo/statistics/tx_bytes").read_text())


#: Counters of the kernel for TCP, by the names that `lost` returns.
_LOST = {
    "resent": ("RetransSegs",), "twice": ("TCPDSACKRecv",),
    "dropped": ("TCPBacklogDrop", "TCPRcvQDrop", "TCPOFODrop", "RcvPruned"),
    "timeouts": ("TCPTimeouts",)}


def lost() -> dict[str, int]:
    """Counts TCP's losses on this host since it booted: segments that were sent
    again; those that arrived twice, so that nothing had been lost; those that a
    receiver dropped, because its queue was full; and times that a sender stood
    still until its timer ran out (200 ms and more), as it does if the last
    segments of a message are dropped."""
    counts: dict[str, str] = {}
    for path in ("/proc/net/snmp", "/proc/net/netstat"):
        lines = pathlib.Path(path).read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            counts |= dict(zip(names.split()[1:], values.split()[1:]))
    return {kind: sum(int(counts.get(name, 0)) for name in names)
            for kind, names in _LOST.items()}


def environment(rank: int, ranks: int, per_node: int, link: str
                ) -> dict[str, str]:
    """The variables that the process of one of the `ranks` needs in addition to
    its own, for links of the kind of `link`. With fewer GPUs than ranks, the
    processes share them."""
    variables = {"NCCL_NVLS_ENABLE": "0"}
    two_nodes = link != "nvlink"
    if two_nodes:
        threads, sockets = _THREADS[kind(link)]
        variables |= {
            "NCCL_HOSTID": f"node{rank // per_node}",
            "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1",
            "NCCL_SOCKET_NTHREADS": threads,
            "NCCL_NSOCKS_PERTHREAD": sockets,
            # Sends to single peers in messages as long as those of NCCL's
            # collectives.
            "NCCL_P2P_NET_CHUNKSIZE": "524288"}
    return variables | launch.sharing(rank, ranks, per_node if two_nodes else ranks)
