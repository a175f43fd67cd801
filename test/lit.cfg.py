# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit configuration of the FileCheck tests.

Substitutions: the tools by their bare names, and
  %python   Python with the front end's requirements (feature `jax`)
  %zpp      the command `zpp`, with this Python
  %zpp_src  source root
  %zpp_obj  build root
  %cmake, %cc, %cxx, %mlir_dir, %llvm_include, %lit  what the build was configured with
  %docs_python  Python with docs/requirements.txt (feature `docs`)
Features: `jax`; `docs` (after `make docs`); `cuda` (nvcc and a GPU); `simulated-gpu` (back end cuda without
either); `small-disk` (a user may mount one); `sanitizer` (libraries that only a sanitized program can link); each of
zpp's optional tools that was built, by its name; `registered-ops` (zpp-opt is test/StandIn's, to which all attributes
of an op are properties).
"""

import glob
import os
import shutil
import subprocess

import lit.formats
from lit.llvm import llvm_config
from lit.llvm.subst import ToolSubst

config.name = "zpp"
config.test_format = lit.formats.ShTest(not llvm_config.use_lit_shell)
config.suffixes = [".mlir", ".test"]
# Python tests run through pytest.
config.excludes = ["Inputs", "python", "CMakeLists.txt"]
config.test_source_root = os.path.dirname(__file__)
#: The program that the tests know as zpp-opt.
zpp_opt = lit_config.params.get("zpp-opt", "zpp-opt")
config.test_exec_root = os.path.join(
    config.zpp_obj_root, "test" if zpp_opt == "zpp-opt" else f"test-{zpp_opt}"
)
if zpp_opt != "zpp-opt":
    # They have a place of their own in the build tree, and do not start it.
    config.excludes.append("Unit")
    config.available_features.add("registered-ops")

llvm_config.use_default_substitutions()

bin_dir = os.path.join(config.zpp_obj_root, "bin")
tool_dirs = [bin_dir, config.llvm_tools_dir]
tools = ["zpp-opt", "mlir-opt", "mlir-runner", "mlir-translate", "llc", "split-file"]
for optional in ("zpp-bundle", "zpp-run", "zpp-perf", "zpp-fuzz", "zpp-lsp-server", "zpp-reduce", "zpp-capi-test", "zpp-opt-stand-in"):
    if os.path.exists(os.path.join(bin_dir, optional)):
        tools.append(optional)
        config.available_features.add(optional)
llvm_config.add_tool_substitutions(
    [
        ToolSubst(tool, os.path.join(bin_dir, zpp_opt) if tool == "zpp-opt" else None, unresolved="fatal")
        for tool in tools
    ],
    tool_dirs,
)
# Scripts that a test starts find the tools too.
llvm_config.with_environment("PATH", tool_dirs, append_path=True)

# A program after %simulated-gpu has libzpp_rt on simulated GPUs
# (unittests/SimulatedGpu); %zpp-perf-simulated, which has it linked in, too.
simulated = [
    os.path.join(config.zpp_obj_root, "lib", name)
    for name in ("libzpp_rt_simulated.so", "libnccl-simulated.so")
]
if all(map(os.path.exists, simulated)) and "-fsanitize" not in config.cxx_flags:
    config.available_features.add("simulated-gpu")

config.substitutions += [
    (
        "%simulated-gpu",
        "env LD_PRELOAD={} ZPP_NCCL_LIBRARY={}".format(*simulated),
    ),
    (
        "%zpp-perf-simulated",
        f"env ZPP_NCCL_LIBRARY={simulated[1]} {config.zpp_obj_root}/unittests/SimulatedGpu/zpp-perf-simulated",
    ),
    ("%python", config.python_executable),
    ("%zpp(?![-_])", f"{config.python_executable} -m zpp"),
    ("%zpp_src", config.zpp_src_root),
    ("%zpp_obj", config.zpp_obj_root),
    ("%cmake", config.cmake_executable),
    ("%cc", config.c_compiler),
    ("%cxx", config.cxx_compiler),
    ("%mlir_dir", config.mlir_dir),
    ("%lit", config.lit_executable),
    ("%llvm_include", config.llvm_include_dir),
]
llvm_config.with_environment(
    "PYTHONPATH", os.path.join(config.zpp_src_root, "python"), append_path=True
)


def has_jax():
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('jax') is None)"
    try:
        return subprocess.run([config.python_executable, "-c", probe]).returncode == 0
    except OSError:
        return False


if has_jax():
    config.available_features.add("jax")
docs_python = os.path.join(config.zpp_src_root, ".venv-docs", "bin", "python")
config.substitutions.append(("%docs_python", docs_python))
if os.path.exists(docs_python):
    config.available_features.add("docs")
if "-fsanitize" in config.cxx_flags:
    config.available_features.add("sanitizer")
# scripts/run_tests.py asks for it with --all.
if lit_config.params.get("slow"):
    config.available_features.add("slow")


def can_mount():
    command = ["unshare", "--map-root-user", "--mount"]
    command += ["mount", "-t", "tmpfs", "-o", "size=8k", "disk", "/tmp"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


if can_mount():
    config.available_features.add("small-disk")
if (shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc")) and glob.glob(
    "/dev/nvidia[0-9]*"
):
    config.available_features.add("cuda")
