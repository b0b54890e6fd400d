# SPDX-License-Identifier: BSL-1.0
"""Small networks for the tests. Each has one property that a planner can get wrong."""
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A layer with dropout."""

    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.linear, self.dropout = nn.Linear(width, width), nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(torch.tanh(self.linear(x)))


class Chain(nn.Module):
    """Layers one after the other."""

    def __init__(self, layers=5, width=16, classes=4, dropout=0.0):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, dropout) for _ in range(layers)))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(x))


class Images(nn.Module):
    """Convolution, batch norm (buffers change) and max pooling (values and indices)."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv2, self.norm2 = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.head = nn.Linear(6 * 2 * 2, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


class Attention(nn.Module):
    """Tied weights, layer norm, one split for query, key and value, attention and dropout."""

    def __init__(self, words=11, width=8, heads=2, dropout=0.0, attention_dropout=0.0):
        super().__init__()
        self.heads, self.rate = heads, attention_dropout
        self.embed = nn.Embedding(words, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        h = self.embed(tokens)
        q, k, v = (
            t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(h)).chunk(3, dim=2)
        )
        rate = self.rate if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        h = h + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return self.head(self.norm2(h)).flatten(0, 1)


class Parts(nn.Module):
    """Operations with several results, of which some are not used; views of views; expanded views; a shared layer."""

    def __init__(self, width=8):
        super().__init__()
        self.shared = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.randn(1, width))
        self.dropout = nn.Dropout(0.4)

    def forward(self, x):
        h = self.shared(x)
        left, right = h.split(h.shape[1] // 2, dim=1)
        top, places = (left * right).topk(2, dim=1)
        variance, mean = torch.var_mean(h, dim=1, keepdim=True)
        h = torch.tanh(self.shared((h - mean) / (variance + 1).sqrt()) * self.scale.expand(h.shape[0], -1))
        biggest, _ = h.view(h.shape[0], 2, -1).max(dim=2)
        rows = self.dropout(h).t().unbind(1)
        h = torch.stack(rows).gather(1, places.clamp(max=h.shape[1] - 1))
        return torch.cat((h * top, biggest + mean.expand(-1, 2)), dim=1)


class TwoNoises(nn.Module):
    """Noise that stays until the loss, and then more noise of which one number stays: less memory has the second one first."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(20_000))

    def forward(self, x):
        noise = torch.rand_like(x)
        number = torch.rand(4 * len(x)).exp().mean()
        return ((self.scale * x * number).tanh() * noise).sum()


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def next_word(model, x, y):
    return F.cross_entropy(model(x), y.flatten())


def words(batch, length):
    """Tokens, and for each token the next one as its target."""
    tokens = torch.randint(11, (batch, length + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def classes(batch, count=4):
    return torch.randint(count, (batch,))


def chain(dropout=0.0):
    return Chain(dropout=dropout), classify, (torch.randn(64, 16), classes(64))


def images():
    return Images(), classify, (torch.randn(4, 3, 8, 8), classes(4))


def attention(dropout=0.0, attention_dropout=0.0):
    return Attention(dropout=dropout, attention_dropout=attention_dropout), next_word, words(3, 5)


def parts():
    return Parts(), squares, (torch.randn(6, 8), torch.randn(6, 4))


# name -> a function that makes (model, loss, inputs)
NETS = {
    "chain": chain,
    "dropout": lambda: chain(0.3),
    "images": images,
    "attention": attention,
    "attention_dropout": lambda: attention(0.2, 0.2),
    "parts": parts,
}
