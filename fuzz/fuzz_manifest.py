# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Any bytes as the bundle.json of a bundle.

    python fuzz/fuzz_manifest.py [--runs N | --seconds S] [--seed N]

Half of the changed manifests are sealed again, as one is who means harm: what
is after the digest is read too. Whatever the bytes are, the bundle is read or
a ValueError says what was expected. A manifest that was changed and not sealed
again must not be read.
"""

import argparse
import hashlib
import json
import random
import re
import sys
import time

from zpp import _bundle

STEP = b'%0 = "stablehlo.custom_call"() {bundle = ""}\n'
LIBRARY = b"\x7fELF"
VALUES: list[object] = [None, True, False, 0, 1, -1, 5, 2**63, 1e308, float("nan"), "", "x",
          "node:2,gpu:4", "gpu:0", "gpu:1048577", "a:1,a:1", "a" * 70000,
          "\x1b[2J", "\ud800", [], {}, [[]], {"": 1}, [{"name": 1}]]


def seal(text: bytes) -> bytes:
    """`text` with its own digest."""
    empty = re.sub(rb'("digest": ")[^"]*"', rb'\g<1>' + b"0" * 64 + b'"', text,
                   count=1)
    digest = hashlib.sha256(empty).hexdigest().encode()
    return empty.replace(b"0" * 64, digest, 1)


def make() -> bytes:
    """The manifest of a small bundle, as zpp-bundle writes it."""
    id = _bundle.make_id(STEP, "", LIBRARY)
    step = STEP.replace(b'bundle = ""', b'bundle = "%b"' % id.encode())
    entries = {
        "version": _bundle.VERSION, "digest": "0" * 64, "id": id,
        "sha256": {"libstep.so": hashlib.sha256(LIBRARY).hexdigest(),
                   "step.mlir": hashlib.sha256(step).hexdigest()},
        "mesh": "node:2,gpu:4",
        "functions": [{"name": "f", "title": "f train.py:1", "inputs": [16],
                       "outputs": [64], "workspace": 256,
                       "bytes": {"node": 16, "gpu": 48}}]}
    return seal(json.dumps(entries, indent=1).encode())


def change_bytes(text: bytes, choose: random.Random) -> bytes:
    for _ in range(choose.randint(1, 4)):
        place = choose.randrange(len(text) + 1)
        kind = choose.randrange(5)
        if kind == 0:
            text = text[:place] + bytes([choose.randrange(256)]) + text[
                place + 1:]
        elif kind == 1:
            text = text[:place] + text[place + choose.randint(1, 40):]
        elif kind == 2:
            text = text[:place] + text[place - 8:place] + text[place:]
        elif kind == 3:
            text = text[:place] + choose.choice(
                [b"{", b"[" * 100000, b"\\u0000", b'"', b"1e999", b"-", b",",
                 b"9" * 5000]
            ) + text[place:]
        else:
            text = text[:place]
    return text


def change_value(text: bytes, choose: random.Random) -> bytes:
    """With another value somewhere, or none."""
    entries = json.loads(text)
    place, key = entries, choose.choice(list(entries))
    while isinstance(place[key], (dict, list)) and place[key] and (
            choose.random() < 0.6):
        place = place[key]
        key = (choose.choice(list(place)) if isinstance(place, dict)
               else choose.randrange(len(place)))
    if choose.random() < 0.2:
        del place[key]
    else:
        place[key] = choose.choice(VALUES)
    return json.dumps(entries, indent=1).encode(errors="surrogatepass")


def run(seed: int) -> str:
    """Runs one execution; raises an error that it should not end in."""
    choose = random.Random(seed)
    original = make()
    change = choose.choice([change_bytes, change_value])
    text = change(original, choose)
    is_sealed = choose.random() < 0.5
    if is_sealed:
        text = seal(text)
    step = STEP.replace(b'bundle = ""', b'bundle = "%b"' % json.loads(
        original)["id"].encode())
    try:
        bundle = _bundle.Bundle({_bundle.MANIFEST: text, "step.mlir": step,
                                 "libstep.so": LIBRARY})
        for read in ("devices", "id", "mesh"):
            getattr(bundle, read)
    except ValueError as error:
        if not re.search("expected .* but got", str(error), re.DOTALL):
            raise AssertionError(f"expected an error that says what was "
                                 f"expected, but got '{error}'") from None
        return "refused"
    if text != original and not is_sealed:
        raise AssertionError("expected an error about a manifest that was "
                             "changed, but got none")
    return "read"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    counts = {"read": 0, "refused": 0}
    number = 0
    while (number < arguments.runs if arguments.runs
           else time.monotonic() < end):
        seed = arguments.seed + number
        try:
            counts[run(seed)] += 1
        except Exception as error:
            error.add_note(f"execution {seed}: fuzz_manifest.py --seed={seed} "
                           "--runs=1")
            raise
        number += 1
    print(f"{number} manifests: {counts['read']} are read, "
          f"{counts['refused']} refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
