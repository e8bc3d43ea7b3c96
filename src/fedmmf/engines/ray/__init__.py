"""Users on Ray's workers, on one machine or many; each worker runs the compiled kernels."""
