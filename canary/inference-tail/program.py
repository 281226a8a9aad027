"""Measure the latency of a transformer for one client and for several: median, tail and rate."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]
# cuBLAS reads this when it starts; without it, products on several streams may differ.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import canary_clients as clients  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402

CLIENTS = {"alone": 1, "crowded": 8}


def main():
    """Load the model, then answer clients."""
    options = program.options(__doc__)
    _, device = canary_env.torch(options)
    import answers

    requests = clients.REQUESTS if device.type == "cuda" else 20
    windows = options.warmup + options.repetitions
    steps = program.Steps(len(CLIENTS) * windows)
    model = answers.Model(options.seed, device)
    for name, count in CLIENTS.items():
        found = clients.Windows()
        for _ in range(windows):
            found.add(clients.window(model, count, requests))
            steps.done()
        found.report(name, options.warmup)
    error, wrong = model.worst()
    message = f"error {error:.3g}, allowed {answers.BOUND}; {wrong} answers exceed it"
    say.check("answers", not wrong, message)


if __name__ == "__main__":
    program.start(main)
