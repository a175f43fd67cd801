# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`zpp doctor`: what is here, what is missing and what is broken."""

import ctypes
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest
import zpp
from conftest import ROOT
from startwait import needs_library
from zpp import _cache, _doctor
from zpp._cli import main
from zpp._library import find_library

BUILD = pathlib.Path(os.environ.get("ZPP_XLA", "build/lib/x")).parent.parent


def findings() -> dict[str, _doctor.Finding]:
    return {finding.name: finding for finding in _doctor.examine()}


@needs_library
@pytest.mark.compiler
def test_here(monkeypatch, capsys):
    # The build directory of the tests may have any name.
    monkeypatch.setenv("ZPP_RT", str(pathlib.Path(
        find_library("zpp_xla")).with_name("libzpp_rt.so")))
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    for name in ("zpp", "compiler", "bundler", "folder", "runtime", "JAX"):
        assert findings()[name].state == "ok", output
    for feature in ("zpp rewrite, report and plan", "zpp.jax, target portable",
                    "zpp.jax, target cpu"):
        assert f"{feature:<32} yes" in output


@pytest.mark.parametrize("program, message", [
    ("/nowhere/zpp-opt", "expected zpp-opt at $ZPP_OPT, but got none at "
     "'/nowhere/zpp-opt'"),
    ("/bin/false", "expected /bin/false to run, but got: exit status 1")])
def test_broken_compiler(program, message, monkeypatch, capsys):
    monkeypatch.setenv("ZPP_OPT", program)
    assert main(["doctor"]) == 1
    found = findings()["compiler"]
    assert (found.state, found.text) == ("bad", message)
    output = capsys.readouterr().out
    assert f"mend: {found.remedy}" in output
    assert "zpp rewrite, report and plan     no: compiler" in output


@pytest.mark.compiler
def test_no_linker(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    found = findings()["bundler"]
    assert found.state == "none" and found.remedy == "apt-get install binutils"
    assert "expected a linker in PATH, one of ld.lld" in found.text


def test_folder_without_libraries(monkeypatch):
    flags = types.SimpleNamespace(f_flag=os.ST_NOEXEC, f_bavail=1, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: flags)
    found = findings()["folder"]
    assert found.state == "bad" and "but got a noexec mount" in found.text


def test_broken_runtime(monkeypatch, tmp_path):
    (tmp_path / "libzpp_rt.so").write_text("no library")
    monkeypatch.setenv("ZPP_RT", str(tmp_path / "libzpp_rt.so"))
    found = findings()["runtime"]
    assert found.state == "bad" and "expected the runtime to load" in found.text
    monkeypatch.setenv("ZPP_RT", "/nowhere/libzpp_rt.so")
    assert findings()["runtime"].state == "none"


def with_versions(monkeypatch, versions):
    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError
        return versions[name]
    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.mark.parametrize("versions, jax, torch", [
    ({}, ("none", "no jax"), ("none", "no torch")),
    ({"jax": "0.9.0", "jaxlib": "0.9.0", "torch": "2.8.1+cu128"},
     ("bad", "expected jaxlib 0.10.2 or newer, but got 0.9.0"),
     ("bad", "expected PyTorch 2.9 or newer, but got 2.8.1+cu128")),
    ({"jax": "0.11.2", "jaxlib": "0.11.2", "jax-cuda13-plugin": "0.11.2",
      "flatbuffers": "25.2",
      "torch": "2.10.0.dev1"},
     ("ok", "0.11.2, jaxlib 0.11.2, jax-cuda13-plugin 0.11.2"),
     ("ok", "2.10.0.dev1"))], ids=["none", "old", "new"])
def test_front_ends(monkeypatch, versions, jax, torch):
    with_versions(monkeypatch, versions)
    found = findings()
    assert (found["JAX"].state, found["JAX"].text) == jax
    assert (found["PyTorch"].state, found["PyTorch"].text) == torch
    for name in ("JAX", "PyTorch"):
        assert (found[name].remedy is None) == (found[name].state == "ok")


H200 = _doctor.Gpu("NVIDIA H200", (9, 0), 139 << 30)
T4 = _doctor.Gpu("Tesla T4", (7, 5), 15 << 30)


@pytest.mark.parametrize("gpus, state, text", [
    ([], "none", "no GPU"),
    ([H200, H200], "ok", "2 x NVIDIA H200 (sm_90, 139 GiB)"),
    ([H200, T4], "bad", "expected GPUs of sm_80 or newer, but got Tesla T4 "
     "(sm_75)")])
def test_gpus(monkeypatch, gpus, state, text):
    monkeypatch.setattr(_doctor, "find_gpus", lambda: gpus)
    found = findings()["GPUs"]
    assert (found.state, found.text) == (state, text)


def test_driver_says_what_gpus_there_are(monkeypatch):
    """The calls of the driver, in their order."""
    class Driver:
        def cuInit(self, flags):
            return 0

        def cuDeviceGetCount(self, count):
            count._obj.value = 2
            return 0

        def cuDeviceGet(self, device, index):
            device._obj.value = index

        def cuDeviceGetName(self, name, size, device):
            ctypes.memmove(name, f"GPU {device.value}\0".encode(), 6)

        def cuDeviceTotalMem_v2(self, size, device):
            size._obj.value = 1 << 30

        def cuDeviceGetAttribute(self, value, number, device):
            value._obj.value = {75: 12, 76: 0}[number]

    monkeypatch.setattr(_doctor, "_driver", Driver)
    assert _doctor.find_gpus() == [
        _doctor.Gpu("GPU 0", (12, 0), 1 << 30),
        _doctor.Gpu("GPU 1", (12, 0), 1 << 30)]


@pytest.mark.parametrize("kind, state, text", [
    ("old", "bad", "expected NCCL 2.19 or newer, but got 2.18.3"),
    ("new", "ok", "2.28.9, "), ("gone", "bad", "no NCCL: ")])
def test_nccl(monkeypatch, kind, state, text):
    fake = BUILD / "unittests" / "Runtime" / "fake-nccl"
    if not fake.exists():
        pytest.skip("needs a build with CUDA")
    monkeypatch.setenv("ZPP_NCCL_LIBRARY", str(fake / kind / "libnccl.so.2"))
    found = findings()["NCCL"]
    assert found.state == state and found.text.startswith(text)


@needs_library
def test_back_end_on_a_simulated_gpu():
    simulated = pathlib.Path(find_library("zpp_xla")).with_name(
        "libzpp_rt_simulated.so")
    if not simulated.exists():
        pytest.skip("needs the headers of CUDA and NCCL")
    done = subprocess.run(
        [sys.executable, "-c",
         "from zpp import _doctor; print(_doctor.check_back_end())"],
        text=True, capture_output=True, check=False, env=os.environ | {
            "ZPP_RT": str(simulated), "ZPP_NCCL_LIBRARY": str(
                simulated.with_name("libnccl-simulated.so"))})
    assert done.stdout == "cuda, runs on GPU 0\n", done.stderr


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_cache_that_cannot_be_written_to(variable, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, "/proc/nowhere")
    found = findings()["cache"]
    assert found.state == "bad"
    assert found.text.startswith("expected a cache folder '/proc/nowhere/")
    assert "export XDG_CACHE_HOME=" in found.remedy
    with pytest.warns(UserWarning, match="set XDG_CACHE_HOME to a folder"):
        _cache.cache_folder.cache_clear()
        assert _cache.cache_folder().is_dir()


def test_no_home(monkeypatch):
    """As in a container that runs as a user without a name."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    found = findings()["cache"]
    assert found.state == "bad" and "HOME is not set" in found.text
    with pytest.warns(UserWarning, match="got no home directory"):
        _cache.cache_folder.cache_clear()
        assert _cache.cache_folder().is_dir()


@pytest.mark.parametrize("source, remedy", [
    (True, "make build"), (False, "pip install --force-reinstall")])
def test_what_brings_a_program(monkeypatch, tmp_path, source, remedy):
    """In a source tree, and in what a wheel has installed."""
    if source:
        (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(zpp, "__file__", str(tmp_path / "python/zpp/__init__.py"))
    monkeypatch.setenv("ZPP_OPT", "/nowhere/zpp-opt")
    assert findings()["compiler"].remedy.startswith(remedy)


def test_nothing_of_pypi_has_the_name():
    """What is called zpp there is something else."""
    words = re.compile(r"pip install (-\S+ )*'?zpp\b")
    for path in (ROOT / "python").rglob("*.py"):
        assert not words.search(path.read_text()), path
