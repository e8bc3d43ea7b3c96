"""`fedmmf report`: one HTML file of a run, for people."""

from pathlib import Path
from typing import Annotated

import typer

from fedmmf.cli.choices import JsonOption, UnusedSeedOption
from fedmmf.cli.files import require_outputs, written
from fedmmf.cli.output import plain, print_json, results
from fedmmf.reports import read_run, write_report
from fedmmf.reports.reading import files_of

EXAMPLE = "Example: fedmmf report run.json --out report.html"


def report(
    run: Annotated[
        Path,
        typer.Argument(
            help="What `train --json`, `demo --json` or `audit --json` printed; - is standard "
            "input; or a folder with train.json, audit.json or both.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The HTML file; one that is there is replaced.")
    ] = Path("report.html"),
    seed: UnusedSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Make one HTML file of a run: accuracy, J, traffic, attacks and settings; it works offline."""
    require_outputs({"--out": out}, {f"the run {path}": path for path in files_of(run)})
    found = read_run(run)
    with written(out) as partial:
        sections = write_report(found, partial)
    if json:
        print_json({"out": str(out), "sections": sections})
    else:
        results.print(f"{plain(out)}: {', '.join(sections)}", soft_wrap=True)
