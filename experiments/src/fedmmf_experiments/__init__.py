"""The paper's experiments and benchmarks: `fedmmf reproduce` and `fedmmf bench`."""

__version__ = "0.2.0"
