"""What every named data set has to do."""

import numpy as np
import pytest

from fedmmf.data import DATASETS, load

LARGE = {"synthetic:ml-10m"}


@pytest.mark.parametrize("name", [name for name in DATASETS.names() if name not in LARGE])
class TestDataset:
    @pytest.fixture
    def ratings(self, name, request):
        if DATASETS[name].info.url is None:
            return load(name)
        request.getfixturevalue("public_data")
        if DATASETS[name].find() is None:
            pytest.skip(f"the files of {name} are not here")
        return load(name)

    def test_it_is_what_it_says_it_is(self, name, ratings):
        info = DATASETS[name].info
        assert info.name == name
        sizes = (ratings.n_ratings, ratings.n_users, ratings.n_items)
        assert sizes == (info.n_ratings, info.n_users, info.n_items)
        assert ratings.scale == info.scale
        assert ratings.synthetic == info.synthetic
        assert info.licence

    def test_it_is_the_same_every_time(self, name, ratings):
        again = load(name)
        assert np.array_equal(again.values, ratings.values)
        assert np.array_equal(again.item_codes, ratings.item_codes)
