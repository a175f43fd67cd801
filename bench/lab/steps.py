# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The example GPT's training step as FSDP and as ZeRO++, exported to a folder.

The folder has a manifest, from which those who run or compile the steps rebuild
the model, and a bundle per step.
"""

import dataclasses
import functools
import json
import math
import pathlib
import tempfile
import time
from typing import Any

from lab import links, planned
from lab.tables import describe_commit

#: How weights lie -> the axes over which they are replicated. With TP, heads and
#: hidden units are split over the GPUs of a node, and weights partitioned between
#: the nodes. With MoE, each layer has experts, which lie on all devices.
REPLICATED = {"FSDP": (), "HSDP": ("node",), "DDP": ("node", "gpu"),
              "ZeRO-1": ("node", "gpu"), "ZeRO-2": ("node", "gpu"), "TP": (),
              "MoE": ()}
EXPERTS = 8
#: Those in which each device updates a slice of the weights.
SLICED = ("ZeRO-1", "ZeRO-2")
#: As jax.jit runs it, and after the same export as the rewritten steps.
JITTED, EXPORTED = "FSDP", "FSDP, exported"
#: These of all kinds of steps.
BASELINES = tuple(name for kind in REPLICATED
                  for name in (kind, f"{kind}, exported"))
#: A copy of the weights within a node, and nothing else.
KEPT = "secondary (hpZ)"
#: All techniques, with the runtime; with nodes of one GPU that keep whole weights
#: for the backward pass; and with weights as differences.
RUNTIME = "all (b)"
WHOLE = "0.77 M (b)"
DIFFERENCES = "0.52 M (b)"

_OFF = {"weights": "none", "gradients": "none", "secondary": "none"}
_JIT = {"collectives": "xla"}
#: The axis of the example model over which heads and hidden units are split.
TENSOR = "tensor"


def _variants(tier: str, per_node: int, gathers_moments: bool) -> dict[str, dict]:
    """The rewritten steps: name -> options of zpp.rewrite, and of the example model
    who makes its collectives, by default the step itself. `tier` is that within a
    node. Without the option `links` steps are made for slow links between nodes;
    with it, for NVLink."""
    # With TP the devices of a node have different weights, each keeps its own.
    secondary = "1" if tier == TENSOR else tier
    on = {"weights": "i8", "gradients": "i8:i4", "secondary": secondary}
    # The example splits nothing over tensor where XLA makes the collectives.
    jit = {} if tier == TENSOR else {"jit (b)": on | _JIT}
    return {
        "all, portable (a)": on | {"target": "portable"},
        "weights i8 (qwZ)": _OFF | {"weights": "i8"},
        KEPT: _OFF | {"secondary": secondary},
        "gradients i8:i4 (qgZ)": _OFF | {"gradients": "i8:i4"},
        RUNTIME: on,
    } | jit | {
        "all (b), links": on | _nvlink(tier),
    } | ({WHOLE: on | {"secondary": 1}} if per_node == 1 else {}) | {
        DIFFERENCES: on | {"weights": "i4:delta"},
    } | ({f"{name}, moments i8": on | {"weights": weights, "moments": "i8"}
          for name, weights in ((RUNTIME, "i8"), (DIFFERENCES, "i4:delta"))}
         if gathers_moments else {})


def _expert_variants() -> dict[str, dict]:
    """The same with experts: rows of tokens are most of what crosses the links."""
    on = {"weights": "i8", "gradients": "i8:i4", "secondary": "gpu"}
    return {
        RUNTIME: on,
        "exchanges i8 (b)": _OFF | {"exchanges": "i8"},
        "exchanges i8, portable (a)": _OFF | {"exchanges": "i8", "target": "portable"},
        f"{RUNTIME}, exchanges i8": on | {"exchanges": "i8"},
    }


def _replicated_variants(kind: str) -> dict[str, dict]:
    """The same where weights are replicated between nodes: gradients are what
    crosses the slow links, and their formats what there is to choose. Where
    devices update slices, the updated weights cross, too."""
    on = {"weights": "i8", "gradients": "i8:i4", "secondary": "none"}
    if kind in SLICED:
        return {RUNTIME: on} | {f"updated {form} (b)": on | {"updated": form}
                                for form in ("i8", "i4")}
    return {
        "all, portable (a)": on | {"target": "portable"},
        "gradients i8:i4, back i4": _OFF | {"gradients": "i8:i4",
                                            "reduced": "i4"},
        RUNTIME: on,
        "jit (b)": on | _JIT,
        "all (b), links": on | _nvlink("gpu"),
    }


def _once(kind: str, tier: str, gpus_per_node: int, options: dict) -> dict:
    """The options with which a step of micro-batches crosses the slow links once
    per update, beside its other ones. Where weights are replicated, the step does
    so itself, but not where XLA makes the collectives."""
    if REPLICATED[kind]:
        return {"accumulate": tier} if "collectives" in options else {}
    # Nodes of one GPU keep whole weights for that.
    return {"accumulate": tier} | (
        {"secondary": "1"} if gpus_per_node == 1 else {})


def _nvlink(tier: str) -> dict:
    return {"links": planned.speeds_of("nvlink", tier, 1)}


#: The largest part of a step's bytes that XLA may send if the runtime's trace
#: shall still show everything that the step exposes.
_LARGEST_PART_LEFT = 0.01


@dataclasses.dataclass
class Variant:
    """One of the steps."""

    #: Its bundle in the folder; None for `JITTED`, which needs none.
    path: str | None
    #: Bytes that a device sends per step over each tier, as zpp's report counts.
    bytes: dict[str, int]
    #: The links that it is made for; None: all.
    links: list[str] | None
    #: Does the runtime communicate, rather than XLA?
    is_runtime: bool
    #: Does the runtime's trace show all communication?
    is_traced: bool
    #: Predicted times by link, in ms; see `describe`.
    planned: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Steps:
    """The exported steps in a folder, and what they were made from."""

    folder: pathlib.Path
    #: The parameters of the steps, as JSON; see `describe`.
    of: dict
    #: Elements of all weights.
    parameters: int
    variants: dict[str, Variant]

    @property
    def mesh(self) -> list[tuple[str, int]]:
        return list(map(tuple, self.of["config"]["mesh"]))

    @property
    def tiers(self) -> str:
        """The mesh as zpp's options have it."""
        return ",".join(f"{name}:{size}" for name, size in self.mesh)

    @property
    def ranks(self) -> int:
        return math.prod(size for _, size in self.mesh)

    @property
    def sequences(self) -> int:
        """Sequences of a batch, all devices together."""
        return self.ranks * self.of["sequences"]

    def trainer(self, **changes):
        """The example model that the steps train, on this process's devices."""
        import gpt
        return gpt.Trainer(gpt.Config(
            **self.of["config"] | {
                "mesh": tuple(self.mesh),
                "replicated": tuple(self.of["config"]["replicated"])}
            | changes))

    def chosen(self, words: list[str] | None) -> dict[str, Variant]:
        """The variants whose name has one of these words; None: all."""
        return {name: variant for name, variant in self.variants.items()
                if words is None or any(word in name for word in words)}


def read(folder: pathlib.Path) -> Steps:
    manifest = json.loads((folder / "manifest.json").read_text())
    variants = {name: Variant(**variant)
                for name, variant in manifest.pop("variants").items()}
    return Steps(folder, **manifest, variants=variants)


def _write(steps: Steps):
    manifest = dataclasses.asdict(steps)
    folder = manifest.pop("folder")
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


#: The example model in several sizes of a layer, from 0.1 to 0.4 GB, and smaller;
#: and with how many sequences per device it is trained.
MODELS = {
    "0.88 B": {"layers": 16, "width": 2048, "heads": 16, "sequences": 1},
    "wide": {"layers": 6, "width": 4096, "heads": 32, "sequences": 4},
    "0.35 B": {"layers": 28, "width": 1024, "heads": 16, "sequences": 8},
    "0.09 B": {"layers": 12, "width": 768, "heads": 12, "sequences": 16},
}


def describe(model: str, gpus_per_node: int, platform: str, *,
             layers: int | None = None, sequences: int | None = None,
             scan: bool = False, tiny: bool = False, kind: str = "FSDP",
             micro_batches: int = 1, words: list[str] | None = None,
             plan: dict | None = None, **changes) -> dict:
    """The parameters of exported steps: the model's configuration, for two nodes,
    sequences per device and micro-batch, platform, and versions. As JSON reads it
    back. `words` chooses steps, as in `Steps.chosen`; `plan` are "links" for which
    times are predicted, with the "device" and the "scale" of its compute; `changes`
    are other values of the configuration."""
    import gpt
    import jax
    sizes: dict[str, Any] = MODELS[model] | {name: value for name, value in {
        "layers": layers, "sequences": sequences}.items() if value is not None}
    sequences = sizes.pop("sequences") * micro_batches
    tier = TENSOR if kind == "TP" else "gpu"
    config = gpt.Config(
        **sizes, vocab=32000, context=2048,
        mesh=(("node", links.NODES), (tier, gpus_per_node)),
        learning_rate=1e-4, replicated=REPLICATED[kind], scan=scan,
        slices=kind if kind in SLICED else "", accumulate=micro_batches,
        experts=EXPERTS if kind == "MoE" else 0)
    if tiny:
        config = dataclasses.replace(
            config, layers=2, width=256, heads=4, vocab=512, context=64)
    config = dataclasses.replace(config, **changes)
    variants = (_expert_variants() if kind == "MoE" else
                _replicated_variants(kind) if REPLICATED[kind] else
                _variants(tier, gpus_per_node, config.optimizer == "muon"))
    if micro_batches > 1:
        variants = {name: options | _once(kind, tier, gpus_per_node, options)
                    for name, options in variants.items()}
    return json.loads(json.dumps({
        "config": dataclasses.asdict(config), "sequences": sequences,
        "platform": platform, "kind": kind, "plan": plan, "variants": {
            name: options for name, options in variants.items()
            if words is None or any(word in name for word in words)},
        "jax": jax.__version__, "commit": describe_commit() or "unknown"}))


def export_once(of: dict, folder: pathlib.Path) -> Steps:
    """Exports, unless the folder already has steps with the same description.
    Changes that are not committed may change the steps, so it exports then."""
    if (folder / "manifest.json").exists() and not of["commit"].endswith(
            ("dirty", "unknown")):
        steps = read(folder)
        if steps.of == of:
            print(f"using the steps exported before: {folder}", flush=True)
            return steps
    return export(of, folder)


def _plan(steps: Steps, step, options: dict | None) -> dict[str, float]:
    """Predicted times of an exported step by link, rewritten with options or as it
    is. A rewritten step that can be run does not say what it sends any more."""
    plan = steps.of["plan"]
    if plan is None:
        return {}
    tier, per_node = steps.mesh[-1]
    with tempfile.TemporaryDirectory(prefix="zpp-") as folder:
        path = pathlib.Path(folder, "step.mlir")
        path.write_text(step.text())
        if options:
            # zpp-opt has one target for all devices of the runtime.
            target = "portable" if options["target"] == "portable" else "cuda"
            words = " ".join(f"{name}={value}" for name, value in (
                options | {"target": target}).items())
            path, written = path.with_name("rewritten.mlir"), path
            planned.run_compiler([written, f"--zeropp={words}", "-o", path])
        return {link: planned.milliseconds(
                    path, steps.tiers, plan["device"], speeds, plan["scale"])
                for link in plan["links"]
                if (speeds := planned.speeds_of(link, tier, per_node))}


def _is_traced(rewritten) -> bool:
    """Whether the runtime sends most of what a step sends."""
    left = sum(sum(entry["after"].values()) for entry in rewritten.left_alone)
    return rewritten.step.uses_runtime and left <= _LARGEST_PART_LEFT * sum(
        rewritten.report["total"]["after"].values())


def export(of: dict, folder: pathlib.Path) -> Steps:
    """Writes all variants of the step that `of` describes; needs zpp-opt."""
    import jax
    steps = Steps(folder, of, 0, {})
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", steps.ranks)
    import zpp

    @functools.cache
    def original(collectives: str) -> zpp.Step:
        trainer = steps.trainer(collectives=collectives)
        return zpp.export(
            jax.jit(trainer.step, donate_argnums=0), trainer.abstract_state(),
            trainer.abstract_batch(steps.sequences),
            platforms=[of["platform"]])

    steps.parameters = steps.trainer().model_elements()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").unlink(missing_ok=True)

    def add(name, step, **about):
        path = f"step{len(steps.variants)}.zpp"
        variant = Variant(path=path, **about)
        zpp.save(step, folder / path)
        steps.variants[name] = variant
        print(f"{name}: bytes per device and step {variant.bytes}", flush=True)

    written = original("step")
    kept = zpp.rewrite(written, mesh=steps.tiers, target="portable", **_OFF)
    add(f"{of['kind']}, exported", written, planned=_plan(steps, written, None),
        bytes=kept.report["total"]["before"], links=None, is_runtime=False,
        is_traced=False)
    for name, options in of["variants"].items():
        start = time.perf_counter()
        options = {"mesh": steps.tiers, "target": of["platform"]} | options
        collectives = options.pop("collectives", "step")
        step = original(collectives)
        rewritten = zpp.rewrite(step, **options)
        total = rewritten.report["total"]
        if collectives == "xla":
            add("jit, exported", step, bytes=total["before"], links=None,
                is_runtime=False, is_traced=False)
        # The compiler alone does not partition what is left to XLA.
        add(name, rewritten, bytes=total["after"], planned=_plan(
                steps, step, options) if collectives == "step" else {},
            links=["nvlink"] if "links" in options else None,
            is_runtime=rewritten.step.uses_runtime, is_traced=_is_traced(rewritten))
        print(f"  rewritten in {time.perf_counter() - start:.1f} s; left "
              f"alone: {len(rewritten.left_alone)}", flush=True)
    # What is not exported needs no bundle.
    steps.variants = {
        of["kind"]: dataclasses.replace(
            steps.variants[f"{of['kind']}, exported"], path=None)
    } | steps.variants
    # The manifest comes last: a folder without it has no steps.
    _write(steps)
    return steps
