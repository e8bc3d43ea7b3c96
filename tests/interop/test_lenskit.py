"""Our scorer in LensKit's pipelines, on LensKit's data."""

import numpy as np
import pytest

from fedmmf import FedMMF
from fedmmf.data.adapters import ratings_of
from fedmmf.errors import FedMMFError, SettingsError

pytest.importorskip("lenskit", reason="lenskit is not installed: pip install 'fedmmf[interop]'")

from lenskit import predict, recommend
from lenskit.data import ItemList, ItemListCollection, from_interactions_df
from lenskit.pipeline import predict_pipeline, topn_pipeline

from fedmmf.interop.lenskit import FedMMFScorer, ScorerSettings

# LensKit and what it loads warn on import and at work; their warnings are not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")
SMALL = {"factors": 3, "rounds": 5}


@pytest.fixture(scope="module")
def table(small):
    return small.to_frame().to_pandas()


@pytest.fixture(scope="module")
def dataset(table):
    return from_interactions_df(table)


@pytest.fixture(scope="module")
def model(dataset):
    return FedMMF(mask="mean", **SMALL).fit(dataset, scale=(1, 5))


def test_lenskits_data_are_ratings(dataset, table, small):
    assert ratings_of(dataset).to_frame().equals(small.to_frame())
    lists = ItemListCollection.from_df(table, ["user_id"])
    assert ratings_of(lists).to_frame()[:, :3].equals(small.to_frame()[:, :3])


def test_the_model_tests_on_lenskits_lists(model, table, small):
    lists = ItemListCollection.from_df(table, ["user_id"])
    assert model.evaluate(lists) == pytest.approx(model.evaluate(small))


@pytest.fixture(scope="module")
def pipeline(dataset):
    made = topn_pipeline(FedMMFScorer(**SMALL), predicts_ratings=True, n=5)
    made.train(dataset)
    return made


def test_it_is_configured_as_lenskits_components_are():
    scorer = FedMMFScorer(factors=7)
    assert isinstance(scorer.config, ScorerSettings)
    assert (scorer.config.factors, scorer.config.mask) == (7, "mean")
    assert FedMMFScorer(ScorerSettings(factors=7)).dump_config() == scorer.dump_config()
    again = FedMMFScorer(FedMMFScorer.validate_config(scorer.dump_config()))
    assert again.config == scorer.config
    assert FedMMFScorer(objective="ranking").config.solver == "vb"
    with pytest.raises(SettingsError, match="unknown setting 'factor'"):
        FedMMFScorer(factor=7)
    with pytest.raises(SettingsError, match="'ranking' needs solver 'vb'; got 'sgd'"):
        FedMMFScorer(objective="ranking", solver="sgd")
    with pytest.raises(FedMMFError, match="not trained"):
        scorer(1, ItemList([1]))


def test_lists_are_those_of_the_model(pipeline, model, small):
    for user in small.user_ids[:5].tolist():
        found = recommend(pipeline, user)
        assert found.ids().tolist() == model.recommend(user, 5)["item_id"].to_list()


def test_predictions_are_those_of_the_model(dataset, model, small):
    pipeline = predict_pipeline(FedMMFScorer(**SMALL), fallback=False)
    pipeline.train(dataset)
    user, items = small.user_ids[3].item(), small.item_ids[:20].tolist()
    found = predict(pipeline, user, ItemList([*items, 10**6]))
    scores = found.scores()
    assert np.isnan(scores[-1])
    np.testing.assert_allclose(np.clip(scores[:-1], 1, 5), model.predict([user] * 20, items))


def test_whoever_is_new_is_scored_by_own_ratings(pipeline, model, small):
    items = small.item_ids[[2, 9, 30]].tolist()
    scorer = pipeline.component("scorer")
    wanted = ItemList(small.item_ids[:6])
    rated = ItemList([*items, 10**6], rating=[5.0, 1.0, 3.0, 2.0])
    expected = model.join(dict(zip(items, [5.0, 1.0, 3.0], strict=True))).scores(wanted.ids())
    np.testing.assert_allclose(scorer(rated, wanted).scores(), expected, rtol=1e-6)
    for nobody in (10**6, ItemList(items)):
        assert np.isnan(scorer(nobody, wanted).scores()).all()


def test_it_is_trained_again_only_where_that_is_asked_for(dataset):
    from lenskit.training import TrainingOptions

    scorer = FedMMFScorer(**SMALL)
    scorer.train(dataset)
    first = scorer.model
    scorer.train(dataset, TrainingOptions(retrain=False))
    assert scorer.model is first
    scorer.train(dataset, TrainingOptions(retrain=True))
    assert scorer.model is not first
