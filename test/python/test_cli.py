# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `zpp`, on files of all forms."""

import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
import zpp
from jaxlib import _hlo
from startwait import needs_library
from training import NODES
from zpp._cli import FORMS, main
from zpp.jax import _forms

pytestmark = pytest.mark.compiler
P = jax.sharding.PartitionSpec
AXES = ("node", "gpu")
OPTIONS = ["--mesh", NODES, "--weights", "i8", "--gradients", "i8:i4",
           "--tuning.block", "32"]


def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), AXES,
                         axis_types=(jax.sharding.AxisType.Auto,) * 2)


def arguments():
    sharding = jax.sharding.NamedSharding(mesh(), P(AXES))
    return [jax.ShapeDtypeStruct((64, 64), np.float32, sharding=sharding)] * 2


def loss_of(w, x):
    whole = jax.lax.all_gather(w, AXES, tiled=True)
    return jax.lax.pmean(((x @ whole) ** 2).mean(), AXES)


def descend(w, x):
    """One step that names its collectives."""
    loss = jax.shard_map(loss_of, mesh=mesh(), in_specs=(P(AXES), P(AXES)),
                         out_specs=P())
    value, gradient = jax.value_and_grad(loss)(w, x)
    return w - 0.1 * gradient, value


#: The program of one device, as XLA has it after its partitioner.
LOCAL = """
module @step attributes {mhlo.num_partitions = 8 : i32} {
  func.func @main(%w: tensor<8x64xf32>, %x: tensor<8x64xf32>)
      -> (tensor<8x64xf32>, tensor<f32>) {
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<8x64xf32>) -> tensor<64x64xf32>
    %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
    %2 = stablehlo.dot_general %x, %1, contracting_dims = [0] x [0] : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<64x64xf32>
    %3 = "stablehlo.reduce_scatter"(%2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %7 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %7 : tensor<f32>
    }) : (tensor<64x64xf32>) -> tensor<8x64xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %4 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x64xf32>, tensor<f32>) -> tensor<f32>
    %5 = "stablehlo.all_reduce"(%4) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %7 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %7 : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    %6 = stablehlo.subtract %w, %3 : tensor<8x64xf32>
    return %6, %5 : tensor<8x64xf32>, tensor<f32>
  }
}
"""


@pytest.fixture(scope="module")
def forms() -> dict[str, bytes]:
    """The step in every form."""
    step = zpp.export(jax.jit(descend, donate_argnums=0), *arguments())
    text = step.text()
    hlo = _forms.write(LOCAL, "hlo-text").decode()
    proto = _hlo.hlo_module_from_text(hlo).as_serialized_hlo_module_proto()
    return {
        "generic": text.encode(),
        "pretty": jax.jit(descend).lower(*arguments()).as_text().encode(),
        "bytecode": _forms.write(text, "bytecode"),
        "artifact": step.exported.mlir_module_serialized,
        "export": bytes(step.exported.serialize()),
        "hlo-text": hlo.encode(), "hlo-module-proto": proto,
        "hlo-proto": _forms.write(LOCAL, "hlo-proto")}


def report_of(path: pathlib.Path, capsys, *options) -> dict:
    assert main(["report", str(path), "--format", "json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_rewritten_as_it_was(form, forms, tmp_path, capsys):
    source, output = tmp_path / "step", tmp_path / "fast"
    source.write_bytes(forms[form])
    assert _forms.form_of(forms[form]) == form
    assert main(["rewrite", str(source), "-o", str(output), *OPTIONS]) == 0
    assert _forms.form_of(output.read_bytes()) == form
    assert "error" not in capsys.readouterr().err
    # For a rewritten step, "before" is the original one.
    before, after = (report_of(path, capsys, "--mesh", NODES)["total"]["after"]
                     for path in (source, output))
    assert before["node"] == 4098
    assert after["node"] < 0.5 * before["node"]


class _Page(html.parser.HTMLParser):
    """The tags and texts of a page, and addresses of other files."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts, self.links = [], [], [], []
        self.titles = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)
        self.links += [value for name, value in attrs
                       if name in ("src", "href", "action")]
        self.titles += [value for name, value in attrs if name == "title"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_page(forms, tmp_path, capsys):
    source, page = tmp_path / "a<b>&.mlir", tmp_path / "page.html"
    source.write_bytes(forms["generic"])
    entries = report_of(source, capsys, "--mesh", NODES)
    assert main(["report", str(source), "--mesh", NODES, "--html", str(page)]
                ) == 0
    parsed = _Page(page.read_text())
    # It needs no other file; one says what helps against what was left.
    assert not parsed.open and [link.rpartition("/")[2] for link in parsed.links] == [
        "why.md"]
    assert "http" not in page.read_text()
    texts = set(parsed.texts)
    assert {"a<b>&.mlir", "Total", "Collectives"} <= texts
    places = {entry["location"] for entry in entries["collectives"]}
    assert places <= set(parsed.titles)
    assert {place.rpartition("/")[2] for place in places} <= texts
    # From the slowest tier to the fastest, as everywhere.
    assert NODES in texts
    assert {entry["reason"] for entry in entries["collectives"]} <= texts | {""}
    assert {f"{count:,}" for count in entries["total"]["after"].values()
            } <= texts
    assert "svg" not in parsed.tags
    assert main(["report", str(source), "--mesh", NODES, "--html", str(page),
                 "--device", "h100"]) == 0
    timed = _Page(page.read_text())
    assert not timed.open and timed.tags.count("rect") > 1
    assert any(re.fullmatch(r"[\d.]+ ms, [\d.]+% above the bound of any schedule, "
                            r"which is .*\d%", text) for text in timed.texts)
    assert main(["report", str(source), "--device", "h100"]) == 1
    assert "expected --html with --device" in capsys.readouterr().err


def test_a_jaxpr_is_no_form(tmp_path, capsys):
    source = tmp_path / "step"
    source.write_text(str(jax.make_jaxpr(lambda x: x + 1)(1.0)))
    assert main(["report", str(source)]) == 1
    assert (f"{source}: expected a module of StableHLO, but got a jaxpr"
            in capsys.readouterr().err)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_converted(form, forms, tmp_path, capsys):
    source, output = tmp_path / "step", tmp_path / "other"
    source.write_bytes(forms["artifact"])
    status = main(["convert", str(source), "-o", str(output), "--to", form])
    if form == "export":
        assert status == 1
        assert "zpp.export of the function makes it" in capsys.readouterr().err
        assert not output.exists()
        return
    assert status == 0
    assert _forms.form_of(output.read_bytes()) == form
    back = tmp_path / "back"
    assert main(["convert", str(output), "-o", str(back)]) == 0
    assert report_of(back, capsys, "--mesh", NODES)["total"]["before"][
        "node"] == 4098


def test_an_export_stays_one_that_runs(forms, tmp_path):
    source, output = tmp_path / "step", tmp_path / "fast"
    source.write_bytes(forms["export"])
    assert main(["rewrite", str(source), "-o", str(output), *OPTIONS]) == 0
    exported = jax.export.deserialize(bytearray(output.read_bytes()))
    values = [jax.device_put(np.full((64, 64), value, np.float32),
                             argument.sharding)
              for value, argument in zip((0.01, 1.0), arguments())]
    for a, b in zip(exported.call(*values), jax.jit(descend)(*values)):
        np.testing.assert_allclose(a, b, rtol=0.02)


def test_the_report_as_a_table(forms, tmp_path, capsys):
    source = tmp_path / "step"
    source.write_bytes(forms["generic"])
    assert main(["report", str(source)]) == 0
    assert "in units of M" in capsys.readouterr().out


def sharded(w, x):
    value, gradient = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
    return w - 0.1 * gradient, value


def test_shardings_are_partitioned(tmp_path, capsys):
    """Those of an export, whose devices are any, and those of a module."""
    lowered = jax.jit(sharded).lower(*arguments())
    text = lowered.compiler_ir("stablehlo").operation.get_asm(
        print_generic_op_form=True)
    contents = [jax.export.export(jax.jit(sharded))(*arguments()).serialize(),
                text.encode(), lowered.as_text().encode(),
                _forms.write(text, "bytecode")]
    source, output, reports = tmp_path / "step", tmp_path / "fast", []
    for content in contents:
        source.write_bytes(content)
        reports.append(report_of(source, capsys, "--mesh", NODES)["total"])
        assert main(["rewrite", str(source), "-o", str(output), *OPTIONS]) == 0
        assert "warning" not in capsys.readouterr().err
        assert _forms.form_of(output.read_bytes()) == _forms.form_of(
            bytes(content))
        after = report_of(output, capsys, "--mesh", NODES)["total"]["after"]
        assert after["node"] < 0.5 * reports[-1]["after"]["node"]
    assert reports[0]["after"]["node"] > 4096
    assert all(report == reports[0] for report in reports)


def test_no_devices_are_needed(tmp_path):
    source = tmp_path / "step"
    source.write_bytes(jax.export.export(jax.jit(sharded))(
        *arguments()).serialize())
    package = pathlib.Path(zpp.__file__).parent.parent
    process = subprocess.run(
        [sys.executable, "-m", "zpp", "report", source],
        env=os.environ | {"PYTHONPATH": str(package), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE, text=True, check=True)
    assert "reduce_scatter" in process.stdout


@needs_library
def test_a_target_with_a_runtime_gives_a_folder(forms, tmp_path):
    for form in ("export", "generic"):
        (tmp_path / "step").write_bytes(forms[form])
        path = tmp_path / f"{form}.zpp"
        assert main(["rewrite", str(tmp_path / "step"), "-o", str(path),
                     "--target", "cpu", *OPTIONS]) == 0
        def values():
            return [jax.device_put(np.full((64, 64), 0.01, np.float32),
                                   argument.sharding)
                    for argument in arguments()]

        _, loss = zpp.load(path)(*values())
        np.testing.assert_allclose(loss, jax.jit(descend)(*values())[1],
                                   rtol=0.02)


NOTHING = ("the module has no collectives: it is for one device; export the step "
           "with its arguments on a mesh\n")


@pytest.mark.parametrize("command", [
    "rewrite -o OUT", "report", "report --format json", "plan"])
def test_nothing_to_do_is_said_with_a_next_step(command, tmp_path, capsys):
    source = tmp_path / "step"
    source.write_text(jax.jit(lambda x: x + 1).lower(1.0).as_text())
    words = command.replace("OUT", str(tmp_path / "out")).split()
    # A table of zeros would say nothing.
    status = 0 if "rewrite" in command else 1
    assert main([*words, str(source), "--mesh", NODES]) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"zpp: {'error' if status else 'warning'}: {NOTHING}"


@pytest.mark.parametrize("content, options, message", [
    (b"what", [], "step:1:1: error: custom op 'what' is unknown"),
    (b"\x00\x01\x02", [], "step: expected the serialized bytes of a "
     "jax.export.Exported, but got 3 other bytes"),
    (b"\x0a\x02ab\xff", [], "step: expected a step as generic, pretty"),
    (b"HloModule what, {", [], "step: expected a step as generic, pretty"),
    (b"module {}", ["--weights", "i3"], "weights: expected 'none', 'i8', 'i4', "),
    (b"module {}", ["--mesh", "node"], "expected a mesh such as 'node:2,gpu:4'"),
    (None, [], "No such file or directory"),
], ids=["text", "bytes", "proto", "hlo", "weights", "mesh", "missing"])
def test_errors(content, options, message, tmp_path, capsys):
    source = tmp_path / "step"
    if content is not None:
        source.write_bytes(content)
    assert main(["rewrite", str(source), "-o", str(tmp_path / "out"),
                 *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("zpp: error: ") and message in error
    assert [path.name for path in tmp_path.iterdir()] in ([], ["step"])


def test_outputs_are_whole_files_or_what_they_were(tmp_path, capfdbinary):
    """Files keep their mode, links stay links, and what is no file is written
    to; where that is full, the error says what."""
    source, there, link = tmp_path / "step", tmp_path / "there", tmp_path / "link"
    source.write_text("module {}")
    there.write_text("old")
    there.chmod(0o640)
    link.symlink_to(there)

    def convert(output):
        return main(["convert", str(source), "-o", str(output)])

    assert convert(link) == 0 and link.is_symlink()
    assert there.read_text() == "module {}"
    assert there.stat().st_mode & 0o777 == 0o640
    assert convert("/dev/stdout") == 0
    assert capfdbinary.readouterr().out == b"module {}"
    before = os.stat("/dev/full")
    for output, message in ((tmp_path / "missing" / "step", "No such file"),
                            ("/dev/full", "No space left on device")):
        assert convert(output) == 1
        error = capfdbinary.readouterr().err.decode()
        assert message in error and f"'{output}'" in error
    assert os.path.samestat(before, os.stat("/dev/full"))
    assert sorted(os.listdir(tmp_path)) == ["link", "step", "there"]


@pytest.mark.parametrize("reader, message", [
    ("> /dev/full", "zpp: error: [Errno 28] No space left on device\n"),
    ("| true", "")])
def test_standard_output_that_ends(reader, message, forms, tmp_path):
    source = tmp_path / "step"
    source.write_bytes(forms["generic"])
    # The reader is gone before the first line.
    done = subprocess.run(
        f"(sleep 1; exec {sys.executable} -m zpp report {source} --mesh {NODES}) "
        f"{reader}", shell=True, capture_output=True, text=True)
    assert done.stderr == message
    assert "true" in reader or done.returncode == 1
