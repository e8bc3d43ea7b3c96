"""Options that several commands share; every default comes from `Settings` or `load`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmmf.config import Aggregation, Grouping, Mask, Noise, Settings, Sharing, Solver, Step
from fedmmf.data import Ratings, load
from fedmmf.data.frames import Duplicates
from fedmmf.data.lastfm import EDGES
from fedmmf.errors import SettingsError
from fedmmf.scale import RatingScale

DEFAULTS = Settings()
DATA, MASK, SUMS, SOLVER = "Data", "Mask", "Sharing and sums", "Solver"  # panels of --help


def _or_auto(number: type[int] | type[float], name: str) -> Callable[[str], float | str]:
    """Make a parser of `auto` or a number of one type."""

    def parse(text: str) -> float | str:
        try:
            return text if text == "auto" else number(text)
        except ValueError:
            raise typer.BadParameter(f"must be {name} or auto; got {text!r}") from None

    return parse


number_or_auto = _or_auto(float, "a number")
count_or_auto = _or_auto(int, "a whole number")


def parse_scale(text: str) -> RatingScale:
    """Read MIN:MAX or MIN:MAX:STEP."""
    try:
        parts = [float(part) for part in text.split(":")]
        low, high = parts[0], parts[1]
    except (ValueError, IndexError):
        raise typer.BadParameter(
            f"must be MIN:MAX or MIN:MAX:STEP, such as 1:5:1; got {text!r}"
        ) from None
    try:
        return RatingScale(low, high, parts[2] if len(parts) > 2 else min(1.0, high - low))
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


def parse_edges(text: str) -> tuple[float, ...]:
    """Read edges such as 200,400,600,800."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"must be numbers with commas between; got {text!r}") from None


def _help(setting: str) -> str:
    return f"{Settings.model_fields[setting].description}."


DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        help="Name of a data set (see `fedmmf data list`) or a ratings file.",
        rich_help_panel=DATA,
    ),
]
FeaturesOption = Annotated[
    Path | None,
    typer.Option(
        "--features", help="File with item_id and columns of item features.", rich_help_panel=DATA
    ),
]
ScaleOption = Annotated[
    Any,
    typer.Option(
        "--scale",
        metavar="MIN:MAX[:STEP]",
        parser=parse_scale,
        help="Rating scale; else found.",
        rich_help_panel=DATA,
    ),
]
DuplicatesOption = Annotated[
    Duplicates,
    typer.Option(
        "--duplicates", help="What to do with a repeated (user, item) pair.", rich_help_panel=DATA
    ),
]
EdgesOption = Annotated[
    Any,
    typer.Option(
        "--edges",
        metavar="N,N,...",
        parser=parse_edges,
        help="lastfm: plays per rating.",
        rich_help_panel=DATA,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help=_help("seed"))]
UnusedSeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="Accepted by every command; nothing here is random.")
]
MaskOption = Annotated[Mask, typer.Option("--mask", help=_help("mask"), rich_help_panel=MASK)]
MaskStrengthOption = Annotated[
    Any,
    typer.Option(
        "--mask-strength",
        metavar="NUMBER|auto",
        parser=number_or_auto,
        help=_help("mask_strength"),
        show_default="the mask's own",
        rich_help_panel=MASK,
    ),
]
CrossFitOption = Annotated[
    bool, typer.Option("--cross-fit/--no-cross-fit", help=_help("cross_fit"), rich_help_panel=MASK)
]
FoldsOption = Annotated[int, typer.Option("--folds", help=_help("folds"), rich_help_panel=MASK)]
ThresholdOption = Annotated[
    float, typer.Option("--threshold-j", help=_help("threshold_j"), rich_help_panel=SUMS)
]
SharingOption = Annotated[
    Sharing, typer.Option("--sharing", help=_help("sharing"), rich_help_panel=SUMS)
]
GroupingOption = Annotated[
    Grouping, typer.Option("--grouping", help=_help("grouping"), rich_help_panel=SUMS)
]
AuditLimitOption = Annotated[
    float, typer.Option("--audit-limit", help=_help("audit_limit"), rich_help_panel=SUMS)
]
AggregationOption = Annotated[
    Aggregation, typer.Option("--aggregation", help=_help("aggregation"), rich_help_panel=SUMS)
]
CollectOption = Annotated[
    bool,
    typer.Option(
        "--collect-masked/--no-collect-masked", help=_help("collect_masked"), rich_help_panel=SUMS
    ),
]
SignedOption = Annotated[
    bool,
    typer.Option("--signed/--no-signed", help=_help("signed"), rich_help_panel=SUMS),
]
MinRatersOption = Annotated[
    int, typer.Option("--min-raters", help=_help("min_raters"), rich_help_panel=SUMS)
]
EpsilonOption = Annotated[
    float, typer.Option("--dp-epsilon", help=_help("dp_epsilon"), rich_help_panel=SUMS)
]
DeltaOption = Annotated[
    float, typer.Option("--dp-delta", help=_help("dp_delta"), rich_help_panel=SUMS)
]
ClipOption = Annotated[
    float, typer.Option("--dp-clip", help=_help("dp_clip"), rich_help_panel=SUMS)
]
NoiseOption = Annotated[
    Noise, typer.Option("--dp-noise", help=_help("dp_noise"), rich_help_panel=SUMS)
]
RealOption = Annotated[
    bool,
    typer.Option(
        "--real",
        help="Run every party and every message of the protocols, not the simulation.",
        rich_help_panel=SUMS,
    ),
]
SolverOption = Annotated[
    Solver, typer.Option("--solver", help=_help("solver"), rich_help_panel=SOLVER)
]
FactorsOption = Annotated[
    int, typer.Option("--factors", help=_help("factors"), rich_help_panel=SOLVER)
]
RoundsOption = Annotated[
    Any,
    typer.Option(
        "--rounds",
        metavar="NUMBER|auto",
        parser=count_or_auto,
        help=_help("rounds"),
        rich_help_panel=SOLVER,
    ),
]
EnsembleOption = Annotated[
    int, typer.Option("--ensemble", help=_help("ensemble"), rich_help_panel=SOLVER)
]
BiasesOption = Annotated[
    bool, typer.Option("--biases/--no-biases", help=_help("biases"), rich_help_panel=SOLVER)
]
ItemPriorOption = Annotated[
    bool,
    typer.Option("--item-prior/--no-item-prior", help=_help("item_prior"), rich_help_panel=SOLVER),
]
ItemStatisticsOption = Annotated[
    bool,
    typer.Option(
        "--item-statistics/--no-item-statistics",
        help=_help("item_statistics"),
        rich_help_panel=MASK,
    ),
]
StepOption = Annotated[Step, typer.Option("--step", help=_help("step"), rich_help_panel=SOLVER)]
LearningRateOption = Annotated[
    Any,
    typer.Option(
        "--learning-rate",
        metavar="NUMBER|auto",
        parser=number_or_auto,
        help=_help("learning_rate"),
        rich_help_panel=SOLVER,
    ),
]
RegularizationOption = Annotated[
    Any,
    typer.Option(
        "--regularization",
        metavar="NUMBER|auto",
        parser=number_or_auto,
        help=_help("regularization"),
        rich_help_panel=SOLVER,
    ),
]
UserPriorOption = Annotated[
    float, typer.Option("--user-prior", help=_help("user_prior"), rich_help_panel=SOLVER)
]
HeldOutOption = Annotated[
    Any,
    typer.Option(
        "--held-out",
        metavar="NUMBER|auto",
        parser=number_or_auto,
        help=_help("held_out"),
        rich_help_panel=SOLVER,
    ),
]
PatienceOption = Annotated[
    int, typer.Option("--patience", help=_help("patience"), rich_help_panel=SOLVER)
]


def load_ratings(
    data: str,
    *,
    features: Path | None = None,
    scale: RatingScale | None = None,
    duplicates: Duplicates = "refuse",
    edges: tuple[float, ...] | None = None,
) -> Ratings:
    """Load what the options describe."""
    return load(
        data,
        scale=scale,
        duplicates=duplicates,
        features=features,
        edges=EDGES if edges is None else edges,
    )
