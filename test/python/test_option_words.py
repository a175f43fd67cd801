# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of Python, of zpp-opt and of the documentation are the same, and
old words do what new ones do."""

import pathlib
import re
import subprocess
import sys
import warnings

import pytest
import zpp
from zpp._cli import main
from zpp._compiler import find_compiler
from zpp._options import OLD_WORDS, describe, read_schedule
from zpp._torch_options import TorchOptions, TorchTuning, as_torch_options

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
#: Options of the pipeline only: zpp.jit starts a state itself.
ONLY_CXX = {"start"}
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
    old = {name for name, text in found.items() if text.startswith("An old")}
    assert old == {word.replace("_", "-") for word in OLD_WORDS} - {
        "compile-timeout"}
    assert set(found) - old - ONLY_CXX == set(python_options()) - ONLY_PYTHON


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
        for word in OLD_WORDS:
            assert f"--{word.replace('_', '-')} " not in text


def warnings_of(call) -> tuple:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    assert all(warning.filename == __file__ and warning.category is FutureWarning
               for warning in caught), caught
    return result, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("word, value", [
    ("block", 64), ("rotate", 0), ("prefetch_bytes", 7), ("coalesce_bytes", 0),
    ("compile_timeout", 2.5)])
def test_old_words_are_tuning(word, value):
    new = zpp.Options(weights="i8", tuning=zpp.Tuning(**{word: value}))
    message = (f"{word}={value} is an old word, which works in this release "
               f"only; write tuning=zpp.Tuning({word}={value})")
    for call in (lambda: zpp.Options(weights="i8", **{word: value}),
                 lambda: zpp.Options(weights="i8").replace(**{word: value}),
                 lambda: read_schedule(
                     {5: {word: value}}, zpp.Options(weights="i8"), "call")[0][1]):
        assert warnings_of(call) == (new, [message])
    assert warnings_of(lambda: getattr(new, word)) == (value, [
        f"options.{word} is an old word, which works in this release only; write "
        f"options.tuning.{word}"])
    with pytest.raises(ValueError, match="block: expected a power of two"), \
            pytest.warns(FutureWarning):
        zpp.Options(block=100)


def test_old_words_leave_other_tuning():
    options, messages = warnings_of(lambda: zpp.Options(
        block=64, rotate=0, stages=2, prefetch_bytes=None,
        tuning={"coalesce_bytes": 0}))
    assert options.tuning == zpp.Tuning(block=64, rotate=0, coalesce_bytes=0)
    assert len(messages) == 3 and messages[2] == (
        "stages=2 is an old option without effect: leave it out; the compiler "
        "picks the number that suits the links")
    with pytest.raises(AttributeError, match="no attribute 'stages'"):
        options.stages  # noqa: B018


def test_new_words_do_not_warn():
    options, messages = warnings_of(lambda: zpp.Options(
        tuning={"block": 64}).replace(weights="i4", tuning=zpp.Tuning(rotate=0)))
    assert options.tuning == zpp.Tuning(rotate=0) and not messages


@pytest.mark.compiler
def test_old_words_of_the_command_line(tmp_path, capsys):
    step = tmp_path / "step.mlir"
    step.write_text(EMPTY)
    run = ["rewrite", str(step), "-o", str(tmp_path / "out.mlir"), "--weights",
           "none", "--gradients", "none", "--secondary", "none"]
    assert main([*run, "--block", "128", "--stages", "2"]) == 0
    assert capsys.readouterr().err == (
        "zpp: warning: --block is an old word, which works in this release only; "
        "write --tuning.block\n"
        "zpp: warning: --stages is an old option without effect: leave it out; "
        "the compiler picks the number that suits the links\n")
    assert main([*run, "--block", "100"]) == 1
    assert "block: expected a power of two" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*run, "--weights-of", "3-1"])
    assert "numbers and ranges such as 0,3-7, but got '3-1'" in (
        capsys.readouterr().err)


def test_options_of_pytorch_are_those_that_apply():
    names = ("mesh, weights, gradients, reduced, secondary, links, tuning, "
             "accumulate")
    with pytest.raises(TypeError, match=f"among {names}, but got frozen$"):
        TorchOptions().replace(frozen="keep")
    with pytest.raises(ValueError, match="'i8:delta' or 'i4:delta', but got "):
        TorchOptions(weights="i2:delta")
    with pytest.raises(TypeError, match="among block, rotate, compile_timeout, "
                       "but got prefetch_bytes"):
        TorchOptions(tuning={"prefetch_bytes": 1})
    old, messages = warnings_of(lambda: TorchOptions(block=64))
    assert old.tuning == TorchTuning(block=64)
    assert messages == ["block=64 is an old word, which works in this release "
                        "only; write tuning=zpp.torch.Tuning(block=64)"]


def test_options_of_jax_still_work_in_pytorch():
    given = zpp.Options(mesh="gpu:4", weights="none", tuning={"rotate": 0})
    converted, messages = warnings_of(lambda: as_torch_options(given))
    assert converted == TorchOptions(mesh="gpu:4", weights="none",
                                     tuning={"rotate": 0})
    assert len(messages) == 1 and "write zpp.torch.Options" in messages[0]
    for options in ({"frozen": "keep"}, {"tuning": {"prefetch_bytes": 1}},
                    {"target": "cuda"}):
        with pytest.raises(ValueError, match="expected options among mesh, "), \
                pytest.warns(FutureWarning):
            as_torch_options(zpp.Options(**options))


@pytest.mark.compiler
def test_options_without_effect_warn():
    with pytest.warns(UserWarning, match="reduced=i4 has no effect with "
                      "gradients=none; write gradients=i8:i4"):
        zpp.rewrite(EMPTY, weights="none", gradients="none", secondary="none",
                    reduced="i4")
