# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training step as FSDP and as ZeRO++, on two nodes.

Compiled where zpp-opt is (no GPU needed), run where the GPUs are (JAX and the
runtime library):

    python bench/two_node.py --export DIR [--tiny] [--platform cpu]
    python bench/two_node.py --run DIR [--links 50gbit 100gbit nvlink]

--export writes the example GPT's step for a mesh of 2 nodes x 2 GPUs, as it is
and rewritten: with all of ZeRO++ in portable StableHLO (a), and for the runtime
(b) with each technique and with all of them; and the bytes that zpp-opt reports
for it. --run trains all of them from the same weights on
the same batch and prints one table.

One host with four GPUs plays two nodes (bench/links.py), each GPU with its own
process. Other NCCL_* and XLA_FLAGS are taken from the environment.

Each step is timed by itself, on rank 0, from the call until all its results are
there. "reported" is what all devices together send between the nodes per step
as zpp-opt's report counts it, "measured" what the loopback device counted.
"busy" is the time that the measured bytes take at the link's rate, as a part of
the step's time.

Both need JAX of one version with `flatbuffers`; --run writes the ranks' output,
the raw numbers and XLA's optimized modules to --log.

With --platform cpu, four CPU processes do the same: to check the script.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

import links as links_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "python")]

RANKS = links_of.RANKS
MESH = (("node", 2), ("gpu", links_of.GPUS_PER_NODE))
OFF = {"weights": "none", "gradients": "none", "secondary": "none"}
#: The rewritten steps: name -> options of zpp.rewrite.
ALL = {"weights": "i8", "gradients": "i8:i4", "secondary": "gpu"}
VARIANTS = {
    "all, portable (a)": ALL | {"target": "portable"},
    "weights i8 (qwZ)": OFF | {"weights": "i8"},
    "secondary (hpZ)": OFF | {"secondary": "gpu"},
    "gradients i8:i4 (qgZ)": OFF | {"gradients": "i8:i4"},
    "all (b)": ALL,
}
#: As jax.jit runs it, and through the same export as the rewritten ones.
JITTED, EXPORTED = "FSDP", "FSDP, exported"
LIMIT_SECONDS = 540


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    stage = parser.add_mutually_exclusive_group(required=True)
    stage.add_argument("--export", type=pathlib.Path, metavar="DIR")
    stage.add_argument("--run", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"),
                        help="what to export for")
    parser.add_argument("--tiny", action="store_true",
                        help="export a model of two narrow layers")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--links", nargs="+",
                        default=["50gbit", "100gbit", "nvlink"])
    parser.add_argument("--variants", nargs="+", metavar="WORD",
                        help="run those whose name has one of these words")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--tc", default="tc", help="the program, with options")
    parser.add_argument("--log", type=pathlib.Path, default="two_node_log",
                        help="folder for the ranks' output and raw numbers")
    parser.add_argument("--trace", action="store_true",
                        help="a timeline of one more step, in --log")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE",
                        help="draw the steps' times (needs matplotlib); FILE "
                        "ends in .png or .svg")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.export:
        export(args)
    elif args.rank is None:
        launch(args)
    else:
        run_rank(args)


# Compile here ----------------------------------------------------------------


def export(args):
    import jax
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", RANKS)
    import gpt
    import zpp

    config = gpt.Config(
        layers=args.layers, width=2048, heads=16, vocab=32000, context=2048,
        mesh=MESH, learning_rate=1e-4)
    if args.tiny:
        config = dataclasses.replace(
            config, layers=2, width=256, heads=4, vocab=512, context=64)
    trainer = gpt.Trainer(config)
    original = zpp.export(
        jax.jit(trainer.step, donate_argnums=0), trainer.abstract_state(),
        trainer.abstract_batch(RANKS), platforms=[args.platform])
    args.export.mkdir(parents=True, exist_ok=True)
    variants = []

    def write(name, step, options, total):
        path = f"step{len(variants)}.zpp"
        zpp.save(step, args.export / path)
        variants.append({"name": name, "path": path, "options": options,
                         "bytes": total})
        print(f"{name}: bytes per device and step {total}", flush=True)

    for name, options in VARIANTS.items():
        start = time.perf_counter()
        rewritten = zpp.rewrite(
            original, **{"mesh": "node:2,gpu:2", "target": args.platform} |
            options)
        total = rewritten.report["total"]
        if not variants:
            write(EXPORTED, original, {}, total["before"])
        write(name, rewritten, options, total["after"])
        print(f"  rewritten in {time.perf_counter() - start:.1f} s; left "
              f"alone: {len(rewritten.left_alone)}", flush=True)
    manifest = {
        "config": dataclasses.asdict(config), "platform": args.platform,
        "donated": original.donated, "variants": variants,
        "parameters": trainer.model_elements(),
        "jax": jax.__version__, "commit": _commit()}
    (args.export / "manifest.json").write_text(json.dumps(manifest, indent=1))


def _commit() -> str:
    process = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT,
                             stdout=subprocess.PIPE, text=True, check=False)
    return process.stdout.strip() or "unknown"


# Run there -------------------------------------------------------------------


def launch(args):
    """Starts the ranks: once for all links between nodes, once for NVLink."""
    manifest = json.loads((args.run / "manifest.json").read_text())
    args.log.mkdir(parents=True, exist_ok=True)
    names = [JITTED] + [variant["name"] for variant in manifest["variants"]]
    if args.variants:
        names = [name for name in names
                 if any(word in name for word in args.variants)]
    results = {link: {} for link in args.links}
    shaped = [link for link in args.links if link != "nvlink"]
    # Each step has its own processes, so that its peak of memory is its own.
    for name in names:
        for two_nodes, links in ((True, shaped), (False, ["nvlink"])):
            if not set(links) & set(args.links):
                continue
            try:
                found = _launch_ranks(args, manifest, name, two_nodes, links)
            finally:
                if any(map(links_of.rate, links)):
                    links_of.shape(args.tc, None)
            for link, result in found.items():
                results[link][name] = result
    (args.log / "results.json").write_text(json.dumps(results, indent=1))
    print_table(manifest, args, results)
    if args.plot:
        draw(args, results)


def _launch_ranks(args, manifest, name: str, two_nodes: bool, links: list
                  ) -> dict:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    # The options but --links, whose values end at the next one.
    trace = ["--trace"] if args.trace else []
    command = [
        sys.executable, __file__, *trace, "--run", args.run, "--log", args.log,
        "--tc", args.tc, "--warm-up", args.warm_up, "--steps", args.steps,
        "--port", port, "--variants", name, "--links", *links]
    label = _label(name, links)
    processes = []
    for rank in range(RANKS):
        environment = os.environ | links_of.environment(rank, two_nodes) | {
            "PYTHONUNBUFFERED": "1",
            "JAX_COMPILATION_CACHE_DIR": str(args.log / "cache")}
        if manifest["platform"] == "cpu":
            environment["JAX_PLATFORMS"] = "cpu"
        with open(args.log / f"{label}-{rank}.txt", "w") as log:
            processes.append(subprocess.Popen(
                [*map(str, command), "--rank", str(rank)], env=environment,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True))
    try:
        _wait(processes, args.log / f"{label}-0.txt")
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return json.loads((args.log / f"{label}.json").read_text())


def _label(name: str, links: list) -> str:
    """The name of a group of processes among the logs."""
    where = "nvlink" if links == ["nvlink"] else "two-nodes"
    return re.sub("[^a-zA-Z0-9]+", "-", f"{name} {where}")


def _wait(processes, log):
    """Waits for all ranks, shows rank 0's lines; one lost rank ends all."""
    end = time.monotonic() + LIMIT_SECONDS
    with open(log) as lines:
        while True:
            codes = [process.poll() for process in processes]
            for line in lines:
                if line.startswith(tuple(f"[{hour}" for hour in range(3))):
                    print(line, end="", flush=True)
            if all(code == 0 for code in codes):
                return
            if any(codes) or time.monotonic() > end:
                sys.exit(f"expected all ranks to end with 0, but got {codes}; "
                         f"see {log.parent}\n" + log.read_text()[-3000:])
            time.sleep(0.2)


def _loopback_bytes() -> int:
    return int(pathlib.Path(
        "/sys/class/net/lo/statistics/tx_bytes").read_text())


def run_rank(args):
    import jax
    manifest = json.loads((args.run / "manifest.json").read_text())
    on_gpu = manifest["platform"] == "cuda"
    jax.distributed.initialize(
        f"localhost:{args.port}", RANKS, args.rank,
        local_device_ids=[args.rank] if on_gpu else None)
    from jax.experimental import multihost_utils
    import gpt
    import zpp

    config = dict(manifest["config"])
    config["mesh"] = tuple(map(tuple, config["mesh"]))
    trainer = gpt.Trainer(gpt.Config(**config))

    def say(text):
        if args.rank == 0:
            print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)

    init, batch = _on_device(trainer)
    tokens = batch()
    name, = args.variants
    step = trainer.step
    for variant in manifest["variants"]:
        if variant["name"] == name:
            step = zpp.load(args.run / variant["path"])

    results = {}
    for link in args.links:
        if args.rank == 0 and links_of.rate(link):
            links_of.shape(args.tc, link)
        multihost_utils.sync_global_devices(link)
        state, seconds, losses = init(), [], []
        jax.block_until_ready(state)
        multihost_utils.sync_global_devices(name)
        sent = _loopback_bytes()
        for _ in range(args.warm_up + args.steps):
            start = time.perf_counter()
            state, loss = step(state, tokens)
            jax.block_until_ready((state, loss))
            seconds.append(time.perf_counter() - start)
            losses.append(float(loss))
        stats = jax.local_devices()[0].memory_stats() or {}
        results[link] = {
            "seconds": seconds, "losses": losses,
            "peak": stats.get("peak_bytes_in_use", 0),
            "bytes": (_loopback_bytes() - sent) / len(seconds)}
        if args.trace and hasattr(zpp, "trace"):
            path = args.log / f"{_label(name, [link])}-{args.rank}.trace.json"
            with zpp.trace(path):
                state, loss = step(state, tokens)
                jax.block_until_ready((state, loss))
        del state
        median = statistics.median(seconds[args.warm_up:])
        say(f"{link}, {name}: {median * 1e3:.1f} ms, first {seconds[0]:.0f} s, "
            f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    if args.rank == 0:
        (args.log / f"{_label(name, args.links)}.json").write_text(
            json.dumps(results))
    jax.distributed.shutdown()


def _on_device(trainer):
    """Functions that draw the initial state and the batch where they live."""
    import jax
    import jax.numpy as jnp
    config = trainer.config
    abstract = trainer.abstract_state()

    def weight(path, leaf):
        name = path[-1].key
        scale = (trainer.parameters["layers"] | trainer.parameters)[name].scale
        key = jax.random.key(0)
        for entry in path:
            key = jax.random.fold_in(key, entry.idx if hasattr(entry, "idx")
                                     else sum(entry.key.encode()))
        return scale * jax.random.normal(key, leaf.shape, leaf.dtype)

    def init():
        state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                             abstract)
        state["params"] = jax.tree_util.tree_map_with_path(
            weight, abstract["params"])
        return state

    def batch():
        return jax.random.randint(
            jax.random.key(1), (RANKS, config.context + 1), 0, config.vocab,
            jnp.int32)

    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    return (jax.jit(init, out_shardings=shardings),
            jax.jit(batch,
                    out_shardings=trainer.abstract_batch(RANKS).sharding))


# The table -------------------------------------------------------------------


def print_table(manifest, args, results):
    count = args.warm_up + args.steps
    gpu = _gpu() if manifest["platform"] == "cuda" else "CPU"
    print(f"\n{manifest['parameters'] / 1e9:.2f} B parameters, "
          f"{manifest['config']['context']} tokens per device; {gpu}; JAX "
          f"{manifest['jax']}; steps exported at {manifest['commit']}; median "
          f"of {args.steps} steps after {args.warm_up}\n")
    links = list(results)
    reported = {variant["name"]: RANKS * variant["bytes"]["node"]
                for variant in manifest["variants"]}
    reported[JITTED] = reported[EXPORTED]
    header = ["step", "reported", "measured"]
    for link in links:
        header += [link] + (["busy"] if links_of.rate(link) else []) + ["speed-up"]
    rows = [header + ["peak memory", f"loss after {count}",
                      "largest difference"]]
    baseline = None
    for name, first in results[links[0]].items():
        row = [name, f"{reported[name] / 1e9:.2f} GB",
               f"{first['bytes'] / 1e9:.2f} GB"]
        for link in links:
            median = {
                key: statistics.median(run["seconds"][args.warm_up:])
                for key, run in results[link].items()}
            row.append(f"{median[name] * 1e3:.1f} ms")
            if links_of.rate(link):
                busy = results[link][name]["bytes"] * 8 / links_of.rate(link)
                row.append(f"{busy / median[name]:.0%}")
            row.append(f"{next(iter(median.values())) / median[name]:.2f}x")
        baseline = baseline or first["losses"]
        difference = max(
            abs(a - b) for a, b in zip(first["losses"], baseline))
        rows.append(row + [f"{first['peak'] / 2**30:.2f} GiB",
                           f"{first['losses'][-1]:.4f}", f"{difference:.4f}"])
    print("\n".join(
        ["| " + " | ".join(row) + " |" for row in rows[:1]] +
        ["| --- " + "| ---: " * (len(rows[0]) - 1) + "|"] +
        ["| " + " | ".join(row) + " |" for row in rows[1:]]))


def draw(args, results):
    """A group of bars for each link: the median of each step, labeled with its
    speed-up."""
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(
        1, len(results), figsize=(4.5 * len(results), 4), squeeze=False)
    for axis, (link, runs) in zip(axes[0], results.items()):
        medians = [statistics.median(run["seconds"][args.warm_up:]) * 1e3
                   for run in runs.values()]
        bars = axis.barh(list(runs), medians, color=[
            "#888888" if name in (JITTED, EXPORTED) else "#3572b0"
            for name in runs])
        axis.bar_label(bars, [f"{medians[0] / median:.2f}x"
                              for median in medians], padding=3)
        axis.set_title(link)
        axis.set_xlabel("ms per step")
        axis.margins(x=0.15)
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[0][1:]:
        axis.set_yticklabels([])
    figure.tight_layout()
    figure.savefig(args.plot, dpi=150)
    print(f"\nplot: {args.plot}")


def _gpu() -> str:
    if not shutil.which("nvidia-smi"):
        return "GPU"
    lines = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version",
         "--format=csv,noheader"],
        stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    name, driver = lines[0].split(", ")
    return f"{len(lines)}x {name}, driver {driver}"


if __name__ == "__main__":
    main()
