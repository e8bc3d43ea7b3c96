"""The command line: one file per command."""

from fedmmf.cli import interrupts


def main() -> None:
    """Run the command line; see `app.main`. Ctrl-C counts from here on, while commands load too."""
    with interrupts.at_once():
        from fedmmf.cli.app import main as run  # takes seconds: it loads all that commands need
    run()


__all__ = ["main"]
