"""Answer questions with a transformer, and compare the answers with fp64.

Bound, as a share of the largest value: about `_ROUNDINGS` results of a layer are rounded to half
precision, and errors of random sign add up as the square root of their number ``S``; four standard
deviations are ``4 sqrt(S) u`` (Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
"""

import contextlib
import math

import canary_models as models
import canary_numerics as numerics
import torch

TIME, QUESTIONS = 128, 4
SIZES = {"cuda": (8, 512), "cpu": (1, 32)}
"""Layers and width."""
_ROUNDINGS = 8


class Model:
    """Transformer in half precision on a device, for `canary_clients`.

    Args:
        seed: seed of weights and questions.
        device: device to compute on.
    """

    def __init__(self, seed, device):
        models.usual_arithmetic()
        self._device = device
        layers, width = SIZES[device.type]
        half = models.reduced_precision(device)
        exact = models.filled(models.Transformer(width, layers, 8, TIME), seed).eval().double()
        questions = [models.sequences(seed, 1, TIME, number)[0] for number in range(QUESTIONS)]
        with torch.no_grad():
            self._right = [exact(question) for question in questions]
        self._model = exact.to(device, half)
        self._questions = [q.pin_memory() if device.type == "cuda" else q for q in questions]
        name = "fp16" if half == torch.float16 else "bf16"
        self._bound = 4 * math.sqrt(_ROUNDINGS * layers + 4) * numerics.ROUNDING[name]
        self._answers = {}

    def client(self):
        """Return a context of the only client."""
        return contextlib.nullcontext()

    def answer(self, number):
        """Return the answer of a question, from host memory to host memory."""
        with torch.no_grad():
            question = self._questions[number % QUESTIONS].to(self._device, non_blocking=True)
            return self._model(question).cpu()

    def keep(self, number, answer):
        """Store an answer; equal answers are stored once."""
        key = number % QUESTIONS, numerics.bits(answer)
        _, count = self._answers.get(key, (answer, 0))
        self._answers[key] = answer, count + 1

    def worst(self):
        """Return the largest error, the number of answers beyond the bound, and the bound."""
        largest, wrong = 0.0, 0
        for (number, _), (answer, count) in self._answers.items():
            error = numerics.error(answer.double(), self._right[number])
            largest = max(largest, error)
            wrong += count if error > self._bound else 0
        return largest, wrong, self._bound
