"""The section on attacks: their success beside that of public knowledge alone."""

from collections.abc import Mapping

from fedmmf.reports import words
from fedmmf.reports.charts import Bar, Chart, KeyEntry, PageTable, ValueAxis, bars
from fedmmf.reports.reading import Run
from fedmmf.reports.results import AttackOutcome
from fedmmf.reports.section import Section
from fedmmf.reports.svg import percent

_KEY = (
    KeyEntry("above", "more than public knowledge: all of the gain's 95 % interval is above 0"),
    KeyEntry("level", "no difference from public knowledge found"),
    KeyEntry("below", "less than public knowledge: all of the interval is below 0"),
)


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
