"""Texts that may be anybody's: names of files and columns, and messages about them."""


def printable(text: str) -> str:
    """Replace control characters, and characters that cannot be encoded, in a text."""
    return "".join(mark if mark.isprintable() or mark == "\n" else "\ufffd" for mark in text)
