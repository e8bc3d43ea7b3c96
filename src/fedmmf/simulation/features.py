"""Item features as masks and priors see them."""

import numpy as np

from fedmmf.aggregation.contract import Census, columns_of
from fedmmf.aggregation.rare_items import are_rare, raters_needed, summed_items
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.rated_items import RatedItems, count_codes
from fedmmf.errors import DataError
from fedmmf.masks import FAMILIES
from fedmmf.masks.population import CommonItems, Population, everybodys_totals
from fedmmf.settings import Settings
from fedmmf.settings.groups import AUTO
from fedmmf.solvers.contract import ItemSums
from fedmmf.wire import Layout

ROW_ENERGY = 1.6  # MovieLens genres and years have it as they are
MIN_HOLDERS = 5  # of a value of a profile
STATISTICS_SHRINKAGE = 10.0  # shrinkage of an item's mean towards the midpoint, in ratings


def settled(settings: Settings, ratings: Ratings) -> Settings:
    """Replace the mask `auto` in the settings by one that the items' features allow."""
    if settings.mask != AUTO:
        return settings
    names = () if ratings.features is None else ratings.features.names
    return settings.changed(mask="lr" if names or settings.item_statistics else "mean")


def content_features(ratings: Ratings) -> Array:
    """Item features as masks and priors take them; no columns where there are none. (n_items, d).

    See `scaled_features`.
    """
    if ratings.features is None:
        return np.zeros((ratings.n_items, 0))
    return scaled_features(ratings.features.values)


def scaled_features(features: Array) -> Array:
    """Features of a catalogue, all scaled by one number. (n_items, d).

    A strength of regularisation then means the same for a few genres and for twenty components of
    tags: the mean squared length of a row becomes `ROW_ENERGY`.
    """
    values = np.asarray(features, np.float64)
    energy = np.square(values).sum(axis=1).mean()
    return np.ascontiguousarray(values * np.sqrt(ROW_ENERGY / max(energy, 1e-12)))


def profile_values(ratings: Ratings) -> Array:
    """Profile values of each user; no columns where nothing is known. (n_users, d).

    Without columns in which fewer than `MIN_HOLDERS` differ from the others: sums over users
    would be about them alone.
    """
    if ratings.profiles is None:
        return np.zeros((ratings.n_users, 0))
    values = np.asarray(ratings.profiles.values, np.float64)
    usual = [np.unique(column, return_counts=True)[1].max() for column in values.T]
    differ = len(values) - np.array(usual, np.int64)
    return np.ascontiguousarray(values[:, differ >= MIN_HOLDERS])


def census_of(ratings: Ratings, content: Array, settings: Settings) -> Census:
    """Compute what a survey would find; under a privacy budget there is no survey.

    Args:
        ratings: of everybody.
        content: public item features. (n_items, d)
        settings: of the run.
    """
    counts, scale = count_codes(ratings.item_codes, ratings.n_items), ratings.scale
    if settings.aggregation == "dp":
        return Census(np.zeros_like(counts), Population.unknown(scale))
    n_seen = content.shape[1] * FAMILIES[settings.mask].needs_features
    items, seen = _items_of(counts, settings), content[:, : columns_of(settings, n_seen) - 1]
    common = CommonItems.of(items, seen, settings.min_raters)
    lists = RatedItems(ratings.by_user, ratings.item_codes)
    lists, is_common = lists.within(common.items, ratings.n_items)
    totals = everybodys_totals(lists, ratings.values[is_common], common.features, scale)
    about = (counts[common.items], common.features, scale)
    return Census(counts, Population.of_totals(totals, *about))


def _items_of(n_raters: Array, settings: Settings) -> Array:
    """Which items are summed: all in the clear and under noise, else those that are not rare."""
    if settings.sharing == "plain" or settings.aggregation == "dp":
        return np.arange(len(n_raters), dtype=np.int32)
    return summed_items(n_raters, settings)


def layout_of(census: Census, settings: Settings) -> Layout:
    """Compute the layout: the items that are summed, and the population statistics."""
    items = _items_of(census.n_raters, settings)
    if len(items) == 0:
        raise DataError(
            f"no item has the {raters_needed(settings.min_raters, settings.batch)} raters that a "
            "sum that hides summands needs (some more than min_raters, for drop-outs). Use "
            "ratings of more people, or simulate without protection: sharing 'plain'",
            flags="--sharing plain",
        )
    return Layout(items, census.population.line, census.population.pull)


def surveyed(ratings: Ratings, settings: Settings) -> ItemSums:
    """Compute a survey: each item's ratings around the middle of [0, 1], and counts.

    Nothing of rare items, unless sums are in the clear anyway.
    """
    rows = ratings.scale.to_unit(ratings.values) - 0.5
    sums = np.bincount(ratings.item_codes, rows, ratings.n_items)
    counts = count_codes(ratings.item_codes, ratings.n_items)
    is_rare = are_rare(counts, settings.min_raters, settings.batch)
    is_left_out = is_rare & (settings.sharing != "plain")
    kept = np.where(is_left_out, 0.0, sums)[:, np.newaxis]
    return ItemSums(kept, np.where(is_left_out, 0, counts), np.zeros(0))


def statistics_features(sums: ItemSums) -> Array:
    """Shrunken mean and logarithm of the count of each item, as mask features. (n_items, 2)."""
    counts = sums.n_raters.astype(np.float64)
    means = sums.rows[:, 0] / (counts + STATISTICS_SHRINKAGE)
    columns = np.column_stack((means, np.log1p(counts)))
    columns -= columns.mean(axis=0)
    return np.asarray(columns / np.maximum(columns.std(axis=0), 1e-12))
