"""Texts that may be anybody's: names of files and columns, and messages about them."""


def printable(text: str) -> str:
    """The same with a replacement for what a terminal would obey, or what cannot be encoded."""
    return "".join(mark if mark.isprintable() or mark == "\n" else "\ufffd" for mark in text)
