"""Capture inference and training in CUDA graphs, replay them, and compare with eager execution."""

import copy
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import capture  # noqa: E402

LAYERS, WIDTH, BATCH = 24, 512, 32
"""Many small kernels, the use case of a graph."""
INPUTS = 4
STEPS = 10
RECAPTURES = 12
RATE = 1e-2


def main():
    """Check inference, training and memory, then time them."""
    options = program.options(__doc__)
    torch, device = canary_env.torch(options, layers=LAYERS, width=WIDTH, batch=BATCH)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    progress = program.Steps(4)
    network = _network(torch, device)
    given = torch.randn(BATCH, WIDTH, device=device)

    def infer():
        with torch.no_grad():
            return network(given)

    graph = capture.of(torch, device, infer)
    _same(torch, graph, infer, given)
    progress.done()
    _training(torch, device, options.seed)
    progress.done()
    _memory(torch, device, infer)
    progress.done()
    _times(torch, device, graph, infer, options)
    _timed(torch, network, graph, given)
    progress.done()


def _network(torch, device):
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    return torch.nn.Sequential(*layers).to(device)


def _same(torch, graph, infer, given):
    """Check that a replay reads its current input, and gives the bits of eager execution."""
    differing, seen = 0, []
    for _ in range(INPUTS):
        given.copy_(torch.randn(BATCH, WIDTH))
        graph.replay()
        differing += not torch.equal(graph.result, infer())
        seen.append(numerics.bits(graph.result))
    say.check("same", differing == 0, f"{differing} of {INPUTS} replays differ from eager")
    message = f"{len(set(seen))} results of {INPUTS} inputs"
    say.check("reads-input", len(set(seen)) == INPUTS, message)


def _timed(torch, network, graph, given):
    """Check the result of the replay that was timed last against fp64.

    Errors of random sign add up as the square root of their number, a sum of `WIDTH` terms in each
    layer; four standard deviations are allowed.
    """
    with torch.no_grad():
        right = copy.deepcopy(network).double()(given.double())
    bound = 4 * math.sqrt(LAYERS * WIDTH) * numerics.ROUNDING["fp32"]
    numerics.check_error("right", numerics.rows_error(graph.result.double(), right), bound)


def _training(torch, device, seed):
    """Capture a whole training step, and compare its losses with eager training."""
    losses = []
    for captured in (False, True):
        torch.manual_seed(seed + 1)
        network = _network(torch, device)
        given, wanted = (torch.randn(BATCH, WIDTH).to(device) for _ in range(2))
        step = _step(torch, network, given, wanted)
        if captured:
            before = [weight.detach().clone() for weight in network.parameters()]
            graph = capture.of(torch, device, step)
            # Warming up for the capture has already trained.
            with torch.no_grad():
                for weight, kept in zip(network.parameters(), before):
                    weight.copy_(kept)
            losses.append(_losses(graph.replay, lambda graph=graph: graph.result))
        else:
            result = [None]

            def eager(step=step, result=result):
                result[0] = step()

            losses.append(_losses(eager, lambda result=result: result[0]))
    worst = max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(*losses))
    last, first = losses[1][-1], losses[1][0]
    fell = last < first
    words = f"loss {first:.6g} to {last:.6g}, differs from eager by {worst:.2g} at most"
    say.check("training", worst <= 1e-5 and fell, words)


def _losses(step, loss):
    found = []
    for _ in range(STEPS):
        step()
        found.append(float(loss()))
    return found


def _step(torch, network, given, wanted):
    weights = list(network.parameters())

    def step():
        loss = (network(given) - wanted).square().sum() / BATCH
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients):
                weight.sub_(gradient, alpha=RATE)
        return loss.detach()

    return step


def _memory(torch, device, infer):
    """Check that repeated captures do not hold more and more memory."""
    held = []
    for _ in range(RECAPTURES):
        graph = capture.of(torch, device, infer)
        graph.replay()
        del graph
        held.append(capture.held(torch, device))
    late = held[RECAPTURES // 2 :]
    grew = sum(after > before for before, after in zip(late, late[1:]))
    # A single growth may be the allocator's rounding; a leak grows repeatedly.
    message = f"{late[-1] - late[0]} bytes more, grown in {grew} of {len(late) - 1} captures"
    say.check("memory", grew <= 1, message)


def _times(torch, device, graph, infer, options):
    on_gpu = device.type == "cuda"
    settle = torch.cuda.synchronize if on_gpu else None
    # A graph saves time on the host, so the host's clock is used.
    wall = timing.WallClock(settle)
    for name, call in (("eager", infer), ("replay", graph.replay)):
        timing.report(name, "us", timing.repeat(call, wall, options), timing.microseconds)
    times = timing.repeat(lambda: capture.of(torch, device, infer), wall, options, calls=1)
    timing.report("capture", "ms", times, timing.milliseconds)


if __name__ == "__main__":
    program.start(main)
