"""Scripts depend on the names and defaults of options."""

import pytest
import typer

from fedmmf.cli.app import Commands, app
from fedmmf_experiments.cli import bench, reproduce

# What `--data` of some commands brings along.
READING = """
    --features=None --feature-columns=None --profiles=None --implicit=False --scale=None
    --duplicates=refuse --edges=None --columns=None --separator=None --encoding=None
    --missing-value=None --drop-bad-rows=False --date-format=None
"""
# Every command's flags with their defaults, besides --seed and --json, which all of them have.
FLAGS = {
    "reproduce table1": """
        --data=ml-100k --model=None --runs=10 --test=0.2 --solver=both --out=table1""",
    "reproduce tune": "--data=ml-100k --model=None --trials=30 --test=0.2",
    "reproduce efficiency": """
        --data=ml-100k --mask=lr --factors=20 --threshold-j=0.03,0.05,0.07 --rounds=2
        --out=efficiency""",
    "reproduce dp": """
        --data=ml-100k --epsilon=1,2,4,8 --rows=None --splits=10 --test=0.2 --dp-delta=1e-05
        --dp-clip=1.0 --dp-noise=distributed --out=dp""",
    "reproduce dp-lists": """
        --data=ml-100k --epsilon=1,2,4,8 --rows=None --splits=10 --test=0.2 --dp-delta=1e-05
        --dp-clip=1.0 --dp-noise=distributed --out=dp-lists""",
    "reproduce dp-users": """
        --users=943,6040,30000,100000 --epsilon=1 --items=500 --per-user=25 --delta=1e-07
        --splits=1 --out=dp-users""",
    "reproduce epsilon": "",
    "reproduce epsilon-seen": "",
    "reproduce agreement": "--runs=200 --engine=numpy,numba --permutations=9999",
    "reproduce lower-bound": "--epsilon=1.0,2.0 --runs=500",
    "reproduce factorial": """
        --data=ml-100k --split=random --test=0.2 --splits=10 --mask=none,mean,lr,fm,nn
        --solver=sgd,vb --factors=20 --out=factorial""",
    "reproduce all": "--quick=False --out=reproduced",
    "reproduce solver": "--problem=None --splits=None",
    "reproduce newcomers": """
        --data=ml-100k --order=time --folds=5 --draws=1 --likelihood=gaussian --mask= --solver=""",
    "reproduce newcomer-lists": "--data=ml-100k --implicit=False --folds=5",
    "reproduce strict": """
        --data=ml-100k --solver=sgd --mask=lr --mask-strength=None --factors=20 --min-raters=3
        --size=12,25,50,100,200,400 --out=strict""",
    "reproduce rounds": """
        --data=ml-100k --solver=sgd --mask=lr --factors=20 --min-raters=3 --size=12,50,200
        --rounds=None --out=rounds""",
    "reproduce attacks": """
        --data=ml-1m --mask=fm --mask-strength=None --cross-fit/--no-cross-fit=False
        --out=attacks""",
    "reproduce strengths": """
        --data=ml-100k --mask=fm,nn,lr --strength=3.0,10.0,30.0,60.0,120.0 --users=200
        --out=strengths""",
    "bench training": "--data=ml-1m --test=0.1 --repeats=3",
    "bench ranking": f"""
        --data=ml-100k {READING} --test=0.2 --splits=1 --only-summed=False
        --validation=False --ranker= --out=None
        --mask=mean --factors=64
        --rounds=auto --implicit-prior=both --unrated-weight=auto --ensemble=1 --help-all=False""",
    "bench list-speed": """
        --data=ml-1m --test=0.2 --repeats=3 --mask=mean --factors=64 --rounds=auto""",
    "bench first-answer": """
        --data=ml-100k,ml-1m,lastfm,lastfm-implicit,bookshop --splits=1 --test=0.2""",
    "bench secagg": """
        --clients=100 --length=100000 --neighbours=None --drop=0.05 --flower/--no-flower=None""",
    "bench session": "--parties=943 --length=33642",
    "bench rounds": """
        --data=ml-100k,ml-1m,lastfm,synthetic:ml-10m --solver=sgd --factors=20 --engine=numba
        --device=cuda --repeats=50""",
    "bench growth": """
        --ratings=1000000,2000000,4000000,8000000,10000054 --items=10000 --per-user=150
        --solver=sgd,vb --sharing=plain --factors=10 --engine=numba --device=cuda""",
    "bench strict": """
        --data=ml-1m --solver=sgd,vb --factors=20 --engine=numba --device=cuda --repeats=15""",
    "bench noise": "--data=ml-100k,ml-1m --mask=lr --factors=4 --repeats=12",
    "bench federation": """
        --data=ml-100k --solver=sgd --factors=20 --signed/--no-signed=False --rounds=3""",
    "bench costs": "--write=False",
    "bench imports": "--repeats=10",
    "bench engines": """
        --data=None --pack=None --quick=False --objective=rating --factors=20 --ensemble=5
        --implicit-prior=both""",
    "bench ray": """
        --data=synthetic:ml-10m --mask=mean --sharing=strict --solver=sgd,vb --factors=10
        --rounds=10 --workers=2 --repeats=3""",
}


def commands(name):
    group = typer.main.get_command(app).get_command(None, name)
    return {f"{name} {part}": group.get_command(None, part) for part in group.commands}


COMMANDS = commands("reproduce") | commands("bench")


def shown(option):
    default = option.default
    text = ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
    return f"{'/'.join([*option.opts, *option.secondary_opts])}={text}"


def test_there_are_these_commands():
    assert set(COMMANDS) == set(FLAGS)


def test_help_says_of_a_command_what_the_command_says_of_itself():
    """Help lists commands without loading them, from words of its own."""
    words = {name: words for name, (_, words) in Commands.elsewhere.items()}
    assert words == {"reproduce": reproduce.app.info.help, "bench": bench.app.info.help}


@pytest.mark.parametrize("name", FLAGS)
def test_a_command_has_these_flags_and_defaults(name):
    options = [option for option in COMMANDS[name].params if option.param_type_name == "option"]
    wanted = {*FLAGS[name].split(), "--seed=0", "--json=False"}
    assert {shown(option) for option in options} == wanted
