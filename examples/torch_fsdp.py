#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a small language model with fully_shard (FSDP2) and zpp.

    torchrun --nproc-per-node 4 examples/torch_fsdp.py --mesh node:2,gpu:2

It runs on GPUs with NCCL, or without one on the CPU with gloo. Without --mesh the
tiers are the hosts and the processes on each; with it, one host plays several
nodes. --plain trains with FSDP2 as it is. Prints the loss, and the bytes that a
process sends over each tier.
"""

import argparse
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import zpp.torch

WIDTH, LAYERS, CONTEXT, BATCH = 128, 2, 64, 8


class Model(nn.Module):
    """Predicts the next byte of a text."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0,
                                       batch_first=True, norm_first=True)
            for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, text):
        x = self.embed(text) + self.position.weight
        mask = nn.Transformer.generate_square_subsequent_mask(
            CONTEXT, device=x.device, dtype=x.dtype)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mesh", help="for example node:2,gpu:2")
    parser.add_argument("--plain", action="store_true", help="without zpp")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))

    torch.manual_seed(0)
    model = Model().to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if not args.plain:
        zpp.torch.compress(model, mesh=args.mesh, weights="i8",
                           gradients="i8:i4")

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    text = torch.frombuffer(bytearray(pathlib.Path(argparse.__file__)
                                      .read_bytes()), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(args.steps):
        starts = torch.randint(len(text) - CONTEXT, (BATCH, 1),
                               generator=generator)
        batch = text[starts + torch.arange(CONTEXT + 1)].long().to(device)
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1),
                                           batch[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 or step == args.steps - 1:
            dist.all_reduce(loss := loss.detach())
            if dist.get_rank() == 0:
                print(f"step {step}: loss "
                      f"{loss.item() / dist.get_world_size():.4f}", flush=True)
    if dist.get_rank() == 0 and not args.plain:
        sent = zpp.torch.report(model)["total"]
        for tier, before in sent["before"].items():
            print(f"{tier}: {sent['after'][tier] / 1e6:.2f} MB sent, "
                  f"{before / 1e6:.2f} MB without zpp")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
