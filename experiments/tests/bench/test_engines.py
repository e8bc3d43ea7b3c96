"""Cases of the bench of engines; what needs a card is in `fedmmf bench engines` itself."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedmmf.model import FedMMF
from fedmmf.settings import Settings
from fedmmf.simulation.training import train as train_simulated

torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")
from fedmmf.engines import ENGINES  # noqa: E402
from fedmmf.solvers.vb.party import starting_user  # noqa: E402
from fedmmf_experiments.bench import engine_cases as cases  # noqa: E402
from fedmmf_experiments.bench.engine_beside import (  # noqa: E402
    case_of,
    host_round_seconds,
    trained_beside,
)

CPU = torch.device("cpu")
SHAPE = cases.RatingsShape(40, 70, 2_000)


def test_ratings_of_a_shape_have_it():
    indptr, items, masked = cases.made(SHAPE, CPU)
    assert (len(indptr) - 1, int(indptr[-1]), len(items), len(masked)) == (40, 2_000, 2_000, 2_000)
    lengths = indptr.diff()
    assert int(lengths.min()) >= 20
    assert int(lengths.max()) > 2 * int(lengths.min())
    assert int(items.min()) >= 0
    assert int(items.max()) < 70
    counts = torch.bincount(items, minlength=70)
    assert int(counts.max()) > 2 * int(counts.median())
    assert set(masked.tolist()) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    again = cases.made(SHAPE, CPU)
    assert all(torch.equal(a, b) for a, b in zip((indptr, items, masked), again, strict=True))


def trained(case):
    given = case.given
    start = np.tile(starting_user(given.update_shape), (given.lists.n_users, 1))
    parties = {"value": start, "looks": np.zeros(given.lists.n_users, np.int64)}
    rounds = ENGINES["torch"].on("cpu", 1).rounds(given, case.halves[0], case.n_raters, parties)
    for t in range(1, case.rounds + 1):
        rounds.one_round(t)
    return rounds.state()["mean"], rounds.parties()["value"]


@pytest.mark.parametrize(
    "chosen", [{}, {"objective": "ranking"}, {"sharing": "plain"}], ids=["joint", "lists", "plain"]
)
def test_a_packed_case_trains_as_the_run_does(small, tmp_path, chosen):
    settings = Settings(solver="vb", factors=3, rounds=7, **chosen)
    train, test = small.split(0.2, seed=1)
    file = tmp_path / "case.npz"
    written = case_of(train, test, settings)
    cases.to_file(file, written)
    read = cases.from_file(file)
    found = train_simulated(train, settings)
    (member,) = found.members
    for case in (written, read):
        mean, p = trained(case)
        np.testing.assert_allclose(p, member.user_factors, rtol=1e-3, atol=1e-4)
        wanted = member.broadcast.item_factors[found.layout.items]
        np.testing.assert_allclose(mean, wanted, rtol=1e-3, atol=1e-4)
    assert np.array_equal(read.tested.users, written.tested.users)
    assert len(read.tested.ratings) > 50
    assert read.given.update_shape == written.given.update_shape
    cohorts = (read.given.cohorts[0], written.given.cohorts[0])
    assert cohorts[0].is_like(cohorts[1])


def test_scores_are_those_of_the_model(small):
    """On ratings of items that are summed."""
    train, test = small.split(0.3, seed=1)
    for chosen in ({}, {"objective": "ranking", "sharing": "plain"}):
        settings = Settings(solver="vb", factors=3, rounds=7, **chosen)
        case = case_of(train, test, settings)
        beside = trained_beside(train, settings, case)
        model = FedMMF(**settings.model_dump()).fit(train)
        if chosen:
            assert len(case.n_raters) == small.n_items
            expected = model.evaluate(test, top=10)["ranking"].metrics()["ndcg_at_10"]
            assert beside["ndcg_at_10"] == pytest.approx(expected, abs=1e-6)
        else:
            is_summed = np.isin(test.item_codes, train_simulated(train, settings).layout.items)
            users, items = test.user_codes[is_summed], test.item_codes[is_summed]
            errors = model.learned.predict(users, items) - test.values[is_summed]
            assert beside["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), abs=1e-6)


def test_the_limit_is_the_slower_of_memory_and_arithmetic():
    pytest.importorskip("triton", reason="triton is not installed: make test-torch")
    from fedmmf_experiments.bench.engines import CardFacts, limit_of

    case = cases.synthetic(SHAPE, 10, CPU)
    n, n_users, width = 2_000, 40, 16
    moved = n * (16 + 4 + 2 * 64) + n_users * 24 * width
    slow_memory = CardFacts("", "", "", 1.0, 1e6, 1e6)
    seconds, by = limit_of(case, slow_memory)
    assert by == "memory"
    assert seconds == pytest.approx(moved / 1e9)
    seconds, by = limit_of(case, replace(slow_memory, copied_gb_per_s=1e9, float16_tflops=1e-3))
    assert by == "arithmetic"
    assert seconds == pytest.approx(10 * n * width**2 / 1e9, rel=1e-3)


def test_numba_is_timed_on_the_same_case():
    case = cases.synthetic(SHAPE, 4, CPU)
    before = {name: value.copy() for name, value in case.halves[0].state().items()}
    seconds, n_threads = host_round_seconds(case)
    assert seconds > 0
    assert n_threads >= 1
    after = case.halves[0].state()
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_a_bare_machine_runs_it_with_numpy_and_torch_alone():
    code = (
        "import sys, numpy, torch\n"
        "known = {name.partition('.')[0] for name in sys.modules} - {'triton'}\n"
        "known |= {'fedmmf', 'fedmmf_experiments', *sys.stdlib_module_names}\n"
        "class Bare:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] not in known:\n"
        "            raise ImportError(name + ' is not on a bare machine')\n"
        "sys.meta_path.insert(0, Bare())\n"
        "import fedmmf_experiments.bench.engine_cases\n"
        "print('imported')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "imported", done.stderr
