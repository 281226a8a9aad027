"""Compare answers to fixed prompts with double precision, in each precision.

Greedy answers are not compared token by token: one near tie changes all later tokens. The tokens
that double precision chose are given to each precision instead. Its logits must be within rounding
at every step, and where it would choose another token, the two must be as close as rounding allows.

Bound of the logits, as a share of the largest: about `_ROUNDINGS` results of a layer are rounded to
the precision on the way, and the errors of random sign add up as the square root of their number
``S``; four standard deviations are ``4 sqrt(S) u`` (the model of Higham and Mary, SIAM J. Sci.
Comput. 41, 2019). Sums in fp32 of ``k`` terms add ``sqrt(k)`` roundings each where the result stays
in fp32. It is far below the error of the next coarser precision.
"""

import math

import canary_lines as say
import canary_models as models
import canary_numerics as numerics
import torch
from decoder import Size, follow, greedy, made

SIZES = {"cuda": Size(512, 6, 8, 4096, 96), "cpu": Size(64, 2, 4, 512, 24)}
PROMPTS, WORDS = 4, {"cuda": (32, 48), "cpu": (8, 12)}
"""Prompts, and the tokens of each and of its answer."""
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_ROUNDINGS = 8


def check(seed, device):
    """Report a check for each precision, one of the cache, and one of the batch."""
    models.plain_arithmetic()
    torch.use_deterministic_algorithms(False)
    size = SIZES[device.type]
    words, count = WORDS[device.type]
    numbers = models.numbers(seed, "prompts", (PROMPTS, words))
    prompts = (numbers * 32768).long() % size.vocabulary
    exact = made(size, seed, torch.device("cpu"), torch.float64)
    tokens, wanted = greedy(exact, prompts, count)
    old = device.type == "cuda" and models.reduced_precision(device) == torch.float16
    for name, dtype in PRECISIONS.items():
        if old and name == "bf16":
            say.skip(f"{name}-answers", "this GPU has no bf16")
            continue
        model = made(size, seed, device, dtype)
        logits = follow(model, prompts.to(device), tokens.to(device))
        found = [step.cpu().double() for step in logits]
        _answers(name, found, wanted, tokens, bound_of(size, name))
        if name == "fp32":
            _cache(model, prompts.to(device), tokens.to(device), logits, bound_of(size, name))
            _batch(model, prompts.to(device), tokens.to(device), logits, bound_of(size, name))


def bound_of(size, precision):
    """Return the largest error allowed of logits in a precision, see above."""
    steps = _ROUNDINGS * size.layers + 4
    terms = size.width if precision == "fp32" else 1
    return 4 * math.sqrt(steps * terms) * numerics.ROUNDING[precision]


def _answers(name, found, wanted, tokens, bound):
    worst = max(numerics.error(ours, right) for ours, right in zip(found, wanted))
    others, wrong = 0, 0
    for step, (ours, right) in enumerate(zip(found, wanted)):
        chosen, best = ours.argmax(-1), tokens[:, step]
        rows = torch.arange(len(best))
        margin = right[rows, best] - right[rows, chosen]
        near = margin <= 2 * bound * right.abs().max()
        others += int((chosen != best).sum())
        wrong += int((~near).sum())
    message = f"logits at {worst:.3g}, allowed {bound:.3g}; {others} of {tokens.numel()} tokens"
    message += f" differ, {wrong} of them without a near tie"
    say.check(f"{name}-answers", worst <= bound and not wrong, message)


@torch.no_grad()
def _cache(model, prompts, tokens, logits, bound):
    """Compare the last step, which the cache made, with one pass over all tokens."""
    whole = torch.cat([prompts, tokens[:, :-1]], 1)
    again = model(whole, model.cache(len(whole)), 0)
    numerics.check_error("cache", numerics.error(again, logits[-1]), 2 * bound)


def _batch(model, prompts, tokens, logits, bound):
    """Compare the answers of a batch with those of each prompt alone."""
    worst = 0.0
    for row in range(len(prompts)):
        alone = follow(model, prompts[row : row + 1], tokens[row : row + 1])
        together = (step[row : row + 1] for step in logits)
        errors = (numerics.error(one, other) for one, other in zip(alone, together))
        worst = max(worst, *errors)
    numerics.check_error("batch", worst, 2 * bound)
