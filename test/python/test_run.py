# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""zpp.install and `zpp run`: the callback on a recorded module, and the start of
programs."""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import types

import jax
import numpy as np
import pytest
import recorded

import zpp
from zpp import _run_command, _start
from zpp.jax import _hook, _install, _processes, _rewrite
from zpp.jax._proto import read_fields

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MESH = "node:2,gpu:2"


@pytest.fixture(scope="module")
def module():
    return _hook.HloModule(recorded.record())


@pytest.fixture
def installed(monkeypatch):
    """Installs as on a GPU, but lets nobody call the callback."""
    monkeypatch.setattr(_hook, "obstacle", lambda: None)
    monkeypatch.setattr(_hook, "register", lambda callback: None)
    _hook.extend_cache_keys.cache_clear()

    def install(**options):
        zpp.install(**{"mesh": MESH, "target": "portable", **options})
        return _install._current
    yield install
    zpp.uninstall()


def transform(module, **changes):
    rewriter = _install._Rewriter(
        zpp.Options(**{"mesh": MESH, "target": "portable", **changes}), None)
    return rewriter, rewriter.rewrite(module.content)


def results(module):
    return recorded.execute(module.to_stablehlo(), *recorded.make_arguments())


# The module --------------------------------------------------------------------


def test_recorded_module(module):
    """It is what a GPU's compiler hands over, and does what the step does."""
    assert module.name == "jit_step"
    assert module.devices == [0, 1, 2, 3]
    assert module.has_collectives and module.why_not() is None
    assert "reduce-scatter" not in module.opcodes
    assert module.opcodes.count("while") == 2
    expected = jax.jit(recorded.step)(*recorded.make_arguments())
    for shards, leaf in zip(results(module), jax.tree.leaves(expected)):
        for own, shard in zip(shards, leaf.addressable_shards):
            np.testing.assert_array_equal(own, np.asarray(shard.data))


@pytest.mark.compiler
def test_rewrite_is_exact_where_nothing_is_rounded(module, capsys):
    """The secondary partition alone: other collectives, equal bits."""
    rewriter, content = transform(module, weights="none", gradients="none")
    assert content is not None
    new = _hook.HloModule(content)
    assert "reduce-scatter" in new.opcodes
    for old, own in zip(results(module), results(new)):
        np.testing.assert_array_equal(old, own)
    (report,) = rewriter.reports
    assert report.rewritten
    assert capsys.readouterr().err == f"zpp: {report}\n"


@pytest.mark.slow
@pytest.mark.compiler
def test_rewrite_in_loops(module):
    """Weights and gradients in the loops are found, as in the step of zpp.jit."""
    rewriter, content = transform(module)
    (report,) = rewriter.reports
    roles = sorted((entry["role"], entry["kind"], entry["rewritten"])
                   for entry in report.report["collectives"])
    assert roles == [("gradient", "reduce_scatter", True)] * 2 + [
        ("other", "all_reduce", False)] + [("weight", "all_gather", True)] * 3
    step = zpp.rewrite(zpp.export(jax.jit(recorded.step, donate_argnums=0),
                                  *recorded.make_arguments()),
                       mesh=MESH, target="portable")
    assert report.report["total"]["after"] == step.report["total"]["after"]
    for old, own in zip(results(module), results(_hook.HloModule(content))):
        assert not np.array_equal(old, own)
        np.testing.assert_allclose(own, old, atol=2e-3)


@pytest.mark.compiler
def test_fields_survive(module):
    """Aliases, donors, shardings, layouts and the device assignment are those of the
    old module, by the same bytes."""
    _, content = transform(module)
    old, new = (
        [written for number, written, _ in each._fields
         if number not in _hook._REPLACED]
        for each in (module, _hook.HloModule(content)))
    assert old == new
    # The shape, aliases, donors, the shardings and the device assignment.
    assert {4, 8, 12, 14, 15, 18} <= {number for number, _, _ in module._fields}


@pytest.mark.compiler
def test_channels_are_unique(module):
    """The partitioner, which numbers them otherwise, is done."""
    from jax._src.lib import hlo
    _, content = transform(module)
    text = hlo.HloModule.from_serialized_hlo_module_proto(content).to_string()
    channels = re.findall(r"channel_id=(\d+)", text)
    assert len(channels) > 6 and len(set(channels)) == len(channels)


def test_other_signature(module):
    with pytest.raises(_hook.ContractError, match="arguments and results"):
        module.with_stablehlo(
            "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
            "  return %x : tensor<4xf32>\n}")


TURNED = """
func.func @main(%x: tensor<4x8xf32>) -> {results} {{
  %turned = stablehlo.transpose %x, dims = [1, 0] :
    (tensor<4x8xf32>) -> tensor<8x4xf32>
  %sum = stablehlo.add %turned, %turned : tensor<8x4xf32>
  return {values}
}}"""
PLAIN = """
func.func @main(%x: tensor<4x8xf32>) -> {results} {{
  %sum = stablehlo.reshape %x : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return {values}
}}"""


@pytest.mark.parametrize("results, values, layouts", [
    ("tensor<8x4xf32>", "%sum : tensor<8x4xf32>", ["1,0"]),
    ("(tensor<8x4xf32>, tensor<4x8xf32>)",
     "%sum, %x : tensor<8x4xf32>, tensor<4x8xf32>", ["1,0", "1,0"])])
def test_layouts_of_results(results, values, layouts):
    """JAX reads results in the layouts of the old module. XLA infers others for a
    transpose and what follows it, and would give the results in these."""
    from jax._src.lib import hlo

    def layouts_of(content):
        text = hlo.HloModule.from_serialized_hlo_module_proto(content).to_string()
        entry = text[text.index("ENTRY"):]
        root = re.search(r"ROOT \S+ = (.*?) \w+\(%", entry)[1]
        return re.findall(r"\{([\d,]*)\}", root)

    old = _hook.HloModule(_hook._to_hlo(PLAIN.format(results=results, values=values)))
    turned = TURNED.format(results=results, values=values)
    assert layouts_of(old.content) == layouts
    assert layouts_of(_hook._to_hlo(turned)) != layouts
    new = _hook.HloModule(old.with_stablehlo(turned))
    assert layouts_of(new.content) == layouts
    # What is replaced keeps no layout of the old program.
    assert "xla_shape" not in new.to_stablehlo()
    assert layouts_of(new.with_stablehlo(new.to_stablehlo())) == layouts


def test_truncated(module):
    with pytest.raises(ValueError, match="ends in a field"):
        list(read_fields(module.content[:-1]))
    with pytest.raises(ValueError, match="wire type 7"):
        list(read_fields(b"\x0f\x00"))


def compiled(function, *arguments):
    """A module as XLA's compiler leaves it at its end."""
    return _hook.HloModule(
        jax.jit(function).lower(*arguments).compile().runtime_executable()
        .hlo_modules()[0].as_serialized_hlo_module_proto())


def test_too_late():
    """A module that StableHLO cannot say everything of is left alone."""
    late = compiled(lambda x: (x * 2 + 1).sum(), np.ones((8, 8), np.float32))
    assert "scheduled" in late.why_not()
    fields = list(read_fields(late.content))
    fused = _hook.HloModule(b"".join(
        written for number, written, _ in fields if number != _hook._SCHEDULE))
    assert "fused" in fused.why_not()


def test_probe(monkeypatch):
    _hook.probe()
    monkeypatch.setattr(_hook, "_to_hlo", lambda text: b"\x0a\x05probe")
    with pytest.raises(_hook.ContractError, match="tiny module back"):
        _hook.probe.__wrapped__()


# Untouched -----------------------------------------------------------------------


def test_without_collectives():
    rewriter = _install._Rewriter(zpp.Options(mesh=MESH), None)
    assert rewriter.rewrite(compiled(lambda x: x + 1, 1.0).content) is None
    assert not rewriter.reports
    assert rewriter.last_words() == (
        "nothing was rewritten: of 1 modules: 1 x no collectives")


def test_other_mesh(module):
    rewriter, content = transform(module, mesh="node:2,gpu:4")
    assert content is None
    assert rewriter.reports[0].reason == (
        "it runs on 4 devices, not on the 8 of mesh=node:2,gpu:4")
    assert "it runs on 4 devices" in rewriter.last_words()


@pytest.mark.compiler
def test_all_left_alone(module, capsys):
    rewriter, content = transform(module, secondary="none",
                                  links="node=1000000gbit,gpu=1000000gbit")
    assert content is None
    assert "on these links" in rewriter.reports[0].reason
    assert str(rewriter.reports[0]).startswith("jit_step stays as it was: ")
    assert capsys.readouterr().err == ""


@pytest.mark.compiler
@pytest.mark.parametrize("options, limit, why, is_rewritten", [
    ({}, 1 << 40, "", True),
    ({}, 1, "in-flight limit 0 B: ", True),
    ({"tuning": {"prefetch_bytes": 1 << 20}}, 1, "", True),
    ({"options": "auto"}, 1 << 40, "FSDP: predicted ", False)])
def test_memory_limit(module, installed, monkeypatch, options, limit, why, is_rewritten):
    """The compiler chooses as it does for zpp.jit, and the line says what."""
    monkeypatch.setattr(_rewrite, "get_memory_limit", lambda device: limit)
    monkeypatch.setattr(_rewrite, "exchange_between", lambda devices, topic, text: (
        [text] if topic == f"memory/jit_step/{module.digest}" else []))
    rewriter = installed(target="cuda", **options)
    decision = rewriter._decide(module, jax.devices()[:4])
    assert (decision.content is not None) is is_rewritten
    choices = [choice["why"] for choice in decision.result.report["choices"]]
    assert len(choices) == bool(why) and all(each.startswith(why) for each in choices)
    rewriter._note(module, decision, 0.0)
    assert all(each in str(rewriter.reports[0]) for each in choices)


# Faults ---------------------------------------------------------------------------


def test_failures_warn_once(module, monkeypatch, capsys, installed):
    """A compiler that fails does not end the training."""
    installed()
    monkeypatch.setenv("ZPP_OPT", "/bin/false")
    for _ in range(2):
        assert _install._transform(module.content) is None
    err = capsys.readouterr().err
    assert err.count("zpp: warning: jit_step stays as it was: CompileError") == 1
    assert len(err.splitlines()) == 1
    assert [each.rewritten for each in zpp.report()] == [False, False]


def test_garbage_warns_once(installed, capsys):
    installed()
    for _ in range(2):
        assert _install._transform(b"\x0f all-gather") is None
    assert capsys.readouterr().err.count("warning") == 1


@pytest.mark.compiler
def test_threads(module, installed):
    installed()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        contents = list(pool.map(_install._transform, [module.content] * 3))
    assert contents[0] is not None and len(set(contents)) == 1
    assert len(zpp.report()) == 3


def test_compilation_inside_of_another(module, installed, monkeypatch):
    rewriter = installed()
    inner = []
    monkeypatch.setattr(rewriter, "rewrite", lambda content: inner.append(
        _install._transform(content)))
    _install._transform(module.content)
    assert inner == [None]


# Processes --------------------------------------------------------------------------


def devices_of(*processes):
    return [types.SimpleNamespace(process_index=index) for index in processes]


def test_agreement(module, installed, monkeypatch):
    monkeypatch.setattr(_processes, "_meetings", collections.Counter())
    rewriter = installed()
    left = _install._Decision(None, "it has no weights")
    keys = []

    def exchange(devices, topic, own, seconds):
        processes = sorted({device.process_index for device in devices})
        keys.append(_processes.next_key(topic, processes))
        return [own] * len(processes)
    rewriter._agree(module, left, devices_of(0, 0))
    monkeypatch.setattr(_processes, "exchange_between", exchange)
    for _ in range(2):
        rewriter._agree(module, left, devices_of(0, 0, 1, 1))
    step = f"zpp/run/jit_step/{module.digest}/0,1"
    assert keys == [f"{step}/1", f"{step}/2"]
    zpp.uninstall()
    installed()._agree(module, left, devices_of(0, 1))
    assert keys[2:] == [f"{step}/3"]


def test_modules_of_one_name_do_not_swap_keys(module, installed, monkeypatch):
    """Threads may compile them at once, in another order in each process."""
    other = _hook.HloModule(module.content.replace(b"tanh", b"sqrt"))
    assert other.name == module.name and other.digest != module.digest

    def keys(modules):
        found = {}
        monkeypatch.setattr(_processes, "_meetings", collections.Counter())
        for each in modules:
            def exchange(devices, topic, own, seconds, each=each):
                found[each.digest] = _processes.next_key(topic, [0, 1])
                return [own] * 2
            monkeypatch.setattr(_processes, "exchange_between", exchange)
            installed()._agree(each, _install._Decision(None, "why"),
                               devices_of(0, 1))
            zpp.uninstall()
        return found
    assert keys([module, other]) == keys([other, module])


def test_digests_are_those_of_other_processes(module):
    """Names, numbers and places in source files are not in them."""
    renamed = _hook.HloModule(module.content.replace(b"recorded.py", b"elsewhere.p")
                              .replace(b"opt-barrier.", b"abc-barrier."))
    assert renamed.content != module.content
    assert renamed.digest == module.digest


def test_disagreement_names_the_process(module, installed, monkeypatch):
    rewriter = installed()
    other = json.dumps({"text": "zpp 9.9", "digest": "other"})
    monkeypatch.setattr(_processes, "exchange_between",
                        lambda devices, topic, own, seconds: [own, own, other])
    with pytest.raises(_install.DisagreementError,
                       match=r"rewrite jit_step alike, but process 0 has left as it "
                       r"was \(why\), and process 2 has zpp 9.9"):
        rewriter._agree(module, _install._Decision(None, "why"),
                        devices_of(0, 1, 2))


@pytest.mark.compiler
def test_digest(module):
    """The same options have one digest, and others another."""
    def summary(**options):
        rewriter = _install._Rewriter(
            zpp.Options(mesh=MESH, target="portable", **options), None)
        return rewriter._decide(module, devices_of(0)).summary(rewriter.words)
    assert summary() == summary()
    assert summary()["digest"] != summary(weights="i4")["digest"]


def test_exchange(monkeypatch):
    from jax._src.distributed import global_state
    values = {"zpp/topic/0,1/1/1": "-theirs"}

    def get(key, timeout):
        if key not in values:
            raise RuntimeError("deadline exceeded")
        return values[key]
    monkeypatch.setattr(global_state, "client", types.SimpleNamespace(
        key_value_set=values.__setitem__, blocking_key_value_get=get))
    of = devices_of(1, 0), "topic", "mine", 1
    assert _processes.exchange_between(*of) == ["mine", "theirs"]
    assert values["zpp/topic/0,1/1/0"] == "-mine"
    with pytest.raises(RuntimeError, match="expected process 1 to take part in 'topic' too"):
        _processes.exchange_between(*of)


PROCESS = """
import sys
import jax
jax.config.update("jax_platforms", "cpu")
me = int(sys.argv[1])
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, me)
import zpp
from zpp.jax import _install
content = open(sys.argv[3], "rb").read()
_install._Rewriter._find_devices = staticmethod(
    lambda module: [jax.devices()[number] for number in (0, 0, 1, 1)])
for options in ({}, {"weights": "i8" if me else "i4"}):
    rewriter = _install._Rewriter(
        zpp.Options(mesh="node:2,gpu:2", target="portable", **options), None)
    try:
        print("rewritten" if rewriter.rewrite(content) else "left", flush=True)
    except _install.DisagreementError as error:
        print(error, flush=True)
"""


@pytest.mark.slow
@pytest.mark.compiler
def test_two_processes(module, tmp_path):
    """They agree, and then differ, through JAX's coordination service."""
    path = tmp_path / "step.hlo.pb"
    path.write_bytes(module.content)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(number), str(port), str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for number in range(2)]
    outputs = [process.communicate(timeout=240) for process in processes]
    for number, (output, errors) in enumerate(outputs):
        lines = output.splitlines()
        assert lines[0] == "rewritten", errors
        assert "process 0 has" in lines[1] and "weights=i4" in lines[1]
        # One process says so for all.
        assert errors.count("zpp: jit_step: ") == (number == 0), errors


# install ----------------------------------------------------------------------------


def test_where_there_is_no_hook(monkeypatch):
    monkeypatch.setattr(jax, "__version_info__", (0, 10, 2))
    with pytest.raises(RuntimeError, match=r"expected JAX 0.11 or later.*; zpp.jit "):
        zpp.install(mesh=MESH)
    monkeypatch.setattr(jax, "__version_info__", (0, 11, 2))
    jax.devices()
    with pytest.raises(RuntimeError, match="JAX runs on cpu; zpp.jit "):
        zpp.install(mesh=MESH)


@pytest.mark.parametrize("options, message", [
    ({"weights": "i4:delta"}, "weights: expected a format without state,.* "
     "but got 'i4:delta'; zpp.jit takes it"),
    ({"frozen": "keep"}, "frozen: expected none,.* but got 'keep'"),
    ({"links": "measured"}, "links: expected speeds such as .* but got 'measured'"),
    ({"weights_of": "all"}, "weights_of: expected none,.* but got 'all'"),
    ({"gradients_of": (0,)}, "gradients_of: expected 'all',.* but got .0,.; zpp.jit"),
    ({"floors": {3: "i8"}}, "floors: expected none,.* but got '3=i8'"),
    ({"mesh": None}, "expected mesh, .* but got none"),
    ({"weights": "i3"}, "weights: expected")])
def test_options_that_do_not_fit(installed, options, message):
    with pytest.raises(ValueError, match=message):
        installed(**options)


@pytest.mark.parametrize("platforms, calls", [({"cuda", "cpu"}, 1), ({"cpu"}, 0)])
def test_registration_waits_for_devices(monkeypatch, platforms, calls, capsys):
    """It must not look for them before the program does."""
    import jax.extend.xla
    from jax._src import xla_bridge
    found, registered = [], []
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: bool(found))
    monkeypatch.setattr(xla_bridge, "backends", lambda: (
        found.append(1), dict.fromkeys(platforms))[1])
    monkeypatch.setattr(
        jax.extend.xla, "register_hlo_module_transformation",
        lambda callback, **options: registered.append(options))
    _hook.register.__wrapped__(len)
    assert not found and not registered
    for _ in range(2):
        assert xla_bridge.backends().keys() == platforms
    assert registered == [{"name": "zpp", "platforms": "cuda"}] * calls
    # And at once where there are devices.
    _hook.register.__wrapped__(len)
    assert len(registered) == 2 * calls
    assert capsys.readouterr().err == ""


def test_registration_that_fails(monkeypatch, capsys):
    """It does not keep JAX from its devices."""
    import jax.extend.xla
    from jax._src import xla_bridge

    def refuse(callback, **options):
        raise RuntimeError("planted")
    found = []
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: bool(found))
    monkeypatch.setattr(xla_bridge, "backends", lambda: (
        found.append(1), {"cuda": None})[1])
    monkeypatch.setattr(jax.extend.xla, "register_hlo_module_transformation", refuse)
    _hook.register.__wrapped__(len)
    for _ in range(2):
        assert xla_bridge.backends() == {"cuda": None}
    assert capsys.readouterr().err.count("does not take zpp: planted") == 1


def test_twice(installed):
    installed()
    with pytest.raises(RuntimeError, match="zpp.uninstall before another"):
        installed()
    zpp.uninstall()
    zpp.uninstall()
    installed()


def test_cache_key(installed, monkeypatch):
    """Runs with zpp, without it and with other options share nothing."""
    from jax._src import cache_key, compilation_cache
    monkeypatch.setattr(compilation_cache, "is_cache_used", lambda *_: True)
    monkeypatch.setattr(cache_key, "custom_hook", lambda: "own ")
    keys = []
    for options in ({}, {"weights": "i4"}, {"tuning": {"block": 64}}):
        installed(**options)
        keys.append(cache_key.custom_hook())
        assert compilation_cache.is_cache_used(None)
        zpp.uninstall()
        assert cache_key.custom_hook() == "own "
    assert len(set(keys)) == 3
    assert all(key.startswith(f"own zpp {zpp.__version__} ") for key in keys)


def test_runtime_bypasses_the_cache(installed, monkeypatch):
    """What the runtime executes is not in a cached program."""
    from jax._src import compilation_cache
    monkeypatch.setattr(compilation_cache, "is_cache_used", lambda *_: True)
    monkeypatch.setattr(_hook, "has_gpus", lambda: True)
    installed(target="cuda")
    assert not compilation_cache.is_cache_used(None)
    zpp.uninstall()
    assert compilation_cache.is_cache_used(None)


@pytest.mark.compiler
def test_report_file(module, installed, tmp_path, capsys):
    installed(report=tmp_path / "report.json")
    assert _install._transform(module.content) is not None
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["options"] == "mesh=node:2,gpu:2 target=portable"
    (entry,) = content["modules"]
    assert entry["name"] == "jit_step" and entry["rewritten"]
    assert len(entry["report"]["collectives"]) == 6
    zpp.uninstall()
    installed(report=tmp_path / "missing" / "report.json")
    assert _install._transform(module.content) is not None
    assert "zpp: warning: no report is written" in capsys.readouterr().err


# zpp run -----------------------------------------------------------------------------


def start(program, *, words=None, run=None, cwd, path=()):
    """Runs a program in a new Python, by `zpp run` or with ZPP_RUN."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(
        [*map(str, path), str(ROOT / "python")])}
    environment.pop("ZPP_RUN", None)
    if words is not None:
        environment["ZPP_RUN"] = words
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT / "python" / "zpp" / "startup"), environment["PYTHONPATH"]])
    command = [sys.executable, "-c", program]
    if run is not None:
        command = [sys.executable, "-m", "zpp", "run", *run, "--", *command]
    return subprocess.run(command, env=environment, cwd=cwd, text=True,
                          capture_output=True, timeout=120)


PROGRAM = "import sys; assert 'zpp' not in sys.modules; import jax; print('trained')"


@pytest.mark.parametrize("looks", [False, True])
def test_run(tmp_path, looks):
    """Where this JAX has no hook, a line says so, and the program goes on.

    Args:
      looks: whether the program looks whether JAX is there before it imports it.
    """
    look = "from importlib.util import find_spec; assert find_spec('jax'); "
    result = start(PROGRAM.replace("assert 'zpp' not in sys.modules; ",
                                   look if looks else ""),
                   run=["--mesh", MESH], cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "trained\n"), result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("zpp: nothing ") and "zpp.jit" in line


def test_off_unless_asked_for(tmp_path):
    startup = ROOT / "python" / "zpp" / "startup"
    result = start(PROGRAM + "; assert 'zpp.jax' not in sys.modules", cwd=tmp_path,
                   path=[startup], words="")
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")


def test_own_sitecustomize_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('own')\nVALUE = 3\n")
    result = start("import sitecustomize; print(sitecustomize.VALUE)",
                   words=f"mesh={MESH}", cwd=tmp_path, path=[tmp_path])
    assert (result.stdout, result.stderr) == ("own\n3\n", "")


def test_wrong_words(tmp_path):
    result = start("import jax", words="mesh=node:2 format=i8", cwd=tmp_path)
    assert result.returncode != 0
    assert "ZPP_RUN: expected options such as mesh=" in result.stderr


@pytest.mark.parametrize("run, message", [
    ([], "expected --mesh"),
    (["--mesh", MESH, "--weights", "i8:delta"], "zpp.jit takes it")])
def test_run_with_wrong_options(tmp_path, run, message):
    result = start("", run=run, cwd=tmp_path)
    assert result.returncode == 1
    assert message in result.stderr


def test_run_without_a_program():
    with pytest.raises(FileNotFoundError, match="write: python train.py --fast"):
        _run_command.find_program(["train.py", "--fast"])


def test_words_come_back(tmp_path):
    options = zpp.Options(mesh=MESH, weights="i4", regather=True, secondary=2,
                          links={"node": "50gbit", "gpu": "400gbyte"},
                          tuning=zpp.Tuning(block=64, compile_timeout=1e-5))
    words = _run_command.make_words(options, tmp_path / "a report.json", "auto")
    given = _start.parse_words(words)
    assert given.pop("report") == str(tmp_path / "a report.json")
    assert given.pop("options") == "auto"
    assert zpp.Options(**given) == options


@pytest.mark.compiler
def test_report_of_a_recorded_module(module, tmp_path):
    """`zpp report` reads such a module from a file."""
    path = tmp_path / "step.hlo.pb"
    path.write_bytes(module.content)
    result = subprocess.run(
        [sys.executable, "-m", "zpp", "report", "--mesh", MESH, "--format", "json",
         str(path)], env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True, text=True, timeout=120)
    entries = json.loads(result.stdout)["collectives"]
    assert [entry["role"] for entry in entries].count("weight") == 3
