# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parameters that travel as they are.

Some the user names. Others cannot be rounded: a base of 4 bits is packed, and kept as
bfloat16 to be sharded (QLoRA). Read as numbers, such bits are unlike all weights.
"""

import fnmatch
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from zpp._torch_options import TorchOptions as Options
from zpp._warn import warn
from zpp.torch import _pytorch
from zpp.torch._layout import TYPES

#: The part of what is trained that may have one dim without a warning.
_MANY = 1 / 8
#: No weights are larger, and only so few of them are smaller, but not zero.
_LARGEST, _SMALLEST, _FEW = 2.0**32, 2.0**-64, 1 / 256


class Exact:
    """Those of a group of parameters, which have names."""

    def __init__(self, parameters: Any, names: Mapping[Any, str]):
        self._parameters = parameters
        self.names = names
        self._bits: set[Any] = set()
        self._seen: set[Any] = set()

    def is_exact(self, parameter: Any, options: Options, block: int) -> bool:
        """Whether a parameter travels as it is. Those of one dim are gains, biases and
        scales, of few bytes and much effect. What does not fill a block on each rank
        would take no less."""
        return (_pytorch.dims_of(parameter) < 2
                or _pytorch.elements_of(parameter) < block
                or parameter in self._bits
                or any(fnmatch.fnmatchcase(self.names[parameter], pattern)
                       for pattern in patterns_of(options)))

    def look(self, group: dist.ProcessGroup | None) -> bool:
        """Looks for bits among frozen parameters that it has not seen, and returns
        whether it has found some. All ranks of the group call it together, and find the
        same. Waits for the device if there are such parameters."""
        new = [each for each in self._parameters.fsdp_params
               if each not in self._seen and not each.sharded_param.requires_grad]
        if not new or group is None:
            return False
        self._seen.update(new)
        if _pytorch.is_dry_run(group):
            return False
        looked_at = [each for each in new if _pytorch.type_of(each) in TYPES
                     and _pytorch.dims_of(each) > 1
                     and _pytorch.is_sent_as_it_is(each)]
        if not looked_at:
            return False
        with torch.no_grad():
            are_bits = torch.stack([
                _are_bits(each._sharded_param_data).to(
                    self._parameters.device, torch.int32) for each in looked_at])
            dist.all_reduce(are_bits, op=dist.ReduceOp.MAX, group=group)
        return self.add([each for each, is_bits in zip(looked_at, are_bits.tolist())
                         if is_bits], "they are not numbers but bits, such as those of "
                        "a base that is quantized")

    def add(self, parameters: list[Any], why: str) -> bool:
        """Has frozen parameters travel as they are; returns whether some did not."""
        new = [each for each in parameters if each not in self._bits]
        self._bits.update(new)
        if new:
            names = ", ".join(f"'{self.names[each]}'" for each in new)
            warn(f"frozen weights of {names}: {why}; they travel as they are")
        return bool(new)


def warn_of_vectors(names: Mapping[Any, str]) -> None:
    """Warns if much of what is trained has one dim, such as weights in a flat buffer. A
    frozen base of bits may have one, too."""
    elements = {each: _pytorch.elements_of(each) for each in names
                if each.sharded_param.requires_grad}
    vectors = [each for each in elements if _pytorch.dims_of(each) < 2]
    part = sum(map(elements.__getitem__, vectors)) / max(1, sum(elements.values()))
    if part > _MANY:
        name = names[max(vectors, key=elements.__getitem__)]
        warn(f"{part:.0%} of what is trained has one dim, such as '{name}': it "
             f"travels as it is, as gains and biases have to; only weights of two or "
             f"more dims are compressed")


def patterns_of(options: Options) -> list[str]:
    return options.exact.split(",") if isinstance(options.exact, str) else []


def check_patterns(options: Options, names: list[str]) -> None:
    """Raises ValueError if one of the patterns is no parameter's."""
    for pattern in patterns_of(options):
        if not fnmatch.filter(names, pattern):
            raise ValueError(f"exact: expected names of parameters such as "
                             f"'{names[0]}', or patterns of them, but got '{pattern}'")


def _are_bits(values: torch.Tensor) -> torch.Tensor:
    """Whether values are NaN or Inf, or have exponents all over the range."""
    sizes = values.abs().float()
    is_small = (sizes < _SMALLEST) & (sizes > 0)
    return ~(sizes <= _LARGEST).all() | (is_small.sum() > values.numel() * _FEW)
