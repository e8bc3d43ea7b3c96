import numpy as np


def base_of(learned):
    """What somebody unknown gives each item, and at the end the unknown one: by hand, on 1..5."""
    line, x = learned.line, np.clip(learned.features, -4, 4)  # features count up to 4
    return np.clip(line[0] + x[:, : len(line) - 1] @ line[1:], 1, 5)
