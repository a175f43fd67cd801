#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures a step on GPUs, and guards it.

    check_guard.py [--ranks N]

needs JAX, and $ZPP_OPT and $ZPP_XLA or the wheel of zpp. Each rank is a process
and a node of its own; on a machine with fewer GPUs several share one. A gradient
whose blocks have one large element loses half of itself as i4. All ranks but the
last have batches of zeros, so that the last one alone sees this. Checked are: the
rounding errors that the runtime measures; that all ranks step down to i8 at the
same call; that the update is nearer to that of jax.jit then; and that the weights
of all ranks have the same bits.

The last line is PASS, or what failed.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

ROWS, COLUMNS, CALLS = 512, 64, 5
BOUND = 0.2
LIMIT_SECONDS = 300


def main() -> int:
    from lab import launch
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=max(2, launch.gpu_count()))
    # Of the process of a rank.
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        train(args)
        return 0
    failed = check(args.ranks)
    print(f"FAILED: {', '.join(failed)}" if failed else "PASS")
    return bool(failed)


def train(args):
    """Writes what a rank has seen as JSON."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec
    from lab import launch
    jax.distributed.initialize(
        f"localhost:{args.port}", args.ranks, args.rank,
        local_device_ids=[launch.device_of(args.rank)])
    import zpp
    mesh = jax.make_mesh((args.ranks,), ("node",))
    rows = PartitionSpec("node")

    def put(value):
        return jax.make_array_from_callback(
            value.shape, NamedSharding(mesh, rows), lambda index: value[index])

    def local(weight, batch):
        def loss_of(weight):
            whole = jax.lax.all_gather(weight, "node", axis=0, tiled=True)
            products = batch @ whole
            # The others are half a step of i4. The gradient follows from the
            # weights, a little: they are proven to be some.
            scales = jnp.where(jnp.arange(COLUMNS) == 0, 1.0, 1 / 14.5)
            return jnp.sum(products * scales) + 1e-6 * jnp.sum(products**2)

        value, gradient = jax.value_and_grad(loss_of)(weight)
        return weight - 0.1 * gradient, jax.lax.pmean(value, "node")

    step = jax.shard_map(local, mesh=mesh, in_specs=(rows, rows),
                         out_specs=(rows, PartitionSpec()), check_vma=False)
    random = np.random.default_rng(0)
    weight = put(random.normal(size=(ROWS, COLUMNS)).astype(np.float32))
    signs = random.choice([-1.0, 1.0], size=(args.ranks, ROWS)).astype(np.float32)
    signs[:-1] = 0
    batch = put(signs)

    def own(array):
        return np.asarray(array.addressable_data(0), np.float64)

    expected = own(jax.jit(step)(weight, batch)[0]) - own(weight)
    fast = zpp.jit(step, mesh=f"node:{args.ranks}", target="cuda", links="none",
                   weights="i8", gradients="i4", tuning=zpp.Tuning(rotate=0),
                   guard=zpp.Guard(gradients=BOUND, every=2))
    found: dict = {"said": [], "off": [], "metrics": []}
    for _ in range(CALLS):
        fast.metrics()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result, loss = fast(weight, batch)
            result.block_until_ready()
        found["said"].append([str(each.message) for each in warned
                              if str(each.message).startswith("guard")])
        change = own(result) - own(weight)
        found["off"].append(float(np.linalg.norm(change - expected)
                                  / np.linalg.norm(expected)))
        found["metrics"].append(fast.metrics())
    # Alike on all: the loss is that of all ranks.
    found["loss"] = float(loss).hex()
    args.out.write_text(json.dumps(found))


def check(ranks: int) -> list[str]:
    """Names what failed."""
    from lab import launch, links
    launch.prepare()
    failed = []

    def note(name, is_right, text):
        print(f"{name}: {'ok' if is_right else 'FAILED'} {text}", flush=True)
        if not is_right:
            failed.append(name)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        port = launch.free_port()
        processes = [launch.Process(
            [sys.executable, __file__, "--ranks", ranks, "--rank", rank,
             "--port", port, "--out", folder / f"{rank}.json"],
            launch.environment() | links.environment(rank, ranks, 1, "shared"), folder / f"{rank}.txt")
            for rank in range(ranks)]
        try:
            launch.run(processes, LIMIT_SECONDS)
        except RuntimeError as error:
            print(error)
            return ["training"]
        found = [json.loads((folder / f"{rank}.json").read_text())
                 for rank in range(ranks)]

    last = found[-1]
    first, after = last["metrics"][0], last["metrics"][-1]
    note("bytes", 0 < first["bytes/node"] < after["bytes/node"],
         f"{first['bytes/node']} with i4, {after['bytes/node']} with i8")
    note("times", all(0 < each["metrics"][-1]["link_ms/node"]
                      <= each["metrics"][-1]["step_ms"] for each in found),
         f"link {after['link_ms/node']:.3f} ms of {after['step_ms']:.3f} ms, "
         f"exposed {after['exposed_ms']:.3f} ms")
    note("errors", first["largest_error/gradients"] > BOUND
         > 0.05 > after["largest_error/gradients"]
         and 0.001 < after["error/weights"] < 0.01,
         f"gradients {first['largest_error/gradients']:.3f}, then "
         f"{after['largest_error/gradients']:.4f}; weights "
         f"{after['error/weights']:.4f}")
    note("only the last rank sees it", ranks < 2 or all(
        each["metrics"][0]["largest_error/gradients"] < BOUND
        for each in found[:-1]), "")
    calls = [[number for number, said in enumerate(each["said"]) if said]
             for each in found]
    note("guard", all(each == [0] for each in calls),
         f"calls that it spoke at, by rank: {calls}; {last['said'][0]}")
    note("update", last["off"][0] > BOUND > 0.05 > last["off"][1],
         f"off by {last['off'][0]:.3f}, then {last['off'][1]:.4f}")
    note("ranks agree", len({each["loss"] for each in found}) == 1, "")
    return failed


if __name__ == "__main__":
    sys.exit(main())
