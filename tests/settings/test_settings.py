import ast
import inspect
import json
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pytest
from pydantic import Field, TypeAdapter

from fedmmf import FedMMF
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.engines import ENGINES
from fedmmf.errors import SettingsError
from fedmmf.masks import FAMILIES
from fedmmf.masks.settings import MaskSettings
from fedmmf.settings import Settings
from fedmmf.settings.groups import GROUPS, SettingsGroup, all_groups, in_use, names_for
from fedmmf.settings.settings import AllGroups
from fedmmf.solvers import SOLVERS


def test_settings_are_frozen():
    with pytest.raises(SettingsError, match="settings do not change; make others, with factors=3"):
        Settings().factors = 3


def test_every_setting_belongs_to_one_component_and_has_a_description():
    names = [name for part in all_groups() for name in part.model_fields]
    assert list(Settings.model_fields) == names
    assert [name for of in Settings.groups().values() for name in of] == names
    assert all(field.description for field in Settings.model_fields.values())


def test_type_checkers_see_the_groups_that_are_registered():
    """Those of this package: other packages' are there at run time alone."""
    source = inspect.getsource(inspect.getmodule(Settings))
    (static,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and node.name == AllGroups.__name__
    )
    assert [base.id for base in static.bases[::-1]] == [group.__name__ for group in all_groups()]
    assert AllGroups.__bases__ == all_groups()[::-1]


def test_a_members_group_is_registered_under_its_kind_and_name():
    for name in GROUPS.names():
        group = GROUPS[name]
        if group.member:
            assert name == f"{group.kind}.{group.member}"
            assert group.member in names_of(group.kind)
        for other in group.shares:
            assert f"{group.kind}.{other}" in GROUPS


def names_of(kind):
    registries = {"mask": FAMILIES, "solver": SOLVERS, "engine": ENGINES}
    return {**registries, "aggregation": AGGREGATIONS}[kind].names()


def test_two_components_do_not_bring_one_setting():
    class Greedy(SettingsGroup):
        factors: Annotated[int, Field(description="how many")] = 3

    GROUPS.register("greedy", Greedy)
    try:
        with pytest.raises(SettingsError, match="'greedy' brings 'factors', which SolverSettings"):
            all_groups()
    finally:
        GROUPS.unregister("greedy")


def test_what_a_member_brings_has_a_say_where_it_is_in_use():
    """Or where another member says that it uses the same settings."""
    values = {"dp_clip": 1.0, "signed": False, "step": "sum", "weather": "fine"}
    assert in_use({"aggregation": "dp", "solver": "vb", **values}).keys() >= {"dp_clip", "signed"}
    assert "step" not in in_use({"solver": "vb", **values})
    assert "dp_clip" not in in_use({"aggregation": "secure", **values})
    assert "signed" not in in_use({"aggregation": "homomorphic-ckks", **values})
    assert in_use(values) == values  # a run that does not tell may have any


def test_groups_are_called_as_people_see_them():
    groups = Settings.groups()
    assert list(groups) == ["Mask", "Sharing and sums", "Solver", "Objective", "Run"]
    assert groups["Run"] == ("engine", "device", "pieces", "seed")
    assert groups["Objective"] == ("objective", "likelihood", "unrated_weight", "unrated_value")
    assert {"sharing", "dp_epsilon"} <= set(groups["Sharing and sums"])
    assert {"item_prior", "profile_prior", "implicit_prior"} <= set(groups["Solver"])


def test_a_component_can_be_used_alone():
    assert MaskSettings(mask="fm").folds == 5
    with pytest.raises(SettingsError, match="should be 'auto', 'none', 'mean'"):
        MaskSettings(mask="ridge")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"factor": 3}, "unknown setting 'factor'; did you mean 'factors'? (latent factors k)"),
        ({"solvr": "vb"}, "unknown setting 'solvr'; did you mean 'solver'? (how the factors are"),
        ({"k": 3}, "unknown setting 'k'. The settings are mask,"),
        ({"rounds": 10**7}, "rounds should be at most 1000000 or 'auto'; got 10000000"),
        ({"factors": 0}, "factors should be at least 1; got 0"),
        (
            {"mask": "ridge"},
            "mask should be 'auto', 'none', 'mean', 'lr', 'fm' or 'nn'; got 'ridge'",
        ),
        ({"mask": 3}, "mask should be a text; got 3"),
        ({"solver": "als"}, "solver should be 'sgd' or 'vb'; got 'als'"),
        ({"aggregation": "none"}, "aggregation should be 'secure', 'homomorphic-paillier'"),
        ({"aggregation": "plain"}, "'homomorphic-ckks' or 'dp'; got 'plain'"),
        ({"aggregation": "adaptive"}, "'homomorphic-ckks' or 'dp'; got 'adaptive'"),
        ({"engine": "abacus"}, "engine should be 'numba'"),
        (
            {"learning_rate": float("nan")},
            "should be a finite number or 'auto'; got nan",
        ),
        ({"held_out": 0.9}, "held_out should be at most 0.5 or 'auto'; got 0.9"),
        ({"cross_fit": "False"}, "cross_fit should be True or False; got 'False'"),
        ({"implicit_prior": "all"}, "should be 'none', 'items', 'users' or 'both'; got 'all'"),
        ({"implicit_prior": True}, "should be 'none', 'items', 'users' or 'both'; got True"),
        ({"profile_prior": "no"}, "profile_prior should be True or False; got 'no'"),
        ({"objective": "lists"}, "objective should be 'rating' or 'ranking'; got 'lists'"),
        ({"likelihood": "poisson"}, "should be 'gaussian' or 'ordinal'; got 'poisson'"),
        ({"unrated_weight": 0.0}, "should be more than 0 or 'auto'; got 0.0"),
        ({"unrated_weight": 1.0}, "should be less than 1 or 'auto'; got 1.0"),
        ({"unrated_value": float("inf")}, "should be a finite number or 'auto'; got inf"),
        ({"rounds": 2.5}, "rounds should be a whole number or 'auto'; got 2.5"),
    ],
)
def test_a_mistake_names_field_rule_and_value(values, expected):
    with pytest.raises(SettingsError) as caught:
        Settings.checked(**values)
    assert expected in str(caught.value)
    assert "--" not in str(caught.value)  # a Python user has no flags


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"sharing": "plain", "aggregation": "dp"}, "aggregation 'dp' needs sharing 'strict'"),
        ({"sharing": "adaptive", "solver": "vb"}, "'adaptive' needs solver 'sgd': one update of"),
        ({"collect_masked": True}, "collect_masked needs sharing 'adaptive'; got 'strict'"),
        ({"signed": True, "aggregation": "homomorphic-ckks"}, "signed needs secure sums"),
        (
            {"aggregation": "dp", "step": "mean"},
            "needs solver 'sgd' or 'vb' and step 'sum' or 'adam'",
        ),
        ({"aggregation": "dp", "held_out": 0.1}, "needs held_out 0: held-out errors"),
        ({"aggregation": "dp", "item_statistics": True}, "would be a sum outside the budget"),
        (
            {"objective": "ranking", "solver": "sgd"},
            "objective 'ranking' needs solver 'vb'; got 'sgd'",
        ),
        (
            {"likelihood": "ordinal"},
            "likelihood 'ordinal' needs solver 'vb' and objective 'rating'; got 'sgd' and 'rating'",
        ),
        (
            {"likelihood": "ordinal", "solver": "vb", "objective": "ranking"},
            "needs solver 'vb' and objective 'rating'; got 'vb' and 'ranking'",
        ),
        (
            {"objective": "ranking", "solver": "vb", "held_out": 0.1},
            "objective 'ranking' needs held_out 0",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_explained(values, expected):
    with pytest.raises(SettingsError) as caught:
        Settings.checked(**values)
    assert expected in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "rounds", "held_out"),
    [
        ({}, 200, 0.05),
        ({"solver": "vb"}, 22, 0.0),
        ({"solver": "vb", "objective": "ranking"}, 22, 0.0),
        ({"aggregation": "dp"}, 28, 0.0),
        ({"aggregation": "dp", "objective": "ranking"}, 18, 0.0),
        ({"aggregation": "dp", "solver": "sgd"}, 30, 0.0),
        ({"rounds": 7, "held_out": 0.2}, 7, 0.2),
    ],
)
def test_what_is_not_chosen_is_what_the_solver_declares(values, rounds, held_out):
    settings = Settings(**values)
    assert (settings.max_rounds, settings.held_out_share) == (rounds, held_out)


@pytest.fixture
def other_solver():
    """A solver from elsewhere, of which nothing is known but what it declares."""
    declared = {"may_be_clear": False, "may_be_noisy": True, "ranks": True}
    SOLVERS.register("other", SimpleNamespace(default_rounds=9, default_held_out=0.0, **declared))
    yield
    SOLVERS.unregister("other")


def test_a_solver_from_elsewhere_is_judged_by_what_it_declares(other_solver):
    assert Settings(solver="other").max_rounds == 9
    assert Settings(solver="other", aggregation="dp").max_rounds == 30
    with pytest.raises(SettingsError, match="one update of 'other' holds masked ratings"):
        Settings.checked(solver="other", sharing="adaptive")
    assert Settings(solver="other", objective="ranking").objective == "ranking"
    with pytest.raises(SettingsError, match="'ranking' needs solver 'vb' or 'other'; got 'sgd'"):
        Settings.checked(solver="sgd", objective="ranking")
    assert Settings(solver="other", likelihood="ordinal").likelihood == "ordinal"


def test_who_wants_lists_and_names_no_solver_gets_one_that_ranks():
    """What was asked for stays: a solver that cannot is refused, not replaced."""
    assert Settings.checked(objective="ranking").solver == "vb"
    assert Settings.checked(objective="rating").solver == "sgd"
    assert Settings().changed(objective="ranking").solver == "vb"
    lists = Settings.checked(objective="ranking", factors=3)
    assert lists.changed(factors=5).solver == "vb"
    assert lists.changed(objective="rating") == Settings(solver="sgd", factors=3)
    with pytest.raises(SettingsError, match="needs solver 'vb'; got 'sgd'"):
        Settings().changed(objective="ranking", solver="sgd")


def test_a_solver_that_was_named_stays():
    named = Settings(solver="sgd", factors=3)
    for settings in (named, named.changed(factors=5), pickle.loads(pickle.dumps(named))):  # noqa: S301
        with pytest.raises(SettingsError, match="needs solver 'vb'; got 'sgd'"):
            settings.changed(objective="ranking")
    lists = Settings(objective="ranking", solver="vb")
    assert lists.changed(objective="rating").solver == "vb"
    with pytest.raises(SettingsError, match="needs solver 'vb'; got 'sgd'"):
        FedMMF(solver="sgd").set_params(objective="ranking")


class Narrower(Settings):
    """Settings with a default of their own, as LensKit's scorer has them."""

    mask: Annotated[str, Field(description="a mask")] = "mean"


WAYS = {
    "constructor": lambda **values: Settings(**values),
    "checked": Settings.checked,
    "changed": lambda **values: Settings().changed(**values),
    "estimator": lambda **values: FedMMF(**values).settings,
    "set_params": lambda **values: FedMMF().set_params(**values).settings,
    "subclass": lambda **values: Narrower(**values),
    "mapping": lambda **values: TypeAdapter(Narrower).validate_python(values),
    "json": lambda **values: Settings.model_validate_json(json.dumps(values)),
}


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_there_is_one_rule_for_objective_and_solver_and_one_kind_of_error(make):
    assert make(objective="ranking").solver == "vb"
    assert make(objective="rating").solver == make().solver == "sgd"
    with pytest.raises(SettingsError, match="'ranking' needs solver 'vb'; got 'sgd'"):
        make(objective="ranking", solver="sgd")
    with pytest.raises(SettingsError, match="factors should be at least 1; got 0"):
        make(factors=0)


def test_what_is_learned_is_ratings_with_both_implicit_priors_unless_asked():
    chosen = Settings()
    assert (chosen.objective, chosen.implicit_prior, chosen.profile_prior) == (
        "rating", "both", True,
    )  # fmt: skip
    assert (chosen.unrated_weight, chosen.unrated_value) == ("auto", "auto")
    assert chosen.likelihood == "gaussian"


@pytest.mark.parametrize(
    ("setting", "registry"),
    [("mask", FAMILIES), ("solver", SOLVERS), ("aggregation", AGGREGATIONS), ("engine", ENGINES)],
)
def test_names_from_elsewhere_are_taken(setting, registry):
    declared = {"default_rounds": 1, "default_held_out": 0.0}
    registry.register("new", SimpleNamespace(may_be_clear=True, may_be_noisy=True, **declared))
    try:
        assert "new" in names_for(setting)
        assert getattr(Settings.checked(**{setting: "new"}), setting) == "new"
    finally:
        registry.unregister("new")
    with pytest.raises(SettingsError, match=f"{setting} should be"):
        Settings.checked(**{setting: "new"})


def test_settings_load_no_mask_no_engine_and_no_side_of_an_aggregation():
    """So that a server reads a charter without what knows masks, and everybody quickly."""
    code = (
        "import sys; from fedmmf.settings import Settings; Settings(mask='lr', mask_fit='joint',"
        "solver='vb', aggregation='secure', signed=True, engine='numpy').has_joint_mask;"
        "heavy = ('fedmmf.masks.models', 'fedmmf.masks.fitting', 'fedmmf.engines.reference',"
        "'fedmmf.aggregation.secure.server', 'fedmmf.aggregation.dp.guarantee', 'numba', 'polars',"
        "'scipy', 'torch', 'opendp');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_numpys_numbers_are_welcome():
    settings = Settings.checked(factors=np.int64(7), held_out=np.float32(0.25))
    assert (settings.factors, settings.held_out) == (7, 0.25)


def test_changed_validates_anew():
    assert Settings().changed(factors=7).factors == 7
    with pytest.raises(SettingsError):
        Settings().changed(factors=-1)


def test_settings_travel():
    settings = Settings(mask="fm", rounds=7)
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own bytes
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize(
    ("chosen", "is_joint"),
    [
        ({}, True),
        ({"mask": "mean"}, True),
        ({"mask_fit": "joint"}, True),
        ({"mask_fit": "alone"}, False),
        ({"mask": "none"}, False),
        ({"solver": "sgd"}, False),
        ({"sharing": "plain"}, False),  # what is joint is hidden by sums alone
        ({"objective": "ranking"}, False),
        ({"mask_strength": 3.0}, False),
        ({"cross_fit": True}, False),
        ({"item_statistics": True}, False),
    ],
)
def test_masks_are_joint_where_they_can_be(chosen, is_joint):
    settings = Settings.checked(**{"solver": "vb", **chosen})
    assert settings.has_joint_mask == is_joint
    if not is_joint and "mask_fit" not in chosen:
        with pytest.raises(SettingsError, match="mask_fit 'joint' needs solver 'vb'"):
            settings.changed(mask_fit="joint")
