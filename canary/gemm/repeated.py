"""Repeat products on two streams at once in deterministic mode; a process of its own on a GPU.

Prints one line of JSON: name of the precision to the number of products that differ from the first.
"""

import json
import sys

WORKSPACE = ":4096:8"
"""``CUBLAS_WORKSPACE_CONFIG``: one workspace per stream, so that products are independent."""
SMALL, LONG = {"cuda": 512, "cpu": 128}, {"cuda": 32768, "cpu": 1024}
"""Few results of long sums: cuBLAS splits these sums, so their order can change."""
ROUNDS = 8


def count(torch, device, kinds):
    """Return the number of products that differ from the first, by precision.

    Args:
        torch: the framework.
        device: to compute on.
        kinds: name of the precision to the type of the matrices.
    """
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    differing = {}
    for name, kind in kinds.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        small, terms, dtype = SMALL[device.type], LONG[device.type], getattr(torch, kind)
        a = torch.randn(small, terms).to(device=device, dtype=dtype)
        b = torch.randn(terms, small).to(device=device, dtype=dtype)
        first = torch.matmul(a, b)
        products = _products(torch, a, b)
        differing[name] = sum(not torch.equal(product, first) for product in products)
    torch.use_deterministic_algorithms(before)
    return differing


def _products(torch, a, b):
    if a.device.type == "cpu":
        return [torch.matmul(a, b) for _ in range(2 * ROUNDS)]
    torch.cuda.synchronize()
    products = []
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(ROUNDS):
        for stream in streams:
            with torch.cuda.stream(stream):
                products.append(torch.matmul(a, b))
    torch.cuda.synchronize()
    return products


def main():
    """Count for the seed and the precisions that the arguments name."""
    import torch

    torch.manual_seed(int(sys.argv[1]))
    print(json.dumps(count(torch, torch.device("cuda", 0), json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
