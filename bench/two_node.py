#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training step as FSDP and as ZeRO++, on two nodes.

    bench/two-node [--tiny] [--platform cpu] [--links 50gbit 100gbit nvlink]

writes the example GPT's step for a mesh of 2 nodes x 2 GPUs (--gpus-per-node),
as it is and rewritten: with all of ZeRO++ in portable StableHLO (a), and for the runtime (b)
with each technique and with all of them; and the bytes that zpp-opt reports for
it. Then it trains all of them from the same weights on the same batch, prints a
table and draws it (with matplotlib). Where the steps of the same options and
commit are in --log already, they are used again.

Where only one of compiler and GPUs is:

    bench/two-node --export DIR    # zpp-opt, no GPU
    bench/two-node --run DIR       # GPUs and the runtime library, no compiler

Both need JAX of one version with `flatbuffers`. Shaped links need root.

The GPUs of one host play two nodes (bench/links.py), each GPU with its own
process. Other NCCL_* and XLA_FLAGS are taken from the environment. The ranks'
output, traces and the raw numbers are in --log.

With --platform cpu, CPU devices do the same, to check the script: of as many
processes, but of one where the runtime communicates, which has a back end for
CPU devices of one process only.

Each step is timed by itself, on rank 0, from the call until all its results are
there. Per link:

  speed-up   against FSDP
  busy       part of the step that the measured bytes take at the link's rate
  exposed    how long the device's compute stood still in waits for collectives,
             the mean of all devices, and as a part of the step: of a few more
             steps, which are traced. Where XLA communicates there is no such
             trace: "~" is what the step takes longer than the compute of
             "all (b)", which is that step without its exposed communication.

"reported" is what all devices together send between the nodes per step as
zpp-opt's report counts it, "measured" what the loopback device counted.
"""

import argparse
import dataclasses
import json
import math
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

OFF = {"weights": "none", "gradients": "none", "secondary": "none"}
ALL = {"weights": "i8", "gradients": "i8:i4", "secondary": "gpu"}
#: As jax.jit runs it, and through the same export as the rewritten ones.
JITTED, EXPORTED = "FSDP", "FSDP, exported"
#: The step whose compute tells what others expose.
RUNTIME = "all (b)"
#: The rewritten steps: name -> options of zpp.rewrite. Without `links` they are
#: for links between nodes that are slow; with it, for those named: NVLink.
VARIANTS = {
    "all, portable (a)": ALL | {"target": "portable"},
    "weights i8 (qwZ)": OFF | {"weights": "i8"},
    "secondary (hpZ)": OFF | {"secondary": "gpu"},
    "gradients i8:i4 (qgZ)": OFF | {"gradients": "i8:i4"},
    RUNTIME: ALL,
    "all (b), links": ALL | {"links": "node=400gbyte,gpu=400gbyte"},
}
#: Where at most this part of a step's bytes is left to XLA, the runtime's trace
#: shows all that the step exposes.
LEFT = 0.01
TRACED_STEPS = 3
LIMIT_SECONDS = 540


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    stage = parser.add_mutually_exclusive_group()
    stage.add_argument("--export", type=pathlib.Path, metavar="DIR")
    stage.add_argument("--run", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"),
                        help="what to export for")
    parser.add_argument("--tiny", action="store_true",
                        help="export a model of two narrow layers")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--gpus-per-node", type=int, default=2, metavar="N",
                        help="export for two nodes of N GPUs")
    parser.add_argument("--sequences", type=int, default=1, metavar="N",
                        help="export for N sequences per device")
    parser.add_argument("--links", nargs="+", default=[
        "25gbit", "50gbit", "100gbit", "shared", "nvlink"])
    parser.add_argument("--variants", nargs="+", metavar="WORD",
                        help="run those whose name has one of these words")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--rounds", type=int, default=1, metavar="N",
                        help="train all of them N times, in turn; the table says"
                        "\nhow far the rounds' speed-ups are apart")
    parser.add_argument("--tc", default="tc", help="the program, with options")
    parser.add_argument("--log", type=pathlib.Path, default="two-node-log",
                        help="folder for the ranks' output and raw numbers")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE",
                        help=".png or .svg; default: two-node.png in --log")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.export:
        export(args, args.export)
    elif args.rank is not None:
        run_rank(args)
    else:
        if not args.run:
            args.run = args.log / "steps"
            export_once(args)
        launch(args)


# Compile here ----------------------------------------------------------------


def config_of(args):
    import gpt
    config = gpt.Config(
        layers=args.layers, width=2048, heads=16, vocab=32000, context=2048,
        mesh=(("node", links_of.NODES), ("gpu", args.gpus_per_node)),
        learning_rate=1e-4)
    if args.tiny:
        config = dataclasses.replace(
            config, layers=2, width=256, heads=4, vocab=512, context=64)
    return config


def ranks_of(config: dict) -> int:
    """Of a manifest's config."""
    return math.prod(size for _, size in config["mesh"])


def describe(args) -> dict:
    """What the exported steps depend on."""
    import jax
    return {"config": dataclasses.asdict(config_of(args)),
            "sequences": args.sequences, "platform": args.platform,
            "variants": VARIANTS, "jax": jax.__version__, "commit": _commit()}


def export_once(args):
    """Exports unless the same is there. Changes that are not committed may make
    it another one."""
    path = args.run / "manifest.json"
    wanted = json.loads(json.dumps(describe(args)))
    if path.exists() and not wanted["commit"].endswith(("dirty", "unknown")):
        if json.loads(path.read_text())["of"] == wanted:
            print(f"steps as exported before: {args.run}", flush=True)
            return
    export(args, args.run)


def export(args, folder):
    import jax
    jax.config.update("jax_platforms", "cpu")
    ranks = links_of.NODES * args.gpus_per_node
    jax.config.update("jax_num_cpu_devices", ranks)
    import gpt
    import zpp

    trainer = gpt.Trainer(config_of(args))
    original = zpp.export(
        jax.jit(trainer.step, donate_argnums=0), trainer.abstract_state(),
        trainer.abstract_batch(ranks * args.sequences),
        platforms=[args.platform])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").unlink(missing_ok=True)
    variants = {}

    def write(name, step, **about):
        path = f"step{len(variants)}.zpp"
        zpp.save(step, folder / path)
        variants[name] = {"path": path} | about
        print(f"{name}: bytes per device and step {about['bytes']}", flush=True)

    for name, options in VARIANTS.items():
        start = time.perf_counter()
        rewritten = zpp.rewrite(
            original,
            **{"mesh": f"node:{links_of.NODES},gpu:{args.gpus_per_node}",
               "target": args.platform} | options)
        total = rewritten.report["total"]
        if not variants:
            write(EXPORTED, original, bytes=total["before"], links=None,
                  is_runtime=False, is_traced=False)
        is_runtime = rewritten.step.uses_runtime
        left = sum(sum(entry["after"].values())
                   for entry in rewritten.left_alone)
        write(name, rewritten, bytes=total["after"],
              links=["nvlink"] if "links" in options else None,
              is_runtime=is_runtime,
              is_traced=is_runtime and
              left <= LEFT * sum(total["after"].values()))
        print(f"  rewritten in {time.perf_counter() - start:.1f} s; left "
              f"alone: {len(rewritten.left_alone)}", flush=True)
    # FSDP as it is needs no file.
    variants = {JITTED: variants[EXPORTED] | {"path": None}} | variants
    # Last: without it, there are no steps.
    (folder / "manifest.json").write_text(json.dumps(
        {"of": describe(args), "parameters": trainer.model_elements(),
         "variants": variants}, indent=1))


def _commit() -> str:
    process = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        check=False)
    return process.stdout.strip() or "unknown"


# Run there -------------------------------------------------------------------


def launch(args):
    """Starts the ranks: once for all links between nodes, once for NVLink."""
    links_of.prepare_launch()
    manifest = json.loads((args.run / "manifest.json").read_text())
    args.log.mkdir(parents=True, exist_ok=True)
    for link in args.links:
        links_of.rate(link)  # Ends where there is no such link.
    results = {link: {} for link in args.links}
    # Each step has its own processes, so that its peak of memory is its own.
    for _ in range(args.rounds):
        for name, variant in manifest["variants"].items():
            if args.variants and not any(word in name
                                         for word in args.variants):
                continue
            links = [link for link in args.links
                     if link in (variant["links"] or args.links)]
            for two_nodes in (True, False):
                found = _launch_ranks(args, manifest, name, two_nodes, [
                    link for link in links if (link != "nvlink") == two_nodes])
                for link, result in found.items():
                    results[link].setdefault(name, []).append(result)
    results = {link: {name: _joined(rounds) for name, rounds in runs.items()}
               for link, runs in results.items()}
    for runs in results.values():
        expose(manifest, runs)
    (args.log / "results.json").write_text(json.dumps(results, indent=1))
    print_tables(args, manifest, results)
    draw(args, manifest, results)


def _joined(rounds: list[dict]) -> dict:
    """What the rounds of a step say together. Each trains from the same weights
    on the same batch: losses are the first one's."""
    joined = rounds[0] | {
        "rounds": [run["seconds"] for run in rounds],
        "seconds": [time for run in rounds for time in run["seconds"]],
        "peak": max(run["peak"] for run in rounds),
        "bytes": statistics.mean(run["bytes"] for run in rounds),
        "host_times": {
            kind: statistics.median(run["host_times"][kind] for run in rounds)
            for kind in rounds[0]["host_times"]}}
    if "stalls" in joined:
        joined["stalls"] = [stall for run in rounds for stall in run["stalls"]]
    return joined


def _launch_ranks(args, manifest, name: str, two_nodes: bool, links: list
                  ) -> dict:
    if not links:
        return {}
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    on_cpu = manifest["of"]["platform"] == "cpu"
    ranks = ranks_of(manifest["of"]["config"])
    count = 1 if on_cpu and manifest["variants"][name]["is_runtime"] else ranks
    command = [
        sys.executable, __file__, "--run", args.run, "--log", args.log,
        "--tc", args.tc, "--warm-up", args.warm_up, "--steps", args.steps,
        "--port", port, "--processes", count, "--variants", name,
        "--links", *links]
    label = _label(name, links)
    processes = []
    try:
        for rank in range(count):
            environment = os.environ | links_of.environment(
                rank, ranks // links_of.NODES, two_nodes) | {
                    "PYTHONUNBUFFERED": "1",
                    "JAX_COMPILATION_CACHE_DIR": str(args.log / "cache")}
            if on_cpu:
                environment["JAX_PLATFORMS"] = "cpu"
            with open(args.log / f"{label}-{rank}.txt", "w") as log:
                processes.append(subprocess.Popen(
                    [*map(str, command), "--rank", str(rank)], env=environment,
                    stdout=log, stderr=subprocess.STDOUT,
                    start_new_session=True))
        _wait(processes, args.log / f"{label}-0.txt")
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if any(map(links_of.rate, links)):
            links_of.shape(args.tc, None)
    return json.loads((args.log / f"{label}.json").read_text())


def _label(name: str, links: list) -> str:
    """The name of a group of processes among the logs."""
    where = "nvlink" if links == ["nvlink"] else "two-nodes"
    return _word(f"{name} {where}")


def _word(text: str) -> str:
    return re.sub("[^a-zA-Z0-9]+", "-", text)


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
    on_cpu = manifest["of"]["platform"] == "cpu"
    config = dict(manifest["of"]["config"])
    ranks = ranks_of(config)
    if on_cpu:
        jax.config.update("jax_num_cpu_devices", ranks // args.processes)
    if args.processes > 1:
        jax.distributed.initialize(
            f"localhost:{args.port}", args.processes, args.rank,
            local_device_ids=None if on_cpu else [args.rank])
    from jax.experimental import multihost_utils
    import gpt
    import zpp

    config["mesh"] = tuple(map(tuple, config["mesh"]))
    trainer = gpt.Trainer(gpt.Config(**config))
    init, batch = _on_device(trainer, ranks * manifest["of"]["sequences"])
    tokens = batch()
    name, = args.variants
    variant = manifest["variants"][name]
    if variant["path"]:
        step = zpp.load(args.run / variant["path"])
    else:
        step = jax.jit(trainer.step, donate_argnums=0)

    results = {}
    is_shaped = False
    for link in args.links:
        if args.rank == 0 and (links_of.rate(link) or is_shaped):
            is_shaped = links_of.rate(link) > 0
            links_of.shape(args.tc, link if is_shaped else None)
        multihost_utils.sync_global_devices(link)
        state, seconds, losses = init(), [], []
        jax.block_until_ready(state)
        multihost_utils.sync_global_devices(name)
        for index in range(args.warm_up + args.steps):
            if index == args.warm_up:
                sent = _loopback_bytes()
                zpp.host_times()
            start = time.perf_counter()
            state, loss = step(state, tokens)
            jax.block_until_ready((state, loss))
            seconds.append(time.perf_counter() - start)
            losses.append(float(loss))
        stats = jax.local_devices()[0].memory_stats() or {}
        results[link] = {
            "seconds": seconds[args.warm_up:], "losses": losses,
            "peak": stats.get("peak_bytes_in_use", 0),
            "bytes": (_loopback_bytes() - sent) / args.steps,
            "host_times": zpp.host_times()}
        if variant["is_runtime"]:
            stalls = []
            for number in range(TRACED_STEPS):
                path = args.log / f"{_word(f'{name} {link}')}.trace{number}.json"
                with zpp.trace(path):
                    state, loss = step(state, tokens)
                    jax.block_until_ready((state, loss))
                # All are written when all are here.
                multihost_utils.sync_global_devices(path.name)
                stalls.append(_stalled_seconds(path, args.processes, ranks))
            results[link]["stalls"] = stalls
        del state
        median = statistics.median(seconds[args.warm_up:])
        if args.rank == 0:
            print(f"[{time.strftime('%H:%M:%S')}] {link}, {name}: "
                  f"{median * 1e3:.1f} ms, first {seconds[0]:.0f} s, loss "
                  f"{losses[0]:.4f} -> {losses[-1]:.4f}", flush=True)
    if args.rank == 0:
        (args.log / f"{_label(name, args.links)}.json").write_text(
            json.dumps(results))
    if args.processes > 1:
        jax.distributed.shutdown()


def _stalled_seconds(path: pathlib.Path, processes: int, ranks: int) -> float:
    """How long a device stood still in waits in a traced step: the mean of all
    devices."""
    paths = [path] if processes == 1 else [
        path.with_suffix(f".{process}{path.suffix}")
        for process in range(processes)]
    usec = sum(event["dur"] for path in paths
               for event in json.loads(path.read_text())["traceEvents"]
               if event.get("cat") == "stall")
    return usec * 1e-6 / ranks


def _on_device(trainer, sequences: int):
    """Functions that draw the initial state and a batch of `sequences`, of all
    devices, where they live."""
    import jax
    import jax.numpy as jnp
    config = trainer.config
    abstract = trainer.abstract_state()
    tokens = trainer.abstract_batch(sequences)

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
            jax.random.key(1), tokens.shape, 0, config.vocab, tokens.dtype)

    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    return (jax.jit(init, out_shardings=shardings),
            jax.jit(batch, out_shardings=tokens.sharding))


# Tables and plot -------------------------------------------------------------


def _median(run: dict) -> float:
    return statistics.median(run["seconds"])


def expose(manifest, runs: dict):
    """Adds to the runs of a link how long each step's communication is exposed,
    in seconds, where that can be told, and whether it is an estimate."""
    compute = None
    if RUNTIME in runs and manifest["variants"][RUNTIME]["is_traced"]:
        run = runs[RUNTIME]
        compute = _median(run) - statistics.median(run["stalls"])
    for name, run in runs.items():
        if manifest["variants"][name]["is_traced"]:
            run["exposed"] = statistics.median(run["stalls"])
            run["is_estimate"] = False
        elif compute is not None:
            run["exposed"] = max(0.0, _median(run) - compute)
            run["is_estimate"] = True


def print_tables(args, manifest, results):
    of = manifest["of"]
    gpu = _gpu() if of["platform"] == "cuda" else "CPU"
    print(f"\n{manifest['parameters'] / 1e9:.2f} B parameters, "
          f"{of['sequences']} x {of['config']['context']} tokens per device; "
          f"{gpu}; JAX {of['jax']}; steps exported at {of['commit']}; median "
          f"of {args.steps} steps after {args.warm_up}"
          f"{f', in {args.rounds} rounds' if args.rounds > 1 else ''}\n")
    header = ["step", "reported", "measured"]
    for link in results:
        header += [link, "speed-up"]
        header += ["busy"] if links_of.rate(link) else []
        header += ["exposed"]
    rows = [header + ["peak memory", f"loss after {args.warm_up + args.steps}",
                      "largest difference"]]
    baseline = None
    for name, variant in manifest["variants"].items():
        runs = [result[name] for result in results.values() if name in result]
        if not runs:
            continue
        between = [result[name] for link, result in results.items()
                   if link != "nvlink" and name in result]
        reported = ranks_of(of["config"]) * variant["bytes"]["node"]
        row = [name, f"{reported / 1e9:.2f} GB",
               f"{between[0]['bytes'] / 1e9:.2f} GB" if between else "-"]
        for link, result in results.items():
            row += _cells(link, result, name)
        losses = runs[0]["losses"]
        baseline = baseline or losses
        difference = max(abs(a - b) for a, b in zip(losses, baseline))
        rows.append(row + [f"{runs[0]['peak'] / 2**30:.2f} GiB",
                           f"{losses[-1]:.4f}", f"{difference:.4f}"])
    _print_table(rows)
    if any(run.get("is_estimate") for result in results.values()
           for run in result.values()):
        print(f"\n~: what the step takes longer than '{RUNTIME}' without what "
              f"that exposes in a trace.")

    kinds = ["start", "wait", "queue"]
    rows = [["host time", *kinds]]
    for name in manifest["variants"]:
        times = [result[name]["host_times"] for result in results.values()
                 if result.get(name, {}).get("host_times")]
        if times:
            rows.append([name, *(
                f"{max(time[kind] for time in times):.1f} usec"
                if kind in times[0] else "-" for kind in kinds)])
    if len(rows) > 1:
        print("\nMedian time that a collective's start and wait take of XLA's "
              "threads, and queueing it\nof the rank's own, largest of all "
              "links:\n")
        _print_table(rows)


def _cells(link: str, runs: dict, name: str) -> list[str]:
    """What the table says of a step on a link."""
    count = 4 if links_of.rate(link) else 3
    if name not in runs:
        return ["-"] * count
    run = runs[name]
    median = _median(run)
    cells = [f"{median * 1e3:.1f} ms", _speed_up(runs, name) or "-"]
    if links_of.rate(link):
        cells.append(f"{run['bytes'] * 8 / links_of.rate(link) / median:.0%}")
    if "exposed" in run:
        cells.append(f"{'~' * run['is_estimate']}{run['exposed'] * 1e3:.1f} ms "
                     f"({run['exposed'] / median:.0%})")
    return cells + ["-"] * (count - len(cells))


def _speed_up(runs: dict, name: str) -> str:
    """Against FSDP, empty where that was not run; of several rounds also the
    smallest and the largest."""
    for baseline in (JITTED, EXPORTED):
        if baseline not in runs:
            continue
        text = f"{_median(runs[baseline]) / _median(runs[name]):.2f}x"
        ratios = [statistics.median(base) / statistics.median(own) for base, own
                  in zip(runs[baseline]["rounds"], runs[name]["rounds"])]
        if len(ratios) > 1:
            text += f" ({min(ratios):.2f}x to {max(ratios):.2f}x)"
        return text
    return ""


def _print_table(rows: list[list[str]]):
    print("\n".join(
        ["| " + " | ".join(row) + " |" for row in rows[:1]] +
        ["| --- " + "| ---: " * (len(rows[0]) - 1) + "|"] +
        ["| " + " | ".join(row) + " |" for row in rows[1:]]))


def draw(args, manifest, results):
    """A row of bars for each link: the median of each step, of it what is
    exposed, and its speed-up."""
    try:
        import matplotlib
    except ImportError:
        print("\nplot: none; expected matplotlib, but it is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import patches, pyplot
    names = [name for name in manifest["variants"]
             if any(name in runs for runs in results.values())]
    figure, axes = pyplot.subplots(
        1, len(results), sharey=True, squeeze=False, layout="constrained",
        figsize=(2.5 + 3 * len(results), 1.6 + 0.4 * len(names)))
    for axis, (link, runs) in zip(axes[0], results.items()):
        for place, name in enumerate(names):
            if name not in runs:
                continue
            total = _median(runs[name]) * 1e3
            exposed = min(total, runs[name].get("exposed", 0) * 1e3)
            color = "#888888" if name in (JITTED, EXPORTED) else "#3572b0"
            axis.barh(place, total - exposed, color=color)
            axis.barh(place, exposed, left=total - exposed, color=color,
                      alpha=0.45, linewidth=0,
                      hatch="" if runs[name].get("is_estimate") else "////")
            axis.text(total, place, f" {_speed_up(runs, name)}",
                      va="center")
        axis.set_title(link)
        axis.set_xlabel("ms per step")
        axis.margins(x=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_yticks(range(len(names)), names)
    axes[0][0].invert_yaxis()
    light = {"facecolor": "#3572b0", "alpha": 0.45, "linewidth": 0}
    figure.legend(
        handles=[patches.Patch(**light, hatch="////",
                               label="exposed communication, traced"),
                 patches.Patch(**light, label="the same, estimated")],
        loc="outside lower center", ncols=2, frameon=False)
    path = args.plot or args.log / "two-node.png"
    figure.savefig(path, dpi=150)
    print(f"\nplot: {path}")


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
