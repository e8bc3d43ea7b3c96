"""Scores of pairs of users and items."""

import numpy as np
import torch

from fedmmf.arrays import Array

BLOCK = 1 << 22  # pairs that are gathered at once


def pair_scores(users: Array, items: Array, p: Array, q: Array, device: torch.device) -> Array:
    """Scores q_i . p_u for pairs of codes. (n,) float32."""
    p, q = (np.asarray(array, np.float32) for array in (p, q))
    mine, theirs = torch.tensor(p, device=device), torch.tensor(q, device=device)
    out = np.empty(len(users), np.float32)
    for begin in range(0, len(users), BLOCK):
        some = slice(begin, begin + BLOCK)
        codes = (torch.tensor(np.asarray(a[some], np.int64), device=device) for a in (users, items))
        user, item = codes
        out[some] = (mine[user] * theirs[item]).sum(1).cpu().numpy()
    return out
