"""What `test_torch_kernels` runs where Triton interprets its kernels."""

import sys
from dataclasses import replace

import numpy as np
import torch
import triton
import triton.language as tl

from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, TrainingInput
from fedmmf.engines.torch import vb_fused, vb_kernels
from fedmmf.engines.torch.small import SmallLinalg
from fedmmf.engines.torch.vb import TorchVbHalves
from fedmmf.solvers.contract import ItemSums, SolverContext
from fedmmf.solvers.vb.server import VbServer
from fedmmf.solvers.vb.shapes import VbShape, write_variant

N_USERS, N_ITEMS = 9, 40
CPU = torch.device("cpu")
FIXED = Cohort(
    left_out=np.arange(N_ITEMS) % 7 == 3,
    members=np.arange(N_USERS) != 4,
    bound=32.0,
    scale=2.0**12,
    total_bound=2.0**16,
    total_scale=2.0**12,
)
PARTS = {  # factors, variant, cohort
    "plain": (4, write_variant("both", profile=2), Cohort()),
    "fixed": (4, write_variant("both"), FIXED),
    "ranking": (4, write_variant("users", design=3), FIXED),
    "joint": (4, write_variant("both", joint=3), Cohort()),
    "wide": (33, write_variant("none"), Cohort()),
    "heavy": (14, write_variant("users"), Cohort()),
}


LAST = {"plain": 7}  # the sixth round looks at who rated what


def given_for(part):
    factors, variant, cohort = PARTS[part]
    random, update_shape = np.random.default_rng(0), VbShape.of(factors + 1, variant)
    lists = [np.flatnonzero(random.random(N_ITEMS) < 0.5) for _ in range(N_USERS)]
    lists[2] = lists[2][:0]
    indptr = np.concatenate(([0], np.cumsum([len(items) for items in lists])))
    items = np.concatenate(lists).astype(np.int32)
    masked = random.standard_normal(len(items)).astype(np.float32)
    design = np.column_stack((np.ones(N_ITEMS), random.standard_normal((N_ITEMS, 2))))
    profiles = random.standard_normal((N_USERS, 2))[:, : update_shape.n_profile]
    lines = 0.2 * random.standard_normal((N_USERS, 3))[:, : update_shape.n_design]
    about = (
        design[:, : update_shape.n_columns],
        RatedItems(indptr, items),
        masked,
        profiles,
        lines,
    )
    return TrainingInput("vb", update_shape, *about, cohorts=(cohort,))


def compare(part):
    given = given_for(part)
    (cohort,), design = given.cohorts, given.design[:, : given.update_shape.n_design]
    stream, none = np.random.default_rng(1), np.zeros((N_ITEMS, 0))
    context = SolverContext(N_ITEMS, 4.0, 1.0, 0.0, 20.0, none, design, stream)
    server = VbServer(
        given.update_shape, context, (0.3, 1.0) if given.update_shape.n_design else ()
    )
    plain = TorchVbHalves(given, CPU)
    fused = TorchVbHalves(given, CPU, 1, vb_fused.Fused.of)
    for t in range(1, LAST.get(part, 2) + 1):
        broadcast = server.broadcast()
        expected, found = plain.update(broadcast, t), fused.update(broadcast, t)
        rows, wanted = found.rows[0], expected.rows[0]
        if cohort.is_fixed:
            assert rows.dtype == np.int64
            assert np.abs(rows - wanted).max() <= 2
            assert np.mean(rows == wanted) > 0.9
        else:
            np.testing.assert_allclose(rows, wanted, rtol=1e-4, atol=2e-5)
        steps = 2.0 if cohort.is_fixed else 1e-4
        np.testing.assert_allclose(found.totals[0], expected.totals[0], rtol=1e-4, atol=steps)
        np.testing.assert_allclose(fused.user_factors, plain.user_factors, rtol=1e-4, atol=1e-5)
        scale, total_scale = cohort.scale or 1.0, cohort.total_scale or 1.0
        counts, totals = given.lists.counts(N_ITEMS), expected.totals[0] / total_scale
        server.advance(ItemSums(wanted / scale, counts, totals), t)
    plain.solve_users(server.broadcast(), np.arange(N_USERS))
    fused.solve_users(server.broadcast(), np.arange(N_USERS))
    np.testing.assert_allclose(fused.user_factors, plain.user_factors, rtol=1e-4, atol=1e-5)


def compare_small():
    random, linalg = np.random.default_rng(0), SmallLinalg()
    for n in (1, 3, 10, 21):
        x = random.standard_normal((n, 3 * n)) * np.logspace(0, -2, n)[:, None]
        matrix = torch.tensor(x @ x.T + 1e-3 * np.eye(n))
        values, vectors = linalg.eigh(matrix)
        np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), rtol=1e-6)
        np.testing.assert_allclose(vectors @ torch.diag(values) @ vectors.T, matrix, atol=1e-8)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(n), atol=1e-8)
        np.testing.assert_allclose(linalg.inv(matrix) @ matrix, np.eye(n), atol=1e-8)
        factor = linalg.cholesky(matrix)
        np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-10)
        right = torch.tensor(random.standard_normal((n, 2)))
        np.testing.assert_allclose(
            linalg.solve(matrix, right), np.linalg.solve(matrix, right), rtol=1e-6
        )
    compare_spectra(random, linalg)
    compare_rounding()


@triton.jit
def rounding_kernel(values, out, limit, N: tl.constexpr, NEAR: tl.constexpr):  # noqa: N803
    place = tl.arange(0, N)
    tl.store(out + place, vb_kernels._rounded(tl.load(values + place), limit, 1.0, NEAR))


def compare_rounding():
    """Halves go to the even number, as numpy rounds; what is too large to the limit."""
    few = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.49, 1e5 + 0.5]
    many = [2.0**22 + 0.5, 2.0**22 + 1.5, -(2.0**22) - 0.5, 2.0**23 + 1, 2.0**30, -1e12, 7.5, 0.0]
    for values, limit, is_near in ((few, 2.0**20, True), (few, 2.0**26, False),
                                   (many, 2.0**26, False)):  # fmt: skip
        given = torch.tensor(values, dtype=torch.float32)
        found = torch.empty_like(given)
        rounding_kernel[(1,)](given, found, limit, N=8, NEAR=is_near)
        expected = np.rint(np.clip(given.numpy().astype(np.float64), -limit, limit))
        np.testing.assert_array_equal(found, expected)


def compare_spectra(random, linalg):
    """Values that are far apart, near to each other, or the same: (n A + 1)^-1 is what counts."""
    spectra = (
        np.array([5.0] + 10 * [1e-4]),
        np.logspace(1, -6, 11),
        1 + 1e-6 * np.arange(21),
        np.ones(12),
        np.concatenate((np.ones(3), np.zeros(18))),
    )
    for spectrum in spectra:
        turn = np.linalg.qr(random.standard_normal((len(spectrum), len(spectrum))))[0]
        matrix = (turn * spectrum) @ turn.T
        values, vectors = linalg.eigh(torch.tensor(0.5 * (matrix + matrix.T)))
        values, vectors = values.numpy(), vectors.numpy()
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(spectrum)), atol=1e-8)
        for n in (1, 100, 1e5):
            found = (vectors / (1 + n * values.clip(0))) @ vectors.T
            np.testing.assert_allclose(found, (turn / (1 + n * spectrum)) @ turn.T, atol=1e-5)


def compare_overflow():
    """One user's ratings are no numbers, or too large: others add what they add without it."""
    for part, wrong in (("plain", np.nan), ("fixed", 3e38), ("ranking", np.inf), ("heavy", 3e38)):
        given = given_for(part)
        ((cohort,), user), n_heavy = (given.cohorts, 1), vb_fused.HEAVY
        vb_fused.HEAVY, vb_fused.HEAVY_PIECE = (8, 5) if part == "heavy" else (n_heavy, 512)
        bad = given.masked_ratings.copy()
        bad[given.lists.of(user)] = wrong
        others = np.ones(N_USERS, bool) if cohort.members is None else cohort.members.copy()
        others[user] = False
        stream, none = np.random.default_rng(1), np.zeros((N_ITEMS, 0))
        design = given.design[:, : given.update_shape.n_design]
        context = SolverContext(N_ITEMS, 4.0, 1.0, 0.0, 20.0, none, design, stream)
        server = VbServer(
            given.update_shape, context, (0.3, 1.0) if given.update_shape.n_design else ()
        )
        without = replace(given, cohorts=(replace(cohort, members=others),))
        halves_of = [TorchVbHalves(one, CPU, 1, vb_fused.Fused.of)
                  for one in (replace(given, masked_ratings=bad), without)]  # fmt: skip
        before = halves_of[0].user_factors
        found, expected = (crowd.update(server.broadcast(), 1) for crowd in halves_of)
        assert found.n_overflowed == 1
        assert np.array_equal(found.rows[0], expected.rows[0])
        assert np.array_equal(found.totals[0], expected.totals[0])
        assert np.array_equal(halves_of[0].user_factors[user], before[user])
        for crowd in halves_of:
            crowd.solve_users(server.broadcast(), np.arange(N_USERS))
        assert np.array_equal(halves_of[0].user_factors[user], before[user])
        rest = np.arange(N_USERS) != user
        assert np.array_equal(halves_of[0].user_factors[rest], halves_of[1].user_factors[rest])
        vb_fused.HEAVY = n_heavy


if __name__ == "__main__":
    if sys.argv[1] == "heavy":
        vb_fused.HEAVY, vb_fused.HEAVY_PIECE, vb_fused.PIECE = 8, 5, 3
    if sys.argv[1] == "small matrices":
        compare_small()
    elif sys.argv[1] == "overflow":
        compare_overflow()
    else:
        compare(sys.argv[1])
    sys.stdout.write("equal\n")
