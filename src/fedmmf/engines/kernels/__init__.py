"""The numba engine: fused kernels over users and items, shared between threads."""
