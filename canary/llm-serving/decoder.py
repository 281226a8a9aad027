"""A decoder with a cache of keys and values, as servers of language models run it.

Python 3.8 or newer, PyTorch 2.0 or newer. Weights come from a seed and are equal everywhere.
"""

import copy
import math
from collections import namedtuple

import canary_models as models
import torch
from torch import nn
from torch.nn import functional

Size = namedtuple("Size", "width layers heads vocabulary places")


class Layer(nn.Module):
    """Attention with a cache, and two products; norms first, without biases."""

    def __init__(self, size):
        super().__init__()
        self.heads = size.heads
        self.before, self.between = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.inward = nn.Linear(size.width, 3 * size.width, bias=False)
        self.outward = nn.Linear(size.width, size.width, bias=False)
        self.wide = nn.Linear(size.width, 4 * size.width, bias=False)
        self.narrow = nn.Linear(4 * size.width, size.width, bias=False)

    def forward(self, x, cache, start):
        """Map batch x time x width to the same shape; keys and values go into the cache.

        Args:
            x: of the new tokens.
            cache: of this layer, 2 x batch x heads x places x width of a head.
            start: number of tokens that the cache has.
        """
        batch, time, width = x.shape
        q, k, v = (
            self.inward(self.before(x))
            .reshape(batch, time, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        end = start + time
        cache[0, :, :, start:end], cache[1, :, :, start:end] = k, v
        keys, values = cache[0, :, :, :end], cache[1, :, :, :end]
        # One new token sees all others; several are the first ones.
        mixed = functional.scaled_dot_product_attention(q, keys, values, is_causal=time > 1)
        x = x + self.outward(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Decoder(nn.Module):
    """Model that gives the logits of the next token."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        self.place_embedding = nn.Embedding(size.places, size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)

    def cache(self, batch):
        """Return an empty cache for a number of sequences."""
        size, like = self.size, self.head.weight
        shape = size.layers, 2, batch, size.heads, size.places, size.width // size.heads
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def forward(self, tokens, cache, start):
        """Map new tokens, batch x time, to the logits of the last one, batch x vocabulary."""
        places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + self.place_embedding(places)
        for layer, part in zip(self.layers, cache):
            x = layer(x, part, start)
        return self.head(self.norm(x[:, -1]))


def made(size, seed, device, dtype):
    """Return a decoder with the weights of a seed: digests, tiled over large matrices."""
    with torch.device("meta"):
        model = Decoder(size)
    model = model.to_empty(device=device).to(dtype).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            line = models.numbers(seed, name, (4099,))  # prime: no row repeats another one
            inputs = size.width if "embedding" in name else weight.shape[1]
            line = (line * math.sqrt(3 / inputs)).to(device)
            count = weight.numel()
            weight.copy_(line.repeat(count // 4099 + 1)[:count].reshape(weight.shape))
    return model


@torch.no_grad()
def greedy(model, prompts, count):
    """Decode greedily.

    Returns:
        The new tokens, batch x count, and the logits of each step, a list.
    """
    cache, start = model.cache(prompts.shape[0]), prompts.shape[1]
    logits = [model(prompts, cache, 0)]
    tokens = [logits[-1].argmax(-1)]
    for step in range(count - 1):
        logits.append(model(tokens[-1].unsqueeze(1), cache, start + step))
        tokens.append(logits[-1].argmax(-1))
    return torch.stack(tokens, 1), logits


@torch.no_grad()
def follow(model, prompts, tokens):
    """Return the logits of each step where the given tokens are decoded, a list."""
    cache, start = model.cache(prompts.shape[0]), prompts.shape[1]
    logits = [model(prompts, cache, 0)]
    for step in range(tokens.shape[1] - 1):
        logits.append(model(tokens[:, step : step + 1], cache, start + step))
    return logits


@torch.no_grad()
def exact(model, tokens, places):
    """Return the logits of some places in double precision, in one pass without a cache.

    Layers are widened one after the other: a whole model in double precision fills a small GPU.

    Args:
        model: with the weights to use.
        tokens: of one sequence.
        places: whose next token is asked for.
    """
    count, size = tokens.shape[0], model.size
    x = model.embedding.weight[tokens].double() + model.place_embedding.weight[:count].double()
    x = x.unsqueeze(0)
    cache = x.new_zeros(2, 1, size.heads, count, size.width // size.heads)
    for layer in model.layers:
        x = copy.deepcopy(layer).double()(x, cache, 0)
    norm = copy.deepcopy(model.norm).double()
    return torch.stack([model.head.weight.double() @ norm(x[0, place]) for place in places])
