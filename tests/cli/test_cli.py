import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from fedmmf import FedMMF, load
from fedmmf.cli.app import app
from fedmmf.cli.train import warn_of_means
from fedmmf.reports.results import TrainResult

OLD = Path(__file__).parents[1] / "reports" / "version-0.1"
COMMANDS = [
    ["demo"],
    ["data", "list"],
    ["data", "get"],
    ["data", "info"],
    ["train"],
    ["recommend"],
    ["export"],
    ["audit"],
    ["report"],
    ["doctor"],
    ["identity", "new"],
    ["identity", "show"],
    ["identity", "trust"],
    ["identity", "revoke"],
    ["federation", "init"],
    ["federation", "server"],
    ["federation", "site"],
    ["federation", "run"],
    ["federation", "status"],
    ["federation", "evaluate"],
    ["federation", "recommend"],
]


# How far the work is, which a pipe hears every ten seconds: on a busy machine, never on another.
PROGRESS = re.compile(r"^[^:\n]+: [^:\n]+: [\d,]+ of [\d,]+\n", re.MULTILINE)


def fedmmf(*arguments, **environment):
    """Run a command. What it says is complete but for its progress."""
    done = subprocess.run(
        [sys.executable, "-m", "fedmmf", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **environment},
        stdin=subprocess.DEVNULL,
    )
    done.stderr = PROGRESS.sub("", done.stderr)
    return done


@pytest.fixture
def ratings_file(small, tmp_path):
    path = tmp_path / "ratings.csv"
    small.to_frame().write_csv(path)
    return path


@pytest.fixture
def quick(ratings_file):
    return ["--data", ratings_file, "--mask", "mean", "--rounds", "3", "--factors", "4"]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example_a_seed_and_json(command):
    done = fedmmf(*command, "--help")
    assert done.returncode == 0
    for part in (f"Example: fedmmf {' '.join(command)}", "--seed", "--json"):
        assert part in done.stdout


def test_train_json_keeps_its_contract(quick):
    done = fedmmf("train", *quick, "--test", "0.25", "--seed", "5", "--json")
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["test_fraction"] == pytest.approx(0.25, abs=0.001)
    wanted = {"seed": 5, "mask": "mean", "solver": "sgd", "factors": 4, "rounds": 3}
    assert wanted.items() <= report.items()
    assert 0.3 < report["mae"] < report["rmse"] < 2
    assert set(report["seconds"]) >= {"mask", "train", "total"}
    privacy = report["privacy"]
    assert set(privacy) >= {"threshold_j", "secure_users", "insecure_users", "mean_j"}
    assert 0 < privacy["mean_relative_j"] < 2
    assert 0 < privacy["j_follows_variance"] <= 1
    assert privacy["secure_users"] + privacy["insecure_users"] == report["n_users"] == 60
    assert set(report["traffic"]) == {"up_bytes_per_user_round", "down_bytes_per_user_round"}
    assert report["settings"]["rounds"] == 3
    assert report["simulated"] is True


def test_train_is_reproducible_and_the_seed_matters(quick):
    def rmse(seed):
        return json.loads(fedmmf("train", *quick, "--seed", seed, "--json").stdout)["rmse"]

    assert rmse(1) == rmse(1) != rmse(2)


def test_train_ranks_when_asked(quick):
    done = fedmmf("train", *quick, "--top", "5", "--relevant-from", "3", "--json")
    assert done.stderr == (
        "lists were asked for: objective ranking, solver vb, 4 factors (--objective rating "
        "predicts ratings)\n"
    )
    found = json.loads(done.stdout)
    assert (found["objective"], found["solver"]) == ("ranking", "vb")
    assert (found["rmse"], found["mae"]) == (None, None)
    ranking = found["ranking"]
    contract = {"ndcg_at_10", "recall_at_20", "hit_rate_at_10", "ndcg_at_5", "precision_at_5"}
    for scores in (ranking, ranking["popularity"]):
        assert all(0 < scores[name] < 1 for name in contract)
    assert ranking["relevant_from"] == 3.0
    for_lists = ["--solver", "vb", "--objective", "ranking", "--relevant-from", "3"]
    always = json.loads(fedmmf("train", *quick, *for_lists, "--json").stdout)["ranking"]
    assert (always["relevant_from"], "ndcg_at_10" in always) == (3.0, True)
    assert 50 < ranking["n_users"] <= 60
    shown = fedmmf("train", *quick, "--top", "10", "--objective", "rating").stdout
    assert re.search(r"most popular items", shown)
    for name in ("nDCG@10", "recall@20", "precision@10", "MAP@10", "coverage@10", "novelty@10"):
        assert re.search(rf"{name}[^│]*│ +\d\.\d{{4}} │ +\d\.\d{{4}} │", shown)
    assert LOUD.search(shown)


LOUD = re.compile(
    r"lists are of predicted ratings: nDCG@10 0\.\d{4}, the most popular items 0\.\d{4}"
)


@pytest.mark.parametrize(
    "options",
    [
        ["--objective", "rating"],
        ["--solver", "sgd"],
        ["--learning-rate", "0.1"],
        ["--aggregation", "dp", "--dp-delta", "1e-3", "--regularization", "0.1"],
        ["--sharing", "adaptive"],
    ],
    ids=" ".join,
)
def test_who_asks_for_predicted_ratings_gets_lists_of_these(quick, options):
    """Also who asks for what no solver that ranks can do."""
    done = fedmmf("train", *quick, *options, "--top", "10", "--json")
    found = json.loads(done.stdout)
    assert (found["objective"], found["solver"]) == ("rating", "sgd")
    assert 0.3 < found["mae"] < found["rmse"] < 2
    popular = found["ranking"]["popularity"]["ndcg_at_10"]
    worse = f"nDCG@10 {found['ranking']['ndcg_at_10']:.4f} against {popular:.4f}; RMSE "
    assert f"hese lists are worse than the most popular items: {worse}" in found["verdict"]
    assert ("ranking does not fit" in done.stderr) is (options[0] == "--sharing")


def test_nobody_who_asks_for_no_lists_gets_a_model_that_ranks(quick):
    done = fedmmf("train", *quick, "--json")
    assert done.stderr == ""
    assert json.loads(done.stdout)["objective"] == "rating"


def test_train_takes_another_engine(quick):
    """Slower, and the same but for the order in which numbers are added."""
    fast, slow = (
        json.loads(fedmmf("train", *quick, "--engine", engine, "--json").stdout)
        for engine in ("numba", "numpy")
    )
    assert slow["settings"]["engine"] == "numpy"
    assert slow["rmse"] == pytest.approx(fast["rmse"], abs=1e-4)


def test_train_without_a_test_part(quick):
    done = fedmmf("train", *quick, "--test", "0", "--json")
    assert json.loads(done.stdout)["rmse"] is None


def test_train_shows_a_table(quick):
    done = fedmmf("train", *quick)
    assert done.returncode == 0
    assert "RMSE" in done.stdout
    assert "mean J" in done.stdout
    assert "mean of J / user's variance" in done.stdout
    assert "J with variance, Spearman" in done.stdout


def test_train_on_published_split_files(small, tmp_path):
    train, test = small.split(0.2, seed=1)
    for part, name in ((train, "u1.base"), (test, "u1.test")):
        part.to_frame().write_csv(tmp_path / name, separator="\t", include_header=False)
    files = ["--data", tmp_path / "u1.base", "--test-file", tmp_path / "u1.test"]
    done = fedmmf("train", *files, "--mask", "mean", "--rounds", "3", "--json")
    assert json.loads(done.stdout)["test_fraction"] == pytest.approx(0.2, abs=0.001)


def test_train_on_a_split_of_the_publisher(public_data):
    quick = ["--data", "ml-100k", "--mask", "mean", "--rounds", "2", "--factors", "2"]
    report = json.loads(fedmmf("train", *quick, "--split", "ua", "--json").stdout)
    assert report["test_fraction"] == pytest.approx(0.0943)


def test_implicit_feedback_trains_and_says_so_where_it_was_not_asked_for(small, tmp_path):
    pairs, people = tmp_path / "pairs.tsv", tmp_path / "people.csv"
    small.to_frame()["user_id", "item_id"].write_csv(pairs, separator="\t", include_header=False)
    pl.DataFrame({"user_id": small.user_ids, "age": small.user_ids % 9}).write_csv(people)
    quick = ["--data", pairs, "--profiles", people, "--mask", "mean", "--rounds", "2"]
    done = fedmmf("train", *quick, "--json")
    first, second = done.stderr.splitlines()
    assert "no column rating among user_id, item_id: every row counts as a 1" in first
    assert second == "pairs has no ratings: objective ranking, mask mean, 30 factors"
    found = json.loads(done.stdout)
    assert (found["n_ratings"], found["rmse"], found["mae"]) == (1800, None, None)
    assert found["settings"]["objective"] == "ranking"
    assert (found["solver"], found["mask"]) == ("vb", "mean")
    asked = fedmmf("train", *quick, "--implicit", "--json")
    read, last = asked.stderr.splitlines()
    assert last == second
    assert read == "pairs.tsv: no header, so columns are user_id, item_id"
    assert json.loads(asked.stdout)["ranking"] == found["ranking"]
    facts = json.loads(fedmmf("data", "info", pairs, "--profiles", people, "--json").stdout)
    assert facts["implicit"] is True
    assert facts["scale"] == {"min": 0, "max": 1, "step": 1}
    assert facts["profiles"] == ["age"]


def test_a_split_in_files_takes_profiles_and_implicit_feedback(small, tmp_path):
    train, test = small.split(0.2, seed=1)
    for part, name in ((train, "base"), (test, "test")):
        part.to_frame().write_csv(tmp_path / name)
    people = tmp_path / "people.csv"
    pl.DataFrame({"user_id": small.user_ids, "age": small.user_ids % 9}).write_csv(people)
    files = ["--data", tmp_path / "base", "--test-file", tmp_path / "test", "--profiles", people]
    done = fedmmf("train", *files, "--implicit", "--mask", "mean", "--rounds", "2", "--json")
    assert json.loads(done.stdout)["test_fraction"] == pytest.approx(0.2, abs=0.001)


def test_what_was_chosen_is_ranked_unless_something_else_is_asked_for(small, tmp_path):
    """Without a mask, which would say nothing; what is asked for is kept, or refused."""
    pairs = tmp_path / "pairs.csv"
    small.to_frame()["user_id", "item_id"].write_csv(pairs)
    quick = ["train", "--data", pairs, "--implicit", "--rounds", "2", "--factors", "3", "--json"]
    done = fedmmf(*quick)
    said = "pairs has no ratings: objective ranking, mask none, 3 factors"
    assert done.stderr.splitlines() == [said]
    chosen = json.loads(done.stdout)["settings"]
    assert (chosen["mask"], chosen["solver"], chosen["factors"]) == ("none", "vb", 3)
    assert "recall_at_20" in json.loads(done.stdout)["ranking"]
    said = fedmmf(*quick, "--objective", "ranking", "--mask", "none")
    assert said.stderr == ""
    assert json.loads(said.stdout)["ranking"] == json.loads(done.stdout)["ranking"]
    for options, message in (
        (["--objective", "rating"], "has no ratings to predict"),
        (["--solver", "sgd"], "objective 'ranking' needs solver 'vb'; got 'sgd'"),
    ):
        refused = fedmmf(*quick, *options)
        assert refused.returncode == 2
        assert message in refused.stderr
        assert "Traceback" not in refused.stderr


def test_train_for_lists(quick, tmp_path):
    """A solver that ranks is taken by itself; lists are judged, and ratings are not."""
    saved = tmp_path / "model"
    done = fedmmf("train", *quick, "--objective", "ranking", "--save", saved, "--json")
    assert done.stderr.startswith(f"saved to {saved}; it holds private parts")
    assert done.stderr.count("\n") == 1
    found = json.loads(done.stdout)
    assert (found["solver"], found["rmse"], found["mae"]) == ("vb", None, None)
    assert found["settings"]["objective"] == "ranking"
    assert 0 < found["ranking"]["ndcg_at_10"] < 1
    assert FedMMF.load(saved).learned.objective == "ranking"
    shown = fedmmf("train", *quick, "--objective", "ranking", "--top", "5").stdout
    assert "solver vb, ranking" in shown
    assert "RMSE" not in shown
    assert re.search(r"nDCG@5[^│]*│ +\d\.\d{4} │ +\d\.\d{4} │", shown)
    assert "predicted ratings" not in shown
    lists = fedmmf("recommend", "--model", saved, "--user", "3", "--n", "4", "--json")
    assert lists.returncode == 0
    assert len(json.loads(lists.stdout)["recommendations"]) == 4
    refused = fedmmf("train", *quick, "--objective", "ranking", "--solver", "sgd")
    assert refused.returncode == 2
    assert "objective 'ranking' needs solver 'vb'; got 'sgd'" in refused.stderr


def test_train_on_levels(quick, tmp_path):
    saved = tmp_path / "model"
    options = ["--solver", "vb", "--likelihood", "ordinal", "--rounds", "12", "--save", saved]
    found = json.loads(fedmmf("train", *quick, *options, "--json").stdout)
    assert found["settings"]["likelihood"] == "ordinal"
    assert 0.5 < found["rmse"] < 1.5
    model = FedMMF.load(saved)
    assert model.learned.update_shape.n_levels == 5
    numbers = json.loads(fedmmf("train", *quick, *options[:2], *options[4:], "--json").stdout)
    assert numbers["rmse"] != found["rmse"]
    refused = fedmmf("train", *quick, "--likelihood", "ordinal")
    assert refused.returncode == 2
    assert "likelihood 'ordinal' needs solver 'vb' and objective 'rating'" in refused.stderr


def test_profiles_from_a_file_feed_the_solver(quick, small, tmp_path):
    people, saved = tmp_path / "people.csv", tmp_path / "model"
    ages = np.random.default_rng(1).integers(18, 80, small.n_users)
    pl.DataFrame({"user_id": small.user_ids, "age": ages}).write_csv(people)
    options = [*quick, "--solver", "vb", "--profiles", people, "--save", saved, "--json"]
    with_them = json.loads(fedmmf("train", *options).stdout)
    assert FedMMF.load(saved).learned.update_shape.n_profile == 1
    newcomer = tmp_path / "newcomer.csv"
    small.to_frame()["item_id", "rating"][:6].write_csv(newcomer)
    joined = fedmmf("recommend", "--model", saved, "--ratings", newcomer, "--n", "3", "--json")
    assert len(json.loads(joined.stdout)["recommendations"]) == 3  # nobody asked the newcomer's age
    without = json.loads(fedmmf("train", *options, "--no-profile-prior").stdout)
    assert FedMMF.load(saved).learned.update_shape.n_profile == 0
    assert without["rmse"] != with_them["rmse"]


def test_a_saved_model_recommends_and_welcomes(quick, small, tmp_path):
    model, mine = tmp_path / "model.fedmmf", tmp_path / "mine.csv"
    assert fedmmf("train", *quick, "--test", "0", "--save", model).returncode == 0
    user = int(small.user_ids[4])
    done = fedmmf("recommend", "--model", model, "--user", user, "--n", "5", "--json")
    answer = json.loads(done.stdout)
    assert len(answer["recommendations"]) == 5
    rated = small.item_ids[small.item_codes[small.user_codes == 4]]
    assert not {row["item_id"] for row in answer["recommendations"]} & set(rated.tolist())
    items = [int(item) for item in small.item_ids[:3]]
    pl.DataFrame({"item_id": items, "rating": [5, 4, 1]}).write_csv(mine)
    done = fedmmf("recommend", "--model", model, "--ratings", mine, "--json")
    assert not {row["item_id"] for row in json.loads(done.stdout)["recommendations"]} & set(items)


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    FedMMF(mask="mean", factors=4, rounds=3).fit(small).save(folder / "model.fedmmf")
    return folder / "model.fedmmf"


def test_recommend_to_many_users_from_some_items(saved, small, tmp_path):
    users, items = small.user_ids[[8, 3, 11]].tolist(), small.item_ids[:12].tolist()
    (tmp_path / "users.txt").write_text("\n".join(map(str, users)) + "\n\n")
    pl.DataFrame({"note": "x", "item_id": items}).write_csv(tmp_path / "items.csv")
    pl.DataFrame({"item_id": items[:2]}).write_parquet(tmp_path / "sold.parquet")
    chosen = ["--candidates", tmp_path / "items.csv", "--exclude", tmp_path / "sold.parquet"]
    command = ["recommend", "--model", saved, "--users", tmp_path / "users.txt", *chosen, "--seen"]
    lists = json.loads(fedmmf(*command, "--json").stdout)["lists"]
    wanted = FedMMF.load(saved).recommend(
        users=users, candidates=items, exclude=items[:2], seen=True
    )
    assert [one["user"] for one in lists] == [str(user) for user in users]
    listed = [row["item_id"] for one in lists for row in one["recommendations"]]
    assert listed == wanted["item_id"].to_list()
    done = fedmmf(*command, "--out", tmp_path / "lists.csv")
    assert "3 lists are in" in done.stdout
    written = pl.read_csv(tmp_path / "lists.csv")
    assert written.columns == wanted.columns
    assert written["item_id"].to_list() == listed


def test_recommend_to_two_users_by_name(saved, small):
    users = small.user_ids[:2].tolist()
    named = [part for user in users for part in ("--user", user)]
    command = ["recommend", "--model", saved, *named, "--user", f"0{users[0]}", "--n", "3"]
    lists = json.loads(fedmmf(*command, "--json").stdout)["lists"]
    assert [len(one["recommendations"]) for one in lists] == [3, 3]  # 7 and 07 are one user
    shown = fedmmf(*command).stdout
    assert shown.count("3 items for") == 2
    assert "lists are of predicted ratings: how good they are was not measured" in shown


def test_a_list_may_be_empty_and_a_newcomers_may_be_written(saved, small, tmp_path):
    item = small.item_ids[0].item()
    (tmp_path / "one.txt").write_text(f"{item}\n")
    pl.DataFrame({"item_id": [item], "rating": [5]}).write_csv(tmp_path / "mine.csv")
    command = ["recommend", "--model", saved, "--ratings", tmp_path / "mine.csv"]
    command += ["--candidates", tmp_path / "one.txt"]
    answer = json.loads(fedmmf(*command, "--json").stdout)
    assert (answer["user"], answer["recommendations"]) == ("newcomer", [])
    assert fedmmf(*command, "--seen", "--out", tmp_path / "l.parquet").returncode == 0
    written = pl.read_parquet(tmp_path / "l.parquet")
    assert written.select("user_id", "rank", "item_id").rows() == [("newcomer", 1, item)]


def test_export_writes_vectors(saved, tmp_path):
    done = fedmmf("export", "--model", saved, "--out", tmp_path / "f.npz", "--json")
    model = FedMMF.load(saved)
    assert json.loads(done.stdout)["n_items"] == model.learned.n_items
    with np.load(tmp_path / "f.npz") as file:
        scores = file["items"] @ file["users"][7]
    expected = model.learned.scorer(np.arange(model.learned.n_items))(7)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    refused = fedmmf("export", "--model", saved, "--out", tmp_path / "f.txt")
    assert refused.returncode == 2
    assert "must end in .npz, .parquet, .faiss or .hnsw" in refused.stderr


def test_errors_name_flags_on_the_command_line(small, tmp_path):
    twice = pl.concat([small.to_frame()] * 2)
    twice.write_csv(tmp_path / "r.csv")
    refused = fedmmf("train", "--data", tmp_path / "r.csv")
    assert "duplicates='last' or 'mean'; " in refused.stderr
    assert "(--duplicates last|mean, --columns)" in refused.stderr


def test_recommend_trains_first_when_given_data(ratings_file, small):
    user = int(small.user_ids[0])
    asked = ["recommend", "--data", ratings_file, "--mask", "mean", "--user", user, "-n", "3"]
    done = fedmmf(*asked)
    assert "3 items for" in done.stdout
    assert "predicted ratings" not in done.stdout
    assert "objective ranking, solver vb, 30 factors" in done.stderr  # for 60 users
    ranked = json.loads(fedmmf(*asked, "--json").stdout)
    assert ranked["objective"] == "ranking"
    assert "warning" not in ranked
    for options in (["--objective", "rating"], ["--solver", "sgd"]):
        assert LOUD.search(fedmmf(*asked, *options).stdout)
    silent = fedmmf(*asked, "--solver", "sgd", "--json")
    answer = json.loads(silent.stdout)
    assert LOUD.search(silent.stderr)
    assert LOUD.search(answer["warning"])
    assert answer["objective"] == "rating"
    assert len(answer["recommendations"]) == 3


def test_lists_of_a_saved_model_carry_what_was_measured(quick, tmp_path):
    saved = tmp_path / "model"
    options = ["--objective", "rating", "--top", "10", "--save", saved, "--json"]
    found = json.loads(fedmmf("train", *quick, *options).stdout)["ranking"]
    shown = fedmmf("recommend", "--model", saved, "--user", "3").stdout
    popular = found["popularity"]["ndcg_at_10"]
    assert f"nDCG@10 {found['ndcg_at_10']:.4f}, the most popular items {popular:.4f}." in shown
    tested = fedmmf("evaluate", "--model", saved, "--data", quick[1], "--top", "10")
    assert LOUD.search(tested.stdout)


def test_a_killed_training_continues(quick, tmp_path):
    """The checkpoint of a run is found by the same command; a foreign one is refused."""
    file = tmp_path / "run.checkpoint"
    file.write_bytes(b"noise")
    done = fedmmf("train", *quick, "--checkpoint", file)
    assert done.returncode == 1
    assert "is not a fedmmf checkpoint" in done.stderr
    file.unlink()
    assert fedmmf("train", *quick, "--checkpoint", file).returncode == 0
    assert not file.exists()


def test_data_commands(ratings_file):
    listed = json.loads(fedmmf("data", "list", "--json").stdout)["datasets"]
    names = [entry["name"] for entry in listed]
    assert names == ["ml-100k", "ml-1m", "ml-10m", "lastfm", "synthetic", "synthetic:ml-10m"]
    facts = json.loads(fedmmf("data", "info", ratings_file, "--json").stdout)
    assert (facts["n_users"], facts["n_ratings"]) == (60, 1800)
    assert "ratings per user" in fedmmf("data", "info", ratings_file).stdout
    assert "made here" in fedmmf("data", "list").stdout


def test_features_from_a_file_feed_the_masks(small, tmp_path):
    generator = np.random.default_rng(0)
    features = tmp_path / "items.csv"
    genres = generator.choice(["Drama", "Comedy", "Drama|Comedy"], small.n_items)
    pl.DataFrame({"item_id": small.item_ids, "genres": genres}).write_csv(features)
    ratings = tmp_path / "ratings.parquet"
    small.to_frame().write_parquet(ratings)
    done = fedmmf("train", "--data", ratings, "--features", features, "--rounds", "3", "--json")
    assert json.loads(done.stdout)["mask"] == "lr"


def test_a_file_without_features_trains_with_the_mean_and_says_so(small, tmp_path):
    foreign = tmp_path / "BX.csv"
    names = {"user_id": "User-ID", "item_id": "ISBN", "rating": "Book-Rating"}
    small.to_frame().drop("timestamp").rename(names).write_csv(foreign, separator=";")
    done = fedmmf("train", "--data", foreign, "--rounds", "3", "--factors", "4", "--json")
    assert done.stderr.splitlines() == [
        "BX.csv: separated by ';'; ISBN is item_id; Book-Rating is rating",
        "BX has no item features: the mask is the user's mean",
    ]
    found = json.loads(done.stdout)
    assert found["mask"] == found["settings"]["mask"] == "mean"


def test_a_model_that_is_worse_than_the_users_own_means_is_warned_of(ratings_file):
    """With steps that are far too long."""
    wild = ["--learning-rate", "2", "--rounds", "3", "--held-out", "0", "--mask", "none"]
    done = fedmmf("train", "--data", ratings_file, *wild, "--json")
    (line,) = done.stderr.splitlines()
    found = json.loads(done.stdout)
    means = {baseline["name"]: baseline["rmse"] for baseline in found["baselines"]}
    said = f"is above that of the users' own means, {means['user mean']:.4f}: train"
    assert line.startswith(f"RMSE {found['rmse']:.4f} {said}")


@pytest.mark.parametrize(("rmse", "is_told"), [(0.9, False), (1.0, False), (1.1, True)])
def test_a_model_is_held_against_the_users_own_means_and_no_others(capsys, rmse, is_told):
    values = json.loads((OLD / "train.json").read_text())
    means = {"item mean": 0.8, "user mean": 1.0, "global mean": 1.2}
    baselines = [{"name": name, "rmse": value} for name, value in means.items()]
    warn_of_means(TrainResult.from_json_dict(values | {"rmse": rmse, "baselines": baselines}))
    said = capsys.readouterr().err
    assert ("RMSE 1.1000 is above that of the users' own means, 1.0000" in said) is is_told
    assert bool(said) is is_told


def test_the_best_round_is_told_where_ratings_were_held_out_and_nowhere_else(ratings_file):
    run = ["train", "--data", ratings_file, "--mask", "mean", "--rounds", "3", "--factors", "2"]
    told = {share: fedmmf(*run, "--held-out", share).stdout for share in ("0", "0.2")}
    assert re.search(r"rounds +│ +3 +│", told["0"])
    assert "best" not in told["0"].split("users, items")[1]
    assert re.search(r"rounds \(best\) +│ +3 \([123]\) +│", told["0.2"])


MEAN = ["--data", "{file}", "--mask", "mean"]
MISTAKES = [
    (["train", "--data", "nosuch.csv"], 1, "There is no file nosuch.csv"),
    (["train", "--data", "ml-100"], 2, "Did you mean ml-100k"),
    (["train", "--data", "{file}", "--mask", "lr"], 2, "needs item features"),
    (["train", "--data", "{file}", "--columns", "user"], 2, "such as user=User-ID,item=ISBN"),
    (["train", "--data", "{file}", "--columns", "item=thing"], 1, "no column 'thing'; its columns"),
    (["train", "--mask", "ridge"], 2, "--mask"),
    (["train", "--engine", "abacus"], 2, "--engine"),
    (["train", "--seed", "-1"], 2, "seed should be at least 0; got -1"),
    (["train", "--factors", "0"], 2, "factors should be at least 1; got 0"),
    (["train", "--learning-rate", "fast"], 2, "must be a number or auto; got 'fast'"),
    (["train", "--scale", "5"], 2, "must be MIN:MAX or MIN:MAX:STEP"),
    (["train", "--data", "{file}", "--scale", "1:3"], 1, "outside the scale 1..3"),
    (["train", "--split", "u1"], 2, "'synthetic' has no split 'u1'"),
    (["train", "--implicit", "--scale", "1:5"], 2, "Implicit feedback is on the scale 0..1"),
    (["train", *MEAN, "--profiles", "no.csv"], 1, "no file no.csv"),
    (["train", "--edges", "a"], 2, "must be numbers with commas between"),
    (["train", *MEAN, "--save", "/proc/no/model"], 1, "cannot be written"),
    (["recommend", "--user", "1"], 2, "give either --model FILE or --data NAME"),
    (["recommend", "--data", "{file}"], 2, "give one of --user ID, --users FILE and --ratings"),
    (["recommend", *MEAN, "--user", "1", "--users", "x"], 2, "give one of --user ID, --users"),
    (["recommend", *MEAN, "--user", "1", "--out", "l.txt"], 2, "that ends in .csv or .parquet"),
    (["recommend", *MEAN, "--users", "no.txt"], 1, "There is no file no.txt"),
    (["recommend", *MEAN, "--user", "1", "--exclude", "no.csv"], 1, "There is no file no.csv"),
    (["train", *MEAN, "--relevant-from", "4"], 2, "give --top N as well"),
    (["train", *MEAN, "--top", "5", "--relevant-from", "7"], 2, "a rating on the scale 1..5"),
    (["recommend", *MEAN, "--user", "77777"], 2, "knows no user '77777'"),
    (["recommend", *MEAN, "--ratings", "no.csv"], 1, "no file no.csv"),
    (["recommend", "--model", "{file}", "--user", "1"], 1, "is not a fedmmf model"),
    (["data", "get", "netflix"], 2, "Known sets"),
    (["data", "get", "synthetic"], 2, "needs no download"),
    (["fly"], 2, "No such command"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "message"), MISTAKES, ids=lambda value: str(value)[:40]
)
def test_a_mistake_gets_a_message_and_no_traceback(arguments, code, message, ratings_file):
    done = fedmmf(*(part.format(file=ratings_file) for part in arguments))
    assert done.returncode == code
    assert message in re.sub(r"[│╭╮╰╯─\s]+", " ", done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


ALONE = """
import sys
import fedmmf.cli.lazy as lazy
lazy.entry_points = lambda group: []  # as if no other package were installed
from fedmmf.cli import main
main()
"""


def alone(*words):
    command = [sys.executable, "-c", ALONE, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["bench", "rounds", "--json"], ["reproduce", "--help"]])
def test_without_the_experiments_their_commands_say_what_to_install(words):
    done = alone(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: `fedmmf {words[0]}` is not installed. It is part of the package "
        "fedmmf-experiments: in a checkout of the project, run pip install ./experiments\n"
    )


def test_help_lists_commands_that_are_installed():
    assert not re.search(r"\b(bench|reproduce)\b", alone("--help").stdout)
    assert {"bench", "reproduce"} <= set(fedmmf("--help").stdout.split())


def test_an_invalid_number_of_threads_is_a_mistake_too(quick):
    done = fedmmf("train", *quick, FEDMMF_THREADS="many")
    assert done.returncode == 2
    assert "FEDMMF_THREADS must be a whole number of at least 1; got 'many'" in done.stderr


def all_of(terminal):
    """What is written to a terminal until its end: in many parts where work takes long."""
    parts = []
    while True:
        try:
            parts.append(os.read(terminal, 65536))
        except OSError:  # the other side is closed
            return b"".join(parts)


def test_progress_is_shown_on_a_terminal(quick):
    """Run under a pseudo-terminal: the bar goes to standard error, the JSON to standard output."""
    terminal, child = pty.openpty()
    command = [sys.executable, "-m", "fedmmf", "train", *map(str, quick), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=child, text=True) as process:
        os.close(child)
        seen = all_of(terminal).decode()
        output = process.stdout.read()
    os.close(terminal)
    assert "rounds" in seen
    assert json.loads(output)["rounds"] == 3


def test_demo_shows_every_mask_and_ten_items(tmp_path):
    done = fedmmf("demo", "--report", tmp_path / "demo.html", "--json")
    answer = json.loads(done.stdout)
    by_sgd = [run for run in answer["runs"] if run["solver"] == "sgd"]
    assert [run["mask"] for run in by_sgd] == ["none", "mean", "lr", "fm", "nn"]
    assert [run["mask"] for run in answer["runs"] if run["solver"] == "vb"] == ["mean", "lr"]
    assert len(answer["recommended"]["recommendations"]) == 10
    assert "<svg" in (tmp_path / "demo.html").read_text()
    by_mask = {run["mask"]: run for run in by_sgd}
    assert by_mask["lr"]["rmse"] < by_mask["mean"]["rmse"]  # genres are worth something
    assert all(run["synthetic"] for run in answer["runs"])


def test_doctor_finds_what_is_here_and_what_is_broken():
    found = json.loads(fedmmf("doctor", "--json", FEDMMF_THREADS="1").stdout)
    assert found["packages"]["numpy"] == np.__version__
    assert None not in found["packages"].values()
    assert found["broken"] == []
    assert found["cores"]["threads"] == 1
    assert found["data"]["synthetic"] is True
    assert set(found["caches"]) == {"compiled kernels", "parsed data sets", "downloads"}
    assert found["extras"]["dp"]["for"] == "--aggregation dp"
    assert found["experiments"] == found["fedmmf"]
    done = fedmmf("doctor", FEDMMF_THREADS="many")
    assert done.returncode == 1
    assert "broken: FEDMMF_THREADS must be a whole number" in done.stdout


def test_version():
    assert re.fullmatch(r"fedmmf \d+\.\d+\.\d+\n", fedmmf("--version").stdout)


def test_a_saved_model_is_tested_on_other_ratings(small, tmp_path):
    train, test = small.split(0.2, seed=1)
    train.to_frame().write_csv(tmp_path / "train.csv")
    default_users = test.to_frame().with_columns(user_id=pl.lit(10**6, pl.Int64))
    both = pl.concat(
        [test.to_frame(), default_users.unique("item_id").head(7), train.to_frame().head(3)]
    )
    both.write_csv(tmp_path / "later.csv")
    quick = ["--mask", "mean", "--rounds", "3", "--factors", "2", "--test", "0"]
    fedmmf("train", "--data", tmp_path / "train.csv", *quick, "--save", tmp_path / "m")
    asked = ["evaluate", "--model", tmp_path / "m", "--data", tmp_path / "later.csv"]
    done = fedmmf(*asked, "--top", "10", "--json")
    found = json.loads(done.stdout)
    assert "3 of" in done.stderr
    assert (found["n_of_unknown_users"], found["n_trained_on"]) == (7, 3)
    expected = FedMMF.load(tmp_path / "m").evaluate(load(tmp_path / "later.csv"), top=10)
    assert found["rmse"] == pytest.approx(expected["rmse"])
    assert found["ranking"]["ndcg_at_10"] == pytest.approx(expected["ranking"].ndcg_at_10)
    shown = fedmmf(*asked).stdout
    assert shown.startswith("simulated")
    assert f"{expected['rmse']:.4f}" in shown


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


def test_the_time_shown_has_the_testing_in_it(quick, monkeypatch):
    """Lists of many users can take longer than training."""
    clock, summary = Clock(), FedMMF.summary

    def slow_summary(self, *given, **named):
        clock.now += 1000.0
        return summary(self, *given, **named)

    monkeypatch.setattr("fedmmf.cli.train.time", clock)
    monkeypatch.setattr(FedMMF, "summary", slow_summary)
    done = CliRunner().invoke(app, ["train", *quick, "--top", "3", "--json"])
    assert json.loads(done.stdout)["seconds"]["total"] == 1000.0


def test_a_pipe_hears_how_far_the_work_is_now_and_then(quick, monkeypatch):
    """Short work is silent; these lines would come every few seconds."""
    monkeypatch.setattr("fedmmf.cli.output.LINE_SECONDS", 0.0)
    done = CliRunner().invoke(app, ["train", *quick, "--top", "3", "--json"])
    said = done.stderr.splitlines()
    assert any(line.endswith(": rounds: 2 of 3") for line in said)
    assert any(": lists: 1 of " in line for line in said)
    assert any(": popular lists: 1 of " in line for line in said)
    json.loads(done.stdout)  # which has the result alone
