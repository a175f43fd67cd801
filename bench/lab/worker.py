# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One of the processes that bench/two_node.py starts for a step: trains the step
on each of the given links. The first process writes what it measured.

    python -m lab.worker OPTIONS
"""

import argparse
import functools
import json
import pathlib
import statistics
import time

import numpy as np

from lab import launch, links, steps

TRACED_STEPS = 3


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps-folder", type=pathlib.Path, required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--links", nargs="+", required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    parser.add_argument("--timed", type=int, required=True)
    parser.add_argument("--tc", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True,
                        help="the number of this process")
    parser.add_argument("--results", type=pathlib.Path, required=True,
                        help="the file that the first process writes")
    parser.add_argument("--traces", required=True,
                        help="the beginning of the paths of traces")
    return parser.parse_args()


def main():
    args = parse_arguments()
    import jax
    exported = steps.read(args.steps_folder)
    join(args, exported.ranks, exported.of["platform"] == "cpu")
    from jax.experimental import multihost_utils
    import zpp

    trainer = exported.trainer()
    variant = exported.variants[args.variant]
    step = (zpp.load(args.steps_folder / variant.path) if variant.path else
            jax.jit(trainer.step, donate_argnums=0))
    init, batch = on_device(trainer, exported.sequences)
    tokens = batch()

    results = {}
    is_shaped = False
    for link in args.links:
        if args.rank == 0 and (links.rate(link) or is_shaped):
            is_shaped = links.rate(link) > 0
            links.shape(args.tc, link if is_shaped else None)
        multihost_utils.sync_global_devices(link)
        state, seconds, losses = init(), [], []
        jax.block_until_ready(state)
        multihost_utils.sync_global_devices(args.variant)
        for index in range(args.warm_up + args.timed):
            if index == args.warm_up:
                sent, lost = links.sent_bytes(), links.lost()
                zpp.host_times()  # Forgets those of the warm-up.
            start = time.perf_counter()
            state, loss = step(state, tokens)
            jax.block_until_ready((state, loss))
            seconds.append(time.perf_counter() - start)
            losses.append(float(loss))
        stats = jax.local_devices()[0].memory_stats() or {}
        results[link] = {
            "seconds": seconds[args.warm_up:], "losses": losses,
            "peak": stats.get("peak_bytes_in_use", 0),
            "bytes": (links.sent_bytes() - sent) / args.timed,
            "lost": {kind: count - lost[kind]
                     for kind, count in links.lost().items()},
            "host_times": zpp.host_times()}
        if variant.is_runtime:
            stalls = results[link]["stalls"] = []
            for number in range(TRACED_STEPS):
                path = pathlib.Path(f"{args.traces}-{link}.trace{number}.json")
                state = trace(step, state, tokens, path)
                stalls.append(
                    stalled_seconds(path, args.processes, exported.ranks))
        del state
        if args.rank == 0:
            median = statistics.median(results[link]["seconds"])
            print(f"[{time.strftime('%H:%M:%S')}] {link}, {args.variant}: "
                  f"{median * 1e3:.1f} ms, first {seconds[0]:.0f} s, loss "
                  f"{losses[0]:.4f} -> {losses[-1]:.4f}", flush=True)
    if args.rank == 0:
        args.results.write_text(json.dumps(results))
    if args.processes > 1:
        jax.distributed.shutdown()


def join(args: argparse.Namespace, ranks: int, on_cpu: bool):
    """Joins JAX's processes, which have so many devices together."""
    import jax
    if on_cpu:
        jax.config.update("jax_num_cpu_devices", ranks // args.processes)
    if args.processes > 1:
        jax.distributed.initialize(
            f"localhost:{args.port}", args.processes, args.rank,
            local_device_ids=None if on_cpu else [launch.device_of(args.rank)])


def trace(step, state, tokens, path: pathlib.Path):
    """Traces a step, and returns the next state."""
    import jax
    import zpp
    from jax.experimental import multihost_utils
    with zpp.trace(path):
        state, loss = step(state, tokens)
        jax.block_until_ready((state, loss))
    # After this, every process has written its trace.
    multihost_utils.sync_global_devices(path.name)
    return state


def stalled_seconds(path: pathlib.Path, processes: int, ranks: int) -> float:
    """How long a device stood still in waits in a traced step: the mean of all
    devices."""
    paths = [path] if processes == 1 else [
        path.with_suffix(f".{process}{path.suffix}")
        for process in range(processes)]
    usec = sum(event["dur"] for path in paths
               for event in json.loads(path.read_text())["traceEvents"]
               if event.get("cat") == "stall")
    return usec * 1e-6 / ranks


def on_device(trainer, sequences: int):
    """Two functions, which draw the initial state and a batch of `sequences`
    (of all devices together) directly on the devices."""
    import jax
    import jax.numpy as jnp
    config = trainer.config
    abstract = trainer.abstract_state()
    tokens = trainer.abstract_batch(sequences)

    # XLA compiles this once per kind of weight, not once per weight.
    @functools.cache
    def drawer(scale, shape, dtype, sharding):
        def draw(numbers):
            key = jax.random.key(0)
            for number in numbers:
                key = jax.random.fold_in(key, number)
            return (scale * jax.random.normal(key, shape, jnp.float32)).astype(dtype)
        return jax.jit(draw, out_shardings=sharding)

    def weight(path, leaf):
        name = path[-1].key
        scale = (trainer.parameters["layers"] | trainer.parameters)[name].scale
        draw = drawer(scale, leaf.shape, leaf.dtype, leaf.sharding)
        return draw([np.uint32(entry.idx if hasattr(entry, "idx")
                               else sum(entry.key.encode()))
                     for entry in path])

    # Slices of weights are drawn as the weights are, not taken from them.
    drawn = ["params", "master"] if config.slices else ["params"]
    rest = {name: leaf for name, leaf in abstract.items() if name not in drawn}
    zeros = jax.jit(
        lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), rest),
        out_shardings=jax.tree.map(lambda leaf: leaf.sharding, rest))

    def init():
        return zeros() | {
            name: jax.tree_util.tree_map_with_path(weight, abstract[name])
            for name in drawn}

    def batch():
        return jax.random.randint(
            jax.random.key(1), tokens.shape, 0, config.vocab, tokens.dtype)

    return init, jax.jit(batch, out_shardings=tokens.sharding)


if __name__ == "__main__":
    launch.run_rank(main)
