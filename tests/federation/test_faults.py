"""One training through kills, stops and cut links; `make faults` has ten, and longer ones."""

import faults
import pytest

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install 'fedmmf[federation]'")


def test_training_survives_what_happens_to_machines():
    happened, (n_lost, n_groups, difference) = faults.one_run(1, faults.SETTINGS.changed(rounds=40))
    assert len(happened) >= 3
    assert difference < 1e-4
    assert n_lost >= 0
    assert n_groups >= 1
