# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO++ for models of PyTorch's fully_shard (FSDP2).

    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    zpp.torch.compress(model, mesh="node:2,gpu:8", weights="i8",
                       gradients="i8:i4")

The training loop stays as it is. `report` returns what was sent.
"""

try:
    from torch.distributed.fsdp import FSDPModule as _FSDPModule  # noqa: F401
except ImportError as error:
    raise ImportError(f"zpp.torch needs PyTorch 2.9 or later: pip install "
                      f"'torch>=2.9' ({error})") from error

from zpp._options import SharedTuning as Tuning
from zpp._torch_options import TorchOptions as Options
from zpp.torch._compress import compress, forget, report
from zpp.torch._metrics import metrics
from zpp.torch._moments import gather_moment
from zpp.torch._state import load_state_dict, state_dict

__all__ = ["Options", "Tuning", "compress", "forget", "gather_moment",
           "load_state_dict", "metrics", "report", "state_dict"]
