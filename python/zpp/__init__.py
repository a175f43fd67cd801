# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO++ for JAX training steps: export, rewrite, load, or all three as `jit`."""

from zpp._export import Step, export, load

__all__ = ["Step", "export", "load"]
