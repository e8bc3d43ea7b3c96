"""Ways to split a set for a table: at random, as its publisher did, or by time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedmmf.data import Ratings, split_as_published
from fedmmf.errors import SettingsError

WAYS = ("random", "published", "time")
PUBLISHED = ("u1", "u2", "u3", "u4", "u5")  # of ML-100K: every rating is tested in one of them
FIRST_CUT, CUT = 0.5, 0.1  # by time: the share that the first window trains on; that is tested on


@dataclass(frozen=True)
class Part:
    """One split, by its name and seed."""

    name: str
    seed: int  # of what is trained on it
    make: Callable[[], tuple[Ratings, Ratings]]  # (train, test)


@dataclass(frozen=True)
class Splitting:
    """How a set is split, and how often.

    By time, windows grow: each trains on all ratings up to some time and tests on the next tenth,
    with people of whom nothing was known by then. An interval over windows is only a guide:
    windows are nested and people drift, while the rule behind `shared` is for random splits.
    """

    way: str = "random"  # one of `WAYS`
    count: int = 10  # splits
    test: float = 0.2  # share of ratings to test on, at random; other ways have their own
    seed: int = 0  # of the first split, and of what is trained on it; the next ones follow

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise SettingsError(f"a way to split is one of {', '.join(WAYS)}; got {self.way!r}")
        if self.way != "random" and self.count > len(PUBLISHED):
            raise SettingsError(f"{self.way} splits are 5 at most; got {self.count}")

    @property
    def shared(self) -> float:
        """The test share that intervals over these splits are to know of."""
        by_way = {"random": self.test, "published": 0.2, "time": CUT / (FIRST_CUT + CUT)}
        return by_way[self.way]

    def parts(self, ratings: Ratings) -> Iterator[Part]:
        """Return every split of a set."""
        for number in range(self.count):
            seed = self.seed + number
            if self.way == "published":
                name = PUBLISHED[number]
                yield Part(name, seed, partial(split_as_published, ratings, ratings.name, name))
            elif self.way == "time":
                cut = FIRST_CUT + CUT * number
                yield Part(f"time-{cut:.1f}", seed, partial(_window, ratings, cut))
            else:
                make = partial(ratings.split, self.test, seed)
                yield Part(f"test-{self.test:g}-seed-{seed}", seed, make)


def _window(ratings: Ratings, cut: float) -> tuple[Ratings, Ratings]:
    """Train on the earliest share of the ratings, test on those that follow."""
    order = np.argsort(ratings.require_timestamps("A split by time"), kind="stable")
    until, end = (round(share * len(ratings)) for share in (cut, cut + CUT))
    is_early = np.zeros(len(ratings), bool)
    is_early[order[:end]] = True
    is_test = np.zeros(len(ratings), bool)
    is_test[order[until:end]] = True
    return ratings.select(is_early).split_at(is_test[is_early])
