"""Puts the commands together and turns errors into messages and exit codes."""

import sys
from typing import Annotated

import typer

from fedmmf import __version__
from fedmmf.cli import (
    audit,
    bench,
    data,
    demo,
    export,
    federation,
    identity,
    recommend,
    report,
    reproduce,
    train,
)
from fedmmf.cli.output import errors
from fedmmf.errors import FedMMFError

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
app.command("export", epilog=export.EXAMPLE)(export.export)
app.command("audit", epilog=audit.EXAMPLE)(audit.audit)
app.command("report", epilog=report.EXAMPLE)(report.report)
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
