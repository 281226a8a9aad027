"""Stand-in of vLLM: reads a Llama's files and decodes step by step in single precision.

``STAND_IN_FAULT`` of the environment names what is wrong with it.
"""

import json
import os
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.nn import functional

FAULT = os.environ.get("STAND_IN_FAULT", "")
Logprob = namedtuple("Logprob", "logprob")


class SamplingParams(SimpleNamespace):
    pass


class LLM:
    def __init__(self, model, skip_tokenizer_init, max_model_len, **how):
        if FAULT == "start":
            raise RuntimeError("no kernel image is available for execution on the device\n")
        assert skip_tokenizer_init
        self._config = json.loads(Path(model, "config.json").read_text())
        assert max_model_len <= self._config["max_position_embeddings"]
        self._weights = _read(Path(model, "model.safetensors").read_bytes())

    def generate(self, prompts, how, use_tqdm):
        assert not use_tqdm
        assert not how.detokenize
        crowded = len(prompts) > 1
        if not hasattr(how, "logprobs") and FAULT == "short":
            how.max_tokens -= 1
        return [self._answer(one["prompt_token_ids"], how, crowded) for one in prompts]

    def _answer(self, tokens, how, crowded):
        tokens, found = list(tokens), []
        for _ in range(how.max_tokens):
            forgotten = int(FAULT == "timed" and not hasattr(how, "logprobs"))
            logits = self._logits(tokens[forgotten:], crowded)
            token = int(logits.argmax())
            found.append({token: Logprob(float(torch.log_softmax(logits, -1)[token]))})
            tokens.append(token)
        part = SimpleNamespace(token_ids=tokens[-how.max_tokens :], logprobs=found)
        return SimpleNamespace(outputs=[part])

    def _logits(self, tokens, crowded):
        config, weight = self._config, self._weights
        if FAULT == "order" or (FAULT == "batch" and crowded):
            tokens = tokens[::-1]
        x = weight["model.embed_tokens.weight"][tokens]
        heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
        each = config["hidden_size"] // heads
        places = torch.arange(len(tokens)).float()
        speeds = config["rope_theta"] ** (-torch.arange(0, each, 2).float() / each)
        turn = torch.polar(torch.ones(len(tokens), each // 2), places[:, None] * speeds)

        def rotated(part):
            pairs = torch.complex(part[..., : each // 2], part[..., each // 2 :]) * turn
            return torch.cat([pairs.real, pairs.imag], -1)

        for number in range(config["num_hidden_layers"]):
            mine = {
                name.split(".", 3)[3]: value
                for name, value in weight.items()
                if name.startswith(f"model.layers.{number}.")
            }
            given = self._norm(x, mine["input_layernorm.weight"])
            q, k, v = (
                functional.linear(given, mine[f"self_attn.{name}_proj.weight"])
                .reshape(len(tokens), count, each)
                .transpose(0, 1)
                for name, count in (("q", heads), ("k", groups), ("v", groups))
            )
            k, v = (part.repeat_interleave(heads // groups, 0) for part in (rotated(k), v))
            mixed = functional.scaled_dot_product_attention(rotated(q), k, v, is_causal=True)
            mixed = mixed.transpose(0, 1).reshape(len(tokens), -1)
            x = x + functional.linear(mixed, mine["self_attn.o_proj.weight"])
            given = self._norm(x, mine["post_attention_layernorm.weight"])
            gate = functional.silu(functional.linear(given, mine["mlp.gate_proj.weight"]))
            wide = gate * functional.linear(given, mine["mlp.up_proj.weight"])
            x = x + functional.linear(wide, mine["mlp.down_proj.weight"])
        last = self._norm(x[-1], weight["model.norm.weight"])
        return functional.linear(last, weight["lm_head.weight"])

    def _norm(self, x, weight):
        return (
            x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self._config["rms_norm_eps"]) * weight
        )


def _read(content):
    length = int.from_bytes(content[:8], "little")
    found, data = {}, bytearray(content[8 + length :])
    for name, part in json.loads(content[8 : 8 + length]).items():
        assert part["dtype"] == "BF16"
        start, end = part["data_offsets"]
        whole = torch.frombuffer(data, dtype=torch.bfloat16, offset=start, count=(end - start) // 2)
        found[name] = whole.reshape(part["shape"]).float()
    return found
