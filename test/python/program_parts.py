# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of random training programs: layers, losses, optimizers and statistics,
and three worlds of collectives in which a program runs."""

import inspect
from collections.abc import Callable

import blockquant
import jax
import jax.numpy as jnp
import numpy as np
import training
from jax.sharding import PartitionSpec

BLOCK = 128
AXES = training.AXES
NODES, GPUS = 2, 4
DEVICES = NODES * GPUS
WIDTH = 64
SHARDED, WHOLE = PartitionSpec(AXES), PartitionSpec()

# Worlds ------------------------------------------------------------------------


class Manual:
    """Collectives as a program in a shard_map has them."""

    def weight(self, shard):
        """A whole weight. Its transpose sums the gradient."""
        return jax.lax.all_gather(shard, AXES, axis=0, tiled=True)

    def average(self, gradient):
        """The mean of a gradient that all devices need as a whole."""
        return jax.lax.pmean(gradient, AXES)

    def gather(self, shard):
        return jax.lax.all_gather(shard, AXES, axis=0, tiled=True)

    def scatter(self, value):
        """A device's rows of the mean."""
        return jax.lax.psum_scatter(value, AXES, tiled=True) / DEVICES

    def mean(self, value):
        return jax.lax.pmean(value, AXES)

    def sum(self, value):
        """That of what devices have of their own rows."""
        return jax.lax.psum(value, AXES)

    def max(self, value):
        return jax.lax.pmax(jax.lax.stop_gradient(value), AXES)

    def from_owner(self, owner, value):
        """The value that the device `owner` has."""
        me = jax.lax.axis_index(AXES)
        return jax.lax.psum(jnp.where(me == owner, value, 0), AXES)

    def own_rows(self, whole):
        rows = len(whole) // DEVICES
        return jax.lax.dynamic_slice_in_dim(
            whole, jax.lax.axis_index(AXES) * rows, rows)

    def of_loss(self, gradients):
        """Those of the mean loss, from sums of those of each device's loss."""
        return jax.tree.map(lambda each: each / DEVICES, gradients)


def lines_of_weights() -> set[int]:
    """Lines of collectives that zpp may round."""
    return {line for method in (Manual.weight, Manual.average)
            for line in range(method.__code__.co_firstlineno,
                              method.__code__.co_firstlineno
                              + len(inspect.getsourcelines(method)[0]))}


class Partial(Manual):
    """The same between nodes. Within a node, XLA partitions."""

    def weight(self, shard):
        return shard

    gather = own_rows = sum = weight

    def average(self, value):
        return jax.lax.pmean(value, "node")

    mean = scatter = average

    def max(self, value):
        return jax.lax.pmax(jax.lax.stop_gradient(value), "node")

    def from_owner(self, owner, value):
        return value

    def of_loss(self, gradients):
        return jax.lax.pmean(gradients, "node")


class Partitioned:
    """None: what `jax.jit` runs is one program, which XLA partitions."""

    def _same(self, value):
        return value

    def from_owner(self, owner, value):
        return value

    weight = average = gather = scatter = mean = sum = max = own_rows = of_loss = (
        _same)


def sent(values, form, block=BLOCK):
    """The values that arrive of those that are sent in a format."""
    filled = jnp.pad(values.reshape(-1), (0, -values.size % block))
    most = blockquant.MAX_CODE[form]
    blocks = filled.reshape(-1, block)
    amax = jnp.abs(blocks).max(1, keepdims=True)
    # As a bfloat16 that is not smaller.
    bits = jax.lax.bitcast_convert_type(amax / most, jnp.uint32) + 0xFFFF
    scale = jax.lax.bitcast_convert_type(
        bits & jnp.uint32(0xFFFF0000), jnp.float32)
    arrived = jnp.clip(jnp.rint(blocks / jnp.where(scale > 0, scale, 1)), -most,
                       most) * scale
    return arrived.reshape(-1)[:values.size].reshape(values.shape)


@jax.custom_vjp
def _rounded_weight(shard, of_weights, of_gradients):
    """A weight as int8 brings it, where `of_weights`, with a gradient that is
    summed in int8 within a node and in int4 over nodes, where `of_gradients`."""
    # Biases and gains are too small to shrink.
    is_sent = jnp.logical_and(of_weights, shard.ndim > 1)
    return Manual().gather(jnp.where(is_sent, sent(shard, "i8"), shard))


def _turned(values, function):
    """Each 32 elements, by a linear function of blockquant.py."""
    matrix = np.stack([function(row) for row in np.eye(
        blockquant.ROTATION, dtype=np.float32)])
    return jnp.matmul(values.reshape(-1, len(matrix)), matrix,
                      precision="highest").reshape(values.shape)


def _rounded_sum(gradient):
    slices = gradient.reshape(NODES, GPUS, -1)
    size = slices.shape[2]
    slices = _turned(jnp.pad(slices, ((0, 0), (0, 0), (0, -size % BLOCK))),
                     blockquant.rotate)
    within = jax.lax.psum_scatter(sent(slices, "i8"), "gpu", scatter_dimension=1)
    over = jax.lax.psum_scatter(sent(within, "i4"), "node")
    return _turned(over, blockquant.rotate_back)[..., :size].reshape(
        len(gradient) // DEVICES, *gradient.shape[1:])


def _rounded_weight_backward(of_gradients, gradient):
    exact = jax.lax.psum_scatter(gradient, AXES, tiled=True)
    return (jnp.where(of_gradients, _rounded_sum(gradient), exact), None, None)


_rounded_weight.defvjp(
    lambda shard, of_weights, of_gradients: (
        _rounded_weight(shard, of_weights, of_gradients), of_gradients),
    _rounded_weight_backward)


class Rounded(Manual):
    """Weights and gradients, and nothing else, as zpp's formats leave them."""

    def __init__(self, of_weights, of_gradients):
        self.of_weights, self.of_gradients = of_weights, of_gradients

    def weight(self, shard):
        return _rounded_weight(shard, self.of_weights, self.of_gradients)

    def average(self, gradient):
        # Flat: the first dim need not divide among the devices.
        pieces = sent(_rounded_sum(gradient.reshape(-1)), "i8")
        return jnp.where(
            self.of_gradients, self.gather(pieces).reshape(gradient.shape) / DEVICES,
            self.mean(gradient))


# Layers: functions (weights, hidden, bias, world) -> hidden. -------------------

#: Layers, and the shapes of their weights. One that is called frozen is never
#: updated.
LAYERS: dict[Callable, dict[str, tuple[int, int]]] = {}

SQUARE = (WIDTH, WIDTH)


def layer(**shapes):
    def add(function):
        LAYERS[function] = shapes
        return function
    return add


@layer(a=SQUARE)
def dense(weights, hidden, bias, world):
    return jnp.tanh(hidden @ weights["a"])


@layer(a=SQUARE, b=SQUARE)
def residual(weights, hidden, bias, world):
    return hidden + jax.nn.gelu(hidden @ weights["a"]) @ weights["b"]


@layer(a=SQUARE, b=SQUARE)
def gated(weights, hidden, bias, world):
    return hidden + (jax.nn.silu(hidden @ weights["a"])
                     * (hidden @ weights["b"])) @ weights["a"].T


@layer(a=SQUARE, b=SQUARE)
def attention(weights, hidden, bias, world):
    rows = hidden.reshape(-1, WIDTH, WIDTH)
    scores = (rows @ weights["a"]) @ jnp.swapaxes(rows, 1, 2) * WIDTH**-0.5
    return hidden + (jax.nn.softmax(scores + bias) @ rows
                     @ weights["b"]).reshape(hidden.shape)


@layer(a=SQUARE, b=SQUARE)
def rectified(weights, hidden, bias, world):
    return jax.nn.relu(hidden @ weights["a"]) @ weights["b"]


@layer(a=(WIDTH, 2 * WIDTH), b=(2 * WIDTH, WIDTH))
def normed(weights, hidden, bias, world):
    scale = jax.lax.rsqrt(jnp.mean(hidden**2, -1, keepdims=True) + 1e-6)
    return hidden + jnp.tanh((hidden * scale) @ weights["a"]) @ weights["b"]


@jax.custom_vjp
def product(hidden, weight):
    return hidden @ weight


def product_backward(saved, gradient):
    hidden, weight = saved
    return gradient @ weight.T, hidden.T @ gradient


product.defvjp(lambda hidden, weight: (hidden @ weight, (hidden, weight)),
               product_backward)


@layer(a=SQUARE)
def by_hand(weights, hidden, bias, world):
    """A derivative that somebody has written."""
    return hidden + jnp.tanh(product(hidden, weights["a"]))


@layer(a=SQUARE)
def tied(weights, hidden, bias, world):
    return hidden + jnp.tanh(jnp.tanh(hidden @ weights["a"])
                             @ weights["a"]) @ weights["a"].T


@layer(a=SQUARE, b=SQUARE)
def by_heads(weights, hidden, bias, world):
    """A product per head, vmapped over slices of the weight."""
    heads = weights["a"].reshape(4, WIDTH // 4, WIDTH)
    parts = hidden.reshape(-1, 4, WIDTH // 4)
    products = jax.vmap(jnp.matmul, (1, 0), 1)(parts, heads)
    return hidden + jnp.tanh(products).mean(1) @ weights["b"]


@layer(a=SQUARE)
def synced(weights, hidden, bias, world):
    """Batch normalization: sums of activations over all devices."""
    first, second = (world.mean(jnp.mean(hidden**power, 0)) for power in (1, 2))
    scale = jax.lax.rsqrt(jnp.maximum(second - first**2, 0) + 1e-3)
    return hidden + jnp.tanh((hidden - first) * scale @ weights["a"])


@layer(a=SQUARE)
def weight_normed(weights, hidden, bias, world):
    """Columns of length 1."""
    return jnp.tanh(hidden @ (
        weights["a"] / (jnp.linalg.norm(weights["a"], axis=0) + 1e-6)))


@layer(a=SQUARE)
def standardized(weights, hidden, bias, world):
    """Weight standardization: columns of mean 0 and deviation 1."""
    weight = weights["a"] - jnp.mean(weights["a"], 0)
    return hidden + jnp.tanh(hidden @ weight * jax.lax.rsqrt(
        WIDTH * jnp.mean(weight**2, 0) + 1e-6))


@layer(frozen=SQUARE, down=(WIDTH, 16), up=(16, WIDTH))
def adapted(weights, hidden, bias, world):
    """A base that is not trained and a low-rank sum that is."""
    base = jax.lax.stop_gradient(weights["frozen"])
    return hidden + jnp.tanh(
        hidden @ base + hidden @ weights["down"] @ weights["up"])


@layer(a=(3 * WIDTH, WIDTH))
def convolved(weights, hidden, bias, world):
    kernel = weights["a"].reshape(3, WIDTH, WIDTH)
    rows = jax.lax.conv_general_dilated(
        hidden.reshape(-1, WIDTH, WIDTH), kernel, (1,), "SAME",
        dimension_numbers=("NWC", "WIO", "NWC"))
    return hidden + jnp.tanh(rows).reshape(hidden.shape)


@layer(table=SQUARE, a=SQUARE)
def embedded(weights, hidden, bias, world):
    """Rows of a table, chosen by what comes in."""
    return jnp.tanh((hidden + weights["table"][jnp.argmax(hidden, 1)])
                    @ weights["a"])


@layer(gate=(WIDTH, 16), a=SQUARE, b=SQUARE)
def experts(weights, hidden, bias, world):
    chances = jax.nn.softmax(hidden @ weights["gate"])
    return hidden + (chances[:, :1] * jnp.tanh(hidden @ weights["a"])
                     + chances[:, 1:2] * jnp.tanh(hidden @ weights["b"]))


@layer(a=SQUARE, b=SQUARE)
def stepped(weights, hidden, bias, world):
    """Activations of a few values, with the derivative of a line."""
    inner = jnp.tanh(hidden @ weights["a"])
    inner += jax.lax.stop_gradient(jnp.round(8 * inner) / 8 - inner)
    return hidden + inner @ weights["b"]


@layer(a=SQUARE)
def half_detached(weights, hidden, bias, world):
    return jnp.tanh(jax.lax.stop_gradient(0.5 * hidden) @ weights["a"]
                    + 0.5 * hidden)


# Losses: functions (output, batch, world) -> a mean per device. ----------------


def squares(output, batch, world):
    return jnp.mean((output - jnp.sin(3 * batch)) ** 2)


def entropy(output, batch, world):
    target = jax.nn.one_hot(jnp.argmax(batch, 1), WIDTH)
    return -jnp.mean(jnp.sum(target * jax.nn.log_softmax(output), 1))


def huber(output, batch, world):
    error = jnp.abs(output - batch)
    return jnp.mean(jnp.where(error < 1, error**2 / 2, error - 0.5))


def policy(output, batch, world):
    """A policy gradient, with advantages that are normalized over all devices."""
    action = jnp.argmax(batch, 1)
    reward = jnp.max(batch, 1) - world.mean(jnp.mean(jnp.max(batch, 1)))
    deviation = jnp.sqrt(world.mean(jnp.mean(reward**2)))
    log = jnp.take_along_axis(jax.nn.log_softmax(output), action[:, None], 1)
    return -jnp.mean(reward / (deviation + 1e-6) * log[:, 0])


def contrast(output, batch, world):
    """Rows of a device among each other."""
    rows = output / (jnp.linalg.norm(output, axis=1, keepdims=True) + 1e-3)
    rows = rows.reshape(-1, WIDTH, WIDTH)
    logits = 5 * rows @ jnp.swapaxes(jnp.roll(rows, 1, 2), 1, 2)
    return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(logits), 0, 1, 2))


LOSSES = (squares, entropy, huber, policy, contrast)

# Optimizers: functions (weight, gradient, moment, batch, world) -> (weight,
# moment). ----------------------------------------------------------------------

#: Optimizers, and the shapes of their state for the shape of a weight.
OPTIMIZERS: dict[Callable, Callable[[tuple[int, int]], tuple]] = {}


def optimizer(shapes=lambda shape: (shape,)):
    def add(function):
        OPTIMIZERS[function] = shapes
        return function
    return add


def twice(shape):
    return shape, shape


def length(value, world):
    return jnp.sqrt(world.sum(jnp.sum(value**2))) + 1e-9


@optimizer(lambda shape: ())
def sgd(weight, gradient, moment, batch, world):
    return weight - 0.3 * gradient, moment


@optimizer()
def momentum(weight, gradient, moment, batch, world):
    moment = 0.9 * moment[0] + gradient
    return weight - 0.1 * moment, (moment,)


@optimizer()
def nesterov(weight, gradient, moment, batch, world):
    moment = 0.9 * moment[0] + gradient
    return weight - 0.1 * (0.9 * moment + gradient), (moment,)


@optimizer()
def decayed(weight, gradient, moment, batch, world):
    """Beside an average of the weights."""
    return 0.999 * weight - 0.3 * gradient, (0.9 * moment[0] + 0.1 * weight,)


@optimizer()
def rms(weight, gradient, moment, batch, world):
    moment = 0.9 * moment[0] + 0.1 * gradient**2
    return weight - 1e-2 * gradient / (jnp.sqrt(moment) + 1e-3), (moment,)


@optimizer(twice)
def adam(weight, gradient, moment, batch, world):
    mean = 0.9 * moment[0] + 0.1 * gradient
    square = 0.99 * moment[1] + 0.01 * gradient**2
    return weight - 1e-2 * mean / (jnp.sqrt(square) + 1e-4), (mean, square)


@optimizer(lambda shape: ((shape[0],), (shape[1],)))
def adafactor(weight, gradient, moment, batch, world):
    """Second moments of rows, and of columns, of which each device has some."""
    rows = 0.9 * moment[0] + 0.1 * jnp.mean(gradient**2, 1)
    columns = 0.9 * moment[1] + 0.1 * world.own_rows(
        world.mean(jnp.mean(gradient**2, 0)))
    scale = jnp.outer(rows, world.gather(columns)) / (
        world.mean(jnp.mean(rows)) + 1e-12)
    return weight - 1e-2 * gradient / (jnp.sqrt(scale) + 1e-4), (rows, columns)


@optimizer()
def lion(weight, gradient, moment, batch, world):
    return (weight - 1e-2 * jnp.sign(0.9 * moment[0] + 0.1 * gradient),
            (0.99 * moment[0] + 0.01 * gradient,))


@optimizer()
def towards(weight, gradient, moment, batch, world):
    """The average moves towards the gradient."""
    moment = moment[0] + 0.3 * (gradient - moment[0])
    return weight - 0.3 * moment, (moment,)


@optimizer()
def negated(weight, gradient, moment, batch, world):
    """The momentum has the sign of the update."""
    moment = 0.9 * moment[0] - 0.1 * gradient
    return weight + 0.9 * moment - 0.1 * gradient, (moment,)


@optimizer()
def extrapolated(weight, gradient, moment, batch, world):
    """By the difference to the last gradient."""
    return weight - 0.2 * (gradient + 0.5 * (gradient - moment[0])), (gradient,)


@optimizer(twice)
def belief(weight, gradient, moment, batch, world):
    """Divided by the distance of gradients to their average."""
    mean = 0.5 * moment[0] + 0.5 * gradient
    distance = 0.9 * moment[1] + 0.1 * (gradient - mean) ** 2
    return weight - 1e-2 * mean / (jnp.sqrt(distance) + 1e-3), (mean, distance)


@optimizer()
def trusted(weight, gradient, moment, batch, world):
    """As far as the weight is long."""
    moment = 0.9 * moment[0] + gradient * (
        length(weight, world) / length(gradient, world))
    return weight - 1e-2 * moment, (moment,)


@optimizer()
def cautious(weight, gradient, moment, batch, world):
    """Momentum, where the gradient has its sign."""
    moment = 0.9 * moment[0] + 0.1 * gradient
    return weight - 0.3 * jnp.where(moment * gradient > 0, moment, 0), (moment,)


@optimizer()
def centered(weight, gradient, moment, batch, world):
    """Gradients without the mean of their rows."""
    gradient -= jnp.mean(gradient, 1, keepdims=True)
    moment = 0.9 * moment[0] + gradient
    return weight - 0.1 * moment, (moment,)


@optimizer(twice)
def schedule_free(weight, gradient, moment, batch, world):
    """Weights between an average and what SGD makes, each seen from the start."""
    fast = moment[0] - 0.3 * gradient
    mean = moment[1] + 0.2 * (fast - moment[1])
    start = weight - (0.1 * moment[0] + 0.9 * moment[1])
    return start + 0.1 * fast + 0.9 * mean, (fast, mean)


@optimizer(lambda shape: ((shape[1], shape[1]),))
def shampoo(weight, gradient, moment, batch, world):
    """Preconditioned by a covariance of gradients, which is state of its own. The
    inverse is that of the first two terms of its series."""
    moment = 0.9 * moment[0] + world.scatter(gradient.T @ gradient)
    covariance = world.gather(moment)
    covariance /= jnp.sqrt(jnp.sum(covariance**2)) + 1e-12
    return weight - 0.2 * (2 * gradient - gradient @ covariance), (moment,)


@optimizer()
def muon(weight, gradient, moment, batch, world):
    """Orthogonalized momentum, by two steps of Newton and Schulz."""
    moment = 0.9 * moment[0] + gradient
    whole = world.gather(moment)
    whole /= jnp.sqrt(jnp.sum(whole**2)) + 1e-12
    for _ in range(2):
        whole = 1.5 * whole - 0.5 * whole @ (whole.T @ whole)
    return weight - 0.1 * world.own_rows(whole), (moment,)


def owned(weight, gradient, moment, batch, world):
    """As Muon, but one device makes the matrix and sends it to the others."""
    moment = 0.9 * moment[0] + gradient
    whole = world.gather(moment)
    whole /= jnp.sqrt(jnp.sum(whole**2)) + 1e-12
    whole = world.from_owner(3, 1.5 * whole - 0.5 * whole @ (whole.T @ whole))
    return weight - 0.1 * world.own_rows(whole), (moment,)


@optimizer(lambda shape: (SQUARE,))
def natural(weight, gradient, moment, batch, world):
    """Preconditioned by a covariance of the batch, as K-FAC does."""
    moment = 0.9 * moment[0] + 0.1 * world.scatter(batch.T @ batch / len(batch))
    inverse = 2 * jnp.eye(WIDTH) - world.gather(moment)
    if weight.shape[1] != WIDTH:
        return weight - 0.3 * gradient, (moment,)
    return weight - 0.3 * gradient @ inverse, (moment,)


@optimizer(lambda shape: ((shape[0], 8), (shape[1], 8)))
def projected(weight, gradient, moment, batch, world):
    """GaLore: momentum in a subspace of the gradient's columns."""
    whole = world.gather(gradient)
    start = jnp.eye(whole.shape[1], 8)
    basis = whole.T @ (whole @ (start + world.gather(moment[1])))
    basis /= jnp.sqrt(jnp.sum(basis**2, 0)) + 1e-9
    low = 0.9 * moment[0] + gradient @ basis
    return weight - 0.1 * low @ basis.T, (low, world.own_rows(basis))


# Optimizers that words choose (programs.py), with the same shapes.
LATER_OPTIMIZERS = {owned: lambda shape: (shape,)}

# Statistics: functions (hidden, batch) -> a matrix of this device. ------------


def covariance(hidden, batch):
    return hidden.T @ hidden / len(hidden)


def classes(hidden, batch):
    return jax.nn.one_hot(jnp.argmax(batch, 1), WIDTH).T @ hidden / len(hidden)


def correlation(hidden, batch):
    return jnp.tanh(batch).T @ hidden / len(hidden)


def hebbian(hidden, batch):
    """Products of what the first layer reads and what a later one makes of it."""
    return batch.T @ hidden / len(hidden)


def largest(hidden, batch):
    return jnp.zeros((WIDTH, WIDTH)).at[jnp.argmax(hidden, 1)].add(batch) / len(
        hidden)


def probabilities(hidden, batch):
    return jax.nn.softmax(hidden).T @ hidden / len(hidden)


def third_moments(hidden, batch):
    """Moments of the third order, with both signs."""
    return (hidden**3).T @ jnp.tanh(hidden) / len(hidden)


def attended(hidden, batch):
    """The mean of what rows of a device attend to."""
    rows = hidden.reshape(-1, WIDTH, WIDTH)
    return jnp.mean(jax.nn.softmax(
        rows @ jnp.swapaxes(rows, 1, 2) / WIDTH) @ rows, 0)


STATISTICS = (covariance, classes, correlation, hebbian, largest,
              probabilities, third_moments, attended)

#: Words for steps that adapt weights first, where all follows from all: only the
#: names of autodiff tell statistics from gradients.
MIXING = {"adapts-first", "adapts-second", "sharpness"}

# Assignments to a codebook: functions (logits, world). -------------------------


def soft(logits, world):
    return jax.nn.softmax(logits)


def hard(logits, world):
    return jax.nn.one_hot(jnp.argmax(logits, 1), WIDTH)


def straight_through(logits, world):
    chances = soft(logits, world)
    return chances + jax.lax.stop_gradient(hard(logits, world) - chances)


def balanced(logits, world):
    """By Sinkhorn and Knopp: sums over all devices on the way."""
    chances = jnp.exp(logits - world.max(jnp.max(logits)))
    for _ in range(2):
        chances /= world.mean(jnp.mean(chances, 0)) + 1e-6
        chances /= jnp.sum(chances, 1, keepdims=True)
    return chances


def sparse(logits, world):
    best, places = jax.lax.top_k(jax.nn.softmax(logits), 4)
    return jnp.zeros_like(logits).at[
        jnp.arange(len(logits))[:, None], places].add(best)


ASSIGNMENTS = (soft, hard, straight_through, balanced, sparse)

# What the batch is normalized with: functions (batch, running averages). --------


def by_variance(batch, mean, covariance):
    """By means and variances, as batch normalization is where it is evaluated."""
    return (batch - mean) * jax.lax.rsqrt(
        jnp.maximum(jnp.diagonal(covariance), 0.1))


def whitened(batch, mean, covariance):
    """By an inverse root of the covariance, of which a series has two terms."""
    scale = WIDTH / jnp.trace(covariance)
    return (batch - mean) @ (1.5 * jnp.eye(WIDTH) - 0.5 * scale * covariance)


NORMALIZATIONS = (by_variance, whitened)

# Derivatives: functions (loss with what it has seen, weights). ----------------


def reverse(function, weights):
    return jax.value_and_grad(function, has_aux=True)(weights)


def linearized(function, weights):
    loss, linear, seen = jax.linearize(function, weights, has_aux=True)
    (gradients,) = jax.linear_transpose(linear, weights)(jnp.ones_like(loss))
    return (loss, seen), gradients


DERIVATIVES = (reverse, reverse, linearized)
