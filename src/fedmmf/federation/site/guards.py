"""The guards of a site: a folder next to its state, which is never restored from a copy.

`counters.json` has what each party has answered. `evaluated.npz` has which test ratings the last
answer to `federation evaluate` covered (`evaluation`). `test-seed` draws the test part
(`store`). Users are named by keyed hashes whose key is in here too, so that somebody who is
erased leaves no name, and still cannot be asked twice.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from fedmmf.errors import CheckpointError
from fedmmf.federation.folder import private_folder
from fedmmf.party.guards import Guards
from fedmmf.storage.atomic import OWNER_ONLY, writing

SITE = "site"  # the name of a site that is one party; users' names are hashes
_VERSION = 2
_KEY_BYTES = 32
_NAME_BYTES = 16
_SEE = "docs/backups.md has the whole story"


class GuardStore:
    """Counters of all parties of a site, on disk; no number in them ever goes down.

    Args:
        folder: for them alone; made with the first counters.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._file = folder, folder / "counters.json"
        self._parties: dict[str, Guards] = {}
        self._texts: dict[str, str] = {}  # of the same, as the file has them
        self._key, self.n_evaluations = secrets.token_bytes(_KEY_BYTES), 0
        if self._file.exists():
            self._read()

    def _read(self) -> None:
        try:
            said = json.loads(self._file.read_bytes())
            if said["version"] != _VERSION:
                raise ValueError(f"its version is {said['version']!r}, not {_VERSION}")
            self._key, self.n_evaluations = bytes.fromhex(said["key"]), int(said["evaluations"])
            self._parties = {name: Guards.from_json(one) for name, one in said["parties"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{self._file} cannot be read: {error}. Without it nobody knows what this site "
                f"has answered. {_SEE}"
            ) from None
        self._texts = _texts_of(self._parties)

    @property
    def exists(self) -> bool:
        """Whether there are counters on disk."""
        return self._file.exists()

    def name_of(self, *texts: str) -> str:
        """Name something without telling what it is: a keyed hash."""
        keyed = hashlib.blake2b(key=self._key, digest_size=_NAME_BYTES)
        for text in texts:
            keyed.update(len(text.encode()).to_bytes(8, "little") + text.encode())
        return keyed.hexdigest()

    def of(self, name: str) -> Guards | None:
        """Return the counters of a party; None: there are none yet."""
        return self._parties.get(name)

    def spent_as(self, *, site: bool) -> Guards:
        """Return the highest budget spent by the site as one party, or by parties of one user.

        A charter may make a site one party and the next one each of its users, or the other way
        round. They are the same people, and have spent what was spent for them under either name.
        """
        others = (one for name, one in self._parties.items() if (name == SITE) == site)
        return reduce(Guards.raised, (one.of_budget for one in others), Guards())

    def raise_to(self, parties: Mapping[str, Guards]) -> None:
        """Raise the counters of parties; they are on disk when this returns."""
        old = {name: self._parties.get(name) for name in parties}
        new = {name: (old[name] or Guards()).raised(guards) for name, guards in parties.items()}
        if new != old:
            self._write(new, self.n_evaluations)

    def count_evaluation(self) -> None:
        """Count an answer to `federation evaluate`; it is on disk when this returns."""
        self._write({}, self.n_evaluations + 1)

    def _write(self, parties: Mapping[str, Guards], n_evaluations: int) -> None:
        """Write all counters, some of them raised.

        They are raised in memory only once they are on disk: after a write that failed, the same
        answer has to write them again before it leaves.
        """
        texts = self._texts | _texts_of(parties)
        head = {"version": _VERSION, "key": self._key.hex(), "evaluations": n_evaluations}
        lines = ",\n".join(f'"{name}": {text}' for name, text in sorted(texts.items()))
        text = f'{json.dumps(head)[:-1]}, "parties": {{\n{lines}\n}}}}\n'
        try:
            private_folder(self.folder)
            with writing(self._file, OWNER_ONLY) as partial:
                partial.write_text(text)
        except OSError as error:
            raise CheckpointError(
                f"{self._file} cannot be written: {error.strerror or error}. Make room and start "
                "the site again; nothing was answered that is not in it"
            ) from None
        self._parties |= parties
        self._texts, self.n_evaluations = texts, n_evaluations


def _texts_of(parties: Mapping[str, Guards]) -> dict[str, str]:
    """Counters of parties as the file has them."""
    return {name: json.dumps(one.as_json()) for name, one in parties.items()}


def missing(guards: Path, state: Path) -> CheckpointError:
    """Return the error of a state that was restored without its guards."""
    return CheckpointError(
        f"there is a state in {state}, and {guards} does not have what this site has answered "
        "before: it was restored, moved or copied without it. If that folder is still somewhere "
        "on this machine, put it back. If it is lost, nobody can know what was answered: begin "
        f"anew with neither folder, and count a new privacy budget on top of the old one. {_SEE}"
    )


def behind(state: Path, lead: str) -> CheckpointError:
    """Return the error of a state that was restored from an older copy."""
    return CheckpointError(
        f"the state in {state} is older than what this site has answered: {lead}. A site that went "
        "on from there would answer again, and spend its users' privacy budget twice. Move that "
        "folder away, keep the folder guards beside it, and start the site with --ratings: it "
        "sits out the training that is going on, takes the finished model, and has a part in the "
        f"next one. What was answered stays counted. {_SEE}"
    )
