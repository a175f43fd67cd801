# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small GPT trained FSDP-style (ZeRO-3) with `jax.shard_map`.

The demo, the tests, the benchmarks and the exported graphs under `test/Inputs`
all train this one model. Every parameter is f32, partitioned over the
data-parallel axes of the mesh, cast to the compute type and all-gathered where
it is used; autodiff turns each gather into a reduce-scatter of the gradient.
With `Config.collectives` "xla" the step has none of its own: the partitioner
makes them from shardings, as for most programs in JAX. `Config` has one option
for each way in which such a step is commonly written.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

@dataclasses.dataclass(frozen=True)
class Config:
    """The model and how its training step is written."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    vocab: int = 256
    context: int = 32
    #: Experts of a layer, of which devices have parts: each token goes to two of them,
    #: in place of the matrices "up" and "down". 0: none. The step exchanges the rows
    #: of tokens with all-to-alls.
    experts: int = 0
    #: Axes of the device mesh, slowest first. An axis called "tensor" splits
    #: heads and hidden units; all others are data-parallel (FSDP).
    mesh: tuple[tuple[str, int], ...] = (("node", 2), ("gpu", 4))
    #: Data-parallel axes over which weights are replicated instead of
    #: partitioned. Some of them: HSDP; all: plain data parallelism.
    replicated: tuple[str, ...] = ()
    #: Who updates weights that are replicated over all data-parallel axes. "":
    #: every device, all of them. "ZeRO-1" and "ZeRO-2": each device its slice, of
    #: which it keeps f32 weights and the optimizer's state; gradients are
    #: all-reduced or scattered, and the updated weights are gathered.
    slices: str = ""
    #: Who makes the collectives. "step": the step itself, in a `jax.shard_map`;
    #: "xla": the partitioner, from the shardings of state and activations.
    collectives: str = "step"
    #: Type of the gathered weights and of the activations.
    dtype: str = "bfloat16"
    #: Gathers that the backward pass repeats. "none": none, gathered weights
    #: stay alive; "layer": `jax.checkpoint` around each layer; "policy": one
    #: checkpoint around the loss that saves everything but gathered weights.
    checkpoint: str = "layer"
    #: `prevent_cse` of `jax.checkpoint` (an `optimization_barrier`).
    prevent_cse: bool = True
    #: `lax.scan` over stacked layers instead of a Python loop.
    scan: bool = False
    #: Each layer is a `jax.jit` of its own, so its gathers lie in a function.
    jit_layer: bool = False
    #: Weights are cast before the layers, not where they are gathered.
    cast_early: bool = False
    #: The dim that matrices are partitioned and gathered along. A dim split
    #: over "tensor" is never taken.
    gather_dim: int = 0
    #: Micro-batches per step, in a `lax.scan`.
    accumulate: int = 1
    #: "adam"; "sgd" (with momentum 0.9); or "muon", which orthogonalizes the momenta
    #: of the layers' matrices, and is "adam" for the rest.
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    #: The learning rate grows in the first eighth of all steps, and then falls
    #: to zero as a cosine. How many they are is a part of the state,
    #: "last_step", so that one compiled step serves trainings of any length.
    is_scheduled: bool = False

    @property
    def tensor(self) -> int:
        return dict(self.mesh).get("tensor", 1)

    @property
    def data_axes(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.mesh if name != "tensor")

    @property
    def data_parallel(self) -> int:
        return math.prod(size for name, size in self.mesh if name != "tensor")

    @property
    def weight_axes(self) -> tuple[str, ...]:
        """Those over which weights are partitioned."""
        return tuple(name for name in self.data_axes
                     if name not in self.replicated)

    @property
    def is_manual(self) -> bool:
        return self.collectives == "step"

    @property
    def loss_scale(self) -> float:
        """Keeps small f16 gradients above the subnormals."""
        return 1024.0 if self.dtype == "float16" else 1.0


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One weight: its logical shape and how it lies on the mesh."""

    shape: tuple[int, ...]
    #: Dim split over "tensor", or None.
    tensor_dim: int | None
    #: Dim partitioned over the data-parallel axes.
    data_dim: int
    #: `shape` with data_dim padded to what the mesh divides. Who partitions an
    #: indivisible weight pads it, as FSDP does; the gathered rest is cut off.
    stored: tuple[int, ...]
    spec: PartitionSpec
    #: Standard deviation of the initial values.
    scale: float


def _parameter(config: Config, shape, scale=0.0, tensor_dim=None) -> Parameter:
    if config.tensor == 1:
        tensor_dim = None
    data_dim = min(config.gather_dim, len(shape) - 1)
    if len(shape) > 1 and data_dim == tensor_dim:
        data_dim = 1 - data_dim
    unit = math.prod(dict(config.mesh)[name] for name in config.weight_axes)
    entries: list[str | tuple[str, ...] | None] = [None] * len(shape)
    if tensor_dim is not None:
        entries[tensor_dim] = "tensor"
    if data_dim == tensor_dim:  # 1-D: a "tensor" slice is partitioned further
        unit *= config.tensor
        entries[data_dim] = ("tensor",) + config.weight_axes
    elif config.weight_axes:
        entries[data_dim] = config.weight_axes
    stored = list(shape)
    stored[data_dim] = -(-shape[data_dim] // unit) * unit
    return Parameter(shape, tensor_dim, data_dim, tuple(stored),
                     PartitionSpec(*entries), scale)


def parameters(config: Config) -> dict:
    """The parameters as a pytree; "layers" holds those of one layer."""
    width, hidden = config.width, 4 * config.width

    def matrix(rows, columns, tensor_dim):
        return _parameter(config, (rows, columns), rows**-0.5, tensor_dim)

    last = {
        "up": matrix(width, hidden, 1),
        "up_bias": _parameter(config, (hidden,), 0.0, 0),
        "down": matrix(hidden, width, 0),
        "down_bias": _parameter(config, (width,)),
    }
    if config.experts:
        last = {
            "router": matrix(width, config.experts, None),
            "experts_up": _parameter(
                config, (config.experts, width, hidden), width**-0.5),
            "experts_down": _parameter(
                config, (config.experts, hidden, width), hidden**-0.5),
        }
    return {
        "embed": _parameter(config, (config.vocab, width), 0.02),
        "position": _parameter(config, (config.context, width), 0.02),
        "final_gain": _parameter(config, (width,)),
        "layers": {
            "gain1": _parameter(config, (width,)),
            "qkv": matrix(width, 3 * width, 1),
            "proj": matrix(width, width, 0),
            "gain2": _parameter(config, (width,)),
        } | last,
    }


def _map_layers(config: Config, tree: dict, one, stacked) -> dict:
    """Maps the `Parameter`s of `tree`; those of a layer once for each layer, or
    once for all of them when they are stacked."""
    result = {name: one(leaf) for name, leaf in tree.items()
              if name != "layers"}

    def layer(function):
        return {name: function(leaf) for name, leaf in tree["layers"].items()}

    result["layers"] = (layer(stacked) if config.scan else
                        [layer(one) for _ in range(config.layers)])
    return result


class Trainer:
    """The training step of `config`, its mesh and its initial state."""

    def __init__(self, config: Config, devices=None):
        self.config = config
        sizes = [size for _, size in config.mesh]
        names = [name for name, _ in config.mesh]
        if devices is None:
            devices = jax.devices()[:math.prod(sizes)]
        self.mesh = jax.sharding.Mesh(
            np.array(devices).reshape(sizes), names,
            axis_types=(AxisType.Auto,) * len(names))
        self.parameters = parameters(config)
        specs = _map_layers(config, self.parameters, lambda p: p.spec,
                            lambda p: PartitionSpec(None, *p.spec))
        updated = specs
        if config.slices:
            updated = _map_layers(
                config, self.parameters, self._slice_spec,
                lambda p: PartitionSpec(None, *self._slice_spec(p)))
        self.state_specs = {"params": specs, "m": updated,
                            "count": PartitionSpec()}
        if config.optimizer != "sgd":
            self.state_specs["v"] = updated
        if config.slices:
            self.state_specs["master"] = updated
        if config.is_scheduled:
            self.state_specs["last_step"] = PartitionSpec()
        self.batch_spec = PartitionSpec(config.data_axes)
        #: (state, tokens) -> (state, loss), to be jitted with donate_argnums=0.
        self.step = self._sharded_step
        if config.is_manual:
            self.step = jax.shard_map(
                self._step, mesh=self.mesh,
                in_specs=(self.state_specs, self.batch_spec),
                out_specs=(self.state_specs, PartitionSpec()),
                # Nothing tells that all devices gather the same.
                check_vma=not config.slices)
            self.step.__name__ = "step"

    def _slice_spec(self, parameter: Parameter) -> PartitionSpec:
        """The place of the slice that a device updates of a replicated weight."""
        entries = list(parameter.spec)
        entries[parameter.data_dim] = self.config.data_axes
        return PartitionSpec(*entries)

    # State and data ---------------------------------------------------------

    def init(self, seed: int = 0, last_step: int = 0) -> dict:
        """The sharded initial state: {"params", "m"[, "v"][, "master"], "count"
        [, "last_step"]}."""
        rng = np.random.default_rng(seed)
        config = self.config

        def weight(parameter: Parameter):
            value = np.zeros(parameter.stored, np.float32)
            used = tuple(slice(0, size) for size in parameter.shape)
            value[used] = parameter.scale * rng.standard_normal(
                parameter.shape)
            return value

        # Drawn layer by layer, so that `scan` starts from the same values.
        params = _map_layers(dataclasses.replace(config, scan=False),
                             self.parameters, weight, None)
        if config.scan:
            params["layers"] = jax.tree.map(lambda *layers: np.stack(layers),
                                            *params["layers"])
        zeros = jax.tree.map(np.zeros_like, params)
        state = {"params": params, "m": zeros, "count": np.int32(0)}
        if config.optimizer != "sgd":
            state["v"] = zeros
        if config.slices:
            state["master"] = params
            state["params"] = jax.tree.map(
                lambda w: w.astype(config.dtype), params)
        if config.is_scheduled:
            state["last_step"] = np.int32(last_step)
        return self.put(state, self.state_specs)

    def abstract_state(self) -> dict:
        """Shapes, types and shardings of the state, without any data."""
        config = self.config
        params = _map_layers(
            config, self.parameters, lambda p: p.stored,
            lambda p: (config.layers, *p.stored))

        def array(shape, spec, dtype=jnp.float32):
            return jax.ShapeDtypeStruct(
                shape, dtype, sharding=NamedSharding(self.mesh, spec))

        def arrays(name, dtype=jnp.float32):
            return jax.tree.map(
                lambda shape, spec: array(shape, spec, dtype), params,
                self.state_specs[name],
                is_leaf=lambda leaf: isinstance(leaf, tuple))

        held = config.dtype if config.slices else jnp.float32
        state = {"params": arrays("params", held), "m": arrays("m"),
                 "count": array((), PartitionSpec(), jnp.int32)}
        if config.optimizer != "sgd":
            state["v"] = arrays("v")
        if config.slices:
            state["master"] = arrays("master")
        if config.is_scheduled:
            state["last_step"] = array((), PartitionSpec(), jnp.int32)
        return state

    def abstract_batch(self, size: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            (size, self.config.context + 1), jnp.int32,
            sharding=NamedSharding(self.mesh, self.batch_spec))

    def put(self, tree, specs):
        """Places host arrays on the mesh."""
        return jax.tree.map(
            lambda value, spec: jax.device_put(
                value, NamedSharding(self.mesh, spec)), tree, specs)

    def batch(self, tokens: np.ndarray) -> jax.Array:
        """Places tokens [batch, context + 1] on the mesh."""
        return self.put(tokens.astype(np.int32), self.batch_spec)

    def model_elements(self) -> int:
        """Stored elements of all weights."""
        return sum(
            math.prod(leaf.shape)
            for leaf in jax.tree.leaves(self.abstract_state()["params"]))

    def _sharded_step(self, state: dict, tokens):
        """The step as XLA partitions it: results are where arguments are."""
        state, loss = self._step(state, tokens)
        return jax.tree.map(
            lambda leaf, spec: jax.lax.with_sharding_constraint(
                leaf, NamedSharding(self.mesh, spec)), state, self.state_specs
        ), loss

    # The step, as one device runs it or, for XLA, all of them ---------------

    def _gather(self, parameter: Parameter, shard):
        """The whole weight (of one "tensor" slice) from everyone's shard."""
        whole = shard.astype(self.config.dtype)
        if self.config.is_manual and self.config.weight_axes:
            whole = jax.lax.all_gather(whole, self.config.weight_axes,
                                       axis=parameter.data_dim, tiled=True)
        if parameter.stored != parameter.shape:
            end = parameter.shape[parameter.data_dim]
            if parameter.tensor_dim == parameter.data_dim:
                end //= self.config.tensor
            whole = jax.lax.slice_in_dim(whole, 0, end,
                                         axis=parameter.data_dim)
        return whole

    def _place(self, x):
        """Tells XLA where activations are: every device has its sequences."""
        if self.config.is_manual:
            return x
        return jax.lax.with_sharding_constraint(
            x, NamedSharding(self.mesh, self.batch_spec))

    def _layer(self, weights: dict, x):
        config = self.config
        w = {name: weights[name].astype(config.dtype)
             if name.startswith("experts") else
             self._gather(parameter, weights[name])
             for name, parameter in self.parameters["layers"].items()}
        batch, length, _ = x.shape
        heads = config.heads // config.tensor
        size = config.width // config.heads

        # Each head's query, key and value lie together, so that a "tensor"
        # slice of the columns is a set of whole heads.
        qkv = self._place(_norm(x, w["gain1"]) @ w["qkv"])
        qkv = qkv.reshape(batch, length, heads, 3, size)
        query, key, value = qkv[..., 0, :], qkv[..., 1, :], qkv[..., 2, :]
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key,
                            preferred_element_type=jnp.float32)
        row = jax.lax.broadcasted_iota(jnp.int32, (length, length), 0)
        column = jax.lax.broadcasted_iota(jnp.int32, (length, length), 1)
        scores = jnp.where(row >= column, scores * size**-0.5, -1e30)
        attention = jax.nn.softmax(scores).astype(config.dtype)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", attention, value)
        mixed = self._place(mixed.reshape(batch, length, heads * size))
        x = x + self._place(self._sum_tensor(mixed @ w["proj"]))

        if config.experts:
            return x + self._experts(w, _norm(x, w["gain2"]))
        hidden = self._place(jax.nn.silu(
            _norm(x, w["gain2"]) @ w["up"] + w["up_bias"]))
        return self._place(
            x + self._sum_tensor(hidden @ w["down"]) + w["down_bias"])

    def _experts(self, w: dict, x):
        """Each token through two experts, as far as they have room: a quarter more
        than if all were as popular."""
        config = self.config
        tokens = x.reshape(-1, config.width)
        room = -(-5 * len(tokens) // (2 * config.experts))
        gates, chosen = jax.lax.top_k(jax.nn.softmax(
            (tokens @ w["router"]).astype(jnp.float32)), 2)
        chosen = chosen.reshape(-1)
        is_of = jax.nn.one_hot(chosen, config.experts, dtype=jnp.int32)
        place = jnp.sum((jnp.cumsum(is_of, 0) - 1) * is_of, -1)
        fits = place < room
        slot = jnp.where(fits, chosen * room + place, config.experts * room)

        def exchange(rows, split, joined):
            return jax.lax.all_to_all(rows, config.weight_axes, split, joined,
                                      tiled=True)

        rows = jnp.zeros((config.experts * room, config.width), x.dtype)
        rows = rows.at[slot].set(jnp.repeat(tokens, 2, 0), mode="drop")
        rows = exchange(rows.reshape(config.experts, room, -1), 0, 1)
        hidden = jax.nn.silu(jnp.einsum("erw,ewh->erh", rows, w["experts_up"]))
        rows = exchange(
            jnp.einsum("erh,ehw->erw", hidden, w["experts_down"]), 1, 0)
        found = rows.reshape(-1, config.width)[jnp.where(fits, slot, 0)]
        gates = jnp.where(fits.reshape(gates.shape), gates, 0).astype(x.dtype)
        return jnp.einsum("tk,tkw->tw", gates, found.reshape(
            *gates.shape, -1)).reshape(x.shape)

    def _sum_tensor(self, x):
        return x if self.config.tensor == 1 else jax.lax.psum(x, "tensor")

    def _loss(self, params: dict, tokens):
        config = self.config
        if config.cast_early:
            params = jax.tree.map(lambda p: p.astype(config.dtype), params)
        layer = self._layer
        if config.jit_layer:
            layer = jax.jit(layer)
        if config.checkpoint == "layer":
            layer = jax.checkpoint(layer, prevent_cse=config.prevent_cse)

        embed = self._gather(self.parameters["embed"], params["embed"])
        if not config.is_manual:
            # XLA would look tokens up in each part of the table, and send
            # activations in place of weights.
            embed = jax.lax.with_sharding_constraint(
                embed, NamedSharding(self.mesh, PartitionSpec()))
        position = self._gather(self.parameters["position"],
                                params["position"])
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self._place(
            embed.at[inputs].get(mode="promise_in_bounds") + position)
        if config.scan:
            x, _ = jax.lax.scan(lambda x, w: (layer(w, x), None), x,
                                params["layers"])
        else:
            for weights in params["layers"]:
                x = layer(weights, x)
        gain = self._gather(self.parameters["final_gain"],
                            params["final_gain"])
        logits = self._place(
            jnp.einsum("btd,vd->btv", _norm(x, gain), embed,
                       preferred_element_type=jnp.float32))
        chosen = jax.nn.one_hot(targets, config.vocab) * logits
        loss = jax.nn.logsumexp(logits, -1) - jnp.sum(chosen, -1)
        return jnp.mean(loss) * config.loss_scale

    def loss_and_gradients(self, params: dict, tokens):
        """The loss of one device's sequences, and its gradients. They are where
        the parameters are: summed over all devices that gather one."""
        config = self.config
        loss = self._loss
        if config.checkpoint == "policy":
            loss = jax.checkpoint(
                loss, prevent_cse=config.prevent_cse, policy=_keep)
        grad = jax.value_and_grad(loss)
        if config.accumulate == 1:
            return grad(params, tokens)

        def add(total, micro_batch):
            return jax.tree.map(jnp.add, total, grad(params, micro_batch)), None

        micro = tokens.reshape(config.accumulate, -1, tokens.shape[-1])
        zero = jnp.zeros(())
        if config.is_manual:
            zero = jax.lax.pcast(zero, config.data_axes, to="varying")
        zeros = (zero, jax.tree.map(
            lambda p: jnp.zeros_like(p, jnp.float32), params))
        total, _ = jax.lax.scan(add, zeros, micro)
        return jax.tree.map(lambda x: x / config.accumulate, total)

    def _step(self, state: dict, tokens):
        config = self.config
        params = state["params"]
        sums_replicas = (config.is_manual and config.replicated
                         and not config.slices)
        if sums_replicas:
            # Every replica has gradients of its own until these are summed.
            params = jax.tree.map(
                lambda p: jax.lax.pcast(p, config.replicated, to="varying"),
                params)
        loss, grads = self.loss_and_gradients(params, tokens)
        if sums_replicas:
            grads = jax.tree.map(lambda g: jax.lax.psum(g, config.replicated),
                                 grads)
        if config.slices:
            grads = self._map_dims(self._sum_slice, grads)
        # The reduce-scatters sum; the loss is a mean over the whole batch.
        sums = config.data_parallel if config.is_manual else 1
        grads = jax.tree.map(lambda g: g / (sums * config.loss_scale), grads)
        if config.is_manual:
            loss = jax.lax.pmean(loss, config.data_axes)
        loss = loss / config.loss_scale
        count = state["count"] + 1
        result = {"count": count}
        if config.optimizer != "sgd":
            result["m"] = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g,
                                       state["m"], grads)
            result["v"] = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g,
                                       state["v"], grads)
            correct1 = 1 / (1 - 0.9**count.astype(jnp.float32))
            correct2 = 1 / (1 - 0.99**count.astype(jnp.float32))
            update = jax.tree.map(
                lambda m, v: m * correct1 / (jnp.sqrt(v * correct2) + 1e-8),
                result["m"], result["v"])
            if config.optimizer == "muon":
                update["layers"] = self._map_dims(
                    self._orthogonal, result["m"])["layers"]
        else:
            result["m"] = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"],
                                       grads)
            update = result["m"]
        rate = config.learning_rate
        if config.is_scheduled:
            result["last_step"] = state["last_step"]
            rate *= _schedule(count, state["last_step"])
        updated = "master" if config.slices else "params"
        result[updated] = jax.tree.map(
            lambda p, u: p - rate * u, state[updated], update)
        if config.slices:
            result["params"] = self._map_dims(
                lambda w, dim: jax.lax.all_gather(
                    w.astype(config.dtype), config.data_axes, axis=dim,
                    tiled=True), result["master"])
        return result, loss

    def _map_dims(self, function, weights: dict) -> dict:
        """Maps weights, each with the dim in which devices have slices."""
        dims = _map_layers(self.config, self.parameters, lambda p: p.data_dim,
                           lambda p: p.data_dim + 1)
        return jax.tree.map(function, weights, dims)

    def _orthogonal(self, moment, dim: int):
        """This device's slice of a matrix near a momentum, or of those of all layers,
        whose singular values are all about one; of what is no matrix, the sign."""
        if moment.ndim - self.config.scan != 2:
            return jnp.sign(moment)
        axes = self.config.data_axes
        whole = jax.lax.all_gather(moment, axes, axis=dim, tiled=True)
        x = whole.astype(self.config.dtype)
        if is_tall := x.shape[-2] > x.shape[-1]:
            x = jnp.swapaxes(x, -1, -2)
        x /= jnp.linalg.norm(x, axis=(-2, -1), keepdims=True) + 1e-7

        def iterate(_, x):  # Newton-Schulz, as Muon has it.
            gram = x @ jnp.swapaxes(x, -1, -2)
            return 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x

        x = jax.lax.fori_loop(0, 5, iterate, x)
        x = jnp.swapaxes(x, -1, -2) if is_tall else x
        own = jax.lax.dynamic_slice_in_dim(
            x, moment.shape[dim] * jax.lax.axis_index(axes), moment.shape[dim], dim)
        # As large as an update of Adam's.
        return own.astype(jnp.float32) * (0.2 * max(x.shape[-2:])**0.5)

    def _sum_slice(self, gradient, dim: int):
        """This device's slice of the sum of a gradient, in f32."""
        axes = self.config.data_axes
        gradient = gradient.astype(jnp.float32)
        if self.config.slices == "ZeRO-2":
            return jax.lax.psum_scatter(gradient, axes, scatter_dimension=dim,
                                        tiled=True)
        size = gradient.shape[dim] // self.config.data_parallel
        return jax.lax.dynamic_slice_in_dim(
            jax.lax.psum(gradient, axes), size * jax.lax.axis_index(axes), size,
            dim)


def _schedule(count, last_step):
    """The part of the learning rate that step `count` takes, which is 1 for the
    first of `last_step` steps."""
    at, end = count.astype(jnp.float32), last_step.astype(jnp.float32)
    warm_up = jnp.maximum(1, end / 8)
    fall = (at - warm_up) / (end - warm_up)
    return jnp.minimum(at / warm_up, 0.5 + 0.5 * jnp.cos(math.pi * fall))


def _keep(primitive, *_, **__) -> bool:
    """A checkpoint policy: all residuals but gathered weights, cut or not."""
    return primitive.name not in ("all_gather", "slice")


def _norm(x, gain):
    """RMS norm in f32. The stored gain is the distance from 1."""
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype) * (1 + gain)
