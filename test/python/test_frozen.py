# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""frozen=keep: weights that the step does not change are sent once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_forms as forms
import zpp
from startwait import needs_library
from training import ALL_ON, NODES, OFF, kept_arrays, same_bits
from zpp.jax import _state

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:expected a step with")]

OPTIONS = {**ALL_ON, "mesh": NODES, "target": "portable",
           "tuning": {"block": 32}}
KEEP = {**OPTIONS, "frozen": "keep"}
WIDTH, RANK, LAYERS = forms.WIDTH, 16, 2


def adapted(frozen, adapter, x):
    """A layer with a LoRA that is not merged."""
    left, right = map(forms.gather, adapter)
    return jnp.tanh(x @ forms.gather(frozen) + x @ left @ right)


def layers(frozen, adapters, x):
    for pair in zip(frozen, adapters, strict=True):
        x = jax.checkpoint(adapted)(*pair, x)
    return forms.mean(x)


def scan(frozen, adapters, x):
    x, _ = jax.lax.scan(
        lambda x, pair: (jax.checkpoint(adapted)(*pair, x), None), x,
        (frozen, adapters))
    return forms.mean(x)


def make_step(loss, spec):
    def local(state, x):
        value, gradients = jax.value_and_grad(loss, 1)(
            state["frozen"], state["adapters"], x)
        return {"frozen": state["frozen"], "adapters": forms.update(
            state["adapters"], gradients)}, value

    return forms.shard(local, (spec, forms.BATCH), (spec, forms.P()))


STEPS = {"layers": make_step(layers, forms.WEIGHT),
         "scan": make_step(scan, forms.STACK)}


def inputs(form="layers"):
    def weight(*shape):
        return forms.array(shape, forms.WEIGHT)

    def stack(*shape):
        return forms.array((LAYERS, *shape), forms.STACK)

    if form == "scan":
        state = {"frozen": stack(WIDTH, WIDTH),
                 "adapters": (stack(WIDTH, RANK), stack(RANK, WIDTH))}
    else:
        state = {"frozen": [weight(WIDTH, WIDTH) for _ in range(LAYERS)],
                 "adapters": [(weight(WIDTH, RANK), weight(RANK, WIDTH))
                              for _ in range(LAYERS)]}
    return state, forms.array((16, WIDTH), forms.BATCH)


def train(fast, form="layers", steps=3):
    state, batch = inputs(form)
    losses = []
    for _ in range(steps):
        state, loss = fast(state, batch)
        losses.append(np.asarray(loss))
    return state, losses


@pytest.fixture(name="taken")
def record_taken(monkeypatch):
    """How many arrays each call goes on from."""
    counts = []
    take = _state.Keeper.take

    def record(self, *arguments):
        kept = take(self, *arguments)
        counts.append(len(kept))
        return kept

    monkeypatch.setattr(_state.Keeper, "take", record)
    return counts


@pytest.mark.matrix
@pytest.mark.parametrize("form", STEPS)
@pytest.mark.parametrize("target", [
    "portable", pytest.param("cpu", marks=needs_library)])
def test_the_same_bits_with_less_bytes(form, target, taken):
    options = {"target": target, "donate_argnums": 0}
    fast = zpp.jit(STEPS[form], **KEEP | options)
    plain = zpp.jit(STEPS[form], **OPTIONS | options)
    assert same_bits(train(fast, form), train(plain, form))
    kept, sent = fast.report(), plain.report()
    frozen = [entry for entry in kept["collectives"]
              if entry["role"] == "weight"
              and entry["before"]["node"] >= (WIDTH * WIDTH // 8) * 2]
    assert frozen and all(entry["after"]["node"] == 0 for entry in frozen)
    assert kept["total"]["before"] == sent["total"]["before"]
    assert (sent["total"]["after"]["node"] - kept["total"]["after"]["node"]
            == LAYERS * (WIDTH * WIDTH // 8 + WIDTH * WIDTH // 8 // 32 * 2))
    # Encoded as they are sent: a quarter, per device.
    assert kept["total"]["state_bytes"] == LAYERS * (
        WIDTH * WIDTH // 4 // 32 * (32 + 2))
    assert taken == [0] + 2 * [LAYERS if form == "layers" else 1]
    # It follows from the weights.
    assert fast.state is None


def test_what_the_step_quantizes_itself():
    """A frozen base that is gathered in fp8, with a scale of the largest element: it is
    kept as it was sent, in fp8."""
    def loss(frozen, adapters, x):
        for base, pair in zip(frozen, adapters, strict=True):
            left, right = map(forms.gather, pair)
            x = jnp.tanh(x @ forms.gather_as_fp8(base) + x @ left @ right)
        return forms.mean(x)

    options = {**OFF, "mesh": NODES, "target": "portable", "secondary": "gpu"}
    step = make_step(loss, forms.WEIGHT)
    fast = zpp.jit(step, **options, frozen="keep")
    assert same_bits(train(fast), train(jax.jit(step)))
    base = [entry for entry in fast.report()["collectives"]
            if entry["role"] == "weight"
            and entry["before"]["node"] == WIDTH * WIDTH // 8]
    assert len(base) == LAYERS and all(entry["after"]["node"] == 0 for entry in base)
    assert fast.report()["total"]["state_bytes"] == LAYERS * WIDTH * WIDTH // 4


def test_a_gated_layer_that_xla_partitions():
    """XLA makes a quotient with an exponential function of the gate."""
    def step(base, adapter, x):
        def loss(adapter):
            y = x
            for (gate, up, down), (left, right) in zip(base, adapter, strict=True):
                hidden = jax.nn.silu(y @ gate) * (y @ up)
                y = jax.lax.with_sharding_constraint(
                    y + hidden @ down + y @ left @ right,
                    jax.NamedSharding(forms.MESH, forms.BATCH))
            return jnp.mean(y**2)

        return forms.update(adapter, jax.grad(loss)(adapter))

    base = [[forms.array((WIDTH, WIDTH), forms.WEIGHT) + 0.01 * n for n in range(3)]
            for _ in range(LAYERS)]
    adapter = [[forms.array(shape, forms.P()) for shape in ((WIDTH, 4), (4, WIDTH))]
               for _ in range(LAYERS)]
    gathers = [entry for entry in zpp.rewrite(zpp.export(
        jax.jit(step), base, adapter, forms.array((64, WIDTH), forms.BATCH)),
        **KEEP).report["collectives"] if entry["kind"] == "all_gather"]
    assert len(gathers) >= 3 * LAYERS
    assert [entry["reason"] for entry in gathers if entry["after"]["node"]] == []


def test_other_weights_are_sent(taken):
    fast = zpp.jit(STEPS["layers"], **KEEP)
    fresh = zpp.jit(STEPS["layers"], **KEEP)
    state, batch = inputs()
    first, _ = fast(state, batch)
    # The same arrays need not be results.
    fast({**first, "frozen": state["frozen"]}, batch)
    changed = {**first, "frozen": [state["frozen"][0],
                                   state["frozen"][1] + 1]}
    assert same_bits(fast(changed, batch), fresh(changed, batch))
    assert taken == [0, LAYERS, 0, 0]


@pytest.mark.slow
def test_with_differences(tmp_path, taken, recwarn):
    """Only the adapters have differences, and only these are to be saved. Frozen
    weights, which do not cross the nodes at all, lack nothing."""
    options = KEEP | {"weights": "i4:delta"}
    fast = zpp.jit(STEPS["layers"], **options)
    state, batch = inputs()
    state, _ = fast(state, batch)
    state, _ = fast(state, batch)
    assert sorted(kept_arrays(fast)) == sorted(
        f"{kind}.{number}" for kind in ("own", "held")
        for number in range(2 * LAYERS))
    everything = 2 * 2 * LAYERS + LAYERS
    assert taken == [0, everything]
    saved = jax.tree.map(lambda leaf: leaf.copy(), (state, fast.state))
    expected = fast(state, batch)

    zpp.save(zpp.rewrite(zpp.export(jax.jit(STEPS["layers"]), *inputs()),
                         **options), tmp_path / "step.zpp")
    for other in (zpp.jit(STEPS["layers"], **options), zpp.load(tmp_path / "step.zpp")):
        del taken[:]
        restored, other.state = jax.tree.map(lambda leaf: leaf.copy(), saved)
        results = other(restored, batch)
        assert same_bits(results, expected)
        assert same_bits(other.state, fast.state)
        other(results[0], batch)
        # The first time with the array that says of which mesh the state is.
        assert taken == [2 * 2 * LAYERS + 1, everything]
    assert not [each for each in recwarn if "of the bytes" in str(each.message)]


def test_a_state_is_not_given_to_what_has_none():
    fast = zpp.jit(STEPS["layers"], **KEEP)
    fast.state = {"own.0": jnp.zeros(8)}
    with pytest.raises(ValueError, match="state: expected 0 arrays, none, but "
                       "got own.0; it is of another step"):
        fast(*inputs())


def test_options():
    with pytest.raises(zpp.CompileError, match="expected a secondary partition "
                       "with frozen=keep"):
        zpp.jit(STEPS["layers"], **KEEP | {"secondary": "none"})(*inputs())
    with pytest.raises(ValueError, match="frozen: expected"):
        zpp.Options(frozen="yes")
