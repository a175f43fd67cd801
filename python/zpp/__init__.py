# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO++ for training steps.

`jit` does all of it; `export`, `rewrite` and `load` are its stages:

    step = zpp.export(jax.jit(train_step, donate_argnums=0), state, batch)
    fast = zpp.rewrite(step, mesh={"node": 2, "gpu": 4}, weights="i8")
    state, loss = zpp.load(fast.step)(state, batch)

`install` rewrites all steps of a program that holds none of them in hand.

`rewrite` of text, the compiler and the report need no framework. The names that
come from `zpp.jax` import JAX when they are first used. `zpp.torch` and
`zpp.deepspeed` are the front ends for PyTorch and DeepSpeed, and must be imported by
their names.
"""

import importlib
import typing

from zpp._bundle import Bundle
from zpp._compiler import CompileError, Diagnostic, Rewritten, find_compiler
from zpp._guard import Guard
from zpp._options import Options, Tuning
from zpp._plan import Auto, Plan, Prediction
from zpp._release import find_version
from zpp._rewrite import plan, rewrite

if typing.TYPE_CHECKING:
    from zpp.jax import JittedStep, ModuleReport, Step, export, host_times, install
    from zpp.jax import jit, load, report, save, set_time_limit, synchronize, trace
    from zpp.jax import uninstall

    __version__: str

#: Names of the front end for JAX that are found here too.
_OF_JAX = ("JittedStep", "ModuleReport", "Step", "export", "host_times", "install", "jit",
           "load", "report", "save", "set_time_limit", "synchronize", "trace",
           "uninstall")

__all__ = ["Auto", "Bundle", "CompileError", "Diagnostic", "Guard", "Options", "Plan",
           "Prediction", "Rewritten", "Tuning", "find_compiler", "plan", "rewrite",
           *_OF_JAX]


def __getattr__(name: str) -> typing.Any:
    if name == "__version__":
        return find_version()
    if name == "jax" or name in _OF_JAX:
        front_end = importlib.import_module("zpp.jax")
        return front_end if name == "jax" else getattr(front_end, name)
    raise AttributeError(f"module 'zpp' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_JAX, "jax", "__version__"})
