# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests that need no ranks: groups and tiers, compiled buckets, early errors."""

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

import ranks
import zpp.torch
from zpp._cache import cache_folder
from zpp._compiler import report_entries
from zpp.torch import Options, _bucket
from zpp.torch._bucket import Bucket, compile_bucket
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
    assert (first.function["inputs"], first.function["outputs"]) == ([8000], [2000])
    assert first.sent == {"node": 528, "gpu": 2032}
    with monkeypatch.context() as patch:
        patch.setattr(_bucket, "rewrite_text", None)
        assert compile_anew() == first
    # Damaged buckets are compiled again.
    content = first.library.read_bytes()
    first.library.write_bytes(content[:-1])
    assert compile_anew() == first
    assert first.library.read_bytes() == content


@pytest.mark.parametrize("bucket", [
    Bucket(kind, "bf16", elements, tiers, also=also, exact=exact)
    for kind in ("all_gather", "reduce_scatter", "all_reduce")
    for elements, also, exact in ((1, (), ()), (4099, (("f32", 7),), ("f16", 3)))
    for tiers in ((("gpu", 4),), (("rack", 2), ("node", 3), ("gpu", 4)))] + [
    Bucket("reduce_scatter", "f32", 6, (("rack", 2), ("node", 3), ("gpu", 4)), along=along)
    for along in (("rack",), ("rack", "node"), ("node", "gpu"), ("gpu",))])
def test_bytes_are_those_that_the_compiler_counts(bucket):
    report = report_entries(bucket.text(), zpp.Options(mesh=dict(bucket.tiers)))
    assert bucket.sent == report["total"]["after"] == report["total"]["before"]


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


@pytest.mark.parametrize("link", [
    "50gbit", "400gbyte", ".5gbit", "1.5e+3gbit", "50gbit/40gbit", "50gbit+20us",
    "1e3gbyte/2gbyte+5.5us"])
def test_links_are_those_of_the_compiler(link):
    """What passes is read by the compiler, too."""
    mesh = {"node": 2}
    links = read_links(f"node={link}", mesh)
    bucket = _bucket.Bucket("all_gather", "bf16", 4, tuple(mesh.items()))
    assert _bucket.compile_bucket(bucket, bucket.options(
        zpp.torch.Options(weights="i8", links=links))).reason


@pytest.mark.parametrize("links, error", [
    ("rack=1gbit,node=1apple,gpu=1gbit", "links: expected TIER=NUMBERgbit or "
     "TIER=NUMBERgbyte, but got 'node=1apple'"),
    ("rack=1gbit,node=-1gbit,gpu=1gbit", "links: expected TIER=NUMBERgbit or "
     "TIER=NUMBERgbyte, but got 'node=-1gbit'"),
    ("node=1gbit,gpu=1gbit", "links: expected each tier of rack:2,node:2,gpu:4 "
     "once, but got 'node=1gbit,gpu=1gbit'"),
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
    ("i8:i4:i8:i4", {"rack": 2}, "i4"),
    ("i8", {"rack": 2}, "i8"),
    ("none", {"rack": 2}, "none")])
def test_a_tier_has_the_same_format_in_all_groups(formats, tiers, expected):
    assert gradient_formats(formats, MESH, tiers) == expected


def test_differences():
    bucket = _bucket.Bucket("all_gather", "bf16", 1000, (("node", 2),),
                            difference="i4", block=64)
    options = zpp.torch.Options(weights="i4:delta", tuning={"block": 64})
    compiled = _bucket.compile_bucket(bucket, bucket.options(options))
    # This rank's slice, what the others hold of it, and all that is held.
    assert compiled.function["inputs"] == [2000, 2000, 4000]
    assert compiled.function["outputs"] == [4000] and compiled.reason == ""
    # Half a byte each, and 16 scales, in multiples of 16 bytes.
    assert compiled.sent == {"node": 544}


@pytest.mark.parametrize("kind, sent", [
    ("all_gather", 4 * 1300), ("reduce_scatter", 4 * 1300), ("all_reduce", 4 * 1300 // 2)])
@pytest.mark.parametrize("links", [None, "node=50gbit,gpu=50gbit", "node=1gbyte,gpu=9gbyte"])
def test_what_is_exact_travels_in_one_function(kind, sent, links):
    """Also where links ask for stages."""
    found = []
    for exact in ((), ("f32", 1300)):
        bucket = Bucket(kind, "f32", 2**22, (("node", 2), ("gpu", 2)), exact=exact)
        found.append(compile_bucket(bucket, bucket.options(Options(
            weights="i8", gradients="i8:i4", reduced="i8", links=links))))
    alone, joined = found
    assert not alone.reason and not joined.reason
    assert len(joined.function["arguments"]) == len(joined.function["results"]) == 2
    assert joined.sent["node"] - alone.sent["node"] == pytest.approx(sent, abs=128)


@pytest.mark.parametrize("bucket, links, reason, sent", [
    (_bucket.Bucket("all_gather", "bf16", 4, (("gpu", 2),)), None,
     "a slice of 8 bytes would take 32 quantized", 8),
    (_bucket.Bucket("all_gather", "bf16", 4, (("gpu", 2),), difference="i8",
                    block=128), None,
     "a slice of 8 bytes would take 32 quantized", 8),
    (_bucket.Bucket("all_gather", "bf16", 2**20, (("gpu", 2),), difference="i8",
                    block=128), "gpu=900gbyte", "on these links it takes", 2**21),
    (_bucket.Bucket("reduce_scatter", "bf16", 4, (("gpu", 2),)), None,
     "its chunks are so small that they would not shrink", 8),
    (_bucket.Bucket("reduce_scatter", "bf16", 4, (("gpu", 2),), is_mean=True),
     None, "its chunks are so small that they would not shrink", 8),
    (_bucket.Bucket("reduce_scatter", "f32", 2**20 - 64, (("gpu", 2),),
                    exact=("f32", 64)), "gpu=900gbyte", "on these links it takes",
     2**22),
    (_bucket.Bucket("reduce_scatter", "f32", 4, (("gpu", 2),), exact=("f32", 2)), None,
     "its chunks are so small that they would not shrink", 24),
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
    assert bucket.sent == {"gpu": sent}


def test_modules_without_fully_shard_are_errors():
    with pytest.raises(TypeError, match="expected a module of fully_shard, but "
                       "got Linear without one; call fully_shard before"):
        zpp.torch.compress(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="of fully_shard, but got dict"):
        zpp.torch.compress({})
    with pytest.raises(TypeError, match="of fully_shard, but got Linear"):
        zpp.torch.report(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="of fully_shard, but got Linear"):
        zpp.torch.metrics(nn.Linear(2, 2))


def test_options_without_names_are_errors():
    with pytest.raises(TypeError, match="expected zpp.torch.Options, or options "
                       "by name, such as weights='i8', but got 'i8'"):
        zpp.torch.compress(nn.Linear(2, 2), "i8")


@pytest.mark.parametrize("version", ["2.8.1", "2.16.0a0+git1", "3.0"])
def test_other_versions_of_pytorch_are_errors(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(RuntimeError, match=re.escape(
            f"expected PyTorch 2.9 to 2.15, whose fully_shard zpp knows, but got "
            f"{version}")):
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
            "'torch>=2.9' (") in process.stderr


@pytest.mark.parametrize("damage", ["emptied", "a file", "no manifest"])
def test_a_damaged_cache_is_replaced(damage):
    """By a scratch cleaner, say."""
    bucket = Bucket("all_gather", "f32", 777, (("node", 2),))
    options = bucket.options(Options(weights="i8"))
    compile_bucket.cache_clear()
    folder = compile_bucket(bucket, options).library.parent
    compile_bucket.cache_clear()
    if damage == "no manifest":
        (folder / "bundle.json").unlink()
    else:
        shutil.rmtree(folder)
        folder.mkdir() if damage == "emptied" else folder.write_text("")
    assert compile_bucket(bucket, options).library.is_file()


def test_a_cache_without_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    bucket = Bucket("all_gather", "f32", 778, (("node", 2),))
    assert compile_bucket(
        bucket, bucket.options(Options(weights="i8"))).library.is_file()


def test_a_cache_that_cannot_be_written_to(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache_folder.cache_clear()
    bucket = Bucket("all_gather", "f32", 779, (("node", 2),))
    with pytest.warns(UserWarning, match="expected a cache folder '.*zpp' to "
                      "write to, but got: .*; compiling into a temporary folder, "
                      "again in each run; set XDG_CACHE_HOME") as caught:
        library = compile_bucket(
            bucket, bucket.options(Options(weights="i8"))).library
    assert caught[0].filename == __file__
    cache_folder.cache_clear()
    assert library.is_file() and tmp_path not in library.parents


DRY_RUN = """
import torch, torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
import zpp.torch

dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
mesh = init_device_mesh("cpu", (4,))
for options in {}, {"weights": "i4:delta", "accumulate": "gpu"}:
    with FakeTensorMode():
        model = nn.Linear(64, 64)
        fully_shard(model, mesh=mesh)
        zpp.torch.compress(model, mesh="node:2,gpu:2", **options)
        tracker = FSDPMemTracker(model, torch.optim.SGD(model.parameters()))
        with tracker:
            model(torch.ones(2, 64)).sum().backward()
        entries = zpp.torch.report(model)["collectives"]
        assert [entry["rewritten"] for entry in entries] == [True, True], entries
        assert model.weight.grad.shape == (64, 64)
        # The gathered weight is seen.
        (peak,) = tracker.get_tracker_snapshot("peak").values()
        assert peak["Total"] > 64 * 64 * 4, peak
"""


def test_fake_tensors_send_nothing():
    """Also as FSDPMemTracker predicts memory."""
    assert ranks.run_code(DRY_RUN) == ""


MISSING = """
import os, tempfile
os.environ["{variable}"] = "/nowhere/file"
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import zpp.torch

store = tempfile.mkdtemp() + "/store"
dist.init_process_group("gloo", init_method="file://" + store, rank=0, world_size=1)
model = nn.Linear(8, 8)
fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
zpp.torch.compress(model, mesh="node:1")
"""


@pytest.mark.parametrize("variable", ["ZPP_RT", "ZPP_OPT"])
def test_compress_finds_what_is_missing(variable):
    """Not the first step, after the checkpoint was loaded."""
    assert f"at ${variable}" in ranks.run_code(MISSING.format(variable=variable))
