"""Time a larger decoder: the first token, tokens a second, and the logits that were timed last."""

import canary_models as models
import canary_numerics as numerics
import canary_timing as timing
import torch
from decoder import Size, exact, made
from quality import bound_of

SIZES = {"cuda": Size(2048, 24, 16, 32768, 1024), "cpu": Size(64, 2, 4, 512, 32)}
WORDS, COUNT = {"cuda": 512, "cpu": 8}, {"cuda": 32, "cpu": 4}
BATCHES = {"alone": 1, "batch": 16}
_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def measure(options, device, progress):
    """Report the time to the first token and the rate of the others, alone and in a batch."""
    models.usual_arithmetic()
    model = made(SIZES[device.type], options.seed, device, models.reduced_precision(device))
    clock = timing.WallClock(torch.cuda.synchronize if device.type == "cuda" else None)
    words, count, shares = WORDS[device.type], COUNT[device.type], []
    for name, batch in BATCHES.items():
        numbers = models.numbers(options.seed, "speed", (batch, words))
        prompts = ((numbers * 32768).long() % model.size.vocabulary).to(device)
        cache = model.cache(batch)
        last = {}

        def first(prompts=prompts, cache=cache, last=last):
            with torch.no_grad():
                last["first"] = model(prompts, cache, 0)
                # The server sends the token, so it must arrive on the host.
                return last["first"].argmax(-1).cpu()

        begin = first().to(device).unsqueeze(1)

        def others(token=begin, cache=cache, last=last):
            last["tokens"] = [token]
            with torch.no_grad():
                for step in range(count):
                    last["logits"] = model(token, cache, words + step)
                    token = last["logits"].argmax(-1, keepdim=True)
                    last["tokens"].append(token)
                    token.cpu()

        times = timing.repeat(first, clock, options)
        timing.report(f"{name}-first-token", "ms", times, timing.milliseconds)
        times = timing.repeat(others, clock, options)
        timing.report(f"{name}-rate", "tokens/s", times, timing.per_second(batch * count))
        shares.append(_share(model, prompts, last))
        progress.done()
    numerics.check_error(
        "timed", max(shares), bound_of(model.size, _NAMES[model.head.weight.dtype])
    )


def _share(model, prompts, last):
    """Return the largest error of the logits that were timed last, of two of the sequences."""
    tokens = torch.cat([prompts, *last["tokens"][:-1]], 1)
    places = prompts.shape[1] - 1, tokens.shape[1] - 1
    worst = 0.0
    for row in {0, len(tokens) - 1}:
        found = torch.stack([last["first"][row], last["logits"][row]]).double()
        worst = max(worst, numerics.rows_error(found, exact(model, tokens[row], places)))
    return worst
