# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libzpp_xla under XLA:CPU: what its custom calls promise to a program."""

import subprocess
import sys
import textwrap
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from startwait import RANKS, ROOT, bundle, gather, mesh, needs_library
from startwait import program, put, start, token, wait
from zpp._library import find_library
from zpp.jax import _runtime

pytestmark = needs_library

X = np.arange(RANKS * 16, dtype=np.float32)


@pytest.fixture
def new_world():
    """For tests that ruin it."""
    def leave():
        for world in _runtime._worlds.values():
            _runtime._library().zpp_xla_world_destroy(world.handle)
        _runtime._worlds.clear()

    leave()
    yield
    leave()


def test_gathers():
    def body(x):
        y, chain = gather(x, token())
        double, _ = gather(y[:32] * 2, chain, "gather_32", 256)
        return y, double

    y, double = program(body, outputs=("data", "data"))(put(X))
    assert np.array_equal(np.asarray(y).reshape(RANKS, -1), [X] * RANKS)
    assert np.array_equal(np.asarray(double)[:256], list(X[:32] * 2) * RANKS)


def test_results_that_are_tied_keep_their_values():
    def body(x, z):
        written, (z,), _ = start("gather_16", [x], [(128,)], token(), ties=[z])
        z = jnp.sin(z @ z)
        (y,), (z,) = wait("gather_16", [x], written, ties=[z])
        return y, z

    z = np.random.default_rng(0).random((64, 64), np.float32)
    y, result = program(body, inputs=("data", None), outputs=("data", None))(
        put(X), z)
    assert np.array_equal(np.asarray(y)[:128], X)
    np.testing.assert_allclose(result, np.sin(z @ z), atol=1e-4)


def test_workspace():
    def body(x):
        written, _, _ = start("gather_16_by_hops", [x], [(128,)], token(),
                              workspace=256)
        return wait("gather_16_by_hops", [x], written, workspace=256)[0]

    (y,) = program(body, outputs=("data",))(put(X))
    assert np.array_equal(np.asarray(y)[-128:], X)


def test_host_times():
    def body(x):
        return gather(x, token())[0]

    step = program(body, outputs="data")
    zpp.host_times()
    step(put(X)).block_until_ready()
    times = zpp.host_times()
    assert set(times) == {"start", "wait"}
    assert all(0 < usec < 1e6 for usec in times.values())
    assert zpp.host_times() == {}


def test_empty_buffers():
    def body(x):
        nothing = jnp.zeros((0, 4))
        written, _, chain = start("gather_16_and_nothing", [x, nothing],
                                  [(0,), (128,)], token(), ties=[nothing])
        (empty, y), _ = wait("gather_16_and_nothing", [x, nothing], written)
        written, _, _ = start("do_nothing", [nothing], [(0, 2)], chain)
        (other,), _ = wait("do_nothing", [nothing], written)
        return y, empty, other

    y, empty, other = program(body, outputs=("data",) * 3)(put(X))
    assert np.array_equal(np.asarray(y)[:128], X)
    assert empty.size == other.size == 0


def test_donated_arguments_stay_until_the_wait():
    def body(x):
        written, _, _ = start("gather_16", [x], [(128,)], token())
        (y,), _ = wait("gather_16", [x], written)
        return x + jnp.sum(y)

    step = program(body, donate_argnums=0)
    # Memory that numpy sees cannot be donated.
    x, expected = put(X) + 0, X
    for _ in range(3):
        before, x = x, step(x)
        expected = expected + expected.sum()
        assert before.is_deleted()
    np.testing.assert_allclose(x, expected, rtol=1e-5)


def test_compute_runs_between_start_and_wait(monkeypatch, tmp_path):
    """The host functions run until all devices are past their starts: nothing
    may block on the way there, with more devices than cores."""
    path = tmp_path / "started"
    monkeypatch.setenv("ZPP_TEST_ALL_STARTED", str(path))
    arrived = []

    def arrive(value):
        arrived.append(1)
        if len(arrived) == RANKS:
            path.touch()
        return np.asarray(value) * 2

    def body(x):
        function = "gather_16_after_all"
        written, (z,), _ = start(function, [x], [(128,)], token(), ties=[x + 1])
        z = jax.pure_callback(arrive, jax.ShapeDtypeStruct(z.shape, z.dtype), z)
        (y,), (z,) = wait(function, [x], written, ties=[z])
        return y, z

    y, z = program(body, outputs=("data", "data"))(put(X))
    assert np.array_equal(np.asarray(y)[:128], X)
    assert np.array_equal(z, 2 * (X + 1))


def test_waits_do_not_starve_other_collectives():
    """Many in flight, with XLA's own collectives and compute in between, again
    and again."""
    def body(x, z):
        chain, total = token(), jnp.zeros(())
        for _ in range(4):
            flights = []
            for function, width in (("gather_16", 16), ("gather_32", 32),
                                    ("gather_16_by_hops", 16)):
                workspace = 256 if function.endswith("hops") else 0
                part = jnp.resize(x + total, (width,))
                written, (z,), chain = start(
                    function, [part], [(RANKS * width,)], chain, ties=[z],
                    workspace=workspace)
                flights.append((function, part, written, workspace))
                z = jnp.sin(z @ z)
            for function, part, written, workspace in flights:
                (y,), (z,) = wait(function, [part], written, ties=[z],
                                  workspace=workspace)
                total += jax.lax.pmean(jnp.mean(y), "data") + jax.lax.pmax(
                    jnp.mean(z), "data")
        return total, z

    step = program(body, inputs=("data", None), outputs=(None, "data"))
    z = np.full((128, 128), 0.01, np.float32)
    results = [step(put(X), z) for _ in range(25)]
    for result in results[1:]:
        assert np.array_equal(result[0], results[0][0])


def test_loops():
    """A start and its wait in the body of a scan."""
    def body(x):
        def turn(carry, _):
            x, chain = carry
            y, chain = gather(x, chain)
            return (x + jnp.mean(y), chain), y[-1]

        (x, _), lasts = jax.lax.scan(turn, (x, token()), length=10)
        return x, lasts

    x, lasts = program(body, outputs=("data", "data"))(put(X))
    expected, values = np.array(X), []
    for _ in range(10):
        values.append(expected[-1])
        expected = expected + np.float32(expected.mean())
    np.testing.assert_allclose(x, expected, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(lasts)[:10], values, rtol=1e-5)


def test_a_loop_that_gathers_for_the_next_turn():
    """What is in flight at the end of a turn is waited for at the start of the
    next: it is either passed on in place or refused, never garbage."""
    def body(x):
        written, _, chain = start("gather_16", [x], [(128,)], token())

        def turn(carry, _):
            x, y, chain = carry
            (y,), (x,) = wait("gather_16", [x], [y], ties=[x])
            x = x + jnp.mean(y)
            (y,), _, chain = start("gather_16", [x], [(128,)], chain)
            return (x, y, chain), jnp.mean(y[:0].sum())

        (x, y, _), _ = jax.lax.scan(turn, (x, *written, chain), length=5)
        (y,), _ = wait("gather_16", [x], [y])
        return x, y

    x, y = program(body, outputs=("data", "data"))(put(X))
    expected = np.array(X)
    for _ in range(5):
        expected = expected + np.float32(expected.mean())
    np.testing.assert_allclose(x, expected, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(y)[:128], expected, rtol=1e-5)


# Errors ----------------------------------------------------------------------


def errors_of(step, *args) -> list[str]:
    """Runs a step that fails; returns the message of each device."""
    messages = []
    results = None
    try:
        results = step(*args)
        jax.block_until_ready(results)
    except Exception as error:  # Of a type that differs between versions.
        messages.append(str(error))
    for leaf in jax.tree.leaves(results):
        for shard in leaf.addressable_shards:
            try:
                np.asarray(shard.data)
            except Exception as error:
                messages.append(str(error))
    return messages


def test_a_function_that_fails_on_one_rank_fails_on_all(new_world, capfd):
    step = program(lambda x: gather(x, token(), "fail_on_three")[0])
    started = time.monotonic()
    x = np.repeat(np.arange(RANKS, dtype=np.float32), 16)
    messages = errors_of(step, put(x))
    assert time.monotonic() - started < 10
    assert messages
    for message in messages:
        assert "zpp.wait fail_on_three: all_gather_chunks 'broken.py:3'" in (
            message)
        assert "expected bytes of a chunk, but got -4" in message
    # For a process that hangs in a collective of XLA instead of an error.
    assert capfd.readouterr().err.count(
        "zpp: rank 3 failed: all_gather_chunks 'broken.py:3': expected") == 1
    with pytest.raises(RuntimeError, match="broken.py:3.*ZPP_RT_"):
        zpp.synchronize()
    # And so it stays: ranks that disagree cannot go on.
    assert "broken.py:3" in errors_of(program(
        lambda x: gather(x, token())[0]), put(x))[0]


def test_a_rank_that_is_late_is_named(new_world, monkeypatch):
    monkeypatch.setattr(_runtime, "_time_limit_seconds", 300.0)
    with pytest.raises(ValueError, match="number of seconds, but got 0"):
        zpp.set_time_limit(0)
    zpp.set_time_limit(1.0)
    step = program(lambda x: gather(x, token(), "late_on_three")[0])
    x = np.repeat(np.arange(RANKS, dtype=np.float32), 16)
    messages = errors_of(step, put(x))
    assert messages
    for message in messages:
        assert "late.py:3" in message
        assert "3 did not arrive" in message
    with pytest.raises(RuntimeError, match="a time limit before the first"):
        zpp.set_time_limit(2.0)


def test_ranks_that_disagree_about_the_order_are_an_error(new_world):
    def body(x):
        def one(x):
            y, chain = gather(x, token())
            return gather(y[:32], chain, "gather_32", 256)[0][:128]

        def other(x):
            y, chain = gather(jnp.tile(x, 2), token(), "gather_32", 256)
            return gather(y[:16], chain)[0]

        return jax.lax.cond(jax.lax.axis_index("data") == 3, one, other, x)

    messages = errors_of(program(body), put(X))
    assert messages and all("expected chunks of" in text or "rank" in text
                            for text in messages), messages


def test_an_output_that_was_copied_is_an_error(new_world):
    """A use before the wait: what is read there is not written yet."""
    def body(x):
        (y,), _, _ = start("gather_16", [x], [(128,)], token())
        (y,), _ = wait("gather_16", [x], [jnp.flip(y)])
        return y

    messages = errors_of(program(body), put(X))
    assert messages
    for message in messages:
        assert "expected the output that zpp.start was given" in message


def test_an_input_that_was_copied_is_an_error(new_world):
    def body(x):
        written, _, _ = start("gather_16", [x], [(128,)], token())
        return wait("gather_16", [jnp.flip(x)], written)[0]

    messages = errors_of(program(body, outputs=("data",)), put(X))
    assert messages
    for message in messages:
        assert "expected buffer 0 that zpp.start was given" in message


def test_calls_that_do_not_match_the_abi_are_errors(new_world):
    def call(name="gather_16", bundle_id=bundle().id, inputs=1):
        def body(x):
            shape = jax.ShapeDtypeStruct((128,), np.float32)
            chain = token()
            return jax.ffi.ffi_call(
                "zpp.start", [shape, jax.ShapeDtypeStruct((1,), np.int8)],
                input_output_aliases={1: 1})(
                x, chain, bundle=bundle_id, deferrable=True, function=name,
                inputs=np.int64(inputs), outputs=np.int64(1),
                workspace=np.int64(0))
        return errors_of(program(body, outputs=["data", "data"]), put(X))[0]

    assert "expected a host function of the bundle, but got 'nowhere'" in call(
        "nowhere")
    assert "expected a bundle that is loaded, but got 'other'" in call(
        bundle_id="other")
    assert "expected 3 operands and 1 results" in call(inputs=3)


def test_a_process_may_end_while_a_step_runs():
    script = textwrap.dedent(f"""
        import sys
        sys.path[:0] = [{str(ROOT / 'python')!r},
                        {str(ROOT / 'test' / 'python')!r}]
        import conftest, numpy as np
        from startwait import gather, program, put, token
        step = program(lambda x: gather(x, token(), "late_on_three")[0])
        step(put(np.repeat(np.arange(8, dtype=np.float32), 16)))
        print("called")
    """)
    for _ in range(3):
        process = subprocess.run([sys.executable, "-c", script], timeout=60,
                                 capture_output=True, text=True, check=False)
        assert (process.returncode, process.stdout) == (0, "called\n"), (
            process.stderr)


# Worlds ----------------------------------------------------------------------


def test_a_world_is_made_once(new_world):
    program(lambda x: gather(x, token())[0])(put(X))
    zpp.synchronize()
    (world,) = _runtime._worlds.values()
    program(lambda x: gather(x, token())[0])
    assert list(_runtime._worlds.values()) == [world]


def test_ranks_follow_the_order_of_the_mesh(new_world):
    """Device r of the mesh is rank r, whatever its number."""
    devices = np.array(jax.devices())[::-1]
    backwards = jax.sharding.Mesh(devices, "data")
    _runtime.load_bundle(bundle(), tuple(devices))
    spec = jax.sharding.PartitionSpec("data")
    step = jax.jit(jax.shard_map(
        lambda x: gather(x, token())[0], mesh=backwards, in_specs=spec,
        out_specs=spec, check_vma=False))
    y = step(jax.device_put(X, jax.sharding.NamedSharding(backwards, spec)))
    assert np.array_equal(np.asarray(y)[:128], X)
    with pytest.raises(ValueError, match="one mesh of devices per process"):
        _runtime.load_bundle(bundle(), tuple(mesh().devices.flat))


def test_another_library_of_a_known_id_is_refused(new_world):
    """A program says its bundle's id only."""
    devices = tuple(mesh().devices.flat)
    first = bundle()
    _runtime.load_bundle(first, devices)
    _runtime.load_bundle(first, devices)
    other = types.SimpleNamespace(id=first.id, mesh=first.mesh,
                                  library=first.library + b"\0")
    with pytest.raises(RuntimeError, match="expected the library that bundle "
                       f"'{first.id}' was loaded with, but got another one"):
        _runtime.load_bundle(other, devices)


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("ZPP_XLA", str(tmp_path / "nowhere.so"))
    with pytest.raises(FileNotFoundError, match="nowhere.so"):
        find_library("zpp_xla")
