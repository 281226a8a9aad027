"""Capture a PyTorch function as a CUDA graph; on the CPU, call it. Python 3.8 or newer."""

import gc

WARMUP = 3
"""Calls before a capture, on a separate stream, as PyTorch's documentation requires."""


class Graph:
    """A captured call.

    Attributes:
        result: result of the call; a replay overwrites it.
    """

    _aside = None

    def __init__(self, torch, call):
        # One stream for all: cuBLAS allocates a workspace for each stream that it has seen.
        aside = Graph._aside = Graph._aside or torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARMUP):
                call()
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=aside):
            self.result = call()
        self.replay = self._graph.replay


class Eager:
    """Replacement without a graph, for development without a GPU."""

    def __init__(self, call):
        for _ in range(WARMUP):
            call()
        self._call, self.result = call, call()

    def replay(self):
        """Call the function."""
        self.result = self._call()


def of(torch, device, call):
    """Capture a function without arguments that returns a tensor."""
    return Graph(torch, call) if device.type == "cuda" else Eager(call)


def held(torch, device):
    """Return the bytes of GPU memory that tensors and graphs hold."""
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved(device)
