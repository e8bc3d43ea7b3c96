"""Somebody who is taken out of a site's ratings is in none of its files any more."""

import shutil

import numpy as np
import polars as pl
import pytest
from inside import Inside
from machines import SITES, make_federation, split_by_user

from fedmmf.data import Ratings
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import CheckpointError, SettingsError, UnknownNameError
from fedmmf.federation import training
from fedmmf.federation.site.process import SiteProcess
from fedmmf.federation.site.serving import recommend
from fedmmf.settings import Settings

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

QUICK = {"answer": 5.0, "heartbeat": 60.0, "gathering": 0.2, "patience": 5.0, "retries": 3}
TEST = 0.2


def named_ratings():
    """Users with names that can be looked for in any file."""
    made = synthetic(24, 12, 200, min_per_user=6, seed=3)
    names = np.array([f"qzperson-{number:04}" for number in range(made.n_users)])
    frame = pl.DataFrame(
        {
            "user_id": names[made.user_codes],
            "item_id": made.item_ids[made.item_codes].astype(str),
            "rating": made.values.astype(np.float64),
        }
    )
    return Ratings.from_frame(frame, scale=made.scale)


RATINGS = named_ratings()


@pytest.fixture(autouse=True)
def _no_breath(monkeypatch):
    monkeypatch.setattr(training, "BREATH", 0.001)


@pytest.fixture
def federation(tmp_path):
    def made(party="site", **changes):
        settings = {"solver": "vb", "factors": 3, "rounds": 3, "mask": "mean", "min_raters": 1}
        settings |= {"signed": party == "site", **changes}
        folder = make_federation(
            tmp_path / "fed", RATINGS, Settings.checked(**settings), party=party, deadlines=QUICK
        )
        found = Inside(folder, split_by_user(RATINGS, tmp_path), test=TEST)
        for site in SITES:
            found.start_site(site)
        return found

    return made


def gone_and_rest(made, tmp_path):
    """A user of site a, and a file with the ratings of all others there."""
    frame = pl.read_parquet(made.ratings["a"])
    user = frame["user_id"].unique().sort()[2]
    rest = tmp_path / "rest.parquet"
    frame.filter(pl.col("user_id") != user).write_parquet(rest)
    return str(user), rest


def traces_of(made, user, factors):
    """Files of site a that have a user's name, or the bytes of the user's factors."""
    looked_for = [user.encode(), user.encode("utf-32-le")]
    looked_for += [np.asarray(factors, kind).tobytes() for kind in (np.float32, np.float64)]
    place = made.folder.root / "sites" / "a"
    files = [path for path in place.rglob("*") if path.is_file()]
    assert len(files) > 3
    return sorted(
        str(path.relative_to(place))
        for path in files
        if any(one in path.read_bytes() for one in looked_for)
    )


def factors_of(site, user):
    place = site.plan.holdings.training.user(user)
    rows = np.concatenate([party.user_factors for party in site.parties.values()])
    return rows[place]


@pytest.mark.parametrize("party", ["site", "user"])
def test_after_training_no_file_has_the_user_or_the_factors(federation, tmp_path, party):
    """The factors stayed in parties-00000.npz."""
    made = federation(party)
    parcel = made.run()
    during = factors_of(made.processes["a"].site, "qzperson-0002")
    made.processes["a"].site.take_model(parcel)
    user, rest = gone_and_rest(made, tmp_path)
    assert user == "qzperson-0002"
    factors = factors_of(made.processes["a"].site, user)
    assert "state/result.npz" in traces_of(made, user, factors)  # the search finds what is there
    half = made.folder.root / "sites" / "a" / "state" / ".fedmmf-0123.part"
    half.write_bytes(user.encode())  # as a process that was killed leaves it
    again = SiteProcess(made.folder, "a", rest, TEST)
    assert again.site.n_users == RATINGS.n_users // 4 - 1
    assert traces_of(made, user, factors) == []
    assert traces_of(made, user, during) == []
    with pytest.raises(UnknownNameError, match="has no user"):
        recommend(made.folder, "a", user, 3)
    assert recommend(made.folder, "a", "qzperson-0001", 3).recommendations


def test_in_the_middle_of_a_training_too_and_the_site_sits_out_the_rest(federation, tmp_path):
    made = federation()
    made.run_until(2)
    user, rest = gone_and_rest(made, tmp_path)
    factors = factors_of(made.processes["a"].site, user)
    assert traces_of(made, user, factors) == ["state/holdings.npz", "state/parties-00000.npz"]
    made.ratings["a"] = rest
    del made.processes["a"]
    made.start_site("a")
    assert traces_of(made, user, factors) == []
    parcel = made.run()
    assert [len(line["parties"]) for line in made.store.rounds()] == [4, 4, 3]
    made.processes["a"].site.take_model(parcel)
    assert made.processes["a"].site.model_name
    assert traces_of(made, user, factors) == []


def test_other_ratings_than_before_are_still_refused_in_the_middle(federation, tmp_path):
    """Taking out users is one thing; another rating, or another user instead, is not."""
    made = federation()
    made.run_until(1)
    _, rest = gone_and_rest(made, tmp_path)
    frame = pl.read_parquet(rest)
    changed = frame.with_columns(rating=6 - pl.col("rating"))
    new = frame.head(8).with_columns(user_id=pl.lit("qzperson-new"))
    for other in (changed, pl.concat([frame, new]), frame.slice(5)):
        other.write_parquet(tmp_path / "other.parquet")
        with pytest.raises(CheckpointError, match=r"not those .*taken out at any time"):
            SiteProcess(made.folder, "a", tmp_path / "other.parquet", TEST)
    assert list((made.folder.root / "sites" / "a" / "state").glob("parties-*.npz"))


def test_the_test_part_stays_as_large_as_training_began_with(federation):
    made = federation()
    made.run()
    with pytest.raises(SettingsError, match=r"began with --test 0\.2; got 0\.5"):
        SiteProcess(made.folder, "a", made.ratings["a"], 0.5)
    shutil.rmtree(made.folder.root / "sites" / "a" / "state")
    SiteProcess(made.folder, "a", made.ratings["a"], 0.5)  # nothing was trained from this state
