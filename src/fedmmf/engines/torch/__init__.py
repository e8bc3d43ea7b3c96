"""The solvers and masks on PyTorch: all users at once, on a GPU or on a CPU."""
