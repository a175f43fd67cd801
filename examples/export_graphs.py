# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports the real training steps that the lit tests read.

    python examples/export_graphs.py [DIRECTORY]    # test/Inputs

Run it with each of the two JAX versions; JAX 0.10 writes a few of them again,
with names that end in "-jax0.10". What is worth knowing about these graphs:

- Groups: JAX 0.11 prints `#stablehlo.replica_group_mesh_axes<mesh = @mesh_0,
  axes = [...]>` for every collective, and has a second `sdy.mesh` @mesh_0 for it
  beside the @mesh of the shardings. JAX 0.10 prints `dense<...> :
  tensor<GxNxi64>` and has one mesh; a 1-D mesh and one of many axes then look
  alike. Both are JAX's Shardy partitioner, and `channel_handle` and
  `use_global_device_ids` are always there.
- Everything lies in one `sdy.manual_computation`. `func.call` in it goes to
  private functions, whatever the user or jax.numpy jitted. A layer that the user
  jitted (jit-layer) has its gathers and scatters in such functions, and one
  function serves all layers: @_layer is the forward pass, @_layer_0 the
  recomputed one, which returns gathered weights as residuals, and the backward
  one takes these as arguments.
- Between a weight's argument and its gather stands a `convert` from f32 to the
  compute type, after the `optimization_barrier` of a checkpoint or, where the
  step casts its weights first, before it.
- In a scan the stacked weights are loop-invariant operands of
  `stablehlo.while`, indexed by `func.call @dynamic_index_in_dim*(%stacked, %i)`:
  a private function of `dynamic_slice` and `reshape`. The backward loop counts
  up too and computes %i = layers - 1 - counter.
- `jax.checkpoint` puts one `optimization_barrier` over all operands of what is
  recomputed: shards, activations and the incoming cotangent. With
  prevent_cse=False, as advised in a scan, there is none, and the gather in the
  backward loop is the same as in the forward loop. With a policy there is one
  barrier over all that is saved, and residuals, the cast shards among them, go
  through a `reduce_precision` to their own type before they are gathered and
  saved.
- Without a checkpoint the backward pass uses the gathered weight itself. Across
  two loops it is a residual: `func.call @dynamic_update_index_in_dim*` writes it
  to [layers, whole...] in the forward loop and the backward one indexes that.
- A gradient goes from `reduce_scatter` (in the compute type) through `convert`
  to f32; in a scan through `@dynamic_update_index_in_dim*` into the stacked
  gradient, with micro-batches through an `add` to a loop-carried sum.
- One weight may be gathered once and used at both ends (the tied embedding);
  weights replicated over "tensor" have an `all_reduce` over it before their
  scatter; the scalar loss is an `all_reduce` over the data axes.
- A weight of which only a part is used (padded) has a `slice` after its gather
  and a `pad` before its scatter.
"""

import pathlib
import sys
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import gpt  # noqa: E402
import zpp  # noqa: E402

NODES = (("node", 2), ("gpu", 4))

#: name -> options of gpt.Config, beyond TINY.
GRAPHS: dict[str, dict[str, Any]] = {
    "fsdp-2x4": {},
    "fsdp-2x4-no-checkpoint": {"checkpoint": "none"},
    "fsdp-2x4-policy": {"checkpoint": "policy"},
    "fsdp-2x4-jit-layer": {"jit_layer": True, "layers": 2},
    "fsdp-2x4-scan": {"scan": True, "layers": 2},
    "fsdp-2x4-scan-no-barrier": {"scan": True, "layers": 2,
                                 "prevent_cse": False},
    "fsdp-2x4-scan-no-checkpoint": {"scan": True, "layers": 2,
                                    "checkpoint": "none"},
    "fsdp-2x4-dim1": {"gather_dim": 1},
    "fsdp-2x4-accumulate": {"accumulate": 2},
    "fsdp-2x4-f16": {"dtype": "float16"},
    "fsdp-2x4-padded": {"vocab": 30, "cast_early": True},
    "fsdp-8": {"mesh": (("data", 8),)},
    "fsdp-2x2x2": {"mesh": (("rack", 2), ("node", 2), ("gpu", 2))},
    "fsdp-tensor-2x2x2": {
        "mesh": (("node", 2), ("gpu", 2), ("tensor", 2))},
    "fsdp-tensor-middle-2x2x2": {
        "mesh": (("node", 2), ("tensor", 2), ("gpu", 2))},
}

#: Exports that JAX 0.10 spells differently enough to be worth a file.
OLDER = ("fsdp-2x4", "fsdp-2x4-scan", "fsdp-8", "fsdp-tensor-2x2x2")

#: Small enough to read.
TINY: dict[str, Any] = {
    "layers": 1, "width": 16, "heads": 2, "vocab": 32, "context": 8,
    "optimizer": "sgd", "mesh": NODES}


def export(name: str) -> zpp.Step:
    trainer = gpt.Trainer(gpt.Config(**{**TINY, **GRAPHS[name]}))
    step = jax.jit(trainer.step, donate_argnums=0)
    return zpp.export(step, trainer.abstract_state(),
                      trainer.abstract_batch(16), platforms=("cpu",))


def main() -> None:
    target = pathlib.Path(sys.argv[1] if sys.argv[1:] else ROOT / "test" / "Inputs")
    target.mkdir(parents=True, exist_ok=True)
    older = jax.__version__.startswith("0.10.")
    for name in OLDER if older else GRAPHS:
        step = export(name)
        files = {name: step.text(locations=False)}
        if name == "fsdp-2x4" and not older:
            # Without the path of whoever exported it.
            files[f"{name}-locations"] = step.text().replace(f"{ROOT}/", "")
        for stem, text in files.items():
            path = target / f"{stem}{'-jax0.10' if older else ''}.mlir"
            path.write_text(
                f"// Generated by examples/export_graphs.py with JAX "
                f"{jax.__version__}.\n{text}")
            print(f"{path}: {len(text) // 1024} KiB")


if __name__ == "__main__":
    main()
