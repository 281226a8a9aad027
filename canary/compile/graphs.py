"""Compile with a backend that counts the graphs that it is given.

Import it after `canary_env.torch`. Python 3.8 or newer, PyTorch 2.1 or newer.
"""

import torch
from torch._dynamo.backends.registry import lookup_backend

BACKENDS = {"cuda": "inductor", "cpu": "eager"}
"""On a CPU the graphs are captured and run as they are: no code is generated."""


class Compiler:
    """Compiler of one device.

    Attributes:
        graphs: number of graphs compiled so far.
    """

    def __init__(self, device):
        self.graphs = 0
        self._inner = lookup_backend(BACKENDS[device.type])

    def compiled(self, function):
        """Return a function or model that is compiled, in one graph, when it is first called."""
        return torch.compile(function, backend=self._count, fullgraph=True)

    def _count(self, graph, inputs, **how):
        self.graphs += 1
        return self._inner(graph, inputs, **how)


def forget():
    """Forget what was compiled, and what was learned about sizes."""
    torch._dynamo.reset()
