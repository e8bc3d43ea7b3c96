import importlib.util

import pytest

WHERE = "pip install 'fedmmf[interop]'"


def needs(*modules):
    """Skip a test, with the reason, where one of these libraries is absent."""
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{absent} not installed: {WHERE}")
