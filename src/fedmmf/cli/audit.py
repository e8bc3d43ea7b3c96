"""`fedmmf audit`: every attack on a run, and what it means for those who share in the clear."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmmf import __version__
from fedmmf.cli import options as o
from fedmmf.cli.output import errors, print_json, progress_bar, results, table, versions
from fedmmf.reports import write_report

EXAMPLE = (
    "Example: fedmmf audit --data ml-100k --mask lr --sharing adaptive --threshold-j 0.05 "
    "--out audit"
)
D = o.DEFAULTS


def audit(
    data: o.DataOption = "synthetic",
    features: o.FeaturesOption = None,
    scale: o.ScaleOption = None,
    duplicates: o.DuplicatesOption = "refuse",
    edges: o.EdgesOption = None,
    mask: o.MaskOption = D.mask,
    mask_strength: o.MaskStrengthOption = None,
    cross_fit: o.CrossFitOption = D.cross_fit,
    folds: o.FoldsOption = D.folds,
    sharing: o.SharingOption = "adaptive",
    threshold_j: o.ThresholdOption = D.threshold_j,
    grouping: o.GroupingOption = D.grouping,
    audit_limit: o.AuditLimitOption = D.audit_limit,
    min_raters: o.MinRatersOption = D.min_raters,
    factors: o.FactorsOption = D.factors,
    seed: o.SeedOption = D.seed,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for audit.json and report.html.")
    ] = None,
    json: o.JsonOption = False,
) -> None:
    """Attack masked ratings and messages, and say who would be exposed."""
    settings = o.settings_among(locals())
    from fedmmf.attacks.audit import audit as run_audit  # slow to load, and rarely needed

    ratings = o.load_ratings(
        data, features=features, scale=scale, duplicates=duplicates, edges=edges
    )
    with progress_bar(ratings.name) as progress:
        found = run_audit(ratings, settings, lambda done, of: progress("attacks", done, of))
    report = {"data": ratings.name, "synthetic": ratings.synthetic, **found.to_dict()}
    report |= {"version": __version__, "versions": versions()}
    if out is not None:
        _write(report, out)
    if json:
        print_json(report)
    else:
        _show(report)


def _write(report: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "audit.json").write_text(json_format.dumps(report, indent=2) + "\n")
    write_report(report, out / "report.html")
    errors.print(f"written to {out}: audit.json, report.html")


def _show(report: dict[str, Any]) -> None:
    for title, attacks in (*report["groups"].items(), *report["messages"].items()):
        rows = [
            [
                attack["name"],
                str(attack["n_users"]),
                f"{attack['mean']:.3f}",
                f"{attack['interval'][0]:.3f} to {attack['interval'][1]:.3f}",
                f"{attack['baseline_mean']:.3f}",
            ]
            for attack in attacks
            if attack["n_users"]
        ]
        if rows:
            columns = ["attack", "users", "success", "95 %", "without it"]
            results.print(table(title, columns, rows))
    for sentence in report["sentences"]:
        results.print(sentence)
    for group, verdict in report["verdicts"].items():
        results.print(f"[bold]Users {group}.[/] {verdict}")
    grouping = report["grouping"]
    results.print(
        f"In the clear: {grouping['by_indicator']} users by J, {grouping['by_audit']} by their own "
        f"audit; J would have exposed {grouping['exposed_by_indicator']}."
    )
