# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""zpp.start and zpp.wait in JAX programs, written by hand.

The compiler emits the same custom calls; here they are made one by one, so that
a test can put them where it likes. Their host functions are in
Inputs/collectives.c.
"""

import functools
import hashlib
import json
import os
import pathlib
import subprocess
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from zpp._library import find_library
from zpp.jax import _runtime

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RANKS = 8
TIERS = "node:2,gpu:4"


def _has_library() -> bool:
    try:
        return bool(find_library("zpp_xla"))
    except FileNotFoundError:
        return False


needs_library = pytest.mark.skipif(
    not _has_library(), reason="libzpp_xla is not built (no jaxlib)")


@functools.cache
def bundle() -> zpp.Bundle:
    """Inputs/collectives.c, compiled."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "libstep.so")
        subprocess.run(
            [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1",
             f"-I{ROOT / 'include'}", "-o", output,
             pathlib.Path(__file__).parent / "Inputs" / "collectives.c"],
            check=True)
        return make_bundle(output.read_bytes())


def make_bundle(library: bytes, **entries) -> zpp.Bundle:
    """A bundle as zpp-bundle writes it, with entries of bundle.json that are
    other ones."""
    files = {"step.mlir": b"module {}", "libstep.so": library}
    digests = {name: hashlib.sha256(content).hexdigest()
               for name, content in files.items()}
    content = b"".join(b"%d:%b" % (len(part), part)
                       for part in files.values())
    text = json.dumps({
        "version": 5, "digest": "0" * 64,
        "id": hashlib.sha256(content).hexdigest()[:32], "sha256": digests,
        "mesh": TIERS, "functions": [{"name": "gather_16"}]} | entries)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return zpp.Bundle(
        files | {"bundle.json": text.replace("0" * 64, digest).encode()})


@functools.cache
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((RANKS,), ("data",), axis_types=(AxisType.Auto,))


def put(array, *spec) -> jax.Array:
    """A host array on the mesh; dim 0 partitioned unless `spec` says more."""
    return jax.device_put(array, NamedSharding(
        mesh(), PartitionSpec(*(spec or ("data",)))))


def token() -> jax.Array:
    return jnp.zeros((1,), jnp.int8)


def _shape(value) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def _attributes(function, inputs, outputs, workspace) -> dict:
    return {"bundle": bundle().id, "function": function,
            "inputs": np.int64(inputs), "outputs": np.int64(outputs),
            "workspace": np.int64(workspace)}


def start(function, inputs, outputs, chain, *, ties=(), workspace=0):
    """Queues `function`. Returns the outputs and the workspace, which only
    `wait` may use, the ties, and the token for the next start.

    inputs: arrays. outputs: shapes, of f32. workspace: in bytes.
    """
    inputs, ties = tuple(inputs), (*ties, chain)
    results = [jax.ShapeDtypeStruct(shape, np.float32) for shape in outputs]
    if workspace:
        results.append(jax.ShapeDtypeStruct((workspace,), np.int8))
    values = jax.ffi.ffi_call(
        "zpp.start", [*results, *map(_shape, ties)],
        input_output_aliases={len(inputs) + i: len(results) + i
                              for i in range(len(ties))})(
        *inputs, *ties, deferrable=True,
        **_attributes(function, len(inputs), len(outputs), int(workspace > 0)))
    written = len(results)
    return values[:written], tuple(values[written:-1]), values[-1]


def wait(function, inputs, written, *, ties=(), workspace=0):
    """Waits for what `start` returned, until it may be used; and the ties."""
    inputs, ties = tuple(inputs), tuple(ties)
    written = tuple(written)
    outputs = written[:-1] if workspace else written
    count = len(outputs)
    aliases = {len(inputs) + i: i for i in range(count)} | {
        len(inputs) + len(written) + i: count + i for i in range(len(ties))}
    values = jax.ffi.ffi_call(
        "zpp.wait", [*map(_shape, outputs), *map(_shape, ties)],
        input_output_aliases=aliases)(
        *inputs, *written, *ties,
        **_attributes(function, len(inputs), count, int(workspace > 0)))
    return tuple(values[:count]), tuple(values[count:])


def gather(x, chain, function="gather_16", size=128):
    """One input, one output, waited for at once."""
    written, _, chain = start(function, [x], [(size,)], chain)
    (y,), _ = wait(function, [x], written)
    return y, chain


def program(body, *, inputs=("data",), outputs="data", **jit_options):
    """`body`, as every device runs it, jitted; what crosses is partitioned in
    dim 0 or, where None, the same everywhere."""
    def specs(names):
        return jax.tree.map(
            lambda name: PartitionSpec(*([name] if name else [])), names,
            is_leaf=lambda name: name is None)

    _runtime.load_bundle(bundle(), tuple(mesh().devices.flat))
    return jax.jit(jax.shard_map(
        body, mesh=mesh(), in_specs=specs(inputs), out_specs=specs(outputs),
        check_vma=False), **jit_options)
