"""Sharing, audit and reports, as a user types them."""

import json
import re
import shlex
import stat

import pytest
import typer

from fedmmf.cli.app import app

from .test_cli import fedmmf

QUICK = ["--mask", "mean", "--rounds", "3", "--factors", "4"]


@pytest.fixture
def ratings_file(small, tmp_path):
    path = tmp_path / "ratings.csv"
    small.to_frame().write_csv(path)
    return path


def report_of(*arguments):
    done = fedmmf(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_strict_sharing_is_the_default_and_costs_more_than_plain(ratings_file):
    strict = report_of("train", "--data", ratings_file, *QUICK)
    plain = report_of("train", "--data", ratings_file, *QUICK, "--sharing", "plain")
    assert strict["settings"]["sharing"] == "strict"
    assert strict["rmse"] == pytest.approx(plain["rmse"], abs=0.01)
    up = "up_bytes_per_user_round"
    assert strict["traffic"][up] > 2 * plain["traffic"][up]
    assert strict["cost"]["server_cpu_s"] > 0 == plain["cost"]["server_cpu_s"]


def test_a_real_run_says_what_the_simulation_says(ratings_file):
    simulated = report_of("train", "--data", ratings_file, *QUICK)
    real = report_of("train", "--data", ratings_file, *QUICK, "--real")
    assert real["rmse"] == pytest.approx(simulated["rmse"], abs=1e-4)
    assert (simulated["simulated"], real["simulated"]) == (True, False)
    kinds = ("simulated: no message was sent", "real parties")
    assert (simulated["run_kind"], real["run_kind"]) == kinds
    assert "dp" not in simulated


@pytest.mark.parametrize("noise", ["local", "distributed"])
def test_a_run_with_noise_says_what_it_has_spent(ratings_file, noise):
    pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
    options = ("--aggregation", "dp", "--dp-noise", noise, "--ensemble", "2")
    spent = report_of("train", "--data", ratings_file, *QUICK, *options)["dp"]
    assert spent["epsilon"] == pytest.approx(8.0, rel=1e-5)
    assert spent["epsilon"] <= 8.0
    assert (spent["delta"], spent["noise"]) == (1e-5, noise)
    assert spent["rounds_used"] == spent["rounds_paid"] > 0
    assert "in this simulation, from a seed" in spent["added_by"]
    assert "not inside epsilon" in spent["not_covered"]
    shown = fedmmf("train", "--data", ratings_file, *QUICK, *options).stdout
    assert "epsilon, delta: a whole user" in shown
    assert [one["name"] for one in spent["releases"]] == ["counts", "means", "factors"]
    assert "released: factors" in shown
    assert "left of the budget" in shown
    assert "strict, dp (simulated: no message was sent)" in shown


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--aggregation", "dp", "--likelihood", "ordinal"], "likelihood 'ordinal'"),
        (["--sharing", "plain", "--aggregation", "dp"], "needs sharing 'strict'"),
        (["--collect-masked"], "collect_masked needs sharing 'adaptive'"),
        (["--sharing", "adaptive", "--solver", "vb"], "needs solver 'sgd'"),
        (["--real", "--solver", "vb", "--sharing", "plain"], "use sharing 'strict'"),
        (["--dp-epsilon", "0"], "dp_epsilon"),
        (["--dp-epsilon", "1"], "dp_epsilon needs aggregation 'dp'"),
    ],
)
def test_settings_that_do_not_fit_are_explained(ratings_file, options, reason):
    done = fedmmf("train", "--data", ratings_file, *QUICK, *options)
    assert done.returncode == 2
    assert reason in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_an_audit_is_told_written_and_shown(ratings_file, tmp_path):
    out = tmp_path / "audit"
    found = report_of(
        "audit", "--data", ratings_file, "--mask", "mean", "--threshold-j", "0.05", "--out", out
    )
    assert "users are recovered by" in found["sentences"][0]
    assert set(found["groups"]) == {"in the clear", "in sums"} == set(found["verdicts"])
    first = found["groups"]["in the clear"][0]
    assert {"name", "knows", "outputs", "measure", "mean", "interval", "quantiles"} <= set(first)
    shares = [point["recovered_share"] for point in found["tradeoff"]]
    assert shares == sorted(shares)
    assert json.loads((out / "audit.json").read_text()) == found
    assert stat.S_IMODE((out / "audit.json").stat().st_mode) == 0o600  # it has each user's result
    page = tmp_path / "again.html"
    told = report_of("report", out, "--out", page)
    assert "attacks" in told["sections"]
    assert (out / "report.html").read_text().count("<svg") == page.read_text().count("<svg") > 4


def test_who_audits_itself_does_not_share_what_can_be_found(ratings_file):
    options = ["--data", ratings_file, *QUICK, "--sharing", "adaptive"]
    by_j = report_of("train", *options)
    by_audit = report_of("train", *options, "--grouping", "audit", "--audit-limit", "0.5")
    assert by_j["privacy"]["users_in_clear"] > 0
    assert by_audit["privacy"]["users_in_clear"] == 0


def test_train_writes_a_report(ratings_file, tmp_path):
    page = tmp_path / "run.html"
    done = fedmmf("train", "--data", ratings_file, *QUICK, "--report", page)
    assert done.returncode == 0
    assert "<svg" in page.read_text()


def test_the_page_has_the_command_as_a_shell_would_take_it(ratings_file, tmp_path):
    page = tmp_path / "my page.html"
    made = report_of("train", "--data", ratings_file, *QUICK, "--report", page)
    typed = shlex.split(made["command"])
    assert typed[:3] == ["fedmmf", "train", "--data"]
    assert typed[typed.index("--report") + 1] == str(page)
    assert made["command"].replace("'", "&#39;") in page.read_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", made["made"])


@pytest.mark.parametrize("name", ["train", "audit", "demo", "report"])
def test_no_option_of_a_command_that_pages_show_takes_a_secret(name):
    command = typer.main.get_command(app).commands[name]
    words = "secret password passphrase token key credential"
    assert not [p.name for p in command.params if any(word in p.name for word in words.split())]


def test_an_adaptive_run_says_who_is_in_the_clear(ratings_file):
    shown = fedmmf("train", "--data", ratings_file, *QUICK, "--sharing", "adaptive").stdout
    first, *_ = shown.splitlines()
    assert first == "simulated: no message was sent"
    assert "in the clear, which is obfuscation, not protection" in " ".join(shown.split())
    assert re.search(r"in the clear: obfuscated\s*│\s*\d+ of 60", shown)


def test_a_real_run_calls_itself_real_in_the_first_line(ratings_file, tmp_path):
    page = tmp_path / "run.html"
    options = ["--data", ratings_file, *QUICK, "--real", "--report", page]
    first, *others = fedmmf("train", *options).stdout.splitlines()
    assert first == "real parties"
    assert any(line.startswith("real parties: ") for line in others)
    assert "simulat" not in page.read_text()
