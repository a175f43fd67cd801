# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/two_node.py: that it works, not how fast anything is."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
from conftest import ROOT
from zpp.jax import _runtime

sys.path.append(str(ROOT / "bench"))

from lab import launch, links, mps, results, steps, worker

SCRIPT = ROOT / "bench" / "two_node.py"


def run(folder, *options):
    return subprocess.run(
        [sys.executable, SCRIPT, "--log", folder, *options], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.skipif(_runtime.obstacle("cpu") is not None,
                    reason="needs libzpp_xla")
def test_exports_trains_and_prints(tmp_path):
    process = run(tmp_path, "--tiny", "--platform", "cpu", "--sequences", "2",
                  "--links", "nvlink", "--variants", "all (b)", "jit (b)",
                  "--gpus-per-node", "1", "--warm-up", "0", "--steps", "1",
                  "--plan", "h200")
    assert process.returncode == 0, process.stdout
    assert re.search(r"\n\[\S+\] nvlink, all \(b\): \S+ ms, first", process.stdout)
    assert "2 x 64 tokens per device" in process.stdout
    tables = process.stdout.partition("| step")[2]
    # Without FSDP there is no speed-up, without nodes nothing between them.
    # Nothing stalls on the CPU.
    start = r"\n\| %s \| \S+ GB \| - \| \S+ ms \| - \| \d\S+ ms \| "
    assert re.search(start % r"all \(b\)" + r"0\.0 ms \(0%\) \|", tables), tables
    # With the links of NVLink, everything is left to XLA.
    assert re.search(start % r"all \(b\), links" + r"~\S+ ms \(\d+%\) \|",
                     tables), tables
    assert re.search(r"\n\| all \(b\) \| \S+ usec \| \S+ usec \|", tables), tables
    measured = json.loads((tmp_path / "results.json").read_text())
    assert {link: list(runs) for link, runs in measured.items()} == {
        "nvlink": ["all (b)", "jit (b)", "all (b), links"]}

    # The manifest is enough to rebuild the model.
    exported = steps.read(tmp_path / "steps")
    assert exported.ranks == 2 and exported.sequences == 4
    assert exported.trainer().model_elements() == exported.parameters
    assert list(exported.chosen(["FSDP"])) == [steps.JITTED, steps.EXPORTED]


@pytest.mark.compiler
def test_planned_times_follow_the_links(tmp_path):
    process = run(tmp_path, "--export", tmp_path, "--tiny", "--layers", "1",
                  "--platform", "cpu", "--variants", "weights", "--plan", "h200",
                  "--links", "1gbit", "nvlink", "shared")
    assert process.returncode == 0, process.stdout
    variants = steps.read(tmp_path).variants
    written = variants[steps.EXPORTED].planned
    fast = variants["weights i8 (qwZ)"].planned
    assert list(written) == list(fast) == ["1gbit", "nvlink"]
    # What the runtime sends counts, too.
    assert 10 * fast["nvlink"] < fast["1gbit"] < 0.9 * written["1gbit"]


def test_links_are_checked_first(tmp_path):
    (tmp_path / "manifest.json").write_text('{"variants": {}}')
    process = run(tmp_path, "--run", tmp_path, "--links", "shared", "fast")
    assert process.returncode == 1
    assert process.stdout == ("expected Ngbit, shared or nvlink, but got "
                              "'fast'\n")


def test_a_failed_rank_ends_the_others(tmp_path):
    """With the output of the one that failed, and without waiting for the one
    that hangs."""
    processes = [
        launch.Process([sys.executable, "-c", program], {"WHO": name},
                       tmp_path / f"{name}.txt")
        for name, program in (("hangs", "import time; time.sleep(600)"),
                              ("fails", "import os; exit(os.environ['WHO'])"))]
    lines = []
    start = time.monotonic()
    with pytest.raises(RuntimeError) as error:
        launch.run(processes, 300, lines.append)
    assert time.monotonic() - start < 100
    assert str(error.value) == (
        "expected all ranks to end with 0, but got [None, 1]\n"
        f"{tmp_path}/hangs.txt ends with\n\n{tmp_path}/fails.txt ends with\n"
        "fails\n")
    assert not lines


def test_links_of_one_kind_go_together():
    assert links.by_kind(["50gbit", "shared", "nvlink", "100gbit"]) == [
        ["50gbit", "100gbit"], ["shared"], ["nvlink"]]
    assert not links.by_kind([])


@pytest.mark.parametrize(("gpus", "link", "hosts"), [
    # Without GPUs, and with enough of them, nothing is shared.
    (0, "50gbit", ["node0", "node0", "node1", "node1"]),
    (4, "shared", ["node0", "node0", "node1", "node1"]),
    (4, "nvlink", [None] * 4),
    # The ranks of one GPU are on different hosts: those that the nodes are, or
    # their own.
    (2, "50gbit", ["node0", "node0", "node1", "node1"]),
    (1, "shared", ["rank0", "rank1", "rank2", "rank3"]),
    (2, "nvlink", ["rank0", "rank1", "rank2", "rank3"])])
def test_ranks_of_one_gpu_are_on_different_hosts(monkeypatch, gpus, link, hosts):
    monkeypatch.setattr(launch, "gpu_count", lambda: gpus)
    variables = [links.environment(rank, 4, 2, link) for rank in range(4)]
    assert [found.get("NCCL_HOSTID") for found in variables] == hosts
    part = {f"{0.9 * gpus / 4:.2f}"} if 0 < gpus < 4 else {None}
    assert {found.get("XLA_PYTHON_CLIENT_MEM_FRACTION")
            for found in variables} == part
    # More threads than processors would take turns.
    sockets = {"50gbit": ("1", "4"), "shared": ("2", "8"),
               "nvlink": (None, None)}[link]
    assert {(found.get("NCCL_SOCKET_NTHREADS"), found.get("NCCL_NSOCKS_PERTHREAD"))
            for found in variables} == {sockets}
    if gpus:
        for gpu in range(gpus):
            same = [found.get("NCCL_HOSTID") for rank, found in
                    enumerate(variables) if launch.device_of(rank) == gpu]
            assert len(set(same)) == len(same)


@pytest.mark.parametrize(("gpus", "per_host", "part"), [
    (1, 2, {"NCCL_MAX_CTAS": "2"}), (2, 4, {"NCCL_MAX_CTAS": "4"}), (2, 2, {})])
def test_newer_nccl_has_ranks_of_a_host_on_one_gpu(monkeypatch, gpus, per_host, part):
    monkeypatch.setattr(launch, "gpu_count", lambda: gpus)
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    for rank in range(4):
        assert launch.sharing(rank, 4, per_host) == part | {
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * gpus / 4:.2f}"}


def test_processes_without_a_gpu_need_no_service(monkeypatch):
    monkeypatch.setattr(launch, "gpu_count", lambda: 1)
    monkeypatch.setattr(mps, "service", lambda: "started")
    assert launch.service(2, launch.environment()) == "started"
    for ranks, on_cpu in ((1, False), (2, True)):
        with launch.service(ranks, launch.environment(on_cpu)) as variables:
            assert variables == {}


#: In place of the driver's program: a daemon with a child, and commands for it.
CONTROL = """#!/bin/sh
if [ "$1" = -f ]; then
  [ -z "$CUDA_VISIBLE_DEVICES" ] || exit 1
  sleep 600 & echo $! > $CUDA_MPS_LOG_DIRECTORY/child
  touch $CUDA_MPS_PIPE_DIRECTORY/control; wait
fi
[ -e $CUDA_MPS_PIPE_DIRECTORY/control ]
"""


def control(monkeypatch, tmp_path, text=CONTROL):
    (tmp_path / "nvidia-cuda-mps-control").write_text(text)
    (tmp_path / "nvidia-cuda-mps-control").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(mps, "_END_SECONDS", 0.1)


@pytest.mark.parametrize("fails", [False, True])
def test_ranks_of_one_gpu_have_a_service(monkeypatch, tmp_path, capfd, fails):
    """A private one, which ends with them also where one of them fails."""
    control(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(launch, "gpu_count", lambda: 1)
    program = ("import os, pathlib; folder = pathlib.Path(os.environ"
               "['CUDA_MPS_LOG_DIRECTORY']); print(folder.parent, "
               f"(folder / 'child').read_text()); exit({int(fails)})")
    processes = [launch.Process(
        [sys.executable, "-c", program], launch.sharing(rank, 2, 1),
        tmp_path / f"{rank}.txt") for rank in range(2)]
    if fails:
        with pytest.raises(RuntimeError):
            launch.run(processes, 300)
    else:
        launch.run(processes, 300)
    # One that fails may end before the other has written anything.
    folder, child = next(filter(None, (
        process.log.read_text() for process in processes))).split()
    assert not pathlib.Path(folder).exists()
    stat = pathlib.Path("/proc", child, "stat")
    end = time.monotonic() + 10
    while stat.exists() and stat.read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not capfd.readouterr().err


@pytest.mark.parametrize("text", [None, "#!/bin/sh\nexit 1\n"])
def test_without_the_service_times_are_not_those_of_several(
        monkeypatch, tmp_path, capfd, text):
    if text:
        control(monkeypatch, tmp_path, text)
    else:
        monkeypatch.setattr(mps, "program", lambda: None)
    with mps.service() as variables:
        assert not variables
    warning = capfd.readouterr().err
    assert warning.startswith("warning: ")
    assert "times are not those of several GPUs" in warning


def test_headings_say_what_ranks_share(monkeypatch, tmp_path):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA H200, 580.1\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(mps, "program", lambda: "control")
    assert launch.describe_gpu(2) == "2 ranks on 1x NVIDIA H200, MPS, driver 580.1"
    assert launch.describe_gpu(1) == "1x NVIDIA H200, driver 580.1"
    monkeypatch.setattr(mps, "program", lambda: None)
    assert launch.describe_gpu(2) == (
        "2 ranks on 1x NVIDIA H200, taking turns, driver 580.1")


@pytest.mark.parametrize(("kind", "micro_batches", "per_node", "options"), [
    ("FSDP", 1, 2, {"secondary": "gpu"}),
    ("FSDP", 4, 2, {"secondary": "gpu", "accumulate": "gpu"}),
    ("FSDP", 4, 1, {"secondary": "1", "accumulate": "gpu"}),
    ("TP", 1, 2, {"secondary": "1"}),
    ("MoE", 4, 2, {"secondary": "gpu", "accumulate": "gpu"}),
    ("TP", 4, 2, {"secondary": "1", "accumulate": "tensor"}),
    # The step sums the gradients of all micro-batches before it all-reduces them.
    ("HSDP", 4, 2, {"secondary": "none"}),
    ("ZeRO-1", 4, 2, {"secondary": "none"})])
def test_options_of_kinds(kind, micro_batches, per_node, options):
    of = steps.describe("0.88 B", per_node, "cpu", kind=kind,
                        micro_batches=micro_batches)
    assert of["variants"][steps.RUNTIME] == options | {
        "weights": "i8", "gradients": "i8:i4"}
    tiers = [tier for tier, _ in of["config"]["mesh"]]
    assert tiers == ["node", "tensor" if kind == "TP" else "gpu"]
    if kind == "HSDP":
        assert of["variants"]["jit (b)"]["accumulate"] == "gpu"


def test_lines_of_the_first_rank_are_shown(tmp_path):
    processes = [
        launch.Process([sys.executable, "-c", f"print('rank {rank}')"], {},
                       tmp_path / f"{rank}.txt") for rank in range(2)]
    lines = []
    launch.run(processes, 300, lines.append)
    assert lines == ["rank 0\n"]


def test_stalls_of_all_processes(tmp_path):
    """Only slices of the category count; the mean is over all devices."""
    def event(category, usec):
        return {"ph": "X", "name": "all_gather gpt.py:1", "cat": category,
                "pid": 0, "tid": 0, "ts": 0, "dur": usec}

    row = {"ph": "M", "name": "thread_name", "args": {"name": "rank 0: stalls"}}
    for process, events in enumerate((
            [event("stall", 3000), event("quantize", 5)], [event("stall", 1000)],
            [], [])):
        (tmp_path / f"step.trace0.{process}.json").write_text(
            json.dumps({"traceEvents": [row, *events]}))
    assert worker.stalled_seconds(
        tmp_path / "step.trace0.json", processes=4, ranks=4) == 0.001


def exported_of(traced: dict[str, bool]) -> steps.Steps:
    """Steps of which is only known whether they are traced."""
    return steps.Steps(folder=None, of={}, parameters=0, variants={
        name: steps.Variant(path=None, bytes={}, links=None, is_runtime=False,
                            is_traced=is_traced)
        for name, is_traced in traced.items()})


def test_what_xla_exposes_is_estimated():
    def run_of(seconds, **more):
        return {"seconds": [seconds]} | more

    exported = exported_of(
        {steps.JITTED: False, "fast": False, steps.RUNTIME: True})
    runs = {steps.JITTED: run_of(7.0), "fast": run_of(1.0),
            steps.RUNTIME: run_of(2.0, stalls=[0.4, 0.5, 0.9])}
    results.add_exposed(exported, runs)
    assert [(run["exposed"], run["is_estimate"]) for run in runs.values()] == [
        (5.5, True), (0.0, True), (0.5, False)]

    runs = {steps.JITTED: run_of(7.0)}
    results.add_exposed(exported, runs)
    assert "exposed" not in runs[steps.JITTED]


def test_speed_up_of_rounds():
    """The table's is of all steps; beside it are the smallest and the largest of
    the rounds."""
    def run_of(rounds):
        return results.join([
            {"seconds": seconds, "peak": 1, "bytes": 1,
             "host_times": {"start": seconds[0]},
             "lost": {"resent": 3, "timeouts": 0}} for seconds in rounds])

    runs = {steps.EXPORTED: run_of([[2.0, 4.0, 4.0], [6.0, 6.0, 6.0]]),
            "slow": run_of([[4.0, 4.0, 4.0], [8.0, 8.0, 8.0]])}
    assert results.speed_up(runs, "slow") == "0.83x (0.75x to 1.00x)"
    assert runs["slow"]["host_times"] == {"start": 6.0}
    assert runs["slow"]["lost"] == {"resent": 6, "timeouts": 0}
    once = {name: run_of(run["rounds"][:1]) for name, run in runs.items()}
    assert results.speed_up(once, "slow") == "1.00x"
    assert results.speed_up({"slow": runs["slow"]}, "slow") == ""
