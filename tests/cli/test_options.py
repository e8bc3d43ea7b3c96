"""Options follow from groups of fields; scripts depend on their names and defaults."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fedmmf.cli.app import Commands, app
from fedmmf.cli.options import Only, expanded, was_given
from fedmmf.cli.train import train
from fedmmf.errors import SettingsError
from fedmmf.settings import Settings

WRITING = """
    --columns=None --separator=None --encoding=None --missing-value=None --drop-bad-rows=False
    --date-format=None
"""
READING = f"""
    --features=None --feature-columns=None --profiles=None --implicit=False --scale=None
    --duplicates=refuse --edges=None {WRITING}
"""
DATA = f"--data=synthetic {READING}"
MASK = "--mask=auto --mask-strength=None --cross-fit/--no-cross-fit=False --folds=5"
TEST = "--test-file=None --split=random --top=None --relevant-from=None"
SETTINGS = f"""
    {MASK} --mask-fit=auto --item-statistics/--no-item-statistics=False
    --threshold-j=0.05 --sharing=strict --grouping=indicator --audit-limit=0.5
    --aggregation=secure --signed/--no-signed=False --collect-masked/--no-collect-masked=False
    --smallest-cohort=3 --batch=1 --min-raters=3
    --dp-epsilon=8.0 --dp-delta=1e-05 --dp-clip=1.0 --dp-noise=distributed
    --solver=sgd --factors=20 --rounds=auto --ensemble=1 --step=adam --learning-rate=auto
    --regularization=auto --user-prior=1.0 --biases/--no-biases=False
    --item-prior/--no-item-prior=True --profile-prior/--no-profile-prior=True
    --implicit-prior=both --held-out=auto --patience=50
    --objective=rating --likelihood=gaussian --unrated-weight=auto --unrated-value=auto
    --engine=numba --device=cuda --pieces=1"""
# Every command's flags with their defaults, besides --seed and --json, which all of them have.
FLAGS = {
    "demo": "--report=fedmmf-demo.html",
    "data list": "",
    "data get": "",
    "data info": f"{READING} --help-all=False",
    "train": f"""
        {DATA} --test=0.2 {TEST} {SETTINGS} --real=False --checkpoint=None
        --dp-cost/--no-dp-cost=None --dp-curve=None --save=None
        --report=None --help-all=False""",
    "recommend": f"""
        --model=None --data=None --user=None --users=None --ratings=None --n/-n=10
        --candidates=None --exclude=None --seen=False --objective=rating --solver=sgd --mask=auto
        --factors=20 --out=None {READING} --help-all=False""",
    "evaluate": f"--model=None --data=None --top=None {WRITING}",
    "export": "--model=None --out=None",
    "audit": f"""
        {DATA} --test=0.0 {TEST} {SETTINGS} --sample=1000 --out=None --checkpoint=None
        --help-all=False""",
    "report": "--out/-o=report.html",
    "doctor": "",
    "identity new": "--name=None --site=None --passphrase=False",
    "identity show": "--issuer=None --at-least=None --passphrase=False",
    "identity trust": """
        --issuer=None --most-per-site=None --federation=None --passphrase=False""",
    "identity revoke": "--issuer=None --reason=None --passphrase=False",
    "federation init": """
        --sites= --items=None --add= --name=federation --host=127.0.0.1 --port=8102
        --page-port=8103 --party=site --max-parties-per-site=None --scale=None --solver=vb
        --mask=lr --factors=20 --rounds=auto --sharing=strict --smallest-cohort=3
        --help-all=False""",
    "federation server": "",
    "federation site": "--site=None --ratings=None --test=0.1",
    "federation run": "--wait/--no-wait=True",
    "federation status": "",
    "federation evaluate": "",
    "federation recommend": "--site=None --user=None --users=None -n=10",
}


def commands(command, name=""):
    """Commands of this package, by name."""
    if hasattr(command, "commands"):
        for part in command.commands if name else Commands.homes:
            yield from commands(command.get_command(None, part), f"{name} {part}".strip())
    else:
        yield name, command


COMMANDS = dict(commands(typer.main.get_command(app)))


def shown(option):
    default = option.default
    text = ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
    return f"{'/'.join([*option.opts, *option.secondary_opts])}={text}"


def test_there_are_these_commands():
    assert set(COMMANDS) == set(FLAGS)


def test_help_says_of_a_command_what_the_command_says_of_itself():
    """Help lists commands without loading them, from words of its own."""
    top = typer.main.get_command(app)
    for name, (_, words) in Commands.homes.items():
        assert inspect.cleandoc(top.get_command(None, name).help).split("\n\n")[0] == words


@pytest.mark.parametrize("name", FLAGS)
def test_a_command_has_these_flags_and_defaults(name):
    options = [option for option in COMMANDS[name].params if option.param_type_name == "option"]
    wanted = {*FLAGS[name].split(), "--seed=0", "--json=False"}
    assert {shown(option) for option in options} == wanted


def test_every_setting_is_an_option_of_train_in_the_panel_of_its_component():
    assert set(Settings.model_fields) <= set(inspect.signature(train).parameters)
    panels = {option.name: option.rich_help_panel for option in COMMANDS["train"].params}
    for title, names in Settings.groups().items():
        for name in names:
            assert panels[name] == (None if name == "seed" else title)
    assert (panels["data"], panels["real"]) == ("Data", "Sharing and sums")


@dataclass(frozen=True)
class Inner:
    depth: Annotated[int, typer.Option(min=1)] = 2


@dataclass(frozen=True)
class Outer:
    name: Annotated[str, typer.Option(help="What it is called.")] = "it"
    inner: Inner = Inner()


def run(command, *arguments):
    """Run a command of a small application of its own; give what it handed over."""
    small = typer.Typer()
    small.command()(command)
    return CliRunner().invoke(small, arguments, catch_exceptions=False)


def test_groups_arrive_whole_with_what_was_chosen():
    taken = []

    @expanded
    def command(group: Outer, flag: Annotated[bool, typer.Option("--flag")] = False) -> None:
        """Take a group."""
        taken.append((group, flag))

    run(command)
    run(command, "--name", "she", "--depth", "5", "--flag")
    assert taken == [(Outer(), False), (Outer("she", Inner(5)), True)]
    refused = run(command, "--depth", "0")
    assert refused.exit_code == 2
    assert "Take a group." in run(command, "--help").stdout


def test_a_groups_default_gives_the_options_defaults():
    taken = []
    start = Outer("she", Inner(7))

    @expanded
    def command(group: Outer = start) -> None:
        taken.append(group)

    run(command, "--depth", "3")
    assert taken == [Outer("she", Inner(3))]
    assert "default: she" in run(command, "--help").stdout


def test_some_of_the_settings_are_options_and_the_others_stay():
    taken = []
    start = Settings(mask="mean", factors=7, solver="vb")

    @expanded
    def command(settings: Annotated[Settings, Only("mask", "rounds")] = start) -> None:
        taken.append(settings)

    run(command, "--rounds", "3")
    run(command, "--mask", "none", "--rounds", "auto")
    assert taken == [start.changed(rounds=3), start.changed(mask="none")]
    assert run(command, "--factors", "3").exit_code == 2


def test_a_command_knows_what_was_given_and_what_is_a_default():
    """Also where what was given is the default."""
    taken = []

    @expanded
    def command(settings: Annotated[Settings, Only("mask", "solver", "objective")]) -> None:
        given = {name for name in ("mask", "solver", "objective", "factors") if was_given(name)}
        taken.append((given, settings.solver, settings.objective))

    run(command)
    run(command, "--mask", "lr")
    run(command, "--objective", "ranking")  # no solver was given: one that ranks
    run(command, "--objective", "rating", "--solver", "sgd")
    assert taken == [
        (set(), "sgd", "rating"),
        ({"mask"}, "sgd", "rating"),
        ({"objective"}, "vb", "ranking"),
        ({"objective", "solver"}, "sgd", "rating"),
    ]
    with pytest.raises(SettingsError, match="needs solver 'vb'; got 'sgd'"):
        run(command, "--objective", "ranking", "--solver", "sgd")


def test_what_one_command_was_given_is_nothing_to_the_next():
    taken = []

    @expanded
    def command(flag: Annotated[bool, typer.Option("--flag")] = False) -> None:
        taken.append(was_given("flag"))

    run(command, "--flag")
    assert not was_given("flag")
    run(command)
    assert taken == [True, False]


def test_an_option_from_the_environment_was_given(monkeypatch):
    taken = []

    @expanded
    def command(depth: Annotated[int, typer.Option(envvar="DEPTH")] = 1) -> None:
        taken.append((depth, was_given("depth")))

    run(command)
    monkeypatch.setenv("DEPTH", "4")
    run(command)
    assert taken == [(1, False), (4, True)]


def test_settings_that_do_not_fit_are_explained_in_their_own_words():
    @expanded
    def command(settings: Settings) -> None:
        """Take all settings."""

    with pytest.raises(SettingsError, match="collect_masked needs sharing 'adaptive'"):
        run(command, "--collect-masked")
    with pytest.raises(SettingsError, match="folds should be at least 2; got 1"):
        run(command, "--folds", "1")


def test_two_options_of_one_name_are_refused():
    def command(first: Inner, second: Inner) -> None:
        pass

    with pytest.raises(ValueError, match="duplicate parameter name"):
        expanded(command)


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--solver vb",
        "--objective ranking --factors 8",
        "--top 10",
        "--implicit",
        "--sharing adaptive --threshold-j 0.1",
        "--aggregation dp --dp-epsilon 2",
        "--rounds 7 --batch 4 --min-raters 5 --mask mean --seed 3",
    ],
)
def test_an_audit_is_of_what_train_would_run_with_the_same_flags(flags, monkeypatch):
    seen = {}

    def fit(model, *_, **__):
        seen["train"] = model.settings
        raise SettingsError("that is all")

    def audit(ratings, settings, *_, **__):
        seen["audit"] = settings
        raise SettingsError("that is all")

    monkeypatch.setattr("fedmmf.model.FedMMF.fit", fit)
    monkeypatch.setattr("fedmmf.audit.audit", audit)
    for command in ("train", "audit"):
        CliRunner().invoke(app, [command, "--data", "synthetic", *flags.split()])
    assert seen["train"] == seen["audit"]
    assert ("adaptive" in flags) == (not seen["audit"].is_strict)


@pytest.mark.parametrize(
    ("flags", "rounds"),
    [
        ("--implicit", 40),
        ("--implicit --rounds 9", 9),
        ("--implicit --objective rating", "auto"),
        ("--implicit --objective rating --solver sgd", "auto"),
        ("--top 10", "auto"),
    ],
)
def test_data_without_ratings_have_more_rounds(flags, rounds, monkeypatch):
    seen = []

    def fit(model, *_, **__):
        seen.append(model.settings)
        raise SettingsError("that is all")

    monkeypatch.setattr("fedmmf.model.FedMMF.fit", fit)
    CliRunner().invoke(app, ["train", "--data", "synthetic", *flags.split()])
    (settings,) = seen
    assert settings.rounds == rounds
