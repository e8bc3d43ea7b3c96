"""`fedmmf bench`: what things take, and what other tools take. Tables are printed as Markdown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from fedmmf.cli.choices import DataOption, JsonOption, UnusedSeedOption
from fedmmf.cli.options import Only, expanded
from fedmmf.cli.output import (
    Columns,
    print_json,
    print_markdown,
    progress_bar,
    results,
    shown,
)
from fedmmf.data import load
from fedmmf.errors import SettingsError
from fedmmf.settings import Settings
from fedmmf.settings.groups import names_for
from fedmmf_experiments.bench import federation as bench_federation
from fedmmf_experiments.bench import growth as bench_growth
from fedmmf_experiments.bench import imports as bench_imports
from fedmmf_experiments.bench import ray_workers as bench_ray
from fedmmf_experiments.bench import rounds as bench_rounds
from fedmmf_experiments.bench import strict as bench_strict
from fedmmf_experiments.bench import training as bench_training
from fedmmf_experiments.bench.measuring import peak_gigabytes
from fedmmf_experiments.cli import (
    bench_engines,
    bench_first_answer,
    bench_noise,
    bench_ranking,
    bench_secagg,
)

app = typer.Typer(help="Measure, also beside other tools.", no_args_is_help=True)

DataList = Annotated[
    list[str], typer.Option("--data", help="Data set or file; may be given repeatedly.")
]
SolverList = Annotated[list[str], typer.Option("--solver", help="Solver; may be given repeatedly.")]
RepeatsOption = Annotated[int, typer.Option("--repeats", min=1, help="Times each is run.")]
_PLAIN = Settings(mask="mean", sharing="plain", held_out=0.0)
_SMALL = _PLAIN.changed(factors=10)
_HIDDEN = Settings(mask="mean", held_out=0.0)
_WORKERS = _HIDDEN.changed(factors=10, rounds=10)
_SETS = list(bench_rounds.DATA)
_SOLVERS = list(names_for("solver"))


_TRAINING: Columns = {
    "tool": lambda row: row.tool,
    "setting": lambda row: f"{row.setting}: {row.configuration}",
    "RMSE": lambda row: f"{row.rmse:.4f}",
    "fit s": lambda row: f"{row.fit_seconds:.2f}",
    "its s / ours": lambda row: shown(row.seconds_over_ours, ".2f"),
    "its RMSE - ours": lambda row: shown(row.rmse_minus_ours, "+.4f"),
}


@app.command("training", epilog="Example: fedmmf bench training --data ml-1m --json")
@expanded
def training(
    data: DataOption = "ml-1m",
    test: Annotated[float, typer.Option(help="Share of ratings to test on.")] = 0.1,
    settings: Annotated[Settings, Only("seed")] = bench_training.OURS,
    repeats: RepeatsOption = 3,
    json: JsonOption = False,
) -> None:
    """Time and error of whole trainings: centralised tools, default and tuned, and ours."""
    ratings = load(data)
    train, held_back = ratings.split(test, seed=settings.seed)
    with progress_bar(data) as progress:
        tools = bench_training.all_tools(settings)
        rows = bench_training.compare(tools, train, held_back, repeats, progress)
    memory = bench_training.memory_speed(train, settings)
    cold = bench_training.cold_seconds(data, test, settings)
    if json:
        about = {"data": data, "synthetic": ratings.synthetic, "test": test, "repeats": repeats}
        found = {"rows": [asdict(row) for row in rows], "memory": asdict(memory)}
        print_json({**about, **found, "cold_seconds": cold, "peak_gb": peak_gigabytes()})
        return
    print_markdown(_TRAINING, rows)
    results.print(
        f"{_label(data, ratings.synthetic)}, test share {test:g}, medians of {repeats}. A round of "
        f"ours: {1e3 * memory.round_seconds:.0f} ms, {memory.round_gb_per_s:.1f} GB/s of "
        f"the {memory.machine_gb_per_s:.1f} that this machine reads. With nothing compiled yet: "
        f"{cold:.1f} s for everything.",
        highlight=False,
    )


_ROUNDS: Columns = {
    "data": lambda row: _label(row.data, row.synthetic),
    "ratings": lambda row: f"{row.n_ratings:,}",
    "first load s": lambda row: f"{row.first_load_s:.2f}",
    "second load s": lambda row: f"{row.second_load_s:.2f}",
    "first round ms": lambda row: f"{1e3 * row.first_round_s:.0f}",
    "round ms": lambda row: f"{1e3 * row.round_s:.2f}",
    "ns per rating": lambda row: f"{row.ns_per_rating:.1f}",
    "peak GB": lambda row: f"{row.peak_gb:.2f}",
}


@app.command("rounds", epilog="Example: fedmmf bench rounds --data ml-100k --data ml-1m")
@expanded
def rounds(
    data: DataList = _SETS,
    settings: Annotated[Settings, Only("solver", "factors", "engine", "device", "seed")] = _PLAIN,
    repeats: RepeatsOption = 50,
    json: JsonOption = False,
) -> None:
    """Seconds of loading and of simulated rounds, and memory; a process for each data set."""
    with progress_bar("rounds") as progress:
        found = bench_rounds.measure_all(data, settings, repeats, progress)
    _print(found, _ROUNDS, json=json)


_GROWTH: Columns = {
    "solver": lambda row: row.solver,
    "users": lambda row: f"{row.n_users:,}",
    "ratings (synthetic)": lambda row: f"{row.n_ratings:,}",
    "s per round": lambda row: f"{row.round_s:.3f}",
    "ns per rating": lambda row: f"{row.ns_per_rating:.0f}",
    "peak GB": lambda row: f"{row.peak_gb:.2f}",
}


@dataclass(frozen=True)
class Sizes:
    """Options for the sizes of synthetic ratings."""

    ratings: Annotated[
        list[int], typer.Option(min=1000, help="How many ratings; may be given repeatedly.")
    ] = field(default_factory=lambda: list(bench_growth.SIZES))
    items: Annotated[int, typer.Option(min=10, help="How many items.")] = bench_growth.N_ITEMS
    per_user: Annotated[
        int, typer.Option(min=15, help="How many ratings a user gives on average.")
    ] = bench_growth.RATINGS_PER_USER

    def shape(self) -> bench_growth.Shape:
        """Return the shape; refuse fewer ratings than items."""
        if min(self.ratings) < self.items:
            raise SettingsError(
                f"{self.items:,} items need as many ratings; got {min(self.ratings):,}. Give more "
                "--ratings or fewer --items"
            )
        return bench_growth.Shape(self.items, self.per_user)


@app.command("growth", epilog="Example: fedmmf bench growth --solver sgd --ratings 1000000")
@expanded
def growth(
    sizes: Sizes,
    solver: SolverList = _SOLVERS,
    settings: Annotated[Settings, Only("sharing", "factors", "engine", "device", "seed")] = _SMALL,
    json: JsonOption = False,
) -> None:
    """Seconds per round and memory as synthetic ratings grow; a process for each size."""
    plans = [(settings.changed(solver=name), size) for name in solver for size in sizes.ratings]
    with progress_bar("growth") as progress:
        found = bench_growth.measure_all(plans, sizes.shape(), progress)
    _print(found, _GROWTH, json=json)


_STRICT: Columns = {
    "data": lambda row: row.data,
    "solver": lambda row: row.solver,
    "plain ms": lambda row: f"{1e3 * row.plain_s:.1f}",
    "strict ms": lambda row: f"{1e3 * row.strict_s:.1f}",
    "ratio": lambda row: f"{row.ratio:.2f}",
}


@app.command("strict", epilog="Example: fedmmf bench strict --data ml-1m")
@expanded
def strict(
    data: DataList = ["ml-1m"],  # noqa: B006 - typer reads it, nobody changes it
    solver: SolverList = _SOLVERS,
    settings: Annotated[Settings, Only("factors", "engine", "device", "seed")] = _HIDDEN,
    repeats: RepeatsOption = 15,
    json: JsonOption = False,
) -> None:
    """Simulated rounds, plain and strict, side by side: the ratio of their times."""
    with progress_bar("strict") as progress:
        found = bench_strict.measure_all(data, solver, settings, repeats, progress)
    _print(found, _STRICT, json=json)


_RAY: Columns = {
    "data": lambda row: _label(row.data, row.synthetic),
    "solver": lambda row: row.solver,
    "cores": lambda row: f"{row.cores}",
    "workers": lambda row: f"{row.workers}",
    "start s": lambda row: f"{row.start_s:.1f}",
    "masks s, one process": lambda row: f"{row.alone_mask_s:.2f}",
    "masks s, Ray": lambda row: f"{row.ray_mask_s:.2f}",
    "rounds s, one process": lambda row: f"{row.alone_train_s:.2f}",
    "rounds s, Ray": lambda row: f"{row.ray_train_s:.2f}",
    "Ray / one process": lambda row: f"{row.ratio:.2f}",
    "largest difference": lambda row: f"{row.largest_difference:.1g}",
}


@app.command("ray", epilog="Example: fedmmf bench ray --data ml-1m --workers 2")
@expanded
def ray(
    data: DataOption = "synthetic:ml-10m",
    solver: SolverList = _SOLVERS,
    settings: Annotated[Settings, Only("mask", "sharing", "factors", "rounds", "seed")] = _WORKERS,
    workers: Annotated[int, typer.Option(min=1, help="Workers on each machine.")] = 2,
    repeats: RepeatsOption = 3,
    json: JsonOption = False,
) -> None:
    """Training on Ray's workers and in one process, side by side: seconds, and what differs."""
    with progress_bar("ray") as progress:
        found = bench_ray.measure_all(data, solver, settings, workers, repeats, progress)
    _print(found, _RAY, json=json)


def _print(found: Sequence[Any], columns: Columns, *, json: bool) -> None:
    if json:
        print_json({"rows": [asdict(row) for row in found]})
    else:
        print_markdown(columns, found)


_STAGES: Columns = {"stage": lambda stage: stage[0], "s": lambda stage: f"{stage[1]:.1f}"}


@app.command("federation", epilog="Example: fedmmf bench federation --data ml-100k --rounds 3")
@expanded
def federation(
    data: DataOption = "ml-100k",
    settings: Annotated[Settings, Only("solver", "factors", "signed", "seed")] = _HIDDEN,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to measure.")] = 3,
    json: JsonOption = False,
) -> None:
    """Whole strict rounds between real parties in one process, with every message."""
    ratings = load(data)
    with progress_bar(data) as progress:
        found = bench_federation.measure(ratings, settings, rounds, progress)
    if json:
        print_json(asdict(found))
        return
    of_rounds = [(f"round {number}", spent) for number, spent in enumerate(found.round_s, start=1)]
    print_markdown(_STAGES, [("invitations and survey", found.setup_s), *of_rounds])
    results.print(f"{_label(found.data, found.synthetic)}, {found.n_parties:,} parties.")


_IMPORTS: Columns = {
    "what": lambda row: row.what,
    "s": lambda row: f"{row.seconds:.3f}",
    "times numpy": lambda row: f"{row.over_numpy:.2f}",
}


@app.command("imports", epilog="Example: fedmmf bench imports --repeats 10")
def imports(
    repeats: RepeatsOption = 10, seed: UnusedSeedOption = 0, json: JsonOption = False
) -> None:
    """What has to be loaded before anything begins, beside an import of numpy."""
    with progress_bar("imports") as progress:
        found = bench_imports.measure(repeats, progress)
    _print(found, _IMPORTS, json=json)


def _label(data: str, synthetic: bool) -> str:
    return f"{data} (synthetic)" if synthetic and "synthetic" not in data else data


app.add_typer(bench_engines.app)
app.add_typer(bench_first_answer.app)
app.add_typer(bench_ranking.app)
app.add_typer(bench_secagg.app)
app.add_typer(bench_noise.app)
