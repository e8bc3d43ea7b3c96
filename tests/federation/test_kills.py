"""Kill -9 at every moment: nothing is lost, no number and no session is used twice."""

import os
import shutil

import numpy as np
import pytest
from inside import Inside, KilledError, Moments, replayed
from machines import SITES, make_federation, split_by_user

from fedmmf.config import Settings
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import WireError
from fedmmf.site.site import read_model
from fedmmf.sums.secure.messages import SecureSetup
from fedmmf.transports.bundles import unpack
from fedmmf.wire import Kind
from fedmmf.wire.frames import kind_of

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

RATINGS = synthetic(24, 12, 200, min_per_user=6, seed=3)
SETTINGS = Settings.checked(
    solver="vb", factors=2, rounds=3, signed=True, mask="mean", min_raters=1
)
# Every moment takes some minutes: `make faults` has them all, the suite some, spread evenly.
STRIDE = 4 if os.environ.get("FEDMMF_EVERY_MOMENT") else 40
QUICK = {"answer": 5.0, "heartbeat": 60.0, "gathering": 0.2, "patience": 5.0, "retries": 6}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """A federation's folder without any state; made once for a kind, for certificates are slow."""
    made = {}

    def fresh(party="site", **changes):
        key = (party, *sorted(changes.items()))
        if key not in made:
            root = tmp_path_factory.mktemp("federation")
            settings = SETTINGS.changed(signed=party == "site", **changes)
            folder = make_federation(root / "fed", RATINGS, settings, party=party, deadlines=QUICK)
            made[key] = (folder, split_by_user(RATINGS, root))
        folder, files = made[key]
        for state in [*folder.root.glob("sites/*/state"), folder.root / "server" / "state"]:
            shutil.rmtree(state, ignore_errors=True)
        return folder, files

    return fresh


def inside(folder_of, **kind):
    made = Inside(*folder_of(**kind))
    for site in SITES:
        made.start_site(site)
    return made


def sessions(seen):
    """Set-ups of secure sums that the server has sent, each with what it was for."""
    found = []
    for _, data in seen:
        try:
            frames = unpack(data).values()
        except WireError:
            continue
        found += [SecureSetup.decode(f) for f in frames if kind_of(f) == Kind.SECURE_SETUP]
    return found


def require_sound(made, parcel):
    """As many rounds as were asked for, each once, and the model of who took part in them."""
    journal = list(made.store.rounds())
    numbers = [line["round"] for line in journal]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == SETTINGS.max_rounds
    public = read_model(parcel, made.processes["a"]._items)[1].public
    settings = made.folder.charter().training
    expected = replayed(journal, RATINGS, settings, list(SITES))
    assert np.abs(public.item_rows - expected.item_rows).max() < 1e-5


def moments_of(folder_of, which, **kind):
    made = inside(folder_of, **kind)
    require_sound(made, made.run())
    return getattr(made, which).n


@pytest.mark.parametrize("part", range(4))
def test_a_server_killed_at_any_moment_goes_on(folder_of, part):
    n_moments = moments_of(folder_of, "server_moments")
    assert n_moments > 40
    for at in range(1 + part, n_moments + 1, STRIDE):
        made = inside(folder_of)
        made.server_moments = Moments(at)
        parcel = made.run()
        assert made.server_moments.n >= n_moments
        require_sound(made, parcel)
        names = [setup.session for setup in sessions(made.seen)]
        among = {setup.session: setup.n_parties for setup in sessions(made.seen)}
        assert all(names.count(name) <= among[name] for name in among)  # never set up twice


@pytest.mark.parametrize("part", range(4))
def test_a_site_killed_at_any_moment_is_a_drop_out_and_comes_back(folder_of, part):
    n_moments = moments_of(folder_of, "site_moments")
    for at in range(1 + part, n_moments + 1, STRIDE):
        made = inside(folder_of)
        made.site_moments = Moments(at)
        require_sound(made, made.run())
        assert set(made.processes) == set(SITES)


def test_messages_that_arrive_twice_change_nothing(folder_of):
    made = inside(folder_of)
    made.twice = True
    require_sound(made, made.run())


def test_messages_that_arrive_again_after_newer_ones_change_nothing(folder_of):
    made = inside(folder_of)
    made.is_stale = True
    require_sound(made, made.run())


def test_every_user_may_be_a_party(folder_of):
    made = inside(folder_of, party="user")
    require_sound(made, made.run())
    assert len(next(made.store.rounds())["parties"]) == RATINGS.n_users


def test_three_of_four_go_on_and_two_do_not(folder_of):
    made = inside(folder_of)
    made.away = {"d"}
    require_sound(made, made.run())
    assert all(line["parties"] == ["a", "b", "c"] for line in made.store.rounds())
    made = inside(folder_of)
    made.away = {"c", "d"}
    with pytest.raises(WireError, match="needs 3 parties at once"):
        made.training().run()


def test_a_kill_is_one(folder_of):
    made = inside(folder_of)
    made.server_moments = Moments(1)
    with pytest.raises(KilledError):
        made.training().run()
