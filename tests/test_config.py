import numpy as np
import pytest
from pydantic import ValidationError

from fedmmf.config import Settings
from fedmmf.errors import SettingsError


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        Settings().factors = 3


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"factor": 3}, "unknown setting 'factor'"),
        ({"factors": 0}, "factors should be greater than or equal to 1; got 0"),
        ({"mask": "ridge"}, "mask should be 'none', 'mean', 'lr', 'fm' or 'nn'; got 'ridge'"),
        ({"learning_rate": float("nan")}, "should be a finite number or should be 'auto'; got nan"),
        ({"held_out": 0.9}, "less than or equal to 0.5 or should be 'auto'; got 0.9"),
        ({"cross_fit": "False"}, "cross_fit should be a valid boolean; got 'False'"),
        ({"rounds": 2.5}, "rounds should be a valid integer or should be 'auto'; got 2.5"),
    ],
)
def test_a_mistake_names_field_rule_and_value(values, expected):
    with pytest.raises(SettingsError) as caught:
        Settings.checked(**values)
    assert expected in str(caught.value)


def test_numpys_numbers_are_welcome():
    settings = Settings.checked(factors=np.int64(7), held_out=np.float32(0.25))
    assert (settings.factors, settings.held_out) == (7, 0.25)


def test_changed_validates_anew():
    assert Settings().changed(factors=7).factors == 7
    with pytest.raises(SettingsError):
        Settings().changed(factors=-1)
