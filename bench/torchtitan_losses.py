# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torchtitan's own trainer, with one line at the end of the model's function, beside
itself without it.

    python bench/torchtitan_losses.py [--gpus N] [--write]

needs torchtitan 0.3 (pip install torchtitan) and PyTorch, zpp-opt and the runtime of
the wheel or of $ZPP_OPT and $ZPP_RT. Its Trainer trains its Llama 3 "debugmodel" on
four ranks, as two nodes of two, on text of numbers that count up.

With --gpus, ranks have GPUs, which they may share, and nothing of torchtitan is
changed. Otherwise they are processes with gloo, a smaller model, and these changes,
without which torchtitan does not run on CPUs: it takes "cpu" for the device that there
is, with the number 0; attention is PyTorch's scaled_dot_product_attention, as flex_attention has no
backward pass there; gradients are sums, as gloo knows no others; no memory of the
device is watched.

The table has the losses of the last step, the largest difference of a step, and what
a rank sends between nodes. --write puts it into docs/torch.md.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import sys
import tempfile

import lab
from lab import launch
from lab.tables import describe_commit, write_between
from trainers import tokens

RANKS = 4
LIMIT_SECONDS = 900
VOCABULARY = 2048

#: Words of `zpp.torch.compress` by how the table names them.
OPTIONS = {
    "i8, i8:i4": {"weights": "i8", "gradients": "i8:i4"},
    "i4:delta, i8:i4": {"weights": "i4:delta", "gradients": "i8:i4"}}
#: Fields of torchtitan's ParallelismConfig and TrainingConfig.
SETUPS = {
    "FSDP": {},
    "FSDP between nodes, tensor parallelism within": {"tensor_parallel_degree": 2},
    "FSDP, two micro-batches": {"micro_batches": 2},
    "HSDP": {"data_parallel_replicate_degree": 2}}


# A rank ----------------------------------------------------------------------------


def run_on_cpu() -> None:
    """Has torchtitan take CPUs, before it is imported."""
    import torch
    import torch._utils
    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cpu.current_device = lambda: 0
    torch.set_num_threads(1)


def make_config(args, setup: dict, folder: str):
    """torchtitan's configuration of its debug model, on other data."""
    import torch
    from torchtitan.components.dataloader import BaseDataLoader
    from torchtitan.components.tokenizer import BaseTokenizer
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    class Counting(BaseDataLoader):
        """Sequences that count up. A rank has those of its number."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseDataLoader.Config):
            pass

        def __init__(self, config, *, dp_rank, dp_world_size, seq_len,
                     local_batch_size, **_):
            self._shape = local_batch_size, seq_len + 1
            self._rank, self._ranks, self._number = dp_rank, dp_world_size, 0

        def __iter__(self):
            while True:
                batch = torch.from_numpy(tokens(
                    self._number * self._ranks + self._rank, self._shape,
                    VOCABULARY)).long()
                self._number += 1
                yield {"input": batch[:, :-1]}, batch[:, 1:]

        def state_dict(self):
            return {"number": self._number}

        def load_state_dict(self, state):
            self._number = state["number"]

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
    config.dump_folder = folder
    config.dataloader = Counting.Config()
    config.tokenizer = NoTokenizer.Config()
    config.validator.enable = config.checkpoint.enable = False
    # torchtitan draws another one in each run otherwise.
    config.debug.seed = 0
    config.training.steps = args.steps
    config.training.seq_len = args.length
    config.training.local_batch_size = args.batch
    # What Python decides must not be recorded.
    config.training.disable_cuda_graphs = True
    setup = dict(setup)
    ranks = RANKS // setup.get("tensor_parallel_degree", 1)
    config.training.global_batch_size = (
        args.batch * ranks * setup.pop("micro_batches", 1))
    for name, value in setup.items():
        setattr(config.parallelism, name, value)
    if not args.gpus:
        change_for_cpu(config, args.layers)
    return config


def change_for_cpu(config, layers: int) -> None:
    from torchtitan.components import metrics
    from torchtitan.models.common.attention import ScaledDotProductAttention

    model = config.model_spec.model
    del model.layers[layers:]
    for layer in model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    metrics.build_device_memory_monitor = NoMonitor


class NoMonitor:
    device_name = "CPU"

    def get_peak_stats(self):
        from torchtitan.components.metrics import DeviceMemStats
        return DeviceMemStats(*[0] * len(DeviceMemStats._fields))

    def reset_peak_stats(self):
        pass


def train(args, folder: str) -> dict:
    """Losses of all ranks' batches by step, and the bytes that this one sent."""
    import torch
    from torch.distributed.fsdp import FSDPModule
    from torchtitan.tools.logging import init_logger
    from torchtitan.trainer import Trainer

    import zpp.torch
    init_logger()
    options = OPTIONS.get(args.options)
    config = make_config(args, SETUPS[args.setup], folder)
    spec = config.model_spec

    def parallelize(model, **kwargs):
        model = spec.parallelize_fn(model, **kwargs)
        for module in model.modules():
            if not args.gpus and isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
        if options is not None:
            # The line.
            zpp.torch.compress(model, mesh="node:2,gpu:2", links="none",
                               **options)
        return model

    config.model_spec = dataclasses.replace(spec, parallelize_fn=parallelize)
    trainer = Trainer(config)
    losses = []
    log = trainer.metrics_processor.log

    def note(step, global_avg_loss, *rest, **named):
        losses.append(global_avg_loss)
        return log(step, global_avg_loss, *rest, **named)

    trainer.metrics_processor.log = note
    trainer.train()
    sent = None
    if options is not None:
        (model,) = trainer.model_parts
        total = zpp.torch.report(model)["total"]
        sent = [total[side]["node"] / args.steps for side in ("before", "after")]
    trainer.close()
    torch.distributed.barrier()
    return {"losses": losses, "sent": sent, "torch": torch.__version__}


# All of them -----------------------------------------------------------------------


def run(args, setup: str, options: str, folder: pathlib.Path) -> dict | str:
    """The result of the first rank, or why there is none."""
    port = launch.free_port()
    name = f"{setup}-{options}".replace(" ", "_").replace(":", "")
    result = folder / f"{name}.json"
    processes = []
    for rank in range(RANKS):
        environment = launch.environment() | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(lab.ROOT / "python"), environment["PYTHONPATH"]])
        if args.gpus:
            environment |= {
                "CUDA_VISIBLE_DEVICES": str(rank % args.gpus),
                "NCCL_HOSTID": f"host{rank // min(args.gpus, 2)}",
                "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
        processes.append(launch.Process(
            [sys.executable, __file__, *sys.argv[1:], "--setup", setup,
             "--options", options, "--result", result],
            environment, folder / f"{name}-{rank}.txt"))
    try:
        launch.run(processes, LIMIT_SECONDS)
    except RuntimeError as error:
        return str(error)
    return json.loads(result.read_text())


def row(setup: str, options: str, found: dict | str, plain: dict | str) -> str:
    if isinstance(found, str) or isinstance(plain, str):
        failed = found if isinstance(found, str) else "FSDP2 fails"
        return f"| {setup} | {options} | {failed.splitlines()[0]} | | | |"
    off = max(abs(ours - theirs) for ours, theirs in
              zip(found["losses"], plain["losses"], strict=True))
    before, after = (bytes_ / 1e6 for bytes_ in found["sent"])
    return (f"| {setup} | {options} | {plain['losses'][-1]:.4f} | {found['losses'][-1]:.4f} | "
            f"{off:.4f} | {before:.2f} -> {after:.2f} MB |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4,
                        help="sequences of a rank in a micro-batch")
    parser.add_argument("--layers", type=int, default=2,
                        help="without --gpus")
    parser.add_argument("--setups", nargs="+", choices=SETUPS,
                        default=list(SETUPS))
    parser.add_argument("--write", action="store_true",
                        help="put the table into docs/torch.md")
    for name, kind in (("setup", str), ("options", str), ("result", pathlib.Path)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.result:
        if not args.gpus:
            run_on_cpu()
        with tempfile.TemporaryDirectory() as folder:
            found = train(args, folder)
        if os.environ["RANK"] == "0":
            args.result.write_text(json.dumps(found))
        return 0
    launch.prepare()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="zpp-"))
    lines, versions, is_complete = [], set(), True
    for setup in args.setups:
        plain = run(args, setup, "none", folder)
        for options in OPTIONS:
            found = run(args, setup, options, folder)
            for each in (plain, found):
                if isinstance(each, str):
                    is_complete = False
                    print(each, flush=True)
                else:
                    versions.add(each["torch"])
            lines.append(row(setup, options, found, plain))
            print(lines[-1], flush=True)
    version = describe_commit() or "a copy without git"
    where = f"{args.gpus} GPUs" if args.gpus else "CPU processes with gloo"
    table = "\n".join([
        "| setup | weights, gradients | loss of FSDP2 | with zpp | off by at most | "
        "between nodes |", "| --- | --- | ---: | ---: | ---: | ---: |", *lines, "",
        f"{datetime.date.today()}, {version}, torchtitan 0.3.0, PyTorch "
        f"{', '.join(sorted(versions))}, {RANKS} ranks as two nodes of two on {where}, "
        f"Llama 3 \"debugmodel\"{'' if args.gpus else f' with {args.layers} layers'}, "
        f"step {args.steps}; bytes of a rank per step."])
    print(table)
    if args.write and is_complete:
        write_between(lab.ROOT / "docs" / "torch.md", "torchtitan", table)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
