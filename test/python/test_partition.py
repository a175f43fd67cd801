# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps without collectives of their own: jax.jit with shardings."""

import contextlib
import dataclasses
import os
import pathlib
import socket
import subprocess
import sys

import gpt
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from selection import others_slow
from training import ALL_ON, AXES, BATCH, MESH, NODES, OFF, array, baseline
from training import compiler_options, recorded_compilations, same_bits, tokens
from training import train, trainer_of, with_options
from zpp.jax import _partition, _partitioner

P = jax.sharding.PartitionSpec
#: A vocabulary that divides: what does not, a step pads itself.
SHARDED = with_options(collectives="xla", vocab=64, layers=1)
LARGE = gpt.Config(width=128, layers=4, vocab=64, collectives="xla")


def exported(config: gpt.Config) -> zpp.Step:
    trainer = trainer_of(config)
    return zpp.export(jax.jit(trainer.step, donate_argnums=0),
                      trainer.abstract_state(), trainer.abstract_batch(BATCH))


@pytest.mark.compiler
@pytest.mark.parametrize("target", others_slow(["portable", "cpu"], "cpu"))
def test_a_training(target):
    trainer = trainer_of(SHARDED)
    fast = zpp.jit(trainer.step, mesh=NODES, target=target, donate_argnums=0,
                   **ALL_ON)
    state, batch = trainer.init(), trainer.batch(tokens(SHARDED, 0))
    first, _ = fast(state, batch)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    with jax.log_compiles(), recorded_compilations() as names:
        fast(first, batch)
    assert names == []

    run, expected = train(trainer, fast), baseline(SHARDED)
    np.testing.assert_allclose(run.losses, expected.losses, rtol=1e-2)
    assert run.dtypes == expected.dtypes
    assert jax.tree.all(jax.tree.map(
        lambda array, a, b: a.is_equivalent_to(b, array.ndim), run.state,
        run.shardings, expected.shardings))


@pytest.mark.slow
@pytest.mark.compiler
def test_bytes_are_those_of_zero3():
    """XLA makes the collectives of ZeRO-3 from these shardings: three times
    the weights between nodes, of which 0.77 are left for matrices."""
    report = zpp.rewrite(exported(LARGE), mesh=NODES, **ALL_ON).report
    total = report["total"]
    # Gains are computed from weights, and the embedding is gathered once.
    assert total["model_bytes"] > 0.99 * 2 * trainer_of(LARGE).model_elements()
    assert 2.95 < total["before_in_M"]["node"] < 3.0
    assert total["after_in_M"]["node"] < 0.785
    assert all("gpt.py" in entry["location"]
               for entry in report["collectives"])


@pytest.mark.slow
@pytest.mark.compiler
def test_a_tied_embedding_is_scattered_once():
    """XLA sums the gradients of its two uses one by one."""
    shape = {"width": 128, "layers": 2, "vocab": 1024}
    manual, sharded = (
        zpp.rewrite(exported(gpt.Config(collectives=collectives, **shape)),
                    mesh=NODES, **ALL_ON).report["total"]["after"]
        for collectives in ("step", "xla"))
    assert sharded["node"] == pytest.approx(manual["node"], rel=2e-3)
    assert sharded["gpu"] == pytest.approx(manual["gpu"], rel=2e-3)


@pytest.mark.compiler
def test_a_scan_without_a_checkpoint():
    """XLA saves each device's part of the weights, and gathers it again."""
    config = gpt.Config(width=128, layers=4, vocab=64, collectives="xla",
                        scan=True, checkpoint="none")
    total = zpp.rewrite(exported(config), mesh=NODES, **ALL_ON).report["total"]
    assert 2.95 < total["before_in_M"]["node"] < 3.0
    assert total["after_in_M"]["node"] < 0.785


@pytest.mark.parametrize("options", [
    {"scan": True},
    *(pytest.param(options, marks=pytest.mark.slow) for options in (
        {"checkpoint": "none", "optimizer": "sgd"},
        {"scan": True, "checkpoint": "none"})),
    {"mesh": (("data", 8),), "layers": 1},
], ids=str)
def test_the_partitioned_step_is_the_step(options):
    """What the compiler reads, before anything is rewritten: only XLA's
    arithmetic may differ, as the partitioner and its all-reduces are what they
    were."""
    config = with_options(collectives="xla", vocab=64, dtype="float32",
                          **options)
    trainer = trainer_of(config)
    run, expected = train(
        trainer, zpp.load(exported(config).partitioned()), 2), train(
        trainer, jax.jit(trainer.step), 2)
    np.testing.assert_allclose(run.losses, expected.losses, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(run.state), jax.tree.leaves(expected.state)):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-3)


@pytest.mark.compiler
def test_off_is_the_step_itself():
    """With nothing rewritten it is not compiled from what the partitioner has
    made of it: bf16 would be rounded elsewhere."""
    trainer = trainer_of(SHARDED)
    jitted = {"donate_argnums": 0}
    fast = zpp.jit(trainer.step, mesh=NODES, **jitted, **OFF)
    later = zpp.jit(trainer.step, mesh=NODES, **jitted, **OFF,
                    schedule={2: {"tuning": {"block": 64}}})
    expected = train(trainer, jax.jit(trainer.step, **jitted))
    assert fast.state is None
    for step in (fast, later):
        run = train(trainer, step)
        np.testing.assert_array_equal(run.losses, expected.losses)
        assert same_bits(run.state, expected.state)
        report = step.report()
        assert report["collectives"]
        assert report["total"]["after"] == report["total"]["before"]


@pytest.mark.compiler
def test_what_is_left_alone_is_the_step_itself():
    mesh = mesh_of(*TWO)
    arguments = put(W, mesh, ("node", "gpu")), put(X, mesh, ("node", "gpu"))
    fast = zpp.jit(descend, mesh=NODES, links="node=10000gbit,gpu=10000gbit")
    with pytest.warns(UserWarning, match="left all .* collectives as they are"):
        results = fast(*arguments)
    assert same_bits(results, jax.jit(descend)(*arguments))
    assert all(entry["reason"] for entry in fast.report()["collectives"])
    fast.state = {"own.0": arguments[0]}
    with pytest.raises(ValueError, match="keeps nothing between calls"):
        fast(*arguments)


# Steps of all kinds ----------------------------------------------------------


def mesh_of(*axes, kind=jax.sharding.AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh(tuple(size for _, size in axes),
                         tuple(name for name, _ in axes),
                         axis_types=(kind,) * len(axes))


TWO = (("node", 2), ("gpu", 4))
W = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
X = np.linspace(-2, 2, 16 * 64, dtype=np.float32).reshape(16, 64)


def put(array, mesh, *spec):
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, P(*spec)))


def loss_of(w, x):
    return (jax.nn.relu(x @ w) ** 2).mean()


def descend(w, x):
    loss, gradient = jax.value_and_grad(loss_of)(w, x)
    return w - 0.1 * gradient, loss


def check(function, *arguments):
    """The step that the compiler reads gives what jax.jit does; with everything
    off, the function itself runs."""
    jitted = jax.jit(function)
    expected = jitted(*arguments)
    results = zpp.load(zpp.export(jitted, *arguments).partitioned())(*arguments)
    for a, b in zip(jax.tree.leaves(results), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
    fast = zpp.jit(function, mesh=NODES, **OFF)
    assert same_bits(fast(*arguments), expected)
    assert fast.report()["collectives"]
    return fast


@pytest.mark.compiler
def test_results_are_where_xla_leaves_them():
    """Without out_shardings, with an unused argument, and with a lambda, whose
    name is not a symbol."""
    mesh = mesh_of(*TWO)
    arguments = put(W, mesh, ("node", "gpu")), put(X, mesh, ("node", "gpu"))
    check(lambda w, unused, x: descend(w, x), arguments[0], arguments[0],
          arguments[1])


@pytest.mark.compiler
def test_arguments_that_jax_places():
    """Host arrays, of which in_shardings say where they go."""
    mesh = mesh_of(*TWO)
    split = jax.sharding.NamedSharding(mesh, P(("node", "gpu")))
    jitted = jax.jit(descend, in_shardings=split)
    expected = jitted(W, X)
    for fast in (zpp.load(zpp.export(jitted, W, X).partitioned()),
                 zpp.jit(jitted, mesh=NODES, **OFF),
                 zpp.jit(descend, in_shardings=split, mesh=mesh, **OFF)):
        for a, b in zip(fast(W, X), expected):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            assert a.sharding.is_equivalent_to(b.sharding, a.ndim)


@pytest.mark.compiler
def test_axes_that_the_step_handles_itself():
    mesh = mesh_of(*TWO, kind=jax.sharding.AxisType.Explicit)
    with jax.set_mesh(mesh):
        def step(w, x):
            whole = jax.sharding.reshard(w, P())
            return (x @ whole).sum()

        check(step, put(W, mesh, ("node", "gpu")), put(X, mesh, ("node",
                                                                 "gpu")))


@pytest.mark.compiler
def test_dropout():
    """Its key is an argument, and every device draws what it would alone."""
    mesh = mesh_of(*TWO)

    def step(w, x, key):
        kept = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5, x.shape)
        return descend(w, jax.numpy.where(kept, x, 0)), jax.random.split(key)[0]

    arguments = put(W, mesh, ("node", "gpu")), put(X, mesh, ("node", "gpu"))
    key = jax.random.key(3)
    read = zpp.load(zpp.export(jax.jit(step), *arguments, key).partitioned())
    (new, loss), next_key = read(*arguments, key)
    (expected, expected_loss), expected_key = jax.jit(step)(*arguments, key)
    np.testing.assert_allclose(new, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    assert (next_key == expected_key).all()


@pytest.mark.compiler
def test_a_mesh_from_the_context():
    mesh = mesh_of(*TWO)
    with jax.set_mesh(mesh):
        def step(w, x):
            return descend(w, jax.lax.with_sharding_constraint(
                x, P(("node", "gpu"))))

        check(step, put(W, mesh, ("node", "gpu")), put(X, mesh))


@pytest.mark.compiler
def test_a_shard_map_beside_what_xla_partitions():
    mesh = mesh_of(*TWO)
    spec = P(("node", "gpu"))

    def step(w, x):
        normed = jax.shard_map(
            lambda x: x / jax.lax.pmax(jax.numpy.abs(x).max(), "gpu"),
            mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x)
        return descend(w, normed)

    fast = check(step, put(W, mesh, ("node", "gpu")), put(X, mesh, *spec))
    # XLA's own, beside the one of the shard_map.
    assert len(fast.report()["collectives"]) > 1


def test_what_names_its_collectives_is_not_partitioned():
    """Also where XLA places a few operations around the shard_map."""
    mesh = mesh_of(*TWO)
    spec = P(("node", "gpu"))
    inner = jax.shard_map(
        lambda w, x: jax.lax.pmean(loss_of(jax.lax.all_gather(
            w, ("node", "gpu"), tiled=True), x), ("node", "gpu")),
        mesh=mesh, in_specs=(spec, spec), out_specs=P())

    def step(w, x):
        loss, gradient = jax.value_and_grad(inner)(w, x)
        return w - 0.1 * gradient, loss

    arguments = put(W, mesh, *spec), put(X, mesh, *spec)
    assert not zpp.export(step, *arguments).needs_partitioning
    assert zpp.export(descend, *arguments).needs_partitioning
    assert not zpp.export(descend, W, X).needs_partitioning


@pytest.mark.compiler
def test_a_step_for_another_platform_is_partitioned_here():
    mesh = mesh_of(*TWO)
    step = zpp.export(descend, put(W, mesh, ("node", "gpu")),
                      put(X, mesh, ("node", "gpu")), platforms=["cuda"])
    result = zpp.rewrite(step, mesh=NODES, target="cuda",
                         tuning={"block": 32})
    assert result.step.exported.platforms == ("cuda",)
    assert any(entry["rewritten"] for entry in result.report["collectives"])


@pytest.mark.compiler
def test_partitioned_on_export():
    """What comes out names its collectives, and is a step like others."""
    mesh = mesh_of(*TWO)
    arguments = put(W, mesh, ("node", "gpu")), put(X, mesh, ("node", "gpu"))
    later = zpp.export(descend, *arguments)
    step = zpp.export(descend, *arguments, partition="xla")
    assert later.needs_partitioning and not step.needs_partitioning
    assert zpp.export(descend, W, X, partition="xla").text()
    for a, b in zip(zpp.load(step)(*arguments), jax.jit(descend)(*arguments)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    first, second = (
        zpp.rewrite(given, mesh=NODES, tuning={"block": 32}).report["total"]
        for given in (later, step))
    assert first == second
    # What is planned begins with scatters too, not with sums and slices.
    planned = zpp.plan(later, mesh=NODES, device="h100").predictions[0]
    assert planned.sent == first["before"]
    with pytest.raises(ValueError, match="expected None or 'xla', but got"):
        zpp.export(descend, *arguments, partition="gspmd")


@pytest.mark.compiler
def test_partitioned_of_what_jax_lowers():
    """It has shardings in its module only, also those of results."""
    mesh = mesh_of(*TWO)
    spec = jax.sharding.NamedSharding(mesh, P(("node", "gpu")))
    jitted = jax.jit(lambda w, unused, x: descend(w, x),
                     out_shardings=(spec, None))
    arguments = put(W, mesh), put(W, mesh), put(X, mesh, ("node", "gpu"))
    step = zpp.rewrite(jitted.lower(*arguments), mesh=NODES, **OFF)
    for a, b in zip(zpp.load(step.step)(*arguments), jitted(*arguments)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
    with jax.set_mesh(mesh_of(*TWO, kind=jax.sharding.AxisType.Explicit)):
        explicit = jax.jit(lambda w, x: x @ jax.sharding.reshard(w, P()))
        values = put(W, jax.sharding.get_mesh(), "gpu"), X
        assert zpp.rewrite(explicit.lower(*values), mesh=NODES,
                           **OFF).report["collectives"]
    lowered, exported = (
        zpp.rewrite(given, mesh=NODES, tuning={"block": 32}).report["total"]
        for given in (
            jitted.lower(*arguments), zpp.export(jitted, *arguments)))
    assert lowered == exported and lowered["before"]["node"] > 0


@pytest.mark.compiler
def test_custom_calls():
    """Also those that mean nothing in another process: what zpp.jit exports
    does not leave this one."""
    mesh = mesh_of(*TWO)
    spread = jax.sharding.NamedSharding(mesh, P(("node", "gpu")))

    def step(w, x):
        # LAPACK, of each sample.
        square = jax.lax.with_sharding_constraint(
            x.reshape(16, 8, 8), spread)
        values = jax.numpy.linalg.svd(square, compute_uv=False)
        new, loss = descend(w, x)
        return new, loss + values.sum()

    check(step, put(W, mesh, ("node", "gpu")), put(X, mesh, ("node", "gpu")))


@pytest.mark.compiler
def test_another_parallelism_than_zero3_is_a_warning():
    """Without constraints XLA splits the products, and sums activations."""
    mesh = mesh_of(*TWO)
    arguments = put(W, mesh, ("node", "gpu")), put(X, mesh)
    with pytest.warns(UserWarning, match=r"100% of the bytes that are left over "
                      "node are of neither weights nor gradients, most of them as "
                      "those of the all_reduce at .*test_partition.py:.*constrain"):
        zpp.rewrite(zpp.export(lambda w, x: x @ w @ w.T, *arguments),
                    mesh=NODES)


@contextlib.contextmanager
def jaxs_cache(folder):
    """JAX keeps all that it compiles in a folder, or nothing where that is None."""
    from jax._src import compilation_cache
    options = {"jax_compilation_cache_dir": folder and str(folder),
               "jax_persistent_cache_min_compile_time_secs": 0}
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def count_partitions(monkeypatch) -> list:
    """A list that grows by one each time that XLA partitions a step."""
    calls: list[int] = []
    partitioning = _partition.run_partitioner
    monkeypatch.setattr(_partition, "run_partitioner", lambda *given: (
        calls.append(1), partitioning(*given))[1])
    return calls


def test_what_is_partitioned_is_kept_in_jaxs_cache(tmp_path, monkeypatch):
    """XLA itself dumps nothing for what comes from there."""
    mesh = mesh_of(*TWO)
    arguments = put(W, mesh, ("node", "gpu")), put(X, mesh, ("node", "gpu"))
    step = zpp.export(descend, *arguments)
    calls = count_partitions(monkeypatch)

    def partition():
        return dataclasses.replace(step).complete_text

    with jaxs_cache(tmp_path):
        first = partition()
        assert "stablehlo.all_gather" in first and partition() == first
        assert len(calls) == 1
        (kept,) = tmp_path.iterdir()
        (program,) = kept.iterdir()
        assert kept.name == "zpp-partitioned" and program.suffix == ".mlir"
        jax.jit(lambda x: x + 1)(1.0)
        assert len(list(tmp_path.iterdir())) > 1
        # As if it had never been there, but for JAX's own cache.
        program.unlink()
        assert partition() == first
        assert len(calls) == 2
        monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
        assert partition() == first
        assert len(calls) == 3
        other = put(W, mesh, ("gpu", "node")), put(X, mesh, ("node", "gpu"))
        assert zpp.export(descend, *other).complete_text
        assert len(calls) == 4
    with jaxs_cache(None):
        assert partition() == first
        assert len(calls) == 5


def test_a_cache_that_cannot_be_used(tmp_path, monkeypatch):
    mesh = mesh_of(*TWO)
    step = zpp.export(descend, put(W, mesh, ("node", "gpu")),
                      put(X, mesh, ("node", "gpu")))
    calls = count_partitions(monkeypatch)
    (tmp_path / "zpp-partitioned").write_text("no folder")
    with jaxs_cache(tmp_path):
        texts = [dataclasses.replace(step).complete_text for _ in range(2)]
    assert len(calls) == 2 and texts[0] == texts[1]
    assert [path.name for path in tmp_path.iterdir()] == ["zpp-partitioned"]


@pytest.mark.compiler
@pytest.mark.parametrize("collectives, target", [
    ("step", "cpu"),
    *(pytest.param(each, "portable", marks=pytest.mark.slow)
      for each in ("step", "xla"))])
def test_tiers_in_another_order_than_the_axes_of_the_step(collectives, target):
    """The slow links are between replicas, which are neighbors on the mesh of
    the step."""
    config = with_options(collectives=collectives, vocab=64, width=128, layers=1,
                          mesh=(("data", 4), ("replica", 2)))
    trainer = trainer_of(config)
    tiers = {"replica": 2, "data": 4}

    def run(**options):
        fast = zpp.jit(trainer.step, mesh=tiers, target=target,
                       tuning={"block": 32}, donate_argnums=0, compiler_options=compiler_options(config), **options)
        return train(trainer, fast), fast.report()["total"]

    expected = baseline(config)
    exact, total = run(**OFF | {"secondary": "data"})
    if (collectives, target) == ("step", "portable"):
        assert same_bits(exact.state, expected.state)
    np.testing.assert_allclose(exact.losses, expected.losses, rtol=1e-4)
    # Three times the weights over the slow links, then twice.
    before, after = (total[name]["replica"] for name in ("before", "after"))
    assert before < total["before"]["data"]
    assert after < 0.7 * before
    lossy, total = run(**ALL_ON | {"secondary": "data"})
    np.testing.assert_allclose(lossy.losses, expected.losses, rtol=1e-2)
    assert total["after"]["replica"] < 0.5 * before


@pytest.mark.compiler
def test_a_tier_with_the_name_of_an_axis_but_another_size():
    mesh = mesh_of(("data", 4), ("replica", 2))
    arguments = put(W, mesh, "data"), put(X, mesh, ("data", "replica"))
    with pytest.raises(zpp.CompileError, match="expected 'replica:2', an axis "
                       "of the module's mesh 'data:4,replica:2', but got "
                       "'replica:4'"):
        zpp.jit(descend, mesh="replica:4,data:2")(*arguments)


@pytest.mark.compiler
def test_what_cannot_be_partitioned_is_left_with_a_warning(monkeypatch):
    mesh = mesh_of(*TWO)

    def refuse(*_):
        raise _partitioner.PartitionError("XLA refuses the step: no_such_option")

    monkeypatch.setattr(_partition, "run_partitioner", refuse)
    fast = zpp.jit(descend, mesh=NODES)
    with jaxs_cache(None), pytest.warns(UserWarning, match="not those that follow from its "
                      "shardings: .*no_such_option"):
        fast(put(W, mesh, ("node", "gpu")), put(X, mesh, ("node", "gpu")))


def test_xla_ends_after_its_partitioner(monkeypatch):
    """Nothing of what it would do then is used."""
    client, reasons = _partitioner._client(), []

    class Client:
        devices = staticmethod(client.devices)

        @staticmethod
        def compile_and_load(*arguments):
            try:
                return client.compile_and_load(*arguments)
            except Exception as error:
                reasons.append(str(error))
                raise

    monkeypatch.setattr(_partitioner, "_client", Client)
    with jaxs_cache(None):
        text = exported(SHARDED).complete_text
    assert len(reasons) == 1 and "zpp.end" in reasons[0]
    assert "zpp.end" not in text and "all_gather" in text


@pytest.mark.compiler
def test_all_variants_of_a_schedule_are_partitioned_at_once(monkeypatch):
    mesh = mesh_of(*TWO)
    calls = count_partitions(monkeypatch)
    fast = zpp.jit(descend, mesh=NODES, tuning={"block": 32},
                   schedule={1: {"weights": "none"}})
    with jaxs_cache(None):
        for _ in range(2):
            fast(put(W, mesh, ("node", "gpu")), put(X, mesh, ("node", "gpu")))
    assert calls == [1]


def test_groups_in_another_order():
    """As HLO writes them: along axes of a mesh whose devices are in an order of
    their own."""
    def groups(text):
        return _partitioner.groups_in(
            f"%a = f32[8]{{0}} all-gather(%p), channel_id=3, replica_groups="
            f"mesh{text}, dimensions={{0}}, use_global_device_ids=true")

    in_nodes = [[0, 1, 2, 3], [4, 5, 6, 7]]
    across = [[0, 4], [1, 5], [2, 6], [3, 7]]
    for text, expected in {
            "['a'=4,'b'=2] {'a'}": [[0, 2, 4, 6], [1, 3, 5, 7]],
            "['a'=4,'b'=1,'c'=2], device_ids=([2,4]T(1,0)) {'a'}": in_nodes,
            "['a'=4,'b'=1,'c'=2], device_ids=([2,4]T(1,0)) {'c'}": across,
            "['a'=2], device_ids=(1,0) {'a'}": [[1, 0]],
            "['a'=4,'b'=2], device_ids=([8]) {'b'}":
                [[0, 1], [2, 3], [4, 5], [6, 7]],
            "['a'=8], device_ids=([2,4]T(1,0)) {'a':(1)4}":
                [[0, 1, 2, 3], [4, 5, 6, 7]],
            "['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b', 'a':(2)2}":
                [[0, 1, 4, 5], [2, 3, 6, 7]]}.items():
        assert groups(text)[3].tolist() == expected, text
    with pytest.raises(_partitioner.PartitionError, match="axes of a mesh"):
        groups("['a'=4], device_ids=(unknown) {'a'}")
    with pytest.raises(_partitioner.PartitionError, match="got two"):
        _partitioner.groups_in("\n".join(
            f"channel_id=1, replica_groups=mesh['a'=2,'b'=2], "
            f"device_ids=([2,2]T(1,0)) {{'{axis}'}}" for axis in "ab"))


def test_groups_along_a_part_of_an_axis():
    """Two micro-batches of a batch over four nodes: each is on two of them."""
    mesh = mesh_of(("node", 4), ("gpu", 2))

    def step(w, x):
        gradients = [jax.grad(loss_of)(w, each) for each in x.reshape(2, -1, 64)]
        return w - 0.1 * sum(gradients)

    arrays = put(W, mesh, ("gpu", "node")), put(X, mesh, ("node", "gpu"))
    partitioned = zpp.export(jax.jit(step), *arrays).partitioned()
    assert "sub_axis_info" in partitioned.text()
    np.testing.assert_allclose(
        zpp.load(partitioned)(*arrays), jax.jit(step)(*arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.compiler
def test_weights_over_the_last_axis():
    """Replicated over the first one: the partitioner names devices in another
    order than the mesh's."""
    mesh = mesh_of(("data", 2), ("fsdp", 4))
    shardings = [jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec(*spec)) for spec in
        [("fsdp",), (None, "fsdp"), (("data", "fsdp"),)]]

    def step(up, down, x):
        def loss_of(up, down):
            return ((jax.numpy.tanh(x @ up) @ down) ** 2).mean()

        loss, (a, b) = jax.value_and_grad(loss_of, (0, 1))(up, down)
        return jax.lax.with_sharding_constraint(
            up - a, shardings[0]), jax.lax.with_sharding_constraint(
                down - b, shardings[1]), loss

    def run(step):
        rng = np.random.default_rng(0)
        up, down, x = (jax.device_put(
            rng.standard_normal(shape).astype(np.float32) / 8, sharding)
            for shape, sharding in zip([(64, 128), (128, 64), (16, 64)],
                                       shardings))
        losses = []
        for _ in range(3):
            up, down, loss = step(up, down, x)
            losses.append(float(loss))
        return losses

    expected = run(jax.jit(step))
    fast = zpp.jit(step, mesh="data:2,fsdp:4", tuning={"block": 32},
                   target="portable")
    np.testing.assert_allclose(run(fast), expected, rtol=1e-2)
    plain = zpp.jit(step, mesh="data:2,fsdp:4", target="portable", **OFF)
    np.testing.assert_allclose(run(plain), expected, rtol=1e-5)
    total = fast.report()["total"]
    assert total["after"]["data"] < 0.5 * total["before"]["data"]


#: Rank and coordinator come as arguments.
PROCESS = """
import sys
import jax
import numpy as np
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[1]))
import zpp
from selection import others_slow
from test_partition import W, X, descend, mesh_of
sharding = jax.sharding.NamedSharding(mesh_of(("data", 8)),
                                      jax.sharding.PartitionSpec("data"))
w, v, x = (jax.make_array_from_callback(
    array.shape, sharding, lambda index, array=array: array[index])
    for array in (W, W, X))
fast = zpp.jit(descend, tuning={"block": 32})
original = jax.jit(descend, out_shardings=(sharding, None))
for _ in range(2):
    w, loss = fast(w, x)
    v, expected = original(v, x)
    np.testing.assert_allclose(loss, expected, rtol=1e-2)
assert fast.report()["mesh"] == {"process": 2, "device": 4}
total = fast.report()["total"]
assert total["after"]["process"] < 0.3 * total["before"]["process"]
print(float(loss), hash(fast.rewritten().text))
"""


@pytest.mark.slow
@pytest.mark.compiler
def test_processes_partition_alike(tmp_path):
    """Two of four devices each, whose tiers nobody names. The environment asks
    XLA for dumps of other modules, as MaxText does."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        address = f"localhost:{listener.getsockname()[1]}"
    folders = [str(pathlib.Path(path).resolve()) for path in sys.path if path]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folders), "PYTHONHASHSEED": "0",
        "XLA_FLAGS": f"--xla_dump_to={tmp_path} "
                     "--xla_dump_hlo_module_re=another"}
    processes = [subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(rank), address], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        for rank in range(2)]
    outputs = [process.communicate(timeout=300) for process in processes]
    for process, (_, error) in zip(processes, outputs):
        assert process.returncode == 0, error
    lines = {output.splitlines()[-1] for output, _ in outputs}
    assert len(lines) == 1, lines


@pytest.mark.compiler
def test_one_layer_that_a_loop_runs_again_and_again():
    """ALBERT's weights: the loop does not change them, so they cross the nodes once
    in a step, not twice in each iteration."""
    layers, width = 4, 64
    rows = jax.sharding.NamedSharding(MESH, P(AXES))

    @jax.checkpoint
    def layer(x, weight):
        return jax.lax.with_sharding_constraint(jnp.tanh(x @ weight), rows)

    def step(weight, x):
        def loss(weight):
            y, _ = jax.lax.scan(lambda x, _: (layer(x, weight), None), x, None,
                                length=layers)
            return jnp.mean(jnp.square(y - 0.25))

        value, gradient = jax.value_and_grad(loss)(weight)
        return weight - 0.1 * gradient, value

    given = array((width, width), P(AXES)), array((16, width), P(AXES))
    exported = zpp.export(jax.jit(step), *given)
    expected = zpp.load(exported.partitioned())(*given)
    once = 4 * width * width // 8
    for weights, most in ("none", once), ("i8", 0.26 * once):
        result = zpp.rewrite(exported, mesh=NODES, **{
            **OFF, "weights": weights, "secondary": "gpu"})
        gathers = [entry for entry in result.report["collectives"]
                   if entry["role"] == "weight"]
        assert sum(entry["before"]["node"] for entry in gathers) >= 2 * layers * once
        assert 0 < sum(entry["after"]["node"] for entry in gathers) <= most
        if weights == "none":
            assert same_bits(zpp.load(result.step)(*given), expected)
