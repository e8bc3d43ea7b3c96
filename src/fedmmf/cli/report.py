"""`fedmmf report`: one HTML file of a run, for people."""

from pathlib import Path
from typing import Annotated

import typer

from fedmmf.cli.choices import JsonOption, UnusedSeedOption
from fedmmf.cli.files import require_file, written
from fedmmf.cli.output import print_json, results
from fedmmf.reports import read_run, write_report

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
    require_file(out, "--out")
    with written(out) as partial:
        sections = write_report(read_run(run), partial)
    if json:
        print_json({"out": str(out), "sections": sections})
    else:
        results.print(f"{out}: {', '.join(sections)}", markup=False, soft_wrap=True)
