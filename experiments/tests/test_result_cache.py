"""Results of long runs in files."""

import json

import pytest

from fedmmf.errors import CheckpointError
from fedmmf_experiments.result_cache import ResultCache, path_in


def results():
    """Another one at each call."""
    number = 0

    def compute():
        nonlocal number
        number += 1
        return {"number": number}

    return compute


def test_a_result_is_computed_once_for_the_same_facts(tmp_path):
    cache, compute = ResultCache(tmp_path), results()
    for _ in range(2):
        assert cache.once(("a", "b"), {"n": 1}, compute) == {"number": 1}
    assert cache.once(("a", "b"), {"n": 2}, compute) == {"number": 2}
    assert cache.once(("a", "c"), {"n": 2}, compute) == {"number": 3}


def test_without_a_folder_nothing_is_kept():
    compute = results()
    assert [ResultCache().once(("a",), {}, compute)["number"] for _ in range(2)] == [1, 2]


def test_names_that_share_a_file_do_not_share_a_result(tmp_path):
    cache, compute = ResultCache(tmp_path), results()
    assert path_in(tmp_path, ("u/x", "s")) == path_in(tmp_path, ("u:x", "s"))
    assert cache.once(("u/x", "s"), {}, compute) == {"number": 1}
    assert cache.once(("u:x", "s"), {}, compute) == {"number": 2}


@pytest.mark.parametrize("name", [("..", "..", "x"), ("../../x",), ("/x",), ("", "x"), (".",)])
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    path = path_in(tmp_path, name).resolve()
    assert path.is_relative_to((tmp_path / "runs").resolve())
    assert path.suffix == ".json"


@pytest.mark.parametrize("found", [None, [], 3])
def test_a_file_without_a_result_is_made_anew(tmp_path, found):
    cache, compute = ResultCache(tmp_path), results()
    cache.once(("a",), {}, compute)
    path = path_in(tmp_path, ("a",))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"found": found}))
    assert cache.once(("a",), {}, compute) == {"number": 2}


def test_a_file_that_is_no_json_says_so(tmp_path):
    path = path_in(tmp_path, ("a",))
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(CheckpointError, match="Delete it"):
        ResultCache(tmp_path).once(("a",), {}, results())
