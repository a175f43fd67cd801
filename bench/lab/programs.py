# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of plain jax.jit with shardings that train on all devices, for
bench/run_programs.py and bench/trainers.py."""

import dataclasses
import time
from collections.abc import Callable

#: The axis of all devices. It is no tier's name, so that tiers may divide it.
AXIS = "data"


@dataclasses.dataclass(frozen=True)
class Sizes:
    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    #: Sequences of all devices together.
    sequences: int
    steps: int
    learning_rate: float = 1e-3
    dropout: float = 0.0


class Record:
    """Losses of the steps, and how long each took."""

    def __init__(self):
        self.losses, self.seconds = [], []

    def begin(self):
        self._start = time.perf_counter()

    def end(self, loss):
        self.losses.append(float(loss))
        self.seconds.append(time.perf_counter() - self._start)


def tokens(step: int, shape: tuple[int, int], vocabulary: int):
    """Counts up, with some noise."""
    import numpy as np
    random = np.random.default_rng(step)
    first = random.integers(0, vocabulary, (shape[0], 1))
    noise = random.random(shape) < 0.1
    return ((first + np.arange(shape[1]) + noise) % vocabulary).astype(np.int32)


def batch_of(sizes: Sizes, number: int):
    return tokens(number, (sizes.sequences, sizes.length + 1), sizes.vocabulary)


def all_devices():
    import jax
    return jax.make_mesh((jax.device_count(),), (AXIS,),
                         axis_types=(jax.sharding.AxisType.Auto,))


def sharding(on, *spec):
    import jax
    return jax.sharding.NamedSharding(on, jax.sharding.PartitionSpec(*spec))


def put(value, on, *spec):
    """Places what all processes have on the devices of all."""
    import jax
    import numpy as np
    host = np.asarray(value)
    return jax.make_array_from_callback(
        host.shape, sharding(on, *spec), lambda index: host[index])


def put_weight(value, on):
    """In parts along its first dim that the devices divide."""
    dims = [dim for dim, size in enumerate(value.shape)
            if size % on.size == 0 and value.ndim > 1]
    return put(value, on, *([AXIS if dim == dims[0] else None
                             for dim in range(value.ndim)] if dims else []))


def run_steps(sizes: Sizes, on, step: Callable, state: tuple, record: Record):
    """Trains: a step takes the state and a batch, and returns the next state and the
    loss."""
    for number in range(sizes.steps):
        batch = put(batch_of(sizes, number), on, AXIS)
        record.begin()
        *state, loss = step(*state, batch)
        record.end(loss)


def cross_entropy(logits, batch):
    """Returns the mean loss of the next tokens of a batch."""
    import jax.numpy as jnp
    import optax
    return optax.softmax_cross_entropy_with_integer_labels(
        logits.astype(jnp.float32), batch[:, 1:]).mean()


# Flax NNX ----------------------------------------------------------------------


def _nnx_model(sizes: Sizes, place: Callable):
    """A transformer of Flax' own layers."""
    import jax.numpy as jnp
    from flax import nnx
    width = sizes.width

    class Block(nnx.Module):
        def __init__(self, rngs):
            bf16 = {"dtype": jnp.bfloat16, "rngs": rngs}
            self.norm1 = nnx.RMSNorm(width, **bf16)
            self.attention = nnx.MultiHeadAttention(
                sizes.heads, width, decode=False, dropout_rate=0.0, **bf16)
            self.norm2 = nnx.RMSNorm(width, **bf16)
            self.up = nnx.Linear(width, 4 * width, **bf16)
            self.down = nnx.Linear(4 * width, width, **bf16)
            self.dropout = nnx.Dropout(sizes.dropout, rngs=rngs)

        def __call__(self, x):
            mask = nnx.make_causal_mask(x[..., 0])
            x = x + place(self.attention(place(self.norm1(x)), mask=mask))
            hidden = place(nnx.gelu(place(self.up(place(self.norm2(x))))))
            return place(x + self.dropout(place(self.down(hidden))))

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(sizes.vocabulary, width, dtype=jnp.bfloat16,
                                   rngs=rngs)
            self.blocks = nnx.List([Block(rngs) for _ in range(sizes.layers)])
            self.norm = nnx.RMSNorm(width, dtype=jnp.bfloat16, rngs=rngs)
            self.head = nnx.Linear(width, sizes.vocabulary, use_bias=False,
                                   dtype=jnp.bfloat16, rngs=rngs)

        def __call__(self, x):
            x = place(self.embed(x))
            for block in self.blocks:
                x = nnx.remat(Block.__call__)(block, x)
            return place(self.head(place(self.norm(x))))

    return Model(nnx.Rngs(0))


def nnx(sizes: Sizes, wrap: Callable, record: Record):
    """Flax' own layers, and `nnx.jit`."""
    import jax
    import optax
    from flax import nnx
    on = all_devices()
    model = _nnx_model(sizes, lambda x: jax.lax.with_sharding_constraint(
        x, sharding(on, AXIS)))
    optimizer = nnx.Optimizer(model, optax.adamw(sizes.learning_rate), wrt=nnx.Param)
    for part in (model, optimizer):
        nnx.update(part, jax.tree.map(lambda leaf: put_weight(leaf, on), nnx.state(
            part, nnx.Not(nnx.RngKey))))

    @nnx.jit
    def train_step(model, optimizer, batch):
        loss, gradients = nnx.value_and_grad(
            lambda model: cross_entropy(model(batch[:, :-1]), batch))(model)
        optimizer.update(model, gradients)
        return loss

    step = wrap(train_step)
    run_steps(sizes, on, lambda batch: (step(model, optimizer, batch),), (), record)


# Keras -------------------------------------------------------------------------


def keras(sizes: Sizes, wrap: Callable, record: Record):
    """`Model.fit` with a `ModelParallel` distribution, in float32, on one batch."""
    import jax
    import keras
    from keras.src.backend.jax import trainer
    keras.utils.set_random_seed(0)
    devices = keras.distribution.DeviceMesh(
        (jax.device_count(),), ["batch"], keras.distribution.list_devices())
    layout = keras.distribution.LayoutMap(devices)
    layout[".*kernel"] = layout[".*embeddings"] = ("batch", None)
    keras.distribution.set_distribution(keras.distribution.ModelParallel(
        layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False))
    x = inputs = keras.Input((sizes.length,), dtype="int32")
    x = keras.layers.Embedding(sizes.vocabulary, sizes.width)(x)
    for _ in range(sizes.layers):
        hidden = keras.layers.LayerNormalization()(x)
        hidden = keras.layers.Dense(4 * sizes.width, activation="gelu",
                                    use_bias=False)(hidden)
        x = x + keras.layers.Dense(sizes.width, use_bias=False)(hidden)
    outputs = keras.layers.Dense(sizes.vocabulary, use_bias=False)(x)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(sizes.learning_rate),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    class Note(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            record.begin()

        def on_epoch_end(self, epoch, logs=None):
            record.end(logs["loss"])

    # Each process has its own part of the batch.
    batch = batch_of(sizes, 0)
    rows = sizes.sequences // jax.process_count()
    own = batch[rows * jax.process_index():][:rows]
    before, trainer.jit = trainer.jit, (
        lambda function, **options: wrap(jax.jit(function, **options)))
    try:
        model.fit(own[:, :-1], own[:, 1:], batch_size=rows, epochs=sizes.steps,
                  verbose=0, callbacks=[Note()], shuffle=False)
    finally:
        trainer.jit = before
