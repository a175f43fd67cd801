#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GPU memory that the steps of bench/two_node.py allocate, found without a GPU.

    python bench/two_node.py --export DIR [--gpus-per-node N]
    python bench/step_memory.py DIR

XLA compiles each step for a description of an H200 and reports what it
allocates: the state and the batch, and temporary memory, which includes the
results of collectives. This leaves out what the allocator adds when a step
runs, and the choices of a compiler that can try kernels on a GPU. Beside it is
what zpp predicts.

Needs zpp-opt, the packages jax-cuda13-plugin and jax-cuda13-pjrt of JAX's version, and
libzpp_xla ($ZPP_XLA, or the one of the build).
"""

import argparse
import ctypes
import os
import pathlib
from typing import Any

from lab import steps
from lab.tables import Table

#: Those properties of an H200 that XLA's passes ask for.
TARGET = """
gpu_device_info {
  name: "NVIDIA H200"
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability 9.0a"
  model_str: "sm_9.0a with 151397597184B RAM, 132 cores"
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  device_memory_size: 151397597184
  memory_bandwidth: 4800000000000
  l2_cache_size: 52428800
  device_address_bits: 64
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200"
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--variants", nargs="+", metavar="WORD",
                        help="the steps whose name has one of these words")
    args = parser.parse_args()
    exported = steps.read(args.folder)
    mesh, leaves = describe_arguments(exported)
    import jax
    import zpp
    from zpp._compiler import report_entries
    from zpp.jax import _load, _save

    print(f"{exported.parameters / 1e9:.2f} B parameters, {exported.ranks} "
          f"devices; JAX {jax.__version__}; steps exported at "
          f"{exported.of['commit']}\n")
    table = Table(["step", "state and batch", "temporary", "together",
                   "compared with the first", "predicted"])
    first = None
    for name, variant in exported.chosen(args.variants).items():
        if not variant.path:
            continue
        step = _save.read(args.folder / variant.path)
        # What a step keeps beside the state of the training is an argument, too.
        kept = step.state.on(mesh).arguments if step.state else ()
        memory = _load.load_flat(step).trace(*leaves, *kept).lower(
            lowering_platforms=("cuda",)).compile().memory_analysis()
        sizes = [size / 2**30 for size in (memory.argument_size_in_bytes,
                                           memory.temp_size_in_bytes)]
        first = first or sum(sizes)
        options = zpp.Options(mesh=exported.tiers)
        report = report_entries(step.complete_text, options, "h200")
        predicted = report["time"]["peak_bytes"] / 2**30
        table.row([name, *(f"{size:.2f} GiB" for size in (*sizes, sum(sizes))),
                   f"{sum(sizes) / first - 1:+.1%}", f"{predicted:.2f} GiB"])


def describe_devices(count: int) -> list:
    """Devices that are only described. Prepares JAX to compile for these."""
    # There is neither a driver nor a GPU to try kernels on.
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") +
                               " --xla_gpu_autotune_level=0")
    import jax
    from jax.experimental import topologies
    devices = topologies.get_topology_desc(
        "step", "cuda", target_config=TARGET, topology=f"1x1x{count}").devices
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", count)
    from zpp._library import find_library
    library = ctypes.CDLL(find_library("zpp_xla"))
    for call in ("start", "wait"):
        jax.ffi.register_ffi_target(
            f"zpp.{call}", jax.ffi.pycapsule(
                getattr(library, f"zpp_xla_{call}_cuda")), platform="CUDA")
    return devices


def describe_arguments(exported: steps.Steps) -> tuple[Any, list]:
    """The mesh of the steps and their arguments, on devices that are only
    described."""
    devices = describe_devices(exported.ranks)
    import jax
    import numpy as np
    mesh = jax.sharding.Mesh(
        np.array(devices).reshape([size for _, size in exported.mesh]),
        tuple(name for name, _ in exported.mesh))
    trainer = exported.trainer()
    return mesh, [
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype,
                             sharding=jax.sharding.NamedSharding(
                                 mesh, leaf.sharding.spec))
        for leaf in jax.tree.leaves((
            trainer.abstract_state(),
            trainer.abstract_batch(exported.sequences)))]


if __name__ == "__main__":
    main()
