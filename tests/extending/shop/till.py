"""Another package's command, found through its entry point."""

import typer

EXAMPLE = "Example: fedmmf till 3"


def till(n: int) -> None:
    """Count what is in the till."""
    typer.echo(f"{n} coins")
