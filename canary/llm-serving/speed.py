"""Time a larger decoder with random weights: the first token, and tokens a second."""

import canary_models as models
import canary_timing as timing
import torch
from decoder import Size, made

SIZES = {"cuda": Size(2048, 24, 16, 32768, 1024), "cpu": Size(64, 2, 4, 512, 32)}
WORDS, COUNT = {"cuda": 512, "cpu": 8}, {"cuda": 32, "cpu": 4}
BATCHES = {"alone": 1, "batch": 16}


def measure(options, device, progress):
    """Report the time to the first token and the rate of the others, alone and in a batch."""
    models.usual_arithmetic()
    model = made(SIZES[device.type], options.seed, device, models.reduced_precision(device))
    clock = timing.WallClock(torch.cuda.synchronize if device.type == "cuda" else None)
    words, count = WORDS[device.type], COUNT[device.type]
    for name, batch in BATCHES.items():
        numbers = models.numbers(options.seed, "speed", (batch, words))
        prompts = ((numbers * 32768).long() % model.size.vocabulary).to(device)
        cache = model.cache(batch)

        def first(prompts=prompts, cache=cache):
            with torch.no_grad():
                # The server sends the token, so it must arrive on the host.
                return model(prompts, cache, 0).argmax(-1).cpu()

        begin = first().to(device).unsqueeze(1)

        def others(token=begin, cache=cache):
            with torch.no_grad():
                for step in range(count):
                    token = model(token, cache, words + step).argmax(-1, keepdim=True)
                    token.cpu()

        times = timing.repeat(first, clock, options)
        timing.report(f"{name}-first-token", "ms", times, timing.milliseconds)
        times = timing.repeat(others, clock, options)
        timing.report(f"{name}-rate", "tokens/s", times, timing.per_second(batch * count))
        progress.done()
