"""The command line: one file per command."""

from fedmmf.cli import interrupts


def main() -> None:
    """Run the command line; see `app.main`. Ctrl-C counts from here on, while commands load too."""
    with interrupts.at_once():
        from fedmmf.cli.app import main as run  # everything that commands need: seconds
    run()


__all__ = ["main"]
