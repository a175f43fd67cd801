#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module as XLA hands it to zpp on GPUs, recorded on CPU devices.

On CPUs XLA calls transformations after fusion, which is too late. So the module
is taken from XLA's dumps: the last one after the partitioner and before fusions
that still has its barriers. It has the form of modules recorded on GPUs: loops as
the partitioner left them, all-reduces with slices, donors and the device
assignment in the module's own fields.

    python recorded.py OUTPUT.hlo.pb

writes it to a file, which `zpp report --mesh node:2,gpu:2` reads.
"""

import contextlib
import functools
import io
import pathlib
import re
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS, WIDTH, BATCH = 3, 64, 16
AXES = ("node", "gpu")
DEVICES = 4


@functools.cache
def shardings():
    """Those of the weights and of the batch."""
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 2), AXES)
    layers, rows = PartitionSpec(None, AXES), PartitionSpec(AXES)
    return ({"head": NamedSharding(mesh, rows), "layers": NamedSharding(mesh, layers)},
            NamedSharding(mesh, rows))


def step(weights, batch):
    """A scan over checkpointed layers, sharded as FSDP does it."""
    def loss(weights, x):
        def layer(x, w):
            return jax.lax.with_sharding_constraint(
                jnp.tanh(x @ w), shardings()[1]), None
        x, _ = jax.lax.scan(jax.checkpoint(layer), x, weights["layers"])
        return ((x @ weights["head"]) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(weights, batch)
    return jax.tree.map(
        lambda w, g, sharding: jax.lax.with_sharding_constraint(
            w - 0.1 * g, sharding), weights, gradients, shardings()[0]), value


def make_arguments():
    keys = jax.random.split(jax.random.key(0), 3)
    weights = {"head": jax.random.normal(keys[0], (WIDTH, WIDTH)) * 0.1,
               "layers": jax.random.normal(keys[1], (LAYERS, WIDTH, WIDTH)) * 0.1}
    batch = jax.random.normal(keys[2], (BATCH, WIDTH))
    return jax.device_put((weights, batch), shardings())


@contextlib.contextmanager
def no_cache():
    """XLA dumps nothing for what comes from JAX's persistent compilation cache."""
    from jax._src import compilation_cache
    is_used = compilation_cache.is_cache_used
    compilation_cache.is_cache_used = lambda *_: False
    try:
        yield
    finally:
        compilation_cache.is_cache_used = is_used


@functools.cache
def record() -> bytes:
    """The module of `step`, a serialized HloModuleProto."""
    from zpp.jax import _hook
    from zpp.jax._partitioner import hlo_module_in
    with tempfile.TemporaryDirectory() as folder, no_cache():
        jax.jit(step, donate_argnums=0).lower(*make_arguments()).compile({
            "xla_dump_to": folder, "xla_dump_hlo_pass_re": ".*",
            "xla_dump_hlo_as_proto": True, "xla_dump_hlo_module_re": ".*",
            "xla_dump_max_hlo_modules": -1})
        modules = [_hook.HloModule(hlo_module_in(path.read_bytes()))
                   for path in sorted(pathlib.Path(folder).glob("*.after_*.hlo.pb"))]
    return [module for module in modules
            if {"partition-id", "opt-barrier"} <= set(module.opcodes)
            # Layouts make bitcasts, and come later on GPUs.
            and {"fusion", "bitcast"}.isdisjoint(module.opcodes)][-1].content


def execute(text: str, *arguments) -> list[list[np.ndarray]]:
    """Runs the program of one device on all of them: per result, what each device
    has. XLA compiles a module that is partitioned already as one of replicas only,
    so partitions become replicas."""
    from jax._src import compiler
    from jax._src.lib import _jax, xla_client
    devices = jax.devices()[:DEVICES]
    text = text.replace("stablehlo.partition_id", "stablehlo.replica_id")
    text = re.sub(r'("stablehlo.all_to_all"[^\n]*?)channel_handle = '
                  r"#stablehlo.channel_handle<[^>]*>, ", r"\1", text)
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = len(devices), 1
    options.device_assignment = xla_client.DeviceAssignment.create(
        np.arange(len(devices)).reshape(-1, 1))
    with make_ir_context() as context:
        module = ir.Module.parse(text, context)
        main = ir.SymbolTable(module.operation)["main"].operation
        for operation, prefix in ((module.operation, "mhlo."),
                                  (main, "arg_attrs"), (main, "res_attrs")):
            names = [getattr(name, "name", name) for name in operation.attributes]
            for name in names:
                if name.startswith(prefix):
                    del operation.attributes[name]
        executable = compiler.backend_compile_and_load(
            devices[0].client, module, _jax.DeviceList(tuple(devices)), options, [])
    results = executable.execute_sharded(jax.tree.leaves(arguments))
    return [[np.asarray(shard) for shard in shards] for shards in
            results.disassemble_into_single_device_arrays()]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    sys.path.insert(0, str(root / "python"))
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    with io.FileIO(sys.argv[1], "w") as file:
        file.write(record())


if __name__ == "__main__":
    main()
