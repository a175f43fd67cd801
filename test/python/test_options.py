# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options, and the part of the package that needs no framework."""

import dataclasses
import pathlib
import re
import subprocess
import sys
import textwrap
import types

import jax
import numpy as np
import pytest
import zpp
from zpp.jax._rewrite import find_tiers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def test_structures_are_what_their_text_is():
    devices = np.array(jax.devices()).reshape(2, 4)
    for mesh in ({"node": 2, "gpu": 4}, "node:2,gpu:4",
                 jax.sharding.Mesh(devices, ("node", "gpu")),
                 jax.sharding.AbstractMesh((2, 4), ("node", "gpu"))):
        assert zpp.Options(mesh=mesh).mesh == "node:2,gpu:4"
    assert zpp.Options(mesh="node:2@1,gpu:4@2").mesh == "node:2@1,gpu:4@2"
    for gradients in (("i8", "i4"), ["i8", "i4"], "i8:i4"):
        assert zpp.Options(gradients=gradients).gradients == "i8:i4"
    assert zpp.Options(links={"node": "50gbit", "gpu": "400gbyte"}
                       ).links == "node=50gbit,gpu=400gbyte"
    assert zpp.Options(links=pathlib.Path("links.txt")).links == "links.txt"
    for floors in ({7: "none", 3: "i8"}, "3=i8,7=none", "7=none,3=i8"):
        assert zpp.Options(floors=floors).floors == "3=i8,7=none"
    assert zpp.Options(floors={}).floors == ""


@pytest.mark.parametrize("owners, axes, tiers", [
    ([0, 0, 0, 0, 1, 1, 1, 1], {"data": 8}, "process:2,device:4"),
    ([3, 3, 0, 0, 1, 1], {"one": 1, "data": 6}, "process:3,device:2"),
    ([0, 0, 0, 0, 1, 1, 1, 1], {"node": 2, "gpu": 4}, None),
    ([0, 1, 0, 1, 0, 1, 0, 1], {"tensor": 4, "x": 1, "data": 2},
     "data:2,tensor:4"),
    ([0, 0, 1, 1, 2, 2, 3, 3], {"a": 2, "b": 2, "c": 2}, None),
    ([0, 2, 1, 3, 0, 2, 1, 3], {"c": 2, "b": 2, "a": 2}, "b:2,a:2,c:2"),
    ([0, 0, 0, 0], {"b": 2, "a": 2}, None),
    ([0, 1, 2, 3], {"b": 2, "a": 2}, None),
    ([0, 1, 0, 1], {"data": 4}, None), ([0, 0, 1, 1, 1], {"data": 5}, None),
    ([0, 1, 2, 3], {"data": 4}, None), ([0, 0, 0, 0], {"data": 4}, None),
], ids=str)
def test_tiers_from_processes(owners, axes, tiers):
    devices = np.array([types.SimpleNamespace(process_index=owner)
                        for owner in owners]).reshape(*axes.values())
    assert find_tiers(types.SimpleNamespace(devices=devices,
                                            shape=axes)) == tiers


def test_options_are_values():
    options = zpp.Options(mesh="gpu:4", weights="i8")
    assert options == zpp.Options(weights="i8", mesh={"gpu": 4})
    assert hash(options) == hash(zpp.Options(weights="i8", mesh={"gpu": 4}))
    assert options.replace(weights="i4").weights == "i4"
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.weights = "i4"
    with pytest.raises(TypeError, match="expected options among mesh, .*, but "
                       "got weight$"):
        options.replace(weight="i4")
    with pytest.raises(TypeError, match="positional"):
        zpp.Options("gpu:4")


@pytest.mark.parametrize("options, message", [
    ({"mesh": "node2"}, "expected a mesh such as 'node:2,gpu:4', but got 'node2'"),
    ({"mesh": "node:2,gpu:"}, "but got 'gpu:' in 'node:2,gpu:'"),
    ({"mesh": "node:2, gpu:4"}, "but got ' gpu:4'"),
    ({"mesh": {"node": 0}}, "but got 'node:0'"),
    ({"mesh": {"2": 2}}, "but got '2:2'"),
    ({"mesh": "node:2@,gpu:4"}, "but got 'node:2@'"),
    ({"mesh": "node:2@0,gpu:4"}, "but got 'node:2@0'"),
    ({"mesh": "gpu:2,gpu:4"}, "but got 'gpu' twice"),
    ({"mesh": {}}, "mesh with named axes, but got {}"),
    ({"mesh": 8}, "mesh with named axes, but got 8"),
    ({"weights": "i3"}, "weights: expected 'none', 'i8', 'i4', 'i8:delta' or "
     "'i4:delta', but got 'i3'"),
    ({"weights": 8}, "but got 8"),
    ({"gradients": "i8:i5"}, "as .'i8', 'i4'. or 'i8:i4', but got 'i8:i5'"),
    ({"gradients": ()}, "but got ()"),
    ({"gradients": 4}, "but got 4"),
    ({"reduced": "i8:i4"}, "reduced: expected .*, but got .i8:i4."),
    ({"moments": "i4"}, "moments: expected 'none' or 'i8', but got 'i4'"),
    ({"exchanges": "i4"}, "exchanges: expected 'none' or 'i8', but got 'i4'"),
    ({"updated": "i3"}, "updated: expected 'none', 'i8' or 'i4', but got 'i3'"),
    ({"floors": "3"}, "floors: expected {3: 'i8', 7: 'none'} or '3=i8,7=none', with the "
     "numbers of collectives, but got '3'"),
    ({"floors": "3=i4"}, "but got '3=i4'"),
    ({"floors": {3: "i4"}}, "but got {3: 'i4'}"),
    ({"floors": {True: "i8"}}, "but got {True: 'i8'}"),
    ({"floors": "-1=i8"}, "but got '-1=i8'"),
    ({"floors": "3=i8,3=none"}, "but got '3=i8,3=none'"),
    ({"floors": 3}, "but got 3"),
    ({"secondary": 0}, "secondary: expected an integer, 1 or more, but got 0"),
    ({"secondary": 2.0}, "but got 2.0"),
    ({"regather": 1}, "regather: expected True or False, but got 1"),
    ({"links": 50}, "links: expected {'node': '50gbit'}, .*, but got 50"),
    ({"target": "tpu"}, "target: expected 'auto', 'portable', 'cuda' or 'cpu', "
     "but got 'tpu'"),
], ids=str)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        zpp.Options(**options)


@pytest.mark.parametrize("options, message", [
    ({"rotate": 64}, "rotate: expected 0 or 32, but got 64"),
    ({"rotate": True}, "rotate: expected 0 or 32, but got True"),
    ({"block": 100}, "block: expected a power of two, but got 100"),
    ({"block": 16}, "block: expected an integer, 32 to 2048, but got 16"),
    ({"prefetch_bytes": "1M"}, "prefetch_bytes: .*, but got '1M'"),
    ({"coalesce_bytes": True}, "coalesce_bytes: .*, but got True"),
    ({"compile_timeout": 0}, "compile_timeout: .* seconds, but got 0"),
], ids=str)
def test_bad_tuning(options, message):
    for make in (zpp.Tuning, lambda **given: zpp.Options(tuning=given)):
        with pytest.raises(ValueError, match=message):
            make(**options)
    with pytest.raises(TypeError, match="among block, .*, but got blok$"):
        zpp.Options(tuning={"blok": 32})
    with pytest.raises(ValueError, match="tuning: expected options by name or "
                       "zpp.Tuning, but got 32"):
        zpp.Options(tuning=32)


def python(script: str) -> str:
    """The output of a Python that finds neither JAX nor PyTorch."""
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(ROOT / 'python')!r})
            for name in ("jax", "jaxlib", "torch"):
                sys.modules[name] = None
            """) + textwrap.dedent(script)],
        text=True, capture_output=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_package_needs_no_framework():
    assert python("""
        import zpp
        assert zpp.Options(mesh={"gpu": 2}).mesh == "gpu:2"
        assert "jit" in dir(zpp)
        for name in ("jit", "export", "load", "save", "jax"):
            try:
                getattr(zpp, name)
            except ImportError as error:
                assert "zpp.jax needs JAX: pip install 'jax>=0.10.2'" in str(error)
            else:
                raise AssertionError(name)
        print(zpp.__version__)
    """).strip() == zpp.__version__


@pytest.mark.compiler
def test_text_is_rewritten_without_a_framework():
    assert python("""
        import zpp
        text = '"builtin.module"() ({"func.func"() <{function_type = () -> (), sym_name = "main"}> ({"func.return"() : () -> ()}) : () -> ()}) : () -> ()'
        result = zpp.rewrite(text, mesh="gpu:2", weights="none", gradients="none", secondary="none")
        print(result.report["mesh"], result.target)
    """) == "{'gpu': 2} portable\n"


def test_the_version_is_that_of_the_project():
    (version,) = re.findall(r"^project\(zpp VERSION (\S+)",
                            (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert zpp.__version__ == version


def test_unknown_names():
    with pytest.raises(AttributeError, match="'zpp' has no attribute 'jitt'"):
        zpp.jitt  # noqa: B018
