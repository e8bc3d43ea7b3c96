"""Everything this package raises on purpose, in one tree.

A message says what was required, what arrived, and how to fix it. The command line shows the
message alone, without a traceback, and exits with the class's `exit_code`.
"""

from typing import ClassVar


class FedMMFError(Exception):
    """Base of every error raised on purpose."""

    exit_code: ClassVar[int] = 1

    def __init__(self, *words: object, flags: str = "") -> None:
        super().__init__(*words)
        self.flags = flags  # the same remedy on the command line, which alone shows it


class FedMMFWarning(UserWarning):
    """Something works, and is probably not what was wanted. It is no error, and never raised."""


class SettingsError(FedMMFError):
    """A setting is unknown, out of range, or does not fit the others."""

    exit_code = 2


class UnknownNameError(SettingsError):
    """A data set, user or other name was asked for that does not exist."""


class DataError(FedMMFError):
    """Ratings or features are missing, malformed or contradictory."""


class DownloadError(FedMMFError):
    """A download failed or its checksum does not match."""


class NotFittedError(FedMMFError):
    """A model was used before `fit`."""


class DivergenceError(FedMMFError):
    """Training cannot go on: numbers are not finite, or a matrix cannot be factorized."""


class CheckpointError(FedMMFError):
    """A saved model or checkpoint cannot be read or does not belong to this run."""


class WireError(FedMMFError):
    """A message is malformed or arrived out of turn; the text names its sender.

    Attributes:
        blamed: the number of the party whose message was bad, where that is another party's.
    """

    blamed: int | None = None


class BroadcastError(WireError):
    """A broadcast breaks a rule of its solver, though all its numbers may be finite."""


class ExcludedError(WireError):
    """A sum failed, and whoever made it fail is out from now on: another try is worth it."""


class IdentityError(FedMMFError):
    """A key file, card or trust list cannot be read or written, or breaks a rule."""


class PassphraseError(IdentityError):
    """A key file needs a passphrase, has none, or was made with another one."""
