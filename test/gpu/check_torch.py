#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a small GPT with zpp.torch on GPUs, beside FSDP2 as it is.

    check_torch.py [--ranks N] [--steps N] [--platform cpu]

needs GPUs, which ranks may share, PyTorch, and the wheel of zpp, or $ZPP_OPT and $ZPP_RT.
With four ranks or more there are two nodes, with two there is a rank on each.

Checked are: the losses of --steps steps are within 0.5 % of FSDP2's, with f32 and
with bf16 gradients, in HSDP with replicas on both nodes, and with two micro-batches that
cross nodes once per update (i4:delta, on links as fast as NVLink within them); two
trainings are bit-equal in losses and weights; all ranks gather the same bits; and
when the last rank is lost, the others end as they do with FSDP2.

The last line is PASS, or what failed.
"""

import argparse
import contextlib
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent import futures

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in (
    "bench", "python", "test/torch")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402

import ranks  # noqa: E402
import training  # noqa: E402
import zpp.torch  # noqa: E402
from lab import launch, torch_gpt  # noqa: E402

MODEL = {"layers": 2, "width": 256, "heads": 4, "vocab": 500, "context": 64}
#: Sequences of a rank.
SEQUENCES = 4
TOLERANCE = 5e-3
STEPS_BEFORE_LOSS = 3
#: Seconds after which an exchange with a rank that is lost has failed.
EXCHANGE_LIMIT = 10
PARTS = ("float32", "bfloat16", "HSDP", "micro-batches", "lost")
#: Other options than in the other parts.
ONCE = {"weights": "i4:delta", "accumulate": "gpu",
        "links": "node=3gbyte,gpu=300gbyte"}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=None,
                        help="default: one for each GPU, and two on one")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS,
                        help="default: all")
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"))
    args = parser.parse_args()
    count = args.ranks or max(2, torch.cuda.device_count())
    # All processes of ranks have the environment of the first one's start.
    if args.platform == "cuda":
        os.environ["ZPP_TEST_GPUS"] = str(torch.cuda.device_count())
    # Before the watchdog ends a process it waits for what others write down,
    # four times as long as this. Its own limit is a minute.
    for name in ("NCCL", "FR"):
        os.environ[f"TORCH_{name}_WAIT_TIMEOUT_DUMP_MILSEC"] = "1000"
    nodes = 2 if count > 1 else 1
    options = {"mesh": f"node:{nodes},gpu:{count // nodes}", "weights": "i8",
               "gradients": "i8:i4"}
    with contextlib.ExitStack() as stack:
        os.environ["XDG_CACHE_HOME"] = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="zpp-"))
        os.environ |= stack.enter_context(
            launch.service(count if args.platform == "cuda" else 0))
        failures = check(count, options, args.steps, args.parts)
    if failures:
        sys.exit("FAILED: " + "; ".join(failures))
    print("PASS")


def check(count: int, options: dict, steps: int, parts: Sequence[str]
          ) -> list[str]:
    """Returns what fails."""
    failures = []

    def expect(is_right, text):
        print(("ok: " if is_right else "FAILED: ") + text, flush=True)
        if not is_right:
            failures.append(text)

    pool = ranks.Pool(count)
    try:
        for part in parts:
            if part == "lost":
                continue
            start = time.monotonic()
            has_micro_batches = part == "micro-batches"
            given = {"steps": steps, "is_hybrid": part == "HSDP",
                     "reduce": getattr(torch, part, torch.float32),
                     "micro_batches": 2 if has_micro_batches else 1}
            chosen = options | (ONCE if has_micro_batches else {})
            plain = pool(train, None, **given)
            first = pool(train, chosen, **given)
            again = pool(train, chosen, **given)
            ours, others = first[0]["losses"], plain[0]["losses"]
            apart = max(abs(a / b - 1) for a, b in zip(ours, others))
            expect(apart <= TOLERANCE and ours[-1] < 0.9 * ours[0],
                   f"{part}: {steps} losses within {TOLERANCE:.1%} of FSDP2's, "
                   f"at most {apart:.4%} apart, from {ours[0]:.4f} to "
                   f"{ours[-1]:.4f} and {others[-1]:.4f}")
            expect([r["losses"] for r in first] == [r["losses"] for r in again],
                   f"{part}: the losses of two trainings are bit-equal")
            expect(len({r["digest"] for r in first + again}) == 1,
                   f"{part}: all ranks gather the same weights, twice")
            total = first[0]["total"]
            # Within a node exact sums of micro-batches send more.
            tiers = ["node"] if has_micro_batches else list(total["before"])
            after, before = (sum(total[when][tier] for tier in tiers)
                             for when in ("after", "before"))
            expect(after < 0.75 * before,
                   f"{part}: bytes sent {total}; "
                   f"{time.monotonic() - start:.0f} s")
    finally:
        pool.close()
    if "lost" in parts:
        check_lost(count, options, expect)
    return failures


def check_lost(count: int, options: dict, expect: Callable[[bool, str], None]
               ) -> None:
    """That a lost rank ends the others as it does with FSDP2."""
    variants = {"FSDP2": None, "zpp": options}
    with futures.ThreadPoolExecutor() as threads:
        ends = dict(zip(variants, threads.map(
            lambda given: lose_last(count, given), variants.values())))
    for name, (outcomes, _) in ends.items():
        for rank, (_, error) in enumerate(outcomes[:-1]):
            expect(error and error != ranks.NO_RESULT,
                   f"{name}: rank {rank} ended after another was lost: "
                   f"{(error or 'no error').strip().splitlines()[-1][:200]}")
    seconds = {name: seconds for name, (_, seconds) in ends.items()}
    expect(seconds["zpp"] < seconds["FSDP2"] + EXCHANGE_LIMIT,
           f"a lost rank: all ended after {seconds['zpp']:.0f} s, with FSDP2 "
           f"after {seconds['FSDP2']:.0f} s")


def train(options: dict | None, steps: int, reduce: torch.dtype = torch.float32,
          is_hybrid: bool = False, micro_batches: int = 1,
          steps_before_loss: int | None = None) -> dict:
    """The mean losses over the ranks, a digest of all weights as this rank
    gathers them, and the bytes sent."""
    torch.manual_seed(0)
    with training.device():
        model = torch_gpt.Gpt(**MODEL)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=reduce)
    mesh = training.all_ranks()
    if is_hybrid:
        size = dist.get_world_size()
        rows = torch.arange(size).view(2 if size > 1 else 1, -1).tolist()
        mesh = training.replicated_mesh(tuple(map(tuple, rows)))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if options is not None:
        training.compress(model, **options)
    optimizer = torch.optim.Adam(model.parameters(), 3e-4)
    losses = []
    for step in range(steps):
        if step == steps_before_loss and dist.get_rank() == (
                dist.get_world_size() - 1):
            os._exit(1)
        mean = torch.zeros((), device=training.device())
        for number in range(micro_batches):
            model.set_requires_gradient_sync(number == micro_batches - 1)
            loss = model(make_tokens(step * micro_batches + number)) / micro_batches
            loss.backward()
            mean += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return {"losses": losses, "digest": training.gathered_digest(model),
            "total": zpp.torch.report(model)["total"] if options else None}


def lose_last(count: int, options: dict | None) -> tuple[list, float]:
    """How each rank ends when the last one is lost in the middle of a training,
    and after how many seconds all have."""
    pool = ranks.Pool(count, 4 * EXCHANGE_LIMIT, EXCHANGE_LIMIT)
    start = time.monotonic()
    outcomes = pool.outcomes(train, options, 2 * STEPS_BEFORE_LOSS,
                             steps_before_loss=STEPS_BEFORE_LOSS)
    return outcomes, time.monotonic() - start


def make_tokens(step: int) -> torch.Tensor:
    """Others on each rank. Half of them follow the one before, half are drawn,
    few of them often: there is something to learn at once and later, and a part
    of the loss that nobody can."""
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    shape = SEQUENCES, MODEL["context"] + 1
    weights = 1 / torch.arange(1, MODEL["vocab"] + 1)
    tokens = torch.multinomial(weights, shape[0] * shape[1], replacement=True,
                               generator=generator).view(shape)
    is_drawn = torch.rand(shape, generator=generator) < 0.5
    for place in range(1, shape[1]):
        tokens[:, place] = torch.where(is_drawn[:, place], tokens[:, place],
                                       tokens[:, place - 1] + 1)
    return (tokens % MODEL["vocab"]).to(training.device())


if __name__ == "__main__":
    main()
