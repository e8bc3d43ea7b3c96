"""Puts the commands together and turns errors into messages and exit codes."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, ClassVar

import typer

from fedmmf import __version__
from fedmmf.cli import help_pages, interrupts
from fedmmf.cli.lazy import LazyGroup
from fedmmf.cli.output import errors, plain
from fedmmf.errors import FedMMFError

_FEDERATION = "Run a real federation across machines: init, server, site, run, status."
_IDENTITY = "Make keys and cards, and keep the list of those who may take part."
_EXPERIMENTS = (
    "It is part of the package fedmmf-experiments: in a checkout of the project, run "
    "pip install ./experiments"
)


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
        "evaluate": (
            "fedmmf.cli.evaluate:evaluate",
            "Test a saved model on ratings that it has not seen: errors, and lists on request.",
        ),
        "export": (
            "fedmmf.cli.export:export",
            "Write users' and items' vectors, or an index of the items, for other tools.",
        ),
        "audit": (
            "fedmmf.cli.audit:audit",
            "Attack what a training would send, and say what a server could learn about a person.",
        ),
        "report": (
            "fedmmf.cli.report:report",
            "Make one HTML file of a run: accuracy, J, traffic, attacks and settings; it works "
            "offline.",
        ),
        "doctor": (
            "fedmmf.cli.doctor:doctor",
            "Show versions, cores, caches, extras and data sets, and say what is broken or slow.",
        ),
        "federation": ("fedmmf.cli.federation:app", _FEDERATION),
        "identity": ("fedmmf.cli.identity:app", _IDENTITY),
    }
    group: ClassVar[str] = "fedmmf.commands"
    elsewhere: ClassVar[Mapping[str, tuple[str, str]]] = {
        "reproduce": (_EXPERIMENTS, "Reproduce the paper's experiments."),
        "bench": (_EXPERIMENTS, "Measure, also beside other tools."),
    }


help_pages.install()
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
    """Run the command line; a user's mistake is a message on standard error, never a traceback.

    Commands that talk to people or to other machines listen to Ctrl-C themselves. All others run
    in a thread, so that it need not wait for compiled code.
    """
    if sys.argv[1:2] in (["federation"], ["identity"]):
        sys.exit(_run())
    sys.exit(interrupts.in_thread(_run))


def _run() -> int:
    """Run a command. Returns the exit code."""
    try:
        app()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except FedMMFError as error:
        remedy = f" ({error.flags})" if error.flags else ""
        return _fail(f"{error}{remedy}", error.exit_code)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(_of_system(error), 1)
    except MemoryError as error:
        return _fail(f"this needs more memory than there is ({error}); take fewer ratings", 1)
    return 0


def _fail(text: str, code: int) -> int:
    with suppress(OSError):  # nobody may be listening
        errors.print(f"[bold red]error:[/] {plain(text)}", soft_wrap=True)
    return code


def _of_system(error: OSError) -> str:
    place = error.filename or "the output"
    return f"{place} cannot be read or written: {error.strerror or error}; choose another place"
