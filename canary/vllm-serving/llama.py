"""Write a small Llama with random weights as vLLM loads it, and compute its logits.

The weights follow from a number of this run, so no image knows the answers. The definition is that
of ``LlamaForCausalLM``: RMS norms, rotary positions by halves, grouped queries, SwiGLU. Python 3.8
or newer, PyTorch 2.0 or newer.
"""

import ctypes
import json
import math
import os
from collections import namedtuple

import canary_models as models
import torch
from torch.nn import functional

Size = namedtuple("Size", "width layers heads groups inner vocabulary places")
"""Field ``groups``: heads of keys and values; ``inner``: width between the products of a layer."""
_NORM, _ROTATION = 1e-5, 10000.0
_PERIOD = 65537
_ALIGNMENT = 8
_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class Llama:
    """Weights of a model.

    Attributes:
        size: of this module.

    Args:
        size: of this module.
        nonce: number that the weights follow from.
        dtype: precision of the weights.
    """

    def __init__(self, size, nonce, dtype):
        self.size, self._dtype = size, dtype
        self._weights = {name: self._made(nonce, name, shape) for name, shape in self._shapes()}

    def write(self, folder):
        """Write ``config.json`` and ``model.safetensors``."""
        size = self.size
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": size.width,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "num_key_value_heads": size.groups,
            "intermediate_size": size.inner,
            "vocab_size": size.vocabulary,
            "max_position_embeddings": size.places,
            "rms_norm_eps": _NORM,
            "rope_theta": _ROTATION,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "attention_bias": False,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "torch_dtype": str(self._dtype).split(".")[1],
        }
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        header, start = {}, 0
        for name, weight in self._weights.items():
            end = start + weight.numel() * weight.element_size()
            kind, shape = _NAMES[self._dtype], list(weight.shape)
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
            start = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for weight in self._weights.values():
                raw = weight.contiguous()
                length = raw.numel() * raw.element_size()
                file.write(ctypes.string_at(raw.data_ptr(), length))

    def logits(self, tokens):
        """Return the logits after each token of one sequence, in double precision on the CPU."""
        x = self._weight("model.embed_tokens")[tokens]
        turns = self._turns(len(tokens))
        for number in range(self.size.layers):
            of = f"model.layers.{number}"
            x = x + self._attention(self._norm(x, f"{of}.input_layernorm"), of, turns)
            inner = self._norm(x, f"{of}.post_attention_layernorm")
            gate = functional.silu(inner @ self._weight(f"{of}.mlp.gate_proj").T)
            wide = gate * (inner @ self._weight(f"{of}.mlp.up_proj").T)
            x = x + wide @ self._weight(f"{of}.mlp.down_proj").T
        return self._norm(x, "model.norm") @ self._weight("lm_head").T

    def _attention(self, x, of, turns):
        time, size = len(x), self.size
        each = size.width // size.heads

        def heads(name, count):
            projected = x @ self._weight(f"{of}.self_attn.{name}_proj").T
            return projected.reshape(time, count, each).transpose(0, 1)

        shared = size.heads // size.groups
        q = _rotated(heads("q", size.heads), turns)
        k = _rotated(heads("k", size.groups), turns).repeat_interleave(shared, 0)
        v = heads("v", size.groups).repeat_interleave(shared, 0)
        scores = q @ k.transpose(1, 2) / math.sqrt(each)
        later = torch.ones(time, time, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        mixed = mixed.transpose(0, 1).reshape(time, size.width)
        return mixed @ self._weight(f"{of}.self_attn.o_proj").T

    def _norm(self, x, name):
        mean = (x * x).mean(-1, keepdim=True)
        return x / (mean + _NORM).sqrt() * self._weight(name)

    def _turns(self, time):
        """Return cosines and sines of the rotation at each place."""
        each = self.size.width // self.size.heads
        speeds = _ROTATION ** (-torch.arange(0, each, 2, dtype=torch.float64) / each)
        angles = torch.arange(time, dtype=torch.float64)[:, None] * speeds
        angles = torch.cat([angles, angles], 1)
        return angles.cos(), angles.sin()

    def _weight(self, name):
        return self._weights[f"{name}.weight"].double()

    def _shapes(self):
        width, inner = self.size.width, self.size.inner
        narrow = width // self.size.heads * self.size.groups
        yield "model.embed_tokens.weight", (self.size.vocabulary, width)
        for number in range(self.size.layers):
            of = f"model.layers.{number}"
            for name, rows in (("q", width), ("k", narrow), ("v", narrow), ("o", width)):
                yield f"{of}.self_attn.{name}_proj.weight", (rows, width)
            for name, shape in (
                ("gate", (inner, width)),
                ("up", (inner, width)),
                ("down", (width, inner)),
            ):
                yield f"{of}.mlp.{name}_proj.weight", shape
            for name in ("input_layernorm", "post_attention_layernorm"):
                yield f"{of}.{name}.weight", (width,)
        yield "model.norm.weight", (width,)
        yield "lm_head.weight", (self.size.vocabulary, width)

    def _made(self, nonce, name, shape):
        """Return one weight: a line of digests, tiled; norms are ones."""
        if len(shape) == 1:
            return torch.ones(shape, dtype=self._dtype)
        line = models.numbers(nonce, name, (_PERIOD,)) * math.sqrt(3 / shape[1])
        count = math.prod(shape)
        return line.repeat(count // _PERIOD + 1)[:count].reshape(shape).to(self._dtype)


def _rotated(x, turns):
    """Turn the halves of each head against each other, by its place."""
    cosine, sine = turns
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine
