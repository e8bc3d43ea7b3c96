"""Linear algebra of one small matrix on a GPU, without synchronising with the host.

torch's own functions report success to the host, so that a round that uses them cannot be recorded
and replayed. These do not synchronise: where there is no solution they return NaN, which is noticed
at the end. Matrices are in float64.
"""

import torch
import triton
import triton.language as tl

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

SWEEPS = 8  # sweeps of Jacobi's rotations over all pairs; the last ones converge quadratically


@triton.jit
def inverse_kernel(matrix, out, n, K: tl.constexpr):
    """Invert by sweeping all rows (Goodnight 1979); positive matrices need no pivots."""
    f = tl.arange(0, K)
    row, column = f[:, None], f[None, :]
    inside = (row < n) & (column < n)
    a = tl.load(matrix + row * n + column, mask=inside, other=0.0)
    for j in range(n):
        here = tl.sum(tl.where(row == j, a, 0.0), 0)
        there = tl.sum(tl.where(column == j, a, 0.0), 1)
        pivot = 1.0 / tl.sum(tl.where(f == j, here, 0.0), 0)
        moved = a - (there * pivot)[:, None] * here[None, :]
        moved = tl.where(column == j, there[:, None] * pivot, moved)
        a = tl.where(row == j, tl.where(column == j, -pivot, here[None, :] * pivot), moved)
    tl.store(out + row * n + column, -a, mask=inside)


@triton.jit
def cholesky_kernel(matrix, out, n, K: tl.constexpr):
    """Factorize column by column, taking each out of the rest."""
    f = tl.arange(0, K)
    row, column = f[:, None], f[None, :]
    inside = (row < n) & (column < n)
    a = tl.load(matrix + row * n + column, mask=inside, other=0.0)
    factor = tl.zeros((K, K), tl.float64)
    for j in range(n):
        there = tl.sum(tl.where(column == j, a, 0.0), 1)
        pivot = tl.sqrt(tl.sum(tl.where(f == j, there, 0.0), 0))
        there = tl.where(f >= j, there / pivot, 0.0)
        factor = tl.where(column == j, there[:, None], factor)
        a -= there[:, None] * there[None, :]
    tl.store(out + row * n + column, factor, mask=inside)


@triton.jit
def jacobi_kernel(matrix, out, n, n_turns, K: tl.constexpr):
    """Find eigenvectors by rotating pairs of rows, all rows at once, paired as in a tournament."""
    f = tl.arange(0, K)
    row, column = f[:, None], f[None, :]
    inside = (row < n) & (column < n)
    a = tl.load(matrix + row * n + column, mask=inside, other=0.0)
    turned = tl.where(row == column, 1.0, 0.0).to(tl.float64)
    last = n - 1 + n % 2  # an even number of rows; one may be a row of zeros
    for step in range(n_turns):
        turn = step % last
        other = (2 * turn - f + 2 * last) % last
        other = tl.where(f == last, turn, tl.where(other == f, last, other))
        other = tl.where(f > last, f, other)
        is_pair = column == other[:, None]
        own = tl.sum(tl.where(row == column, a, 0.0), 1)
        theirs = tl.sum(tl.where(is_pair, own[None, :], 0.0), 1)
        between = tl.sum(tl.where(is_pair, a, 0.0), 1)
        is_first = f < other
        is_done = (between == 0.0) | (other == f)
        half = tl.where(is_first, theirs - own, own - theirs) / (
            2.0 * tl.where(is_done, 1.0, between)
        )
        tangent = tl.where(half < 0, -1.0, 1.0) / (tl.abs(half) + tl.sqrt(half * half + 1.0))
        tangent = tl.where(is_done, 0.0, tangent)
        cosine = 1.0 / tl.sqrt(1.0 + tangent * tangent)
        sine = tl.where(is_first, -1.0, 1.0) * tangent * cosine
        across, down = other[None, :] + 0 * row, other[:, None] + 0 * column
        a = a * cosine[None, :] + tl.gather(a, across, 1) * sine[None, :]
        a = a * cosine[:, None] + tl.gather(a, down, 0) * sine[:, None]
        a = 0.5 * (a + tl.trans(a))  # or the two rows of a pair would turn by different angles
        turned = turned * cosine[None, :] + tl.gather(turned, across, 1) * sine[None, :]
    tl.store(out + row * n + column, turned, mask=inside)


class SmallLinalg:
    """Functions of `numpy.linalg` that the server's half uses, for up to `FEW_COLUMNS` rows."""

    def inv(self, matrix: torch.Tensor) -> torch.Tensor:
        """Inverse of a matrix that needs no pivots. (n, n)."""
        return self._run(inverse_kernel, matrix)

    def solve(self, matrix: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Solve A X = B for a positive definite A. (n, m)."""
        return self.inv(matrix) @ right

    def cholesky(self, matrix: torch.Tensor) -> torch.Tensor:
        """Lower triangular Cholesky factor. (n, n)."""
        return self._run(cholesky_kernel, matrix)

    def eigh(self, matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Eigenvalues in no order, and eigenvectors, of a symmetric matrix. (n,), (n, n)."""
        vectors = self._run(jacobi_kernel, matrix, SWEEPS)
        return torch.diagonal(vectors.T @ matrix @ vectors), vectors

    @staticmethod
    def _run(kernel: object, matrix: torch.Tensor, sweeps: int = 0) -> torch.Tensor:
        n = len(matrix)
        width = max(16, 1 << (n - 1).bit_length())
        out = torch.empty_like(matrix, memory_format=torch.contiguous_format)
        turns = (sweeps * (n - 1 + n % 2),) if sweeps else ()
        kernel[(1,)](matrix.contiguous(), out, n, *turns, K=width, num_warps=4)  # type: ignore[index]
        return out
