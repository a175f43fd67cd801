# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training code of other people, with `zpp.jit` around its step.

    python bench/trainers.py [--venvs DIR] [--only NAME ...] [--write]

Each trainer is that of a package, as it comes from PyPI, with a tiny model on 8
CPU devices. It runs in a virtual environment of its own, which is made in
--venvs (3 GB for all of them); zpp is that of this source tree. The step is run
as the package jits it, and then with zpp.jit around that, from the same weights
on the same batches.

The table has the loss of the last step of both, and what a device sends between
two nodes in a step, in units of M: all gathered weights once. --write puts it
into docs/data/training-code.md.
"""

import argparse
import dataclasses
import datetime
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import lab
from lab.programs import AXIS, Record, Sizes, all_devices, cross_entropy, keras, nnx
from lab.programs import run_steps, sharding, tokens
from lab.tables import describe_commit, write_between

STEPS = 8
TIERS = "node:2,gpu:4"
JAX = ["jax==0.11.2", "flatbuffers"]


@dataclasses.dataclass(frozen=True)
class Trainer:
    #: How the table names it.
    title: str
    #: Packages; the first one is that of which the table says the version.
    packages: list[str]
    #: Given what is to be done with the jitted step, trains and returns the
    #: losses.
    run: Callable[[Callable], list[float]]
    #: Options of `zpp.jit` beside the mesh.
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def small(train: Callable, learning_rate: float = 1e-2, dropout: float = 0.0):
    """A program that `lab.programs` has, on eight devices."""
    def run(wrap) -> list[float]:
        record = Record()
        train(Sizes(layers=4, width=128, heads=4, vocabulary=512, length=64, sequences=16,
                    steps=STEPS, learning_rate=learning_rate, dropout=dropout),
              wrap, record)
        return record.losses

    return run


# MaxText ---------------------------------------------------------------------


def maxtext(*changed: str):
    def run(wrap) -> list[float]:
        from maxtext.configs import pyconfig
        from maxtext.trainers.pre_train import train
        from maxtext.utils import train_utils

        folder = tempfile.mkdtemp()
        base = pathlib.Path(train.__file__).parents[2] / "configs" / "base.yml"
        config = pyconfig.initialize([
            "train", str(base), f"base_output_directory={folder}",
            "run_name=tiny", "dataset_type=synthetic", f"steps={STEPS}",
            "enable_checkpointing=false", "enable_goodput_recording=false",
            "hardware=cpu", "attention=dot_product",
            "skip_jax_distributed_system=true",
            "base_emb_dim=128", "base_mlp_dim=256", "base_num_query_heads=4",
            "base_num_kv_heads=4", "head_dim=32", "base_num_decoder_layers=4",
            "vocab_size=512", "max_target_length=32",
            "per_device_batch_size=1", "ici_fsdp_parallelism=8",
            "learning_rate=1e-2", *changed])
        losses = []
        original = train_utils.jit_train_step

        class Recorder:
            """The jitted step, which notes its losses."""

            def __init__(self, step):
                self.step = step

            def __call__(self, *args):
                state, metrics = self.step(*args)
                losses.append(float(metrics["scalar"]["learning/loss"]))
                return state, metrics

            def lower(self, *args):
                return self.step.lower(*args)

        train_utils.jit_train_step = lambda *args, **kwargs: Recorder(
            wrap(original(*args, **kwargs)))
        try:
            train.train_loop(config, None)
        finally:
            train_utils.jit_train_step = original
        return losses

    return run


# marin-levanter --------------------------------------------------------------


def levanter(**changed):
    def run(wrap) -> list[float]:
        import haliax as hax
        import jax
        import jax.numpy as jnp
        import jmp
        import optax
        from levanter.data.dataset import ListAsyncDataset
        from levanter.models.llama import LlamaConfig
        from levanter.models.lm_model import LmExample
        from levanter.tracker import NoopConfig
        from levanter.trainer import Trainer as LevanterTrainer
        from levanter.trainer import TrainerConfig

        model = LlamaConfig(max_seq_len=64, hidden_dim=128,
                            intermediate_dim=256, num_layers=4, num_heads=4,
                            num_kv_heads=4, **changed)
        config = TrainerConfig(
            id="tiny", tracker=NoopConfig(), train_batch_size=16,
            log_dir=pathlib.Path(tempfile.mkdtemp()),
            num_train_steps=STEPS, require_accelerator=False,
            log_jaxprs=False, log_xla_hlo=False, load_checkpoint=False,
            mp=jmp.get_policy("p=f32,c=bfloat16"))
        config.initialize()
        Vocab = hax.Axis("vocab", 512)

        def loss(model, example, *, key=None):
            return model.compute_next_token_loss(example, key=key)

        with LevanterTrainer(config, optax.adamw(1e-2), loss,
                             add_default_hooks=False) as trainer:
            state = trainer.initial_state(
                jax.random.PRNGKey(1), model_init=lambda: model.build(
                    Vocab, key=jax.random.PRNGKey(0)))
            for name in ("_jit_train_step_fn", "_jit_train_step_fn_no_hook"):
                trainer.__dict__[name] = wrap(getattr(trainer, name))
            examples = [LmExample.causal(hax.named(jnp.asarray(row),
                                                   "position"))
                        for step in range(STEPS)
                        for row in tokens(step, (16, 64), 512)]
            losses = []
            for example in trainer.data_loader(ListAsyncDataset(examples)):
                info = trainer.train_step(state, example)
                state = info.state
                losses.append(float(info.loss))
                if len(losses) == STEPS:
                    break
        return losses

    return run


# Equinox ---------------------------------------------------------------------


def equinox_model(vocabulary: int, width: int, place: Callable):
    """A transformer of Equinox' layers."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    def linear(weight, x):
        return place(jnp.einsum("btd,fd->btf", x,
                                weight.weight.astype(x.dtype)))

    class Block(eqx.Module):
        norm1: eqx.nn.RMSNorm
        norm2: eqx.nn.RMSNorm
        qkv: eqx.nn.Linear
        out: eqx.nn.Linear
        up: eqx.nn.Linear
        down: eqx.nn.Linear

        def __init__(self, key):
            self.norm1, self.norm2 = (eqx.nn.RMSNorm(width, use_bias=False)
                                      for _ in range(2))
            self.qkv, self.out, self.up, self.down = (
                eqx.nn.Linear(*sizes, use_bias=False, key=each) for sizes, each in zip(
                    ((width, 3 * width), (width, width), (width, 4 * width),
                     (4 * width, width)), jax.random.split(key, 4)))

        def __call__(self, x):
            def normed(norm, x):
                return place(jax.vmap(jax.vmap(norm))(x).astype(x.dtype))

            q, k, v = jnp.split(linear(self.qkv, normed(self.norm1, x)), 3, -1)
            heads = [a.reshape(*a.shape[:2], 4, -1) for a in (q, k, v)]
            mixed = jax.nn.dot_product_attention(*heads, is_causal=True)
            x = x + linear(self.out, place(mixed.reshape(x.shape)))
            hidden = place(jax.nn.gelu(linear(self.up, normed(self.norm2, x))))
            return place(x + linear(self.down, hidden))

    class Model(eqx.Module):
        embed: eqx.nn.Embedding
        blocks: list
        head: eqx.nn.Linear

        def __init__(self, key):
            keys = jax.random.split(key, 6)
            self.embed = eqx.nn.Embedding(vocabulary, width, key=keys[0])
            self.blocks = [Block(key) for key in keys[1:5]]
            self.head = eqx.nn.Linear(width, vocabulary, use_bias=False,
                                      key=keys[5])

        def __call__(self, x):
            x = place(self.embed.weight.astype(jnp.bfloat16)[x])
            for block in self.blocks:
                x = eqx.filter_checkpoint(block)(x)
            return linear(self.head, x)

    return Model(jax.random.key(0))


def equinox(sizes: Sizes, wrap: Callable, record: Record):
    """`eqx.filter_jit`, which donates the state."""
    import equinox as eqx
    import jax
    import optax
    on = all_devices()

    def put(leaf):
        if not eqx.is_array(leaf):
            return leaf
        return jax.device_put(leaf, sharding(on, AXIS) if leaf.ndim > 1
                              else sharding(on))

    transform = optax.adamw(sizes.learning_rate)
    model = jax.tree.map(put, equinox_model(
        sizes.vocabulary, sizes.width,
        lambda x: jax.lax.with_sharding_constraint(x, sharding(on, AXIS))))
    state = jax.tree.map(put, transform.init(eqx.filter(model, eqx.is_array)))

    @eqx.filter_jit(donate="all-except-first")
    def train_step(batch, model, state):
        loss, gradients = eqx.filter_value_and_grad(
            lambda model: cross_entropy(model(batch[:, :-1]), batch))(model)
        updates, state = transform.update(gradients, state, model)
        return eqx.apply_updates(model, updates), state, loss

    step = wrap(train_step)
    run_steps(sizes, on, lambda model, state, batch: step(batch, model, state),
              (model, state), record)


# A custom call ---------------------------------------------------------------


def gelu_kernel(x):
    """A kernel of Pallas, interpreted."""
    import jax
    from jax.experimental import pallas

    def kernel(x, result):
        result[...] = jax.nn.gelu(x[...])

    @jax.custom_jvp
    def gelu(x):
        return pallas.pallas_call(
            kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            interpret=True)(x)

    gelu.defjvp(lambda primals, tangents: (
        gelu(*primals), jax.jvp(jax.nn.gelu, primals, tangents)[1]))
    return gelu(x)


def custom_call(wrap) -> list[float]:
    """A model with a Pallas kernel and a Cholesky decomposition of each sample
    (LAPACK)."""
    import jax
    import jax.numpy as jnp
    on, width = all_devices(), 128

    def place(x):
        return jax.lax.with_sharding_constraint(x, sharding(on, AXIS))

    def normal(key, *shape):
        return jax.device_put(
            jax.random.normal(key, shape) * shape[0]**-0.5,
            sharding(on, AXIS))

    keys = jax.random.split(jax.random.key(0), 9)
    weights = {"layers": [normal(key, width, width) for key in keys[:8]],
               "narrow": normal(keys[8], width, 16)}

    def product(x, weight):
        return place(x.astype(jnp.bfloat16) @ weight.astype(jnp.bfloat16))

    def loss_of(weights, x):
        target = jnp.roll(x, 1, -1)
        for weight in weights["layers"]:
            x = jax.checkpoint(lambda weight, x: place(
                x + gelu_kernel(product(x, weight)).astype(x.dtype)))(weight, x)
        narrow = product(x, weights["narrow"]).astype(jnp.float32)
        square = place(jnp.einsum("bti,btj->bij", narrow, narrow) +
                       jnp.eye(16))
        factor = place(jnp.linalg.cholesky(square))
        volume = jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)).mean()
        return ((x - target) ** 2).mean() - 0.01 * volume

    @jax.jit
    def step(weights, x):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x)
        return jax.tree.map(lambda weight, gradient: place(
            weight - 0.03 * gradient), weights, gradients), loss

    step, losses = wrap(step), []
    for number in range(STEPS):
        x = jax.device_put(jax.random.normal(
            jax.random.key(number), (16, 32, width)), sharding(on, AXIS))
        weights, loss = step(weights, x)
        losses.append(float(loss))
    return losses


# -----------------------------------------------------------------------------

_MAXTEXT = ["maxtext==0.2.5", *JAX, "flax", "optax", "orbax-checkpoint",
            "pathwaysutils", "aqtp", "qwix", "grain", "ml-goodput-measurement",
            "tensorboardx", "omegaconf", "jaxtyping", "transformers", "datasets",
            "sentencepiece", "pydantic", "chex", "drjax", "ml-collections",
            "tiktoken", "jsonlines", "jinja2", "tokamax", "pillow", "sympy"]
_LEVANTER = ["marin-levanter", *JAX]
_SMALL = ["optax", *JAX]

TRAINERS = {
    "maxtext": Trainer("MaxText, scanned layers", _MAXTEXT, maxtext()),
    "maxtext-unrolled": Trainer("MaxText, unrolled", _MAXTEXT, maxtext(
        "scan_layers=false")),
    "maxtext-microbatches": Trainer(
        "MaxText, two microbatches, dropout", _MAXTEXT, maxtext(
            "gradient_accumulation_steps=2", "dropout_rate=0.1")),
    "maxtext-once": Trainer("The same, `accumulate=gpu`", _MAXTEXT, maxtext(
        "gradient_accumulation_steps=2", "dropout_rate=0.1"),
                            {"accumulate": "gpu"}),
    "maxtext-explicit": Trainer("MaxText, explicit axes", _MAXTEXT, maxtext(
        "shard_mode=explicit")),
    "levanter": Trainer("marin-levanter, Llama", _LEVANTER, levanter()),
    "levanter-no-remat": Trainer("marin-levanter, without remat", _LEVANTER,
                                 levanter(gradient_checkpointing=False)),
    "nnx": Trainer("Flax NNX, `nnx.jit`, dropout", ["flax", *_SMALL],
                   small(nnx, dropout=0.1)),
    "equinox": Trainer("Equinox, `filter_jit`", ["equinox", *_SMALL],
                       small(equinox)),
    "keras": Trainer("Keras 3, `ModelParallel`, `fit`", ["keras", *_SMALL],
                     small(keras)),
    "custom-call": Trainer("Pallas (interpreted) and LAPACK", JAX, custom_call),
}


def run_here(name: str) -> dict:
    """Both runs of a trainer, in this process."""
    import jax
    import lab  # noqa: F401 (finds zpp)
    import zpp
    steps = []

    def wrap(jitted):
        steps.append(zpp.jit(jitted, mesh=TIERS, links="none", **trainer.options))
        return steps[-1]

    trainer = TRAINERS[name]
    original, rewritten = trainer.run(lambda jitted: jitted), trainer.run(wrap)
    (step,) = (step for step in steps if has_run(step))
    # Into the log.
    for entry in step.report()["collectives"]:
        print(entry["kind"], entry["role"], entry["phase"], entry["group"],
              entry["before"], entry["after"], entry["location"],
              entry["reason"], sep="; ")
    total = step.report()["total"]
    print(total)
    return {"jax": jax.__version__, "original": original,
            "rewritten": rewritten,
            # Without weights there is no such unit.
            "before": total["before_in_M"].get("node", math.nan),
            "after": total["after_in_M"].get("node", math.nan)}


def has_run(step) -> bool:
    try:
        step.report()
    except ValueError:
        return False
    return True


def find_python(venvs: pathlib.Path, trainer: Trainer) -> pathlib.Path:
    """The Python of a virtual environment with the packages of `trainer`."""
    folder = venvs / re.split("[=<>]", trainer.packages[0])[0]
    python, stamp = folder / "bin" / "python", folder / "packages.txt"
    wanted = "\n".join(trainer.packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {trainer.packages[0]} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet",
                        *trainer.packages], check=True)
        stamp.write_text(wanted)
    return python


def version_of(python: pathlib.Path, trainer: Trainer) -> str:
    package = re.split("[=<>]", trainer.packages[0])[0]
    return subprocess.run(
        [python, "-c", f"import importlib.metadata as m; print(m.version("
         f"'{package}'))"], check=True, text=True,
        stdout=subprocess.PIPE).stdout.strip()


def run_apart(name: str, python: pathlib.Path, log: pathlib.Path
              ) -> dict | str:
    """The result of a trainer, or why there is none."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, log.open("w") as output:
        result = pathlib.Path(folder) / "result.json"
        done = subprocess.run(
            [python, __file__, "--run", name, "--result", result], cwd=folder,
            env=os.environ | {"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax",
                              "JAX_NUM_CPU_DEVICES": "8"},
            stdout=output, stderr=subprocess.STDOUT)
        if done.returncode:
            errors = re.findall(r"^\w[\w.]*(?:Error|Exception): .*",
                                log.read_text(), re.MULTILINE)
            return f"{errors[-1] if errors else 'fails'} ({log})"
        return json.loads(result.read_text())


def row(title: str, version: str, result: dict | str) -> str:
    if isinstance(result, str):
        return f"| {title} | {version} | {result} | | | |"
    first, last = result["original"][-1], result["rewritten"][-1]
    return (f"| {title} | {version} | {first:.4f} | {last:.4f} | "
            f"{result['before']:.2f} M | {result['after']:.2f} M |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--venvs", type=pathlib.Path, metavar="DIR",
                        default=".venv-trainers")
    parser.add_argument("--only", nargs="+", choices=TRAINERS, metavar="NAME",
                        default=list(TRAINERS))
    parser.add_argument("--write", action="store_true",
                        help="put the table into docs/data/training-code.md")
    parser.add_argument("--run", choices=TRAINERS, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        arguments.result.write_text(json.dumps(run_here(arguments.run)))
        return
    lines, versions = [], set()
    venvs = arguments.venvs.resolve()
    for name in arguments.only:
        trainer: Trainer = TRAINERS[name]
        python = find_python(venvs, trainer)
        result = run_apart(name, python, venvs / "logs" / f"{name}.txt")
        if isinstance(result, dict):
            versions.add(result["jax"])
        lines.append(row(trainer.title, version_of(python, trainer), result))
        print(lines[-1], flush=True)
    table = "\n".join([
        "| trainer | version | loss | with zpp.jit | between nodes | with "
        "zpp.jit |", "| --- | --- | --- | --- | --- | --- |", *lines, "",
        f"{datetime.date.today()}, {describe_commit() or 'a copy without git'}, JAX "
        f"{', '.join(sorted(versions))}, step {STEPS}, bytes of one step "
        "between two nodes."])
    if arguments.write:
        write_between(lab.ROOT / "docs" / "data" / "training-code.md", "trainers", table)


if __name__ == "__main__":
    main()
