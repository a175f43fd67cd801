#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a small model as plain jax.jit under `zpp run` on GPUs, beside the same
without zpp.

    check_run.py [--steps N] [--record FILE]

needs JAX 0.11 or later. On one GPU there is nothing to rewrite. Checked are there:
XLA calls zpp; modules that are given back through StableHLO, with a scan, a
checkpoint and a donated argument, train with equal bits, also where several threads
compile at once, ahead of time and inside of another; a callback that fails changes
nothing; and `zpp run` says that nothing was rewritten, and why. On more
GPUs, which need $ZPP_OPT or the wheel of zpp: the modules are rewritten for both
targets, and losses stay within 1 % of those without zpp.

--record writes the module of the step as XLA hands it over, for `zpp report`.

The last line is PASS, or what failed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAYERS, WIDTH = 4, 512
TOLERANCE = 1e-2
LIMIT_SECONDS = 300


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--train", choices=("plain", "identity", "fault"),
                        help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.train, args.steps, args.record)
        return 0
    failed = check(args.steps, args.record)
    print(f"FAILED: {', '.join(failed)}" if failed else "PASS")
    return bool(failed)


def train(mode, steps, record):
    """Prints the losses, and the number of GPUs, as JSON."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if mode == "identity":
        use_identity(record)
    elif mode == "fault":
        use_fault()
    mesh = Mesh(np.array(jax.devices()), ("gpu",))
    rows = NamedSharding(mesh, PartitionSpec("gpu"))
    stack = NamedSharding(mesh, PartitionSpec(None, "gpu"))

    def loss_of(weights, x):
        def layer(x, w):
            return jax.lax.with_sharding_constraint(
                jnp.tanh(x @ w.astype(jnp.bfloat16)), rows), None
        y, _ = jax.lax.scan(jax.checkpoint(layer), x, weights)
        return ((y - x).astype(jnp.float32) ** 2).mean()

    def step(weights, x):
        loss, gradient = jax.value_and_grad(loss_of)(weights, x)
        return jax.lax.with_sharding_constraint(
            weights - 3.0 * gradient, stack), loss

    step = jax.jit(step, donate_argnums=0)
    key = jax.random.key(0)
    weights = jax.device_put(
        jax.random.normal(key, (LAYERS, WIDTH, WIDTH)) * WIDTH**-0.5, stack)
    batch = jax.device_put(jax.random.normal(
        key, (16 * jax.device_count(), WIDTH), jnp.bfloat16), rows)
    losses = []
    for _ in range(steps):
        weights, loss = step(weights, batch)
        losses.append(float(loss))
    print(json.dumps({"gpus": jax.device_count(), "losses": losses,
                      "at_once": compile_at_once(step, weights, batch),
                      "platform": jax.devices()[0].platform, "calls": len(CALLS)}))


def compile_at_once(step, weights, batch):
    """Losses of steps that are compiled ahead of time by several threads, each for
    another number of rows; while one is traced, a function is compiled and run."""
    import concurrent.futures

    import jax

    def losses_of(parts):
        rows = jax.device_put(batch[:batch.shape[0] * parts // 4], batch.sharding)

        def traced(weights, rows):
            # Compiled inside, for a value that is known.
            with jax.ensure_compile_time_eval():
                scale = float(jax.jit(lambda x: x * parts)(jax.numpy.ones(())))
            return step(weights, rows * (scale / parts))

        compiled = jax.jit(traced).lower(weights, rows).compile()
        return float(compiled(weights, rows)[1])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(losses_of, (1, 2, 3, 4)))


#: The names of modules that XLA has handed over.
CALLS: list[str] = []


def use_identity(record):
    """Gives every module back through StableHLO."""
    from zpp.jax import _hook

    def give_back(content):
        module = _hook.HloModule(bytes(content))
        CALLS.append(module.name)
        if record is not None and module.name == "jit_step":
            record.write_bytes(module.content)
        assert module.why_not() is None, module.why_not()
        return module.with_stablehlo(module.to_stablehlo())

    _hook.probe()
    _hook.register(give_back)


def use_fault():
    """Installs zpp with a rewriter that fails."""
    import zpp
    from zpp.jax import _install
    zpp.install(mesh="gpu:2", target="portable")

    def fail(content):
        CALLS.append("")
        raise ValueError("planted")
    mock.patch.object(_install._current, "rewrite", fail).start()


def check(steps, record):
    """Names what failed."""
    failed = []

    def note(name, is_right, text=""):
        print(f"{name}: {'ok' if is_right else 'FAILED'} {text}", flush=True)
        if not is_right:
            failed.append(name)

    plain, _ = run_child("plain", steps)
    if plain is None:
        return ["plain"]
    losses, gpus = plain["losses"], plain["gpus"]
    note("plain", plain["platform"] == "gpu" and losses[-1] < losses[0],
         f"{gpus} GPUs, losses {losses[0]:.4f} to {losses[-1]:.4f}")
    more = ["--record", str(record)] if record else []
    same, text = run_child("identity", steps, more)
    note("modules given back", bool(same) and same["calls"] > 0
         and same["losses"] == losses and same["at_once"] == plain["at_once"],
         text[-2000:] if not same else
         f"{same['calls']} modules")
    fault, text = run_child("fault", steps)
    note("callback that fails", bool(fault) and fault["losses"] == losses
         and text.count("zpp: warning: ") == 1, text[-2000:] if not fault else "")
    words = ["--mesh", f"gpu:{gpus}"]
    if gpus == 1:
        own, text = run_child("plain", steps, run=words)
        last = text.splitlines()[-1] if text else ""
        note("zpp run", bool(own) and own["losses"] == losses
             and last.startswith("zpp: nothing was rewritten: of "), text[-2000:])
        return failed
    for target in ("portable", "cuda"):
        own, text = run_child("plain", steps, run=[*words, "--target", target])
        lines = [line for line in text.splitlines()
                 if line.startswith("zpp: jit_step: ")]
        # Of the step, and of those that several threads compile.
        note(f"zpp run, target {target}", bool(own) and len(lines) == 1 and all(
            abs(mine - theirs) <= TOLERANCE * abs(theirs)
            for name in ("losses", "at_once")
            for mine, theirs in zip(own[name], plain[name], strict=True)),
             lines[0] if lines else text[-2000:])
    return failed


def run_child(mode, steps, more=(), run=None):
    """Returns what a training prints, or None, and its standard error."""
    command = [sys.executable, __file__, "--train", mode, "--steps", str(steps),
               *more]
    if run is not None:
        command = [sys.executable, "-m", "zpp", "run", *run, "--", *command]
    paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                   "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")
                   + " --xla_gpu_deterministic_ops=true"}
    try:
        result = subprocess.run(command, env=environment, text=True,
                                capture_output=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        return None, f"expected an end within {error.timeout} s, but got none"
    if result.returncode:
        return None, result.stderr
    return json.loads(result.stdout.splitlines()[-1]), result.stderr


if __name__ == "__main__":
    sys.exit(main())
