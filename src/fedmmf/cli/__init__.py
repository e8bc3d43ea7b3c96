"""The command line: one file per command."""

from fedmmf.cli.app import main

__all__ = ["main"]
