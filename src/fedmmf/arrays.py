"""The one name for arrays in signatures; shapes and types stand in comments and docstrings."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
