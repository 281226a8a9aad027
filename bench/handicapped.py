"""Runs a canary program in a PyTorch that was made slower on purpose; for bench/gpu.py alone.

    python3 handicapped.py HANDICAP program.py ARGUMENT...

Python 3.8 or newer. The results stay what they were: only the way to them is longer.
"""

import os
import runpy
import sys

TILES = 16


def no_autotune(torch):
    """cuDNN's autotuner cannot be switched on."""
    torch.backends.cudnn.benchmark = False
    never = property(lambda self: False, lambda self, value: None)
    type(torch.backends.cudnn).benchmark = never


def small_tiles(torch):
    """A product into a given matrix is computed in tiles, one call each."""
    matmul = torch.matmul

    def tiled(a, b, *, out=None):
        if out is None:
            return matmul(a, b)
        rows, columns = max(a.shape[0] // TILES, 1), max(b.shape[1] // TILES, 1)
        for i in range(0, a.shape[0], rows):
            for j in range(0, b.shape[1], columns):
                out[i : i + rows, j : j + columns] = matmul(a[i : i + rows], b[:, j : j + columns])
        return out

    torch.matmul = tiled


def wide_products(torch):
    """Half-precision products into a given matrix are computed in fp32."""
    matmul = torch.matmul

    def wide(a, b, *, out=None):
        if out is None or a.dtype not in (torch.float16, torch.bfloat16):
            return matmul(a, b) if out is None else matmul(a, b, out=out)
        return out.copy_(matmul(a.float(), b.float()))

    torch.matmul = wide


def math_attention(torch):
    """The framework may choose no fused attention by itself."""
    for name in ("flash", "mem_efficient", "cudnn"):
        switch = getattr(torch.backends.cuda, f"enable_{name}_sdp", None)
        if switch is not None:
            switch(False)


HANDICAPS = {
    "no-autotune": no_autotune,
    "small-tiles": small_tiles,
    "wide-products": wide_products,
    "math-attention": math_attention,
}


def main():
    """Hobble PyTorch, then run the program as if it had been called itself."""
    name, program = sys.argv[1:3]
    try:
        import torch
    except ImportError:
        print("nothing to hobble: there is no PyTorch")
    else:
        HANDICAPS[name](torch)
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
