#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error of reduced gradients, by format and by what gradients look like.

    python bench/gradient_error.py            # of one step
    python bench/gradient_error.py --steps    # of sums over 1, 4 and 16 steps
    python bench/gradient_error.py --updates  # of replicated weights, over steps

Eight devices, node:2,gpu:4, contribute a vector each. The table has the L2
norm of the sum's error, relative to the sum, in the mean over draws. Formats
are those of `--zeropp`; the arithmetic is that of zpp/Support/BlockQuant.h in
numpy (test/python/blockquant.py, which tests hold to the compiler's bits). Three
more things were tried, which zpp does not have:

  matrix      rotation by the Hadamard matrix alone, without signs
  search      of the scales amax / qmax, 0.95 amax / qmax, ... 0.7 amax / qmax,
              each block of the last hop takes the one with the least squared
              error. The elements above are clipped
  stochastic  codes are rounded up or down at random, so that they are right in
              the mean

"all-reduce" is a sum that all devices gather in another format afterwards, as
where weights are replicated. "bits" are what an element takes between the nodes.

The gradients of the second table, over steps, are a signal that is the same in
all steps and noise of each step, as large as the signal. So are those of the
third table, which has the error of weights that devices update in parts
(`updated`), relative to how far all steps together move them.
"""

import argparse
import dataclasses
import pathlib
import sys

import numpy as np

sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parents[1] / "test" / "python"))
import blockquant

NODES, GPUS = 2, 4
ELEMENTS, COLUMNS = 1 << 16, 256
DEVICES = NODES * GPUS


def normal(random):
    return random.standard_normal((DEVICES, ELEMENTS))


def student(random):
    return random.standard_t(3, (DEVICES, ELEMENTS))


def hot_columns(random):
    """A quarter of the columns are four times as large as the others."""
    values = normal(random).reshape(DEVICES, -1, COLUMNS)
    values[:, :, random.random(COLUMNS) < 0.25] *= 4
    return values.reshape(DEVICES, -1)


def shared_signal(random):
    """As late in a training with large batches."""
    return 3 * random.standard_t(3, ELEMENTS) + student(random)


def alike(random):
    """Neighbors are equal but for a hundredth."""
    rows = normal(random).reshape(DEVICES, -1, COLUMNS)
    return (rows[:, :, :1] + 0.01 * rows).reshape(DEVICES, -1)


def one_signed(random, tokens):
    """Errors of `tokens` tokens times activations after a ReLU, in rows."""
    errors = random.standard_normal((DEVICES, ELEMENTS // COLUMNS, tokens))
    activations = np.maximum(
        random.standard_normal((DEVICES, tokens, COLUMNS)) + 1, 0)
    return (errors @ activations).reshape(DEVICES, -1)


GRADIENTS = {"normal": normal, "student-t, df 3": student,
             "hot columns": hot_columns,
             "signal shared by devices + t noise": shared_signal,
             "alike neighbors": alike,
             "errors x activations of one sign":
                 lambda random: one_signed(random, 64),
             "the same of one token": lambda random: one_signed(random, 1)}


@dataclasses.dataclass(frozen=True)
class Format:
    formats: str
    block: int
    rotates: bool = False
    has_signs: bool = True
    searches: bool = False
    is_stochastic: bool = False
    #: The format in which all devices gather the sum.
    reduced: str = ""

    def __str__(self):
        parts = [f"{self.formats}, {self.block}"]
        parts += ["rotate"] * self.rotates + ["matrix"] * (not self.has_signs)
        parts += ["search"] * self.searches
        parts += ["stochastic"] * self.is_stochastic
        parts += [f"all-reduce, back {self.reduced}"] * bool(self.reduced)
        return ", ".join(parts)

    @property
    def bits(self) -> float:
        return sum(blockquant.ELEMENT_BITS[form] + 16 / self.block for form in (
            self.formats.split(":")[-1], self.reduced) if form)

    def reduce(self, values, random) -> np.ndarray:
        """The sum."""
        if not self.has_signs:
            # Those of the rotation cancel.
            signs = np.resize(blockquant.SIGNS, ELEMENTS)
            return signs * dataclasses.replace(self, has_signs=True).reduce(
                signs * values, random)
        total = self.scatter(values, random)
        if not self.reduced:
            return total
        if not self.rotates:
            return self.transport(total, self.reduced, random)
        rotated = blockquant.rotate(total)
        return blockquant.rotate_back(
            self.transport(rotated, self.reduced, random))

    def scatter(self, values, random) -> np.ndarray:
        forms = self.formats.split(":")
        if not self.searches and not self.is_stochastic:
            return np.concatenate(blockquant.reduce_scatter(
                values, [NODES, GPUS], forms, self.block, 0, np.float32,
                rotates=self.rotates))
        rows = values.astype(np.float32)
        if self.rotates:
            rows = np.stack([blockquant.rotate(row) for row in rows])
        for sources, form in blockquant.hops_of([NODES, GPUS], forms):
            sent = np.stack([self.transport(row, form, random) for row in rows])
            rows = sent.reshape(-1, sources, ELEMENTS).sum(
                1, dtype=np.float32)
        return blockquant.rotate_back(rows[0]) if self.rotates else rows[0]

    def transport(self, values, form, random) -> np.ndarray:
        blocks = values.reshape(-1, self.block)
        qmax = np.float32(blockquant.MAX_CODE[form])
        amax = np.abs(blocks).max(1, keepdims=True)
        clips = np.arange(1, 0.69, -0.05)
        if not self.searches or form != "i4":
            clips = clips[:1]
        best = least = None
        for clip in clips:
            bits = (amax * np.float32(clip) / qmax).view(np.uint32) + 0xFFFF
            scale = (bits & np.uint32(0xFFFF0000)).view(np.float32)
            scaled = np.divide(blocks, scale, out=np.zeros_like(blocks),
                               where=scale > 0)
            codes = (np.floor(scaled + random.random(scaled.shape, np.float32))
                     if self.is_stochastic else np.rint(scaled))
            sent = np.clip(codes, -qmax, qmax) * scale
            error = ((sent - blocks) ** 2).sum(1, keepdims=True)
            if best is None:
                best, least = sent, error
            best = np.where(error < least, sent, best)
            least = np.minimum(error, least)
        return best.reshape(-1)


FORMATS = (
    Format("i8:i4", 128),
    Format("i8:i4", 64),
    Format("i4", 128),
    Format("i4", 64),
    Format("i8:i4", 128, rotates=True, has_signs=False),
    Format("i8:i4", 128, rotates=True),
    Format("i8:i4", 64, rotates=True),
    Format("i8:i4", 32, rotates=True),
    Format("i4", 128, rotates=True),
    Format("i8:i4", 128, reduced="i8"),
    Format("i8:i4", 128, reduced="i4"),
    Format("i8:i4", 128, rotates=True, reduced="i8"),
    Format("i8:i4", 128, rotates=True, reduced="i4"),
    Format("i8:i4", 128, searches=True),
    Format("i8:i4", 128, rotates=True, searches=True),
    Format("i8:i4", 64, rotates=True, searches=True),
    Format("i8:i4", 128, rotates=True, is_stochastic=True),
    Format("i4", 128, rotates=True, is_stochastic=True),
)

#: For sums over steps.
FORMATS_OF_STEPS = (
    Format("i8:i4", 128),
    Format("i8:i4", 128, rotates=True),
    Format("i8:i4", 128, rotates=True, is_stochastic=True),
    Format("i4", 128, rotates=True),
)
STEPS = (1, 4, 16)


def print_steps(draws: int):
    print("| formats, block | bits |", " | ".join(
        f"{count} step{'s' * (count > 1)}" for count in STEPS), "|")
    print("| --- | --- |" + " --- |" * len(STEPS))
    for form in FORMATS_OF_STEPS:
        found: dict[int, list[float]] = {count: [] for count in STEPS}
        for draw in range(draws):
            random = np.random.default_rng(draw)
            rounding = np.random.default_rng(1000 + draw)
            signal = normal(random)
            exact = np.zeros(ELEMENTS)
            got = np.zeros(ELEMENTS)
            for step in range(1, max(STEPS) + 1):
                values = (signal + normal(random)).astype(np.float32)
                exact += values.astype(np.float64).sum(0)
                got += form.reduce(values, rounding)
                if step in found:
                    found[step].append(np.linalg.norm(got - exact)
                                       / np.linalg.norm(exact))
        cells = [f"{100 * np.mean(found[count]):.1f} %" for count in STEPS]
        print(f"| {form} | {form.bits:g} |", " | ".join(cells), "|",
              flush=True)


def sgd(gradient, moments):
    return gradient


def adam(gradient, moments):
    """The update of a step, with the moments in a dict."""
    moments["count"] = count = moments.get("count", 0) + 1
    first = moments["first"] = (
        0.9 * moments.get("first", 0) + 0.1 * gradient)
    second = moments["second"] = (
        0.999 * moments.get("second", 0) + 0.001 * gradient * gradient)
    return (first / (1 - 0.9**count)) / (
        np.sqrt(second / (1 - 0.999**count)) + 1e-8)


#: The distribution of a gradient's elements, and the optimizer.
UPDATES = {
    "SGD, normal": (np.random.Generator.standard_normal, sgd),
    "SGD, student-t, df 3": (
        lambda random, count: random.standard_t(3, count), sgd),
    "Adam": (np.random.Generator.standard_normal, adam),
}
UPDATE_STEPS = (1, 256)


def print_updates(draws: int):
    """The error of weights of which only updates are sent."""
    columns = [f"{name}: {count} step{'s' * (count > 1)}"
               for name in UPDATES for count in UPDATE_STEPS]
    print("| updated | beside the weights |", " | ".join(columns), "|")
    print("| --- | --- |" + " --- |" * len(columns))
    for form in ("i8", "i4"):
        sent = Format(form, 128)
        for keeps in (False, True):
            cells = []
            for draw_of, optimizer in UPDATES.values():
                found: dict[int, list[float]] = {
                    count: [] for count in UPDATE_STEPS}
                for draw in range(draws):
                    random = np.random.default_rng(draw)
                    signal = draw_of(random, ELEMENTS)
                    moments: dict[str, np.ndarray] = {}
                    exact = np.zeros(ELEMENTS, np.float32)
                    held = np.zeros(ELEMENTS, np.float32)
                    for step in range(1, max(UPDATE_STEPS) + 1):
                        gradient = signal + draw_of(random, ELEMENTS)
                        update = optimizer(gradient, moments).astype(np.float32)
                        exact += update
                        held += sent.transport(
                            exact - held if keeps else update, form, random)
                        if step in found:
                            found[step].append(np.linalg.norm(held - exact)
                                               / np.linalg.norm(exact))
                cells += [f"{100 * np.mean(found[count]):.2g} %"
                          for count in UPDATE_STEPS]
            print(f"| {form} | {'a slice in f32' if keeps else 'nothing'} |",
                  " | ".join(cells), "|", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--steps", action="store_true",
                        help="the table of sums over steps")
    parser.add_argument("--updates", action="store_true",
                        help="the table of updated weights")
    args = parser.parse_args()
    if args.updates:
        print_updates(args.draws)
        return
    if args.steps:
        print_steps(args.draws)
        return
    print("| formats, block | bits |", " | ".join(GRADIENTS), "|")
    print("| --- | --- |" + " --- |" * len(GRADIENTS))
    for form in FORMATS:
        cells = []
        for make in GRADIENTS.values():
            errors = []
            for draw in range(args.draws):
                values = make(np.random.default_rng(draw))
                exact = values.astype(np.float32).astype(np.float64).sum(0)
                got = form.reduce(values, np.random.default_rng(1000 + draw))
                errors.append(np.linalg.norm(got - exact)
                              / np.linalg.norm(exact))
            cells.append(f"{100 * np.mean(errors):.1f} %")
        print(f"| {form} | {form.bits:g} |", " | ".join(cells), "|",
              flush=True)


if __name__ == "__main__":
    main()
