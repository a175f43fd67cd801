# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts have their buffers in place on GPUs, and their compute under them, as XLA
compiles the steps; no GPU is needed."""

import json
import os
import subprocess
import sys

import in_place
import jaxlib
import pytest
from conftest import ROOT
from startwait import needs_library

#: The plugin stays there: JAX would find it beside itself, in every test.
PLUGIN = ROOT / "build" / "cuda-plugin"

FUSED = """HloModule step, is_scheduled=true

%fused_computation (p0: bf16[8,64], p1: s32[]) -> (bf16[64], bf16[8,64]) {
  %p0 = bf16[8,64]{1,0} parameter(0)
  %slice = bf16[1,64]{1,0} dynamic-slice(%p0, %p1), dynamic_slice_sizes={1,64}
  %copy.7 = bf16[8,64]{1,0} copy(%p0)
  ROOT %all_gather.1 = (bf16[64]{0}, bf16[8,64]{1,0}) custom-call(%slice), custom_call_target="zpp.start"
}

ENTRY %main (p0: bf16[8,64], p1: s32[]) -> bf16[64] {
  %p0 = bf16[8,64]{1,0} parameter(0)
  %copy.1 = bf16[8,64]{1,0:S(1)} copy(%p0), metadata={op_name="a"}
  %copy.2 = bf16[64]{0} copy(%x)
  %fusion = (bf16[64]{0}, bf16[8,64]{1,0}) fusion(%p0, %p1), kind=kCustom, calls=%fused_computation
}
"""


def test_what_is_found():
    fused, copied = in_place.faults(FUSED, 512)
    assert fused == "fused_computation has a start in a fusion"
    assert copied.startswith("main copies 1024 bytes: %copy.1 = ")
    assert in_place.count_starts(FUSED) == 1
    apart = FUSED.replace("calls=", "to_apply=")
    assert all("copies" in fault for fault in in_place.faults(apart, 512))


SCHEDULED = """HloModule step, is_scheduled=true

%product (p0: bf16[8,8]) -> bf16[8,8] {
  %p0 = bf16[8,8]{1,0} parameter(0)
  ROOT %dot = bf16[8,8]{1,0} dot(%p0, %p0)
}

%body (p0: bf16[8,8]) -> bf16[8,8] {
  %p0 = bf16[8,8]{1,0} parameter(0)
  %start.1 = bf16[8,8]{1,0} custom-call(%p0), custom_call_target="zpp.start", backend_config={function = "f"}
  %fusion.1 = bf16[8,8]{1,0} fusion(%p0), kind=kCustom, calls=%product
  ROOT %wait.1 = bf16[8,8]{1,0} custom-call(%p0), custom_call_target="zpp.wait", backend_config={function = "f"}
}

ENTRY %main (p0: bf16[8,8]) -> bf16[8,8] {
  %p0 = bf16[8,8]{1,0} parameter(0)
  %start.2 = bf16[8,8]{1,0} custom-call(%p0), custom_call_target="zpp.start", backend_config={function = "g"}
  %while = bf16[8,8]{1,0} while(%p0), condition=%less, body=%body
  %wait.2 = bf16[8,8]{1,0} custom-call(%p0), custom_call_target="zpp.wait", backend_config={function = "g"}
}
"""


def test_what_is_undone():
    schedule = [
        {"event": "start", "function": "g"}, {"event": "start", "function": "f"},
        {"event": "wait", "function": "f", "heavy_ops": 1},
        {"event": "wait", "function": "g", "heavy_ops": 1}]
    assert in_place.undone(schedule, SCHEDULED) == []
    assert in_place.products_under(in_place.trace(SCHEDULED)) == [("f", 1), ("g", 1)]
    # The wait now comes before the product.
    lines = SCHEDULED.splitlines()
    product, wait = (next(index for index, line in enumerate(lines) if word in line)
                     for word in ("%fusion.1", "%wait.1"))
    lines[product], lines[wait] = lines[wait], lines[product]
    assert in_place.undone(schedule, "\n".join(lines)) == [
        "f has nothing to hide under, but 1 heavy ops before"]
    (fault,) = in_place.undone(schedule[1:], SCHEDULED)
    assert fault.startswith("expected the calls [('start', 'f')")


@pytest.fixture(scope="module")
def plugin():
    """A folder with JAX's CUDA plugin."""
    version = jaxlib.__version__
    folder = PLUGIN / version
    if not (folder / "jax_plugins").is_dir():
        found = subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target",
             folder, *(f"jax-cuda13-{part}=={version}" for part in ("plugin", "pjrt"))],
            capture_output=True, text=True)
        if found.returncode:
            pytest.skip(f"no plugin of JAX for CUDA: {found.stderr.strip()[-300:]}")
    return folder


def run_with(plugin, *command) -> str:
    """Returns what a script prints that finds the plugin."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(
            [str(plugin), os.environ.get("PYTHONPATH", "")])},
        capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


#: Without a loop no value has all layers, and XLA takes long for each.
FORMS = {"scan": {"scan": True}, "short scan": {"scan": True, "layers": 6},
         "jit": {"collectives": "xla", "layers": 6},
         "jit, scan": {"collectives": "xla", "scan": True}}
OPTIONS = {
    "i4:delta": {"weights": "i4:delta", "gradients": "i4"},
    # Each tensor travels alone: all starts tie others' memory.
    "i4:delta, alone": {"weights": "i4:delta", "gradients": "i4",
                        "tuning": {"coalesce_bytes": 0}},
    "i8": {"weights": "i8"}}
#: Forms and options with which XLA leaves the order of calls, but moves the product
#: of the backward loop from under some gathers (docs/xla.md).
LOSES_PRODUCTS = {("jit, scan", "i4:delta"), ("jit, scan", "i4:delta, alone")}


@needs_library
@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("form", FORMS)
def test_starts_are_in_place(form, options, plugin):
    found = json.loads(run_with(plugin, in_place.__file__, json.dumps(FORMS[form]),
                                json.dumps(OPTIONS[options])).splitlines()[-1])
    assert found["starts"] > 10
    assert not found["faults"]
    if (form, options) in LOSES_PRODUCTS:
        assert all("has nothing to hide under" in each for each in found["undone"])
    else:
        assert not found["undone"]


@needs_library
@pytest.mark.slow
@pytest.mark.compiler
def test_memory_of_steps(plugin, tmp_path):
    """bench/step_memory.py, also of a step that keeps state."""
    run_with(plugin, ROOT / "bench" / "two_node.py", "--export", tmp_path, "--tiny",
             "--variants", "0.52 M")
    rows = [line.split("|")[1:-1] for line in run_with(
        plugin, ROOT / "bench" / "step_memory.py", tmp_path).splitlines()
        if line.startswith("|")][2:]
    assert [row[0].strip() for row in rows] == ["FSDP, exported", "0.52 M (b)"]
    state, temporary, together = (float(cell.split()[0]) for cell in rows[1][1:4])
    assert abs(state + temporary - together) < 0.011
    # What the others hold is an argument, too.
    assert state > float(rows[0][1].split()[0])
