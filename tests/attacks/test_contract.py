"""What every attack has to be: explained, scored in [0, 1], repeatable, and lost on noise."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedmmf import rng
from fedmmf.attacks import ATTACKS, Attack, AttackResult, attacks_on, rating_attacks
from fedmmf.attacks.calibrated import SummedView
from fedmmf.attacks.disaggregation import RoundSums, RoundsView, UnnamedRounds
from fedmmf.attacks.gradients import Uploads
from fedmmf.attacks.known_masks import KnownMasks
from fedmmf.attacks.membership import CohortView, from_updates, item_matrix
from fedmmf.attacks.noisy_sums import NoisyView, Signals
from fedmmf.attacks.paper import ranking, recovery
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.attacks.vb_lists import ListsView
from fedmmf.attacks.vb_sums import VbRound, VbSummedView
from fedmmf.attacks.view import Exposed, levels_of, uniform_prior
from fedmmf.audit import audit, recording
from fedmmf.audit.noisy_rounds import NoisyRounds
from fedmmf.audit.rounds import HARDLY_ANY, NOISY
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.engines import ENGINES
from fedmmf.errors import DataError, SettingsError
from fedmmf.masks import FAMILIES, MaskPlan, fit_masks
from fedmmf.masks.fitting import MaskInput
from fedmmf.masks.population import Population
from fedmmf.party.policy import Private
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.solvers.contract import SolverContext
from fedmmf.solvers.sgd import SgdPlan
from fedmmf.solvers.vb import VB
from fedmmf.solvers.vb.shapes import write_variant

from .conftest import exposed, noise


def around_public_means(view):
    """Masked ratings, on top of what the public thinks of each item."""
    return view.masked + view.prior @ levels_of(view.scale)


OUTSIDE = Attack(
    name="public means",
    knows="The masked ratings and other people's ratings.",
    outputs="A real number for each rating.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=around_public_means,
)
EVERY = [ATTACKS[name] for name in ATTACKS.names()]
OTHER_LEVELS = [recovery(1), recovery(2), ranking(3, strict=True)]
every_attack = pytest.mark.parametrize(
    "attack", [*EVERY, *OTHER_LEVELS, OUTSIDE], ids=lambda attack: attack.name
)


MADE = {"sums": "summed_sparse", "rounds": "named_rounds", "unnamed rounds": "unnamed_rounds"}


@pytest.fixture
def case(attack, request, small):
    """(view, truth, control): where the attack works, and where it must not."""
    if attack.target == "uploads":
        uploads, masked, _ = request.getfixturevalue("plain_small")
        seen, _, known = request.getfixturevalue("strict_small")
        return uploads, masked, recording.vectors_as_updates(seen, known)
    if attack.target in MADE:
        return request.getfixturevalue(MADE[attack.target])
    if attack.target == "vb sums":
        made, control = request.getfixturevalue("vb_sparse")
        return made.summed(8), made.truth, control.summed(8)
    if attack.target == "lists":
        made = request.getfixturevalue("vb_ranked")
        return *made.listed(8), made.exchanged(8)[0]
    if attack.target in NOISY:
        rounds, control = request.getfixturevalue("noisy_rounds")
        is_of_items = attack.target == "noisy lists"
        rated = item_matrix(rounds.view.lists, small.n_items)
        mine = np.isin(small.user_codes, rounds.view.users)
        return rounds.view, rated if is_of_items else small.values[mine], control
    if attack.target == "cohort":
        rated = request.getfixturevalue("rated_small")
        popularity, users = rated.mean(axis=0), np.arange(small.n_users)
        draw = rng.stream(1, "scores").random(rated.shape)
        return from_updates(rated, popularity, users), rated, CohortView(users, popularity, draw)
    # In `small`, hardly two items have equal features: only without features do groups form.
    view = exposed(small, "mean" if attack.name == "grouping" else "lr")
    return view, small.values, noise(view, seed=1)


@pytest.fixture(scope="module")
def noisy_rounds(small):
    """Releases of a run with hardly any noise; and noise alone, as large as in the run."""
    pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
    run = prepare(small, Settings(aggregation="dp", mask="mean"))
    rounds = NoisyRounds(run, np.arange(small.n_users), HARDLY_ANY)
    noise = rng.stream(0, "noise").standard_normal(rounds.view.seen.shape)
    return rounds, replace(rounds.view, seen=noise)


N_ITEMS, SCALE = 12, RatingScale(1.0, 5.0, 1.0)
COMMON = Population(np.array([3.4, 0.4, -0.3]), 2.5)
SGD_PLAN = SgdPlan(2, learning_rate=0.02, regularization=0.1, user_prior=1.0, biases=0.0)  # adam


def few(target, lengths, same=None):
    """(view, truth) of users with so many ratings each, all equal to `same` where it is given."""
    draw = rng.stream(0, "few")
    items = [np.sort(draw.permutation(N_ITEMS)[:length]) for length in lengths]
    indptr = np.concatenate(([0], np.cumsum(np.array(lengths, np.int64))))
    lists = RatedItems(indptr, np.concatenate([np.zeros(0, np.int64), *items]))
    values = draw.integers(1, 6, len(lists.items)) + 0.0
    values = values if same is None else np.full(len(values), same)
    users, features = np.arange(len(lengths)), draw.standard_normal((N_ITEMS, 2))
    known = {"users": users, "lists": lists, "scale": SCALE}
    known["prior"] = uniform_prior(len(values), SCALE)
    if target == "cohort":
        rated = np.zeros((len(lengths), N_ITEMS), bool)
        rated[lists.users, lists.items] = True
        return CohortView(users, rated.mean(axis=0) if len(users) else np.zeros(12), rated), rated
    engine, plan = ENGINES["numpy"], MaskPlan("lr")
    given = MaskInput(lists, values, SCALE, features, population=COMMON)
    masked = fit_masks(plan, given, engine.mask_runner()).masked_ratings
    if target == "masked ratings":
        made = {"masked": masked, "features": features, "plan": plan, "engine": engine}
        return Exposed(**known, **made, population=COMMON), values
    if target == "sums":
        q, rows = (draw.standard_normal((N_ITEMS, 3)) for _ in range(2))
        made = {"plan": SGD_PLAN, "item_factors": q, "rows": rows}
        return SummedView(**known, **made, **few_masks(users, plan, features)), values
    if target in ("rounds", "unnamed rounds"):
        rated = item_matrix(lists, N_ITEMS)
        named = RoundsView(**known, sums=few_sums(rated), **few_masks(users, plan, features))
        unnamed = UnnamedRounds(users, few_sums(rated))
        return (named, values) if target == "rounds" else (unnamed, rated)
    if target == "vb sums":
        made = {"summed": np.arange(N_ITEMS), "rounds": few_rounds()}
        return VbSummedView(**known, **made, **few_masks(users, plan, features)), values
    if target in NOISY:
        rated = item_matrix(lists, N_ITEMS)
        signals = Signals(np.eye(3), np.full(3, 0.2), np.eye(3), np.full(3, 0.1), np.eye(3))
        made = {"seen": draw.standard_normal((len(users), N_ITEMS, 3)), "signals": signals}
        view = NoisyView(**known, **made, popularity=np.full(rated.shape, 0.3))
        return view, rated if target == "noisy lists" else values
    if target == "lists":
        rated = item_matrix(lists, N_ITEMS)
        columns = draw.standard_normal((N_ITEMS, 3))
        return ListsView(users, rated, np.full(N_ITEMS, 0.3), columns), users % 2 == 0
    q = tuple(draw.standard_normal((N_ITEMS, 3)).astype(np.float32) for _ in range(2))
    updates = tuple(1e30 * np.outer(masked, np.ones(3)) for _ in range(2))  # nothing honest
    return Uploads(**known, plan=SGD_PLAN, item_factors=q, updates=updates), masked


def few_masks(users, plan, features):
    return {
        "masks": KnownMasks(plan, COMMON, features, SCALE),
        "weights": np.ones(len(users)),
    }


def few_sums(rated):
    """Sums of three rounds, of which somebody missed the second."""
    present = np.ones((3, len(rated)), bool)
    present[1, :1] = False
    level = rng.stream(0, "few sums").standard_normal((3, N_ITEMS))
    return RoundSums(level, present, rated.sum(axis=0), np.full(rated.shape, 0.3), 1.0)


def few_rounds():
    """A round of vb before anybody has learned anything, and one of membership."""
    draw, update_shape = rng.stream(0, "few rounds"), VB.update_shape(3, write_variant("both"))
    nothing = np.zeros((N_ITEMS, 0))
    context = SolverContext(N_ITEMS, SCALE.span, SCALE.min, 0.0, 3.0, nothing, nothing, draw)
    broadcast = VB.server(Settings(solver="vb"), update_shape, context).broadcast()
    reading = VB.reading(update_shape, broadcast, nothing)
    rows = draw.standard_normal((2, N_ITEMS, 3))
    readings = (reading, replace(reading, is_membership_round=True))
    return tuple(VbRound(*one, np.ones(3)) for one in zip(readings, rows, strict=True))


@every_attack
class TestEveryAttack:
    def test_it_says_what_it_knows_finds_and_counts(self, attack):
        assert attack.name
        for sentence in (attack.knows, attack.outputs, attack.measure):
            assert sentence[0].isupper()
            assert sentence.endswith(".")

    def test_scores_are_shares_of_every_user(self, attack, case):
        view, truth, _ = case
        result = attack.run(view, truth)
        for scores in (result.success, result.baseline):
            assert scores.shape == view.users.shape
            is_scored = np.isfinite(scores)  # of lists: those who took part
            assert is_scored.any()
            assert attack.target == "lists" or is_scored.all()
            assert ((scores >= 0) & (scores <= 1))[is_scored].all()

    def test_the_same_seed_gives_the_same_result(self, attack, case):
        view, truth, _ = case
        first, again = attack.run(view, truth, seed=5), attack.run(view, truth, seed=5)
        assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())

    def test_it_beats_the_baseline_where_the_protection_is_off(self, attack, case):
        view, truth, _ = case
        assert attack.run(view, truth).advantage_interval[0] > 0

    def test_the_control_gives_it_nothing(self, attack, case):
        _, truth, control = case
        assert attack.run(control, truth).advantage_interval[0] <= 0

    @pytest.mark.parametrize("lengths", [[], [0], [1], [0, 1, 2], [3, 0, 5]], ids=str)
    @pytest.mark.parametrize("same", [None, 4.0])
    def test_it_bears_users_with_hardly_any_ratings(self, attack, lengths, same):
        view, truth = few(attack.target, lengths, same)
        result = attack.run(view, truth)
        assert result.success.shape == (len(lengths),)
        is_share = (result.success >= 0) & (result.success <= 1)
        assert (is_share | np.isnan(result.success)).all()
        json.dumps(result.to_dict(), allow_nan=False)


def test_every_attack_has_a_name_of_its_own():
    names = [attack.name for attack in EVERY]
    assert len(set(names)) == len(names)


def test_attacks_on_ridge_masks_are_tried_on_ridge_masks_alone(monkeypatch):
    """All families of this package are some, in what they see; others need not be."""
    known = {name: FAMILIES[name] for name in ("lr", "fm")}
    known["median"] = replace(known["lr"], name="median", is_linear=False)
    monkeypatch.setattr("fedmmf.attacks.contract.FAMILIES", known)
    on_lr, on_fm, on_other = (
        {attack.name for attack in rating_attacks(mask)} for mask in ("lr", "fm", "median")
    )
    assert on_lr == on_fm
    assert on_lr - on_other == {"inversion", "inversion, strength unknown"}
    assert "ranking h=1" in {attack.name for attack in attacks_on("masked ratings", "fm")} - on_fm


@pytest.fixture
def outsider():
    """An attack of another package, which cheats: it is given the ratings."""

    def registered(truth):
        attack = replace(OUTSIDE, name="oracle", guess=lambda view: truth[: len(view.masked)])
        ATTACKS.register("oracle", attack)
        return attack

    yield registered
    ATTACKS.unregister("oracle")


def test_an_attack_from_outside_takes_part_in_audits(small, outsider, without_inversion):
    settings = Settings(mask="fm", mask_strength=0.5, sharing="adaptive", held_out=0.0, factors=6)
    run = prepare(small, settings)
    private = Private(run.lists, small.values, run.masks, run.features.seen)
    own = AttackAudit(limit=0.5)
    assert (own.shares_found(private) < 1).any()
    outsider(small.values)
    assert (own.shares_found(private) == 1).all()
    assert not own.safe_users(private).all()
    found = audit(small, settings)
    assert any("recovered by oracle" in sentence for sentence in found.sentences)
    assert found.grouping.by_audit == 0
    for tried in (*found.groups.values(), found.messages["sums of strict mode"]):
        assert "oracle" in {attack.name for attack in tried}


def result_of(success, baseline):
    users = np.arange(len(success))
    return AttackResult("x", "K.", "O.", "M.", users, np.array(success), np.array(baseline))


def test_users_without_ratings_do_not_count():
    result = result_of([1.0, np.nan, 0.5], [0.5, np.nan, 0.5])
    assert result.mean == 0.75
    assert result.to_dict()["success"] == [1.0, None, 0.5]
    assert result.to_dict()["n_users"] == 2


def test_intervals_hold_the_mean_and_shrink_with_more_users():
    draw = rng.stream(0, "scores").random(400)
    few, many = result_of(draw[:40], draw[:40] * 0), result_of(draw, draw * 0)
    for result in (few, many):
        assert result.interval[0] < result.mean < result.interval[1]
    assert np.ptp(many.interval) < 0.5 * np.ptp(few.interval)
    assert many.advantage_interval == many.interval


def test_views_hold_finite_numbers():
    view, _ = few("masked ratings", [3])
    with pytest.raises(DataError, match="finite masked ratings"):
        replace(view, masked=np.array([0.0, np.nan, 1.0]))
    uploads, _ = few("uploads", [3])
    with pytest.raises(DataError, match="finite updates"):
        replace(uploads, updates=(np.full((3, 3), np.inf),) * 2)


def test_a_scale_without_steps_is_refused():
    with pytest.raises(SettingsError, match="at most 1000 levels"):
        levels_of(RatingScale(0.0, 5.0, 1e-6))
