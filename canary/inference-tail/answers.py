"""Define the model and its expected answers."""

import contextlib

import canary_models as models
import canary_numerics as numerics
import torch

TIME, QUESTIONS = 128, 4
BOUND = 0.1
"""Largest error of an answer against fp64, as a share of its largest value.

It detects mixed-up answers, not rounding. README.md has measured values.
"""


class Model:
    """Transformer in half precision on a device; several threads may use it at once.

    Args:
        seed: seed of weights and questions.
        device: device to compute on.
    """

    def __init__(self, seed, device):
        models.usual_arithmetic()
        self.device = device
        layers, width = (8, 512) if device.type == "cuda" else (2, 64)
        exact = models.filled(models.Transformer(width, layers, 8, TIME), seed).eval().double()
        questions = [models.sequences(seed, 1, TIME, number)[0] for number in range(QUESTIONS)]
        with torch.no_grad():
            self._right = [exact(question) for question in questions]
        self._model = exact.to(device, models.reduced_precision(device))
        # Page-locked memory, as servers use it, so that copies do not wait for each other.
        on_gpu = device.type == "cuda"
        self._questions = [q.pin_memory() if on_gpu else q for q in questions]
        self._answers = {}
        if on_gpu:
            # Clients' streams do not wait for the stream that copies the weights.
            torch.cuda.synchronize(device)

    def client(self):
        """Create a stream for one client."""
        if self.device.type != "cuda":
            return contextlib.nullcontext()
        return torch.cuda.stream(torch.cuda.Stream(self.device))

    def answer(self, number):
        """Compute the answer of a question, from host memory to host memory.

        Returns:
            The answer, to be passed to `keep`.
        """
        with torch.no_grad():
            question = self._questions[number % QUESTIONS].to(self.device, non_blocking=True)
            return self._model(question).cpu()

    def keep(self, number, answer):
        """Store an answer; equal answers are stored once."""
        key = number % QUESTIONS, numerics.bits(answer)
        _, count = self._answers.get(key, (answer, 0))
        self._answers[key] = answer, count + 1

    def worst(self):
        """Return the largest error of all answers, and the number of answers beyond `BOUND`."""
        largest, wrong = 0.0, 0
        for (number, _), (answer, count) in self._answers.items():
            error = numerics.error(answer.double(), self._right[number])
            largest = max(largest, error)
            wrong += count if error > BOUND else 0
        return largest, wrong
