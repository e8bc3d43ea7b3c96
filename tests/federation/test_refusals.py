"""Who is not let in, by name and with the reason; and what never leaves or is never kept."""

import errno
import os
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.x509 import load_pem_x509_certificate
from inside import plan_of
from machines import SITES, hello_of, make_federation, split_by_user

from fedmmf.data.synthetic import synthetic
from fedmmf.errors import CheckpointError, DataError, FedMMFError, SettingsError, WireError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter
from fedmmf.federation.folder import Folder
from fedmmf.federation.hello import MAX_BYTES, ErrorSums, Welcome
from fedmmf.federation.provision import add_site
from fedmmf.federation.server import (
    identities_of,
    issuer_of,
    require_free_port,
    settings_shown,
)
from fedmmf.federation.site.process import SiteProcess
from fedmmf.federation.site.serving import recommend
from fedmmf.federation.sites import Admission, Sites
from fedmmf.federation.store import RunStore
from fedmmf.identity import Identity, TrustList
from fedmmf.settings import Settings
from fedmmf.transports.bundles import MAX_ENTRIES, pack, unpack
from fedmmf.wire import Finished, Survey, parcel

pytest.importorskip("nvflare", reason="certificates are made by NVFlare's provisioning")

RATINGS = synthetic(24, 12, 200, min_per_user=6, seed=3)
SETTINGS = Settings.checked(solver="vb", factors=2, rounds=2, signed=True, mask="mean")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("federation")
    folder = make_federation(root / "fed", RATINGS, SETTINGS)
    return folder, split_by_user(RATINGS, root)


class Nobody:
    """A link at the other end of which everybody is connected and nobody answers."""

    def is_connected(self, name):
        return True

    def ask(self, topic, questions, timeout):
        return {}


@pytest.fixture
def sites(made):
    folder, _ = made
    digest = ItemList.load(folder.catalogue_file).catalogue.digest
    return Sites(Nobody(), Admission(folder.charter(), digest, identities_of(folder)), lambda: None)


def test_who_agrees_is_let_in(made, sites):
    assert Welcome.decode(sites.hello("a", hello_of(made[0]))).is_welcome
    assert sites.here() == ["a"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"protocol": 99}, "protocol 99"),
        ({"charter": "ab" * 32}, "federation.toml differs"),
        ({"catalogue": "ab" * 32}, "catalogue differs"),
        ({"identity": "ab" * 32}, "unknown or was revoked"),
        ({"identity": ""}, "unknown or was revoked"),
        ({"identity": "abc"}, "hex"),
        ({"parties": 7}, "one party here"),
    ],
)
def test_who_does_not_is_refused_with_the_reason(made, sites, changes, reason):
    said = Welcome.decode(sites.hello("a", hello_of(made[0], **changes)))
    assert not said.is_welcome
    assert reason in said.reason
    (picture,) = (site for site in sites.pictures if site.name == "a")
    assert picture.state == "refused"
    assert reason in picture.reason
    assert sites.here() == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\xff" * 40,
        b"[" * 2000,
        b"x" * (MAX_BYTES + 1),
        b'{"protocol": "1"}',
        b'{"\\u001b[2J": 1}',
    ],
)
def test_malformed_and_oversized_hellos_are_refused(sites, data):
    assert not Welcome.decode(sites.hello("a", data)).is_welcome


def test_a_site_cannot_use_the_identity_of_another(made, sites):
    said = Welcome.decode(sites.hello("b", hello_of(made[0], "a")))
    assert "unknown or was revoked" in said.reason


def test_a_second_process_of_one_name_is_refused_while_the_first_is_heard(made, sites):
    assert Welcome.decode(sites.hello("a", hello_of(made[0], instance="01"))).is_welcome
    second = Welcome.decode(sites.hello("a", hello_of(made[0], instance="02")))
    assert "another process of this site" in second.reason
    assert sites.here() == ["a"]
    sites.exchange(
        "round", {"a": parcel(Finished())}, 0.01
    )  # the first does not answer: it is away
    assert Welcome.decode(sites.hello("a", hello_of(made[0], instance="02"))).is_welcome


def test_a_second_process_that_waits_is_logged_once(made, sites, caplog):
    """It was a line with every heartbeat of the first."""
    for _ in range(3):
        sites.hello("a", hello_of(made[0], instance="01"))
        sites.knock("a", b"02")
    assert caplog.text.count("another process of this site") == 1


def test_a_stranger_with_a_certificate_is_no_site(made, sites):
    assert "not among the sites" in Welcome.decode(sites.hello("z", hello_of(made[0]))).reason


def test_a_revoked_identity_is_refused(tmp_path):
    folder = make_federation(tmp_path / "fed", RATINGS, SETTINGS)
    issuer = Identity.read(folder.keeper / "issuer.key")
    known = TrustList.read(folder.trust_file, issuer=issuer_of(folder))
    known.revoking("b", "lost", issuer).save(folder.trust_file)
    digest = ItemList.load(folder.catalogue_file).catalogue.digest
    admission = Admission(folder.charter(), digest, identities_of(folder))
    refused = Sites(Nobody(), admission, lambda: None).hello("b", hello_of(folder, "b"))
    assert "unknown or was revoked" in Welcome.decode(refused).reason


def test_a_site_can_be_added(tmp_path):
    folder = make_federation(tmp_path / "fed", RATINGS, SETTINGS)
    (handout,) = add_site(folder, "e")
    assert "sites/e/" in handout.files
    assert folder.charter().sites == (*SITES, "e")
    assert set(identities_of(folder).values()) == {*SITES, "e"}
    assert folder.machine("e").identity_file.exists()


# Bundles


def test_a_bundle_holds_a_publication_once():
    shared = Survey(with_ratings=False).encode() * 1
    messages = {f"a/{n:06}": parcel(Finished(), shared) for n in range(5)}
    messages["a/000009"] = parcel(Finished())
    packed = pack(messages)
    assert unpack(packed) == messages
    assert packed.count(shared) == 1


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_a_bundle_that_was_cut_is_refused(cut):
    packed = pack({"a": parcel(Finished()), "b": parcel(Finished(), Survey(True).encode())})
    with pytest.raises(WireError, match="malformed"):
        unpack(packed[: min(cut, len(packed) - 1)])
    with pytest.raises(WireError, match="too many"):
        unpack(packed + b"?")


def test_a_bundle_names_each_party_once_and_has_few_entries():
    one = pack({"a": parcel(Finished())})
    entry = one[8:]
    with pytest.raises(WireError, match="a party twice"):
        unpack(one[:4] + (2).to_bytes(4, "little") + entry + entry)
    with pytest.raises(WireError, match="entries"):
        unpack(one[:4] + (MAX_ENTRIES + 1).to_bytes(4, "little") + entry)


# A site's own mistakes


def test_ratings_outside_the_catalogue_are_counted_and_told_to_the_site_alone(
    made, tmp_path, caplog
):
    folder, _ = made
    path = tmp_path / "more.csv"
    items = RATINGS.item_ids[:6]
    rows = [f"{user},{item},3" for user in ("x", "y") for item in items]
    path.write_text("\n".join(["user_id,item_id,rating", *rows, "x,unheard-of,5", "z,what,1"]))
    with caplog.at_level("INFO"):
        process = SiteProcess(folder, "b", path, 0.0)
    assert (process.outside.n_ratings, process.outside.n_items, process.outside.n_users) == (
        2,
        2,
        1,
    )
    assert "2 ratings of 2 items are not in the catalogue" in caplog.text
    assert "unheard-of" not in process.hello().encode().decode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("user_id,item_id,rating\nx,nothing-of-ours,3\n", "no rating of an item of the catalogue"),
        ("user_id,item_id,rating\n", "rating"),
        (None, "no file"),
    ],
)
def test_a_site_without_ratings_says_so(made, tmp_path, text, reason):
    path = tmp_path / "none.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FedMMFError, match=f"(?i){reason}"):
        SiteProcess(made[0], "c", path)


def test_a_site_of_another_federation_or_without_its_folder_says_so(made, tmp_path):
    folder, files = made
    with pytest.raises(SettingsError, match="no site 'z'"):
        SiteProcess(folder, "z", files["a"])
    with pytest.raises(SettingsError, match="is no federation"):
        SiteProcess(Folder(tmp_path), "a", files["a"])
    with pytest.raises(SettingsError, match="--ratings"):
        SiteProcess(folder, "d")
    with pytest.raises(FedMMFError, match="no model yet"):
        recommend(folder, "a", "1", 3)


def test_what_a_site_keeps_is_for_its_owner_alone(made):
    folder, files = made
    SiteProcess(folder, "a", files["a"], 0.2)
    for path in (folder.machine("a").place, folder.machine("a").state()):
        assert path.stat().st_mode & 0o077 == 0, path  # nobody else gets to what is in it


def test_errors_beyond_the_scale_and_texts_that_no_terminal_should_see_are_refused():
    assert ErrorSums(n_ratings=2, squared=32.0, absolute=8.0).is_possible(4.0)
    assert not ErrorSums(n_ratings=2, squared=33.0, absolute=8.0).is_possible(4.0)
    with pytest.raises(WireError):
        ErrorSums.decode(b'{"n_ratings": %s, "squared": 0, "absolute": 0}' % (b"9" * 400))
    with pytest.raises(WireError, match="printable"):
        Welcome.decode(b'{"is_welcome": false, "reason": "a\\u001b[2J"}')


# The server's own mistakes


def test_a_port_in_use_is_said():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"{port}.*in use.*network.port"):
            require_free_port("127.0.0.1", port, "sites", "network.port")


def test_a_run_of_another_charter_is_not_gone_on_with(tmp_path):
    store = RunStore(tmp_path, {"charter": "a", "catalogue": "b"})
    store.save({}, {"round": 0})
    with pytest.raises(CheckpointError, match="another charter or catalogue"):
        RunStore(tmp_path, {"charter": "c", "catalogue": "b"}).load()


def test_a_disk_that_is_full_is_said_and_nothing_is_lost(tmp_path, monkeypatch):
    store = RunStore(tmp_path, {})
    store.begin_attempt(3)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedmmf.storage.atomic.os.fsync", full)
        with pytest.raises(CheckpointError, match=r"No space left.*Make room"):
            store.begin_attempt(4)
    assert store.attempt == 3
    assert [path.name for path in tmp_path.iterdir()] == ["attempt"]


def test_a_charter_is_read_back_and_its_mistakes_are_named(tmp_path):
    charter = Charter.checked(name="demo", sites=SITES)
    path = tmp_path / "federation.toml"
    path.write_text(charter.text())
    assert Charter.read(path) == charter
    for old, new, reason in (
        ('"a", "b"', '"a", "a"', "name of its own"),
        ('solver = "vb"', 'solver = "magic"', "solver"),
        ("port = 8102", "port = 99999", "port"),
        ('party = "site"', 'party = "user"', "signed sums need party"),
        ("smallest_cohort = 3", "smallest_cohort = 9", "smallest_cohort"),
        ("[network]", "[netwerk]", "netwerk"),
        ('aggregation = "secure"', 'aggregation = "homomorphic-ckks"', "secure"),
        ("name =", "name", "must be as"),
    ):
        path.write_text(charter.text().replace(old, new, 1))
        with pytest.raises(SettingsError, match=reason):
            Charter.read(path)


def test_the_training_table_of_a_charter_has_every_setting_that_matters(tmp_path):
    charter = Charter.checked(name="demo", sites=SITES)
    new = {
        "implicit_prior": "users",
        "profile_prior": False,
        "objective": "ranking",
        "unrated_weight": 0.3,
        "unrated_value": 2.0,
    }
    other = Charter.checked(name="demo", sites=SITES, training=charter.training.changed(**new))
    table, other_table = (tomllib.loads(made.text())["training"] for made in (charter, other))
    unused = {"engine", "device", "pieces", "ensemble", "item_statistics", "collect_masked"}
    assert set(table) == set(Settings.model_fields) - unused - {"mask_strength"}  # it is unset
    assert {name: other_table[name] for name in new} == new
    assert {name for name in table if table[name] != other_table[name]} == set(new)
    path = tmp_path / "federation.toml"
    path.write_text(other.text())
    assert Charter.read(path) == other
    for name, value in new.items():
        one = Charter.checked(name="demo", sites=SITES, training=table | {name: value})
        assert one.digest != charter.digest, name  # a site with another one is refused
    for old, bad, reason in (
        ('implicit_prior = "users"', 'implicit_prior = "all"', "implicit_prior"),
        ("unrated_weight = 0.3", "unrated_weight = 3", "unrated_weight"),
    ):
        path.write_text(other.text().replace(old, bad))
        with pytest.raises(SettingsError, match=reason):
            Charter.read(path)


def test_settings_shown_are_those_that_have_a_say():
    charter = Charter.checked(name="demo", sites=SITES)
    found = settings_shown(charter)
    assert not {"dp_epsilon", "dp_delta", "device", "engine", "ensemble"} & set(found)
    assert found["smallest_cohort"] == 3
    noisy = charter.training.changed(aggregation="dp", solver="sgd", rounds=5)
    with_noise = Charter.checked(name="demo", sites=SITES, training=noisy)
    assert settings_shown(with_noise)["dp_epsilon"] == noisy.dp_epsilon


def test_a_page_elsewhere_does_not_make_another_charter():
    one, other = (
        Charter.checked(name="demo", sites=SITES, network={"page_port": port}) for port in (1, 2)
    )
    assert one.digest == other.digest
    assert Charter.checked(name="demo", sites=SITES, network={"port": 7}).digest != one.digest


def test_data_of_another_scale_is_refused(made, tmp_path):
    path = tmp_path / "off.csv"
    item = RATINGS.item_ids[0]
    path.write_text(f"user_id,item_id,rating\nx,{item},99\n")
    with pytest.raises(DataError):
        SiteProcess(made[0], "c", path)


def test_certificates_are_valid_for_machines_whose_clocks_are_behind(made):
    folder, _ = made
    for path in (
        folder.authority_file,
        *folder.root.glob("*/tls.crt"),
        *folder.root.rglob("a/tls.crt"),
    ):
        found = load_pem_x509_certificate(path.read_bytes())
        age = datetime.now(UTC) - found.not_valid_before_utc
        assert timedelta(hours=23) < age < timedelta(hours=25), path
        assert found.not_valid_after_utc - datetime.now(UTC) > timedelta(days=300)


def test_a_sites_full_disk_is_a_drop_out_and_no_answer_leaves(made, monkeypatch):
    folder, files = made
    process = SiteProcess(folder, "a", files["a"], 0.0)
    process.is_welcome = True
    invitation = pack({"a": plan_of(SETTINGS, process.items).invitation().encode()})
    state = folder.machine("a").state()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedmmf.storage.atomic.os.fsync", full)
        with pytest.raises(CheckpointError, match="No space left"):
            process.answer("server", invitation)
    assert not list(state.glob("*.part"))
    assert not (state / "parties-00000.npz").exists()
    synced, sync = [], os.fsync

    def noted(descriptor):
        sync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    with monkeypatch.context() as patch:
        patch.setattr("fedmmf.storage.atomic.os.fsync", noted)
        assert unpack(process.answer("server", invitation))
    assert (state / "parties-00000.npz").exists()  # before the answer left
    # Names too, or a loss of power brings the old files back; what guards the budget comes last.
    folders = [path for path in synced if path.is_dir()]
    assert folders[-2:] == [state.resolve(), state.resolve().with_name("guards")]
