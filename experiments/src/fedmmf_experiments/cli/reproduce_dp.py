"""`fedmmf reproduce dp`: recommenders under user-level differential privacy, side by side."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmmf.cli.choices import JsonOption, parse_names
from fedmmf.cli.files import GoingOnOption, confirm_folder
from fedmmf.cli.options import Only, expanded
from fedmmf.cli.output import print_json, progress_bar, results, table
from fedmmf.data import load
from fedmmf.settings import Settings
from fedmmf_experiments.private import curve
from fedmmf_experiments.private.rows import rows_called
from fedmmf_experiments.result_cache import ResultCache

app = typer.Typer()


def parse_epsilons(text: str) -> tuple[float, ...]:
    """Read epsilons such as 1,2,4,8, and put them in order."""
    try:
        found = {float(part) for part in text.split(",")}
    except ValueError:
        found = set()
    if not found or not all(0.0 < epsilon <= 100.0 for epsilon in found):
        raise typer.BadParameter(
            f"must be numbers in (0, 100] with commas between, such as 1,2,4,8; got {text!r}"
        )
    return tuple(sorted(found))


EpsilonsOption = Annotated[
    Any, typer.Option(help="Of whole trainings.", metavar="E,E,...", parser=parse_epsilons)
]
EPSILONS = "1,2,4,8"
_NOISY = Settings(aggregation="dp")


@dataclass(frozen=True)
class DpChoice:
    """Options for what is compared, and on which splits."""

    data: Annotated[str, typer.Option(help="Data set.")] = "ml-100k"
    epsilon: EpsilonsOption = EPSILONS
    rows: Annotated[
        Any,
        typer.Option(
            help="Rows to compute, such as vb,dpals-features; else all.",
            metavar="NAME,...",
            parser=parse_names,
        ),
    ] = None
    splits: Annotated[int, typer.Option(min=1, help="Random splits, from --seed on.")] = 10
    test: Annotated[float, typer.Option(help="Share of ratings to test on.")] = 0.2

    def plan(self, settings: Settings) -> curve.DpPlan:
        """Make the plan of the experiment from the options."""
        return curve.DpPlan(
            epsilons=list(self.epsilon),
            rows=rows_called(self.rows),
            splits=self.splits,
            test=self.test,
            delta=settings.dp_delta,
            base={"dp_clip": settings.dp_clip, "dp_noise": settings.dp_noise},
            seed=settings.seed,
        )


@app.command("dp", epilog="Example: fedmmf reproduce dp --data ml-1m --test 0.1 --splits 3")
@expanded
def dp(
    chosen: DpChoice,
    settings: Annotated[Settings, Only("dp_delta", "dp_clip", "dp_noise", "seed")] = _NOISY,
    out: GoingOnOption = Path("dp"),
    json: JsonOption = False,
) -> None:
    """RMSE against epsilon: vb and sgd with and without masks, DPALS, means, and no noise."""
    plan = chosen.plan(settings)
    with progress_bar(chosen.data) as progress:
        report = curve.run(
            load(chosen.data),
            plan,
            ResultCache(out),
            lambda done, of: progress("rows and epsilons", done, of),
        )
    curve.write(report, out)
    if json:
        print_json(asdict(report))
        return
    rows = [
        [
            point.model,
            point.free or f"{point.epsilon:g}",
            f"{point.rmse_mean:.4f}±{point.rmse_std:.4f}",
            f"{point.n_tried}",
        ]
        for point in report.rows
    ]
    title = f"{report.data}, delta {report.delta:g}, {report.splits} splits, whole users"
    results.print(table(title, ["model", "epsilon", "RMSE", "settings tried"], rows))
    confirm_folder(out, "dp.json, .md, .png, .svg, runs/")
