"""The section on a privacy budget: what was spent, on what, and what it costs in accuracy."""

from fedmmf.reports import words
from fedmmf.reports.charts import Bar, Chart, PageTable, Section, Series, ValueAxis, bars, line
from fedmmf.reports.reading import Run
from fedmmf.reports.results import TrainResult
from fedmmf.reports.spending import PrivacyCost
from fedmmf.reports.svg import percent, plain


def differential_privacy(train: TrainResult) -> Section | None:
    """Make the section on the spent privacy budget, where there is one."""
    if train.dp is None:
        return None
    spent = train.dp
    rows = [
        ["epsilon of the rounds used", plain(spent.epsilon)],
        ["epsilon of the rounds paid for", plain(spent.epsilon_paid)],
        ["epsilon that is left", plain(spent.epsilon_left)],
        ["delta", f"{spent.delta:g}"],
        ["rounds used", f"{spent.rounds_used:,}"],
        ["rounds paid for", f"{spent.rounds_paid:,}"],
        ["noise multiplier", plain(spent.noise_multiplier)],
        ["clip", plain(spent.clip)],
    ]
    table = PageTable("What was spent, of one user", ["", "value"], rows)
    released = PageTable(
        "Everything that was released",
        ["release", "rounds", "sensitivity", "share of the budget", "epsilon so far"],
        [
            [
                one.name,
                f"{one.rounds:,}",
                plain(one.sensitivity),
                percent(one.share),
                plain(one.epsilon_so_far),
            ]
            for one in spent.releases
        ],
    )
    tables = (table, released) if spent.releases else (table,)
    said = (*words.of_cost(train.dp_cost), *words.of_spending(spent))
    return Section("dp", "Differential privacy", said, charts=_costs(train), tables=tables)


def _costs(train: TrainResult) -> tuple[Chart, ...]:
    """Accuracy with and without noise, or against epsilon where there is a curve."""
    cost = train.dp_cost
    if cost is None:
        return ()
    measures = {
        "RMSE": (cost.rmse, cost.rmse_without, [one.rmse for one in cost.curve]),
        "nDCG@10": (cost.ndcg_at_10, cost.ndcg_at_10_without, [p.ndcg_at_10 for p in cost.curve]),
    }
    found = []
    for number, (name, (ours, plain_run, values)) in enumerate(measures.items()):
        if ours is None or plain_run is None:
            continue
        better = "less" if name == "RMSE" else "more"
        rows = [
            Bar(f"with epsilon {cost.epsilon:g}", ours),
            Bar("without privacy", plain_run, "other"),
        ]
        title = f"What privacy costs: {name}, {better} is better"
        found.append(bars(f"dp-cost-{number}", title, rows, ValueAxis(name, from_zero=False)))
        if len(cost.curve) > 1:
            found.append(_cost_curve(f"dp-curve-{number}", name, values, (cost, plain_run)))
    return tuple(found)


def _cost_curve(
    name: str, measure: str, values: list[float | None], about: tuple[PrivacyCost, float]
) -> Chart:
    """Accuracy against epsilon, beside that without noise."""
    cost, level = about
    xs = [one.epsilon for one in cost.curve]
    marked = xs.index(cost.epsilon) if cost.epsilon in xs else None
    curve = Series(measure, values, plain, level, "no noise")
    return line(name, f"{measure} against epsilon", xs, curve, "epsilon", marked)


def both_bounds(run: Run) -> Section | None:
    """Make the section of an audit on epsilon from both sides: found, and proven."""
    known = None if run.audit is None else run.audit.epsilon
    if known is None:
        return None
    rows = [
        Bar("proven: at most", known.proven, "other"),
        Bar("found, by means: at least", known.lower),
        Bar("found, by counting: at least", known.lower_by_counting),
    ]
    title = "Epsilon: what is proven, and what an attack found"
    chart = bars("epsilon-bounds", title, rows, ValueAxis("epsilon"))
    said = (known.sentence, *words.of_bounds(known))
    return Section("epsilon", "Epsilon, from both sides", said, charts=(chart,))
