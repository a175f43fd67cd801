# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the ranks run: small models of DeepSpeed's ZeRO-3, with and without
zpp."""

import contextlib
import functools
import hashlib
import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

WIDTH, CLASSES, BATCH = 64, 24, 16
MESH = "node:2,gpu:2"
#: All of ZeRO++ as DeepSpeed's users have it; zpp's part names the mesh of the test,
#: and measures no links.
ZEROPP = {"zero_quantized_weights": True, "zero_quantized_gradients": True,
          "zero_hpz_partition_size": 2}
ON = {"mesh": MESH, "links": "none"}


@functools.cache
def start():
    """Imports DeepSpeed, as a rank."""
    os.environ |= {"RANK": str(dist.get_rank()), "LOCAL_RANK": str(dist.get_rank()),
                   "WORLD_SIZE": str(dist.get_world_size()),
                   "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "localhost",
                   "MASTER_PORT": "29500"}
    import deepspeed
    import zpp.deepspeed
    # Compiles for a minute; training does not need it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # PyTorch computes in fp16 on all CPUs; DeepSpeed wants AVX-512 for it.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    zpp.deepspeed.install()
    return deepspeed


class Block(nn.Module):
    def __init__(self, hidden, bias):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, hidden, bias=bias)
        self.down = nn.Linear(hidden, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def make_model(hidden=3 * WIDTH + 5, bias=True) -> nn.Module:
    """Two blocks, whose sizes 4 ranks do not divide by default, and a last layer."""
    torch.manual_seed(0)
    return nn.Sequential(Block(hidden, bias), Block(hidden, bias),
                         nn.Linear(WIDTH, CLASSES))


def make_config(zero: Mapping[str, Any] | None = None, zpp: Mapping | None = None,
                **others: Any) -> dict[str, Any]:
    """A config, by default that of ZeRO-3 alone; `zpp` is that of `ON` if `zero` is
    given."""
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0,
                              **(zero or {})},
        **({"zpp": {**ON, **(zpp or {})}} if zero or zpp else {})}
    return config | others


def without_zpp(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of ZeRO-3 alone."""
    rest = {name: value for name, value in config.items() if name != "zpp"}
    return rest | {"zero_optimization": {
        name: value for name, value in config["zero_optimization"].items()
        if name not in ZEROPP}}


def make_engine(config: Mapping[str, Any], model: nn.Module | None = None):
    deepspeed = start()
    engine, *_ = deepspeed.initialize(
        model=make_model() if model is None else model, config=dict(config))
    return engine


def make_batch(seed: int = 0, rank: int | None = None):
    """Another one on each rank."""
    generator = torch.Generator().manual_seed(
        100 * seed + (dist.get_rank() if rank is None else rank))
    return (torch.randn(BATCH, WIDTH, generator=generator),
            torch.randint(CLASSES, (BATCH,), generator=generator))


def loss_of(engine, batch):
    inputs, labels = batch
    dtype = next(engine.module.parameters()).dtype
    return nn.functional.cross_entropy(engine(inputs.to(dtype)).float(), labels)


def mean(loss: torch.Tensor) -> float:
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def digest(engine) -> str:
    """A digest of all weights, as they are kept."""
    deepspeed = start()
    result = hashlib.sha256()
    for weight in engine.module.parameters():
        # One by one: before 0.19.8 DeepSpeed waits for the last of several alone.
        with deepspeed.zero.GatheredParameters([weight]):
            result.update(weight.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def train(config: Mapping[str, Any], steps: int = 6, micro_batches: int = 1,
          **model_options: Any) -> dict:
    """Mean losses, the digest of the weights and the report of a training."""
    import zpp.deepspeed
    engine = make_engine({**config, "gradient_accumulation_steps": micro_batches},
                         make_model(**model_options))
    losses = update(engine, steps, micro_batches)
    report = {}
    with contextlib.suppress(ValueError):
        report = zpp.deepspeed.report(engine)
    return {"losses": losses, "digest": digest(engine), "report": report,
            "skipped": engine.skipped_steps}


def update(engine, steps: int, micro_batches: int = 1) -> list[float]:
    """Trains for some steps; returns the mean losses of their last micro-batches."""
    losses = []
    for step in range(steps):
        for i in range(micro_batches):
            loss = loss_of(engine, make_batch(step % 3 * micro_batches + i))
            engine.backward(loss)
            engine.step()
        losses.append(mean(loss))
    return losses


def fail(*_) -> None:
    raise RuntimeError("no memory")


def use_everything(config: Mapping[str, Any], folder: str) -> dict:
    """Uses zero.Init, GatheredParameters and checkpoints with an engine."""
    import zpp.deepspeed
    deepspeed = start()
    with deepspeed.zero.Init(config_dict_or_path=dict(config)):
        model = make_model()
    model[0].requires_grad_(False)
    engine = make_engine(config, model)
    update(engine, 2)
    engine.eval()
    with torch.no_grad():
        loss_of(engine, make_batch())
    engine.train()
    found = {}
    weight = engine.module[2].weight
    mine = weight.ds_tensor.clone()
    # DeepSpeed keeps others, and what is rounded must not be read.
    found["is_free"] = weight.ds_status.name == "NOT_AVAILABLE"
    with deepspeed.zero.GatheredParameters([weight]):
        slices = weight.detach().view(-1).chunk(dist.get_world_size())
        found["is_exact"] = torch.equal(slices[dist.get_rank()], mine)
    # What is loaded is what was saved, whatever nodes hold of it.
    engine.save_checkpoint(folder)
    found["losses"] = update(engine, 3)
    engine.load_checkpoint(folder)
    found["resumed"] = update(engine, 3)
    with deepspeed.zero.GatheredParameters([weight], modifier_rank=0):
        if dist.get_rank() == 0:
            weight.data.zero_()
    with torch.no_grad():
        found["spread"] = engine(make_batch()[0]).std(0).max().item()
    # One that fails after it has gathered the weight.
    engine.module[2].register_forward_hook(fail)
    try:
        engine(make_batch()[0])
    except RuntimeError as error:
        found["error"] = str(error)
    found["is_free"] &= weight.ds_status.name == "NOT_AVAILABLE"
    return found | {
        "metrics": sorted(zpp.deepspeed.metrics(engine)),
        "entries": zpp.deepspeed.report(engine)["collectives"]}


def save_checkpoint(config: Mapping[str, Any], folder: str) -> bool:
    """Whether zero_to_fp32 finds the weights that were trained."""
    deepspeed = start()
    engine = make_engine(config)
    update(engine, 2)
    engine.save_checkpoint(folder)
    dist.barrier()
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    saved = get_fp32_state_dict_from_zero_checkpoint(folder)
    is_equal = True
    for name, weight in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters([weight]):
            is_equal &= torch.equal(saved[name].to(weight.dtype), weight)
    return is_equal


def gradients(config: Mapping[str, Any], largest: float) -> dict[str, torch.Tensor]:
    """Gradients of one step, of a model with parameters of three elements.

    Args:
      largest: that of the inputs.
    """
    start()
    from deepspeed.utils import safe_get_full_grad
    torch.manual_seed(0)
    engine = make_engine(config, nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3), nn.Linear(3, 5 * WIDTH + 1)))
    inputs, _ = make_batch()
    inputs[0, 0] = largest
    engine.backward(engine(inputs).square().mean())
    return {name: safe_get_full_grad(weight).clone()
            for name, weight in engine.module.named_parameters()}


def error_of(config: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The error of an engine whose config is another one on the last rank."""
    is_last = dist.get_rank() == dist.get_world_size() - 1
    try:
        make_engine(other if is_last else config)
    except (ValueError, RuntimeError) as error:
        return str(error)
    return "none"


def errors_of_secondary(config: Mapping[str, Any]) -> list[str]:
    """The errors of engines where zero.Init has read a config with hpZ before `install`:
    one with its weights, and one with weights that have none of it."""
    deepspeed = start()
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.utils import groups
    parse = DeepSpeedConfig._initialize_params
    DeepSpeedConfig._initialize_params = parse.__wrapped__
    try:
        with deepspeed.zero.Init(config_dict_or_path=make_config(
                {"zero_hpz_partition_size": 2})):
            model = make_model()
    finally:
        DeepSpeedConfig._initialize_params = parse
    found = []
    try:
        with deepspeed.zero.Init(config_dict_or_path=make_config()):
            other = make_model()
        for each in (model, other):
            try:
                make_engine(config, each)
            except ValueError as error:
                found.append(str(error))
    finally:
        groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None
    return found


def train_with_tensor_parallelism(config: Mapping[str, Any], size: int = 2) -> dict:
    """Losses, the report and the error of a training in which DeepSpeed shards matrices
    over neighbors, too, for which others than they have other data.

    Args:
      size: how many neighbors.
    """
    import zpp.deepspeed
    deepspeed = start()
    from deepspeed.utils import groups
    before = dict(vars(groups))
    config = {**config, "tensor_parallel": {"autotp_size": size, "partition_config": {
        "use_default_specs": False, "layer_specs": [
            {"patterns": [r".*up\.weight$"], "partition_type": "column"},
            {"patterns": [r".*down\.weight$"], "partition_type": "row"}]}}}
    try:
        engine, *_ = deepspeed.initialize(model=make_model(6 * WIDTH), config=config)
        losses = []
        for step in range(6):
            loss = loss_of(engine, make_batch(step, dist.get_rank() // size))
            engine.backward(loss)
            engine.step()
            losses.append(mean(loss))
        report = {}
        with contextlib.suppress(ValueError):
            report = zpp.deepspeed.report(engine)
        return {"losses": losses, "report": report}
    except ValueError as error:
        return {"error": str(error)}
    finally:
        # Later engines have none.
        vars(groups).update(before)


def train_again(config: Mapping[str, Any], other: Mapping[str, Any]) -> dict:
    """Trains with an engine, then with another one with its module, and with a new module
    with its weights."""
    import zpp.deepspeed
    first = make_engine(config)
    update(first, 2)
    zpp.deepspeed.metrics(first)
    update(first, 2)
    zpp.deepspeed.metrics(first)
    saved = weights_of(first)
    first.destroy()
    before = zpp.deepspeed.report(first)["total"]
    found: dict[str, Any] = {}
    fresh = make_model()
    fresh.load_state_dict(saved)
    for name, module in (("again", first.module), ("fresh", fresh)):
        engine = make_engine(other, module)
        found[name] = {"losses": update(engine, 3), "digest": digest(engine)}
        with contextlib.suppress(ValueError):
            found[name] |= {"metrics": zpp.deepspeed.metrics(engine),
                            "state": zpp.deepspeed.report(engine)["total"]["state_bytes"]}
    return found | {"is_over": zpp.deepspeed.report(first)["total"] == before}


def weights_of(engine) -> dict[str, torch.Tensor]:
    """Copies of all weights, as they are kept."""
    deepspeed = start()
    found = {}
    for name, weight in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters([weight]):
            found[name] = weight.detach().clone()
    return found


def train_swapped_out(config: Mapping[str, Any]) -> list[dict]:
    """The entries of a training while whose reductions each weight is swapped out, as
    those on NVMe are, for which the tests have no library."""
    import zpp.deepspeed
    from zpp.deepspeed import _seams
    engine = make_engine(config)
    compression = _seams.attached(engine)
    scatter = compression.scatter

    def scatter_swapped_out(original, weights, *args):
        slices = [weight.ds_tensor.data for weight in weights]
        for weight in weights:
            weight.ds_tensor.data = weight.ds_tensor.new_empty(1)
        result = scatter(original, weights, *args)
        for weight, slice_ in zip(weights, slices):
            weight.ds_tensor.data = slice_
        return result

    compression.scatter = scatter_swapped_out
    update(engine, 1)
    return zpp.deepspeed.report(engine)["collectives"]


def train_with_few_reductions(config: Mapping[str, Any]) -> list[dict]:
    """The entries of a training that may know one bucket."""
    import zpp.deepspeed
    from zpp.deepspeed import _seams
    engine = make_engine(config)
    _seams.attached(engine)._most_reductions = 1
    update(engine, 2)
    return zpp.deepspeed.report(engine)["collectives"]


def fail_to_load(config: Mapping[str, Any]) -> dict:
    """The errors of a load that fails and of `forget`, where dropping what is held fails,
    too; with the weights that were dropped."""
    deepspeed = start()
    import zpp.deepspeed
    from zpp.deepspeed import _seams

    def load(*_):
        raise OSError("no such file")

    original = deepspeed.DeepSpeedEngine.load_checkpoint
    deepspeed.DeepSpeedEngine.load_checkpoint = load
    try:
        engine = make_engine(config)
    finally:
        deepspeed.DeepSpeedEngine.load_checkpoint = original
    dropped = []

    def fail(name):
        dropped.append(name)
        raise RuntimeError(f"{name} was wrong")

    for each in _seams.attached(engine)._gathers.values():
        each.gathers.forget = functools.partial(fail, each.shared.name)
    errors = []
    for call in (lambda: engine.load_checkpoint("folder"),
                 lambda: zpp.deepspeed.forget(engine)):
        try:
            call()
        except (OSError, RuntimeError) as error:
            errors.append(str(error))
    return {"errors": errors, "dropped": dropped}
