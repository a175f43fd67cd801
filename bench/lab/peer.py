# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One of the processes that bench/peers.py starts for a peer: trains the example
GPT on each of the given links, one after the other. The first process writes what
it measured.

    python -m lab.peer OPTIONS
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

from lab import launch, links

#: The bandwidth of NVLink, for those peers that are told.
NVLINK = "node=400gbyte,gpu=400gbyte"
#: A collective that waits for longer has failed.
_TIMEOUT = datetime.timedelta(seconds=120)


@dataclasses.dataclass(frozen=True)
class Peer:
    """One way to train."""

    #: "jax" or "torch".
    framework: str
    #: Modules of Python beside the framework.
    needs: tuple[str, ...] = ()
    #: Options of zpp; None: without it.
    options: Mapping[str, Any] | None = None
    #: Options of DeepSpeed; None: without it.
    zero: Mapping | None = None
    #: The only link that it is for; None: all.
    link: str | None = None


_ZPP = {"weights": "i8", "gradients": "i8:i4"}
_ZERO3 = {
    "stage": 3, "overlap_comm": True, "contiguous_gradients": True,
    "reduce_bucket_size": 2e8, "stage3_prefetch_bucket_size": 1e8,
    "stage3_max_live_parameters": 3e8, "stage3_max_reuse_distance": 0,
    "stage3_param_persistence_threshold": 1e5}
_ZEROPP = _ZERO3 | {"zero_quantized_weights": True, "zero_quantized_gradients": True}

PEERS = {
    "JAX FSDP": Peer("jax"),
    "zpp.jit": Peer("jax", ("flatbuffers",), _ZPP),
    "zpp.jit, links": Peer("jax", ("flatbuffers",), _ZPP | {"links": NVLINK},
                           link="nvlink"),
    "FSDP2": Peer("torch"),
    "FSDP2 + zpp": Peer("torch", options=_ZPP),
    "FSDP2 + zpp, links": Peer("torch", options=_ZPP | {"links": NVLINK},
                               link="nvlink"),
    "FSDP2 + zpp, hpZ": Peer("torch", options=_ZPP | {"secondary": "gpu"}),
    "FSDP2 + zpp, i4:delta": Peer("torch", options=_ZPP | {
        "weights": "i4:delta", "accumulate": "gpu"}),
    "DeepSpeed ZeRO-3": Peer("torch", ("deepspeed",), zero=_ZERO3),
    "DeepSpeed ZeRO++": Peer("torch", ("deepspeed",), zero=_ZEROPP),
    "DeepSpeed ZeRO++ on zpp": Peer("torch", ("deepspeed",), {}, _ZEROPP),
    "DeepSpeed ZeRO++ on zpp, i4:delta": Peer(
        "torch", ("deepspeed",), {"weights": "i4:delta"}, _ZEROPP),
}


def main():
    args = parse_arguments()
    peer = PEERS[args.peer]
    trainer = (JaxTrainer if peer.framework == "jax" else TorchTrainer)(
        peer, args)
    results = {}
    is_shaped = False
    for link in args.links:
        if args.rank == 0 and (links.rate(link) or is_shaped):
            is_shaped = links.rate(link) > 0
            links.shape(args.tc, link if is_shaped else None)
        trainer.meet()
        seconds, losses = [], []
        for index in range(args.warm_up + args.timed):
            if index == args.warm_up:
                trainer.meet()
                sent, lost = links.sent_bytes(), links.lost()
            start = time.perf_counter()
            losses.append(trainer.step())
            seconds.append(time.perf_counter() - start)
        trainer.meet()
        results[link] = {
            "seconds": seconds[args.warm_up:],
            "bytes": (links.sent_bytes() - sent) / args.timed,
            "lost": {kind: count - lost[kind]
                     for kind, count in links.lost().items()},
            "losses": trainer.mean(losses), "peak": trainer.peak_bytes()}
        if args.rank == 0:
            result = results[link]
            print(f"[{time.strftime('%H:%M:%S')}] {link}, {args.peer}: "
                  f"{statistics.median(result['seconds']) * 1e3:.1f} ms, first "
                  f"{seconds[0]:.1f} s, loss {result['losses'][0]:.4f} -> "
                  f"{result['losses'][-1]:.4f}", flush=True)
    if args.rank == 0:
        args.results.write_text(json.dumps(results))
    trainer.close()
    # Python's own end is left out: a thread of PyTorch's that asks for the GIL
    # meanwhile is ended inside of code that does not permit it, which aborts.
    sys.stdout.flush()
    os._exit(0)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", required=True)
    parser.add_argument("--config", type=json.loads, required=True,
                        help="of examples/gpt.py")
    parser.add_argument("--sequences", type=int, required=True,
                        help="per device")
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--links", nargs="+", required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    parser.add_argument("--timed", type=int, required=True)
    parser.add_argument("--tc", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True,
                        help="the number of this process")
    parser.add_argument("--results", type=pathlib.Path, required=True,
                        help="the file that the first process writes")
    return parser.parse_args()


def tiers_of(config: dict) -> str:
    """The mesh as zpp's options have it."""
    return ",".join(f"{name}:{size}" for name, size in config["mesh"])


class JaxTrainer:
    """examples/gpt.py as it is, or as zpp.jit runs it."""

    def __init__(self, peer: Peer, args: argparse.Namespace):
        from lab import worker
        self._processes = args.processes
        worker.join(args, args.ranks, args.platform == "cpu")
        import gpt
        import jax
        trainer = gpt.Trainer(gpt.Config(**args.config | {
            "mesh": tuple(map(tuple, args.config["mesh"])),
            "replicated": tuple(args.config["replicated"])}))
        if peer.options is None:
            self._step = jax.jit(trainer.step, donate_argnums=0)
        else:
            import zpp
            self._step = zpp.jit(
                trainer.step, mesh=tiers_of(args.config), donate_argnums=0,
                # Replicas gather no weights from other nodes.
                secondary="none" if args.config["replicated"] else "gpu",
                **peer.options)
        init, batch = worker.on_device(trainer, args.ranks * args.sequences)
        self._state, self._tokens = init(), batch()
        jax.block_until_ready((self._state, self._tokens))

    def step(self) -> float:
        import jax
        self._state, loss = self._step(self._state, self._tokens)
        jax.block_until_ready((self._state, loss))
        return float(loss)

    def meet(self):
        """All processes wait for each other."""
        from jax.experimental import multihost_utils
        multihost_utils.sync_global_devices("lab.peer")

    def mean(self, losses: list[float]) -> list[float]:
        """Returns the losses: the step has taken the mean of all devices."""
        return losses

    def peak_bytes(self) -> int:
        import jax
        stats = jax.local_devices()[0].memory_stats() or {}
        return stats.get("peak_bytes_in_use", 0)

    def close(self):
        import jax
        if self._processes > 1:
            jax.distributed.shutdown()


def shard(model, peer: Peer, config: dict, device_type: str):
    """Partitions the example GPT in PyTorch as FSDP2 does, layer by layer, with what
    `peer` has of zpp."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    tiers = config["mesh"]
    mesh = (init_device_mesh(  # Replicas, and the shards of each.
        device_type, tuple(size for _, size in tiers),
        mesh_dim_names=tuple(name for name, _ in tiers))
        if config["replicated"] else init_device_mesh(
            device_type, (torch.distributed.get_world_size(),)))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.bfloat16)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if peer.options is not None:
        import zpp.torch
        zpp.torch.compress(model, mesh=tiers_of(config), **peer.options)


def join_group(rank: int, ranks: int, port: int, on_cpu: bool):
    """Joins PyTorch's processes, and returns the device of this one."""
    import torch
    device = (torch.device("cpu") if on_cpu else
              torch.device("cuda", launch.device_of(rank)))
    if not on_cpu:
        torch.cuda.set_device(device)
    # DeepSpeed reads them.
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(device.index or 0), "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group(
        "gloo" if on_cpu else "nccl", device_id=None if on_cpu else device,
        timeout=_TIMEOUT)
    return device


def make_model(config: dict, device):
    """Returns the example GPT in PyTorch, with the same first weights on all ranks."""
    import torch
    from lab import torch_gpt
    torch.manual_seed(0)
    with device:
        return torch_gpt.Gpt(**{name: config[name] for name in (
            "layers", "width", "heads", "vocab", "context")})


class TorchTrainer:
    """The same in PyTorch, with FSDP2 or DeepSpeed."""

    def __init__(self, peer: Peer, args: argparse.Namespace):
        import torch
        self._cuda = torch.cuda if args.platform == "cuda" else None
        device = join_group(args.rank, args.ranks, args.port, self._cuda is None)
        config = args.config
        model = make_model(config, device)
        generator = torch.Generator().manual_seed(1 + args.rank)
        self._tokens = torch.randint(
            config["vocab"], (args.sequences, config["context"] + 1),
            generator=generator).to(device)
        # As in examples/gpt.py.
        adam = {"lr": config["learning_rate"], "betas": (0.9, 0.99)}
        make = self._with_deepspeed if peer.zero else self._with_fsdp2
        self.step = make(model, peer, adam, args)
        if self._cuda:
            # The whole model was on each device once, to draw it.
            del model
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def _with_fsdp2(self, model, peer: Peer, adam: dict,
                    args: argparse.Namespace):
        import torch
        shard(model, peer, args.config, self._tokens.device.type)
        optimizer = torch.optim.Adam(model.parameters(), **adam, fused=True)
        self.model = model
        count = getattr(args, "micro_batches", 1)

        def step() -> float:
            for index in range(count):
                model.set_requires_gradient_sync(index == count - 1)
                loss = model(self._tokens) / count
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return self._wait(loss * count)
        return step

    def _with_deepspeed(self, model, peer: Peer, adam: dict,
                        args: argparse.Namespace):
        import deepspeed
        assert peer.zero is not None
        own = {}
        if peer.options is not None:
            import zpp.deepspeed
            zpp.deepspeed.install()
            own = {"zpp": {"mesh": tiers_of(args.config), **peer.options}}
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config={
                "train_micro_batch_size_per_gpu": len(self._tokens),
                "bf16": {"enabled": True},
                "optimizer": {"type": "AdamW", "params": adam | {
                    "weight_decay": 0.0, "torch_adam": True}},
                "zero_optimization": {**peer.zero}, **own})

        def step() -> float:
            loss = engine(self._tokens)
            engine.backward(loss)
            engine.step()
            return self._wait(loss)
        return step

    def _wait(self, loss) -> float:
        if self._cuda:
            self._cuda.synchronize()
        return loss.item()

    def meet(self):
        """All processes wait for each other."""
        import torch.distributed as dist
        dist.barrier()
        if self._cuda:
            self._cuda.synchronize()

    def mean(self, losses: list[float]) -> list[float]:
        """Returns the mean over all devices."""
        import torch
        import torch.distributed as dist
        total = torch.tensor(losses, device=self._tokens.device)
        dist.all_reduce(total)
        return (total / dist.get_world_size()).tolist()

    def peak_bytes(self) -> int:
        return self._cuda.max_memory_allocated() if self._cuda else 0

    def close(self):
        import torch.distributed as dist
        dist.destroy_process_group()


if __name__ == "__main__":
    launch.run_rank(main)
