"""Made-up ratings in the shape of Book-Crossing: few per user, most books with one, most values 0.

Raw Book-Crossing has 105,254 users, 320,111 books and 1.15 million ratings on 0..10, of which 62 %
are 0: "read, not rated". Half of its users have one rating and one has more than ten thousand.
"""

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.data.ratings import Ratings
from fedmmf.data.scales import RatingScale

USERS, BOOKS, RATINGS = 105_000, 320_000, 1_150_000
N_GENRES = 30
TAIL = 1.05  # of the number of ratings of a user, and of the popularity of a book
OWN_GENRE = 0.75  # share of a user's books that are of the genre that the user likes most
ZEROS = 0.62


def bookshop(
    n_users: int = USERS, n_books: int = BOOKS, n_ratings: int = RATINGS, seed: int = 0
) -> Ratings:
    """Return ratings of about that size: every book has a reader, and so has every user a book."""
    draw, n_draws = rng.stream(seed, "bookshop"), int(1.26 * n_ratings)  # some are drawn twice
    users = _readers(draw, n_users, n_draws)  # (n,)
    taste = draw.integers(0, N_GENRES, n_users)
    is_own = draw.random(n_draws) < OWN_GENRE
    genres = np.where(is_own, taste[users], draw.integers(0, N_GENRES, n_draws))
    books = _books(draw, genres, n_books)  # book b is of the genre b % N_GENRES
    slots = draw.choice(n_draws, n_books, replace=False)
    books[slots] = np.arange(n_books)
    pairs = np.unique(users * n_books + books)  # sorted by user, then by book
    users, books = np.divmod(pairs, n_books)
    return Ratings(
        user_codes=users,
        item_codes=books,
        values=_values(draw, users, books, taste),
        user_ids=np.arange(n_users),
        item_ids=np.arange(n_books),
        scale=RatingScale(0.0, 10.0, 1.0),
        name="bookshop",
        synthetic=True,
    )


def core(ratings: Ratings, minimum: int = 5) -> Ratings:
    """Return the rated part (1..10) in which every user and every book has `minimum` ratings.

    Book-Crossing's has 118,680 ratings; that of the made-up shop, 124,714.
    """
    kept = np.flatnonzero(ratings.values > 0)
    while True:
        of_user = np.bincount(ratings.user_codes[kept], minlength=ratings.n_users)
        of_book = np.bincount(ratings.item_codes[kept], minlength=ratings.n_items)
        has_many = of_user[ratings.user_codes[kept]] >= minimum
        has_many &= of_book[ratings.item_codes[kept]] >= minimum
        if has_many.all():
            break
        kept = kept[has_many]
    user_ids, users = np.unique(ratings.user_ids[ratings.user_codes[kept]], return_inverse=True)
    item_ids, books = np.unique(ratings.item_ids[ratings.item_codes[kept]], return_inverse=True)
    return Ratings(
        user_codes=users.astype(np.int32),
        item_codes=books.astype(np.int32),
        values=ratings.values[kept],
        user_ids=user_ids,
        item_ids=item_ids,
        scale=RatingScale(1.0, 10.0, 1.0),
        name=ratings.name,
        synthetic=True,
    )


def _readers(draw: np.random.Generator, n_users: int, n_draws: int) -> Array:
    """The user of each rating: a Pareto law in which half of the users have one. (n,)."""
    weights = (1.0 - draw.random(n_users)) ** (-1.0 / TAIL)  # at least 1
    weights = np.minimum(weights, 0.012 * weights.sum())
    more = draw.choice(n_users, n_draws - n_users, p=(weights - 1) / (weights - 1).sum())
    return np.concatenate((np.arange(n_users), more))


def _books(draw: np.random.Generator, genres: Array, n_books: int) -> Array:
    """A book of each genre, by a Zipf law within it. (n,)."""
    n_here = n_books // N_GENRES
    law = np.arange(1.0, n_here + 1) ** -TAIL
    ranks = np.searchsorted(np.cumsum(law) / law.sum(), draw.random(len(genres)))
    return np.asarray(np.minimum(ranks, n_here - 1) * N_GENRES + genres)


def _values(draw: np.random.Generator, users: Array, books: Array, taste: Array) -> Array:
    """0 from many users for most books; else about 7.6, more for what they like. (n,)."""
    n_users, n_books = users.max() + 1, books.max() + 1
    silent = draw.beta(1.0, 1.0 / ZEROS - 1.0, n_users)  # share of zeros of each user
    level, quality = draw.normal(7.6, 1.0, n_users), draw.normal(0.0, 0.7, n_books)
    liked = 0.8 * (taste[users] == books % N_GENRES)
    noisy = level[users] + quality[books] + liked + draw.normal(0.0, 1.0, len(users))
    return np.where(draw.random(len(users)) < silent[users], 0, np.clip(np.rint(noisy), 1, 10))
