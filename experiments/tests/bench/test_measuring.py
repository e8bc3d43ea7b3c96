import math
import os

import pytest

from fedmmf.data import load
from fedmmf.errors import DataError, FedMMFError
from fedmmf_experiments.bench import measuring


def test_a_process_of_its_own_gives_what_the_function_gives():
    assert measuring.in_own_process(math.prod, [2, 3, 7]) == 42
    own, here = (measuring.in_own_process(os.getpid), os.getpid())
    assert own != here


def test_it_gets_the_environment():
    assert measuring.in_own_process(os.getenv, "COLOUR", COLOUR="blue") == "blue"


def test_a_users_mistake_there_is_one_here():
    with pytest.raises(DataError, match=r"There is no file nosuch\.csv"):
        measuring.in_own_process(load, "nosuch.csv")


def test_a_death_is_reported():
    with pytest.raises(FedMMFError, match="the process that measures ended with 3"):
        measuring.in_own_process(os._exit, 3)


def test_clocks():
    assert measuring.timed(lambda: None) >= 0
    assert measuring.median([3, 1, 2]) == 2
    assert 0.001 < measuring.peak_gigabytes() < 1000
