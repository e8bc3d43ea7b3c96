"""Results of attacks that are kept: an audit that was ended goes on, and tries nothing twice."""

import numpy as np
import pytest

from fedmmf.attacks import AttackResult
from fedmmf.audit import audit
from fedmmf.audit.trials import KeptResults, Trials
from fedmmf.errors import CheckpointError
from fedmmf.settings import Settings
from fedmmf.storage import checkpoints
from fedmmf.storage.checkpoints import Checkpoint

SETTINGS = Settings(mask="mean", factors=4, rounds=6)


def result(name="shift"):
    success = np.array([0.5, np.nan, 1.0])
    return AttackResult(name, "K.", "O.", "M.", np.arange(3), success, np.zeros(3), seed=4)


@pytest.fixture
def kept(small, tmp_path):
    return lambda **changes: KeptResults(
        Checkpoint(tmp_path / "a.ckpt"), small, SETTINGS.changed(**changes), 1000
    )


def test_what_was_tried_is_not_tried_again(kept):
    Trials(2, kept=kept()).once("shift", "sums", result)
    again = Trials(2, kept=kept()).once("shift", "sums", lambda: pytest.fail("tried twice"))
    assert again.to_dict() == result().to_dict()
    assert again.seed == 4
    other = Trials(2, kept=kept()).once("shift", "vectors", lambda: result("other"))
    assert other.name == "other"


def test_another_audit_does_not_take_it(kept):
    Trials(1, kept=kept(engine="torch")).once("shift", "sums", result)
    with pytest.raises(CheckpointError, match="an audit with other settings or ratings"):
        kept(engine="torch", factors=5)
    kept(engine="torch", device="cpu")  # that decides where a run computes, and not what


def test_a_damaged_file_is_refused(kept, tmp_path):
    Trials(1, kept=kept()).once("shift", "sums", result)
    arrays, meta = checkpoints.load(tmp_path / "a.ckpt", "audit")
    for name, broken in {
        "success/shift on sums": np.zeros(2),
        "users/shift on sums": np.array(["a", "b", "c"]),
    }.items():
        checkpoints.save(tmp_path / "a.ckpt", arrays | {name: broken}, meta)
        with pytest.raises(CheckpointError, match=r"damaged.* Delete it"):
            kept()
    checkpoints.save(tmp_path / "a.ckpt", {}, meta | {"kind": "checkpoint"})
    with pytest.raises(CheckpointError, match="must be a fedmmf audit"):
        kept()


def test_an_audit_that_ended_goes_on_to_the_same_result(small, tmp_path):
    """Ended after its thirtieth step; secure sums have secrets from the operating system."""
    path, told = tmp_path / "a.ckpt", []

    def until(what, done, total):
        if done == 30:
            raise KeyboardInterrupt
        told.append(what)

    with pytest.raises(KeyboardInterrupt):
        audit(small, SETTINGS, until, checkpoint=Checkpoint(path))
    assert "real parties are made" in told
    told.clear()
    found = audit(small, SETTINGS, lambda *step: told.append(step[0]), checkpoint=Checkpoint(path))
    whole = audit(small, SETTINGS)
    one, other = (each.to_json_dict() for each in (found, whole))
    for each in (one, other):
        del each["messages"]["masked vectors of strict mode"]
    assert one == other
