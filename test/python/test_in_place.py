# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts have their buffers in place on GPUs, nothing else touches these before the
wait, and compute is under them, as XLA compiles the steps; no GPU is needed."""

import functools
import json
import os
import subprocess
import sys

import in_place
import jaxlib
import pytest
import races
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


#: A transfer of %a into %b, which a loop starts for its next iteration. The result 2
#: of each start is the tie that keeps the order.
RACE = """HloModule step, is_scheduled=true

%body (p: (f32[8], f32[8], s8[1])) -> (f32[8], f32[8], s8[1]) {
  %p = (f32[8]{0}, f32[8]{0}, s8[1]{0}) parameter(0)
  %in = f32[8]{0} get-tuple-element(%p), index=0
  %out = f32[8]{0} get-tuple-element(%p), index=1
  %wait = (f32[8]{0}, s8[1]{0}) custom-call(%in, %out, %p#2), custom_call_target="zpp.wait", output_to_operand_aliasing={{0}: (1, {}), {1}: (2, {})}, backend_config={function = "f", inputs = 1 : i64, outputs = 1 : i64}
  %use = f32[8]{0} fusion(%wait#0), kind=kLoop, calls=%square
  %again = (f32[8]{0}, s8[1]{0}) custom-call(%in, /*index=1*/%wait#1), custom_call_target="zpp.start", output_to_operand_aliasing={{1}: (1, {})}, backend_config={function = "f", inputs = 1 : i64, outputs = 1 : i64}
  ROOT %next = (f32[8]{0}, f32[8]{0}, s8[1]{0}) tuple(%in, %again#0, %again#1)
}

ENTRY %main (x: f32[8], t: s8[1]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %t = s8[1]{0} parameter(1)
  %a = f32[8]{0} fusion(%x), kind=kLoop, calls=%square
  %start = (f32[8]{0}, s8[1]{0}) custom-call(%a, %t), custom_call_target="zpp.start", output_to_operand_aliasing={{1}: (1, {})}, backend_config={function = "f", inputs = 1 : i64, outputs = 1 : i64}
  %init = (f32[8]{0}, f32[8]{0}, s8[1]{0}) tuple(%a, %start#0, %start#1)
  %while = (f32[8]{0}, f32[8]{0}, s8[1]{0}) while(%init), condition=%less, body=%body
  %under = f32[8]{0} fusion(%x), kind=kLoop, calls=%square
  %last = (f32[8]{0}, s8[1]{0}) custom-call(%while#0, %while#1, %while#2), custom_call_target="zpp.wait", output_to_operand_aliasing={{0}: (1, {}), {1}: (2, {})}, backend_config={function = "f", inputs = 1 : i64, outputs = 1 : i64}
  ROOT %sum = f32[8]{0} fusion(%last#0, %under), kind=kLoop, calls=%add
}
"""
PLACES = """BufferAssignment:
allocation 0: size 32, page 0, parameter 0, shape |f32[8]|:
 value: <1 x @0> (size=32,offset=0): f32[8]{0}
allocation 1: size 1, page 0, parameter 1, shape |s8[1]|:
 value: <2 t @0> (size=1,offset=0): s8[1]{0}
 value: <3 start{1} @0> (size=1,offset=0): s8[1]{0}
 value: <4 again{1} @0> (size=1,offset=0): s8[1]{0}
allocation 2: size 128, page 0, preallocated-temp:
 value: <5 a @0> (size=32,offset=0): f32[8]{0}
 value: <6 start{0} @0> (size=32,offset=32): f32[8]{0}
 value: <7 wait{0} @0> (size=32,offset=32): f32[8]{0}
 value: <8 again{0} @0> (size=32,offset=32): f32[8]{0}
 value: <9 use @0> (size=32,offset=64): f32[8]{0}
 value: <10 under @0> (size=32,offset=64): f32[8]{0}
 value: <11 last{0} @0> (size=32,offset=32): f32[8]{0}
 value: <12 sum @0> (size=32,offset=96): f32[8]{0}
"""


def test_transfers_are_followed_through_loops():
    assert races.races(RACE, PLACES) == ([], 3)


@pytest.mark.parametrize("begin, end, value", [
    ("%g = (f32[8]{0}, f32[8]{0}) all-gather-start(%x), dimensions={0}",
     "all-gather-done", "g{1}"),
    ("%g = ((f32[8]{0}), f32[8]{0}) async-start(%x), calls=%scatter", "async-done",
     "scattered")])
def test_what_xla_sends_is_followed(begin, end, value):
    text = RACE.replace(
        "%a = f32[8]{0} fusion(%x), kind=kLoop, calls=%square",
        f"{begin}\n  %a = f32[8]{{0}} {end}(%g)")
    text += """
%scatter (y: f32[8]) -> f32[8] {
  %y = f32[8]{0} parameter(0)
  ROOT %scattered = f32[8]{0} reduce-scatter(%y), dimensions={0}
}
"""
    places = PLACES.replace("<5 a @0>", f"<5 {value} @0>")
    assert begin in text and places != PLACES
    assert races.races(text, places) == ([], 3)
    # A race with its result, which %in is.
    assert races.races(text, places.replace(
        "<10 under @0> (size=32,offset=64)", "<10 under @0> (size=32,offset=0)"))[0]


@pytest.mark.parametrize("before, after, expected", [
    # XLA gives a value memory that a transfer still reads, or writes.
    ("<10 under @0> (size=32,offset=64)", "<10 under @0> (size=32,offset=0)",
     "under writes over memory of again"),
    ("<10 under @0> (size=32,offset=64)", "<10 under @0> (size=32,offset=60)",
     "under writes over memory of again"),
    ("<9 use @0> (size=32,offset=64)", "<9 use @0> (size=32,offset=0)", None),
    # What a start has written is used before its wait.
    ("%under = f32[8]{0} fusion(%x)", "%under = f32[8]{0} fusion(%while#1)",
     "under reads what again has not written"),
    # XLA has copied it, to where nothing arrives.
    ("<8 again{0} @0> (size=32,offset=32)", "<8 again{0} @0> (size=32,offset=96)",
     "wait waits for memory in which nothing has begun"),
    ('"zpp.wait", output_to_operand_aliasing={{0}: (1, {}), {1}: (2, {})}, '
     'backend_config={function = "f", inputs = 1 : i64, outputs = 1 : i64}\n  ROOT',
     '"other"\n  ROOT', "again is never waited for"),
    (" value: <6 start{0} @0> (size=32,offset=32): f32[8]{0}\n", "",
     "start has operands or results of unknown place"),
])
def test_races_are_found(before, after, expected):
    assert (before in RACE) + (before in PLACES) == 1
    found, _ = races.races(RACE.replace(before, after), PLACES.replace(before, after))
    assert expected in found if expected else not found


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


#: Without a loop no value has all layers, and XLA takes long for each. A scan of more
#: than 128 layers stays a loop.
FORMS = {"loop": {"scan": True, "layers": 129}, "scan": {"scan": True, "layers": 3},
         "jit": {"collectives": "xla", "layers": 3},
         "jit, scan": {"collectives": "xla", "layers": 3, "scan": True},
         "micro-batches": {"accumulate": 4, "layers": 2},
         "micro-batches, scan": {"accumulate": 4, "layers": 2, "scan": True},
         # Sums between nodes follow scatters within them.
         "micro-batches, replicated": {"accumulate": 4, "layers": 2,
                                       "replicated": ["node"]},
         "micro-batches, replicated, scan": {"accumulate": 4, "layers": 2, "scan": True,
                                             "replicated": ["node"]},
         # XLA scatters within the nodes itself.
         "micro-batches, replicated, jit": {"accumulate": 4, "layers": 2, "scan": True,
                                            "collectives": "xla",
                                            "replicated": ["node"]}}
#: Options of forms with micro-batches, beside the others. On these links the first and
#: the last micro-batch stand outside of the loop.
ONCE = {"gradients": "i8:i4", "accumulate": "gpu", "links": "node=0.1gbit,gpu=1gbit"}
OPTIONS = {
    "i4:delta": {"weights": "i4:delta", "gradients": "i4"},
    # Each tensor travels alone: all starts tie others' memory.
    "i4:delta, alone": {"weights": "i4:delta", "gradients": "i4",
                        "tuning": {"coalesce_bytes": 0}},
    "i8": {"weights": "i8"}}
#: No weights cross the nodes where they are replicated, and the step accumulates.
REPLICATED = ONCE | {"accumulate": "none"}
#: Ties are those of a loop or of its layers, whatever is around it.
CASES = [(form, options) for form, of in FORMS.items() for options in OPTIONS
         if ("replicated" not in of or options == "i8")
         and (options != "i4:delta, alone" or "scan" in form and "accumulate" not in of)]


@functools.cache
def findings(form: str, plugin) -> dict[str, dict]:
    """Findings in a form of the step, by the names of options. One process compiles it
    with all of them."""
    more = (REPLICATED if "replicated" in FORMS[form] else
            ONCE if "accumulate" in FORMS[form] else {})
    names = [options for of, options in CASES if of == form]
    text = run_with(plugin, in_place.__file__, json.dumps(FORMS[form]),
                    *(json.dumps(OPTIONS[name] | more) for name in names))
    return dict(zip(names, map(json.loads, text.splitlines()), strict=True))


@needs_library
@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize("form, options", CASES)
def test_starts_are_in_place(form, options, plugin):
    found = findings(form, plugin)[options]
    assert found["starts"] >= 10
    assert not found["faults"]
    assert found["followed"] >= found["starts"]
    assert not found["races"]
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
