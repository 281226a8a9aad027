"""Dense solvers: the residual of each, in double precision.

The residual of a backward stable solver, as a share of the matrix and the result, grows with the
rounding ``u`` and the size ``n``: LAPACK's own tests allow ``30 n u`` (LAPACK Working Note 41,
section 4). With random rounding errors ``n`` becomes ``sqrt(n)`` (Higham and Mary, SIAM J. Sci.
Comput. 41, 2019); ``30 sqrt(n) u`` is allowed here, which also finds products in TF32.
"""

import math

import canary_models as models
import canary_numerics as numerics
import torch

SIZES = {"cuda": 2048, "cpu": 48}
_ALLOWED = 30


class Solver:
    """One factorisation of one matrix.

    Attributes:
        name: name of the metric.

    Args:
        name: name of the metric.
        matrix: to factorise.
        function: of the matrix, what is timed.
        residuals: function of the wide matrix and the wide results; pairs of a difference and the
            size that it is compared with.
    """

    def __init__(self, name, matrix, function, residuals):
        self.name, self._matrix = name, matrix
        self._function, self._residuals = function, residuals

    def run(self):
        """Factorise or solve."""
        return self._function(self._matrix)

    def worst(self, found):
        """Return the largest residual as a share of its bound, and of what it is."""
        found = found if isinstance(found, tuple) else (found,)
        wide = [part.double() for part in found]
        size = self._matrix.shape[0]
        precision = "fp64" if self._matrix.dtype == torch.float64 else "fp32"
        bound = _ALLOWED * math.sqrt(size) * numerics.ROUNDING[precision]
        shares = [
            (float(_norm(off)) / float(against) / bound, what)
            for what, off, against in self._residuals(self._matrix.double(), *wide)
        ]
        return max((share if math.isfinite(share) else math.inf, what) for share, what in shares)


def parts(options, device):
    """Yield the solvers."""
    size = SIZES[device.type]
    # Full rank and well behaved: rows of a long sequence of digests, plus a diagonal.
    line = models.numbers(options.seed, "dense", (64, size))
    matrix = torch.cat([line.roll(37 * turn, 1) for turn in range(-(-size // 64))])[:size]
    matrix = (matrix + torch.eye(size) * math.sqrt(size)).to(device)
    right = models.numbers(options.seed, "right", (size, 16)).to(device)
    symmetric = (matrix + matrix.T) / 2
    positive = (matrix @ matrix.T) / size + torch.eye(size, device=device)
    yield Solver("solve", matrix, lambda a: torch.linalg.solve(a, right), _solved(right))
    yield Solver("cholesky", positive, torch.linalg.cholesky, _of_cholesky)
    yield Solver("qr", matrix, torch.linalg.qr, _of_qr)
    yield Solver("eigh", symmetric, torch.linalg.eigh, _of_eigh)
    yield Solver("svd", matrix, torch.linalg.svd, _of_svd)
    wide, wide_right = matrix.double(), right.double()
    yield Solver(
        "fp64-solve", wide, lambda a: torch.linalg.solve(a, wide_right), _solved(wide_right)
    )


def _solved(right):
    def residuals(a, x):
        return [("residual", a @ x - right.double(), _norm(a) * _norm(x))]

    return residuals


def _of_cholesky(a, low):
    return [("residual", a - low @ low.T, _norm(a))]


def _of_qr(a, q, r):
    return [("residual", a - q @ r, _norm(a)), _orthogonal(q)]


def _of_eigh(a, values, vectors):
    return [("residual", a @ vectors - vectors * values, _norm(a)), _orthogonal(vectors)]


def _of_svd(a, u, values, v):
    return [("residual", a - (u * values) @ v, _norm(a)), _orthogonal(u), _orthogonal(v)]


def _orthogonal(q):
    identity = torch.eye(q.shape[0], dtype=q.dtype, device=q.device)
    return "orthogonality", q.T @ q - identity, _norm(identity)


def _norm(matrix):
    return torch.linalg.matrix_norm(matrix)
