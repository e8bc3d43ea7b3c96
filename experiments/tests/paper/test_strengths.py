"""Masks by strength, on a small set: every column against a direct computation."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from fedmmf.attacks import AttackResult, rating_attacks
from fedmmf.audit import expose
from fedmmf.model import FedMMF
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf_experiments.paper import strengths
from fedmmf_experiments.paper.strengths import EXPOSED, NOT_SHOWN, StrengthPlan, draw_users
from fedmmf_experiments.result_cache import ResultCache, path_in

PLAN = StrengthPlan(("fm", "lr"), (40.0, 4.0), n_users=25)
ROWS = [("fm", 4.0), ("fm", 40.0), ("lr", 4.0), ("lr", 40.0)]


def nothing(done, of):
    """Show nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("strengths")


@pytest.fixture(scope="module")
def report(small, folder):
    steps = []
    found = strengths.run(small, PLAN, ResultCache(folder), lambda *step: steps.append(step))
    assert steps == [(done, 4) for done in range(5)]
    return found


@pytest.fixture(scope="module")
def fm(small):
    """The masks of the first row."""
    return prepare(small, Settings(mask="fm", mask_strength=4.0, held_out=0.0))


def test_there_is_a_row_per_mask_and_strength(report):
    assert [(row.mask, row.strength) for row in report.rows] == ROWS
    assert (report.n_users, report.test, report.masks) == (25, 0.2, ["fm", "lr"])


def test_found_is_the_best_attack_of_each_user_that_was_drawn(small, fm, report):
    users = draw_users(small, 25, seed=0)
    view, truth = expose(fm), small.values
    best, public = [], []
    guesses = [attack.guess(view) for attack in rating_attacks("fm")]
    for user in users:
        mine = small.user_codes == user
        exact = [np.mean(np.rint(np.clip(guess[mine], 1, 5)) == truth[mine]) for guess in guesses]
        best.append(max(exact))
        public.append(np.mean(1 + view.prior[mine].argmax(axis=1) == truth[mine]))
    row = report.rows[0]
    assert row.found == pytest.approx(np.mean(best))
    assert row.public == pytest.approx(np.mean(public))
    assert row.recovered == pytest.approx(np.mean(np.array(best) >= 0.9))
    assert row.interval[0] <= row.found <= row.interval[1]
    assert row.found > row.public + 0.2


def test_the_verdict_is_in_the_audits_words(fm, monkeypatch):
    users = np.arange(10)
    shares = np.array([0.9, *[0.5] * 9])
    monkeypatch.setattr(strengths, "best_shares", lambda view, truth: (shares, "made up"))
    one = strengths.attacked(fm, users)
    assert (one["recovered"], one["verdict"], one["attack"]) == (0.1, EXPOSED, "made up")
    assert one["sentence"] == "Some attack finds at least 90% of the ratings of 1 of 10 users."
    assert one["interval"] == list(AttackResult("best attack", *"   ", users, shares, 0).interval)
    assert one["interval"][0] < 0.54 < one["interval"][1]
    shares[0] = 0.89
    assert strengths.attacked(fm, users)["verdict"] == NOT_SHOWN


def test_the_attack_that_finds_most_is_named(fm, small):
    view, truth = expose(fm), small.values
    means = {attack.name: attack.success(view, truth).mean() for attack in rating_attacks("fm")}
    assert strengths.best_shares(view, truth)[1] == max(means, key=means.get)


def test_j_is_the_mean_square_of_what_masks_leave(small, fm, report):
    masks = fm.masks
    for name, fitted in (("j", masks.unit_fitted), ("j_out_of_fold", masks.unit_held_out)):
        left = np.square((small.values - 1) / 4 - fitted)
        each = [left[small.user_codes == user].mean() for user in range(small.n_users)]
        assert getattr(report.rows[0], name) == pytest.approx(np.mean(each), rel=1e-5)


def test_bent_is_what_least_squares_leave_of_the_masks(small, fm, report):
    """Over the catalogue, of the median user; a line leaves nothing."""
    items = np.arange(small.n_items)
    theta = fm.masks.theta
    private = theta[:, :1] + theta[:, 1:] @ fm.features.seen[items].T  # (n_users, n_items)
    common = fm.masks.population.base(fm.features.seen, small.scale)  # (n_items,)
    lines = np.column_stack((np.ones(len(items)), fm.features.content))
    row = report.rows[0]
    for curves, share in ((common + 4 * private, row.bent), (private, row.bent_private)):
        rest = curves.T - lines @ np.linalg.lstsq(lines, curves.T)[0]
        assert share == pytest.approx(np.median(rest.var(axis=0) / curves.var(axis=1)))
    assert row.bent_private > 0.02
    assert report.rows[2].bent_private == pytest.approx(0, abs=1e-9)


def test_errors_are_those_of_the_mask_alone_and_of_the_federated_model(small, report):
    train, test = small.split(0.2, seed=0)
    model = FedMMF(mask="fm", mask_strength=4.0, solver="sgd").fit(train)
    assert report.rows[0].rmse_federated == pytest.approx(model.evaluate(test)["rmse"])
    run = prepare(train, Settings(mask="fm", mask_strength=4.0, held_out=0.0))
    theta, x = run.masks.theta[test.user_codes], run.features.seen[test.item_codes]
    base = run.masks.population.base(run.features.seen, train.scale)[test.item_codes]
    alone = base + 4 * (theta[:, 0] + np.sum(theta[:, 1:] * x, axis=1))
    wrong = np.clip(alone, 1, 5) - test.values
    assert report.rows[0].rmse_local == pytest.approx(np.sqrt(np.mean(wrong**2)))


def test_users_are_drawn_from_those_who_rated(small):
    missing = small.select(small.user_codes > 20)
    drawn = draw_users(missing, 30, seed=1)
    assert len(drawn) == 30
    assert (np.diff(drawn) > 0).all()
    assert drawn.min() > 20
    assert len(draw_users(small, 1000, seed=0)) == small.n_users
    assert not np.array_equal(drawn, draw_users(missing, 30, seed=2))


def test_what_is_there_is_not_computed_again(small, report, folder, monkeypatch):
    path_in(folder, (small.name, "lr", "strength-4")).unlink()
    ran, real = [], strengths.row_of

    def count(ratings, users, settings):
        ran.append((settings.mask, settings.mask_strength))
        return real(ratings, users, settings)

    monkeypatch.setattr(strengths, "row_of", count)
    assert strengths.run(small, PLAN, ResultCache(folder), nothing) == report
    assert ran == [("lr", 4.0)]
    strengths.run(small, replace(PLAN, masks=["lr"], n_users=26), ResultCache(folder), nothing)
    assert ran[1:] == [("lr", 4.0), ("lr", 40.0)]  # other users, other figures


def test_it_is_written_as_data_table_and_picture(report, tmp_path):
    strengths.write(report, tmp_path)
    assert json.loads((tmp_path / "strengths.json").read_text()) == asdict(report)
    lines = (tmp_path / "strengths.md").read_text().splitlines()
    assert len(lines) == 2 + len(report.rows)
    assert lines[2].startswith(f"| fm | 4 | {report.rows[0].found:.3f} |")
    for suffix in ("png", "svg"):
        assert (tmp_path / f"strengths.{suffix}").stat().st_size > 5_000


def test_the_figure_has_a_marker_per_mask_and_what_was_found(report):
    found, errors = strengths.draw(report).axes
    assert (found.get_xscale(), errors.get_xscale()) == ("log", "log")
    bars = found.containers
    assert [bar.get_label() for bar in bars] == ["fm", "lr"]
    for mask, bar in zip(report.masks, bars, strict=True):
        np.testing.assert_allclose(bar[0].get_ydata(), [row.found for row in report.of(mask)])
    drawn = {line.get_label(): line for line in errors.get_lines()}
    assert list(drawn) == ["FedMMF, fm", "LocalX, fm", "FedMMF, lr", "LocalX, lr"]
    local = [row.rmse_local for row in report.of("lr")]
    np.testing.assert_allclose(drawn["LocalX, lr"].get_ydata(), local)
    assert drawn["LocalX, fm"].get_marker() != drawn["LocalX, lr"].get_marker()
    assert drawn["LocalX, fm"].get_linestyle() != drawn["FedMMF, fm"].get_linestyle()
