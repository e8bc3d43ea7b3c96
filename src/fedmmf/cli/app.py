"""Puts the commands together and turns errors into messages and exit codes."""

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer
from rich.markup import escape

from fedmmf import __version__
from fedmmf.cli import (
    audit,
    bench,
    data,
    demo,
    doctor,
    federation,
    help_pages,
    identity,
    interrupts,
    recommend,
    report,
    reproduce,
    train,
)
from fedmmf.cli.output import errors
from fedmmf.errors import FedMMFError

help_pages.install()
app = typer.Typer(
    name="fedmmf",
    help="Federated recommendations from ratings that never leave the people who gave them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", epilog="Example: fedmmf demo")(demo.demo)
app.add_typer(data.app, name="data")
app.command("train", epilog=train.EXAMPLE)(train.train)
app.command("recommend", epilog=recommend.EXAMPLE)(recommend.recommend)
app.command("audit", epilog=audit.EXAMPLE)(audit.audit)
app.command("report", epilog=report.EXAMPLE)(report.report)
app.command("doctor", epilog=doctor.EXAMPLE)(doctor.doctor)
app.add_typer(federation.app, name="federation")
app.add_typer(identity.app, name="identity")
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(bench.app, name="bench")


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
        return _fail(str(error), error.exit_code)
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
        errors.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
    return code


def _of_system(error: OSError) -> str:
    place = error.filename or "the output"
    return f"{place} cannot be read or written: {error.strerror or error}; choose another place"
