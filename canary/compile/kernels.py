"""Two Triton kernels as people write them: a product in tiles, and a softmax of rows.

Needs Triton 2.1 or newer. Their text is read by Triton's compiler.
"""

import triton
import triton.language as tl

ROWS, COLUMNS, DEPTH = 128, 128, 32


@triton.jit
def _product(a, b, c, side, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr):
    """Compute one tile of the product of two square matrices; tiles divide the side."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    step = tl.arange(0, depth)
    left = a + row[:, None] * side + step[None, :]
    right = b + step[:, None] * side + column[None, :]
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for _ in range(0, side, depth):
        total += tl.dot(tl.load(left), tl.load(right))
        left += depth
        right += depth * side
    tl.store(c + row[:, None] * side + column[None, :], total.to(tl.float16))


@triton.jit
def _softmax(x, y, columns, size: tl.constexpr):
    """Compute the softmax of one row; the size is a power of two, and at least the columns."""
    place = tl.arange(0, size)
    at = tl.program_id(0) * columns + place
    inside = place < columns
    row = tl.load(x + at, mask=inside, other=-float("inf"))
    row = tl.exp(row - tl.max(row, axis=0))
    tl.store(y + at, row / tl.sum(row, axis=0), mask=inside)


def product(a, b, out):
    """Multiply square matrices of fp16 whose side is a multiple of 128; sums are in fp32."""
    side = a.shape[0]
    tiles = ROWS, COLUMNS, DEPTH
    _product[(side // ROWS, side // COLUMNS)](a, b, out, side, *tiles, num_warps=8)


def softmax(x, out):
    """Compute the softmax of each row of fp32."""
    rows, columns = x.shape
    _softmax[(rows,)](x, out, columns, triton.next_power_of_2(columns))
