"""The engine on torch, where it differs from others: devices, pieces, records, kernels."""

import gc
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedmmf.data.rated_items import RatedItems
from fedmmf.engines import ENGINES, engine_of, lasting_engine
from fedmmf.engines.contract import Cohort, DeviceEngine, TrainingInput
from fedmmf.errors import DivergenceError, SettingsError, WireError
from fedmmf.model import FedMMF
from fedmmf.settings import Settings
from fedmmf.simulation.prepared import prepare
from fedmmf.simulation.training import train
from fedmmf.solvers.contract import ItemSums, SolverContext
from fedmmf.solvers.vb.server import VbServer
from fedmmf.solvers.vb.shapes import VbShape, write_variant

torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")
CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no card")
DEVICES = ["cpu", pytest.param("cuda", marks=CARD)]
N_USERS, N_ITEMS = 30, 50
FIXED = Cohort(bound=32.0, scale=2.0**16, total_bound=2.0**16, total_scale=2.0**20)
VARIANTS = {
    "none": write_variant("none"),
    "both": write_variant("both"),
    "profiles": write_variant("both", profile=2),
    "joint": write_variant("both", joint=3),
    "ranking": write_variant("users", design=3),
    "ranking alone": write_variant("none", design=3),
}


def given_for(variant, factors=3, cohort=FIXED):
    random = np.random.default_rng(0)
    lists = [np.flatnonzero(random.random(N_ITEMS) < 0.4) for _ in range(N_USERS)]
    lists[3] = lists[3][:0]
    indptr = np.concatenate(([0], np.cumsum([len(items) for items in lists])))
    items = np.concatenate(lists).astype(np.int32)
    masked = random.standard_normal(len(items)).astype(np.float32)
    update_shape = VbShape.of(factors + 1, VARIANTS[variant])
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


def server_for(given):
    unrated = (0.3, 1.0) if given.update_shape.n_design else ()
    design, stream = given.design[:, : given.update_shape.n_design], np.random.default_rng(1)
    regressors = np.random.default_rng(2).standard_normal((N_ITEMS, 2))
    context = SolverContext(N_ITEMS, 4.0, 1.0, 0.0, 20.0, regressors, design, stream)
    return VbServer(given.update_shape, context, unrated)


def trained_in_numpy(given, n_rounds, off_by_one=None):
    """Trains as a server would; `off_by_one` moves all sums by up to a step of fixed point."""
    server, crowd, (cohort,) = server_for(given), ENGINES["numpy"].halves(given), given.cohorts
    counts = given.lists.counts(N_ITEMS)
    for t in range(1, n_rounds + 1):
        update = crowd.update(server.broadcast(), t)
        rows, totals = update.rows[0], update.totals[0]
        if off_by_one is not None:
            rows = rows + (counts > 0)[:, None] * off_by_one.integers(-1, 2, rows.shape)
            totals = totals + off_by_one.integers(-1, 2, totals.shape)
        totals = totals / (cohort.total_scale or 1.0)
        rows = (rows / cohort.scale).astype(np.float32) if cohort.is_fixed else rows
        server.advance(ItemSums(rows, counts, totals), t)
    return server.state(), crowd.user_factors


def trained_there(engine, given, n_rounds):
    counts, parties = given.lists.counts(N_ITEMS), engine.halves(given).state()
    rounds = engine.rounds(given, server_for(given), counts, parties)
    for t in range(1, n_rounds + 1):
        rounds.one_round(t)
    return rounds.state(), rounds.parties()["value"]


def assert_like(found, expected, room=None):
    """To 1e-4 of the largest number of each array, and `room` besides, by name."""
    (state, p), (wanted, wanted_p) = found, expected
    room = room or {}
    for name, value in wanted.items():
        most = 1e-4 * np.abs(value).max(initial=1e-9) + room.get(name, 0.0)
        np.testing.assert_allclose(state[name], value, rtol=0, atol=most, err_msg=name)
    np.testing.assert_allclose(p, wanted_p, atol=1e-4 + room.get("p", 0.0))


def room_for_steps(given, n_rounds, expected):
    """How far two devices may be apart, for all that they add up the same to a step.

    A user's number is computed in float32 on a card, in float64 in numpy; on the edge between two
    steps of fixed point it is rounded to either, and then rounds begin to differ. How much comes
    of that is a matter of the training and not of the device: here numpy itself is trained on sums
    that are a step off at random, in two entries of three. Twice the largest of a few draws.
    """
    if not given.cohorts[0].is_fixed:
        return {}
    room, (wanted, wanted_p) = {}, expected
    for seed in range(4):
        state, p = trained_in_numpy(given, n_rounds, np.random.default_rng(seed))
        for name, value in [*state.items(), ("p", p)]:
            far = np.abs(value - (wanted_p if name == "p" else wanted[name])).max(initial=0.0)
            room[name] = max(room.get(name, 0.0), 2.0 * float(far))
    return room


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cohort", [Cohort(), FIXED], ids=["plain", "fixed"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rounds_on_a_device_are_those_of_numpy(variant, cohort, device):
    """With looks among them, and records of rounds on a card; a second run plays the same."""
    given, engine = given_for(variant, cohort=cohort), ENGINES["torch"].on(device, 1)
    expected = trained_in_numpy(given, 16)
    room = room_for_steps(given, 16, expected)
    found = [trained_there(engine, given, 16) for _ in range(3)]
    for state, p in found:
        assert_like((state, p), expected, room)
        assert np.array_equal(p, found[0][1])
        assert all(np.array_equal(state[name], found[0][0][name]) for name in state)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("factors", [12, 20, 40, 64])
def test_many_factors_are_no_different(factors, device):
    """Kernels of every width."""
    given = given_for("ranking alone", factors, Cohort())
    expected = trained_in_numpy(given, 4)
    assert_like(trained_there(ENGINES["torch"].on(device, 1), given, 4), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_pieces_and_runs_change_no_bit_of_fixed_sums(variant, device):
    """Integers do not mind who is added when; nor does one device compute the same twice."""
    given = given_for(variant)
    server, updates = server_for(given), []
    for n_pieces in (1, 1, 4, N_USERS):
        crowd = ENGINES["torch"].on(device, n_pieces).halves(given)
        updates.append([crowd.update(server.broadcast(), t) for t in (1, 2)])
    for other in updates[1:]:
        for first, second in zip(updates[0], other, strict=True):
            assert first.rows[0].dtype == np.int64
            assert np.array_equal(first.rows[0], second.rows[0])
            assert np.array_equal(first.totals[0], second.totals[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_processor_adds_what_numpy_adds_to_a_step(variant):
    """Rows of rated items bit for bit; a few totals, and rows of lists, are a step apart."""
    given = given_for(variant)
    server, counts = server_for(given), given.lists.counts(N_ITEMS)
    mine, theirs = ENGINES["torch"].on("cpu", 1).halves(given), ENGINES["numpy"].halves(given)
    for t in range(1, 8):
        broadcast = server.broadcast()
        found, expected = mine.update(broadcast, t), theirs.update(broadcast, t)
        far = np.abs(found.rows[0] - expected.rows[0]).max()
        assert far <= (2 if given.update_shape.n_design else 0)
        assert np.abs(found.totals[0] - expected.totals[0]).max() <= 8
        rows, totals = expected.rows[0] / FIXED.scale, expected.totals[0] / FIXED.total_scale
        server.advance(ItemSums(rows.astype(np.float32), counts, totals), t)


@CARD
@pytest.mark.parametrize("variant", VARIANTS)
def test_heavy_users_and_items_are_cut_without_a_difference(variant, monkeypatch):
    from fedmmf.engines.torch import vb_fused

    given = given_for(variant)
    expected = trained_in_numpy(given, 4)
    room = room_for_steps(given, 4, expected)
    monkeypatch.setattr(vb_fused, "HEAVY", 16)
    monkeypatch.setattr(vb_fused, "HEAVY_PIECE", 8)
    monkeypatch.setattr(vb_fused, "PIECE", 4)
    found = trained_there(ENGINES["torch"].on("cuda", 1), given_for(variant), 4)
    assert_like(found, expected, room)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("power", [-20, 20])
def test_ratings_of_any_size(device, power):
    """A card keeps factors in float16, whose range is narrow."""
    given = given_for("joint", cohort=Cohort())
    engine, scale = ENGINES["torch"].on(device, 1), 2.0**power
    large = replace(given, masked_ratings=(scale * given.masked_ratings).astype(np.float32))
    broadcast = server_for(given).broadcast()
    parts = given.update_shape.blocks["parameters"]
    numbers = broadcast.parameters.copy()
    for name, factor in (("tau", scale**2), ("joint_precision", scale**-2),
                         ("curvature", scale**-2), ("base", scale**-2)):  # fmt: skip
        numbers[parts.place(name)] *= factor
    numbers[parts.place("user_weights")] /= scale
    rows = broadcast.item_rows.copy()
    rows[:, : given.update_shape.rank] *= scale
    halves_of = [engine.halves(given), engine.halves(large)]
    publics = (broadcast, replace(broadcast, parameters=numbers, item_rows=rows))
    updates = [crowd.update(told, 1) for crowd, told in zip(halves_of, publics, strict=True)]
    np.testing.assert_allclose(updates[1].rows[0] / scale, updates[0].rows[0], rtol=1e-4, atol=1e-5)
    k = given.update_shape.rank
    p, large_p = (crowd.user_factors for crowd in halves_of)
    np.testing.assert_allclose(large_p[:, :k], p[:, :k], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(large_p[:, k:] / scale, p[:, k:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "chosen",
    [
        {"solver": "vb"},
        {"solver": "vb", "mask": "mean", "mask_fit": "alone", "ensemble": 2},
        {"solver": "vb", "objective": "ranking", "mask": "fm"},
        {"solver": "vb", "likelihood": "ordinal", "rounds": 12},
        {"solver": "vb", "sharing": "plain", "mask": "nn", "mask_strength": "auto"},
        {"solver": "vb", "held_out": 0.1, "rounds": 9},
        {"solver": "sgd", "rounds": 12, "mask": "lr"},
        {"solver": "sgd", "rounds": 8, "sharing": "adaptive", "grouping": "audit", "mask": "mean"},
    ],
    ids=str,
)
def test_a_training_is_that_of_numba(small, chosen, device):
    chosen = {"factors": 4, **chosen}
    expected = train(small, Settings(**chosen))
    found = train(small, Settings(**chosen, engine="torch", device=device))
    assert len(found.members) == len(expected.members)
    for mine, theirs in zip(found.members, expected.members, strict=True):
        rows, wanted = mine.broadcast.item_rows, theirs.broadcast.item_rows
        np.testing.assert_allclose(rows, wanted, rtol=0, atol=1e-4)
        np.testing.assert_allclose(mine.user_factors, theirs.user_factors, rtol=0, atol=1e-4)
        np.testing.assert_allclose(mine.history, theirs.history, atol=1e-4)
    np.testing.assert_allclose(found.masks.theta, expected.masks.theta, atol=1e-8)


def test_rounds_are_kept_on_the_device_only_where_nobody_looks_in_between(small):
    engine = {"engine": "torch", "device": "cpu", "factors": 3}
    for chosen, is_kept in (({"solver": "vb"}, True), ({"solver": "vb", "held_out": 0.1}, False),
                            ({"solver": "sgd"}, False),
                            ({"solver": "vb", "likelihood": "ordinal"}, False)):  # fmt: skip
        run = prepare(small, Settings(**engine, **chosen))
        assert (run.parties().rounds(run.coordinator().half) is not None) == is_kept


def test_an_interrupted_training_goes_on(small, tmp_path, monkeypatch):
    """Looked at after every round, stopped after some, and gone on with in pieces."""
    from fedmmf.simulation import training

    monkeypatch.setattr(training, "HOLD_SECONDS", 0.0)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    settings = Settings(solver="vb", engine="torch", device="cpu", factors=4, rounds=12)
    whole, file = train(small, settings), tmp_path / "run.ckpt"

    def stopping(stage, done, total):
        if stage == "rounds" and done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(small, settings, progress=stopping, checkpoint_file=file)
    assert file.exists()
    again = train(small, settings.changed(pieces=2), checkpoint_file=file)
    mine, theirs = again.members[0], whole.members[0]
    np.testing.assert_allclose(mine.broadcast.item_rows, theirs.broadcast.item_rows, atol=1e-6)
    np.testing.assert_allclose(mine.user_factors, theirs.user_factors, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cohort", [Cohort(), FIXED], ids=["plain", "fixed"])
def test_a_rating_that_is_no_number_is_found_out(device, cohort):
    """Also where it would have been rounded."""
    given = given_for("none", cohort=cohort)
    given.masked_ratings[5] = np.nan
    with pytest.raises((WireError, np.linalg.LinAlgError)):
        trained_there(ENGINES["torch"].on(device, 1), given, 3)


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_that_no_party_computes_with_end_rounds(device):
    """A variance of nothing: constant ratings without a mask."""
    given = given_for("none", cohort=Cohort())
    given.masked_ratings[:] = 0.0
    with pytest.raises((WireError, np.linalg.LinAlgError)):
        trained_there(ENGINES["torch"].on(device, 1), given, 300)


def test_what_ends_rounds_ends_a_training(small, monkeypatch):
    from fedmmf.engines.torch import vb_rounds

    def broken(self, t, before=vb_rounds.VbRounds.one_round):
        before(self, t)
        self._is_sound.fill_(False)

    monkeypatch.setattr(vb_rounds.VbRounds, "one_round", broken)
    with pytest.raises(DivergenceError, match="no longer finite"):
        train(small, Settings(solver="vb", engine="torch", device="cpu", factors=3))


def test_a_model_is_used_without_torch(small, tmp_path):
    """Who reads a model has no card."""
    settings = {"solver": "vb", "engine": "torch", "device": "cpu", "factors": 3}
    model = FedMMF(**settings).fit(small)
    assert model.learned.engine == lasting_engine("torch") == "numba"
    file = tmp_path / "model.fedmmf"
    model.save(file)
    code = (
        "from fedmmf import FedMMF;"
        f"print(len(FedMMF.load({str(file)!r}).recommend({int(small.user_ids[0])}, 5)))"
    )
    code += "; import sys; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "5"


def test_what_is_on_the_device_goes_with_the_run(small):
    """Nothing of a run stays behind when nobody has it any more."""
    from fedmmf.engines.torch import vb, vb_rounds

    gc.collect()
    before = (len(vb.SHARED), len(vb_rounds.KNOWN))
    run = prepare(small, Settings(solver="vb", engine="torch", device="cpu", factors=3))
    rounds = run.parties().rounds(run.coordinator().half)
    assert (len(vb.SHARED), len(vb_rounds.KNOWN)) == (before[0] + 1, before[1] + 1)
    del run, rounds
    gc.collect()
    assert (len(vb.SHARED), len(vb_rounds.KNOWN)) == before


def test_where_it_computes_is_a_setting():
    engine = engine_of(Settings(engine="torch", device="cpu", solver="vb", pieces=3))
    assert isinstance(engine, DeviceEngine)
    assert (engine.device, engine.n_pieces) == ("cpu", 3)
    assert not isinstance(ENGINES["numba"], DeviceEngine)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_no_card_is_said_with_the_fix(small):
    with pytest.raises(SettingsError, match=r"device 'cuda' needs .*device 'cpu'"):
        train(small, Settings(engine="torch", solver="vb"))


@pytest.mark.parametrize(
    ("cuda", "version", "said"),
    [
        (
            None,
            "2.13.0+cpu",
            r"needs a PyTorch that is built for it; this one, 2.13.0\+cpu",
        ),
        ("13.0", "2.13.0", r"a driver for CUDA 13.0; .*update the driver, or take the device"),
    ],
)
def test_a_torch_or_a_driver_that_will_not_do(monkeypatch, cuda, version, said):
    from fedmmf.engines.torch.device import found

    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match=said):
        found("cuda")


def test_full_memory_is_said_with_the_option(monkeypatch):
    from fedmmf.engines.torch.device import explain_errors

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    said = r"80 GiB .* 1.0 are free.*Take 6 pieces or more"
    with pytest.raises(SettingsError, match=said), explain_errors(3):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")


def test_the_package_imports_numpy_and_torch_alone():
    """So that it runs on a bare machine; on a processor, without triton too."""
    bare = (
        "import sys\n"
        "class Bare:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        allowed = {'fedmmf', 'numpy', 'torch', *ALLOWED, *sys.stdlib_module_names}\n"
        "        if name.partition('.')[0] not in allowed:\n"
        "            raise ImportError(name + ' is not on a bare machine')\n"
    )
    code = (
        "import numpy, torch\n"
        "ALLOWED = {name.partition('.')[0] for name in sys.modules}\n"
        "ALLOWED.discard('triton')\n"
        "sys.meta_path.insert(0, Bare())\n"
        "import fedmmf.engines.torch.engine, fedmmf.engines.torch.vb_rounds\n"
        "import fedmmf.engines.torch.sgd, fedmmf.engines.torch.masks\n"
        "import fedmmf.engines.torch.scores\n"
        "print('imported')"
    )
    done = subprocess.run([sys.executable, "-c", bare + code], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.stdout.strip() == "imported", done.stderr
