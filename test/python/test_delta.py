# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""weights=i4:delta: what devices hold of each other's weights, from step to
step."""

import functools
import json
import warnings

import blockquant
import gpt
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_forms as forms
import zpp
from startwait import needs_library
from training import NODES, OFF, same_bits, tokens
from zpp import _effects
from zpp._compiler import Rewritten
from zpp.jax import _state

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:expected a step with")]

OPTIONS = {**OFF, "mesh": NODES, "weights": "i4:delta", "secondary": "gpu"}
FORM = forms.FORMS["chain"]


def started(**options):
    """The step, its first state and a batch."""
    fast = zpp.jit(FORM.step, **{"target": "portable", **OPTIONS, **options})
    state = jax.tree.map(lambda leaf: forms.array(*leaf), FORM.state,
                         is_leaf=forms.is_leaf)
    return fast, state, forms.array((16, forms.WIDTH), forms.BATCH)


def bits(array):
    return np.asarray(array).view(np.uint16)


def check_equal_copies(kept):
    """Own parts lie in the order of the slices; a node holds, per GPU, the
    slices of that GPU of all nodes."""
    for number in range(len(kept) // 2):
        own = bits(kept[f"own.{number}"]).reshape(2, 4, -1)
        held = bits(kept[f"held.{number}"]).reshape(2, 4, 2, -1)
        for node in range(2):
            np.testing.assert_array_equal(
                held[node], own.transpose(1, 0, 2))


def errors(weight, own):
    """Errors of what is held, and of what plain int8 sends, relative to the weight in
    bf16."""
    exact = np.asarray(weight).astype(jnp.bfloat16).astype(np.float32)
    held = np.asarray(own).astype(np.float32).reshape(exact.shape)
    plain = np.concatenate([
        blockquant.transport(part, "i8", 128).astype(jnp.bfloat16).astype(
            np.float32) for part in np.split(exact.reshape(-1), 8)])
    norm = np.linalg.norm(exact) or 1.0
    return (np.linalg.norm(held - exact) / norm,
            np.linalg.norm(plain.reshape(exact.shape) - exact) / norm)


def test_a_thousand_steps():
    """All devices hold equal copies, and errors stay below those of int8."""
    fast, state, batch = started()
    for step in range(1000):
        before = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
        state, loss = fast(state, batch)
        if step < 20 or step % 100 == 99:
            check_equal_copies(fast.state)
            for number, weight in enumerate(before):
                held, plain = errors(weight, fast.state[f"own.{number}"])
                assert held < plain, step
    assert np.isfinite(np.asarray(loss)).all()


@pytest.mark.slow
def test_errors_in_the_training_of_a_gpt():
    """With Adam: after the first step, what is held of every matrix is nearer to
    it than what int8 would send. (What begins at zero changes by all of itself at
    first.)"""
    trainer = gpt.Trainer(gpt.Config(layers=1, width=64, heads=2, vocab=64,
                                     context=8, checkpoint="policy"))
    fast = zpp.jit(trainer.step, **{
        **OPTIONS, "target": "portable", "gradients": "i8:i4"})
    state = trainer.init()
    for step in range(12):
        before = [np.asarray(leaf) for leaf in jax.tree.leaves(state["params"])]
        state, _ = fast(state, trainer.batch(tokens(trainer.config, step)))
        check_equal_copies(fast.state)
        for number in range(len(fast.state) // 2):
            own = fast.state[f"own.{number}"]
            found = [errors(weight, own) for weight in before
                     if weight.size == own.size and weight.ndim > 1]
            if not found:
                continue
            held, plain = min(found)
            assert held < plain if step else held == 0, (step, number)


def test_bytes_and_the_first_step():
    fast, state, batch = started()
    fast(state, batch)
    before = [np.asarray(leaf).astype(jnp.bfloat16).reshape(-1)
              for leaf in jax.tree.leaves(state)]
    # Whole weights were sent.
    for number, weight in enumerate(before):
        assert same_bits(np.asarray(fast.state[f"own.{number}"]), weight)
    report = fast.report()
    # Two matrices in bf16: an eighth of each, and a quarter of each.
    assert report["total"]["state_bytes"] == 2 * (
        forms.WIDTH**2 * 2 // 8 + forms.WIDTH**2 * 2 // 4)
    slices = forms.WIDTH * forms.WIDTH // 8
    assert sum(entry["after"]["node"] for entry in report["collectives"]
               if entry["role"] == "weight") == 2 * blockquant.chunk_bytes(
                   slices, "i4", 128)
    assert all(entry["after"]["node"] == 0 for entry in report["collectives"]
               if entry["role"] == "weight" and entry["phase"] == "backward")


def test_batches_of_several_sizes_share_the_state(monkeypatch):
    counts = []
    take = _state.Keeper.take

    def record(*arguments):
        kept = take(*arguments)
        counts.append(len(kept))
        return kept

    monkeypatch.setattr(_state.Keeper, "take", record)
    fast, state, _ = started()
    for rows in (16, 8, 16, 8, 8):
        held = {name: np.asarray(array)
                for name, array in (fast.state or {}).items()}
        before = jax.tree.leaves(state)
        state, _ = fast(state, forms.array((rows, forms.WIDTH), forms.BATCH))
        check_equal_copies(fast.state)
        for number, weight in enumerate(before):
            if held:
                # Differences have arrived; whole weights would be exact.
                assert not same_bits(
                    np.asarray(fast.state[f"own.{number}"]),
                    np.asarray(weight).astype(jnp.bfloat16).reshape(-1))
    assert counts == [0, 4, 4, 4, 4]


def test_restored_weights_are_sent_whole():
    fast, state, batch = started()
    for _ in range(3):
        state, _ = fast(state, batch)
    others = jax.tree.map(lambda leaf: leaf + 1, state)
    fast(others, batch)
    for number, weight in enumerate(jax.tree.leaves(others)):
        assert same_bits(np.asarray(fast.state[f"own.{number}"]),
                         np.asarray(weight).astype(jnp.bfloat16).reshape(-1))


def test_weights_that_were_not_finite():
    """A step that finds its loss so takes weights that it has kept. What is held is
    finite again, too."""
    def step(state, batch):
        def loss_of(weights):
            y = functools.reduce(lambda y, w: forms.layer(w, y), weights, batch)
            return jnp.mean((y - jnp.cos(batch)) ** 2)

        weights, kept = state
        loss, gradients = jax.value_and_grad(loss_of)(weights)
        loss = jax.lax.pmean(loss, forms.AXES)
        weights = [jnp.where(jnp.isfinite(loss), w - 0.1 * g, k) for w, g, k in
                   zip(weights, gradients, kept, strict=True)]
        # A batch of zeros is what spoils them.
        largest = jax.lax.pmax(jnp.max(jnp.abs(batch)), forms.AXES)
        return ([jnp.where(largest == 0, jnp.inf, w) for w in weights], kept), loss

    step = jax.shard_map(step, mesh=forms.MESH, in_specs=(forms.WEIGHT, forms.BATCH),
                         out_specs=(forms.WEIGHT, forms.P()), check_vma=False)
    weights = [forms.array((forms.WIDTH, forms.WIDTH), forms.WEIGHT)] * 2
    batch = forms.array((16, forms.WIDTH), forms.BATCH)
    found = []
    for run in (jax.jit(step), zpp.jit(step, target="portable", **OPTIONS)):
        state, losses = (weights, weights), []
        for number in range(7):
            state, loss = run(state, 0 * batch if number == 1 else batch)
            losses.append(float(loss))
        found.append(losses)
    assert np.isnan(found[0]).tolist() == [False, False, True, *[False] * 4]
    np.testing.assert_allclose(*found, rtol=1e-2)


@pytest.mark.parametrize("calls", [1, 3])
def test_a_part_of_restored_weights_is_sent_whole(calls, monkeypatch):
    """The rest are results of the latest call."""
    taken = []
    take = _state.Keeper.take
    monkeypatch.setattr(_state.Keeper, "take", lambda *arguments: taken.append(
        take(*arguments)) or taken[-1])
    fast, state, batch = started()
    for _ in range(calls):
        state, _ = fast(state, batch)
    leaves, tree = jax.tree.flatten(state)
    others = jax.tree.unflatten(tree, [leaves[0] + 1, *leaves[1:]])
    state, _ = fast(others, batch)
    assert same_bits(np.asarray(fast.state["own.0"]),
                     np.asarray(leaves[0] + 1).astype(jnp.bfloat16).reshape(-1))
    fast(state, batch)
    assert [len(kept) for kept in taken] == [0, *[4] * (calls - 1), 0, 4]


def test_weights_of_another_step_are_sent_by_difference(monkeypatch):
    """A step for each of two networks: whole weights are sent until it shows that
    arguments come from elsewhere. An array that stays is no other weight."""
    taken = []
    take = _state.Keeper.take
    monkeypatch.setattr(_state.Keeper, "take", lambda *arguments: taken.append(
        take(*arguments)) or taken[-1])
    for is_changed, expected in ((True, [0, 0, 4, 4]), (False, [0, 4, 4, 4])):
        taken.clear()
        fast, (own, other), batch = started()
        other = jax.device_put(other)
        for _ in range(4):
            (own, _), _ = fast([own, other], batch)
            other = other + 0 if is_changed else other
        assert [len(kept) for kept in taken] == expected


def test_nodes_of_one_device_hold_whole_weights():
    """Without an option: their fastest tier has nobody to share with."""
    fast, state, batch = started(mesh="host:8,device:1", secondary=None)
    state, _ = fast(state, batch)
    assert set(fast.state) == {
        "own.0", "held.0", "own.1", "held.1", "mesh"}
    assert fast.state["held.0"].size == 8 * forms.WIDTH**2
    fast(state, batch)


def test_no_weight_with_differences_is_a_warning():
    for options in ({"mesh": "all:8", "secondary": None}, {"secondary": 8}):
        fast, state, batch = started(**options)
        with pytest.warns(UserWarning, match="weights=i4:delta: of the bytes of "
                          "weights, none have differences; its group lies within the secondary "
                          "group of 8; secondary=N with N below 8 keeps it; docs/why.md says"):
            fast(state, batch)
        assert fast.state is None


def entry(role, size, *gets, number=0, reason="", sent=1, floor=""):
    kind = "all_gather" if role == "weight" else "reduce_scatter"
    return {"kind": kind, "role": role, "rule": "R4", "reason": reason,
            "rewritten": not reason,
            "before": {"node": size}, "after": {"node": sent}, "weight": number,
            "weight_bytes": size, "gets": list(gets), "floor": floor, "lacks": {},
            "slower": bool(reason)}


@pytest.mark.parametrize("entries, part", [
    ([], 0),
    # The gather of the backward pass is of the same weight.
    ([entry("weight", 6, "differences"), entry("weight", 6),
      entry("weight", 4, "secondary", number=1)], 0.4),
    # What does not pay, and what is not sent any more, is not missed.
    ([entry("weight", 6, reason="on these links it takes 5 usec"),
      entry("weight", 3, number=3, floor="none"),
      entry("weight", 5, number=1, sent=0),
      entry("weight", 4, "differences", number=2), entry("gradient", 9)], 0)])
def test_the_part_that_an_option_misses(entries, part):
    result = Rewritten("", {"collectives": entries}, ())
    assert _effects.missing_part(
        result, "weight", "differences", ["node"]) == part


def test_what_does_not_cross_a_slower_tier_misses_nothing():
    result = Rewritten("", {"collectives": [entry("weight", 6)]}, ())
    for tiers, part in ((["node"], 1), (["gpu", "node"], 1), (["gpu"], 0)):
        assert _effects.missing_part(
            result, "weight", "differences", tiers) == part


def test_an_option_that_most_weights_do_not_get_is_a_warning(monkeypatch, recwarn):
    """By the bytes of the weights."""
    for sizes, expected in (((4, 6), True), ((6, 4), False)):
        first, second = sizes
        result = Rewritten("", {"tiers": ["node"], "collectives": [
            entry("weight", first, "differences"),
            {**entry("weight", second, number=1), "lacks": {"differences": "a reason"}}]},
            ())
        recwarn.clear()
        _effects.warn_of_no_effect(result, zpp.Options(weights="i4:delta"))
        assert [str(each.message) for each in recwarn] == [
            "weights=i4:delta: of the bytes of weights, only 40% have differences; "
            "a reason; docs/why.md says of each reason what helps"] * expected


def test_the_report_says_what_each_weight_gets():
    fast, state, batch = started()
    fast(state, batch)
    gets = {}
    for each in fast.report()["collectives"]:
        if each["role"] == "weight":
            gets.setdefault(each["weight"], set()).update(each["gets"])
    assert len(gets) == 2
    assert all(words == {"secondary", "differences"} for words in gets.values())


def test_a_saved_state_continues():
    fast, state, batch = started()
    for _ in range(3):
        state, _ = fast(state, batch)
    saved = jax.tree.map(lambda leaf: leaf.copy(), (state, fast.state))
    state, _ = fast(state, batch)
    resumed, _, _ = started()
    restored, resumed.state = saved
    restored, _ = resumed(restored, batch)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(
        np.asarray(a), np.asarray(b)), (state, fast.state),
        (restored, resumed.state))


def test_a_state_of_another_step_is_refused():
    fast, state, batch = started()
    state, _ = fast(state, batch)
    good = dict(fast.state)
    fast.state = {"own.0": good["own.0"]}
    with pytest.raises(ValueError, match=r"state: expected 5 arrays, own.0, "
                       r"held.0, own.1, held.1, mesh, but got own.0; it is of "
                       r"another step or of other options. Set it to None to send whole weights once"):
        fast(state, batch)
    fast.state = {**good, "held.1": good["own.0"]}
    with pytest.raises(ValueError, match=r"state: expected 'held.1' of "
                       r"bfloat16\[8192\], but got bfloat16\[4096\]; it is of "
                       r"another mesh or format"):
        fast(state, batch)
    fast.state = {**good, "own.0": jnp.zeros(4096, jnp.bfloat16)}
    with pytest.raises(ValueError, match="expected 'own.0' sharded over all "
                       "devices of the mesh"):
        fast(state, batch)
    fast.state = {**good, "own.0": np.zeros(4096, jnp.bfloat16)}
    with pytest.raises(TypeError, match="expected 'own.0' as an array of JAX, "
                       "sharded over all devices of the mesh, but got ndarray. "
                       "Place it with jax.device_put as "):
        fast(state, batch)
    # Of two steps: devices would never agree on the weights again.
    saved = jax.tree.map(lambda leaf: leaf.copy(), good)
    fast.state = good
    fast(state, batch)
    fast.state, later = good, fast.state
    with pytest.raises(ValueError, match="expected 'own.0', but a call has used "
                       "it up; state is donated. Copy it before the call"):
        fast(state, batch)
    fast.state = {**saved, "held.1": later["held.1"]}
    with pytest.raises(ValueError, match="expected 'held.1' as copies of "
                       "'own.1', but got other values; they are of different "
                       "steps. Restore all arrays of one step"):
        fast(state, batch)
    fast.state = None
    fast(state, batch)


@functools.cache
def on_devices(dim, nodes, gpus, axes=("node", "gpu")):
    """The step of a GPT on so many devices, and its trainer. Matrices are
    partitioned along `dim`."""
    sizes = {"node": nodes, "gpu": gpus}
    trainer = gpt.Trainer(gpt.Config(
        layers=1, width=64, heads=2, vocab=64, context=8, checkpoint="policy",
        gather_dim=dim, mesh=tuple((axis, sizes[axis]) for axis in axes)))
    return zpp.jit(trainer.step, **{
        **OPTIONS, "target": "portable", "mesh": sizes}), trainer


def train_on(fast, trainer, state, steps):
    losses = []
    for step in steps:
        state, loss = fast(state, trainer.batch(tokens(trainer.config, step)))
        losses.append(float(loss))
    return state, losses


def shapes_of(fast, trainer):
    return fast.rewritten(trainer.init(), trainer.batch(
        tokens(trainer.config, 0))).step.state.shapes


def restore(path, shapes):
    """A state that was saved as numbers, placed as `shapes` says."""
    with np.load(path) as saved:
        return {name: jax.device_put(array.view(shapes[name].dtype),
                                     shapes[name].sharding)
                for name, array in saved.items()}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """By dim, a training on 2 x 4 devices: the state that was saved, the
    weights and moments, and the losses after that."""
    @functools.cache
    def train(dim):
        path = tmp_path_factory.mktemp("saved") / "state.npz"
        fast, trainer = on_devices(dim, 2, 4)
        state, _ = train_on(fast, trainer, trainer.init(), range(4))
        np.savez(path, **fast.state)
        saved = jax.tree.map(np.asarray, state)
        return path, saved, train_on(fast, trainer, state, range(4, 8))[1]

    return train


def placed(saved, trainer):
    """Weights and moments on the devices of the trainer."""
    return jax.tree.map(
        lambda array, like: jax.device_put(array, like.sharding), saved,
        trainer.init())


@pytest.mark.parametrize("dim, nodes, gpus, axes", [
    (1, 4, 2, ("node", "gpu")),
    *(pytest.param(0, 2, *rest, marks=pytest.mark.slow) for rest in (
        (2, ("node", "gpu")), (4, ("gpu", "node"))))], ids=str)
def test_a_state_of_another_mesh_is_redistributed(
        interrupted, monkeypatch, dim, nodes, gpus, axes):
    """A training goes on with other devices as if it had not stopped, and sends
    no whole weights."""
    path, saved, expected = interrupted(dim)
    fast, trainer = on_devices(dim, nodes, gpus, axes)
    restored = placed(saved, trainer)
    fast.state = restore(path, shapes_of(fast, trainer))
    taken, take = [], _state.Keeper.take

    def watch(*given):
        arrays = take(*given)
        taken.append({name: array.copy() for name, array in arrays.items()})
        return arrays

    monkeypatch.setattr(_state.Keeper, "take", watch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, losses = train_on(fast, trainer, restored, range(4, 8))
    np.testing.assert_allclose(losses, expected, rtol=2e-3)
    assert all(kept.keys() == taken[0].keys() for kept in taken)
    check_parts(taken[0], jax.tree.leaves(restored["params"]), nodes, gpus, axes)


def check_parts(kept, weights, nodes, gpus, axes):
    """Each device holds of itself its part of a weight, as it was before the last
    update, and of its peers in other nodes the same bits as they do."""
    def parts(array):
        found = [np.asarray(shard.data) for shard in sorted(
            array.addressable_shards, key=lambda shard: shard.device.id)]
        counts = [{"node": nodes, "gpu": gpus}[axis] for axis in axes]
        order = np.arange(len(found)).reshape(counts)
        return [[found[device] for device in row] for row in (
            order if axes[0] == "node" else order.T)]

    def is_almost(own, weight):
        exact = np.asarray(weight).astype(np.float32).ravel()
        return own.size == exact.size and np.linalg.norm(
            own.astype(np.float32) - exact) < 0.5 * np.linalg.norm(exact)

    wholes = [(weight.shape, parts(weight)) for weight in weights]
    for number in range(len(kept) // 2):
        own, held = (parts(kept[f"{kind}.{number}"]) for kind in ("own", "held"))
        shape, weight = next(
            (shape, weight) for shape, weight in wholes
            if is_almost(own[0][0], weight[0][0]))
        local = weight[0][0].shape
        split = [whole != part for whole, part in zip(
            shape, local, strict=True)].index(True)
        for node in range(nodes):
            for gpu in range(gpus):
                assert is_almost(own[node][gpu], weight[node][gpu])
                np.testing.assert_array_equal(
                    bits(held[node][gpu]), bits(np.concatenate(
                        [own[other][gpu].reshape(local)
                         for other in range(nodes)], axis=split).ravel()))


def test_a_state_of_another_mesh_is_dropped_with_a_warning(interrupted):
    """Where it does not say which parts it has, as one that an older version
    saved, or its weights are others."""
    path, _, _ = interrupted(0)
    fast, trainer = on_devices(0, 2, 2)
    batch = trainer.batch(tokens(trainer.config, 0))
    fast.state = None
    expected, kept = fast(trainer.init(), batch), dict(fast.state)
    shapes = shapes_of(fast, trainer)
    for change in (lambda given: {**given, "mesh": given["mesh"][:1]},
                   lambda given: {**given, "mesh": given["mesh"].at[1].add(1)},
                   lambda given: {name: array for name, array in given.items()
                                  if name != "own.0"}):
        fast.state = change(restore(path, shapes))
        with pytest.warns(UserWarning, match="state: expected one of a step on "
                          "the mesh .*, but got one of another mesh, or of "
                          "another order") as warned:
            after = fast(trainer.init(), batch)
        assert len(warned) == 1
        assert same_bits((after, dict(fast.state)), (expected, kept))


def test_orbax_restores_a_state_on_another_mesh(interrupted, tmp_path):
    """What is held of others has another size there. It follows from the rest."""
    checkpoint = pytest.importorskip("orbax.checkpoint")
    path, saved, expected = interrupted(1)
    given = restore(path, shapes_of(*on_devices(1, 2, 4)))
    fast, trainer = on_devices(1, 4, 2)
    shapes = {name: shape for name, shape in shapes_of(fast, trainer).items()
              if not name.startswith("held")}
    with checkpoint.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", given)
        fast.state = checkpointer.restore(
            tmp_path / "state", checkpoint.args.PyTreeRestore(
                shapes, partial_restore=True,
                restore_args=checkpoint.checkpoint_utils.construct_restore_args(
                    shapes)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, losses = train_on(fast, trainer, placed(saved, trainer), range(4, 8))
    np.testing.assert_allclose(losses, expected, rtol=2e-3)


def test_the_shapes_of_a_state_are_known_before_it():
    fast, state, batch = started()
    shapes = fast.rewritten(state, batch).step.state.shapes
    fast(state, batch)
    assert shapes.keys() == fast.state.keys()
    for name, array in fast.state.items():
        assert (array.shape, array.dtype) == (shapes[name].shape,
                                              shapes[name].dtype)
        assert array.sharding.is_equivalent_to(shapes[name].sharding, 1)


def test_differences_need_a_secondary_partition():
    fast, state, batch = started(secondary="none")
    with pytest.raises(zpp.CompileError, match="expected a secondary partition "
                       "with weights=i4:delta"):
        fast(state, batch)


@pytest.mark.parametrize("target", [
    "portable", pytest.param("cpu", marks=needs_library)])
def test_a_step_in_a_folder_keeps_state(tmp_path, target):
    """As zpp.jit does: begun by itself, donated, to be saved and set."""
    fast, state, batch = started(target=target)
    step = jax.jit(FORM.step, donate_argnums=0)
    zpp.save(zpp.rewrite(zpp.export(step, state, batch),
                         **{**OPTIONS, "target": target}),
             tmp_path / "step.zpp")
    loaded = zpp.load(tmp_path / "step.zpp")
    assert loaded.state is None
    other = jax.tree.map(lambda leaf: leaf.copy(), state)
    for _ in range(3):
        state, loss = fast(state, batch)
        kept = loaded.state
        other, same = loaded(other, batch)
        assert kept is None or all(
            array.is_deleted() for name, array in kept.items()
            if name != "mesh")
        assert same_bits((other, same, loaded.state),
                         (state, loss, fast.state))
    saved = jax.tree.map(lambda leaf: leaf.copy(), (other, loaded.state))
    other, _ = loaded(other, batch)
    resumed = zpp.load(tmp_path / "step.zpp")
    restored, resumed.state = saved
    restored, _ = resumed(restored, batch)
    assert same_bits((restored, resumed.state), (other, loaded.state))
    # Whole weights are sent again, where the state is not of these weights.
    loaded(jax.tree.map(lambda leaf: leaf + 1, other), batch)
    assert same_bits(
        np.asarray(loaded.state["own.0"]),
        np.asarray(jax.tree.leaves(other)[0] + 1).astype(
            jnp.bfloat16).reshape(-1))


def test_a_folder_without_its_beginning(tmp_path):
    _, state, batch = started()
    zpp.save(zpp.rewrite(zpp.export(jax.jit(FORM.step), state, batch),
                         target="portable", **OPTIONS), tmp_path / "step.zpp")
    notes = tmp_path / "step.zpp" / "start" / "jax.json"
    written = notes.read_text()
    notes.write_text(written.replace("step", "stop"))
    with pytest.raises(ValueError, match="start/jax.json: expected the file "
                       "that was written"):
        zpp.load(tmp_path / "step.zpp")
    notes.unlink()
    with pytest.raises(FileNotFoundError, match="but got no start/jax.json"):
        zpp.load(tmp_path / "step.zpp")


def test_what_begins_the_state_computes_nothing():
    """It takes what the step takes, all of which the step still needs."""
    _, state, batch = started()
    step = zpp.rewrite(zpp.export(jax.jit(FORM.step, donate_argnums=0), state, batch),
                       target="portable", **OPTIONS).step
    begins = step.start
    assert step.donated and not begins.donated
    assert not begins.exported.out_avals
    assert list(begins.state.kept) == list(step.state.kept) == list(step.state.taken)
    assert "dot_general" in step.text() and "dot_general" not in begins.text()
    assert "tf.aliasing_output" not in begins.text()


def test_compiled_for_gpus():
    """The host functions move what is quantized; subtraction and addition are
    XLA's."""
    _, state, batch = started()
    step = zpp.export(jax.jit(FORM.step), state, batch, platforms=["cuda"])
    rewritten = zpp.rewrite(step, **{**OPTIONS, "target": "cuda"})
    for made in (rewritten.step, rewritten.step.start):
        assert made.bundle is not None and made.uses_runtime
    assert len(rewritten.step.start.bundle.manifest["functions"]) > 0
    assert rewritten.step.state.taken == tuple(rewritten.step.state.kept)


@needs_library
@pytest.mark.parametrize("mesh", [
    pytest.param((("node", 2), ("gpu", 1)), marks=pytest.mark.slow),
    (("node", 2), ("gpu", 2))], ids=str)
def test_bytes_on_the_wire(tmp_path, mesh):
    """Of a GPT: 0.52 M between the nodes, reported and sent. Between two
    devices, what one sends is what it puts into a gather, and half of what it
    puts into an exchange."""
    nodes = ",".join(f"{name}:{size}" for name, size in mesh)
    trainer = gpt.Trainer(gpt.Config(width=128, layers=2, checkpoint="policy",
                                     mesh=mesh))
    fast = zpp.jit(trainer.step, donate_argnums=0, mesh=nodes, target="cpu",
                   weights="i4:delta", secondary="gpu",
                   gradients="i8:i4" if mesh[1][1] > 1 else "i4")
    state = trainer.init()
    batches = [trainer.batch(tokens(trainer.config, step)) for step in range(2)]
    state, _ = fast(state, batches[0])
    with zpp.trace(tmp_path / "trace.json"):
        fast(state, batches[1])[1].block_until_ready()
    total = fast.report()["total"]
    assert total["after_in_M"]["node"] <= 0.53
    if mesh[1][1] > 1:
        return
    # A file per mesh that this process has used.
    events = [event for path in tmp_path.glob("*.json")
              for event in json.loads(path.read_text())["traceEvents"]]
    sent = sum(event["args"]["input_bytes"] // (
        2 if event["cat"].endswith("all_to_all") else 1) for event in events
        if event["ph"] == "X" and event["cat"].endswith(
            ("all_gather_chunks", "all_to_all")))
    # The runtime sends everything but the sums of gains and scalars.
    left = sum(entry["after"]["node"] for entry in fast.rewritten().left_alone)
    assert sent == 2 * (total["after"]["node"] - left)
    assert left < 0.01 * total["after"]["node"]


@needs_library
def test_runtime_and_xla_agree_to_the_bit():
    fast, state, batch = started(target="cpu")
    portable, other, _ = started()
    for _ in range(3):
        state, _ = fast(state, batch)
        other, _ = portable(other, batch)
        for name, array in fast.state.items():
            np.testing.assert_array_equal(bits(array),
                                          bits(portable.state[name]))
