# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO++ for JAX training steps.

`jit` does all of it; `export`, `rewrite` and `load` are its stages:

    step = zpp.export(jax.jit(train_step, donate_argnums=0), state, batch)
    fast = zpp.rewrite(step, mesh="node:2,gpu:4", weights="i8")
    state, loss = zpp.load(fast.step)(state, batch)
"""

from zpp._bundle import save
from zpp._compiler import CompileError, Diagnostic, Rewritten, find_compiler
from zpp._compiler import rewrite
from zpp.jax._export import Bundle, Step, export
from zpp.jax._jit import JittedStep, jit
from zpp.jax._load import load
from zpp.jax._runtime import host_times, synchronize
from zpp.jax._trace import trace

__all__ = ["Bundle", "CompileError", "Diagnostic", "JittedStep", "Rewritten",
           "Step", "export", "find_compiler", "host_times", "jit", "load",
           "rewrite", "save", "synchronize", "trace"]
