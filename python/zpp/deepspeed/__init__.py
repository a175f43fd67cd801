# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO++ for models of DeepSpeed's ZeRO-3, with the config that its users have.

    import zpp.deepspeed
    zpp.deepspeed.install()
    engine, *_ = deepspeed.initialize(model=model, config=config)

The settings zero_quantized_weights, zero_quantized_gradients and
zero_hpz_partition_size of the config then run on the exchanges of `zpp.torch`. "zpp"
in it has more options.
"""

try:
    import deepspeed as _deepspeed  # noqa: F401
except ImportError as error:
    raise ImportError(f"zpp.deepspeed needs DeepSpeed: pip install deepspeed "
                      f"({error})") from error

from zpp.deepspeed._engine import forget, initialize, install, metrics, report

__all__ = ["forget", "initialize", "install", "metrics", "report"]
