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


def _setting(name: str, panel: str | None = None, **more: Any) -> Any:
    """The option of a setting: its flag and help follow from its name."""
    flag = name.replace("_", "-")
    field = Settings.model_fields[name]
    switch = f"--{flag}/--no-{flag}" if field.annotation is bool else f"--{flag}"
    return typer.Option(switch, help=f"{field.description}.", rich_help_panel=panel, **more)


def _number_or_auto(name: str, panel: str, parser: Any = number_or_auto, **more: Any) -> Any:
    return _setting(name, panel, metavar="NUMBER|auto", parser=parser, **more)


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
SeedOption = Annotated[int, _setting("seed", min=0)]
UnusedSeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="Accepted by every command; nothing here is random.")
]
MaskOption = Annotated[Mask, _setting("mask", MASK)]
MaskStrengthOption = Annotated[
    Any, _number_or_auto("mask_strength", MASK, show_default="the mask's own")
]
CrossFitOption = Annotated[bool, _setting("cross_fit", MASK)]
FoldsOption = Annotated[int, _setting("folds", MASK)]
ItemStatisticsOption = Annotated[bool, _setting("item_statistics", MASK)]
ThresholdOption = Annotated[float, _setting("threshold_j", SUMS)]
SharingOption = Annotated[Sharing, _setting("sharing", SUMS)]
GroupingOption = Annotated[Grouping, _setting("grouping", SUMS)]
AuditLimitOption = Annotated[float, _setting("audit_limit", SUMS)]
AggregationOption = Annotated[Aggregation, _setting("aggregation", SUMS)]
CollectOption = Annotated[bool, _setting("collect_masked", SUMS)]
SignedOption = Annotated[bool, _setting("signed", SUMS)]
MinRatersOption = Annotated[int, _setting("min_raters", SUMS)]
EpsilonOption = Annotated[float, _setting("dp_epsilon", SUMS)]
DeltaOption = Annotated[float, _setting("dp_delta", SUMS)]
ClipOption = Annotated[float, _setting("dp_clip", SUMS)]
NoiseOption = Annotated[Noise, _setting("dp_noise", SUMS)]
RealOption = Annotated[
    bool,
    typer.Option(
        "--real",
        help="Run every party and every message of the protocols, not the simulation.",
        rich_help_panel=SUMS,
    ),
]
SolverOption = Annotated[Solver, _setting("solver", SOLVER)]
FactorsOption = Annotated[int, _setting("factors", SOLVER)]
RoundsOption = Annotated[Any, _number_or_auto("rounds", SOLVER, count_or_auto)]
EnsembleOption = Annotated[int, _setting("ensemble", SOLVER)]
StepOption = Annotated[Step, _setting("step", SOLVER)]
LearningRateOption = Annotated[Any, _number_or_auto("learning_rate", SOLVER)]
RegularizationOption = Annotated[Any, _number_or_auto("regularization", SOLVER)]
UserPriorOption = Annotated[float, _setting("user_prior", SOLVER)]
BiasesOption = Annotated[bool, _setting("biases", SOLVER)]
ItemPriorOption = Annotated[bool, _setting("item_prior", SOLVER)]
HeldOutOption = Annotated[Any, _number_or_auto("held_out", SOLVER)]
PatienceOption = Annotated[int, _setting("patience", SOLVER)]


def settings_among(arguments: dict[str, Any]) -> Settings:
    """The settings of a command: those of its arguments that name one; given `locals()`."""
    chosen = {name: value for name, value in arguments.items() if name in Settings.model_fields}
    return Settings.checked(**chosen)


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
