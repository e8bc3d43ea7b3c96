"""Settings of a run: typed groups, one for each component, with flat names at the surface."""

from fedmmf.settings.settings import Settings

__all__ = ["Settings"]
