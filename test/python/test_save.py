# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps as folders, and the wheel: compile here, run there."""

import dataclasses
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
import venv
import zipfile

import jax
import numpy as np
import pytest
import wheel_platform
import zpp
from startwait import RANKS, ROOT, bundle, gather, make_bundle
from startwait import needs_library, program, put, token
from training import ALL_ON, BATCH, NODES, OFF, TINY, same_bits
from training import tokens, trainer_of, with_options
from zpp import _bundle
from zpp._bundle import read_file, write_folder
from zpp._library import find_library
from zpp.jax import _runtime

X = np.arange(RANKS * 16, dtype=np.float32)
CHECKS = [jax.export.DisabledSafetyCheck.custom_call(f"zpp.{name}")
          for name in ("start", "wait")]


def gathering_step() -> zpp.Step:
    """As zpp.rewrite returns it for target cpu."""
    def body(state):
        y, _ = gather(state["x"], token())
        return {"x": state["x"] + 1, "sum": y.sum()[None]}

    step = zpp.export(
        program(body, inputs=({"x": "data"},),
                outputs={"x": "data", "sum": "data"}, donate_argnums=0),
        {"x": put(X)}, disabled_checks=CHECKS)
    return dataclasses.replace(step, bundle=bundle())


@needs_library
def test_save_and_load(tmp_path):
    path = tmp_path / "folder" / "step.zpp"
    zpp.save(gathering_step(), path)
    assert sorted(part.name for part in path.iterdir()) == [
        "bundle.json", "jax.json", "libstep.so", "step.jax", "step.mlir"]
    for name, content in bundle().files.items():
        assert (path / name).read_bytes() == content
    notes = json.loads((path / "jax.json").read_text())
    assert notes["bundle"] == bundle().id
    assert (notes["devices"], notes["donated"]) == (RANKS, [0])

    step = zpp.load(path)
    state = {"x": put(X) + 0}
    result = step(state)
    assert np.array_equal(result["x"], X + 1)
    assert np.array_equal(result["sum"], np.full(RANKS, X.sum()))
    assert state["x"].is_deleted()
    # A step that is saved again replaces the older one.
    zpp.save(gathering_step(), str(path))
    assert zpp.load(str(path))({"x": put(X)})["x"].shape == X.shape


@needs_library
@pytest.mark.compiler
def test_a_folder_that_jax_did_not_write(tmp_path):
    """zpp-bundle alone knows only the module: flat arguments and results."""
    trainer = trainer_of(with_options(layers=1))
    step = zpp.export(trainer.step, trainer.abstract_state(),
                      trainer.abstract_batch(BATCH))
    rewritten = zpp.rewrite(step, mesh=NODES, target="cpu", **ALL_ON)
    path = tmp_path / "step.zpp"
    zpp.save(rewritten, path)
    state, batch = trainer.init(), trainer.batch(tokens(TINY, 0))
    expected = zpp.load(path)(state, batch)
    (path / "step.jax").unlink()
    (path / "jax.json").unlink()
    leaves = jax.tree.leaves((state, batch))
    assert same_bits(zpp.load(path)(*leaves), jax.tree.leaves(expected))
    with pytest.raises(ValueError, match="expected an argument on a mesh of 8"):
        zpp.load(path)(*map(np.asarray, leaves))
    with pytest.raises(ValueError, match="expected a step in the function 'mai"):
        zpp.jax._export.from_text("module {}", RANKS)


def test_a_portable_step(tmp_path):
    trainer = trainer_of(with_options(layers=1))
    step = zpp.export(trainer.step, trainer.abstract_state(),
                      trainer.abstract_batch(BATCH))
    zpp.save(step, tmp_path / "step.zpp")
    assert sorted(part.name for part in (tmp_path / "step.zpp").iterdir()) == [
        "jax.json", "step.jax", "step.mlir"]
    arguments = trainer.init(), trainer.batch(tokens(TINY, 0))
    assert same_bits(zpp.load(tmp_path / "step.zpp")(*arguments),
                     zpp.load(step)(*arguments))


@pytest.mark.compiler
def test_rewritten_steps_are_saved_as_they_are(tmp_path):
    trainer = trainer_of(with_options(layers=1))
    rewritten = zpp.rewrite(
        zpp.export(trainer.step, trainer.abstract_state(),
                   trainer.abstract_batch(BATCH)), mesh=NODES,
        **{**OFF, "weights": "i8"})
    zpp.save(rewritten, tmp_path / "step.zpp")
    arguments = trainer.init(), trainer.batch(tokens(TINY, 0))
    assert same_bits(zpp.load(tmp_path / "step.zpp")(*arguments),
                     zpp.load(rewritten.step)(*arguments))
    with pytest.raises(TypeError, match="expected a rewritten zpp.Step"):
        zpp.save(dataclasses.replace(rewritten, step=None), tmp_path / "x")


def test_errors(tmp_path):
    step = zpp.export(lambda x: x + 1, 1.0)
    with pytest.raises(FileNotFoundError, match="no bundle.json there"):
        zpp.load(tmp_path)
    with pytest.raises(TypeError, match="expected a rewritten zpp.Step, but "
                       "got function"):
        zpp.save(lambda x: x, tmp_path / "x")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="got something else"):
        zpp.save(step, tmp_path / "file")
    path = tmp_path / "step.zpp"
    zpp.save(step, path)
    written = (path / "jax.json").read_text()
    for text, message in (
            ('{"version": 0}', "expected version 2, but got 0"),
            (written[:30], "jax.json: expected JSON"),
            ("[]", "jax.json: expected 'version' of type int, but got None"),
            (written.replace("donated", "given"), "jax.json: expected the file "
             "that was written"),
            (written.replace("sha256", "md5"), "expected 'sha256' of type")):
        (path / "jax.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            zpp.load(path)
    # Files are checked before they are executed or parsed.
    (path / "jax.json").write_text(written)
    (path / "step.jax").write_bytes((path / "step.jax").read_bytes()[:-1])
    with pytest.raises(ValueError, match="step.jax: expected the file that was "
                       "written"):
        zpp.load(path)
    for name in ("step.jax", "jax.json"):
        zpp.save(step, path)
        (path / name).unlink()
        with pytest.raises(FileNotFoundError, match=f"but got no {name} there"):
            zpp.load(path)


@needs_library
def test_every_bit_of_a_bundle_counts(tmp_path):
    """Whatever bit has changed, in any file: an error that says what was
    expected, before anything is executed."""
    path = tmp_path / "step.zpp"
    zpp.save(gathering_step(), path)
    for name in ("bundle.json", "jax.json", "libstep.so", "step.jax"):
        written = (path / name).read_bytes()
        every = 1 if name.endswith("json") else len(written) // 20
        for position in range(0, len(written), every):
            changed = bytearray(written)
            changed[position] ^= 1 << position % 8
            (path / name).write_bytes(changed)
            with pytest.raises(ValueError, match="expected .*, but got "):
                zpp.load(path)
        (path / name).write_bytes(written)
        (path / name).unlink()
        with pytest.raises((ValueError, FileNotFoundError),
                           match="expected .*, but got "):
            zpp.load(path)
        (path / name).write_bytes(written)
    assert zpp.load(path)({"x": put(X)})["x"].shape == X.shape


@needs_library
@pytest.mark.parametrize("entries, message", [
    ({"id": "0" * 32}, "expected the id of these files, .*, but got '000"),
    ({"mesh": "node:x"}, "bundle.json: expected a mesh such as 'node:2,gpu:4', but "
     "got 'node:x'"),
    ({"mesh": "gpu:2,gpu:2"}, "but got 'gpu' twice"),
    ({"mesh": 8}, "expected 'mesh' of type str, but got 8"),
    ({"version": 4}, "expected version 5, but got 4"),
    ({"functions": {}}, "expected 'functions' of type list, but got {}"),
], ids=str)
def test_a_manifest_of_something_else(entries, message):
    """Even if its digest is right."""
    with pytest.raises(ValueError, match=message):
        make_bundle(b"library", **entries)
    assert make_bundle(b"library").devices == RANKS


@needs_library
def test_a_bundle_of_another_step(tmp_path):
    path = tmp_path / "step.zpp"
    zpp.save(gathering_step(), path)
    for name, content in make_bundle(b"library").files.items():
        (path / name).write_bytes(content)
    with pytest.raises(ValueError, match="expected bundle.json of the bundle "
                       "'.*', but got that of '"):
        zpp.load(path)
    (path / "bundle.json").unlink()
    with pytest.raises(ValueError, match="expected .* of the bundle '.*', but "
                       "got none"):
        zpp.load(path)


@pytest.mark.slow
@needs_library
@pytest.mark.compiler
def test_a_wheel_needs_nothing_else(tmp_path):
    build = pathlib.Path(find_library("zpp_xla")).parent.parent
    # As `make wheel` does. Debian 12 has glibc 2.36, hosts with GPUs 2.34.
    glibc = tuple(map(int, platform.libc_ver()[1].split(".")))
    subprocess.run(["cmake", "--build", build, "--target", "zpp-wheel"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--install", build, "--component", "wheel",
                    "--prefix", tmp_path / "files"], check=True,
                   stdout=subprocess.DEVNULL)
    name = wheel_platform.name_platform(tmp_path / "files")
    assert glibc > (2, 36) or name == f"manylinux_2_34_{platform.machine()}"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index",
         "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
         "--wheel-dir", tmp_path, "-C", "cmake.source-dir=cmake/prebuilt",
         "-C", f"cmake.define.ZPP_BUILD_DIR={build}", ROOT], check=True,
        env=os.environ | {"_PYTHON_HOST_PLATFORM": name})
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"zpp-{zpp.__version__}-py3-none-{name}.whl"
    assert wheel.stat().st_size < 40e6
    names = zipfile.ZipFile(wheel).namelist()
    for path in wheel_platform.find_binaries(tmp_path / "files"):
        assert f"zpp/{path.relative_to(tmp_path / 'files')}" in names
        # In no binary one that an older system lacks.
        assert not {"arc4random", "_dl_find_object"} & set(
            wheel_platform.read_undefined(path))
    assert {"zpp/lib/libzpp_xla.so",
            "zpp/jax/__init__.py", "zpp/py.typed"} <= set(names)

    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("ZPP_", "PYTHON"))}
    environment["PATH"] = "/usr/bin:/bin"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index",
                    "--no-deps", "--disable-pip-version-check", wheel],
                   env=environment, check=True)
    # JAX comes from the environment of the tests.
    site = pathlib.Path(sysconfig.get_path(
        "purelib", vars={"base": tmp_path / "venv"}))
    (site / "jax.pth").write_text(sysconfig.get_path("purelib") + "\n")

    zpp.save(gathering_step(), tmp_path / "step.zpp")
    script = textwrap.dedent("""
        import sys
        import jax, numpy as np
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 8)
        import zpp
        assert zpp.__file__.startswith(sys.prefix), zpp.__file__
        assert zpp.__version__ == sys.argv[1]
        mesh = jax.make_mesh((8,), "data")
        x = jax.device_put(np.arange(128, dtype=np.float32),
                           jax.NamedSharding(mesh, jax.P("data")))
        print(np.asarray(zpp.load("step.zpp")({"x": x})["sum"])[7])
    """)
    process = subprocess.run(
        [python, "-c", script, zpp.__version__], cwd=tmp_path, text=True,
        env=environment, capture_output=True, check=False)
    assert process.stdout == f"{X.sum()}\n", process.stderr

    # The compiler in it does not need LLVM either, if it could be linked so.
    def needs(program):
        return subprocess.run(["ldd", program], text=True, check=True,
                              capture_output=True).stdout
    if "libMLIR" in needs(build / "bin" / "zpp-opt"):
        return
    needed = needs(site / "zpp" / "bin" / "zpp-opt")
    assert "libLLVM" not in needed and "libMLIR" not in needed, needed
    assert f"libzstd.so.1 => {site}" in needed, needed
    trainer = trainer_of(with_options(layers=1))
    text = zpp.export(trainer.step, trainer.abstract_state(),
                      trainer.abstract_batch(BATCH)).text()
    (tmp_path / "step.mlir").write_text(text)
    words = ["rewrite", "step.mlir", "--mesh", NODES, "--weights", "i8", "-o"]
    subprocess.run([python.with_name("zpp"), *words, "fast.mlir"], cwd=tmp_path,
                   env=environment, check=True)
    subprocess.run([sys.executable, "-m", "zpp", *words, "expected.mlir"], cwd=tmp_path,
                   env=os.environ | {"PYTHONPATH": str(ROOT / "python")}, check=True)
    assert (tmp_path / "fast.mlir").read_text() == (
        tmp_path / "expected.mlir").read_text()


# Traces ----------------------------------------------------------------------


def names_in(path: pathlib.Path) -> list[str]:
    return [event["name"] for event in
            json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


@needs_library
def test_trace_records_the_calls_inside(tmp_path):
    step = zpp.load(gathering_step())
    for calls in (1, 3):
        # Nobody waits for these.
        for _ in range(5):
            step({"x": put(X) + 0})
        with zpp.trace(tmp_path / "trace.json"):
            for _ in range(calls):
                step({"x": put(X) + 0})
        assert names_in(tmp_path / "trace.json") == [
            "all_gather_chunks model.py:16"] * calls * RANKS
    with pytest.raises(RuntimeError, match="one trace at a time"):
        with zpp.trace("a"), zpp.trace("b"):
            pass
    assert not _runtime.is_recording()


@needs_library
def test_trace_of_a_process(tmp_path):
    zpp.save(gathering_step(), tmp_path / "step.zpp")
    script = textwrap.dedent(f"""
        import sys
        sys.path[:0] = [{str(ROOT / 'python')!r},
                        {str(ROOT / 'test' / 'python')!r}]
        import conftest, zpp
        from startwait import put
        from test_save import X
        zpp.load("step.zpp")({{"x": put(X) + 0}})
    """)
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True,
                   env=os.environ | {"ZPP_TRACE": "trace.json"})
    assert names_in(tmp_path / "trace.json") == [
        "all_gather_chunks model.py:16"] * RANKS


@needs_library
def test_a_trace_of_nothing_is_a_warning(tmp_path):
    zpp.load(gathering_step())({"x": put(X) + 0})
    with pytest.warns(UserWarning, match="expected a step for target cuda"):
        with zpp.trace(tmp_path / "trace.json"):
            pass
    assert not (tmp_path / "trace.json").exists()


def test_links_and_pipes(tmp_path):
    """A link to a folder stays a link, and what has no end is not read."""
    there, link = tmp_path / "there", tmp_path / "link"
    link.symlink_to(there)
    with pytest.raises(FileExistsError, match="expected a bundle or nothing"):
        write_folder(link, {"mark": b"new"}, ("mark",))
    write_folder(there, {"mark": b"old"}, ("mark",))
    write_folder(link, {"mark": b"new"}, ("mark",))
    assert link.is_symlink()
    assert read_file(there, "mark") == read_file(link, "mark") == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]
    os.mkfifo(there / "pipe")
    (there / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(ValueError, match=f"{name}: expected a file, but "
                                             "got something else"):
            read_file(there, name)


def test_a_signal_leaves_whole_folders_and_nothing_else(tmp_path):
    """Whenever it comes."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import sys
        from zpp._bundle import write_folder
        from zpp._files import write_file
        print("begins", flush=True)
        while True:
            write_folder(sys.argv[1] + "/step.zpp",
                         {"mark": bytes(1 << 20), "other": bytes(1 << 20)},
                         ("mark",))
            write_file(sys.argv[1] + "/step.mlir", bytes(1 << 20))
    """))
    folder = tmp_path / "folder"
    folder.mkdir()
    for wait in range(6):
        process = subprocess.Popen([sys.executable, script, folder],
                                   stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.1 + 0.013 * wait)
        process.terminate()
        assert process.wait() == -signal.SIGTERM
        assert set(os.listdir(folder)) <= {"step.zpp", "step.mlir"}
        for path in folder.glob("*/*"):
            assert path.stat().st_size == 1 << 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux")
def test_a_folder_is_replaced_at_once(tmp_path, monkeypatch):
    """There is no moment without a folder, and where the system cannot do
    this, whatever ends the process between two renames leaves the older one."""
    folder = tmp_path / "step.zpp"
    write_folder(folder, {"mark": b"old", "other": b""}, ("mark",))
    rename = pathlib.Path.rename

    def interrupt(path, target):
        if pathlib.Path(target) == folder and path.name == "new":
            raise KeyboardInterrupt
        return rename(path, target)

    def refuse(path, target):
        raise AssertionError(f"{path} is renamed to {target}")

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "rename", refuse)
        write_folder(folder, {"mark": b"new"}, ("mark",))
    assert os.listdir(folder) == ["mark"]
    with monkeypatch.context() as patch:
        patch.setattr(_bundle, "_exchange_names", lambda a, b: False)
        patch.setattr(pathlib.Path, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_folder(folder, {"mark": b"newer"}, ("mark",))
        assert read_file(folder, "mark") == b"new"
        patch.setattr(pathlib.Path, "rename", rename)
        write_folder(folder, {"mark": b"newer"}, ("mark",))
    assert read_file(folder, "mark") == b"newer"
    assert os.listdir(tmp_path) == ["step.zpp"]
