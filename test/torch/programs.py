# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random small trainings with fully_shard, drawn from a seed, each beside itself with
zpp: modules and how they are wrapped, meshes, types, what is frozen and when,
micro-batches, what writes to weights, and when, and on which ranks.

What rounds nothing has the bits of FSDP2. Other formats are as far from it as they
round.

    python test/torch/programs.py --seconds 600 [--seed 0]

takes one program after the other and says which fail.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy,
                                    OffloadPolicy, fully_shard)
from torch.distributed.tensor import Shard
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH, STEPS = 24, 8, 4


# Modules ---------------------------------------------------------------------------


class Mlp(nn.Module):
    """Norms, biases, a scale, and rows that four ranks do not divide."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH + 5)
        self.down = nn.Linear(2 * WIDTH + 5, WIDTH, bias=False)
        self.scale = nn.Parameter(torch.full((1,), 0.5))

    def forward(self, x):
        return x + self.scale * self.down(nn.functional.gelu(self.up(self.norm(x))))


class Tied(nn.Module):
    """One matrix, used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


class Row(nn.Module):
    """A matrix of one row: the other ranks have no element of it."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return x * (1 + 0.1 * torch.tanh(self.gate(x)))


class Few(nn.Module):
    """Three rows: the last of four ranks has no element."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(3, WIDTH) / WIDTH**0.5)

    def forward(self, x):
        return x + (x @ self.mix.T.to(x.dtype)) @ self.mix.to(x.dtype)


class Adapted(nn.Module):
    """A frozen matrix in bfloat16 with an adapter in float32."""

    def __init__(self):
        super().__init__()
        self.base = nn.Parameter(
            (torch.randn(WIDTH, WIDTH) / WIDTH**0.5).bfloat16(), requires_grad=False)
        self.first = nn.Parameter(torch.randn(4, WIDTH) / WIDTH**0.5)
        self.second = nn.Parameter(0.1 * torch.randn(WIDTH, 4))

    def forward(self, x):
        return x + x @ self.base.to(x.dtype).T + (
            x @ self.first.to(x.dtype).T @ self.second.to(x.dtype).T)


class Wide(nn.Module):
    """Large enough that differences shrink it."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 16 * WIDTH, bias=False)
        self.down = nn.Linear(16 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


BLOCKS: tuple[type[nn.Module], ...] = (Mlp, Mlp, Wide, Wide, Tied, Row, Few, Adapted)


class Model(nn.Module):
    """Blocks in a row, the first one perhaps twice, and a last layer."""

    def __init__(self, program: "Program"):
        super().__init__()
        self.blocks = nn.ModuleList(block() for block in program.blocks)
        self.last = nn.Linear(WIDTH, WIDTH)
        self.program = program
        #: A function that is called in the middle of a forward pass.
        self.between: Callable[[], None] = lambda: None
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        for number, block in enumerate(self.blocks):
            if ("alternates" in self.program.words and number < 2
                    and number == self.calls % 2):
                continue
            if number == len(self.blocks) - 1:
                self.between()
            for _ in range(2 if "twice" in self.program.words and number == 0 else 1):
                x = (checkpoint(block, x, use_reentrant=False)
                     if "checkpointed" in self.program.words else block(x))
        return self.last(x)


# Writing to weights ----------------------------------------------------------------


def clamp(model):
    for weight in model.parameters():
        weight.clamp_(-0.3, 0.3)


def shrink_where_there_are_elements(model):
    for weight in model.parameters():
        if weight.to_local().numel():
            weight.mul_(0.9)


def shrink_shards(model):
    for weight in model.parameters():
        weight.to_local().mul_(0.9)


def shrink_on_one_rank(model):
    if dist.get_rank() == 1:
        shrink_shards(model)


def shrink_data(model):
    for weight in model.parameters():
        weight.data.mul_(0.9)


def shrink_data_on_one_rank(model):
    if dist.get_rank() == 2:
        for weight in model.parameters():
            weight.to_local().data.mul_(0.9)


def turn_rows(model):
    for weight in model.parameters():
        rows = weight.to_local().detach()
        if rows.dtype != torch.bfloat16:
            rows.numpy()[...] = rows.numpy()[::-1].copy()


def load(model):
    model.load_state_dict({name: 0.9 * value
                           for name, value in model.state_dict().items()})


def merge(model):
    """As PEFT merges an adapter."""
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.data += 0.01 * torch.ones_like(weight)


def nothing(model):
    pass


#: Those that add nothing up over ranks: replicas of HSDP would differ.
ONE_RANK = (shrink_on_one_rank, shrink_data_on_one_rank)
WRITES: tuple[Callable, ...] = (
    nothing, nothing, clamp, shrink_where_there_are_elements, shrink_shards, shrink_data,
    turn_rows, load, merge, *ONE_RANK)


# Programs --------------------------------------------------------------------------


HYBRID, ACROSS, REPLICATED = (
    ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0,), (1,), (2,), (3,)))
POLICIES = {
    "full": MixedPrecisionPolicy(),
    "mixed": MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.float32),
    "bf16": MixedPrecisionPolicy(param_dtype=torch.bfloat16)}
OPTIMIZERS: dict[str, Callable] = {
    "sgd": lambda weights: torch.optim.SGD(weights, 0.05),
    "momentum": lambda weights: torch.optim.SGD(weights, 0.02, momentum=0.9),
    "adam": lambda weights: torch.optim.Adam(weights, 1e-3),
    "adamw": lambda weights: torch.optim.AdamW(weights, 1e-3, foreach=True)}
#: How likely each word is.
WORDS = {
    "checkpointed": 0.15, "twice": 0.15, "root-alone": 0.2, "evaluates": 0.4,
    "clips": 0.25, "offloaded": 0.1, "switches": 0.25, "frozen": 0.25,
    "writes-within": 0.2, "hook-on-one-rank": 0.15, "steps-in-backward": 0.1,
    "short-last": 0.3, "prefetches": 0.15, "compresses-again": 0.1,
    "averages": 0.2, "inference": 0.3, "grouped": 0.15, "alternates": 0.15,
    "keeps-unsharded": 0.15, "two-backwards": 0.15, "columns": 0.1,
    "evaluates-between": 0.15, "unshards": 0.15, "all-reduces-last": 0.2, "saves": 0.2,
    "own-mesh": 0.2, "votes-at-once": 0.3}


@dataclasses.dataclass(frozen=True)
class Program:
    seed: int
    blocks: tuple[type[nn.Module], ...]
    #: The ranks that shard, by rows between which weights are replicated.
    rows: tuple[tuple[int, ...], ...] | None
    policy: str
    optimizer: str
    micro_batches: int
    #: How the last micro-batch is told: "sync", "last" or "none".
    how: str
    reshard: bool | int
    #: Writes to weights after a step, and in the middle of a forward pass.
    write: Callable
    words: frozenset[str]
    #: Options of `compress` that round nothing, and others.
    exact: dict[str, Any] = dataclasses.field(hash=False)
    rounded: dict[str, Any] = dataclasses.field(hash=False)

    def __str__(self):
        return (f"{self.seed}: {' '.join(block.__name__ for block in self.blocks)} "
                f"rows={self.rows} {self.policy} {self.optimizer} "
                f"{self.micro_batches} {self.how} reshard={self.reshard} "
                f"{self.write.__name__} {' '.join(sorted(self.words))}")


def choose(seed: int) -> Program:
    draw = random.Random(seed)
    words = {word for word, chance in WORDS.items() if draw.random() < chance}
    # Those of before stay as they were.
    words |= {word for word in ("raises", "raises-alone", "elsewhere")
              if random.Random(f"{seed} {word}").random() < 0.15}
    rows = draw.choice((None, None, None, HYBRID, ACROSS, REPLICATED))
    blocks = tuple(draw.choices(BLOCKS, k=draw.randint(1, 4)))
    micro_batches = draw.choice((1, 1, 2, 3))
    how = draw.choice(("sync", "last", "none"))
    write = draw.choice([each for each in WRITES if rows is None
                         or each not in ONE_RANK])
    reshard = draw.choice((True, True, True, False, *((2,) if rows is None else ())))
    if reshard is not True or "root-alone" in words or "twice" in words:
        # Weights are in their places where a pass begins, and nowhere else.
        words.discard("writes-within")
    if write is load:
        words.discard("writes-within")
    if "alternates" in words and how == "none":
        words.discard("alternates")
    if "grouped" in words:
        words -= {"writes-within", "root-alone", "prefetches", "alternates"}
        reshard = reshard if reshard != 2 else True
    if reshard == 2:
        # FSDP2 cannot do that: gathers that a backward pass has begun ahead are left
        # under way if it is not the last, and the next pass takes them for others.
        words.discard("columns")
        how = "sync" if how == "last" else how
    if "keeps-unsharded" in words:
        words.discard("evaluates-between")
    tiers = draw.choice(("node:2,gpu:2", "node:2,gpu:2", "node:4", "gpu:4"))
    secondary = draw.choice((None, "gpu" if "gpu" in tiers else 1, 1))
    if reshard == 2:
        secondary = draw.choice((None, 2)) if tiers != "node:2,gpu:2" else "gpu"
    options: dict[str, Any] = {"mesh": tiers, "links": "none"}
    if secondary is not None:
        options["secondary"] = secondary
    exact = {**options, "weights": "none", "gradients": "none"}
    rounded = {
        **options, "weights": draw.choice(("none", "i8", "i8:delta", "i4:delta")),
        "gradients": draw.choice(("none", "i8", "i8:i4"))}
    if "own-mesh" in words and tiers == "node:2,gpu:2":
        exact["mesh"] = rounded["mesh"] = (2, 2)
    if draw.random() < 0.5:
        rounded["accumulate"] = draw.choice((tiers.split(",")[-1].split(":")[0], 1))
    return Program(seed, blocks, rows, draw.choice(list(POLICIES)),
                   draw.choice(list(OPTIMIZERS)), micro_batches, how, reshard, write,
                   frozenset(words), exact, rounded)


# Trainings -------------------------------------------------------------------------


def make(program: Program) -> Model:
    torch.manual_seed(program.seed)
    model = Model(program)
    if "frozen" in program.words:
        model.blocks[0].requires_grad_(False)
    mesh = DeviceMesh("cpu", list(range(4))) if program.rows is None else DeviceMesh(
        "cpu", program.rows, mesh_dim_names=("replicate", "shard"))
    settings: dict[str, Any] = {
        "mesh": mesh, "mp_policy": POLICIES[program.policy],
        "offload_policy": CPUOffloadPolicy(pin_memory=False)
        if "offloaded" in program.words else OffloadPolicy()}
    if "columns" in program.words:
        settings["shard_placement_fn"] = lambda weight: Shard(
            int(weight.ndim == 2 and weight.shape[1] % 4 == 0))
    if "grouped" in program.words:
        fully_shard(list(model.blocks), reshard_after_forward=program.reshard,
                    **settings)
    elif "root-alone" not in program.words:
        for block in model.blocks:
            fully_shard(block, reshard_after_forward=program.reshard, **settings)
    fully_shard(model, **settings)
    if "prefetches" in program.words and "root-alone" not in program.words:
        for block, after in zip(model.blocks, list(model.blocks)[1:]):
            block.set_modules_to_forward_prefetch([after])
    return model


def sharded(model: nn.Module) -> Iterator[FSDPModule]:
    return (module for module in model.modules() if isinstance(module, FSDPModule))


def train(program: Program, options: dict[str, Any] | None) -> dict[str, Any]:
    """Losses, and the whole weights at the end."""
    import zpp.torch
    model = make(program)
    words = program.words
    if options is not None:
        if options["mesh"] == (2, 2):
            options = {**options, "mesh": init_device_mesh(
                "cpu", (2, 2), mesh_dim_names=("node", "gpu"))}
        zpp.torch.compress(model, **options)
    weights = list(model.parameters())
    learned = [weight for weight in weights if weight.requires_grad]
    trained = [weight for weight in model.blocks[-1].parameters()
               if weight.requires_grad]
    if "hook-on-one-rank" in words and dist.get_rank() == 1:
        for weight in learned:
            weight.register_post_accumulate_grad_hook(lambda weight: weight.grad.norm)
    optimizers = [OPTIMIZERS[program.optimizer](weights)]
    if "steps-in-backward" in words:
        optimizers = []
        for weight in learned:
            step_at_once(weight, OPTIMIZERS[program.optimizer]([weight]))
    average = [torch.zeros_like(weight.to_local()) for weight in weights]
    written = list(model.blocks)[-1]
    if "writes-within" in words:
        model.between = lambda: within(program, written, options)
    losses = []
    for step in range(STEPS):
        if "switches" in words:
            for weight in trained:
                weight.requires_grad_(step % 2 == 0)
        if "compresses-again" in words and step == 2 and options is not None:
            zpp.torch.compress(model, **options)
        count = program.micro_batches
        if "short-last" in words and step == STEPS - 1:
            count = max(1, count - 1)
        for number in range(count):
            is_last = number == count - 1
            if program.how == "sync":
                model.set_requires_gradient_sync(is_last)
            elif program.how == "last":
                model.set_is_last_backward(is_last)
            if "all-reduces-last" in words and program.rows is not None:
                model.set_requires_all_reduce(is_last)
            if "keeps-unsharded" in words and program.how != "none":
                model.set_reshard_after_backward(is_last)
            if "unshards" in words:
                model.blocks[-1].unshard() if isinstance(
                    model.blocks[-1], FSDPModule) else model.unshard()
            if words & {"raises", "raises-alone"} and number == 0:
                fail_in_forward(model, program)
            loss = loss_of(model, program, step * 10 + number) / count
            if loss.requires_grad:
                loss.backward(retain_graph="two-backwards" in words)
                if "two-backwards" in words:
                    (0.5 * loss).backward()
            losses.append(float(loss.detach()))
            if "evaluates-between" in words and not is_last:
                with torch.no_grad():
                    losses.append(float(loss_of(model, program, 98)))
                for module in sharded(model):
                    module.reshard()
        if "clips" in words and optimizers:
            nn.utils.clip_grad_norm_(weights, 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            if "averages" in words:
                # Code that skips empty shards, and swaps an average in.
                for mean, weight in zip(average, weights):
                    if mean.numel():
                        mean.lerp_(weight.to_local(), 0.5)
                        if step == 2:
                            weight.to_local().copy_(mean)
            program.write(model)
            if (program.write is turn_rows and options is not None
                    and "delta" in options["weights"]):
                # The difference would be large.
                zpp.torch.forget(model)
            if "evaluates" in words:
                with torch.inference_mode("inference" in words):
                    losses.append(float(loss_of(model, program, 99)))
                for module in sharded(model):
                    module.reshard()
            if "saves" in words and step == 1:
                save_and_load(model, options)
            if program.write is merge:
                for weight in weights:
                    if weight.ndim == 2:
                        weight.data -= 0.01 * torch.ones_like(weight)
    return {"losses": losses,
            "weights": {name: weight.full_tensor().detach().float()
                        for name, weight in model.named_parameters()}}


def save_and_load(model: nn.Module, options: dict[str, Any] | None) -> None:
    import zpp.torch
    state = {name: value.clone() for name, value in model.state_dict().items()}
    held = zpp.torch.state_dict(model) if options is not None else None
    model.load_state_dict(state)
    if held is not None:
        zpp.torch.load_state_dict(model, held)


def fail_in_forward(model: Model, program: Program) -> None:
    """A forward pass that ends with an exception of the last block; or of the last layer,
    once all is gathered, on one rank alone, where FSDP2 can go on after that."""
    is_alone = "raises" not in program.words
    if is_alone and not hasattr(model, "reset_iter_state"):
        return
    def fail(*_):
        if not is_alone or dist.get_rank() == 1:
            raise ZeroDivisionError

    failing = model.last if is_alone else model.blocks[-1]
    hook = failing.register_forward_pre_hook(fail)
    with contextlib.suppress(ZeroDivisionError):
        loss_of(model, program, 97)
    hook.remove()
    if is_alone:
        model.reset_iter_state()
    for module in sharded(model):
        module.reshard()


@torch.no_grad()
def within(program: Program, block: nn.Module, options: dict[str, Any] | None) -> None:
    import zpp.torch
    if any(parameter.__class__.__name__ == "Parameter" and not hasattr(
            parameter, "to_local") for parameter in block.parameters()):
        return
    program.write(block)
    if options is not None and "votes-at-once" in program.words:
        zpp.torch.forget(block)


def step_at_once(weight: nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
    def step(_):
        optimizer.step()
        optimizer.zero_grad()

    weight.register_post_accumulate_grad_hook(step)


def loss_of(model: nn.Module, program: Program, number: int) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(
        1000 * program.seed + 10 * number + dist.get_rank())
    inputs = torch.randn(BATCH, WIDTH, generator=numbers)
    # Scripts may have tensors made on another device than that of the model.
    with torch.device("meta" if "elsewhere" in program.words else "cpu"):
        results = model(inputs)
    return (results.float() - inputs.roll(1, 1)).square().mean()


# Comparing -------------------------------------------------------------------------


def compare(pool, program: Program) -> list[str]:
    """Returns what is wrong, if anything."""
    def run(options):
        return pool(train_quietly, program.seed, options)

    expected = run(None)
    found = []
    #: Sums of micro-batches that are not rounded, but added up in another order.
    summed = [{**program.exact, "accumulate": program.rounded["accumulate"]}
              ] if "accumulate" in program.rounded else []
    for options in (program.exact, program.rounded, *summed):
        try:
            results = run(options)
        except AssertionError as error:
            found.append(f"{options}: {shorten(error)}")
            continue
        for rank, (result, other) in enumerate(zip(results, expected)):
            if wrong := difference(program, options, result, other):
                found.append(f"{options}: rank {rank}: {wrong}")
                break
    return found


def train_quietly(seed: int, options: dict[str, Any] | None) -> dict[str, Any]:
    program = choose(seed)
    import differing
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        if "votes-at-once" in program.words:
            stack.enter_context(differing.votes_at_once())
        return train(program, options)


#: How far losses may be from those of FSDP2, and weights from its own: by their norm,
#: and each on average.
LOSS, LOSS_OF_SUMS, WEIGHT, EACH = 0.1, 0.02, 0.1, 0.02


def difference(program: Program, options, result, other) -> str:
    is_exact = options["weights"] == options["gradients"] == "none"
    if is_exact and "accumulate" not in options:
        if result["losses"] != other["losses"]:
            return f"losses {result['losses']}, but FSDP2 has {other['losses']}"
        for name, weight in other["weights"].items():
            if not torch.equal(weight, result["weights"][name]):
                return f"other bits of {name}"
        return ""
    bound = LOSS_OF_SUMS if is_exact else LOSS
    for loss, wanted in zip(result["losses"], other["losses"], strict=True):
        if not abs(loss - wanted) <= bound * abs(wanted):
            return f"losses {result['losses']}, but FSDP2 has {other['losses']}"
    for name, weight in other["weights"].items():
        error = (weight - result["weights"][name]).norm()
        if not error <= WEIGHT * weight.norm() + EACH * weight.numel()**0.5:
            return f"{name} is off by {error:.3f} of {weight.norm():.3f}"
    return ""


def shorten(error: BaseException) -> str:
    """Returns the end of a traceback."""
    return "\n".join(["", *str(error).strip().splitlines()[-7:]])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--show", action="store_true", help="each program")
    args = parser.parse_args()
    import ranks
    failed, done = [], 0
    end = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as cache, contextlib.ExitStack() as stack:
        os.environ.setdefault("XDG_CACHE_HOME", cache)
        pool = ranks.Pool(4, limit=60, exchange_limit=20)
        stack.callback(pool.close)
        for seed in range(args.seed, args.seed + args.count):
            if time.monotonic() > end:
                break
            done += 1
            program = choose(seed)
            if args.show:
                print(program, flush=True)
            try:
                found = compare(pool, program)
            except AssertionError as error:
                found = [f"FSDP2 alone: {shorten(error)}"]
            if found:
                failed.append(seed)
                print(f"FAILED {program}", *found, sep="\n  ", flush=True)
    print(f"{done} programs, {len(failed)} failed: {failed}")
    return bool(failed)


if __name__ == "__main__":
    sys.path[:0] = [str(pathlib.Path(__file__).parent)]
    import programs
    sys.exit(programs.main())
