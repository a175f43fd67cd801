# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The front end for JAX. Its functions are also available in `zpp`."""

import pathlib

try:
    from jax.extend import source_info_util
except ImportError as error:
    raise ImportError(f"zpp.jax needs JAX: pip install 'jax>=0.10.2' flatbuffers "
                      f"({error})") from error

from zpp.jax._export import Step, complete_module, export, read_step
from zpp.jax._install import ModuleReport, install, report, uninstall
from zpp.jax._jit import JittedStep, jit
from zpp.jax._load import load
from zpp.jax._rewrite import module_of_step, rewrite_step
from zpp.jax._runtime import host_times, set_time_limit, synchronize
from zpp.jax._save import save
from zpp.jax._trace import trace

__all__ = ["JittedStep", "ModuleReport", "Step", "complete_module", "export",
           "host_times", "install", "jit", "load", "module_of_step", "read_step",
           "report", "rewrite_step", "save", "set_time_limit", "synchronize", "trace",
           "uninstall"]

# Locations of ops are lines of the step, and never of this package.
source_info_util.register_exclusion(str(pathlib.Path(__file__).parent.parent))
