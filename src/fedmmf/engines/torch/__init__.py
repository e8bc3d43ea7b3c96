"""The solvers and masks on PyTorch: every user at once, on a card or on a processor."""
