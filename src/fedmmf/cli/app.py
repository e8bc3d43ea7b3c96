"""Puts the commands together and turns errors into messages and exit codes."""

import sys
from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from fedmmf import __version__
from fedmmf.cli.lazy import LazyGroup
from fedmmf.cli.output import errors
from fedmmf.errors import FedMMFError

_FEDERATION = "Run a real federation across machines: init, server, site, run, status."
_IDENTITY = "Make keys and cards, and keep the list of those who may take part."


class Commands(LazyGroup):
    """All commands, in the order of help; a test holds the words against those of the commands."""

    homes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "demo": (
            "fedmmf.cli.demo:demo",
            "Train FedMF and FedMMF with each mask on made-up ratings, then recommend to one user.",
        ),
        "data": ("fedmmf.cli.data:app", "List, download and describe data sets."),
        "train": (
            "fedmmf.cli.train:train",
            "Train on ratings, test on held-back ones, and show accuracy, J, traffic and time.",
        ),
        "recommend": (
            "fedmmf.cli.recommend:recommend",
            "Recommend items to one user or to many; somebody new needs no retraining.",
        ),
        "export": (
            "fedmmf.cli.export:export",
            "Write users' and items' vectors, or an index of the items, for other tools.",
        ),
        "audit": (
            "fedmmf.cli.audit:audit",
            "Attack masked ratings and messages, and say who would be exposed.",
        ),
        "report": (
            "fedmmf.cli.report:report",
            "Make one HTML file of a run: accuracy, J, traffic, attacks and settings; it works "
            "offline.",
        ),
        "federation": ("fedmmf.cli.federation:app", _FEDERATION),
        "identity": ("fedmmf.cli.identity:app", _IDENTITY),
        "reproduce": ("fedmmf.cli.reproduce:app", "Reproduce the paper's experiments."),
        "bench": ("fedmmf.cli.bench:app", "Measure, also beside other tools."),
    }


app = typer.Typer(
    name="fedmmf",
    cls=Commands,
    help="Federated recommendations from ratings that never leave the people who gave them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedmmf {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a user's mistake is a message on standard error, never a traceback."""
    try:
        app()
    except FedMMFError as error:
        remedy = f" ({error.flags})" if error.flags else ""
        errors.print(f"[bold red]error:[/] {_plain(str(error) + remedy)}", soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        errors.print("[yellow]interrupted[/]")
        sys.exit(130)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        sys.stderr.close()
        sys.exit(1)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
