# SPDX-License-Identifier: BSL-1.0
"""Ten networks in plain PyTorch, each in a small size for tests and in the size of its publication.

    network = NETWORKS["gpt2"]
    model = network.build("small")
    network.loss(model, *network.inputs("small")).backward()

Weights and inputs are random. All tensors are created on the default device, so a network can be built on "meta", on a
GPU, or under FakeTensorMode. No shape and no branch depends on the values of tensors, so a training step can be traced.
"""
import math
import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "examples" / "remat-plan"
os.environ.setdefault("REMAT_PLAN", str(_PROGRAM))


@dataclass(frozen=True)
class Network:
    """A model with its loss and its random inputs. A size is "small" or "full"."""

    name: str
    build: Callable[[str], nn.Module]
    inputs: Callable[[str], tuple[Tensor, ...]]  # the arguments of the loss after the model
    loss: Callable[..., Tensor]  # loss(model, *inputs) is a scalar
    blocks: Callable[[nn.Module], list[nn.Module]]  # the repeated blocks; each takes only tensors, by position


# Shared parts.


def normal_weights(model: nn.Module, deviation: float = 0.02) -> None:
    """Draws the weights of linear layers and embeddings as GPT-2 and BERT do."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=deviation)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """From (batch, length, width) to (batch, heads, length, width / heads)."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, dropout: float = 0.0):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split_heads(t, self.heads) for t in self.qkv(x).chunk(3, dim=2))
        dropout = self.dropout if self.training else 0.0
        return self.out(merge_heads(F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)))


class FeedForward(nn.Sequential):
    def __init__(self, width: int, hidden: int, dropout: float, approximate: str = "none"):
        super().__init__(
            nn.Linear(width, hidden), nn.GELU(approximate), nn.Linear(hidden, width), nn.Dropout(dropout)
        )


def random_text(vocabulary: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Tokens, and for each token the next one as its target."""
    text = torch.randint(vocabulary, (batch, length + 1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def random_images(batch: int, size: int, classes: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, size, size), torch.randint(classes, (batch,))


def next_token_loss(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def classification_loss(model: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(x), labels)


# A multilayer perceptron.

MLP_SIZES = {
    "small": dict(layers=16, width=256, classes=16, batch=2048),
    "full": dict(layers=32, width=4096, classes=1000, batch=8192),
}


class MLP(nn.Module):
    def __init__(self, layers: int, width: int, classes: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
        self.head = nn.Linear(width, classes)
        for layer in self.layers:
            nn.init.kaiming_normal_(layer[0].weight)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def mlp(size: str) -> MLP:
    s = MLP_SIZES[size]
    return MLP(s["layers"], s["width"], s["classes"])


def mlp_inputs(size: str) -> tuple[Tensor, ...]:
    s = MLP_SIZES[size]
    return torch.randn(s["batch"], s["width"]), torch.randint(s["classes"], (s["batch"],))


# GPT-2. The matrix of the output layer is that of the token embedding.

GPT2_SIZES = {
    "small": dict(layers=8, width=128, heads=4, vocabulary=1024, length=128, batch=8),
    "full": dict(layers=12, width=768, heads=12, vocabulary=50257, length=1024, batch=8),
}


class GPT2Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.feed_forward = FeedForward(width, 4 * width, dropout, approximate="tanh")

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.dropout(self.attention(self.norm1(h)))
        return h + self.feed_forward(self.norm2(h))


class GPT2(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, length: int, dropout: float = 0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(GPT2Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        normal_weights(self)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        h = self.dropout(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            h = block(h)
        return F.linear(self.norm(h), self.tokens.weight)


def gpt2(size: str) -> GPT2:
    s = GPT2_SIZES[size]
    return GPT2(s["layers"], s["width"], s["heads"], s["vocabulary"], s["length"])


def gpt2_inputs(size: str) -> tuple[Tensor, ...]:
    s = GPT2_SIZES[size]
    return random_text(s["vocabulary"], s["batch"], s["length"])


# A Llama-style model: RMSNorm, rotary embedding, grouped-query attention, SwiGLU. The full size has 7.2 billion
# parameters.

LLAMA_SIZES = {
    "small": dict(layers=8, width=128, heads=8, groups=2, hidden=344, vocabulary=1024, length=256, batch=4),
    "full": dict(layers=32, width=4096, heads=32, groups=8, hidden=14336, vocabulary=32000, length=2048, batch=1),
}


def rotary_table(length: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles of rotation, each (length, width / 2)."""
    frequency = 10000.0 ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), frequency)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates each pair (x[i], x[i + width / 2]) by the angle of its position."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class GroupedQueryAttention(nn.Module):
    """Several query heads share one head of keys and values."""

    def __init__(self, width: int, heads: int, groups: int):
        super().__init__()
        self.heads, self.groups = heads, groups
        shared = width // heads * groups
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(width, shared, bias=False), nn.Linear(width, shared, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q = rotate(split_heads(self.q(x), self.heads), cos, sin)
        k = rotate(split_heads(self.k(x), self.groups), cos, sin)
        v = split_heads(self.v(x), self.groups)
        # The keys and values are repeated here because not every attention kernel accepts enable_gqa.
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        return self.out(merge_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, hidden: int):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.attention = GroupedQueryAttention(width, heads, groups)
        self.feed_forward = SwiGLU(width, hidden)

    def forward(self, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = h + self.attention(self.norm1(h), cos, sin)
        return h + self.feed_forward(self.norm2(h))


class Llama(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, groups: int, hidden: int, vocabulary: int):
        super().__init__()
        self.head_width = width // heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        normal_weights(self)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.tokens(tokens)
        cos, sin = (t.to(h.dtype) for t in rotary_table(tokens.shape[1], self.head_width, tokens.device))
        for block in self.blocks:
            h = block(h, cos, sin)
        return self.head(self.norm(h))


def llama(size: str) -> Llama:
    s = LLAMA_SIZES[size]
    return Llama(s["layers"], s["width"], s["heads"], s["groups"], s["hidden"], s["vocabulary"])


def llama_inputs(size: str) -> tuple[Tensor, ...]:
    s = LLAMA_SIZES[size]
    return random_text(s["vocabulary"], s["batch"], s["length"])


# BERT. Its attention is written out, with the padding mask and dropout of the probabilities, so that their tensors
# appear in the graph. The task of predicting the next sentence is left out.

BERT_SIZES = {
    "small": dict(layers=8, width=128, heads=4, vocabulary=1024, length=128, batch=8),
    "full": dict(layers=12, width=768, heads=12, vocabulary=30522, length=512, batch=16),
}
IGNORED = -100  # the target of a token that takes no part in the loss
MASK_TOKEN = 0


class MaskedAttention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out, self.dropout = nn.Linear(width, width), nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        q, k, v = (split_heads(projection(x), self.heads) for projection in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        probabilities = scores.masked_fill(padding[:, None, None, :], -math.inf).softmax(dim=-1)
        return self.out(merge_heads(self.dropout(probabilities) @ v))


class BertBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.attention, self.dropout = MaskedAttention(width, heads, dropout), nn.Dropout(dropout)
        self.feed_forward = FeedForward(width, 4 * width, dropout)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, h: Tensor, padding: Tensor) -> Tensor:
        h = self.norm1(h + self.dropout(self.attention(h, padding)))
        return self.norm2(h + self.feed_forward(h))


class Bert(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, length: int, dropout: float = 0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.blocks = nn.ModuleList(BertBlock(width, heads, dropout) for _ in range(layers))
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        normal_weights(self)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        h = self.dropout(self.norm(self.tokens(tokens) + self.positions(places)))
        for block in self.blocks:
            h = block(h, padding)
        return F.linear(self.transform(h), self.tokens.weight, self.bias)


def bert(size: str) -> Bert:
    s = BERT_SIZES[size]
    return Bert(s["layers"], s["width"], s["heads"], s["vocabulary"], s["length"])


def bert_inputs(size: str) -> tuple[Tensor, ...]:
    """Sentences of random lengths, with 15 % of their tokens masked: tokens, padding mask, targets."""
    s = BERT_SIZES[size]
    shape = (s["batch"], s["length"])
    text = torch.randint(1, s["vocabulary"], shape)
    lengths = torch.randint(s["length"] // 2, s["length"] + 1, (s["batch"], 1))
    padding = torch.arange(s["length"]) >= lengths
    masked = (torch.rand(shape) < 0.15) & ~padding
    return text.masked_fill(masked, MASK_TOKEN), padding, text.masked_fill(~masked, IGNORED)


def masked_token_loss(model: nn.Module, tokens: Tensor, padding: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens, padding).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


# ResNet-50. The small size has the same blocks with a quarter of the channels.

RESNET_SIZES = {
    "small": dict(width=16, classes=100, image=64, batch=32),
    "full": dict(width=64, classes=1000, image=224, batch=64),
}
RESNET_STAGES = (3, 4, 6, 3)


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = 4 * width
        self.reduce, self.expand = conv_norm(inputs, width, 1), conv_norm(width, outputs, 1)
        self.conv = conv_norm(width, width, 3, stride)
        same_shape = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same_shape else conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv(F.relu(self.reduce(x))))
        return F.relu(self.expand(y) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width: int, classes: int):
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
        self.blocks = nn.ModuleList()
        channels = width
        for stage, count in enumerate(RESNET_STAGES):
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                self.blocks.append(Bottleneck(channels, width * 2**stage, stride))
                channels = 4 * width * 2**stage
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))


def resnet50(size: str) -> ResNet:
    s = RESNET_SIZES[size]
    return ResNet(s["width"], s["classes"])


def resnet50_inputs(size: str) -> tuple[Tensor, ...]:
    s = RESNET_SIZES[size]
    return random_images(s["batch"], s["image"], s["classes"])


# A U-Net for diffusion. It predicts the noise that was added to an image. Each output on the way down is concatenated
# to an input on the way up.

UNET_SIZES = {
    "small": dict(channels=3, width=16, factors=(1, 2, 3), repeats=2, image=32, batch=16),
    "full": dict(channels=3, width=192, factors=(1, 2, 3, 4), repeats=3, image=64, batch=8),
}


def group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(min(32, channels // 4), channels)


def time_features(time: Tensor, width: int) -> Tensor:
    """Sines and cosines of the time at geometric frequencies: (batch, width)."""
    frequency = 10000.0 ** (-torch.arange(0, width, 2, device=time.device, dtype=torch.float32) / width)
    angle = 1000 * time[:, None] * frequency
    return torch.cat((angle.sin(), angle.cos()), dim=1)


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, time_width: int):
        super().__init__()
        self.norm1, self.conv1 = group_norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs)
        self.norm2, self.conv2 = group_norm(outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class AttentionBlock(nn.Module):
    """A residual block and attention among all pixels."""

    def __init__(self, channels: int, time_width: int, head_width: int):
        super().__init__()
        self.residual, self.norm = ResidualBlock(channels, channels, time_width), group_norm(channels)
        self.attention = SelfAttention(channels, channels // head_width, causal=False)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.residual(x, time)
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(pixels).transpose(1, 2).unflatten(2, x.shape[2:])


class Upsample(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class UNet(nn.Module):
    def __init__(self, channels: int, width: int, factors: tuple[int, ...], repeats: int):
        super().__init__()
        self.width, self.repeats = width, repeats
        time_width = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time_width), nn.SiLU(), nn.Linear(time_width, time_width), nn.SiLU())
        self.entry = nn.Conv2d(channels, width, 3, padding=1)
        widths = [width * factor for factor in factors]
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        skips, current = [width], width
        for level, target in enumerate(widths):
            for _ in range(repeats):
                self.down.append(ResidualBlock(current, target, time_width))
                current = target
                skips.append(current)
            if level + 1 < len(widths):
                self.shrink.append(nn.Conv2d(current, current, 3, stride=2, padding=1))
                skips.append(current)
        self.middle = nn.ModuleList(AttentionBlock(current, time_width, head_width=width // 4) for _ in range(2))
        for level, target in reversed(list(enumerate(widths))):
            for _ in range(repeats + 1):
                self.up.append(ResidualBlock(current + skips.pop(), target, time_width))
                current = target
            if level > 0:
                self.grow.append(Upsample(current))
        self.exit = nn.Sequential(group_norm(width), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        time = self.time(time_features(time, self.width).to(x.dtype))
        h = self.entry(x)
        skips = [h]
        for i, block in enumerate(self.down):
            h = block(h, time)
            skips.append(h)
            if (i + 1) % self.repeats == 0 and i + 1 < len(self.down):
                h = self.shrink[i // self.repeats](h)
                skips.append(h)
        for block in self.middle:
            h = block(h, time)
        for i, block in enumerate(self.up):
            h = block(torch.cat((h, skips.pop()), dim=1), time)
            if (i + 1) % (self.repeats + 1) == 0 and i + 1 < len(self.up):
                h = self.grow[i // (self.repeats + 1)](h)
        return self.exit(h)


def unet(size: str) -> UNet:
    s = UNET_SIZES[size]
    return UNet(s["channels"], s["width"], s["factors"], s["repeats"])


def unet_inputs(size: str) -> tuple[Tensor, ...]:
    """Images, noise, and times between 0 and 1."""
    s = UNET_SIZES[size]
    shape = (s["batch"], s["channels"], s["image"], s["image"])
    return torch.randn(shape), torch.randn(shape), torch.rand(s["batch"])


def diffusion_loss(model: nn.Module, images: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    angle = time[:, None, None, None] * (math.pi / 2)
    return F.mse_loss(model(angle.cos() * images + angle.sin() * noise, time), noise)


# A vision transformer. The full size is ViT-B/16.

VIT_SIZES = {
    "small": dict(layers=8, width=128, heads=4, patch=8, image=64, classes=100, batch=16),
    "full": dict(layers=12, width=768, heads=12, patch=16, image=224, classes=1000, batch=64),
}


class ViTBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.dropout1 = SelfAttention(width, heads, causal=False), nn.Dropout(dropout)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout2, self.dropout3 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.dropout1(self.attention(self.norm1(h)))
        y = self.dropout2(F.gelu(self.expand(self.norm2(h))))
        return h + self.dropout3(self.contract(y))


class ViT(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, patch: int, image: int, classes: int, dropout: float = 0.1
    ):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (image // patch) ** 2 + 1, width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(ViTBlock(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat((self.class_token.expand(len(x), -1, -1), patches), dim=1)
        h = self.dropout(h + self.positions)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h[:, 0]))


def vit(size: str) -> ViT:
    s = VIT_SIZES[size]
    return ViT(s["layers"], s["width"], s["heads"], s["patch"], s["image"], s["classes"])


def vit_inputs(size: str) -> tuple[Tensor, ...]:
    s = VIT_SIZES[size]
    return random_images(s["batch"], s["image"], s["classes"])


# A mixture of experts. Each token goes to the two experts that the router prefers. Each expert has a fixed number of
# places; a token that finds no place is passed on by the residual connection alone.

MOE_SIZES = {
    "small": dict(layers=8, width=64, heads=4, experts=8, vocabulary=1024, length=128, batch=8),
    "full": dict(layers=12, width=768, heads=12, experts=8, vocabulary=50257, length=1024, batch=8),
}


class MixtureOfExperts(nn.Module):
    def __init__(self, width: int, hidden: int, experts: int, chosen: int = 2, spare: float = 1.25):
        super().__init__()
        self.experts, self.chosen, self.spare = experts, chosen, spare
        self.router = nn.Linear(width, experts, bias=False)
        self.expand = nn.Parameter(0.02 * torch.randn(experts, width, hidden))
        self.contract = nn.Parameter(0.02 * torch.randn(experts, hidden, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mixed answers of the experts, and the loss that balances their load."""
        tokens = x.flatten(0, 1)
        count, width = tokens.shape
        capacity = math.ceil(self.spare * self.chosen * count / self.experts)

        preference = self.router(tokens).softmax(dim=-1)
        weight, expert = preference.topk(self.chosen, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)

        # The requests are ordered by rank: the first choices of all tokens come before the second choices.
        request = expert.t().flatten()
        is_chosen = request[:, None] == torch.arange(self.experts, device=x.device)
        place = is_chosen.cumsum(dim=0).gather(1, request[:, None]).squeeze(1) - 1
        no_slot = self.experts * capacity
        slot = torch.where(place < capacity, request * capacity + place, no_slot)

        inbox = tokens.new_zeros(no_slot + 1, width).index_add(0, slot, tokens.repeat(self.chosen, 1))
        hidden = F.gelu(torch.bmm(inbox[:no_slot].view(self.experts, capacity, width), self.expand))
        outbox = torch.bmm(hidden, self.contract).flatten(0, 1)
        answers = F.pad(outbox, (0, 0, 0, 1)).index_select(0, slot).view(self.chosen, count, width)
        mixed = (answers * weight.t()[:, :, None]).sum(dim=0)

        load = is_chosen.to(x.dtype).mean(dim=0)
        balance = self.experts * (load * preference.mean(dim=0)).sum()
        return mixed.view_as(x), balance


class MoEBlock(nn.Module):
    def __init__(self, width: int, heads: int, experts: int, dropout: float):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal=True)
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.mixture = MixtureOfExperts(width, 4 * width, experts)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        h = h + self.dropout1(self.attention(self.norm1(h)))
        y, balance = self.mixture(self.norm2(h))
        return h + self.dropout2(y), balance


class MoE(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, experts: int, vocabulary: int, length: int, dropout: float = 0.1
    ):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(MoEBlock(width, heads, experts, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        normal_weights(self)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        h = self.dropout(self.tokens(tokens) + self.positions(places))
        balances = []
        for block in self.blocks:
            h, balance = block(h)
            balances.append(balance)
        return self.head(self.norm(h)), torch.stack(balances).mean()


def moe(size: str) -> MoE:
    s = MOE_SIZES[size]
    return MoE(s["layers"], s["width"], s["heads"], s["experts"], s["vocabulary"], s["length"])


def moe_inputs(size: str) -> tuple[Tensor, ...]:
    s = MOE_SIZES[size]
    return random_text(s["vocabulary"], s["batch"], s["length"])


def balanced_next_token_loss(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    logits, balance = model(tokens)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + 0.01 * balance


# A language model of LSTM layers. The matrix of the output layer is that of the token embedding.
#
# The cell is written out, because nn.LSTM gives no useful graph (PyTorch 2.15). On the CPU, it can be traced, as one
# operation mkldnn_rnn_layer for each layer; but the workspace that this operation keeps for the backward pass is larger
# than its output, and the trace gives it 0 bytes. With fake parameters on a GPU, the constructor of nn.LSTM reads their
# addresses and fails. The full size has 128 steps, so that its graph has fewer than 30,000 operations.

LSTM_SIZES = {
    "small": dict(layers=4, width=128, vocabulary=1024, length=32, batch=64),
    "full": dict(layers=4, width=1024, vocabulary=10000, length=128, batch=128),
}


class LSTMLayer(nn.Module):
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.width = width
        self.from_input = nn.Linear(width, 4 * width)
        self.from_state = nn.Parameter(torch.empty(4 * width, width))
        nn.init.uniform_(self.from_state, -(width**-0.5), width**-0.5)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """From (length, batch, width) to the hidden states, of the same shape. The initial state is zero."""
        weight = self.from_state.t()
        hidden = cell = x.new_zeros(x.shape[1:])
        states = []
        for gates in self.from_input(x).unbind():
            i, f, g, o = torch.addmm(gates, hidden, weight).chunk(4, dim=1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
            states.append(hidden)
        return self.dropout(torch.stack(states))


class LSTM(nn.Module):
    def __init__(self, layers: int, width: int, vocabulary: int, dropout: float = 0.1):
        super().__init__()
        self.tokens, self.dropout = nn.Embedding(vocabulary, width), nn.Dropout(dropout)
        self.layers = nn.ModuleList(LSTMLayer(width, dropout) for _ in range(layers))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.uniform_(self.tokens.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.dropout(self.tokens(tokens.t()))
        for layer in self.layers:
            h = layer(h)
        return F.linear(h.transpose(0, 1), self.tokens.weight, self.bias)


def lstm(size: str) -> LSTM:
    s = LSTM_SIZES[size]
    return LSTM(s["layers"], s["width"], s["vocabulary"])


def lstm_inputs(size: str) -> tuple[Tensor, ...]:
    s = LSTM_SIZES[size]
    return random_text(s["vocabulary"], s["batch"], s["length"])


# A Fourier neural operator in two dimensions. It maps a function on a grid to another.

FNO_SIZES = {
    "small": dict(layers=8, width=16, modes=8, grid=64, batch=8),
    "full": dict(layers=8, width=64, modes=16, grid=256, batch=16),
}


class SpectralConv(nn.Module):
    """Multiplies the lowest frequencies by complex matrices and drops the others."""

    def __init__(self, width: int, modes: int):
        super().__init__()
        self.modes = modes
        # Rows of frequencies 0 .. modes - 1 and -modes .. -1; the real transform has no negative columns.
        self.weight = nn.Parameter(torch.randn(width, width, 2 * modes, modes, 2) / width)

    def forward(self, x: Tensor) -> Tensor:
        height, columns = x.shape[-2:]
        m = self.modes
        spectrum = torch.fft.rfft2(x, norm="ortho")
        low = torch.cat((spectrum[:, :, :m, :m], spectrum[:, :, -m:, :m]), dim=2)
        low = torch.einsum("bihw,iohw->bohw", low, torch.view_as_complex(self.weight))
        low = F.pad(low, (0, columns // 2 + 1 - m))
        middle = low.new_zeros(low.shape[0], low.shape[1], height - 2 * m, low.shape[3])
        spectrum = torch.cat((low[:, :, :m], middle, low[:, :, m:]), dim=2)
        return torch.fft.irfft2(spectrum, s=(height, columns), norm="ortho")


class FourierBlock(nn.Module):
    def __init__(self, width: int, modes: int):
        super().__init__()
        self.spectral, self.pointwise = SpectralConv(width, modes), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.spectral(x) + self.pointwise(x))


class FNO(nn.Module):
    def __init__(self, layers: int, width: int, modes: int):
        super().__init__()
        self.lift = nn.Conv2d(3, width, 1)
        self.blocks = nn.ModuleList(FourierBlock(width, modes) for _ in range(layers))
        self.project = nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.GELU(), nn.Conv2d(2 * width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        rows = torch.linspace(0, 1, height, device=x.device, dtype=x.dtype)[:, None].expand(batch, 1, height, width)
        columns = torch.linspace(0, 1, width, device=x.device, dtype=x.dtype).expand(batch, 1, height, width)
        h = self.lift(torch.cat((x, rows, columns), dim=1))
        for block in self.blocks:
            h = block(h)
        return self.project(h)


def fno(size: str) -> FNO:
    s = FNO_SIZES[size]
    return FNO(s["layers"], s["width"], s["modes"])


def fno_inputs(size: str) -> tuple[Tensor, ...]:
    s = FNO_SIZES[size]
    shape = (s["batch"], 1, s["grid"], s["grid"])
    return torch.randn(shape), torch.randn(shape)


def regression_loss(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(model(x), target)


NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        Network("mlp", mlp, mlp_inputs, classification_loss, lambda model: list(model.layers)),
        Network("gpt2", gpt2, gpt2_inputs, next_token_loss, lambda model: list(model.blocks)),
        Network("llama", llama, llama_inputs, next_token_loss, lambda model: list(model.blocks)),
        Network("bert", bert, bert_inputs, masked_token_loss, lambda model: list(model.blocks)),
        Network("resnet50", resnet50, resnet50_inputs, classification_loss, lambda model: list(model.blocks)),
        Network("unet", unet, unet_inputs, diffusion_loss, lambda model: [*model.down, *model.middle, *model.up]),
        Network("vit", vit, vit_inputs, classification_loss, lambda model: list(model.blocks)),
        Network("moe", moe, moe_inputs, balanced_next_token_loss, lambda model: list(model.blocks)),
        Network("lstm", lstm, lstm_inputs, next_token_loss, lambda model: list(model.layers)),
        Network("fno", fno, fno_inputs, regression_loss, lambda model: list(model.blocks)),
    )
}
