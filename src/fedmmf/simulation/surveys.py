"""What surveys would find in a simulation: counts, population statistics, statistics of items."""

import numpy as np

from fedmmf.aggregation.contract import Census, columns_of
from fedmmf.aggregation.rare_items import are_rare, raters_needed, summed_items
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.rated_items import count_codes
from fedmmf.errors import DataError
from fedmmf.masks import FAMILIES
from fedmmf.masks.population import CommonItems, Population, everybodys_totals
from fedmmf.settings import Settings
from fedmmf.solvers.contract import ItemSums
from fedmmf.wire import Layout

STATISTICS_SHRINKAGE = 10.0  # shrinkage of an item's mean towards the midpoint, in ratings


def census_of(ratings: Ratings, content: Array, settings: Settings) -> Census:
    """Compute what a survey would find; under a privacy budget there is no survey.

    Args:
        ratings: of everybody.
        content: public item features. (n_items, d)
        settings: of the run.
    """
    counts, scale = count_codes(ratings.item_codes, ratings.n_items), ratings.scale
    if settings.scheme.has_budget:
        return Census(np.zeros_like(counts), Population.unknown(scale))
    n_seen = content.shape[1] * FAMILIES[settings.mask].needs_features
    items, seen = _items_of(counts, settings), content[:, : columns_of(settings, n_seen) - 1]
    common = CommonItems.of(items, seen, settings.min_raters)
    lists, is_common = ratings.rated_items.within(common.items, ratings.n_items)
    totals = everybodys_totals(lists, ratings.values[is_common], common.features, scale)
    about = (counts[common.items], common.features, scale)
    return Census(counts, Population.of_totals(totals, *about))


def _items_of(n_raters: Array, settings: Settings) -> Array:
    """Codes of the summed items: all in the clear and under noise, else those not rare. (n,)."""
    if not settings.scheme.hides or settings.scheme.has_budget:
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
    return Layout(items, census.population.line, census.population.shrinkage)


def surveyed(ratings: Ratings, settings: Settings) -> ItemSums:
    """Compute a survey of ratings: per item their sum, around the middle of [0, 1], and raters.

    Zeros for rare items, unless sums are in the clear anyway.
    """
    rows = ratings.scale.to_unit(ratings.values) - 0.5
    sums = np.bincount(ratings.item_codes, rows, ratings.n_items)
    counts = count_codes(ratings.item_codes, ratings.n_items)
    is_rare = are_rare(counts, settings.min_raters, settings.batch)
    is_left_out = is_rare & settings.scheme.hides
    kept = np.where(is_left_out, 0.0, sums)[:, np.newaxis]
    return ItemSums(kept, np.where(is_left_out, 0, counts), np.zeros(0))


def statistics_features(sums: ItemSums) -> Array:
    """Shrunken mean and logarithm of the count of each item, as mask features. (n_items, 2)."""
    counts = sums.n_raters.astype(np.float64)
    means = sums.rows[:, 0] / (counts + STATISTICS_SHRINKAGE)
    columns = np.column_stack((means, np.log1p(counts)))
    columns -= columns.mean(axis=0)
    return np.asarray(columns / np.maximum(columns.std(axis=0), 1e-12))
