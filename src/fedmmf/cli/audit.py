"""`fedmmf audit`: every attack on what `fedmmf train` would run, and a verdict for deciders."""

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fedmmf.cli import interrupts
from fedmmf.cli.choices import DataChoice, HeldBack, JsonOption
from fedmmf.cli.files import confirm_folder, require_folder, require_outputs, written
from fedmmf.cli.options import expanded
from fedmmf.cli.output import plain, print_json, results, stamped, steps_bar, table
from fedmmf.cli.train import planned
from fedmmf.reports import write_report
from fedmmf.reports.results import CLEAR, SUMMED, AuditResult
from fedmmf.reports.verdict import AttackOutcome, Verdict
from fedmmf.settings import Settings
from fedmmf.storage.atomic import OWNER_ONLY
from fedmmf.storage.checkpoints import Checkpoint

EXAMPLE = "Example: fedmmf audit --data ml-100k --mask lr --solver vb --out audit"
_NAMES = ("audit.json", "report.html")
_KEPT = "audit.ckpt"  # in the folder of results, while an audit is under way
_COLOURS = {"red": "red", "amber": "yellow", "green": "green"}


@dataclass(frozen=True)
class Auditing:
    """Options for whom an audit attacks, and where it keeps its work."""

    sample: Annotated[
        int, typer.Option(min=0, help="Attack so many users at most, drawn at random; 0: all.")
    ] = 1000
    out: Annotated[Path | None, typer.Option(help="Folder for audit.json and report.html.")] = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Keep finished attacks here, and continue from them after a stop.",
            show_default="audit.ckpt in --out",
        ),
    ] = None

    def check(self, data: DataChoice, test: HeldBack) -> None:
        """Refuse, before any attack, files that could not be written after it."""
        require_folder(self.out, "--out")
        names = () if self.out is None else _NAMES
        outputs = {f"--out, {name}": self.out / name for name in names if self.out is not None}
        inputs = {**data.files, "--test-file": test.test_file}
        require_outputs({**outputs, "--checkpoint": self.kept}, inputs)

    @property
    def kept(self) -> Path | None:
        """The file of the checkpoint; None: one is written only if the audit is interrupted."""
        if self.checkpoint is not None or self.out is None:
            return self.checkpoint
        return self.out / _KEPT


@expanded
def audit(
    data: DataChoice,
    settings: Settings,
    test: HeldBack = HeldBack(test=0.0),  # noqa: B008 - frozen
    auditing: Auditing = Auditing(),  # noqa: B008 - frozen
    json: JsonOption = False,
) -> None:
    """Attack what a training would send, and say what a server could learn about a person."""
    from fedmmf.audit import audit as run_audit  # slow to load, and rarely needed

    auditing.check(data, test)
    training, _ = test.parts(data, settings.seed)
    settings = planned(test, training, settings)
    kept = Checkpoint(auditing.kept)
    with interrupts.keeping(kept, None):
        with steps_bar(training.name) as progress:
            found = run_audit(training, settings, progress, sample=auditing.sample, checkpoint=kept)
        found = stamped(found)
        if auditing.out is None:
            _tell(found, json)
        else:
            _write(found, auditing.out)
    kept.remove()
    if auditing.out is not None:  # nothing is lost if nobody reads to the end
        _tell(found, json)


def _tell(found: AuditResult, json: bool) -> None:
    if json:
        print_json(found.to_json_dict())
    else:
        _show(found)


def _write(found: AuditResult, out: Path) -> None:
    with written(out / "audit.json", OWNER_ONLY) as partial:  # it has each user's result
        partial.write_text(json_format.dumps(found.to_json_dict(), indent=2) + "\n")
    with written(out / "report.html") as partial:
        write_report(found, partial)
    confirm_folder(out, ", ".join(_NAMES))


def _show(found: AuditResult) -> None:
    """Print the verdict first, then the evidence."""
    results.print(f"[bold]{plain(found.run_kind)}[/]", highlight=False)
    if found.verdict is not None:
        _show_verdict(found.verdict)
    if found.epsilon is not None:
        said = plain(found.epsilon.sentence)
        results.print(f"[bold]Epsilon, from both sides.[/] {said}", highlight=False)
    results.print(f"[bold]Figures.[/] {plain(found.finding)}", highlight=False)
    if found.in_clear is not None:
        results.print(f"{found.in_clear}.", markup=False, highlight=False)
    kind = found.run_kind.split(":")[0]
    for title, attacks in (*found.groups.items(), *found.messages.items()):
        tried = [attack for attack in attacks if attack.n_users]
        if tried:
            columns = ["attack", "success", "public", "gain (95 %)"]
            title = f"{kind}: {_had_they(found, title)}, {tried[0].n_users:,} users"
            results.print(table(title, columns, [_row(attack) for attack in tried]))
    for sentence in found.sentences:
        results.print(sentence)
    in_sums = found.verdicts.get(SUMMED, "")
    if in_sums not in found.finding:
        results.print(f"[bold]Users in sums.[/] {plain(in_sums)}")
    grouping, where = found.grouping, _had_they(found, CLEAR).capitalize()
    results.print(
        f"{where}: {grouping.by_indicator} users by J, {grouping.by_audit} by their own audit; "
        f"J would have exposed {grouping.exposed_by_indicator}."
    )


def _show_verdict(verdict: Verdict) -> None:
    """Print light and sentence, the rule, what to change, and what was not tested."""
    light = f"[{_COLOURS[verdict.light]}]{verdict.light.upper()}[/]"
    results.print(f"[bold]{light} {plain(verdict.sentence)}[/]", highlight=False)
    results.print(plain(verdict.rule), highlight=False)
    parts = {"For a better light": verdict.changes, "Not tested": verdict.not_tested}
    for title, lines in parts.items():
        results.print(f"[bold]{title}:[/]", highlight=False)
        for line in lines:
            results.print(f"- {plain(line)}", highlight=False)


def _had_they(found: AuditResult, group: str) -> str:
    """Return the heading of a group; under strict sharing nobody shared in the clear."""
    is_strict = found.settings.get("sharing") == "strict"
    return "had they shared in the clear" if is_strict and group == CLEAR else group


def _row(attack: AttackOutcome) -> list[str]:
    gain = attack.mean - attack.baseline_mean
    return [
        attack.name,
        f"{attack.mean:.3f}",
        f"{attack.baseline_mean:.3f}",
        "{:+.4f} ({:+.4f}, {:+.4f})".format(gain, *attack.advantage_interval),
    ]
