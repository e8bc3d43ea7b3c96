"""The sections of the page; a section without data is left out."""

from collections.abc import Callable, Mapping

from fedmmf import __version__
from fedmmf.reports import words
from fedmmf.reports.applied import applied
from fedmmf.reports.budget import both_bounds, differential_privacy
from fedmmf.reports.charts import (
    Bar,
    Chart,
    KeyEntry,
    PageTable,
    Section,
    Series,
    Slider,
    ValueAxis,
    bars,
    histogram,
    line,
    places,
)
from fedmmf.reports.list_scores import RankingScores, metric_title
from fedmmf.reports.reading import Run
from fedmmf.reports.results import TradeoffPoint, TrainResult
from fedmmf.reports.svg import percent, plain
from fedmmf.reports.verdict import AttackOutcome

_KEY = (
    KeyEntry("above", "more than public knowledge: all of the gain's 95 % interval is above 0"),
    KeyEntry("level", "no difference from public knowledge found"),
    KeyEntry("below", "less than public knowledge: all of the interval is below 0"),
)


def all_sections(run: Run) -> list[Section]:
    """The sections that a run has data for, in the order of the page."""
    makers: tuple[Callable[[Run], Section | None], ...] = (
        _comparison,
        both_bounds,
        attacks,
        _of_best(differential_privacy),
        _of_best(lists),
        _of_best(accuracy),
        _of_best(learning),
        privacy,
        tradeoff,
        _of_best(traffic),
        _recommendations,
        protection,
        settings,
    )
    made = (make(run) for make in makers)
    return [section for section in made if section is not None]


def _of_best(make: Callable[[TrainResult], Section | None]) -> Callable[[Run], Section | None]:
    return lambda run: None if run.best is None else make(run.best)


def _comparison(run: Run) -> Section | None:
    """Compare all trainings with each other."""
    if run.best is None or len(run.trained) < 2:
        return None
    tested = [(train, train.rmse) for train in run.trained if train.rmse is not None]
    rows = [
        Bar(words.of_model(train), rmse, "ours" if train is run.best else "other")
        for train, rmse in tested
    ]
    title = "RMSE of every run, less is better"
    table = PageTable("All runs", _RUN_COLUMNS, [_run_row(train) for train in run.trained])
    measure = ValueAxis("RMSE", from_zero=False)
    charts = (bars("runs-bars", title, rows, measure),) if rows else ()
    best = (f"The sections below are about the best: {words.of_model(run.best)}.",)
    return Section("runs", "All runs", best, charts=charts, tables=(table,))


_RUN_COLUMNS = ["", "nDCG@10", "RMSE", "MAE", "mean J", "J <= threshold", "rounds", "seconds"]


def _run_row(train: TrainResult) -> list[str]:
    return [
        words.of_model(train),
        _error(train.ndcg),
        _error(train.rmse),
        _error(train.mae),
        _error(train.privacy.mean_j),
        f"{train.privacy.secure_users:,} of {train.privacy.n_users:,}",
        f"{train.rounds:,}",
        f"{train.seconds.total:.1f}",
    ]


def accuracy(train: TrainResult) -> Section | None:
    """Error on test ratings, beside simpler predictions."""
    if train.rmse is None:
        return None
    simple = train.baselines
    charts = [_error_bars("RMSE", train, train.rmse, {row.name: row.rmse for row in simple})]
    if train.mae is not None:
        charts.append(_error_bars("MAE", train, train.mae, {row.name: row.mae for row in simple}))
    return Section("accuracy", "Accuracy", words.of_accuracy(train), charts=tuple(charts))


def lists(train: TrainResult) -> Section | None:
    """Make the section on how good lists are, beside the most popular items."""
    if train.ranking is None:
        return None
    said, table = words.of_ranking(train), _list_table(train.ranking)
    return Section("lists", "Lists", said, tables=(table,))


def _list_table(ranking: RankingScores) -> PageTable:
    """Every figure of the lists beside that of the most popular items."""
    popular = {} if ranking.popularity is None else ranking.popularity.metrics()
    rows = [
        [metric_title(name), _error(value), _error(popular.get(name))]
        for name, value in ranking.metrics().items()
    ]
    return PageTable("Lists", ["", "this run", "most popular items"], rows)


def _error_bars(
    measure: str, train: TrainResult, ours: float, simple: Mapping[str, float | None]
) -> Chart:
    rows = [Bar(f"this run: {words.of_model(train)}", ours)]
    rows += [Bar(name, value, "other") for name, value in simple.items() if value is not None]
    title = f"{measure} on test ratings, less is better"
    axis = ValueAxis(measure, from_zero=False)
    return bars(f"accuracy-{measure}", title, rows, axis)


def learning(train: TrainResult) -> Section | None:
    """Make the section on the held-out error, round by round."""
    if len(train.history) < 2 or all(rmse is None for rmse in train.history):
        return None
    rounds = [float(number) for number in range(1, len(train.history) + 1)]
    best = train.best_round or 0
    marked = best - 1 if 1 <= best <= len(rounds) else None
    curve = Series("RMSE on held-out ratings", train.history)
    title = "RMSE on held-out ratings, round by round"
    chart = line("learning-curve", title, rounds, curve, "round", marked)
    return Section("learning", "Learning curve", words.of_learning(train), charts=(chart,))


def privacy(run: Run) -> Section:
    """The indicator J, and who is secure by the paper's rule."""
    source = run.subject
    found = source.privacy
    limit = plain(found.threshold_j)
    groups = [
        Bar(f"J <= {limit}: secure, says the paper", found.secure_users),
        Bar(f"J > {limit}: not secure, says the paper", found.insecure_users, "other"),
    ]
    charts = [bars("groups", "Users on each side of threshold_j", groups, ValueAxis("users"))]
    if source.j is not None:
        title = "How J is spread over users"
        charts.append(histogram("j", title, source.j, "J", found.threshold_j))
    sentences = words.of_privacy(found)
    return Section("privacy", "J and who is secure", sentences, charts=tuple(charts))


def tradeoff(run: Run) -> Section | None:
    """Make the section on other thresholds, with a slider; an audit adds the attacks' success."""
    source = run.audit if run.audit is not None and run.audit.tradeoff else run.best
    if source is None or len(source.tradeoff) < 2:
        return None
    points, limit = source.tradeoff, source.privacy.threshold_j
    xs = [point.threshold_j for point in points]
    start = min(range(len(xs)), key=lambda index: abs(xs[index] - limit))
    curves = _tradeoff_curves(points)
    charts = tuple(
        line(f"tradeoff-{number}", title, xs, curve, "threshold_j", start)
        for number, (title, curve) in enumerate(curves.items())
    )
    dots = zip(*(places(xs, curve) for curve in curves.values()), strict=True)
    stops = [
        {"value": plain(point.threshold_j), "dots": dot, "words": words.of_point(point)}
        for point, dot in zip(points, dots, strict=True)
    ]
    said, slider = words.of_tradeoff(source.settings), Slider(stops, start)
    title = "The trade-off of threshold_j"
    return Section("tradeoff", title, said, charts=charts, slider=slider)


def _tradeoff_curves(points: tuple[TradeoffPoint, ...]) -> dict[str, Series]:
    """The curves that have any value, by title."""
    every = {
        "Who shares in the clear": Series("users", [p.share_in_clear for p in points], percent),
        "What a user sends": Series("kB up, per round", [_up_kilobytes(p) for p in points]),
        "Whom an attack recovers": Series("users", [p.recovered_share for p in points], percent),
    }
    return {
        title: curve
        for title, curve in every.items()
        if any(value is not None for value in curve.values)
    }


def _up_kilobytes(point: TradeoffPoint) -> float | None:
    up = point.up_bytes_per_user_round
    return None if up is None else up / 1e3


def traffic(train: TrainResult) -> Section:
    """Make the section on bytes sent and seconds taken."""
    found = train.traffic
    ways = [
        Bar("up, to the server", found.up_bytes_per_user_round / 1e3),
        Bar("down, to the user", found.down_bytes_per_user_round / 1e3, "other"),
    ]
    chart = bars("traffic-bars", "kB of one user in one round", ways, ValueAxis("kB"))
    rows = [*_megabytes(train), *_cpu(train), *_elapsed(train)]
    table = PageTable("Traffic and time", ["", "value"], rows)
    said = words.of_traffic(train)
    return Section("traffic", "Traffic and cost", said, charts=(chart,), tables=(table,))


def _megabytes(train: TrainResult) -> list[list[str]]:
    """Traffic of one user over the whole training."""
    ways = {
        "up": train.traffic.up_bytes_per_user_round,
        "down": train.traffic.down_bytes_per_user_round,
    }
    return [
        [f"MB {way}, one user, {train.rounds} rounds", plain(n_bytes * train.rounds / 1e6)]
        for way, n_bytes in ways.items()
    ]


def _cpu(train: TrainResult) -> list[list[str]]:
    """CPU time of the protocol in one round."""
    if train.cost is None:
        return []
    return [
        ["CPU seconds a round, one party", plain(train.cost.party_cpu_s)],
        ["CPU seconds a round, the server", plain(train.cost.server_cpu_s)],
    ]


def _elapsed(train: TrainResult) -> list[list[str]]:
    kind, took = "simulation" if train.simulated else "run", train.seconds
    parts = {"all masks": took.mask, "all rounds": took.train, "everything": took.total}
    return [[f"seconds of this {kind}: {part}", plain(value)] for part, value in parts.items()]


def _recommendations(run: Run) -> Section | None:
    """Make the section with the list of one user."""
    if run.recommended is None:
        return None
    chosen = run.recommended
    rows = [
        [item.title or str(item.item_id), str(item.item_id), f"{item.prediction:.2f}"]
        for item in chosen.recommendations
    ]
    title = f"{len(rows)} items for user {chosen.user}"
    table = PageTable(title, ["item", "item_id", "prediction"], rows)
    source = (f"From {chosen.model}.",) if chosen.model else ()
    return Section("recommendations", "Recommendations", source, tables=(table,))


def protection(run: Run) -> Section:
    """Make the section on what is hidden, from whom, and what is not."""
    said = (f"Sharing: {run.subject.sharing}.", *words.of_protection(run.subject))
    return Section("protection", "What this protects, and what not", said)


def settings(run: Run) -> Section:
    """Make the section on the settings that affected the result."""
    source = run.subject
    chosen = applied(source)
    rows = [[name, "default" if value is None else str(value)] for name, value in chosen.items()]
    versions = [
        ["fedmmf of the run", source.version or "unknown"],
        *([name, number] for name, number in source.versions.items() if name != "fedmmf"),
        ["fedmmf of this page", __version__],
    ]
    tables = (
        PageTable("Settings that had a say", ["setting", "value"], rows),
        PageTable("Versions", ["", "version"], versions),
    )
    return Section("settings", "Settings and versions", tables=tables)


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def attacks(run: Run) -> Section | None:
    """Make the section on attacks, with a part for each kind of target."""
    if run.audit is None:
        return None
    everything = {**run.audit.groups, **run.audit.messages}
    is_strict = run.audit.settings.get("sharing") == "strict"
    charts = tuple(
        _attack_chart(f"attacks-{number}", words.of_target(target, is_strict=is_strict), results)
        for number, (target, results) in enumerate(everything.items())
        if any(result.n_users for result in results)
    )
    gains = (_gains(target, results) for target, results in run.audit.messages.items())
    return Section(
        "attacks",
        "Attacks",
        (*words.of_mismatch(run.audit, run.best), *words.of_attacks(run.audit)),
        points=run.audit.sentences,
        key=_KEY,
        charts=charts,
        tables=(*gains, _explained(everything)),
    )


def _explained(everything: Mapping[str, tuple[AttackOutcome, ...]]) -> PageTable:
    """Make a table that explains each attack."""
    known = {attack.name: attack for results in everything.values() for attack in results}
    rows = [[a.name, a.knows, a.outputs, a.measure] for a in known.values()]
    columns = ["attack", "the attacker knows", "and claims to find", "success is"]
    folded = f"What the {len(rows)} attacks know, claim and count"
    return PageTable("The attacks", columns, rows, is_text=True, folded=folded)


def _beside_public(attack: AttackOutcome) -> str:
    """Which side of public knowledge an attack is on, user by user."""
    low, high = attack.advantage_interval
    return "above" if low > 0 else "below" if high < 0 else "level"


def _gains(target: str, results: tuple[AttackOutcome, ...]) -> PageTable:
    """Attack minus public knowledge, user by user, for what leaves the parties."""
    rows = [
        [
            attack.name,
            f"{attack.mean - attack.baseline_mean:+.4f}",
            "{:+.4f} to {:+.4f}".format(*attack.advantage_interval),
        ]
        for attack in results
        if attack.n_users
    ]
    title = f"Gain over public knowledge, user by user: {target}"
    return PageTable(title, ["attack", "gain", "95 % interval"], rows)


def _attack_chart(name: str, target: str, results: tuple[AttackOutcome, ...]) -> Chart:
    rows = [
        Bar(
            attack.name,
            attack.mean,
            _beside_public(attack),
            interval=attack.interval,
            reference=attack.baseline_mean,
        )
        for attack in results
        if attack.n_users
    ]
    title = f"Mean success on {target}"
    measure = ValueAxis("mean success (upright tick: public knowledge)", percent, at_least=1.0)
    return bars(name, title, rows, measure)
