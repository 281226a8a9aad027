"""Define a small transformer and a small convnet of PyTorch with reproducible weights and data.

No number comes from a framework's random generator: those differ between CPU and GPU, and may
differ between releases. Import the module after `canary_env.torch`, which prints the env line.
Python 3.8 or newer, PyTorch 1.13 or newer.
"""

import hashlib
import math

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 61
CLASSES = 8
_ATTENTION = getattr(functional, "scaled_dot_product_attention", None)


def numbers(seed, name, shape):
    """Return numbers in -1..1, equal on all platforms: digests of seed and name, 16 bits each.

    Returns:
        An fp32 tensor on the CPU with the exact numbers.
    """
    count = math.prod(shape)
    raw = bytearray(hashlib.shake_128(f"{seed}:{name}".encode()).digest(2 * count))
    return (torch.frombuffer(raw, dtype=torch.int16).float() / 32768).reshape(shape)


def filled(model, seed):
    """Set a model's weights from a seed: uniform, with a variance that preserves the signals' size.

    Biases are zero; norms start as the identity.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                inputs = weight[0].numel() if "embedding" not in name else weight.shape[1]
                weight.copy_(numbers(seed, name, weight.shape) * math.sqrt(3 / inputs))
            elif name.endswith("bias"):
                weight.zero_()
    return model


class Attention(nn.Module):
    """Causal self-attention.

    Args:
        fused: use the framework's function; otherwise products and a softmax, step by step.
    """

    def __init__(self, width, heads, fused):
        super().__init__()
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.fused = heads, fused and _ATTENTION is not None

    def forward(self, x):
        """Map batch x time x width to the same shape."""
        batch, time, width = x.shape
        shape = batch, time, 3, self.heads, width // self.heads
        q, k, v = self.inward(x).reshape(shape).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = _ATTENTION(q, k, v, is_causal=True)
        else:
            later = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
            mixed = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.outward(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """Layer of a transformer, norms first."""

    def __init__(self, width, heads, fused):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, fused)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """Map batch x time x width to the same shape."""
        x = x + self.attention(self.before(x))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Transformer(nn.Module):
    """Model that predicts the next token at each position."""

    def __init__(self, width, layers, heads, time, fused=True):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.place_embedding = nn.Embedding(time, width)
        self.blocks = nn.Sequential(*(Block(width, heads, fused) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        """Map batch x time to batch x time x vocabulary."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + self.place_embedding(places)
        return self.head(self.norm(self.blocks(x)))


class Residual(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))

    def forward(self, x):
        """Map images to images, smaller by the stride."""
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(inner)) + self.around(x))


class Convnet(nn.Module):
    """Small residual network that classifies images."""

    def __init__(self, width, stages):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        sizes = [width * 2**stage for stage in range(stages)]
        self.stages = nn.Sequential(
            *(Residual(max(size // 2, width), size, 1 if size == width else 2) for size in sizes)
        )
        self.head = nn.Linear(sizes[-1], CLASSES)

    def forward(self, images):
        """Map batch x 3 x height x width to batch x classes."""
        return self.head(self.stages(functional.relu(self.stem(images))).mean((2, 3)))


def sequences(seed, batch, time, step=0):
    """Return token sequences with a learnable rule: each is five times the last, plus three.

    Returns:
        Inputs and their next tokens, batch x time each.
    """
    start = (numbers(seed, f"tokens {step}", (batch,)) * 32768).long() % VOCABULARY
    rows = [start]
    for _ in range(time):
        rows.append((rows[-1] * 5 + 3) % VOCABULARY)
    tokens = torch.stack(rows, 1)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def images(seed, batch, side, step=0):
    """Return images of classes: one pattern each, under noise.

    Returns:
        Images, batch x 3 x side x side, and their classes.
    """
    classes = torch.arange(batch) % CLASSES
    patterns = numbers(seed, "patterns", (CLASSES, 3, side, side))
    return numbers(seed, f"images {step}", (batch, 3, side, side)) + patterns[classes], classes


def loss_of(outputs, wanted):
    """Return the mean cross entropy, summed at least in fp32."""
    wide = outputs if outputs.dtype == torch.float64 else outputs.float()
    return functional.cross_entropy(wide.flatten(0, -2), wanted.flatten())


def reduced_precision(device):
    """Return the half precision of a device: bf16, or fp16 before compute capability 8.0."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device)[0] < 8:
        return torch.float16
    return torch.bfloat16


def plain_arithmetic():
    """Set full fp32 without TF32, and deterministic algorithms.

    ``CUBLAS_WORKSPACE_CONFIG`` must be set before CUDA starts.
    """
    tf32(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True)


def usual_arithmetic():
    """Set what training scripts usually set: TF32 allowed, cuDNN autotuning."""
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False
    torch.backends.cudnn.benchmark = True
    tf32(True)


def tf32(allowed):
    """Set whether fp32 products may be computed in TF32."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
