# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Trainer of torchtitan 0.3, or of 0.2.2, for its Llama 3 "debugmodel"."""

import dataclasses
import importlib.metadata
from collections.abc import Callable

import numpy as np

VOCABULARY = 2048


@dataclasses.dataclass(frozen=True)
class Run:
    """Settings of a training."""
    #: Tokens of a micro-batch of a rank, with the next one of each, by their number.
    batch_of: Callable[[int], np.ndarray]
    steps: int
    length: int
    #: Sequences of a rank in a micro-batch.
    batch: int
    #: Sequences of all ranks in a step.
    global_batch: int
    #: Fields of torchtitan's parallelism by name.
    parallelism: dict[str, int]
    #: For what torchtitan writes.
    folder: str
    #: The layers of a model for CPUs; None leaves torchtitan as it is.
    layers: int | None = None


class Batches:
    """The batches of one of the ranks that have different ones."""

    def __init__(self, run: Run, rank: int, ranks: int):
        self._batch_of = run.batch_of
        self._rank, self._ranks, self._number = rank, ranks, 0

    def __iter__(self):
        import torch
        while True:
            batch = torch.from_numpy(self._batch_of(
                self._number * self._ranks + self._rank)).long()
            self._number += 1
            yield {"input": batch[:, :-1]}, batch[:, 1:]

    def state_dict(self):
        return {"number": self._number}

    def load_state_dict(self, state):
        self._number = state["number"]


class NoMonitor:
    """Stands for the monitor of a device's memory."""
    device_name = "CPU"

    def get_peak_stats(self):
        from torchtitan.components.metrics import DeviceMemStats
        return DeviceMemStats(*[0] * len(DeviceMemStats._fields))

    def reset_peak_stats(self):
        pass


def version() -> str:
    return importlib.metadata.version("torchtitan")


def makes_several() -> bool:
    """Whether a process may make one Trainer after the other. In torchtitan 0.3,
    fully_shard finds weights of the second one on the mesh of the first."""
    return version().startswith("0.2.")


def run_on_cpu() -> None:
    """Has torchtitan take CPUs, before it is imported."""
    import torch
    import torch._utils
    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cpu.current_device = lambda: 0
    torch.set_num_threads(1)


def make_trainer(run: Run, finish: Callable):
    """Returns torchtitan's Trainer, and the name of the model's attention. `finish`
    gets the model at the end of torchtitan's function that parallelizes it."""
    from torchtitan.components import metrics
    if run.layers is not None:
        metrics.build_device_memory_monitor = NoMonitor
    return (_make_0_2 if version().startswith("0.2.") else _make_0_3)(run, finish)


def _then(parallelize: Callable, finish: Callable) -> Callable:
    def both(*args, **kwargs):
        model = parallelize(*args, **kwargs)
        finish(model)
        return model

    return both


def _make_0_3(run: Run, finish: Callable):
    from torchtitan.components.dataloader import BaseDataLoader
    from torchtitan.components.tokenizer import BaseTokenizer
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.llama3.config_registry import llama3_debugmodel
    from torchtitan.trainer import Trainer

    class Loader(Batches, BaseDataLoader):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseDataLoader.Config):
            pass

        def __init__(self, config, *, dp_rank, dp_world_size, **_):
            super().__init__(run, dp_rank, dp_world_size)

    class NoTokenizer(BaseTokenizer):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseTokenizer.Config):
            pass

        def __init__(self, config, **_):
            super().__init__()

        def encode(self, *_, **__):
            return []

        def decode(self, *_, **__):
            return ""

        def get_vocab_size(self):
            return VOCABULARY

    config = llama3_debugmodel()
    config.dump_folder = run.folder
    config.dataloader = Loader.Config()
    config.tokenizer = NoTokenizer.Config()
    config.validator.enable = config.checkpoint.enable = False
    # What Python decides must not be recorded.
    config.training.disable_cuda_graphs = True
    _set_common(config, run)
    if run.layers is not None:
        model = config.model_spec.model
        del model.layers[run.layers:]
        for layer in model.layers:
            layer.attention.inner_attention = ScaledDotProductAttention.Config()
    config.model_spec = dataclasses.replace(
        config.model_spec,
        parallelize_fn=_then(config.model_spec.parallelize_fn, finish))
    is_flex = run.layers is None
    return Trainer(config), "flex_attention" if is_flex else _SDPA


def _make_0_2(run: Run, finish: Callable):
    from torchtitan.config import JobConfig
    from torchtitan.models import llama3
    from torchtitan.protocols import train_spec
    from torchtitan.train import Trainer

    config = JobConfig()
    config.job.dump_folder = run.folder
    # As its debug_model.toml, which the package lacks.
    config.metrics.log_freq = 1
    config.lr_scheduler.warmup_steps, config.lr_scheduler.decay_ratio = 2, 0.8
    _set_common(config, run)
    spec = llama3.get_train_spec()
    model = spec.model_args["debugmodel"]
    if run.layers is not None:
        model = dataclasses.replace(model, n_layers=run.layers)
    # A name is taken once.
    config.model.name = run.folder
    train_spec.register_train_spec(run.folder, dataclasses.replace(
        spec, model_args={"debugmodel": model}, build_tokenizer_fn=None,
        build_dataloader_fn=lambda *, dp_rank, dp_world_size, **_: Batches(
            run, dp_rank, dp_world_size),
        parallelize_fn=_then(spec.parallelize_fn, finish)))
    return Trainer(config), _SDPA


_SDPA = "scaled_dot_product_attention"


def _set_common(config, run: Run):
    # torchtitan draws another one in each run otherwise.
    config.debug.seed = 0
    config.training.steps = run.steps
    config.training.seq_len = run.length
    config.training.local_batch_size = run.batch
    config.training.global_batch_size = run.global_batch
    for name, value in run.parallelism.items():
        setattr(config.parallelism, name, value)
