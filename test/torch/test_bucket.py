# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What needs no ranks: groups and tiers, compiled buckets, early errors."""

import os
import re
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

import zpp.torch
from zpp.torch import _bucket
from zpp.torch._mesh import find_tiers, gradient_formats, read_links

MESH = {"rack": 2, "node": 2, "gpu": 4}
BUCKET = _bucket.Bucket("reduce_scatter", "bf16", 1000,
                        (("node", 2), ("gpu", 2)), is_mean=True)
OPTIONS = BUCKET.options(zpp.torch.Options(gradients="i8:i4"))


@pytest.mark.parametrize("ranks, tiers", [
    (range(16), MESH),
    (range(4, 8), {"gpu": 4}),
    (range(8, 16), {"node": 2, "gpu": 4}),
    ([0, 2, 4, 6, 8, 10, 12, 14], {"rack": 2, "node": 2, "gpu": 2}),
    ([1, 5], {"node": 2}),
    ([3, 11], {"rack": 2}),
    ([7], {}),
])
def test_tiers_of_groups(ranks, tiers):
    assert find_tiers(MESH, list(ranks)) == tiers


@pytest.mark.parametrize("ranks", [[0, 5], [1, 0], [0, 1, 4], list(range(2, 6))])
def test_groups_outside_of_the_mesh(ranks):
    with pytest.raises(ValueError, match="expected a process group of ranks "
                       "that differ in whole tiers of the mesh "
                       "rack:2,node:2,gpu:4, in order, but got the ranks"):
        find_tiers(MESH, ranks)


def compile_anew():
    _bucket.compile_bucket.cache_clear()
    return _bucket.compile_bucket(BUCKET, OPTIONS)


def test_compiled_buckets_are_kept_on_disk(monkeypatch):
    first = compile_anew()
    assert (first.input_bytes, first.output_bytes) == (8000, 2000)
    assert first.sent == {"node": 528, "gpu": 2032}
    with monkeypatch.context() as patch:
        patch.setattr(_bucket, "rewrite_text", None)
        assert compile_anew() == first
    # Damaged buckets are compiled again.
    content = first.library.read_bytes()
    first.library.write_bytes(content[:-1])
    assert compile_anew() == first
    assert first.library.read_bytes() == content


def test_links_of_other_tiers_do_not_matter(tmp_path):
    bucket = _bucket.Bucket("all_gather", "bf16", 2**24, (("node", 2),))
    for node, is_rewritten in (("50gbit", True), ("900gbyte", False)):
        links = read_links(f"rack=1gbit,node={node},gpu=400gbyte", MESH)
        compiled = _bucket.compile_bucket(bucket, bucket.options(
            zpp.torch.Options(weights="i8", links=links)))
        assert (compiled.reason == "") is is_rewritten
    # As zpp-perf --calibrate prints them.
    file = tmp_path / "links"
    file.write_text("# measured\nlinks=rack=1gbit,node=2gbit,gpu=3gbyte\n")
    assert read_links(str(file), MESH) == "rack=1gbit,node=2gbit,gpu=3gbyte"


@pytest.mark.parametrize("links, error", [
    ("node=50gbit,pod=1gbit", "links: expected each tier of "
     "rack:2,node:2,gpu:4 once, but got 'node=50gbit,pod=1gbit'"),
    ("node=1gbit,node=1gbit", "links: expected each tier of "),
    ("nowhere", "links: expected 'node=50gbit,...' or a file, but got "
     "'nowhere': No such file or directory"),
    ("empty", "links: expected a line 'links=...' in empty, but got none")])
def test_bad_links_are_errors(links, error, tmp_path, monkeypatch):
    (tmp_path / "empty").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(error)):
        read_links(links, MESH)


@pytest.mark.parametrize("formats, tiers, expected", [
    ("i8:i4", MESH, "i8:i4"),
    ("i8:i4", {"gpu": 4}, "i8"),
    ("i8:i4", {"node": 2, "gpu": 4}, "i8:i8"),
    ("i8:i4", {"rack": 2}, "i4"),
    (None, {"rack": 2, "gpu": 4}, "i8:i4"),
    ("i4:i8:i4", {"node": 2}, "i8"),
    ("i8:i4:i8:i4", {"rack": 2}, "i8"),
    ("i8", {"rack": 2}, "i8"),
    ("none", {"rack": 2}, "none")])
def test_a_tier_has_the_same_format_in_all_groups(formats, tiers, expected):
    assert gradient_formats(formats, MESH, tiers) == expected


@pytest.mark.parametrize("bucket, links, reason, sent", [
    (_bucket.Bucket("all_gather", "bf16", 4, (("gpu", 2),)), None,
     "a slice of 8 bytes would take 32 quantized", 8),
    (_bucket.Bucket("reduce_scatter", "bf16", 4, (("gpu", 2),)), None,
     "its chunks are so small that they would not shrink", 8),
    (_bucket.Bucket("reduce_scatter", "bf16", 4, (("gpu", 2),), is_mean=True),
     None, "its chunks are so small that they would not shrink", 8),
    (_bucket.Bucket("reduce_scatter", "f32", 2**20, (("gpu", 2),),
                    is_mean=True), "gpu=900gbyte", "on these links it takes",
     2**22)])
def test_buckets_that_do_not_gain_are_left_alone(bucket, links, reason, sent):
    options = bucket.options(zpp.torch.Options(
        weights="i8", gradients="i8", links=links))
    for _ in range(2):
        compiled = _bucket.compile_bucket(bucket, options)
        assert compiled.reason.startswith(reason)
        _bucket.compile_bucket.cache_clear()
    assert _bucket.sent_as_it_is(bucket) == {"gpu": sent}


def test_modules_without_fully_shard_are_errors():
    with pytest.raises(TypeError, match="expected a module of fully_shard, but "
                       "got Linear without one; call fully_shard before"):
        zpp.torch.compress(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="of fully_shard, but got dict"):
        zpp.torch.compress({})
    with pytest.raises(TypeError, match="of fully_shard, but got Linear"):
        zpp.torch.report(nn.Linear(2, 2))


def test_options_without_names_are_errors():
    with pytest.raises(TypeError, match="expected zpp.Options, or options by "
                       "name, such as weights='i8', but got 'i8'"):
        zpp.torch.compress(nn.Linear(2, 2), "i8")


def test_old_pytorch_is_an_error(monkeypatch):
    monkeypatch.delattr(FSDPModule, "set_custom_all_gather")
    with pytest.raises(RuntimeError, match="expected PyTorch 2.9 or later, "
                       "whose fully_shard lets others communicate, but got "
                       + torch.__version__.replace("+", r"\+")):
        zpp.torch.compress(nn.Linear(2, 2))


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], text=True,
                          stderr=subprocess.PIPE, check=False, env=os.environ | {
                              "PYTHONPATH": os.pathsep.join(sys.path)})


def test_zpp_imports_no_framework():
    code = "import sys, zpp; sys.exit('torch' in sys.modules)"
    assert run_python(code).returncode == 0


@pytest.mark.parametrize("module", ["torch", "torch.distributed.fsdp"],
                         ids=["none", "before FSDP2"])
def test_without_pytorch_the_error_says_what_to_install(module):
    process = run_python(f"""
import sys, types
sys.modules["{module}"] = {"None" if module == "torch" else "types.ModuleType('old')"}
import zpp.torch""")
    assert process.returncode == 1
    assert ("ImportError: zpp.torch needs PyTorch 2.9 or later: pip install "
            "'zpp[torch]' (") in process.stderr
