# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps as XLA compiles them for a GPU that is only described.

As a program, it compiles a form of a step with some options for an H200, for which
JAX's CUDA plugin must be found, and prints what is not in place as JSON.
"""

import json
import math
import pathlib
import re
import sys

BITS = {"pred": 8, "s8": 8, "u8": 8, "s32": 32, "u32": 32, "bf16": 16, "f32": 32}
COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.-]+) (?:\([^{]*)?\{?.*\{$")
SHAPE = r"(\w+)\[([\d,]*)\]\S*"
COPY = re.compile(rf"(%?[\w.-]+) = {SHAPE} copy\(")
START = 'custom_call_target="zpp.start"'


def computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation of a module, by name."""
    found: dict[str, list[str]] = {}
    current = None
    for line in text.splitlines():
        if line and not line[0].isspace():
            match = COMPUTATION.match(line)
            current = match[1] if match and line.endswith("{") else None
            if current:
                found[current] = []
        elif current:
            found[current].append(line.strip())
    return found


def count_starts(text: str) -> int:
    return text.count(START)


def faults(text: str, most_bytes: int) -> list[str]:
    """Faults of a module that XLA has optimized for GPUs: starts in fusions, whose tied
    operands are views, and copies of more than `most_bytes`."""
    parts = computations(text)
    fused = set(re.findall(r"calls=%?([\w.-]+)", text))
    found = [f"{name} has a start in a fusion" for name, lines in parts.items()
             if name in fused and any(START in line for line in lines)]
    for name, lines in parts.items():
        if name in fused:
            continue
        for line in lines:
            if match := COPY.search(line):
                size = math.prod(map(int, filter(None, match[3].split(",")))) * (
                    BITS[match[2]] // 8)
                if size > most_bytes:
                    found.append(f"{name} copies {size} bytes: {line[:160]}")
    return found


#: The example GPT: more layers than a copy may have bytes of, so that stacks of all
#: of them are found.
MODEL = {"layers": 24, "width": 256, "heads": 4, "vocab": 512, "context": 128,
         "mesh": (("node", 2), ("gpu", 2))}
SEQUENCES = 4


def main(form: dict, options: dict) -> None:
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    sys.path[:0] = [str(root / folder) for folder in ("bench", "examples", "python")]
    import step_memory
    devices = step_memory.describe_devices(4)
    import gpt
    import jax
    import numpy as np
    import zpp
    from jax.sharding import Mesh, NamedSharding
    from zpp.jax import _load

    trainer = gpt.Trainer(gpt.Config(**MODEL | form))
    given = trainer.abstract_state(), trainer.abstract_batch(SEQUENCES)
    step = zpp.export(jax.jit(trainer.step, donate_argnums=0), *given,
                      platforms=("cuda",))
    rewritten = zpp.rewrite(step, mesh="node:2,gpu:2", target="cuda", **options).step
    mesh = Mesh(np.array(devices).reshape(2, 2), ("node", "gpu"))

    def describe(array):
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=NamedSharding(
            mesh, array.sharding.spec))

    layer = 4 * MODEL["width"]**2 * 4
    result = {"starts": 0, "faults": []}
    for each in (rewritten, rewritten.start):
        if each is None:
            continue
        state = each.state.arguments if each.state else ()
        leaves = [describe(leaf) for leaf in (*jax.tree.leaves(given), *state)]
        compiled = _load.load_flat(each).trace(*leaves).lower(
            lowering_platforms=("cuda",)).compile()
        (module,) = compiled.runtime_executable().hlo_modules()
        text = module.to_string()
        result["starts"] += count_starts(text)
        result["faults"] += faults(text, layer)
    print(json.dumps(result))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]))
