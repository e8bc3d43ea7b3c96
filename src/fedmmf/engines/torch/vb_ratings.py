"""Values in the place of masked ratings, where unrated items count or ratings are levels."""

import math
from typing import Any

import torch

from fedmmf.engines.torch.vb_job import SomeUsers, unrated_lines
from fedmmf.solvers.vb.ordinal import FAR, MIN_SHARE
from fedmmf.solvers.vb.reading import Unrated

BLOCK = 1 << 24  # numbers that are gathered at once


def unrated_here(users: SomeUsers, unrated: Unrated) -> tuple[torch.Tensor, torch.Tensor]:
    """Ratings less the weighted value that they would have if unrated, and what squares gain.

    first = sum (r - w h) q + ...,  squares = sum r^2 + w (line G line - sum h^2),  h = x . line.
    (n,) float32, (n_users,) float64
    """
    lines = unrated_lines(users, unrated)
    here = _pairs(unrated.design, lines, users)  # (n,)
    ratings = users.masked.double()
    told = ratings - unrated.weight * here
    squares = ratings.square() - unrated.weight * here.square() - told.square()
    everywhere = ((lines @ unrated.gram) * lines).sum(1)
    return told.float(), sums_of(users, squares) + unrated.weight * everywhere


def ordered(
    users: SomeUsers, reading: Any, p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`ordinal.latent` less the mask, its variance, and `ordinal.level_totals`, of each user.

    (n,) float32, (n_users,), (n_users, 3 (n_levels - 1))
    """
    spread, cuts, levels = reading.tau.sqrt(), reading.cuts, users.levels.long()
    expected = _pairs(reading.mean, p, users) + users.mask.double()
    edges = torch.cat((cuts.new_full((1,), -math.inf), cuts, cuts.new_full((1,), math.inf)))
    low = ((edges[levels] - expected) / spread).clip(-FAR, FAR)
    high = ((edges[levels + 1] - expected) / spread).clip(-FAR, FAR)
    share = (torch.special.ndtr(high) - torch.special.ndtr(low)).clip(min=MIN_SHARE)
    shift = (_density(low) - _density(high)) / share
    variance = 1.0 + (low * _density(low) - high * _density(high)) / share - shift.square()
    told = expected + spread * shift - users.mask.double()
    totals = []
    for cut in range(len(cuts)):
        at = (cuts[cut] - expected) / spread
        counted = ((levels <= cut).double(), torch.special.ndtr(at), _density(at) / spread)
        totals.append(torch.stack([sums_of(users, values) for values in counted]))
    per_user = torch.stack(totals, dim=-1).permute(1, 0, 2).reshape(users.n_users, -1)
    gained = sums_of(users, reading.tau * variance.clip(0.0, 1.0))
    return told.float(), gained, per_user


def _density(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-0.5 * x.square()) / math.sqrt(2.0 * math.pi)


def _pairs(of_items: torch.Tensor, of_users: torch.Tensor, users: SomeUsers) -> torch.Tensor:
    """Products of each rating's item and user. (n,) float64."""
    found = torch.empty(len(users.items), dtype=torch.float64, device=of_items.device)
    size = max(BLOCK // max(of_items.shape[1], 1), 1)
    for begin in range(0, len(found), size):
        some = slice(begin, begin + size)
        mine = of_users[users.owners[some]].double()
        found[some] = (of_items[users.items[some].long()].double() * mine).sum(1)
    return found


def sums_of(users: SomeUsers, values: torch.Tensor) -> torch.Tensor:
    """Sum over each user's ratings, in their order. (n,) -> (n_users,)."""
    if not len(values):
        return values.new_zeros(users.n_users)
    return torch.segment_reduce(values, "sum", offsets=users.indptr, axis=0, initial=0)
