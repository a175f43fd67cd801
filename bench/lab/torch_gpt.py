# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The example GPT (examples/gpt.py) in PyTorch: the same layers, initial values
of the same distributions, checkpointed by layer."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width, eps=1e-6)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        for linear in (self.qkv, self.proj, self.up, self.down):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = self.qkv(self.norm1(x)).view(
            batch, length, self.heads, 3, width // self.heads
        ).permute(3, 0, 2, 1, 4)
        attention = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True)
        x = x + self.proj(attention.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.silu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Called with tokens [batch, context + 1]; returns the mean loss."""

    def __init__(self, *, layers: int, width: int, heads: int, vocab: int,
                 context: int):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.position = nn.Embedding(context, width)
        self.layers = nn.ModuleList(
            Layer(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        for embedding in (self.embed, self.position):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.embed(inputs) + self.position.weight
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        logits = functional.linear(self.norm(x), self.embed.weight)
        return functional.cross_entropy(logits.float().flatten(0, 1),
                                        targets.flatten())
