"""Bundles: what a site answers is what it was asked, and nothing else."""

import pytest

from fedmmf.errors import WireError
from fedmmf.transports.bundles import pack, unpack, unpack_answers
from fedmmf.wire import Ask, Finished, Survey, parcel
from fedmmf.wire.frames import NO_NAME

ANSWER, PUBLISHED = Finished().encode(), Survey(with_ratings=True).encode()
NAMES = ("a/000000", "a/000001")


def test_answers_are_those_of_the_parties_that_were_asked():
    answers = dict.fromkeys(NAMES, ANSWER)
    assert unpack_answers(pack(answers), NAMES) == answers


def test_an_answer_may_be_missing():
    assert unpack_answers(pack({NAMES[0]: ANSWER}), NAMES) == {NAMES[0]: ANSWER}


def test_a_party_that_was_not_asked_is_refused_by_name():
    data = pack({NAMES[0]: ANSWER, "b/000007": ANSWER})
    with pytest.raises(WireError, match="'b/000007' was not asked"):
        unpack_answers(data, NAMES)


def test_the_name_of_a_stranger_is_short_and_has_no_control_characters():
    data = pack({"\x1b[2J" + "x" * 60_000: ANSWER})
    with pytest.raises(WireError) as caught:
        unpack_answers(data, NAMES)
    assert len(str(caught.value)) < 150
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("n_users", [0, 1, 2])
def test_answers_bring_no_publications(n_users):
    """Not even one that no entry refers to."""
    messages = {name: parcel(Finished(), PUBLISHED) for name in NAMES[:n_users]}
    data = pack(messages) if n_users else b"\1\0\0\0\1\0\0\0?\0\0\0\0"
    with pytest.raises(WireError, match="may bring no broadcasts; got 1"):
        unpack_answers(data, NAMES)


def test_a_parcel_is_put_together_when_it_is_read():
    """So that a broadcast which many share is in memory once."""
    questions = {name: parcel(Ask(NO_NAME), PUBLISHED) for name in NAMES}
    opened = unpack(pack(questions))
    assert dict(opened) == questions
    assert opened[NAMES[0]] is not opened[NAMES[0]]


def test_some_of_the_messages_are_packed_each_read_once():
    class Made(dict):
        read = ()

        def __getitem__(self, name):
            self.read = (*self.read, name)
            return super().__getitem__(name)

    made = Made(dict.fromkeys((*NAMES, "c"), ANSWER))
    assert list(unpack(pack(made, NAMES))) == list(NAMES)
    assert made.read == NAMES
