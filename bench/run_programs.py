# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of plain jax.jit under `zpp run`, beside the same without zpp and with
zpp.jit.

    python bench/run_programs.py [--programs NAME ...] [--processes N] [--write]

The programs are a GPT, a Llama with a scan over layers and optax, a transformer of
Flax NNX, `Model.fit` of Keras, and MaxText by its own command line, in the size of
the others and with 1 B weights. They need JAX 0.11 or later, flax, optax, keras and
maxtext (0.2.5), and zpp-opt and the runtime of the wheel or of $ZPP_OPT and $ZPP_XLA.
Each process has one GPU, and --gpus-per-node of them are a node, by default one;
processes may share a GPU, and then its time is theirs together. --cpu trains on CPUs, where `zpp run` rewrites nothing.

A process trains on the same batches in each way. The table has the loss of the last
step and the largest difference from plain in any step; what a device sends between
nodes in a step; the time of the first call, which compiles; and the median of the
steps after it. MaxText compiles before its first step, so its time until the end of
that step stands there, from the start of its processes. --write puts the table into
docs/data/training-code.md.
"""

import argparse
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import lab
from lab import launch, links
from lab.programs import AXIS, Record, Sizes, all_devices, cross_entropy, keras, nnx
from lab.programs import put, run_steps, sharding
from lab.tables import describe_commit, write_between

WAYS = {"plain": "plain", "run": "zpp run", "jit": "zpp.jit"}
LIMIT_SECONDS = 900


# Programs ----------------------------------------------------------------------


def gpt(sizes: Sizes, wrap: Callable, record: Record):
    """The GPT of examples/gpt.py."""
    import gpt
    import jax
    trainer = gpt.Trainer(gpt.Config(
        layers=sizes.layers, width=sizes.width, heads=sizes.heads,
        vocab=sizes.vocabulary, context=sizes.length, collectives="xla",
        mesh=((AXIS, jax.device_count()),)))
    from lab.worker import on_device
    init, _ = on_device(trainer, sizes.sequences)
    run_steps(sizes, trainer.mesh, wrap(jax.jit(trainer.step, donate_argnums=0)), (init(),),
              record)


def llama(sizes: Sizes, wrap: Callable, record: Record):
    """RMSNorm, rotary positions, gated units; a scan over checkpointed layers, and
    optax.adamw."""
    import jax
    import optax
    on = all_devices()

    def place_weight(path, value):
        is_stacked = any(getattr(entry, "key", None) == "layers" for entry in path)
        spec = (None, AXIS) if value.ndim == 3 else (
            (AXIS,) if value.ndim == 2 and not is_stacked else ())
        return put(value, on, *spec)

    weights = jax.tree_util.tree_map_with_path(place_weight, draw_llama(sizes))
    kept = jax.tree.map(lambda leaf: leaf.sharding, weights)
    transform = optax.adamw(1e-3)
    state = jax.jit(transform.init)(weights)
    state = jax.tree.map(
        lambda leaf: leaf if leaf.ndim else put(leaf, on), state)

    def train_step(weights, state, batch):
        loss, gradients = jax.value_and_grad(loss_of_llama)(weights, batch, sizes, on)
        updates, state = transform.update(gradients, state, weights)
        weights = jax.lax.with_sharding_constraint(
            optax.apply_updates(weights, updates), kept)
        return weights, state, loss

    run_steps(sizes, on, wrap(jax.jit(train_step, donate_argnums=(0, 1))), (weights, state),
              record)


def draw_llama(sizes: Sizes) -> dict:
    """Its weights, on the host."""
    import numpy as np
    layers, width, hidden = sizes.layers, sizes.width, 3 * sizes.width
    draw = np.random.default_rng(0)

    def matrix(*shape):
        return draw.standard_normal(shape, np.float32) * shape[-2] ** -0.5

    return {
        "embed": matrix(sizes.vocabulary, width), "norm": np.ones(width, np.float32),
        "head": matrix(width, sizes.vocabulary),
        "layers": {
            "norm1": np.ones((layers, width), np.float32),
            "qkv": matrix(layers, width, 3 * width),
            "out": matrix(layers, width, width),
            "norm2": np.ones((layers, width), np.float32),
            "gate": matrix(layers, width, hidden), "up": matrix(layers, width, hidden),
            "down": matrix(layers, hidden, width)}}


def loss_of_llama(weights: dict, batch, sizes: Sizes, on):
    import jax
    import jax.numpy as jnp

    def place(x):
        return jax.lax.with_sharding_constraint(x, sharding(on, AXIS))

    def norm(x, gain):
        scale = jax.lax.rsqrt(jnp.mean(x.astype(jnp.float32) ** 2, -1,
                                       keepdims=True) + 1e-6)
        return (x * scale * gain).astype(x.dtype)

    def rotate(x):
        half = x.shape[-1] // 2
        angle = (jnp.arange(x.shape[1])[:, None] *
                 1e4 ** (-jnp.arange(half) / half))[None, :, None]
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle),
                                a * jnp.sin(angle) + b * jnp.cos(angle)],
                               -1).astype(x.dtype)

    def layer(x, w):
        w = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), w)
        q, k, v = (part.reshape(*x.shape[:2], sizes.heads, -1) for part in
                   jnp.split(place(norm(x, w["norm1"]) @ w["qkv"]), 3, -1))
        mixed = jax.nn.dot_product_attention(rotate(q), rotate(k), v,
                                             is_causal=True)
        x = x + place(place(mixed.reshape(x.shape)) @ w["out"])
        y = norm(x, w["norm2"])
        y = place(jax.nn.silu(place(y @ w["gate"])) * place(y @ w["up"]))
        return place(x + y @ w["down"]), None

    # Otherwise XLA would look tokens up in each part of the table.
    embed = jax.lax.with_sharding_constraint(
        weights["embed"].astype(jnp.bfloat16), sharding(on))
    x = place(embed[batch[:, :-1]])
    x, _ = jax.lax.scan(jax.checkpoint(layer), x, weights["layers"])
    return cross_entropy(place(norm(x, weights["norm"]) @
                               weights["head"].astype(jnp.bfloat16)), batch)


@dataclasses.dataclass(frozen=True)
class Process:
    """One of the processes of a program that is started by a command line."""
    rank: int
    processes: int
    port: int
    on_cpu: bool
    #: For its logs and metrics.
    folder: pathlib.Path


def maxtext(*changed: str):
    """MaxText's trainer with synthetic data, which are one batch."""
    def command(sizes: Sizes, process: Process) -> tuple[list[str], dict[str, str]]:
        found = importlib.util.find_spec("maxtext")
        if found is None or found.origin is None:
            raise SystemExit("expected the package maxtext, but it is not installed")
        rank, count, port = process.rank, process.processes, process.port
        return [
            "-m", "maxtext.trainers.pre_train.train",
            str(pathlib.Path(found.origin).parent / "configs" / "base.yml"),
            f"base_output_directory={process.folder}", f"run_name=rank{rank}",
            f"metrics_file={process.folder / f'metrics-{rank}.txt'}",
            f"hardware={'cpu' if process.on_cpu else 'gpu'}", "jax_cache_dir=",
            "attention=dot_product", "dataset_type=synthetic",
            "enable_checkpointing=false", "enable_goodput_recording=false",
            "enable_tensorboard=false", f"steps={sizes.steps}",
            f"base_num_decoder_layers={sizes.layers}",
            f"base_emb_dim={sizes.width}", f"base_mlp_dim={3 * sizes.width}",
            f"base_num_query_heads={sizes.heads}",
            f"base_num_kv_heads={sizes.heads}", "head_dim=64",
            f"vocab_size={sizes.vocabulary}", f"max_target_length={sizes.length}",
            f"per_device_batch_size={sizes.sequences // count}",
            "learning_rate=1e-3", *changed], ({
                "JAX_COORDINATOR_ADDRESS": "localhost", "JOB_INDEX": "0",
                "JOB_COMPLETION_INDEX": str(rank), "PROCESSES_IN_JOB": str(count),
                "JAX_PROCESS_COUNT": str(count)} if process.on_cpu else {
                # It takes a number for one among those that the process sees.
                "CUDA_VISIBLE_DEVICES": launch.uuid_of(rank),
                "JAX_COORDINATOR_IP": "127.0.0.1",
                "JAX_COORDINATOR_PORT": str(port), "NNODES": str(count),
                "NODE_RANK": str(rank)})
    return command


def read_maxtext(folder: pathlib.Path) -> tuple[list[float], list[float]]:
    """Losses, and seconds of the steps."""
    lines = [json.loads(line) for line in
             (folder / "metrics-0.txt").read_text().splitlines()]
    return ([line["learning/loss"] for line in lines],
            [line["perf/step_time_seconds"] for line in lines])


@dataclasses.dataclass(frozen=True)
class Program:
    title: str
    #: Trains in a process of this script...
    train: Callable[[Sizes, Callable, Record], None] | None = None
    #: ... or gives the arguments of Python, and variables, for one of its own.
    command: Callable[[Sizes, Process], tuple[list[str], dict[str, str]]] | None = None

    @property
    def ways(self) -> list[str]:
        """zpp.jit wants the step in hand."""
        return [way for way in WAYS if self.train or way != "jit"]


PROGRAMS = {
    "gpt": Program("the example GPT", gpt),
    "llama": Program("Llama, scan, optax", llama),
    "nnx": Program("Flax NNX, `nnx.jit`", nnx),
    "keras": Program("Keras, `Model.fit`", keras),
    "maxtext": Program("MaxText, its command line", command=maxtext()),
    "maxtext-1b": Program("MaxText, 1.0 B weights", command=maxtext(
        "base_num_decoder_layers=18", "base_emb_dim=2048", "base_mlp_dim=5632",
        "base_num_query_heads=32", "base_num_kv_heads=32", "vocab_size=32000",
        "max_target_length=1024", "per_device_batch_size=2", "learning_rate=1e-4")),
}


# Processes -----------------------------------------------------------------------


def work(args, sizes: Sizes):
    """Trains as one of the processes; the first one writes what it found."""
    import jax
    if args.cpu:
        jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(
        f"localhost:{args.port}", args.processes, args.rank,
        local_device_ids=None if args.cpu else [0])
    import zpp
    steps = []

    def wrap(jitted):
        if args.way != "jit":
            return jitted
        steps.append(zpp.jit(jitted, mesh=mesh_of(args), links="none"))
        return steps[-1]

    record = Record()
    train_with = PROGRAMS[args.work].train
    assert train_with, "a program with a command runs by that"
    train_with(sizes, wrap, record)
    sent = None
    for step in steps:
        try:
            sent = largest([step.report()["total"]])
        except ValueError:
            continue  # It has not run.
    if args.rank == 0:
        args.result.write_text(json.dumps({
            "losses": record.losses, "seconds": record.seconds, "sent": sent}))
    # Nobody ends while another one still waits for it.
    from jax.experimental import multihost_utils
    multihost_utils.sync_global_devices("end")
    jax.distributed.shutdown()


def largest(totals: list[dict]) -> list[float] | None:
    """Bytes between nodes before and after, of the module that sends most."""
    found = [[total[side].get("node", 0) for side in ("before", "after")]
             for total in totals]
    return max(found, default=None)


def mesh_of(args) -> str:
    per_node = args.gpus_per_node
    nodes = f"node:{args.processes // per_node}"
    return nodes if per_node == 1 else f"{nodes},gpu:{per_node}"


def train(args, sizes: Sizes, name: str, way: str, folder: pathlib.Path
          ) -> dict | str:
    """Returns the findings of the processes of one way, or why there are none."""
    program, port = PROGRAMS[name], launch.free_port()
    result, report = folder / "result.json", folder / "report.json"
    for path in (result, report, folder / "metrics-0.txt"):
        path.unlink(missing_ok=True)
    processes = []
    for rank in range(args.processes):
        environment = environment_of(args, rank)
        arguments: Sequence
        if program.command:
            arguments, own = program.command(sizes, Process(
                rank, args.processes, port, args.cpu, folder))
            environment |= own
        else:
            arguments = [__file__, *sys.argv[1:], "--work", name, "--way", way,
                         "--rank", rank, "--port", port, "--result", result]
        command: list = [sys.executable, *arguments]
        if way == "run":
            command = [sys.executable, "-m", "zpp", "run", "--mesh", mesh_of(args),
                       "--report", report, "--", *command]
        processes.append(launch.Process(
            command, environment, folder / f"{name}-{way}-{rank}.txt"))
    began, first_step = time.perf_counter(), []

    def on_line(line: str):
        if "completed step: 0," in line:
            first_step.append(time.perf_counter() - began)

    try:
        launch.run(processes, LIMIT_SECONDS, on_line)
    except RuntimeError as error:
        return str(error)
    if program.command:
        losses, seconds = read_maxtext(folder)
        found = {"losses": losses, "seconds": [*first_step, *seconds[1:]],
                 "sent": None}
    else:
        found = json.loads(result.read_text())
    if way == "run":
        # A line for people, and the last words.
        print(*[line for line in processes[0].log.read_text().splitlines()
                if line.startswith("zpp: ")], sep="\n", flush=True)
        modules = (json.loads(report.read_text())["modules"]
                   if report.exists() else [])
        found["sent"] = largest([module["report"]["total"] for module in modules
                                 if module["rewritten"]])
    return found


def environment_of(args, rank: int) -> dict[str, str]:
    common = launch.environment(args.cpu) | {"KERAS_BACKEND": "jax"}
    paths = [str(lab.ROOT / folder) for folder in ("python", "examples")]
    common["PYTHONPATH"] = os.pathsep.join([*paths, common["PYTHONPATH"]])
    if args.cpu:
        return common
    # A process sees one GPU, as under Slurm.
    return (common | {"CUDA_VISIBLE_DEVICES": str(launch.device_of(rank))}
            | links.environment(rank, args.processes, args.gpus_per_node, "shared"))


# The table -----------------------------------------------------------------------


def row(title: str, found: dict[str, dict | str]) -> list[str]:
    plain = found["plain"]
    lines = []
    for way, result in found.items():
        name = title if way == "plain" else ""
        if isinstance(result, str):
            first = result.splitlines()[0]
            lines.append(f"| {name} | {WAYS[way]} | {first} | | | | |")
            continue
        off = (max(map(abs, map(float.__sub__, result["losses"], plain["losses"])))
               if isinstance(plain, dict) else float("nan"))
        sent = result["sent"] or [float("nan"), float("nan")]
        bytes_ = ("" if way == "plain" else "nothing rewritten"
                  if result["sent"] is None else
                  f"{sent[0] / 1e6:.1f} -> {sent[1] / 1e6:.1f} MB")
        lines.append(
            f"| {name} | {WAYS[way]} | {result['losses'][-1]:.4f} | "
            f"{'' if way == 'plain' else f'{off:.4f}'} | {bytes_} | "
            f"{result['seconds'][0]:.1f} s | "
            f"{statistics.median(result['seconds'][2:]) * 1e3:.1f} ms |")
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS,
                        default=list(PROGRAMS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--gpus-per-node", type=int, default=1, metavar="N")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--logs", type=pathlib.Path, default=None,
                        help="the folder for what the processes print")
    parser.add_argument("--write", action="store_true",
                        help="put the table into docs/data/training-code.md")
    for name, kind in (("work", str), ("way", str), ("rank", int), ("port", int),
                       ("result", pathlib.Path)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = Sizes(args.layers, args.width, args.width // 64, args.vocabulary,
                  args.length, args.sequences, args.steps)
    if args.work:
        work(args, sizes)
        return 0
    launch.prepare()
    lines, is_complete = [], True
    folder = (args.logs or pathlib.Path(tempfile.mkdtemp(prefix="zpp-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for program in args.programs:
        found = {way: train(args, sizes, program, way, folder)
                 for way in PROGRAMS[program].ways
                 if way in args.ways or way == "plain"}
        for result in found.values():
            if isinstance(result, str):
                is_complete = False
                print(result, flush=True)
        rows = row(PROGRAMS[program].title, found)
        lines += rows
        print(*rows, sep="\n", flush=True)
    table = "\n".join([
        "| program | | loss | off by at most | between nodes | first call | step |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |", *lines, "",
        f"{datetime.date.today()}, {describe_commit() or 'a copy without git'}, JAX "
        f"{importlib.metadata.version('jax')}, {args.processes} processes as "
        f"{mesh_of(args)} on {launch.describe_gpu(args.processes)}; {args.layers} layers of {args.width}, "
        f"{args.sequences} x {args.length} tokens, step {args.steps}; bytes of a device "
        f"in a step."])
    print(table)
    if args.write:
        write_between(lab.ROOT / "docs" / "data" / "training-code.md", "run programs", table)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
