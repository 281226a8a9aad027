"""Measure the latency of Triton Inference Server for one client and for several at once."""

import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_clients as clients  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import network  # noqa: E402
import triton  # noqa: E402

CLIENTS = {"alone": 1, "crowded": 8}
WIDTH, SMALL = 1024, 64


def main():
    """Start the server with a model, then send requests."""
    options = program.options(__doc__)
    if shutil.which("tritonserver") is None:
        raise program.NothingToTest("the image has no tritonserver")
    on_gpu = options.device == "cuda"
    requests = clients.REQUESTS if on_gpu else 20
    windows = options.warmup + options.repetitions
    with tempfile.TemporaryDirectory() as folder, triton.Server(folder) as server:
        model = network.Network(options.seed, WIDTH if on_gpu else SMALL)
        server.offer(model, on_gpu)
        canary_env.server(options, server.start)
        steps = program.Steps(len(CLIENTS) * windows)
        asked = triton.Asked(server, model)
        for name, count in CLIENTS.items():
            found = clients.Windows()
            for _ in range(windows):
                found.add(clients.window(asked, count, requests))
                steps.done()
            found.report(name, options.warmup)
        say.check("answers", not asked.wrong, f"{asked.wrong} of {asked.all} answers are wrong")


if __name__ == "__main__":
    program.start(main)
