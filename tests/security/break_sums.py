"""Attacks on sums among real parties; each returns whether it succeeds."""

import math
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
from federations import federation_of, settings_of
from lying import (
    BARE,
    VICTIM,
    everything_left_out,
    is_victims,
    lying_federation,
    other_factors,
    rows_of_the_others,
    rows_read,
    victims_update,
)

from fedmmf.aggregation import rare_items
from fedmmf.aggregation.dp import accounting, guarantee
from fedmmf.aggregation.homomorphic.messages import Ciphertexts, HomomorphicKey
from fedmmf.aggregation.homomorphic.schemes import generate, load_public
from fedmmf.aggregation.homomorphic.server import BlindSum
from fedmmf.aggregation.secure import messages as secure
from fedmmf.aggregation.secure.messages import SecureSetup
from fedmmf.aggregation.secure.party import SecureParty
from fedmmf.engines import reference
from fedmmf.engines.contract import Cohort
from fedmmf.errors import FedMMFError, WireError
from fedmmf.federation.local import LocalFederation, make_parties
from fedmmf.masks.population import MAX_SHRINKAGE, MIN_SHRINKAGE
from fedmmf.party import run as run_module
from fedmmf.party.policy import Policy
from fedmmf.party.run import PartyRun
from fedmmf.party.state import StateHolder
from fedmmf.secagg import RING32, FixedPoint, keys, public_identity
from fedmmf.secagg.policy import too_many_corrupt
from fedmmf.simulation import prepare
from fedmmf.solvers import SOLVERS
from fedmmf.transports.in_process import InProcess
from fedmmf.transports.wrappers import Faulty
from fedmmf.wire import (
    Adopt,
    Adopted,
    Finish,
    Joined,
    Layout,
    Refused,
    Survey,
    name_of,
    read,
)
from fedmmf.wire.frames import NO_NAME

# 1. What is summed


def different_factors(tiny):
    """Pasquini et al. 2022: the others are told factors at which they have nothing to say."""
    rows = rows_read(lying_federation(tiny, other_factors(tiny)))
    return rows is not None and is_victims(rows - rows_of_the_others(tiny), tiny)


def items_left_out(tiny):
    return is_victims(rows_read(lying_federation(tiny, everything_left_out(tiny))), tiny)


def an_empty_round(tiny):
    """Whether the others mask zeros where they are told of nothing to sum."""

    def lie(stage, questions, broadcast):
        if not stage.startswith("trip"):
            return None, b""
        return {n: replace(q, about=NO_NAME) for n, q in questions.items() if n != VICTIM}, b""

    federation = lying_federation(tiny, lie)
    rows_read(federation)
    reasons = federation.server.roster.refused.values()
    return not any("say what is summed" in reason for reason in reasons)


# 2. Rare items


def with_raters(ratings, n_raters):
    """Ratings in which one item of the victim has so many raters, and which item that is."""
    mine = ratings.item_codes[ratings.user_codes == int(VICTIM)]
    counts = np.bincount(ratings.item_codes, minlength=ratings.n_items)
    item = int(mine[np.argmax(counts[mine])])
    raters = ratings.user_codes[ratings.item_codes == item]
    others = [user for user in raters.tolist() if user != int(VICTIM)][: n_raters - 1]
    keep = (ratings.item_codes != item) | np.isin(ratings.user_codes, [int(VICTIM), *others])
    return ratings.select(keep), item, [f"{user:06}" for user in others]


def row_of_one(ratings, item, lost):
    """Whether the row of an item is the victim's, where some messages of a stage are lost."""
    settings = settings_of("secure", held_out=0.0)
    federation = federation_of(ratings, settings, lambda inner: Faulty(inner, up=lost))
    federation.prepare_sums()
    rows, layout = rows_read(federation), federation.server.side.layout
    if item not in layout.items:
        return False
    wanted = victims_update(ratings, layout)[item]
    assert np.abs(wanted).max() > 0.01
    return rows is not None and np.allclose(rows[item], wanted, atol=1e-3)


def losing(stage, names):
    return lambda at, name, data: None if at == stage and name in names else data


def the_only_rater_missed_the_survey(tiny):
    ratings, item, _ = with_raters(tiny, 1)
    return row_of_one(ratings, item, losing("survey 1", {VICTIM}))


def two_of_three_raters_drop_out(tiny):
    ratings, item, others = with_raters(tiny, 3)
    return row_of_one(ratings, item, losing("trip 1", others))


def too_few_raters_stay_too_often(tiny):
    """More than once in a hundred times, alone or in batches."""
    return any(
        rare_items.few_stay(rare_items.raters_needed(least, batch), least, batch) > 0.01
        for least in range(2, 8)
        for batch in (1, 3, 5)
    )


# 3. Noise


def noise_below_a_step(tiny):
    """A grid so coarse that the noise of every party is zero."""
    wanted = guarantee.Guarantee(1.0, 0.05 * math.sqrt(900), "distributed", 1)
    try:
        grid = wanted.grid(scale=2.0, n_parties=1000, n_entries=1)
    except WireError:
        return False
    return not grid.add(np.zeros(100, np.int64)).any()


def corrupt_parties_leave_too_little_noise(tiny):
    wanted = guarantee.Guarantee(1.0, 3.0, "distributed", 1)
    honest = {n: n - n // 20 - math.ceil(n / 20) for n in range(3, 400)}
    left = {n: math.sqrt(m) * wanted.noise_std(n) for n, m in honest.items()}
    return any(std < 3.0 * (1 - 1e-9) for std in left.values())


# 4. The graph


def setup_among(identities):
    n, nothing = len(identities), np.zeros(0, np.int32)
    return SecureSetup(bytes(16), False, NO_NAME, 0, n, n, 3, 1, nothing, identities)


def neighbours_of_the_servers_choice(tiny):
    """Try set-ups of 20 signing parties until two in league are all that the victim masks with."""
    identities = tuple(public_identity(bytes([i]) * 32) for i in range(1, 21))
    codec = SimpleNamespace(length=3, ring=RING32)
    invitation = SimpleNamespace(encode=lambda: b"")
    message = setup_among(identities)
    for tried in range(1500):
        message = replace(message, session=tried.to_bytes(16, "big"))
        if secure.agreed_setup(message, codec, invitation).peers(3) in ((7, 11),):
            return True
    return False


def a_graph_below_its_bits(tiny):
    """Whether, for some number of signing parties, too many neighbours may be corrupt."""
    for n in (12, 20, 50, 100, 300, 943):
        degree, threshold = secure.graph_of(n, active=True)
        bearable = min(threshold - degree // 2 - 2, 2 * threshold - degree - 2)
        n_corrupt = math.ceil(n / 20)
        risk = too_many_corrupt(n, degree, n_corrupt, bearable + 1) if n_corrupt > bearable else -99
        if 3 * threshold <= 2 * (degree + 1) or risk > -80:
            return True
    return False


def one_graph_for_two_setups(tiny):
    """Whether a server can change what was agreed on, and keep a graph that suits it."""
    codec, invitation = SimpleNamespace(length=3, ring=RING32), SimpleNamespace(encode=lambda: b"")
    identities = tuple(public_identity(bytes([i]) * 32) for i in range(1, 13))
    message = setup_among(identities)
    others = (
        replace(message, session=b"1" * 16),
        replace(message, n_users=13),
        replace(message, layout=b"1" * 32),
        replace(message, minimum=4),
        replace(message, left_out=np.array([1], np.int32)),
        replace(message, identities=identities[::-1]),
    )
    seed = secure.agreed_setup(message, codec, invitation).graph_seed
    return any(secure.agreed_setup(m, codec, invitation).graph_seed == seed for m in others)


# 5. Differences on the same data


def the_same_round_without_the_victim(tiny):
    federation = federation_of(tiny, settings_of("secure signed", **BARE))
    federation.prepare_sums()
    side, round_ = federation.server.side, federation.server.coordinator.next_round()
    side.sums(round_)
    side.session, side.names = None, sorted(set(federation.parties) - {VICTIM})
    try:
        side.sums(round_)
    except FedMMFError:
        return False
    return set(federation.parties) - set(side.survivors) == {VICTIM}


def a_second_survey_without_the_victim(tiny):
    federation = federation_of(tiny, settings_of("secure signed", **BARE))
    federation.server.invite()
    side = federation.server.side
    first = side.census().n_raters
    side.session, side.names = None, sorted(set(federation.parties) - {VICTIM})
    try:
        second = side.census().n_raters
    except FedMMFError:
        return False
    mine = tiny.item_codes[tiny.user_codes == int(VICTIM)]
    return sorted(np.flatnonzero(first - second)) == sorted(mine)


def a_second_run_without_the_victim(tiny):
    """Batches of three, which a server forms anew for a run without the victim."""
    settings = settings_of("secure signed", **BARE, batch=3)
    run = prepare(tiny, settings)
    parties = make_parties(run.ratings, settings, run.is_held_out, run.features.statistics)
    rows, known = [], {}
    for names in (sorted(parties), sorted(set(parties) - {VICTIM})):
        federation = LocalFederation.among(run.plan, parties, InProcess(parties))
        federation.server.roster.names = names
        side = federation.invite()
        try:
            if known:  # the same items and the same line again: that of others would be another
                side.restore(known)
                side.adopt()
            else:
                side.prepare()
        except FedMMFError:
            return False
        known = side.state()
        rows.append(rows_read(federation))
    return all(part is not None for part in rows) and is_victims(rows[0] - rows[1], tiny)


# 6. Layouts of the server's choice


def another_layout_for_the_others(tiny):
    """The victim is told of items that it rated, the others of as many that nobody did."""
    ratings = tiny.select(tiny.item_codes < 10)
    mine = ratings.item_codes[ratings.user_codes == int(VICTIM)][:3]
    real, empty = (
        Layout(np.asarray(items, np.int32), np.array([3.0]), 1.0) for items in (mine, range(10, 13))
    )
    assert len(real.items) == len(empty.items)

    def lie(stage, questions, broadcast):
        if stage == "layout":
            told = Adopt(name_of(empty.encode()))
            return {name: told for name in questions if name != VICTIM}, empty.encode()
        if stage != "set-up":
            return None, b""
        about = name_of(empty.encode())
        return {n: replace(q, layout=about) for n, q in questions.items() if n != VICTIM}, b""

    federation = lying_federation(ratings, lie)
    side = federation.server.side
    side.layout, side.n_raters = real, np.ones(tiny.n_items, np.int64)
    adopted = side.adopt()
    assert len(adopted) == 12
    rows, wanted = rows_read(federation), victims_update(ratings, real)
    assert np.abs(wanted).max() > 0.01
    return rows is not None and np.allclose(rows, wanted, atol=1e-3)


def an_item_less_from_round_to_round(tiny):
    """Whether what sums with and without an item differ by shows all that its only rater rated."""
    ratings, item, _ = with_raters(tiny, 1)
    federation = federation_of(ratings, settings_of("secure", **BARE, step="sum"))
    federation.prepare_sums()
    side, round_ = federation.server.side, federation.server.coordinator.next_round()
    items = side.layout.items
    assert item in items  # a server that lies sums what is rare
    rest = items != item
    first = side.sums(round_).rows[rest]
    side.layout = replace(side.layout, items=items[rest])
    if not side.adopt():
        return False
    again = replace(round_, round=2, item_rows=round_.item_rows[rest])
    shown = np.abs(first - side.sums(again).rows).max(axis=1) > 1e-6
    mine = ratings.item_codes[ratings.user_codes == int(VICTIM)]
    return sorted(items[rest][shown]) == sorted(mine[mine != item])


def a_line_that_makes_a_mask_look_good(tiny):
    """Whether somebody who is too exposed shares in the clear, told another line or shrinkage."""
    settings = settings_of("adaptive", mask="mean", held_out=0.0, threshold_j=0.0152)
    run = prepare(tiny, settings)
    for name, party in make_parties(run.ratings, settings).items():
        if run.in_clear[int(name)]:
            continue
        for level, shrinkage in product(np.linspace(1, 5, 41), (MIN_SHRINKAGE, 1.0, MAX_SHRINKAGE)):
            party.answer(run.plan.invitation().encode())
            frame = Layout(run.layout.items, np.array([level]), shrinkage).encode()
            if Adopted.decode(party.answer(frame + Adopt(name_of(frame)).encode())).in_clear:
                return True
    return False


# 7. What a refused message does


def with_a_spoilt_trip(ratings, variant, **changes):
    """The victim after a first trip that it refused, and its factors before."""
    spoil = SimpleNamespace(stage="")

    def down(stage, name, data):
        is_due = stage == spoil.stage and name == VICTIM
        return data[:-1] + bytes([data[-1] ^ 1]) if is_due else data

    settings = settings_of(variant, **changes)
    federation = federation_of(ratings, settings, lambda inner: Faulty(inner, down=down))
    federation.prepare_sums()
    victim = federation.parties[VICTIM]
    before = victim.user_factors.copy()
    spoil.stage = "trip 1"
    rows_read(federation)
    assert VICTIM in federation.server.roster.refused
    return victim, before


def a_refused_message_moves_the_factors(tiny):
    victim, before = with_a_spoilt_trip(tiny, "secure", **BARE)
    return not np.array_equal(before, victim.user_factors)


def a_refused_message_spends_the_budget(tiny):
    victim, _ = with_a_spoilt_trip(tiny, "dp distributed")
    return victim.users.n_noisy > 0


def adopt(party, run):
    """Let a party join, and adopt a layout."""
    frame = run.layout.encode()
    party.answer(run.plan.invitation().encode())
    Adopted.decode(party.answer(frame + Adopt(name_of(frame)).encode()))


def refusals_that_name_items(tiny):
    """Whether a party's answer to hostile factors says if it rated an item."""
    settings = settings_of("secure", **BARE)
    run = prepare(tiny, settings)
    mine, answers = run.lists.items[run.lists.of(int(VICTIM))], []
    for item in (int(mine[0]), int(np.setdiff1d(np.arange(tiny.n_items), mine)[0])):
        party = make_parties(run.ratings, settings)[VICTIM]
        adopt(party, run)
        round_ = run.coordinator().next_round()
        assert len(round_.item_rows) == tiny.n_items
        rows = round_.item_rows.copy()
        rows[item] = 3e38
        frame = replace(round_, item_rows=rows, is_last=True).encode()
        answers.append(party.answer(frame + Finish(name_of(frame)).encode()))
        part_of_sum = partial(party.run.contribute, replace(round_, item_rows=rows), None, None, 1)
        try:
            with np.errstate(all="ignore"):  # as `Party.answer` has it
                answers[-1] += bytes(np.isfinite(part_of_sum().rows).all())
        except FedMMFError as error:
            answers[-1] += str(error).encode()
    return answers[0] != answers[1]


# 8. Smaller


def bounds_of_the_servers_choice(tiny):
    """Whether a party joins a run whose rows are bounded by 1e30."""
    settings = settings_of("secure")
    run = prepare(tiny, settings)
    party = make_parties(run.ratings, settings)[VICTIM]
    said = read(
        party.answer(replace(run.plan.invitation(), row_bound=1e30).encode()), (Joined, Refused)
    )
    return isinstance(said, Joined)


def as_many_factors_as_users(tiny):
    """Whether parties are summed where the sum of round 1 can be solved for each of them."""
    federation = federation_of(tiny, settings_of("secure", **BARE, factors=12))
    federation.prepare_sums()
    return rows_read(federation) is not None


def one_party_three_times(tiny):
    """A homomorphic sum of one party's ciphertexts, three times."""
    secret = generate("ckks")
    codec = SimpleNamespace(length=5, largest=1000)
    key = HomomorphicKey(secret.name, 3, bytes(32), secret.public)
    blind = BlindSum(key, 1, codec)
    values = np.arange(5, dtype=np.int64)
    data = load_public(key.scheme, key.public).encrypt(values, codec.largest)
    for _ in range(3):
        try:
            blind.receive("000000", Ciphertexts(1, data))
        except WireError:
            return False
    return np.allclose(secret.decrypt(blind.total(), 5, 1000), 3 * values, atol=0.5)


def a_lone_party(tiny, **policy):
    """A party that has joined, and its run."""
    settings = settings_of("plain", held_out=0.0)
    run = prepare(tiny, settings)
    party = make_parties(run.ratings, settings)[VICTIM]
    party.policy = replace(party.policy, **policy)
    adopt(party, run)
    return party.run


def masked_ratings_in_spite_of_noise(tiny):
    noise = guarantee.Guarantee(1.0, 3.0, "local", 5)
    try:
        a_lone_party(tiny, noise=noise).collect()
    except WireError:
        return False
    return True


def ratings_without_a_say(tiny):
    run = a_lone_party(tiny)
    rounding = SimpleNamespace(cohort=lambda left_out: _cohort(), totals=None)
    try:
        part = run.contribute(Survey(with_ratings=True), rounding, None, 1)
    except WireError:
        return False
    return bool(part.rows.any())


def _cohort():
    return Cohort(bound=1.0, scale=float(FixedPoint(1, 1.0, RING32).scale))


# What takes the repairs out


def forget_what_is_published(patch):
    honest = keys.pair_seed
    patch.setattr(keys, "pair_seed", lambda s, c, one, other, about=b"": honest(s, c, one, other))


def forget_what_was_agreed(patch):
    patch.setattr(secure, "name_of", lambda told: bytes(32))


def mask_zeros_for_nothing(patch):
    honest = SecureParty._values

    def values(self, agreement, message):
        if message.about == NO_NAME:
            return np.zeros(agreement.codec.length, agreement.codec.ring.dtype)
        return honest(self, agreement, message)

    patch.setattr(SecureParty, "_values", values)


def sum_what_nobody_was_seen_to_rate(patch):
    honest = rare_items.summed_items

    def summed_items(n_raters, settings):
        found = np.union1d(honest(n_raters, settings), np.flatnonzero(n_raters == 0))
        return found.astype(np.int32)

    patch.setattr(rare_items, "summed_items", summed_items)


def leave_no_margin(patch):
    patch.setattr(rare_items, "raters_needed", lambda min_raters, batch=1: min_raters)


def take_any_grid(patch):
    patch.setattr(accounting, "EXCESS", math.inf)


def round_shares_by_themselves(patch):
    patch.setattr(guarantee, "counted_on", lambda n, known=0: math.ceil(0.9 * n))


def say_that_it_leads_nowhere(patch):
    """A user who overflows is no longer left alone, but told to the server."""
    patch.setattr(reference, "suppress", lambda *errors: nullcontext())


def take_layout_after_layout(patch):
    def take_layout(self, layout):
        self.users.fit_masks(self.policy.population(layout.population, self.catalogue.scale))
        self.users.begin(self.invitation.solver, self.update_shape, layout)
        self.current.move(layout=layout)

    patch.setattr(PartyRun, "_take_layout", take_layout)


def believe_any_line(patch):
    patch.setattr(Policy, "population", lambda self, told, scale: told)


def sum_however_many_factors(patch):
    patch.setattr(SecureParty, "_check_factors", lambda self, message: None)


def take_any_bounds(patch):
    honest = run_module.check_agreement

    def check_agreement(invitation, catalogue):
        bounds = SOLVERS[invitation.solver].bounds(catalogue.scale.span)
        right = {"row_bound": bounds.row, "total_bound": bounds.total}
        honest(replace(invitation, **right), catalogue)

    patch.setattr(run_module, "check_agreement", check_agreement)


def thin_the_graph(patch):
    patch.setattr(secure, "graph_of", lambda n, active, batch=1, corrupt=0: (4, 4))


def let_two_neighbours_do(patch):
    patch.setattr(secure, "graph_of", lambda n, active, batch=1, corrupt=0: (2, 3))


def let_rounds_repeat(patch):
    honest = PartyRun._begin_round

    def begin(self, work):
        self.current.move(last_round=0)
        honest(self, work)

    patch.setattr(PartyRun, "_begin_round", begin)


def let_surveys_repeat(patch):
    patch.setattr(SecureParty, "_check_survivors", lambda self, agreement, message: None)


def take_any_mates(patch):
    patch.setattr(SecureParty, "_check_batch", lambda self, setup, party: None)


def never_go_back(patch):
    patch.setattr(StateHolder, "go_back", lambda self, before: None)


class Forgetful(list):
    """A list that knows of nothing in it."""

    def __contains__(self, thing):
        return False


def forget_whom_it_added(patch):
    honest = BlindSum.__init__

    def init(self, *given):
        honest(self, *given)
        self.added = Forgetful()

    patch.setattr(BlindSum, "__init__", init)


def collect_in_spite_of_noise(patch):
    patch.setattr(PartyRun, "collect", lambda self: self.users.summed_ratings)


def let_owners_have_no_say(patch):
    say = property(lambda self: True, lambda self, value: None)
    patch.setattr(Policy, "survey_ratings", say, raising=False)


AGGREGATIONS = {
    "different factors for different parties": (different_factors, forget_what_is_published),
    "all items left out for everybody else": (items_left_out, forget_what_was_agreed),
    "an empty round": (an_empty_round, mask_zeros_for_nothing),
    "the only rater missed the survey": (
        the_only_rater_missed_the_survey,
        sum_what_nobody_was_seen_to_rate,
    ),
    "two of three raters drop out": (two_of_three_raters_drop_out, leave_no_margin),
    "noise below a step of fixed point": (noise_below_a_step, take_any_grid),
    "corrupt parties leave too little noise": (
        corrupt_parties_leave_too_little_noise,
        round_shares_by_themselves,
    ),
    "too few raters stay too often": (too_few_raters_stay_too_often, leave_no_margin),
    "a graph below its bits": (a_graph_below_its_bits, thin_the_graph),
    "one graph for two set-ups": (one_graph_for_two_setups, forget_what_was_agreed),
    "bounds of the server's choice": (bounds_of_the_servers_choice, take_any_bounds),
    "as many factors as users": (as_many_factors_as_users, sum_however_many_factors),
    "refusals that name items": (refusals_that_name_items, say_that_it_leads_nowhere),
    "a refused message spends the budget": (a_refused_message_spends_the_budget, never_go_back),
    "neighbours of the server's choice": (neighbours_of_the_servers_choice, let_two_neighbours_do),
    "the same round without the victim": (the_same_round_without_the_victim, let_rounds_repeat),
    "a second survey without the victim": (a_second_survey_without_the_victim, let_surveys_repeat),
    "a second run without the victim": (a_second_run_without_the_victim, take_any_mates),
    "another layout for everybody else": (another_layout_for_the_others, forget_what_was_agreed),
    "an item less from round to round": (
        an_item_less_from_round_to_round,
        take_layout_after_layout,
    ),
    "a line that makes a mask look good": (a_line_that_makes_a_mask_look_good, believe_any_line),
    "a refused message moves the factors": (a_refused_message_moves_the_factors, never_go_back),
    "one party three times in a homomorphic sum": (one_party_three_times, forget_whom_it_added),
    "masked ratings in spite of noise": (
        masked_ratings_in_spite_of_noise,
        collect_in_spite_of_noise,
    ),
    "ratings surveyed without the owner's say": (ratings_without_a_say, let_owners_have_no_say),
}
