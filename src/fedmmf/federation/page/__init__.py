"""The web page of a federation's server: what an operator sees, and what programs ask for.

It knows the board alone; whatever is not on it cannot be shown.
"""

from fedmmf.federation.page.serving import StatusPage

__all__ = ["StatusPage"]
