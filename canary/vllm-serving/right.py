"""Compare greedy answers of a server with double precision.

Greedy answers are not compared token by token: one near tie changes all later tokens. Double
precision follows the tokens that the server chose instead; it must prefer each of them, or another
one only where the two are as close as rounding. The stated log probabilities are compared as well.

Bound of the logits as a share of the largest: about `_ROUNDINGS` results of a layer are rounded on
the way, and errors of random sign add up as the square root of their number ``S``; four standard
deviations are ``4 sqrt(S) u`` (Higham and Mary, SIAM J. Sci. Comput. 41, 2019). Log probabilities
are differences of two such values.
"""

import math

import canary_lines as say
import canary_numerics as numerics
import torch

_ROUNDINGS = 8
_PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def check(server, model, prompts, count, dtype):
    """Report the checks of answers: of each prompt alone, and of all in one batch.

    Args:
        server: of `serving`.
        model: of `llama`.
        prompts: lists of tokens, of different lengths.
        count: number of tokens of an answer.
        dtype: precision that the server computes in.
    """
    allowed = _allowed(model, dtype)
    alone = [server.answer([prompt], count)[0] for prompt in prompts]
    margin, off, others = _worst(model, prompts, alone)
    total = count * len(prompts)
    message = f"margin {margin:.3g}, allowed {allowed:.3g}; {others} of {total} tokens differ"
    say.check("answers", margin <= allowed, message)
    numerics.check_error("probabilities", off, allowed)
    margin, off, others = _worst(model, prompts, server.answer(prompts, count))
    message = f"margin {margin:.3g}, log probabilities {off:.3g}, allowed {allowed:.3g}"
    say.check("batch", max(margin, off) <= allowed, f"{message}; {others} tokens differ")


def check_timed(model, served, count, dtype):
    """Report the check of answers that were timed, which state no log probabilities.

    Args:
        model: of `llama`.
        served: pairs of a prompt and the tokens of its answer.
        count: number of tokens of an answer.
        dtype: precision that the server computes in.
    """
    short = [len(tokens) for _, tokens in served if len(tokens) != count]
    if short:
        say.check("timed", False, f"an answer has {short[0]} tokens instead of {count}")
        return
    allowed = _allowed(model, dtype)
    prompts = [prompt for prompt, _ in served]
    margin, _, others = _worst(model, prompts, [(tokens, ()) for _, tokens in served])
    message = f"margin {margin:.3g}, allowed {allowed:.3g}"
    total = count * len(served)
    say.check("timed", margin <= allowed, f"{message}; {others} of {total} tokens differ")


def _allowed(model, dtype):
    """Return the largest difference of two values that rounding explains."""
    size = model.size
    terms = size.width if dtype == torch.float32 else 1
    steps = _ROUNDINGS * size.layers + 4
    return 8 * math.sqrt(steps * terms) * numerics.ROUNDING[_PRECISIONS[dtype]]


def _worst(model, prompts, answers):
    """Return the largest margin and error as shares of the largest logit, and other tokens."""
    margins, errors, others = [0.0], [0.0], 0
    for prompt, (tokens, stated) in zip(prompts, answers):
        logits = model.logits(torch.tensor(prompt + tokens))[len(prompt) - 1 : -1]
        scale = float(logits.abs().max())
        right = torch.log_softmax(logits, -1)
        for step, token in enumerate(tokens):
            margins.append(float(logits[step].max() - logits[step, token]) / scale)
            others += int(logits[step].argmax()) != token
        for step, said in enumerate(stated):
            difference = abs(said - float(right[step, tokens[step]])) / scale
            errors.append(difference if math.isfinite(difference) else math.inf)
    return max(margins), max(errors), others
