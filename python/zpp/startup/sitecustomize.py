# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python imports this when it starts under `zpp run`, or with another PYTHONPATH that
names its folder. The environment's own sitecustomize, which it hides, comes after it."""

import importlib.machinery
import importlib.util
import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
# The Python of the program may be another one than that of `zpp run`.
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _folder]
_package_root = os.path.dirname(os.path.dirname(_folder))
if _package_root not in sys.path:
    sys.path.append(_package_root)
if os.environ.get("ZPP_RUN") or os.environ.get("ZPP_DEEPSPEED"):
    importlib.import_module("zpp._start").begin()
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if _hidden is not None and _hidden.loader is not None:
    _module = importlib.util.module_from_spec(_hidden)
    sys.modules["sitecustomize"] = _module
    _hidden.loader.exec_module(_module)
