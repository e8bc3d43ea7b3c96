"""Made-up ratings that behave like real ones, in any size.

Items have a quality, genres, a release year, a few hidden traits and a popularity with a heavy
tail. Users have a bias, an activity with a heavy tail and tastes for all of the traits. Users meet
items by popularity and rate those they like more often than others, so ratings are missing not at
random, as they are in real life.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmmf import rng
from fedmmf.data.features import ItemFeatures
from fedmmf.data.ratings import Ratings
from fedmmf.data.scales import RatingScale, ScaleLike
from fedmmf.errors import SettingsError
from fedmmf.storage.kernel_cache import cached_jit

_PATIENCE = 20  # draws per item of the catalogue before a user takes what is left
_LIKING = 1.0  # how strongly liking an item makes a user choose it
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
GENRES = (
    "Action", "Adventure", "Animation", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Horror", "Mystery", "Romance", "Science Fiction",
)  # fmt: skip
_FIRST_WORDS = (
    "Amber", "Broken", "Crimson", "Distant", "Electric", "Forgotten", "Golden", "Hidden", "Iron",
    "Last", "Little", "Midnight", "Northern", "Paper", "Quiet", "Restless", "Salt", "Second",
    "Secret", "Seven", "Silver", "Stolen", "Summer", "Tender", "Velvet", "Wandering",
    "White", "Wild",
)  # fmt: skip
_SECOND_WORDS = (
    "Bridge", "Carnival", "City", "Compass", "Daughter", "Door", "Echo", "Empire", "Garden",
    "Harbour", "Highway", "Horizon", "House", "Island", "Lantern", "Letters", "Machine", "Mirror",
    "Mountain", "Orchard", "Promise", "River", "Road", "Shadow", "Station", "Storm",
    "Stranger", "Train", "Valley", "Winter",
)  # fmt: skip
_FIRST_YEAR, _LAST_YEAR = 1950, 2010
_EPOCH = 1_100_000_000  # late 2004
_YEARS_OF_RATINGS = 4 * 365 * 86_400
_N_HIDDEN = 4
# Standard deviations, in stars of a five-star scale, chosen so that predicting a user's mean errs
# by about 1.0 and a good matrix factorization by about 0.9.
_MEAN = 3.3
_USER_BIAS, _QUALITY, _TASTE, _NOISE = 0.40, 0.42, 0.60, 0.72
_HEAD, _TAIL = 0.08, 3.0  # popularity falls with the rank as (rank / n_items + head) ** -tail


def table_of(weights: npt.NDArray[np.float64]) -> tuple[Any, Any]:
    """Return what `choose` needs to draw an item by weight in constant time.

    These are the cumulative probabilities, (n_items,), and the first item to look at in each of
    n_items equal steps of probability.
    """
    cumulative = np.cumsum(weights) / weights.sum()
    steps = np.arange(len(weights)) / len(weights)
    return cumulative, np.searchsorted(cumulative, steps)


@cached_jit()
def _draw(generator: Any, table: Any) -> Any:
    cumulative, guide = table
    point = generator.random()
    item = guide[int(point * len(guide))]
    while item < len(guide) - 1 and cumulative[item] < point:
        item += 1
    return item


@cached_jit()
def _score(world: Any, user: int, item: int) -> Any:
    """How much better than the average item this user finds the item."""
    traits, tastes, quality = world
    score = quality[item]
    for trait in range(traits.shape[1]):
        score += traits[item, trait] * tastes[user, trait]
    return score


@cached_jit()
def _fill(generator: Any, user: int, table: Any, world: Any, taken: Any, items: Any) -> None:
    """Fill `items` with items that are not `taken`: met by popularity, accepted by liking."""
    n_items = len(taken)
    patience = _PATIENCE * n_items
    filled = 0
    while filled < len(items):
        patience -= 1
        # Who has had nearly everything popular would draw for ever, and so takes anything.
        item = _draw(generator, table) if patience > 0 else generator.integers(0, n_items)
        if taken[item]:
            continue
        against = np.exp(-_LIKING * _score(world, user, item))
        if patience <= 0 or generator.random() * (1.0 + against) < 1.0:
            taken[item] = True
            items[filled] = item
            filled += 1


@cached_jit()
def choose(
    generator: Any, counts: Any, table: Any, reserved: Any, world: Any, items: Any, scores: Any
) -> None:
    """Choose `counts[user]` distinct items for every user, and score them.

    Args:
        generator: A numpy generator.
        counts: How many items each user chooses, (n_users,).
        table: From `table_of`.
        reserved: Items and the user who must choose each, (2, n_items), sorted by user.
        world: Traits (n_items, n_traits), tastes (n_users, n_traits) and quality (n_items,).
        items: Filled with item codes, user by user and sorted within users, (n,).
        scores: Filled with what the users think of those items, (n,).
    """
    taken = np.zeros(reserved.shape[1], dtype=np.bool_)
    start = 0
    first = 0  # of the reservations not yet dealt with
    for user in range(len(counts)):
        mine = items[start : start + counts[user]]
        last = first
        while last < len(taken) and reserved[1, last] == user:
            last += 1
        mine[: last - first] = reserved[0, first:last]
        taken[reserved[0, first:last]] = True
        _fill(generator, user, table, world, taken, mine[last - first :])
        mine.sort()
        for at, item in enumerate(mine):
            scores[start + at] = _score(world, user, item)
        taken[mine] = False
        start += counts[user]
        first = last


@dataclass(frozen=True)
class _World:
    """Items and users, before anybody has rated anything."""

    traits: Float32Array  # (n_items, n_traits)
    tastes: Float32Array  # (n_users, n_traits)
    quality: Float32Array  # (n_items,)
    bias: Float32Array  # (n_users,)
    genres: list[list[str]]
    years: npt.NDArray[np.int64]  # (n_items,)


def make(name: str) -> Ratings:
    """Make one of the named synthetic sets; its seed is part of its definition."""
    if name == "synthetic":
        return synthetic(600, 800, 60_000, seed=2023)
    half_stars = RatingScale(0.5, 5.0, 0.5)
    made = synthetic(69_878, 10_677, 10_000_054, seed=2023, scale=half_stars, min_per_user=20)
    return replace(made, name=name)


def synthetic(
    n_users: int,
    n_items: int,
    n_ratings: int,
    seed: int = 0,
    *,
    scale: ScaleLike | None = None,
    min_per_user: int = 15,
) -> Ratings:
    """Make ratings of exactly the given size, with titles, genres, release years and timestamps.

    Args:
        n_users: How many users; each gets at least `min_per_user` ratings.
        n_items: How many items; each gets at least one rating.
        n_ratings: How many ratings, each pair of user and item at most once.
        seed: Equal seeds give equal data.
        scale: The scale of the ratings; 1..5 in whole steps if not given.
        min_per_user: The fewest ratings of a user.
    """
    scale = RatingScale.of(scale or (1, 5))
    _check_sizes(n_users, n_items, n_ratings, min_per_user)
    generator = rng.stream(seed, "synthetic")
    world = _world(generator, n_users, n_items)
    counts = _activity(generator, n_users, n_items, n_ratings, min_per_user)
    user_codes = np.repeat(np.arange(n_users, dtype=np.int32), counts)  # (n,)
    item_codes, values = _rate(generator, world, counts, user_codes, scale)
    titles = _titles(generator, world.years)
    return Ratings(
        user_codes=user_codes,
        item_codes=item_codes,
        values=values,
        timestamps=_timestamps(generator, user_codes, n_users),
        user_ids=np.arange(1, n_users + 1),
        item_ids=np.arange(1, n_items + 1),
        scale=scale,
        features=ItemFeatures.joined(
            ItemFeatures.genres(world.genres), ItemFeatures.release_years(world.years.tolist())
        ),
        item_titles=titles,
        name="synthetic",
        synthetic=True,
    )


def _check_sizes(n_users: int, n_items: int, n_ratings: int, min_per_user: int) -> None:
    low = max(n_users * min_per_user, n_items)
    high = n_users * n_items
    if min(n_users, n_items, min_per_user) < 1 or min_per_user > n_items:
        raise SettingsError(
            f"Synthetic ratings need n_users >= 1 and 1 <= min_per_user <= n_items; got n_users="
            f"{n_users}, n_items={n_items}, min_per_user={min_per_user}."
        )
    if not low <= n_ratings <= high:
        raise SettingsError(
            f"n_ratings must be in [{low:,}, {high:,}] for {n_users:,} users with at least "
            f"{min_per_user} ratings and {n_items:,} items; got {n_ratings:,}."
        )


def _world(generator: np.random.Generator, n_users: int, n_items: int) -> _World:
    weights = np.linspace(2.0, 0.5, len(GENRES))[generator.permutation(len(GENRES))]
    keys = np.log(weights) + generator.gumbel(size=(n_items, len(GENRES)))
    n_genres = generator.integers(1, 4, n_items)  # one to three
    has_genre = keys.argsort(axis=1).argsort(axis=1) >= len(GENRES) - n_genres[:, None]
    age = generator.beta(1.0, 3.0, n_items)  # recent items are the more numerous
    years = (_LAST_YEAR - age * (_LAST_YEAR - _FIRST_YEAR)).astype(np.int64)
    hidden = generator.standard_normal((n_items, _N_HIDDEN))
    traits = np.column_stack([has_genre, age, hidden]).astype(np.float32)  # (n_items, n_traits)
    traits = (traits - traits.mean(axis=0)) / (traits.std(axis=0) + 1e-6)
    traits[:, : len(GENRES)] *= 0.6  # twelve genres together weigh about as much as hidden traits
    tastes = generator.standard_normal((n_users, traits.shape[1]), dtype=np.float32)
    tastes *= _TASTE / np.sqrt((traits**2).mean(axis=0).sum())
    return _World(
        traits=traits,
        tastes=tastes,
        quality=generator.normal(0.0, _QUALITY, n_items).astype(np.float32),
        bias=generator.normal(0.0, _USER_BIAS, n_users).astype(np.float32),
        genres=[[GENRES[at] for at in np.flatnonzero(row)] for row in has_genre],
        years=years,
    )


def _activity(
    generator: np.random.Generator, n_users: int, n_items: int, n_ratings: int, minimum: int
) -> IntArray:
    """Return how many ratings each user gives: log-normal, at least `minimum`, of the given sum."""
    weights = generator.lognormal(0.0, 1.1, n_users)
    mean = n_ratings / n_users
    most = min(n_items, int(max(0.6 * n_items, np.ceil(1.5 * mean), minimum)))
    counts = np.full(n_users, minimum, dtype=np.int64)
    while (short := n_ratings - counts.sum()) > 0:
        weights[counts >= most] = 0.0
        share = np.floor(short * weights / weights.sum()).astype(np.int64)
        if not share.any():  # fewer ratings left than users: the most active get one each
            share[np.argsort(-weights, kind="stable")[:short]] = 1
            share[weights == 0] = 0
        counts = np.minimum(counts + share, most)
    return counts


def _rate(
    generator: np.random.Generator,
    world: _World,
    counts: IntArray,
    user_codes: npt.NDArray[np.int32],
    scale: RatingScale,
) -> tuple[npt.NDArray[np.int32], Float32Array]:
    """Let every user choose and rate; return item codes, sorted within users, and values."""
    n_items = len(world.quality)
    rank = generator.permutation(n_items)
    popularity = (rank / n_items + _HEAD) ** -_TAIL  # (n_items,) Zipf-Mandelbrot
    # One slot of some user is reserved for each item, so that no item stays without ratings.
    slots = generator.choice(len(user_codes), n_items, replace=False)
    order = np.argsort(slots)
    reserved = np.stack([order, user_codes[slots[order]]])  # (2, n_items) item, user; by user
    item_codes = np.empty(len(user_codes), dtype=np.int32)
    scores = np.empty(len(user_codes), dtype=np.float32)
    choose(
        generator, counts, table_of(popularity), reserved,
        (world.traits, world.tastes, world.quality), item_codes, scores,
    )  # fmt: skip
    stars = _MEAN + scores + world.bias[user_codes]
    stars += _NOISE * generator.standard_normal(len(stars), dtype=np.float32)
    # The standard deviations are those of 1..5, so another scale is stretched.
    on_scale = scale.min + (stars - 1.0) / 4.0 * scale.span
    steps = np.round((on_scale - scale.min) / scale.step)
    return item_codes, scale.clip(scale.min + steps * scale.step).astype(np.float32)


def _timestamps(
    generator: np.random.Generator, user_codes: npt.NDArray[np.int32], n_users: int
) -> IntArray:
    """Return times: each user joins at some moment and rates for up to a tenth of the years."""
    joined = generator.integers(_EPOCH, _EPOCH + _YEARS_OF_RATINGS, n_users)
    return joined[user_codes] + generator.integers(0, _YEARS_OF_RATINGS // 10, len(user_codes))


def _titles(generator: np.random.Generator, years: IntArray) -> npt.NDArray[np.str_]:
    """Return a distinct title for each item, such as `Quiet Harbour (1994)`."""
    n_pairs = len(_FIRST_WORDS) * len(_SECOND_WORDS)
    pairs = generator.permutation(n_pairs)
    titles = []
    for item, year in enumerate(years.tolist()):
        first, second = divmod(int(pairs[item % n_pairs]), len(_SECOND_WORDS))
        sequel = f" {item // n_pairs + 1}" if item >= n_pairs else ""
        titles.append(f"{_FIRST_WORDS[first]} {_SECOND_WORDS[second]}{sequel} ({year})")
    return np.array(titles, dtype=np.str_)
