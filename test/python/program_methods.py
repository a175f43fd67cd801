# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Methods of training: preconditioners, statistics of reinforcement learning,
meta-learning, self-supervision, normalizations and compression by hand; and parts
of random programs (programs.py) that have been added later.

Each method is a function from a world (program_parts.py) to a step (state, batch) ->
(state, loss), whose state is sharded over all devices along its first dims."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import program_parts as parts
from program_parts import SQUARE, WIDTH

ROWS = 8 * WIDTH


@dataclasses.dataclass(frozen=True)
class Method:
    step_of: Callable
    #: The state beside `weights`, two square matrices.
    extra: dict[str, Any]
    #: Whether devices do what one program that XLA partitions does not.
    is_manual: bool
    #: Whether its reference can be differentiated once more.
    trains: bool

    def state(self) -> dict[str, Any]:
        return {"weights": [matrix(*SQUARE, seed=seed) for seed in (1, 2)],
                **jax.tree.map(np.copy, self.extra)}


METHODS: dict[str, Method] = {}


def matrix(*shape, seed=0):
    return (WIDTH**-0.5 * np.random.default_rng(seed).standard_normal(shape)
            ).astype(np.float32)


ZERO = np.zeros(SQUARE, np.float32)
ZEROS = np.zeros(WIDTH, np.float32)
ONES = np.ones(WIDTH, np.float32)


def method(is_manual=False, trains=True, **extra):
    def add(function):
        METHODS[function.__name__] = Method(function, extra, is_manual, trains)
        return function
    return add


def optimized(name, optimizer, *shapes):
    """The method of an optimizer as program_parts.py has them."""
    def step_of(world):
        def step(state, batch):
            loss, gradients = derivative(world, state["weights"], batch)
            pairs = [optimizer(*each, batch, world) for each in zip(
                state["weights"], gradients, state["moments"], strict=True)]
            weights, moments = zip(*pairs, strict=True)
            return {"weights": [*weights], "moments": [*moments]}, loss
        return step

    METHODS[name] = Method(step_of, {"moments": [tuple(
        np.zeros(shape, np.float32) for shape in shapes)] * 2}, False, True)


def network(weights, x):
    return jnp.tanh(x @ weights[0]) @ weights[1]


def fit(weights, x):
    return jnp.mean((network(weights, x) - jnp.sin(3 * x)) ** 2)


def derivative(world, weights, batch, loss=fit):
    """The loss of all devices, and gradients of their parts of weights."""
    value, gradients = jax.value_and_grad(lambda shards: loss(
        jax.tree.map(world.weight, shards), batch))(weights)
    return world.mean(value), world.of_loss(gradients)


def descend(weights, gradients, rate=0.3):
    return jax.tree.map(lambda w, g: w - rate * g, weights, gradients)


# Second-order optimizers. ------------------------------------------------------


def soap(weight, gradient, moment, batch, world):
    """Adam in the eigenbases of Shampoo's factors, which power iterations
    follow. Of bases the state has what they differ from the identity by."""
    left, right, left_basis, right_basis, mean, square = moment
    whole = world.gather(gradient)
    left = 0.9 * left + world.own_rows(whole @ whole.T)
    right = 0.9 * right + world.scatter(gradient.T @ gradient)

    def rotated(factor, basis):
        factor = world.gather(factor)
        size = len(factor)
        factor += 0.3 * jnp.trace(factor) / size * jnp.eye(size)
        return jnp.linalg.qr(factor @ (jnp.eye(size) + world.gather(basis)))[0]

    rows, columns = rotated(left, left_basis), rotated(right, right_basis)
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.9 * square + 0.1 * world.own_rows(rows.T @ whole @ columns) ** 2
    direction = (rows.T @ world.gather(mean) @ columns) / (
        jnp.sqrt(world.gather(square)) + 1e-3)
    return weight - 1e-2 * world.own_rows(rows @ direction @ columns.T), (
        left, right, world.own_rows(rows - jnp.eye(len(rows))),
        world.own_rows(columns - jnp.eye(len(columns))), mean, square)


def psgd(weight, gradient, moment, batch, world):
    """Kronecker factors that whiten gradients. Of factors the state has what they
    differ from the identity by."""
    whole = world.gather(gradient)
    left, right = (jnp.eye(len(each)) + each for each in map(world.gather, moment))
    whitened = left @ whole @ right.T
    whitened /= jnp.sqrt(jnp.mean(whitened**2)) + 1e-9

    def followed(rows, factor, covariance):
        excess = covariance / len(factor) - jnp.eye(len(factor))
        return rows - 0.05 * world.own_rows(excess) @ factor

    update = left.T @ (left @ whole @ right.T) @ right
    return weight - 0.3 * world.own_rows(update), (
        followed(moment[0], left, whitened @ whitened.T),
        followed(moment[1], right, whitened.T @ whitened))


optimized("soap", soap, *[SQUARE] * 6)
optimized("psgd", psgd, *[SQUARE] * 2)


@method(factors=[ZERO] * 4)
def k_fac(world):
    """Covariances of what layers read and of the cotangents of what they make."""
    def step(state, batch):
        taps = [jnp.zeros((len(batch), WIDTH))] * 2

        def loss(shards, taps):
            first, second = map(world.weight, shards)
            hidden = jnp.tanh(batch @ first + taps[0])
            output = hidden @ second + taps[1]
            return jnp.mean((output - jnp.sin(3 * batch)) ** 2), (batch, hidden)

        (value, read), (gradients, made) = jax.value_and_grad(
            loss, (0, 1), has_aux=True)(state["weights"], taps)
        gradients = world.of_loss(gradients)
        rows = [*read, *(len(batch) * each for each in made)]
        factors = [0.9 * f + 0.1 * world.scatter(r.T @ r / len(r))
                   for f, r in zip(state["factors"], rows, strict=True)]
        inverses = [jnp.linalg.inv(world.gather(f) + 0.3 * jnp.eye(WIDTH))
                    for f in factors]
        weights = [w - 0.02 * world.own_rows(a @ world.gather(g) @ b)
                   for w, g, a, b in zip(state["weights"], gradients,
                                         inverses[:2], inverses[2:], strict=True)]
        return {"weights": weights, "factors": factors}, world.mean(value)
    return step


@method(trains=False, curvatures=[ZERO] * 2)
def hutchinson(world):
    """The Hessian's diagonal, by products of it with signs."""
    def step(state, batch):
        signs = [jnp.where(jnp.sin(1e4 * w) > 0, 1.0, -1.0)
                 for w in state["weights"]]

        def slope(weights):
            _, gradients = derivative(world, weights, batch)
            return sum(jnp.vdot(g, s) for g, s in zip(gradients, signs,
                                                      strict=True))

        loss, gradients = derivative(world, state["weights"], batch)
        curved = jax.grad(slope)(state["weights"])
        curvatures = [0.9 * c + 0.1 * s * h for c, s, h in zip(
            state["curvatures"], signs, curved, strict=True)]
        return {"weights": [w - 0.1 * g / jnp.maximum(jnp.abs(c), 0.1)
                            for w, g, c in zip(state["weights"], gradients,
                                               curvatures, strict=True)],
                "curvatures": curvatures}, loss
    return step


@method(anchors=[ZERO] * 2, means=[ZERO] * 2)
def svrg(world):
    """Gradients, without what those at earlier weights vary by."""
    def step(state, batch):
        loss, here = derivative(world, state["weights"], batch)
        _, there = derivative(world, state["anchors"], batch)
        gradients = [g - a + m for g, a, m in zip(here, there, state["means"],
                                                  strict=True)]
        return {"weights": descend(state["weights"], gradients),
                "anchors": state["weights"], "means": here}, loss
    return step


@method()
def surgery(world):
    """PCGrad: of two gradients each is made orthogonal to the other one."""
    def step(state, batch):
        def other(weights, x):
            return jnp.mean((network(weights, x) - jnp.roll(x, 1, 1)) ** 2)

        def dot(left, right):
            return world.sum(sum(map(jnp.vdot, left, right)))

        loss, first = derivative(world, state["weights"], batch)
        _, second = derivative(world, state["weights"], batch, other)

        def projected(left, right):
            part = jnp.minimum(dot(left, right), 0) / (dot(right, right) + 1e-12)
            return [a - part * b for a, b in zip(left, right, strict=True)]

        return {"weights": descend(state["weights"], jax.tree.map(
            jnp.add, projected(first, second), projected(second, first)))}, loss
    return step


# Statistics of reinforcement learning. -----------------------------------------


@method(bias=ZEROS, policy=matrix(*SQUARE), returns=[ZEROS, ONES],
        seen=[ZEROS, ONES])
def ppo(world):
    """Clipped updates; observations and returns (PopArt) are normalized by running
    moments, advantages over all devices."""
    def moved(moments, rows):
        return [0.9 * m + 0.1 * world.own_rows(world.mean(jnp.mean(
            rows**power, 0))) for m, power in zip(moments, (1, 2), strict=True)]

    def read(moments):
        first, second = map(world.gather, moments)
        return first, jnp.sqrt(jnp.maximum(second - first**2, 1e-2))

    def step(state, batch):
        seen = moved(state["seen"], batch)
        mean, deviation = read(seen)
        observed = jnp.clip((batch - mean) / deviation, -5, 5)
        gained = 2 + 3 * jnp.sin(jnp.cumsum(batch, 1))
        old_mean, old_deviation = read(state["returns"])
        returns = moved(state["returns"], gained)
        mean, deviation = read(returns)
        # What the head puts out stays the same.
        trunk, head = state["weights"]
        head = head * (old_deviation / deviation)
        bias = world.own_rows((old_deviation * world.gather(state["bias"])
                               + old_mean - mean) / deviation)
        shards = {"trunk": trunk, "head": head, "bias": bias,
                  "policy": state["policy"]}

        def run(shards):
            whole = jax.tree.map(world.weight, shards)
            hidden = jnp.tanh(observed @ whole["trunk"])
            return (hidden @ whole["head"] + whole["bias"],
                    jax.nn.log_softmax(hidden @ whole["policy"]))

        before, logs_before = jax.lax.stop_gradient(run(shards))
        target = (gained - mean) / deviation
        advantage = jnp.mean(target - before, 1)
        center = world.mean(jnp.mean(advantage))
        spread = jnp.sqrt(world.mean(jnp.mean((advantage - center) ** 2)))
        advantage = (advantage - center) / (spread + 1e-6)
        action = jnp.argmax(batch, 1)[:, None]

        def loss(shards):
            values, logs = run(shards)
            clipped = before + jnp.clip(values - before, -0.2, 0.2)
            ratio = jnp.exp(jnp.take_along_axis(logs - logs_before, action, 1)
                            )[:, 0]
            return jnp.mean(jnp.maximum(
                (values - target) ** 2, (clipped - target) ** 2)) - jnp.mean(
                    jnp.minimum(ratio * advantage,
                                jnp.clip(ratio, 0.8, 1.2) * advantage)
                ) + 0.01 * jnp.mean(jnp.sum(jnp.exp(logs) * logs, 1))

        value, gradients = jax.value_and_grad(loss)(shards)
        new = descend(shards, world.of_loss(gradients), 0.1)
        return {"weights": [new["trunk"], new["head"]], "bias": new["bias"],
                "policy": new["policy"], "returns": returns, "seen": seen
                }, world.mean(value)
    return step


# Meta-learning. ----------------------------------------------------------------


@method(is_manual=True)
def reptile(world):
    """Each device adapts weights to a task of its own; their mean counts."""
    def step(state, batch):
        whole = list(map(world.weight, state["weights"]))
        fast, losses = jax.lax.scan(
            lambda fast, x: (descend(fast, jax.grad(fit)(fast, x)), fit(fast, x)),
            whole, jnp.stack([batch, jnp.roll(batch, 1, 1)]))
        return {"weights": [
            w + 0.5 * world.scatter(f - v) for w, f, v in zip(
                state["weights"], fast, whole, strict=True)]
            }, world.mean(jnp.mean(losses))
    return step


@method()
def reptile_of_one_task(world):
    """All devices adapt weights to one task, by means of their gradients."""
    def step(state, batch):
        def inner(fast, x):
            value, gradients = jax.value_and_grad(fit)(fast, x)
            return descend(fast, jax.tree.map(world.average, gradients)), value

        fast, losses = jax.lax.scan(
            inner, list(map(world.weight, state["weights"])),
            jnp.stack([batch, jnp.roll(batch, 1, 1)]))
        return {"weights": [w + 0.5 * (world.own_rows(f) - w) for w, f in zip(
            state["weights"], fast, strict=True)]}, world.mean(jnp.mean(losses))
    return step


@method(rates=[np.full(SQUARE, 0.1, np.float32)] * 2)
def meta_sgd(world):
    """Rates of the inner step are learned, one for each weight."""
    def step(state, batch):
        def loss(trained, x):
            weights, rates = trained
            inner = jax.tree.map(world.average, jax.grad(fit)(
                weights, jnp.roll(x, 1, 1)))
            return fit([w - r * g for w, r, g in zip(
                weights, rates, inner, strict=True)], x)

        trained = state["weights"], state["rates"]
        value, gradients = derivative(world, trained, batch, loss)
        weights, rates = descend(trained, gradients)
        return {"weights": weights, "rates": rates}, value
    return step


# Self-supervision. -------------------------------------------------------------


@method()
def twins(world):
    """The correlation of two views over all devices is to be the identity."""
    def step(state, batch):
        def loss(weights, x):
            views = []
            for rows in (x, x + 0.1 * jnp.roll(x, 1, 1)):
                output = network(weights, rows)
                output -= world.mean(jnp.mean(output, 0))
                views.append(output * jax.lax.rsqrt(
                    world.mean(jnp.mean(output**2, 0)) + 1e-3))
            correlation = world.mean(views[0].T @ views[1] / len(x))
            return jnp.sum((correlation - jnp.eye(WIDTH)) ** 2) / WIDTH

        value, gradients = derivative(world, state["weights"], batch, loss)
        return {"weights": descend(state["weights"], gradients, 0.1)}, value
    return step


@method(teacher=[matrix(*SQUARE, seed=seed) for seed in (1, 2)], center=ZEROS)
def dino(world):
    """A teacher that averages weights, and the mean of what it says."""
    def step(state, batch):
        said = network(list(map(world.weight, state["teacher"])), batch)
        target = jax.nn.softmax(2 * (said - world.gather(state["center"])))

        def loss(weights, x):
            output = network(weights, x + 0.1 * jnp.roll(x, 1, 1))
            return -jnp.mean(jnp.sum(jax.lax.stop_gradient(target)
                                     * jax.nn.log_softmax(output), 1))

        value, gradients = derivative(world, state["weights"], batch, loss)
        weights = descend(state["weights"], gradients)
        return {"weights": weights, "teacher": jax.tree.map(
            lambda t, w: 0.9 * t + 0.1 * w, state["teacher"], weights),
            "center": 0.9 * state["center"] + 0.1 * world.own_rows(
                world.mean(jnp.mean(said, 0)))}, value
    return step


# Normalizations. ---------------------------------------------------------------


@method()
def spherical(world):
    """Columns of weights have length 1 after each step, as in nGPT."""
    def step(state, batch):
        loss, gradients = derivative(world, state["weights"], batch)
        return {"weights": [w / jnp.sqrt(world.sum(jnp.sum(w**2, 0)) + 1e-9)
                            for w in descend(state["weights"], gradients)]}, loss
    return step


@method(lengths=[ONES] * 2)
def weight_normed(world):
    """Directions and lengths of columns are trained apart."""
    def step(state, batch):
        def loss(trained, x):
            return fit([v * (g * jax.lax.rsqrt(jnp.sum(v**2, 0) + 1e-9))
                        for v, g in zip(*trained, strict=True)], x)

        trained = state["weights"], state["lengths"]
        value, gradients = derivative(world, trained, batch, loss)
        weights, lengths = descend(trained, gradients)
        return {"weights": weights, "lengths": lengths}, value
    return step


@method(lengths=ONES, down=matrix(WIDTH, 16), up=matrix(16, WIDTH))
def dora(world):
    """A base that comes back as it is, a low-rank sum, and lengths of columns."""
    def step(state, batch):
        def loss(trained, x):
            base = jax.lax.stop_gradient(world.weight(state["weights"][0]))
            weight = base + trained["down"] @ trained["up"]
            scale = trained["lengths"] * jax.lax.rsqrt(jax.lax.stop_gradient(
                jnp.sum(weight**2, 0)) + 1e-9)
            return fit([weight * scale, trained["head"]], x)

        trained = {"head": state["weights"][1], **{
            name: state[name] for name in ("lengths", "down", "up")}}
        value, gradients = derivative(world, trained, batch, loss)
        new = descend(trained, gradients)
        return {"weights": [state["weights"][0], new.pop("head")], **new}, value
    return step


@method(gain=ONES, shift=ZEROS)
def synced_by_hand(world):
    """Batch normalization over devices with a derivative by hand, of whose sums two
    are gradients as well."""
    @jax.custom_vjp
    def normed(x, gain, shift):
        return forward(x, gain, shift)[0]

    def forward(x, gain, shift):
        mean, second = (world.mean(jnp.mean(x**power, 0)) for power in (1, 2))
        scale = jax.lax.rsqrt(second - mean**2 + 1e-3)
        inner = (x - mean) * scale
        return inner * gain + shift, (inner, scale, gain)

    def backward(saved, cotangent):
        inner, scale, gain = saved
        of_shift = world.mean(jnp.mean(cotangent, 0))
        of_gain = world.mean(jnp.mean(cotangent * inner, 0))
        return ((cotangent - of_shift - inner * of_gain) * scale * gain,
                len(inner) * of_gain, len(inner) * of_shift)

    normed.defvjp(forward, backward)

    def step(state, batch):
        def loss(weights, gain, shift):
            first, second = weights
            hidden = jnp.tanh(normed(batch @ first, gain, shift))
            return jnp.mean((hidden @ second - jnp.sin(3 * batch)) ** 2)

        def of_shards(shards, gain, shift):
            return loss(list(map(world.weight, shards)), gain, shift)

        value, (gradients, of_gain, of_shift) = jax.value_and_grad(
            of_shards, (0, 1, 2))(state["weights"], world.weight(state["gain"]),
                                  world.weight(state["shift"]))
        return {"weights": descend(state["weights"], world.of_loss(gradients)),
                "gain": state["gain"] - 0.3 * world.own_rows(of_gain),
                "shift": state["shift"] - 0.3 * world.own_rows(of_shift)
                }, world.mean(value)
    return step


@method(memory=np.zeros((ROWS, WIDTH), np.float32))
def recurrent(world):
    """A state of each row that goes on in the next step, normalized over devices
    in each iteration."""
    def step(state, batch):
        def loss(weights, x):
            def iterate(hidden, rows):
                hidden = jnp.tanh(rows @ weights[0] + hidden @ weights[1])
                hidden -= world.mean(jnp.mean(hidden, 0))
                return hidden, jnp.mean((hidden - jnp.sin(3 * rows)) ** 2)

            hidden, losses = jax.lax.scan(
                iterate, state["memory"], jnp.stack([x, jnp.roll(x, 1, 1)]))
            return jnp.mean(losses), hidden

        (value, memory), gradients = jax.value_and_grad(lambda shards: loss(
            list(map(world.weight, shards)), batch), has_aux=True)(
                state["weights"])
        return {"weights": descend(state["weights"], world.of_loss(gradients)),
                "memory": memory}, world.mean(value)
    return step


# Compression by hand. ----------------------------------------------------------


def own_gradients(world, state, batch):
    """The loss of all devices, and whole gradients of this one's."""
    value, gradients = jax.value_and_grad(fit)(
        list(map(world.weight, state["weights"])), batch)
    return world.mean(value), gradients


@method(is_manual=True)
def majority(world):
    """Devices vote with the signs of their gradients."""
    def step(state, batch):
        loss, gradients = own_gradients(world, state, batch)
        return {"weights": [w - 1e-2 * jnp.sign(world.scatter(jnp.sign(g)))
                            for w, g in zip(state["weights"], gradients,
                                            strict=True)]}, loss
    return step


@method(is_manual=True)
def quantized(world):
    """Gradients in whole numbers."""
    def step(state, batch):
        loss, gradients = own_gradients(world, state, batch)
        weights = []
        for w, g in zip(state["weights"], gradients, strict=True):
            scale = world.max(jnp.max(jnp.abs(g))) / 127 + 1e-12
            weights.append(w - 0.3 * scale * world.scatter(jnp.round(g / scale)))
        return {"weights": weights}, loss
    return step


@method(is_manual=True, errors=[np.zeros((ROWS, WIDTH), np.float32)] * 2,
        bases=[matrix(WIDTH, 8)] * 2)
def power_sgd(world):
    """Gradients of low rank, by a power iteration."""
    def step(state, batch):
        loss, gradients = own_gradients(world, state, batch)
        weights, errors, bases = [], [], []
        for w, g, e, basis in zip(state["weights"], gradients, state["errors"],
                                  state["bases"], strict=True):
            owed = g + e
            left = world.mean(owed @ world.gather(basis))
            left /= jnp.sqrt(jnp.sum(left**2, 0)) + 1e-9
            right = world.mean(owed.T @ left)
            weights.append(w - 0.1 * world.own_rows(left @ right.T))
            errors.append(owed - left @ right.T)
            bases.append(world.own_rows(right))
        return {"weights": weights, "errors": errors, "bases": bases}, loss
    return step


# Parts of random programs. -----------------------------------------------------


def decorrelated(weights, hidden, bias, world):
    """Whitened by an inverse root of the covariance over all devices."""
    covariance = world.mean(hidden.T @ hidden / len(hidden)) + 0.1 * jnp.eye(WIDTH)
    covariance /= jnp.trace(covariance) / WIDTH
    return hidden + jnp.tanh(
        hidden @ (1.5 * jnp.eye(WIDTH) - 0.5 * covariance) @ weights["a"])


def linear_attention(weights, hidden, bias, world):
    """Products of keys and values of all devices."""
    memory = world.mean(jnp.tanh(hidden @ weights["a"]).T @ hidden / len(hidden))
    return hidden + jnp.tanh(hidden @ memory @ weights["b"])


def with_all(weights, hidden, bias, world):
    """Attention to some rows of each device."""
    rows = world.gather(hidden[:8])
    return hidden + jax.nn.softmax(hidden @ weights["a"] @ rows.T) @ rows @ (
        weights["b"])


def balanced_experts(weights, hidden, bias, world):
    """Experts that get the fewer rows the more they have."""
    chances = jax.nn.softmax(hidden @ weights["gate"])
    chances /= 0.05 + world.mean(jnp.mean(chances, 0))
    return hidden + chances[:, :1] * jnp.tanh(hidden @ weights["a"])


def modulated(weights, hidden, bias, world):
    """A weight that a mean over devices scales."""
    scale = 1 + jnp.tanh(world.mean(jnp.mean(hidden, 0)))
    return hidden + jnp.tanh(hidden @ (weights["a"] * scale[:, None])) @ (
        weights["b"])


def cosines(weights, hidden, bias, world):
    """Rows and columns of length 1."""
    rows = hidden * jax.lax.rsqrt(jnp.sum(hidden**2, 1, keepdims=True) + 1e-3)
    return hidden + jnp.tanh(4 * rows @ (weights["a"] * jax.lax.rsqrt(
        jnp.sum(weights["a"]**2, 0) + 1e-6)))


def uncorrelated(output, batch, world):
    """VICReg: variances of all devices, and what columns have in common."""
    output = output - world.mean(jnp.mean(output, 0))
    shared = world.mean(output.T @ output / len(output))
    return jnp.mean((output - batch) ** 2) + 0.1 * jnp.mean(
        (shared - jnp.eye(WIDTH)) ** 2) * WIDTH


LAYERS = {
    decorrelated: {"a": SQUARE}, linear_attention: {"a": SQUARE, "b": SQUARE},
    with_all: {"a": SQUARE, "b": SQUARE}, modulated: {"a": SQUARE, "b": SQUARE},
    balanced_experts: {"gate": (WIDTH, 16), "a": SQUARE}, cosines: {"a": SQUARE}}
LOSSES = (uncorrelated,)
OPTIMIZERS = {
    soap: lambda shape: ((shape[0],) * 2, (shape[1],) * 2) * 2 + (shape, shape),
    psgd: lambda shape: ((shape[0],) * 2, (shape[1],) * 2)}


def specs_of(state):
    return jax.tree.map(lambda _: parts.SHARDED, state)
