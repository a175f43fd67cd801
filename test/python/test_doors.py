# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps as people have them: shardings of both partitioners, for any number of devices,
from files and from standard input."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from test_cli import AXES, LOCAL, OPTIONS, P, arguments, descend, mesh, sharded
from training import NODES
from zpp._cli import FORMS, main
from zpp.jax import _forms
from zpp.jax._proto import write_field
from zpp.jax._tiles import Axis, DeviceMesh, groups_along

pytestmark = pytest.mark.compiler


@contextlib.contextmanager
def partitioner(with_shardy: bool):
    name = "jax_use_shardy_partitioner"
    before = getattr(jax.config, name)
    jax.config.update(name, with_shardy)
    try:
        yield
    finally:
        jax.config.update(name, before)


def forms_of(step, *args) -> dict[str, bytes]:
    """A step that JAX lowers in every form."""
    jitted = jax.jit(step, donate_argnums=0)
    lowered, exported = jitted.lower(*args), jax.export.export(jitted)(*args)
    generic = lowered.compiler_ir().operation.get_asm(print_generic_op_form=True)
    proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return {
        "generic": generic.encode(), "pretty": lowered.as_text().encode(),
        "bytecode": _forms.write(generic, "bytecode"),
        "artifact": exported.mlir_module_serialized,
        "export": bytes(exported.serialize()),
        "hlo-text": lowered.as_text("hlo").encode(),
        "hlo-proto": write_field(1, proto), "hlo-module-proto": proto}


def run(*words, given: bytes = b"") -> subprocess.CompletedProcess:
    package = pathlib.Path(zpp.__file__).parent.parent
    return subprocess.run(
        [sys.executable, "-m", "zpp", *map(str, words)], input=given,
        env=os.environ | {"PYTHONPATH": str(package)},
        capture_output=True, check=False)


@pytest.fixture(scope="module", params=[True, False], ids=["shardy", "gspmd"])
def sharded_forms(request):
    with partitioner(request.param):
        return forms_of(sharded, *arguments())


@pytest.mark.parametrize("form", FORMS)
def test_shardings_of_both_partitioners(form, sharded_forms, tmp_path, capsys):
    source, output = tmp_path / "step", tmp_path / "fast"
    source.write_bytes(sharded_forms[form])
    assert main(["report", str(source), "--mesh", NODES, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert sorted((entry["kind"], entry["role"], entry["before"]["node"])
                  for entry in report["collectives"]) == [
        ("all_gather", "weight", 2048), ("all_reduce", "other", 2),
        ("reduce_scatter", "gradient", 2048)]
    assert main(["rewrite", str(source), "-o", str(output), *OPTIONS]) == 0
    assert _forms.form_of(output.read_bytes()) == form
    capsys.readouterr()
    # It knows the mesh.
    assert main(["report", str(output), "--format", "json"]) == 0
    said = capsys.readouterr()
    total = json.loads(said.out)["total"]
    assert 0 < total["after"]["node"] < 1024
    # HLO does not keep what was there before.
    is_hlo = form.startswith("hlo")
    assert (total["before"] == total["after"]) == is_hlo
    assert ("HLO does not keep what a step was" in said.err) == is_hlo
    assert main(["plan", str(source), "--mesh", NODES]) == 0
    assert "best: " in capsys.readouterr().out


def test_an_older_export_runs_with_shardy(sharded_forms, tmp_path):
    """That of the partitioner before it, in a process with today's."""
    source, output = tmp_path / "step", tmp_path / "fast"
    source.write_bytes(sharded_forms["export"])
    assert main(["rewrite", str(source), "-o", str(output), *OPTIONS]) == 0
    exported = jax.export.deserialize(bytearray(output.read_bytes()))
    values = [jax.device_put(np.full((64, 64), value, np.float32),
                             argument.sharding)
              for value, argument in zip((0.01, 1.0), arguments())]
    for a, b in zip(exported.call(*values), jax.jit(sharded)(*values)):
        np.testing.assert_allclose(a, b, rtol=0.02)


def test_jit_without_shardy():
    split = jax.sharding.NamedSharding(mesh(), P(AXES))
    rng = np.random.default_rng(0)
    values = [jax.device_put(rng.standard_normal((64, 64), np.float32), split)
              for _ in range(2)]
    expected = jax.jit(sharded)(*values)
    with partitioner(False):
        fast = zpp.jit(sharded, mesh=NODES, tuning={"block": 32})
        results = fast(*values)
        assert any(entry["rewritten"] for entry in fast.report()["collectives"])
    for a, b in zip(results, expected):
        np.testing.assert_allclose(a, b, atol=0.02)
        assert a.sharding.is_equivalent_to(b.sharding, a.ndim)


def test_a_mesh_in_an_order_of_its_own():
    """And a result over a part of an axis."""
    order = np.array(jax.devices()[:8])[[0, 4, 1, 5, 2, 6, 3, 7]]
    devices = jax.sharding.Mesh(order.reshape(2, 4), AXES)
    split = jax.sharding.NamedSharding(devices, P(AXES))
    rng = np.random.default_rng(0)
    values = [jax.device_put(rng.standard_normal((64, 64), np.float32), split)
              for _ in range(2)]
    step = zpp.export(sharded, *values)
    for a, b in zip(zpp.load(step.partitioned())(*values), jax.jit(sharded)(*values)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert a.sharding.is_equivalent_to(b.sharding, a.ndim)

    def narrow(w, x):
        return (x @ w)[:2] * 1.0, w

    half = jax.sharding.NamedSharding(devices, P("node"))
    step = zpp.export(jax.jit(narrow, out_shardings=(half, split)), *values)
    for a, b in zip(zpp.load(step.partitioned())(*values), narrow(*values)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


#: As PyTorch/XLA writes it: no number of devices, which are listed, and no names.
TORCH_XLA = """
module @IrToHlo.20 attributes {mhlo.cross_program_prefetches = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func @main(%arg0: tensor<512x512xf32> {mhlo.sharding = "{devices=[8,1]0,1,2,3,4,5,6,7}"}, %arg1: tensor<64x512xf32> {mhlo.sharding = "{devices=[8,1]0,1,2,3,4,5,6,7}"}) -> (tensor<512x512xf32> {mhlo.sharding = "{devices=[8,1]0,1,2,3,4,5,6,7}"}) {
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0] : (tensor<64x512xf32>, tensor<512x512xf32>) -> tensor<64x512xf32>
    %1 = stablehlo.custom_call @Sharding(%0) {mhlo.sharding = "{devices=[8,1]0,1,2,3,4,5,6,7}"} : (tensor<64x512xf32>) -> tensor<64x512xf32>
    %2 = stablehlo.dot_general %arg1, %1, contracting_dims = [0] x [0] : (tensor<64x512xf32>, tensor<64x512xf32>) -> tensor<512x512xf32>
    %3 = stablehlo.subtract %arg0, %2 : tensor<512x512xf32>
    return %3 : tensor<512x512xf32>
  }
}
"""


def test_shardings_of_other_producers(tmp_path, capsys):
    """Locations are lines of the file, also after the partitioner."""
    source = tmp_path / "step.mlir"
    source.write_text(TORCH_XLA)
    assert main(["report", str(source), "--mesh", NODES, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {entry["location"]: entry["role"] for entry in report["collectives"]} == {
        f"{source}:4:10": "weight", f"{source}:6:10": "gradient"}


def test_sixteen_thousand_devices(tmp_path, capsys):
    """No device is made for any of them."""
    kinds = (jax.sharding.AxisType.Auto,) * 2
    devices = jax.sharding.AbstractMesh((2048, 8), AXES, axis_types=kinds)
    split = jax.sharding.NamedSharding(devices, P(AXES))
    w, x = (jax.ShapeDtypeStruct((16384, size), np.float32, sharding=split)
            for size in (64, 16384))

    def step(w, x):
        def loss_of(w):
            y = jax.lax.with_sharding_constraint(x @ w, split)
            return (y ** 2).mean()

        return w - jax.lax.with_sharding_constraint(jax.grad(loss_of)(w), split)

    source = tmp_path / "step"
    source.write_bytes(jax.export.export(jax.jit(step))(w, x).serialize())
    options = ["--mesh", "node:2048,gpu:8"]
    assert main(["report", str(source), "--format", "json", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    part = 64 * 4
    assert [(entry["kind"], entry["before"]["gpu"]) for entry in
            report["collectives"]] == [
        ("all_gather", 7 * 2048 * part), ("reduce_scatter", 7 * 2048 * part)]
    assert main(["plan", str(source), *options]) == 0
    assert "best: " in capsys.readouterr().out
    # Groups are axes, and no list of devices.
    text = zpp.export(jax.jit(step), w, x).complete_text
    assert "replica_group_mesh_axes" in text and "tensor<1x16384xi64>" not in text


def test_symbolic_sizes(tmp_path, capsys):
    """Sizes that are asserted are no product: the step names its collectives."""
    (batch,) = jax.export.symbolic_shape("8*c")
    w, x = arguments()
    x = jax.ShapeDtypeStruct((batch, 64), np.float32, sharding=x.sharding)
    source, output = tmp_path / "step", tmp_path / "fast"
    source.write_bytes(jax.export.export(jax.jit(descend))(w, x).serialize())
    assert main(["report", str(source), "--mesh", NODES, "--format", "json"]) == 0
    before = json.loads(capsys.readouterr().out)["total"]["before"]
    assert before["node"] == 4098
    assert main(["rewrite", str(source), "-o", str(output), *OPTIONS]) == 0
    # JAX 0.10 itself does not survive a call of such an export.
    assert jax.export.deserialize(bytearray(output.read_bytes())).in_avals[1].shape
    capsys.readouterr()
    assert main(["report", str(output), "--mesh", NODES, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["after"]["node"] < 2048
    # XLA partitions no sizes that it does not know.
    source.write_bytes(jax.export.export(jax.jit(sharded))(w, x).serialize())
    for command in (["report"], ["plan"], ["rewrite", "-o", str(tmp_path / "no")]):
        capsys.readouterr()
        assert main([*command, str(source), "--mesh", NODES]) == 1
        said = capsys.readouterr()
        assert said.out == "" and "expected arguments of known sizes" in said.err
    assert not (tmp_path / "no").exists()


def test_a_step_without_products():
    """Its shardings alone are a reason to ask XLA."""
    split = jax.sharding.NamedSharding(mesh(), P(AXES))
    x = jax.ShapeDtypeStruct((64, 64), np.float32, sharding=split)
    (entry,) = zpp.rewrite(zpp.export(jax.jit(jnp.mean), x),
                           mesh=NODES).report["collectives"]
    assert entry["kind"] == "all_reduce"
    with pytest.warns(UserWarning, match="XLA makes none of its shardings"):
        zpp.rewrite(zpp.export(jax.jit(jnp.sin), x), mesh=NODES)


def test_what_xla_has_partitioned_is_not_partitioned_again(tmp_path, capsys):
    """HLO of one device, whose parameters have shardings, and no collectives."""
    def write(name):
        (tmp_path / "step").write_text(
            "HloModule jit_sin, num_partitions=8\n\n"
            f"ENTRY %{name} (param: f32[8,64]) -> f32[8,64] {{\n"
            "  %param = f32[8,64]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}\n"
            "  ROOT %sum = f32[8,64]{1,0} multiply(%param, %param)\n}\n")
        return main(["report", str(tmp_path / "step"), "--mesh", NODES])

    for name in ("main.2_spmd", "main.2"):
        assert write(name) == 1
        said = capsys.readouterr()
        assert said.out == "" and "the module has no collectives" in said.err
        assert "shardings" not in said.err


def test_a_step_in_hlo_that_has_collectives_is_left_alone(tmp_path, capsys):
    """Also where its parameters have shardings, as in XLA's dumps."""
    text = _forms.write(LOCAL, "hlo-text").decode()
    assert text.count("parameter(0)\n") and "ENTRY main" in text
    text = text.replace("ENTRY main", "ENTRY main_spmd")
    head, entry = text.split("ENTRY")
    entry = entry.replace("parameter(0)", "parameter(0), sharding={devices=[8,1]<=[8]}")
    source = tmp_path / "step"
    source.write_text(f"{head}ENTRY{entry}")
    assert main(["report", str(source), "--mesh", NODES, "--format", "json"]) == 0
    total = json.loads(capsys.readouterr().out)["total"]
    assert total["before"]["node"] == 4098


@pytest.mark.parametrize(("axes", "groups"), [
    ("'a'", "{{0,4},{1,5},{2,6},{3,7}}"), ("'b','a'", "{{0,4,1,5,2,6,3,7}}"),
    ("'b':(1)2", "{{0,2},{1,3},{4,6},{5,7}}"),
    ("'a','b':(2)2", "{{0,1,4,5},{2,3,6,7}}")])
def test_groups_of_hlo_as_axes(axes, groups):
    """jaxlib refuses what it makes of them at an all-to-all of a tuple."""
    def read(written: str) -> str:
        size = len(groups[2:].split("}")[0].split(","))
        part = "f32[16]{0}"
        text = (
            "HloModule step, num_partitions=8\n"
            f"ENTRY main {{\n  c = {part} constant({{{', '.join(map(str, range(16)))}}})\n"
            f"  a = ({', '.join([part] * size)}) all-to-all({', '.join(['c'] * size)}), "
            f"channel_id=1, replica_groups={written}\n"
            f"  ROOT r = {part} get-tuple-element(a), index=0\n}}\n")
        return _forms.read(text.encode())[1]

    assert read(f"mesh['a'=2,'b'=4] {{{axes}}}") == read(groups)


def test_the_order_of_the_devices_of_a_mesh_in_hlo():
    """jaxlib's translation loses it."""
    def read(groups: str) -> str:
        return _forms.read((
            "HloModule step, num_partitions=8\n"
            "ENTRY main {\n  p = f32[4]{0} parameter(0)\n"
            f"  ROOT r = f32[16]{{0}} all-gather(p), channel_id=1, dimensions={{0}}, "
            f"replica_groups={groups}, use_global_device_ids=true\n}}\n").encode())[1]

    assert read("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}") == read(
        "{{0,2,4,6},{1,3,5,7}}")


def test_starts_and_ends_of_a_schedule(tmp_path, capsys):
    """What XLA has scheduled counts as it was before, in all pairs that are whole."""
    def write(gather: str, reduce: str) -> dict:
        source = tmp_path / "step"
        source.write_text(
            "HloModule step, num_partitions=8\n"
            "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
            "  ROOT c = f32[] add(a, b)\n}\n"
            "ENTRY main {\n  p = f32[4,8]{1,0} parameter(0)\n"
            f"{gather}  m = f32[8,8]{{1,0}} dot(w, w), lhs_contracting_dims={{0}}, "
            f"rhs_contracting_dims={{0}}\n{reduce}}}\n")
        assert main(["report", str(source), "--mesh", NODES, "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    groups = "channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true"
    plain = write(
        f"  w = f32[32,8]{{1,0}} all-gather(p), {groups}, dimensions={{0}}\n",
        f"  ROOT r = f32[8,8]{{1,0}} all-reduce(m), {groups}, to_apply=add\n")
    pairs = write(
        "  w.1 = (f32[4,8]{1,0}, f32[32,8]{1,0}) all-gather-start(p), "
        f"{groups}, dimensions={{0}}\n  w = f32[32,8]{{1,0}} all-gather-done(w.1)\n",
        f"  r.1 = f32[8,8]{{1,0}} all-reduce-start(m), {groups}, to_apply=add\n"
        "  ROOT r = f32[8,8]{1,0} all-reduce-done(r.1)\n")
    for row in (*plain["collectives"], *pairs["collectives"]):
        # Of a name, the location is the name.
        assert row.pop("location") in ("w", "w.1", "r", "r.1")
    assert plain == pairs


def test_what_xla_refuses_is_an_error(tmp_path, capsys):
    source = tmp_path / "step"
    source.write_text(TORCH_XLA.replace("devices=[8,1]0,", "devices=[8,1]9,", 1))
    for command in (["report"], ["plan"], ["rewrite"]):
        assert main([*command, str(source), "--mesh", NODES]) == 1
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("zpp: error: ")
    source.write_text(TORCH_XLA.replace("tensor<64x512", "tensor<60x512"))
    assert main(["report", str(source), "--mesh", NODES]) == 1
    assert "whose dims divide by their shardings" in capsys.readouterr().err
    source.write_text(TORCH_XLA)
    assert main(["report", str(source)]) == 1
    assert "from slowest to fastest with mesh=node:N," in capsys.readouterr().err


# Commands --------------------------------------------------------------------


def test_standard_input_and_output():
    with partitioner(True):
        text = forms_of(sharded, *arguments())["pretty"]
    generic = run("convert", "-", given=text)
    assert b'"stablehlo.dot_general"' in generic.stdout and not generic.returncode
    fast = run("rewrite", "-", *OPTIONS, given=text)
    assert not fast.returncode and _forms.form_of(fast.stdout) == "pretty"
    report = json.loads(run("report", "-", "--format", "json",
                            given=fast.stdout).stdout)
    assert report["total"]["after"]["node"] < report["total"]["before"]["node"] / 2
    assert {entry["location"].rpartition(":")[0].rpartition(":")[0]
            for entry in report["collectives"]} == {"stdin"}
    folder = run("rewrite", "-", "--target", "cpu", *OPTIONS, given=text)
    assert folder.returncode == 1 and b"expected a folder for target" in folder.stderr


@pytest.mark.parametrize("form", FORMS)
def test_opt_gives_what_it_takes(form, tmp_path):
    content = forms_of(descend, *arguments())[form]
    if form.startswith("hlo"):
        content = _forms.write(LOCAL, form)
    source, output = tmp_path / "step", tmp_path / "fast"
    source.write_bytes(content)
    done = run("opt", source, f"--zeropp=mesh={NODES} tuning.block=32", "-o", output)
    assert done.returncode == 0 and done.stdout == b""
    assert _forms.form_of(output.read_bytes()) == form
    if form == "artifact":
        given = run("opt", "-", f"--zeropp=mesh={NODES} tuning.block=32", given=content)
        assert given.stdout == output.read_bytes()


def test_opt_passes_on_what_zpp_opt_says(tmp_path):
    source = tmp_path / "step.mlir"
    source.write_text('func.func @main() {\n  "foo.bar"() : () -> ()\n  return\n}\n')
    done = run("opt", source)
    assert done.returncode == 1 and done.stdout == b""
    assert f"{source}:2:".encode() in done.stderr
    done = run("opt", "-", "--zero-no-such-pass", given=b"module {}")
    assert done.returncode == 1 and b"zero-no-such-pass" in done.stderr
    done = run("opt", "-", "-o", given=b"module {}")
    assert done.returncode == 1 and b"-o: expected a file" in done.stderr
    # What only zpp-opt reads has no other form.
    content = forms_of(descend, *arguments())["bytecode"]
    done = run("opt", "-", f"--zero-import-collectives=mesh={NODES}", given=content)
    assert done.returncode == 1 and done.stdout == b""
    assert b"expected a module that can be written as bytecode" in done.stderr
    assert b"-allow-unregistered-dialect" not in done.stderr


@pytest.mark.parametrize("text, message", [
    ("let f = { lambda ; a:f32[]. let in (a,) } in\n{ lambda ; b:f32[]. let\n",
     "got a jaxpr"),
    ('func.func @main() {\n  %0 = "stablehlo.constant"() <{value = '
     'dense_resource<__elided__> : tensor<4xf32>}> : () -> tensor<4xf32>\n  return\n}',
     "line 2: expected the values of a constant"),
    ('func.func @main() {\n  "foo.bar"() : () -> ()\n  return\n}',
     "step:2:12: error: operation being parsed with an unregistered dialect\n"),
    ("func.func @main() {\n  %0 = stablehlo.constant dense<1.0> : tensor<f32>\n"
     '  "foo.bar"() : () -> ()\n  return\n}',
     "step:3:12: error: operation being parsed with an unregistered dialect\n"),
], ids=["jaxpr", "elided", "generic", "pretty"])
def test_what_is_no_step_is_named(text, message, tmp_path, capsys):
    source = tmp_path / "step"
    source.write_text(text)
    assert main(["report", str(source), "--mesh", NODES]) == 1
    error = capsys.readouterr().err
    assert message in error and f"{source}:" in error
    assert "-allow-unregistered-dialect" not in error and "/zpp-" not in error


# Axes ------------------------------------------------------------------------


def test_places_as_axes():
    devices = DeviceMesh({"a": 4, "b": 6})
    numbers = np.arange(24)
    for places, axes in (
            (numbers, [Axis("a", 4), Axis("b", 6)]),
            (numbers // 6, [Axis("a", 4)]), (numbers % 6, [Axis("b", 6)]),
            (numbers * 0, []), (numbers // 12, [Axis("a", 2)]),
            (numbers // 6 % 2, [Axis("a", 2, 2)]),
            (numbers % 6 * 4 + numbers // 6, [Axis("b", 6), Axis("a", 4)]),
            (numbers // 8, None), (numbers * 2, None), (numbers[::-1], None)):
        assert devices.find_axes(places) == axes
    for axes in ([Axis("a", 4)], [Axis("b", 6), Axis("a", 4)],
                 [Axis("b", 2), Axis("a", 2, 2)], []):
        groups = groups_along(numbers, devices.axes, axes)
        assert devices.find_group_axes(groups) == axes
        assert devices.find_group_axes(groups[::-1]) == axes
    assert devices.find_group_axes(np.array([[0, 1], [2, 3]])) is None
    assert devices.find_group_axes(np.arange(24).reshape(3, 8)) is None
    # A part that no order of the prime factors has: three of twelve places, then four.
    assert groups_along(np.arange(12), {"a": 12}, [Axis("a", 4, 3)]).tolist() == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    order = [0, 2, 1, 3]
    reordered = DeviceMesh({"a": 2, "b": 2}, order)
    assert reordered.find_axes(np.array([0, 0, 1, 1])) == [Axis("b", 2)]
    assert groups_along(np.array(order), reordered.axes, [Axis("a", 2)]).tolist() == [
        [0, 1], [2, 3]]
