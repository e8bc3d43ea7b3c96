import numpy as np
import pytest

from fedmmf.data import RatingScale
from fedmmf.errors import SettingsError


def test_found_in_half_stars():
    assert RatingScale.found_in([5.0, 0.5, 3.0, 3.5]) == RatingScale(0.5, 5.0, 0.5)


def test_float32_noise_is_not_a_step():
    tenths = np.arange(1, 11, dtype=np.float32) / np.float32(10)
    assert RatingScale.found_in(tenths) == RatingScale(0.1, 1.0, 0.1)


def test_a_single_value_gives_a_usable_scale():
    scale = RatingScale.found_in([4, 4])
    assert scale.min < 4 < scale.max
    assert scale.to_unit(np.array([4.0])) == pytest.approx(0.5)


def test_unit_and_clip():
    scale = RatingScale(1, 5, 1)
    assert (scale.span, scale.midpoint) == (4, 3)
    np.testing.assert_allclose(scale.to_unit(np.array([1.0, 2.0, 5.0])), [0, 0.25, 1])
    np.testing.assert_allclose(scale.clip(np.array([-3.0, 2.5, 9.0])), [1, 2.5, 5])


def test_float32_stays_float32():
    assert RatingScale(1, 5, 1).to_unit(np.ones(2, dtype=np.float32)).dtype == np.float32


@pytest.mark.parametrize("bad", [(5, 1, 1), (1, 1, 1), (1, 5, 0), (1, 5, 9), (1, float("nan"), 1)])
def test_nonsense_is_refused(bad):
    with pytest.raises(SettingsError, match="scale needs"):
        RatingScale(*bad)


def test_no_ratings_show_no_scale():
    with pytest.raises(SettingsError, match="no ratings"):
        RatingScale.found_in([])
