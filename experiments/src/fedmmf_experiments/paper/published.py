"""What the paper's Table 1 prints: (RMSE, MAE) by data set and model."""

PAPER = {
    "ml-100k": {
        "FedMF": (0.9491, 0.7412),
        "LocalLR": (1.0107, 0.8040),
        "FedLR": (1.0796, 0.8844),
        "One-order FedMMF": (0.9340, 0.7340),
        "LocalFM": (1.0083, 0.8054),
        "FedFM": (1.0628, 0.8644),
        "Two-order FedMMF": (0.9218, 0.7250),
        "LocalNN": (1.0114, 0.8087),
        "FedNN": (1.0945, 0.9176),
        "High-order FedMMF": (0.9319, 0.7317),
    },
    "ml-10m": {
        "FedMF": (0.7753, 0.5827),
        "LocalLR": (0.8818, 0.6766),
        "FedLR": (0.9703, 0.7497),
        "One-order FedMMF": (0.7695, 0.5808),
        "LocalFM": (0.8938, 0.6862),
        "FedFM": (0.9639, 0.7445),
        "Two-order FedMMF": (0.7720, 0.5827),
        "LocalNN": (0.8819, 0.6816),
        "FedNN": (0.9756, 0.7689),
        "High-order FedMMF": (0.7648, 0.5772),
    },
    "lastfm": {
        "FedMF": (1.2235, 0.8780),
        "LocalLR": (1.1081, 0.8163),
        "FedLR": (1.5448, 1.3538),
        "One-order FedMMF": (1.0886, 0.8066),
        "LocalFM": (1.0845, 0.7988),
        "FedFM": (1.5301, 1.3369),
        "Two-order FedMMF": (1.0842, 0.7964),
        "LocalNN": (1.1007, 0.8007),
        "FedNN": (1.5461, 1.3598),
        "High-order FedMMF": (1.0860, 0.7933),
    },
}


def paper_figure(data: str, model: str | None) -> tuple[float, float] | tuple[None, None]:
    """The paper's (RMSE, MAE), or nothing where it has none."""
    if model is None:
        return None, None
    return PAPER.get(data, {}).get(model, (None, None))
