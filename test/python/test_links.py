# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""links="measured": what is measured, by whom, and how long it is known."""

import json
import math
import re
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from conftest import ROOT
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from zpp import _links
from zpp._cache import cache_folder
from zpp.jax import _links as links_of_jax
from zpp.jax import _rewrite

NODES = "node:2,gpu:4"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder.cache_clear()


def devices(**axes: int) -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(list(axes.values())), tuple(axes))


def train(on: Mesh, **options):
    """A step of one weight, and its result."""
    spec = PartitionSpec(on.axis_names)

    def step(weight, batch):
        def loss(weight):
            whole = jax.lax.all_gather(weight, on.axis_names, tiled=True)
            return jnp.mean((batch @ whole) ** 2)
        return weight - 0.1 * jax.grad(loss)(weight)

    mapped = jax.shard_map(step, mesh=on, in_specs=(spec, spec), out_specs=spec)
    weight = jax.device_put(jnp.ones((1024, 256)) / 32, NamedSharding(on, spec))
    batch = jax.device_put(jnp.ones((8, 1024)), NamedSharding(on, spec))
    fast = zpp.jit(mapped, secondary="none", **options)
    return fast, fast(weight, batch)


def speeds(links: str) -> dict[str, float]:
    found = re.fullmatch(r"node=(\S+)gbit,gpu=(\S+)gbit", links).groups()
    return dict(zip(("node", "gpu"), map(float, found)))


@pytest.mark.compiler
def test_a_step_measures_its_links_once(monkeypatch):
    mesh = devices(node=2, gpu=4)
    fast, _ = train(mesh, mesh=NODES, links="measured")
    links = fast.report()["links"]
    for speed in speeds(links).values():
        steps = 2 * math.log2(speed)
        assert steps == pytest.approx(round(steps), abs=0.02)

    def fail(tiers):
        raise AssertionError(f"{tiers} are measured again")

    monkeypatch.setattr(links_of_jax, "measure", fail)
    again, _ = train(mesh, mesh=NODES, links="measured")
    assert again.report()["links"] == links
    # The tiers of the step's own mesh are the same ones.
    own, _ = train(mesh, links="measured")
    assert own.report()["links"] == links
    with pytest.raises(AssertionError, match="measured again"):
        train(mesh, mesh="four:4,two:2", links="measured")


@pytest.mark.compiler
@pytest.mark.parametrize("gbit, is_rewritten", [(1e5, False), (1, True)])
def test_what_does_not_pay_is_left_alone(gbit, is_rewritten, monkeypatch):
    monkeypatch.setattr(links_of_jax, "measure",
                        lambda tiers: dict.fromkeys(tiers.shape, gbit))
    mesh = devices(node=2, gpu=4)
    fast, result = train(mesh, mesh=NODES, links="measured")
    assert any(entry["rewritten"] for entry in
               fast.report()["collectives"]) == is_rewritten
    if not is_rewritten:
        assert all("on these links" in entry["reason"]
                   for entry in fast.rewritten().left_alone)
        _, expected = train(mesh, mesh=NODES, weights="none", gradients="none")
        assert (np.asarray(result) == np.asarray(expected)).all()


@pytest.mark.parametrize("links, target, expected", [
    (None, "cuda", "found"), (None, "portable", None), (None, "cpu", None),
    ("measured", "portable", "found"), ("none", "cuda", "none"),
    ("node=1gbit,gpu=1gbit", "cuda", "node=1gbit,gpu=1gbit")])
def test_when_links_are_measured(links, target, expected, monkeypatch):
    monkeypatch.setattr(_rewrite, "find_links", lambda mesh, devices: "found")
    options = zpp.Options(mesh=NODES, links=links)
    assert _rewrite.with_links(options, target, devices(all=8)).links == expected
    assert _rewrite.with_links(options, target, None) == options


def test_where_tiers_are_not_known_a_default_is_silent(monkeypatch, caplog):
    mesh, options = devices(gpu=4, node=2), zpp.Options(mesh="node:4,gpu:2")
    assert _rewrite.with_links(options, "cuda", mesh) == options
    assert "write the speeds of their links" in caplog.text
    with pytest.raises(ValueError, match="axes of the step's mesh gpu:4,node:2, or "
                                         "have other names, but got 'node:4,gpu:2'"):
        _rewrite.with_links(options.replace(links="measured"), "cuda", mesh)


def test_a_measured_link_needs_devices():
    with pytest.raises(ValueError, match="expected speeds such as .*zpp.jit"):
        zpp.rewrite("module {}", mesh=NODES, links="measured", target="portable")


@pytest.mark.parametrize("axes, mesh, expected", [
    ({"node": 2, "gpu": 4}, None, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ({"all": 8}, "node:2,gpu:4", [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ({"all": 8}, "node:2@1,gpu:4@2", [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ({"gpu": 4, "node": 2}, "node:2,gpu:4", [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ({"gpu": 4, "one": 1, "node": 2}, "node:2,gpu:4", [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ({"gpu": 8}, "node:1,gpu:8", [[0, 1, 2, 3, 4, 5, 6, 7]])])
def test_which_devices_are_a_tier(axes, mesh, expected):
    """As the compiler has it (getStepMesh)."""
    tiers = links_of_jax.arrange(mesh, devices(**axes))
    assert [[device.id for device in row] for row in tiers.devices.reshape(
        len(expected), -1)] == expected


def test_a_tier_of_one_has_no_links():
    found = links_of_jax.measure(devices(node=1, gpu=8))
    assert found["node"] == links_of_jax._NO_LINK and 0 < found["gpu"] < 1e4
    assert links_of_jax.find_links(None, Mesh(
        np.array(jax.devices()[:1]), ("gpu",))) is None


def test_processes_agree(tmp_path, monkeypatch):
    """On the slowest of what they see; a process that has lost it has all measure
    again."""
    barrier, said = threading.Barrier(2), [None, None]
    measured = []

    def run(number, seen):
        def exchange(text):
            said[number] = text
            barrier.wait()
            texts = list(said)
            barrier.wait()
            return texts

        def measure():
            measured.append(number)
            return seen

        found[number] = _links.agree_on_links(f"host {number}", NODES, exchange,
                                              measure)

    def run_both(*seen):
        threads = [threading.Thread(target=run, args=entry)
                   for entry in enumerate(seen)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    found = [None, None]
    fast, slow = {"node": 70, "gpu": 2000}, {"node": 50, "gpu": 3000}
    assert run_both(fast, slow) == ["node=45.3gbit,gpu=2.05e+03gbit"] * 2
    assert sorted(measured) == [0, 1]
    assert run_both(slow, slow)[0] == "node=45.3gbit,gpu=2.05e+03gbit"
    assert len(measured) == 2
    for path in (tmp_path / "zpp").glob("*.links"):
        path.unlink()
    assert run_both(fast, fast)[0] == "node=64gbit,gpu=2.05e+03gbit"
    assert len(measured) == 4


WORKER = """
import sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize("localhost:" + sys.argv[1], 2, int(sys.argv[2]))
import json
import numpy as np
from zpp.jax._links import find_links
mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("node", "gpu"))
print(json.dumps([find_links(None, mesh) for _ in range(2)]))
"""


def test_two_processes_measure_the_same(tmp_path):
    import socket
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    processes = [subprocess.Popen(
        [sys.executable, "-c", WORKER, port, str(number)], text=True,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin",
             # Hosts do not share a cache.
             "XDG_CACHE_HOME": str(tmp_path / str(number))})
        for number in range(2)]
    first, second = (json.loads(process.communicate(timeout=120)[0].splitlines()[-1])
                     for process in processes)
    assert first == second and first[0] == first[1]
    assert all(speeds(first[0]).values())
