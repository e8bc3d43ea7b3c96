"""The efficiency experiment on a small set."""

import json
from dataclasses import asdict

import pytest

from fedmmf.settings import Settings
from fedmmf_experiments.paper import efficiency

pytest.importorskip("tenseal", reason="the extra `he`")
pytest.importorskip("phe", reason="the extra `he`")


@pytest.fixture(scope="module")
def report(small):
    settings = Settings(mask="lr", factors=3, held_out=0.0)
    steps = []
    found = efficiency.run(small, settings, [0.05], 1, lambda *step: steps.append(step))
    assert steps == [(i, 7) for i in range(7)]
    return found


def test_every_way_is_there_with_its_cost(report):
    names = [way.way for way in report.ways]
    assert names == ["plain", "adaptive, J <= 0.05", "secure", *efficiency.SCHEMES]
    ways = dict(zip(names, report.ways, strict=True))
    for way in ways.values():
        assert way.party_s > 0
        assert way.server_s > 0
        assert way.how
    up = {name: way.up_bytes for name, way in ways.items()}
    assert up["plain"] < up["adaptive, J <= 0.05"] < up["secure"] < up["Paillier 2048"]
    assert ways["plain"].share_in_clear == 1
    assert 0 < ways["adaptive, J <= 0.05"].share_in_clear < 1
    assert ways["secure"].share_in_clear == 0
    assert ways["Paillier 2048"].party_s > 10 * ways["secure"].party_s
    assert "extrapolated" in ways["CKKS"].how


def test_the_share_of_secure_users_grows_with_the_threshold(report):
    for shares in report.secure_share.share.values():
        assert shares == sorted(shares)
        assert 0 <= shares[0] < shares[-1] <= 1


def test_it_is_written_as_data_table_and_pictures(report, tmp_path):
    efficiency.write(report, tmp_path / "new")
    written = json.loads((tmp_path / "new/efficiency.json").read_text())
    assert written == asdict(report)
    assert list(written) == ["data", "n_users", "n_items", "settings", "ways", "secure_share"]
    names = {"way", "party_s", "server_s", "up_bytes", "down_bytes", "share_in_clear", "how"}
    assert set(written["ways"][0]) == names
    assert list(written["secure_share"]) == ["threshold_j", "share"]
    assert "| secure | 0 % |" in (tmp_path / "new/efficiency.md").read_text()
    for suffix in ("png", "svg"):
        assert (tmp_path / f"new/efficiency.{suffix}").stat().st_size > 10_000
