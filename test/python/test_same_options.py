# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of Python, of zpp-opt and of the documentation are the same."""

import pathlib
import re
import subprocess
import sys

import pytest
import zpp
from zpp._cli import main
from zpp._compiler import find_compiler
from zpp._options import describe
from zpp._torch_options import TorchOptions

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import option_tables  # noqa: E402

#: A module without anything to rewrite.
EMPTY = """
"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()
func.func @main(%w: tensor<4xf32>) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}
"""
#: Options of the pipeline only: zpp.jit starts a state itself, and zpp.plan has the
#: device.
ONLY_CXX = {"device", "start", "choose", "plans", "compute-usec", "memory-limit"}
#: Options that the front end follows itself.
ONLY_PYTHON = {"tuning.compile-timeout"}


def python_options() -> dict:
    """All options by their names on the command line."""
    return {prefix + name.replace("_", "-"): option
            for prefix, kind in (("", zpp.Options), ("tuning.", zpp.Tuning))
            for name, option in describe(kind).items()}


def pipeline(options: str) -> str:
    """The passes that zpp-opt runs, with all that they are told."""
    process = subprocess.run(
        [find_compiler(), f"--zeropp={options}", "--dump-pass-pipeline", "-o",
         "/dev/null"], input=EMPTY, text=True, capture_output=True, check=False)
    assert process.returncode == 0 and "warning" not in process.stderr, (
        options, process.stderr)
    return process.stderr


@pytest.mark.compiler
def test_zpp_opt_has_the_same_options():
    text = subprocess.run([find_compiler(), "--help"], text=True, check=True,
                          capture_output=True).stdout
    (section,) = re.findall(r"^ +--zeropp .*?\n\n", text, re.M | re.S)
    found = dict(re.findall(r"^ {8}--([\w.-]+)\S* +- (.*)$", section, re.M))
    assert set(found) - ONLY_CXX == set(python_options()) - ONLY_PYTHON


@pytest.mark.compiler
def test_defaults_are_those_of_zpp_opt():
    default = pipeline("")
    # What differs is seen.
    assert pipeline("tuning.block=64") != default
    for name, option in python_options().items():
        if name == "tuning.prefetch-bytes":  # Only with target=cuda.
            assert (pipeline(f"{name}={option.default} target=cuda") ==
                    pipeline("target=cuda"))
        elif option.default is not None:
            assert pipeline(f"{name}={option.default}") == default, name


@pytest.mark.compiler
@pytest.mark.parametrize("name", [
    name for name, option in python_options().items() if option.kind.words])
def test_values_are_those_of_zpp_opt(name):
    words = set(python_options()[name].kind.words)
    if name == "target":
        words -= {"auto", "cpu"}
    for word in words:
        pipeline(f"{name}={word}" + (" target=cuda" if name != "target" else ""))
    help_text = subprocess.run(
        [find_compiler(), f"--zeropp={name}=bogus"], input=EMPTY, text=True,
        capture_output=True, check=False)
    assert help_text.returncode != 0
    if listed := re.search("expected one of (.*), but got", help_text.stderr):
        assert set(listed[1].split(", ")) == words


def test_documentation_has_these_options():
    assert option_tables.find_differences() == []


def test_help_has_these_options(capsys):
    for command in ("rewrite", "plan"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        for name, option in python_options().items():
            assert f"--{name} " in text
            # argparse breaks lines at hyphens.
            assert option.help.replace(" ", "") in text.replace(" ", "")


def test_options_of_pytorch_are_those_that_apply():
    names = ("mesh, weights, gradients, reduced, secondary, links, tuning, "
             "accumulate, exact, moments")
    with pytest.raises(TypeError, match=f"among {names}, but got frozen$"):
        TorchOptions().replace(frozen="keep")
    with pytest.raises(ValueError, match="'i8:delta' or 'i4:delta', but got "):
        TorchOptions(weights="i2:delta")
    with pytest.raises(TypeError, match="among block, rotate, compile_timeout, "
                       "but got prefetch_bytes"):
        TorchOptions(tuning={"prefetch_bytes": 1})


@pytest.mark.compiler
def test_options_without_effect_warn():
    with pytest.warns(UserWarning, match="reduced=i4 has no effect with "
                      "gradients=none; write gradients=i8:i4"):
        zpp.rewrite(EMPTY, weights="none", gradients="none", secondary="none",
                    reduced="i4")
