"""`fedmmf train`: masks, federated rounds, accuracy on held-back ratings."""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmmf.aggregation.dp.settings import DpSettings
from fedmmf.aggregation.settings import SumSettings
from fedmmf.cli import interrupts
from fedmmf.cli.choices import DataChoice, HeldBack, JsonOption, parse_epsilons
from fedmmf.cli.files import Files, confirm, require_outputs, written
from fedmmf.cli.options import RANKING_DEFAULTS, Only, expanded, for_lists
from fedmmf.cli.output import (
    duration,
    errors,
    lead,
    plain,
    print_json,
    progress_bar,
    results,
    say,
    shown,
    size,
    stamped,
    table,
)
from fedmmf.cli.recommend import say_what_ranks
from fedmmf.data import Ratings
from fedmmf.errors import SettingsError
from fedmmf.model import FedMMF
from fedmmf.model.privacy_cost import Comparison, is_cheap, without_noise
from fedmmf.reports import write_report
from fedmmf.reports.list_scores import RankingScores, metric_title
from fedmmf.reports.results import TrainResult
from fedmmf.reports.spending import PrivacyCost, PrivacySpent
from fedmmf.settings import Settings
from fedmmf.storage.checkpoints import Checkpoint

EXAMPLE = "Example: fedmmf train --data ml-100k --top 10 --save lists.fedmmf"
_DEFAULTS = {
    name: f"{Settings.model_fields[name].default}; for lists {words}"
    for name, words in RANKING_DEFAULTS.items()
}


def _out(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Files to write")


@dataclass(frozen=True)
class Running:
    """Options for how training runs; they do not change its result."""

    real: Annotated[
        bool,
        typer.Option(
            "--real",
            help="Run every party and every message of the protocols, not the simulation.",
            rich_help_panel=SumSettings.heading(),
        ),
    ] = False
    checkpoint: Annotated[
        Path | None, _out("Write progress here, and continue from it after a stop.")
    ] = None


@dataclass(frozen=True)
class Pricing:
    """Options for what differential privacy costs; measured outside epsilon."""

    dp_cost: Annotated[
        bool | None,
        typer.Option(
            "--dp-cost/--no-dp-cost",
            help="dp: train without noise too, and compare.",
            show_default="where that is quick",
            rich_help_panel=DpSettings.heading(),
        ),
    ] = None
    dp_curve: Annotated[
        Any,
        typer.Option(
            help="dp: train with these epsilons too, for a curve in the report.",
            metavar="EPSILON,...",
            parser=parse_epsilons,
            rich_help_panel=DpSettings.heading(),
        ),
    ] = None

    def check(self, settings: Settings) -> None:
        """Refuse, before any training, to compare what has no epsilon."""
        name = "dp_curve" if self.dp_curve else "dp_cost" if self.dp_cost else None
        if name is not None and not settings.scheme.has_budget:
            raise SettingsError(
                f"{name} needs aggregation 'dp', whose noise it prices; got aggregation "
                f"{settings.aggregation!r}"
            )

    def without(self, asked: Settings, settings: Settings, training: Ratings) -> Settings | None:
        """Return settings of a training without noise to compare with; None: there is to be none.

        Args:
            asked: the settings as the options give them.
            settings: as they are trained with.
            training: what is trained on.

        Raises:
            SettingsError: a comparison was asked for, and these settings have no such training.
        """
        is_named = bool(self.dp_cost or self.dp_curve)
        if not settings.scheme.has_budget or (self.dp_cost is False and not is_named):
            return None
        try:
            plain = without_noise(asked.changed(objective=settings.objective))
            if settings.objective == "ranking":
                plain = for_lists(plain, training, lambda line: None)
        except SettingsError as misfit:
            missing = f"what privacy costs cannot be measured with these settings: {misfit}"
            if is_named:
                raise SettingsError(f"{missing}. Leave --dp-cost and --dp-curve out") from misfit
            say(missing)
            return None
        return plain if is_named or is_cheap(training, plain) else None


@dataclass(frozen=True)
class TrainOutputs:
    """Options for what is written and printed."""

    save: Annotated[Path | None, _out("Write the model to this file.")] = None
    report: Annotated[Path | None, _out("Write an HTML report to this file.")] = None
    json: JsonOption = False

    def check(self, running: Running, inputs: Files) -> None:
        """Refuse, before any training, files that could not be written after it."""
        outputs = {"--save": self.save, "--report": self.report}
        require_outputs({**outputs, "--checkpoint": running.checkpoint}, inputs)

    def write(self, model: FedMMF, found: TrainResult) -> None:
        """Write the files that were asked for, and say so."""
        if self.save is not None:
            model.save(self.save)
            confirm(self.save, is_private=True)
        if self.report is not None:
            with written(self.report) as page:
                write_report(found, page)
            confirm(self.report)


@expanded
def train(
    data: DataChoice,
    test: HeldBack,
    settings: Annotated[Settings, Only(*Settings.model_fields, **_DEFAULTS)],
    running: Running,
    pricing: Pricing,
    outputs: TrainOutputs,
) -> None:
    """Train on ratings, test on held-back ones, and show accuracy, J, traffic and time."""
    began = time.perf_counter()
    outputs.check(running, {**data.files, "--test-file": test.test_file})
    pricing.check(settings)
    training, testing = test.parts(data, settings.seed)
    asked, settings = settings, planned(test, training, settings)
    without = None if testing is None else pricing.without(asked, settings, training)
    top = test.length(settings)
    model, kept = FedMMF(**settings.model_dump()), Checkpoint(running.checkpoint)
    with interrupts.keeping(kept, outputs.save) as under_way:
        with progress_bar(training.name) as progress:
            state = running.checkpoint if running.real else kept
            model.fit(training, progress=progress, checkpoint=state, real=running.real)
            found = model.summary(
                testing,
                top=top,
                relevant_from=test.relevant_from,
                progress=progress,
            )
            found = _timed(stamped(found), time.perf_counter() - began)
            if testing is not None and without is not None:
                comparison = Comparison(training, testing, top, test.relevant_from, progress)
                with under_way.comparing(partial(_give, found, model, outputs)):
                    cost = comparison.cost(found, settings, without, pricing.dp_curve or ())
                found = found.model_copy(update={"dp_cost": cost})
        _give(found, model, outputs)
    kept.remove()


def _give(found: TrainResult, model: FedMMF, outputs: TrainOutputs) -> None:
    """Write and print a result."""
    warn_of_means(found)
    outputs.write(model, found)
    _tell(found, model, outputs)


def _timed(found: TrainResult, seconds: float) -> TrainResult:
    """Add the elapsed seconds to a result, reading and testing included."""
    total = round(seconds, 4)
    return found.model_copy(update={"seconds": found.seconds.model_copy(update={"total": total})})


def _tell(found: TrainResult, model: FedMMF, outputs: TrainOutputs) -> None:
    if outputs.json:
        print_json(found.to_json_dict())
        return
    lead(found)
    if found.ranking is not None:
        say_what_ranks(model.settings, found.ranking)
        show_lists(found.ranking)
    _show(found)


def planned(test: HeldBack, training: Ratings, settings: Settings) -> Settings:
    """Return the settings that a training runs with; an audit attacks the same."""
    if test.wants_lists(settings) or training.is_implicit:
        return for_lists(settings, training, say)
    return settings


def warn_of_means(found: TrainResult) -> None:
    """Warn where a model predicts worse than the mean of each user's own ratings."""
    means = [one.rmse for one in found.baselines if one.name == "user mean"]
    if found.rmse is not None and means and found.rmse > means[0]:
        said = f"RMSE {found.rmse:.4f} is above that of the users' own means, {means[0]:.4f}"
        fix = "train for more rounds, with another mask or solver, or check what the columns are"
        errors.print(f"{said}: {fix}", soft_wrap=True)


def show_lists(ranking: RankingScores) -> None:
    """Print each list metric beside that of the popularity baseline."""
    popular = {} if ranking.popularity is None else ranking.popularity.metrics()
    rows = [
        [metric_title(name), shown(value), shown(popular.get(name))]
        for name, value in ranking.metrics().items()
    ]
    least = shown(ranking.relevant_from, "g")
    title = f"Lists of {ranking.n_users:,} users who rated something {least} or more in the test"
    results.print(table(title, ["", "this model", "most popular items"], rows))


def _show(found: TrainResult) -> None:
    kind = " (synthetic)" if found.synthetic else ""
    how_real = found.run_kind.split(":")[0]
    title = f"{how_real}: {found.data}{kind}, mask {found.mask}, solver {found.solver}"
    title += "" if found.predicts else ", ranking"
    rows = [*_spent(found.dp), *_accuracy(found), *_costs(found)]
    results.print(table(title, ["", "value"], rows))
    if found.dp is not None:
        results.print(found.dp.not_covered)
        _show_cost(found.dp_cost)


def _show_cost(cost: PrivacyCost | None) -> None:
    """Print what privacy costs, and the curve where one was asked for."""
    if cost is None:
        said = "What privacy costs here was not measured: --dp-cost trains without noise too."
        results.print(said, markup=False, highlight=False)
        return
    if cost.curve:
        columns = {"epsilon": [f"{one.epsilon:g}" for one in cost.curve] + ["none: no noise"]}
        if cost.rmse is not None:
            columns["RMSE"] = [shown(one.rmse) for one in cost.curve] + [shown(cost.rmse_without)]
        if cost.ndcg_at_10 is not None:
            lists = [*(one.ndcg_at_10 for one in cost.curve), cost.ndcg_at_10_without]
            columns["nDCG@10"] = list(map(shown, lists))
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        results.print(table("Accuracy against epsilon", list(columns), rows))
    results.print(f"[bold]{plain(cost.sentence)}[/] {plain(cost.outside)}", highlight=False)


def _accuracy(found: TrainResult) -> list[list[str]]:
    return [
        ["ratings", f"{found.n_ratings:,}"],
        ["users, items", f"{found.n_users:,}, {found.n_items:,}"],
        ["test share", f"{found.test_fraction:.3f}"],
        *([["RMSE", shown(found.rmse)], ["MAE", shown(found.mae)]] if found.predicts else []),
        *([f"RMSE, {baseline.name}", shown(baseline.rmse)] for baseline in found.baselines),
    ]


def _spent(dp: PrivacySpent | None) -> list[list[str]]:
    if dp is None:
        return []
    return [
        ["epsilon, delta: a whole user", f"{dp.epsilon:.4g}, {dp.delta:g}"],
        ["rounds used, paid for", f"{dp.rounds_used}, {dp.rounds_paid}"],
        ["noise multiplier, clip", f"{dp.noise_multiplier:.4g}, {dp.clip:g}"],
        ["noise is added by", dp.added_by],
        ["neighbours", dp.neighbours],
        *(
            [
                f"released: {one.name}",
                f"{_rounds_of(one.rounds)}, {one.share:.1%} of the budget, epsilon so far "
                f"{one.epsilon_so_far:.4g}",
            ]
            for one in dp.releases
        ),
        ["left of the budget", f"epsilon {dp.epsilon_left:.4g}"],
    ]


def _rounds_of(n: int) -> str:
    return "1 round" if n == 1 else f"{n} rounds"


def _in_clear(found: TrainResult) -> list[list[str]]:
    if found.in_clear is None:
        return []
    privacy = found.privacy
    counted = f"{privacy.users_in_clear:,} of {privacy.n_users:,}"
    return [["in the clear: obfuscated", counted]]


def _left_out(found: TrainResult) -> str:
    n_left_out = found.privacy.items_left_out or 0
    all_of_them = n_left_out == found.n_items
    return f"{n_left_out:,} of {found.n_items:,}" + "; nothing was learned" * all_of_them


def _rounds(found: TrainResult) -> list[str]:
    if found.best_round is None:
        return ["rounds", f"{found.rounds}"]
    return ["rounds (best)", f"{found.rounds} ({found.best_round})"]


def _costs(found: TrainResult) -> list[list[str]]:
    privacy, traffic, seconds = found.privacy, found.traffic, found.seconds
    out_of_fold = shown(privacy.mean_j_out_of_fold)
    rows = [
        _rounds(found),
        ["mean J (out of fold)", f"{shown(privacy.mean_j)} ({out_of_fold})"],
        ["mean of J / user's variance", shown(privacy.mean_relative_j)],
        ["J with variance, Spearman", shown(privacy.j_follows_variance)],
        [f"users with J <= {privacy.threshold_j:g}", f"{privacy.secure_users:,}"],
        ["sharing", found.sharing],
        *_in_clear(found),
        ["items in no sum: too few raters", _left_out(found)],
        ["up, per user and round", size(traffic.up_bytes_per_user_round)],
        ["down, per user and round", size(traffic.down_bytes_per_user_round)],
    ]
    if found.cost is not None:
        party, server = 1e3 * found.cost.party_cpu_s, found.cost.server_cpu_s
        spent = f"party {party:.1f} ms, server {duration(server)}"
        rows.append(["protocol, CPU per round", spent])
    spent = ", ".join(map(duration, (seconds.mask, seconds.train, seconds.total)))
    return [*rows, ["time: masks, rounds, all", spent]]
