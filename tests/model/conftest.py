import numpy as np

from fedmmf.solvers.vb.newcomers import NewcomerPrior


def base_of(learned):
    """What somebody unknown gives each item, and at the end the unknown one: by hand, on 1..5."""
    line, x = learned.line, np.clip(learned.features, -4, 4)  # features count up to 4
    return np.clip(line[0] + x[:, : len(line) - 1] @ line[1:], 1, 5)


def effects_on_strangers(learned):
    """What it says of somebody unknown that they rate an item: change of its score. (n_items,)."""
    shape, effects = learned.update_shape, np.zeros(learned.n_items)
    for member in learned.members:
        if member.broadcast.newcomers is None or shape.ranks:
            continue
        prior = NewcomerPrior.of(shape, member.broadcast.newcomers)
        nobody, _ = prior.at(np.zeros((0, shape.n_seen)))
        known = np.ones((learned.n_items, shape.n_joint))  # of masks without features
        q = np.hstack((member.broadcast.item_factors.astype(float), known))
        changed = np.array([prior.at(one[np.newaxis, : shape.n_seen])[0] for one in q])
        effects += np.sum(q * (changed - nobody), axis=1) / len(learned.members)
    return effects
