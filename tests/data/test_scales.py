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


def test_levels_are_places_on_the_scale():
    half_stars = RatingScale(0.5, 5, 0.5)
    assert half_stars.n_levels == 10
    found = half_stars.levels(np.array([0.5, 1.0, 4.5, 5.0], np.float32))
    assert found.tolist() == [0, 1, 8, 9]
    assert found.dtype == np.int32
    assert half_stars.levels(np.arange(1, 11) / 2).tolist() == list(range(10))
    assert RatingScale(0, 1, 1).levels(np.ones(3)).tolist() == [1, 1, 1]
    assert half_stars.levels(np.zeros(0)).shape == (0,)


def test_levels_of_tenths_are_not_off_by_a_digit_that_nobody_wrote():
    tenths = RatingScale(0.1, 1.0, 0.1)
    assert tenths.n_levels == 10
    values = np.arange(1, 11, dtype=np.float32) / np.float32(10)
    assert tenths.levels(values).tolist() == list(range(10))


def test_what_is_between_or_beyond_levels_is_at_the_nearest():
    scale = RatingScale(1, 5, 1)
    assert scale.levels(np.array([-3.0, 1.4, 1.6, 4.51, 9.0])).tolist() == [0, 0, 1, 4, 4]
    assert RatingScale(1, 5, 3).n_levels == 2  # the step does not go into the span: the nearest
    assert RatingScale(1, 5, 3).levels(np.array([1.0, 4.0, 5.0])).tolist() == [0, 1, 1]


@pytest.mark.parametrize("bad", [(5, 1, 1), (1, 1, 1), (1, 5, 0), (1, 5, 9), (1, float("nan"), 1)])
def test_nonsense_is_refused(bad):
    with pytest.raises(SettingsError, match="scale needs"):
        RatingScale(*bad)


def test_no_ratings_show_no_scale():
    with pytest.raises(SettingsError, match="no ratings"):
        RatingScale.found_in([])
