"""`fedmmf audit`: every attack on a run, and what it means for those who share in the clear."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from fedmmf.cli.choices import DataChoice, JsonOption
from fedmmf.cli.files import confirm_folder, require_folder, require_outputs, written
from fedmmf.cli.options import Only, expanded
from fedmmf.cli.output import lead, plain, print_json, results, stamped, steps_bar, table
from fedmmf.masks.settings import MaskSettings
from fedmmf.reports import write_report
from fedmmf.reports.results import CLEAR, SUMMED, AttackOutcome, AuditResult
from fedmmf.settings import Settings
from fedmmf.storage.atomic import OWNER_ONLY

EXAMPLE = (
    "Example: fedmmf audit --data ml-100k --mask lr --sharing adaptive --threshold-j 0.05 "
    "--out audit"
)
_ADAPTIVE = Settings(sharing="adaptive")  # where users share in the clear, as the paper has it
_NOT_HERE = ("item_statistics", "mask_fit")  # what sgd trains with
_OF_MASKS = tuple(name for name in MaskSettings.model_fields if name not in _NOT_HERE)
_NAMES = ("audit.json", "report.html")
_OF_SHARING = ("sharing", "threshold_j", "grouping", "audit_limit", "min_raters")


@expanded
def audit(
    data: DataChoice,
    settings: Annotated[Settings, Only(*_OF_MASKS, *_OF_SHARING, "factors", "seed")] = _ADAPTIVE,
    out: Annotated[Path | None, typer.Option(help="Folder for audit.json and report.html.")] = None,
    json: JsonOption = False,
) -> None:
    """Attack masked ratings and messages, and say who would be exposed."""
    from fedmmf.audit import audit as run_audit  # slow to load, and rarely needed

    require_folder(out, "--out")
    if out is not None:
        require_outputs({f"--out, {name}": out / name for name in _NAMES}, data.files)
    ratings = data.load()
    with steps_bar(ratings.name) as progress:
        found = run_audit(ratings, settings, progress)
    found = stamped(found)
    if out is not None:
        _write(found, out)
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
    lead(found)
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
    if in_sums not in found.verdict:
        results.print(f"[bold]Users in sums.[/] {plain(in_sums)}")
    grouping, where = found.grouping, _had_they(found, CLEAR).capitalize()
    results.print(
        f"{where}: {grouping.by_indicator} users by J, {grouping.by_audit} by their own audit; "
        f"J would have exposed {grouping.exposed_by_indicator}."
    )


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
