"""Serve a language model with random weights through vLLM: answers, first token, rate."""

import importlib.util
import os
import shutil
import sys
import tempfile
from importlib import metadata

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402

WORDS, TOKENS = {"cuda": 256, "cpu": 8}, {"cuda": 128, "cpu": 4}
"""Tokens of a prompt and of an answer that are timed."""
CHECKED = {"cuda": ((40, 64, 96, 17), 32), "cpu": ((5, 8, 3), 4)}
"""Lengths of the prompts that are compared, and tokens of each answer."""
BATCHES = {"alone": 1, "batch": 16}
COMPARED = 3
"""Timed answers of a batch that are compared, the first and the last among them."""


def main():
    """Write a model, start vLLM, check its answers, then time them."""
    options = program.options(__doc__)
    has = importlib.util.find_spec("vllm") is not None
    torch, device = canary_env.torch(options, vllm=_version() if has else None)
    if not has:
        raise program.NothingToTest("the image has no vLLM")
    import canary_models as models
    import llama
    import right
    import serving

    sizes = {
        "cuda": llama.Size(1024, 8, 16, 8, 2816, 8192, 512),
        "cpu": llama.Size(32, 2, 4, 2, 48, 64, 32),
    }
    size, dtype = sizes[device.type], models.reduced_precision(device)
    nonce = int.from_bytes(os.urandom(6), "little")  # weights and prompts follow from it
    model = llama.Llama(size, nonce, dtype)

    def prompts(name, lengths):
        numbers = [models.numbers(nonce, f"{name} {n}", (many,)) for n, many in enumerate(lengths)]
        return [((part * 32768).long() % size.vocabulary).tolist() for part in numbers]

    folder = tempfile.mkdtemp()
    try:
        model.write(folder)
        server = _started(serving, folder, size, options)
        if server is None:
            return
        lengths, count = CHECKED[device.type]
        right.check(server, model, prompts("checked", lengths), count, dtype)
        clock = timing.WallClock(torch.cuda.synchronize if device.type == "cuda" else None)
        served = []
        for name, batch in BATCHES.items():
            asked = prompts(name, [WORDS[device.type]] * batch)
            answers = _measure(server, options, clock, name, asked)
            places = {round(n * (batch - 1) / (COMPARED - 1)) for n in range(COMPARED)}
            served += [(asked[at], answers[at]) for at in sorted(places)]
        right.check_timed(model, served, TOKENS[device.type], dtype)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a compiler may still write there


def _started(serving, folder, size, options):
    """Report whether vLLM starts, and return the server or None."""
    try:
        server = serving.Server(folder, size.places, options.seed)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        say.check("starts", False, f"{type(error).__name__}: {' / '.join(lines)}"[:400])
        return None
    say.check("starts", True, f"vLLM {_version() or 'without metadata'}")
    return server


def _version():
    """Return the version of the image's vLLM; None if its metadata is missing."""
    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return None


def _measure(server, options, clock, name, prompts):
    """Report the time to the first token and the rate of whole answers; return the last ones."""
    count = TOKENS[options.device]
    first = timing.repeat(lambda: server.serve(prompts, 1), clock, options)
    timing.report(f"{name}-first-token", "ms", first, timing.milliseconds)
    whole, answers = timing.repeat_kept(lambda: server.serve(prompts, count), clock, options)
    timing.report(f"{name}-rate", "tokens/s", whole, timing.per_second(len(prompts) * count))
    return answers


if __name__ == "__main__":
    program.start(main)
