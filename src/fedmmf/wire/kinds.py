"""The number of every kind of message, in one place. Other packages take numbers from 128 on."""

from enum import IntEnum


class Kind(IntEnum):
    """Which message a frame holds."""

    INVITATION = 1
    JOINED = 2
    REFUSED = 3
    WANTED = 4
    SURVEY = 5
    ROUND = 6
    ASK = 7
    UPDATE = 8
    FINISH = 9
    FINISHED = 10
    COLLECT = 11
    COLLECTED = 12
    SECURE_SETUP = 13
    SECURE_AGREED = 14
    SECURE_TRIP = 15
    HOMOMORPHIC_KEY = 16
    SEALED = 18
    CIPHERTEXTS = 19
    LAYOUT = 20
    ADOPT = 21
    ADOPTED = 22
    NEWCOMERS = 23
