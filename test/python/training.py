# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Short trainings of the example model, as written and as ZeRO++."""

import contextlib
import dataclasses
import functools
import logging

import gpt
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

BATCH = 16
STEPS = 4
NODES = "node:2,gpu:4"
#: The same as a mesh of devices.
AXES = ("node", "gpu")
MESH = jax.make_mesh((2, 4), AXES,
                     axis_types=(jax.sharding.AxisType.Auto,) * 2)
#: Tiny, but with every kind of weight: matrices that shrink on the wire, gains
#: that are too small to, a vocabulary that does not divide.
TINY = gpt.Config(layers=2, width=32, heads=2, vocab=60, context=8)
#: Options of XLA beside those of conftest.py, for values with many uses, which its older
#: emitters compute for each: in portable steps that gather along a later dim, whose weights
#: are sharded over an axis that is not gathered, or that are manual over some axes alone.
#: What conftest.py's options make of these runs for longer than compiling takes with these.
FUSED = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": True}
ALL_ON = {"weights": "i8", "gradients": "i8:i4", "secondary": "gpu"}
OFF = {"weights": "none", "gradients": "none", "secondary": "none"}


@dataclasses.dataclass
class Run:
    losses: np.ndarray
    #: The final state, as numpy arrays.
    state: dict
    shardings: dict
    dtypes: dict
    #: Whether devices that hold the same hold the same bits.
    ranks_agree: bool


def array(shape, spec=PartitionSpec(), scale: float = 64**-0.5) -> jax.Array:
    """Normal values on `MESH`, the same for the same shape. The scale is that
    of a weight whose products add up 64 elements."""
    rng = np.random.default_rng(sum(shape))
    return jax.device_put(
        (scale * rng.standard_normal(shape)).astype(np.float32),
        NamedSharding(MESH, spec))


def tokens(config: gpt.Config, step: int) -> np.ndarray:
    """Sequences that count up in steps of 1 to 3: there is much to learn."""
    rng = np.random.default_rng(step)
    start = rng.integers(0, config.vocab, (BATCH, 1))
    stride = rng.integers(1, 4, (BATCH, 1))
    return (start + stride * np.arange(config.context + 1)) % config.vocab


def train(trainer: gpt.Trainer, step, steps: int = STEPS) -> Run:
    """Trains with `step`, which may donate its state."""
    state = trainer.init()
    losses = []
    for index in range(steps):
        batch = trainer.batch(tokens(trainer.config, index))
        state, loss = step(state, batch)
        losses.append(np.asarray(loss))
    agree = all(map(ranks_agree, jax.tree.leaves((state, loss))))
    return Run(np.array(losses), jax.tree.map(np.asarray, state),
               jax.tree.map(lambda leaf: leaf.sharding, state),
               jax.tree.map(lambda leaf: leaf.dtype, state), agree)


@functools.cache
def trainer_of(config: gpt.Config) -> gpt.Trainer:
    return gpt.Trainer(config)


@functools.cache
def baseline(config: gpt.Config) -> Run:
    """The training as written."""
    trainer = trainer_of(config)
    return train(trainer, jax.jit(trainer.step, donate_argnums=0))


def compiler_options(config: gpt.Config) -> dict:
    """Those of XLA for portable steps of `config`."""
    is_simple = config.gather_dim == 0 and "tensor" not in dict(config.mesh)
    return {} if is_simple else FUSED


def with_options(**options) -> gpt.Config:
    return dataclasses.replace(TINY, **options)


def assert_rewritten(report: dict, role: str) -> None:
    """Everything of this role is, but what is too small to gain from it."""
    entries = [entry for entry in report["collectives"]
               if entry["role"] == role]
    left = [entry for entry in entries if not entry["rewritten"]]
    assert len(left) < len(entries), role
    assert (sum(sum(entry["before"].values()) for entry in left)
            < 0.03 * sum(sum(entry["before"].values()) for entry in entries)
            ), left


def same_bits(left, right) -> bool:
    """Whether two pytrees of arrays hold the same bits (NaNs included)."""
    def same(a, b):
        a, b = np.asarray(a), np.asarray(b)
        return (a.dtype == b.dtype and a.shape == b.shape
                and a.tobytes() == b.tobytes())

    return jax.tree.all(jax.tree.map(same, left, right))


def kept_arrays(fast) -> dict:
    """The arrays that a step keeps, without the one that says of which mesh."""
    return {name: array for name, array in fast.state.items()
            if name != "mesh"}


def ranks_agree(array: jax.Array) -> bool:
    """Whether all devices that hold the same part of `array` hold equal bits."""
    seen: dict[str, bytes] = {}
    for shard in array.addressable_shards:
        bits = np.asarray(shard.data).tobytes()
        if seen.setdefault(str(shard.index), bits) != bits:
            return False
    return True


@contextlib.contextmanager
def recorded_compilations():
    """Names of what XLA compiles meanwhile."""
    names = []

    class Handler(logging.Handler):
        def emit(self, record):
            if record.getMessage().startswith("Finished XLA compilation"):
                names.append(record.getMessage())

    handler = Handler()
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        yield names
    finally:
        logger.removeHandler(handler)
