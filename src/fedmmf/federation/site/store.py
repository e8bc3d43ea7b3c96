"""A site's private files: ratings, masks, p_u, and the state of each party.

Parties are kept in files of a bundle's size, and written before their answers leave, so that a site
that is killed at any moment has never said more than it remembers. What must survive a state that
is restored from a copy is beside it (`guards`).
"""

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import CheckpointError
from fedmmf.federation.folder import private_folder
from fedmmf.federation.limits import PARTIES_PER_BUNDLE
from fedmmf.federation.store import RunStore
from fedmmf.identity.files import OWNER_ONLY, create, read
from fedmmf.party import Party
from fedmmf.solvers.contract import Broadcast, part_of
from fedmmf.storage import checkpoints
from fedmmf.storage.atomic import remove_leftovers

_SEED_BYTES = 16


class SiteStore:
    """Files in a site's own folder.

    Args:
        folder: for this site's owner alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.guards_folder = folder.with_name("guards")
        self.ratings_print = ""  # fingerprint of the parties' ratings

    @property
    def folder(self) -> Path:
        """Folder of this site's files."""
        return self._folder

    @property
    def has_answered(self) -> bool:
        """Whether there are files that only a site has that took part in a training."""
        return bool(self._party_files) or bool(self.model)

    @property
    def has_started(self) -> bool:
        """Whether a site was started here before, which writes its guards and then its ratings."""
        return self.has_answered or self.holdings.exists()

    @property
    def _party_files(self) -> list[Path]:
        return sorted(self._folder.glob("parties-*.npz"))

    def forget_parties(self) -> None:
        """Delete the parties' states, which have p_u of users who may have been removed."""
        for path in self._party_files:
            path.unlink()

    def clean_up(self) -> None:
        """Delete what a process that was killed left half written."""
        for folder in (self._folder, self.guards_folder):
            remove_leftovers(folder)

    @property
    def holdings(self) -> Path:
        """Path of the file with the site's ratings."""
        return self._folder / "holdings.npz"

    @property
    def seed(self) -> int:
        """Seed of this site's masks; secret, and the same at every start."""
        path = self._folder / "seed"
        if not path.exists():
            create(path, secrets.token_bytes(_SEED_BYTES), OWNER_ONLY)
        return _seed_in(path)

    @property
    def test_seed(self) -> int:
        """Seed that test parts are drawn with: the seed of this site's first state.

        A site that lost its state takes a model that was trained on its ratings all the same: with
        another seed, most of its test part would be of these.
        """
        path = self._test_seed_file
        return _seed_in(path) if path.exists() else self.seed

    def keep_test_seed(self) -> None:
        """Save the seed of test parts where it outlasts the state."""
        if not self._test_seed_file.exists():
            private_folder(self.guards_folder)
            seed = self.seed.to_bytes(_SEED_BYTES, "little")
            create(self._test_seed_file, seed, OWNER_ONLY)

    @property
    def _test_seed_file(self) -> Path:
        return self.guards_folder / "test-seed"

    # Parties in the middle of a run

    def save(self, parties: Mapping[str, Party], changed: Iterable[str]) -> None:
        """Save the parties that have answered something, with all others in the same file."""
        names = sorted(parties)
        at = {name: number // PARTIES_PER_BUNDLE for number, name in enumerate(names)}
        for place in {at[name] for name in changed}:
            start = place * PARTIES_PER_BUNDLE
            group = names[start : start + PARTIES_PER_BUNDLE]
            states = {name: parties[name].state() for name in group if parties[name].invitation}
            path = self._folder / f"parties-{place:05}.npz"
            meta = {"kind": "parties", "ratings": self.ratings_print}
            checkpoints.save(path, _stacked(states), meta)

    def restore(self, parties: Mapping[str, Party]) -> list[str]:
        """Restore the parties' states; return the names of those parties."""
        restored: list[str] = []
        for path in self._party_files:
            arrays, meta = checkpoints.load(path, "parties")
            states = _taken_apart(arrays)
            if meta.get("ratings") != self.ratings_print or not states.keys() <= parties.keys():
                raise CheckpointError(
                    "the ratings are not those that training began with, and it is going on. Start "
                    "the site with those, or without --ratings; new ones can come after its end. "
                    "Users can be taken out at any time: give the same ratings without theirs"
                )
            for name, state in states.items():
                parties[name].restore(state)
                restored.append(name)
        return restored

    # After training

    def save_result(
        self, broadcast: Broadcast, about: Mapping[str, Any], users: Mapping[str, Array]
    ) -> None:
        """Save the final factors, their description, and the users' results."""
        arrays = {"parameters": broadcast.parameters, "item_rows": broadcast.item_rows, **users}
        meta = {"kind": "result", "rank": broadcast.rank, **about}
        checkpoints.save(self._folder / "result.npz", arrays, meta)

    def result(self) -> tuple[Broadcast, dict[str, Any], dict[str, Array]] | None:
        """What `save_result` wrote; None: training is not finished."""
        path = self._folder / "result.npz"
        if not path.exists():
            return None
        arrays, meta = checkpoints.load(path, "result")
        broadcast = Broadcast(int(meta["rank"]), arrays.pop("parameters"), arrays.pop("item_rows"))
        return broadcast, meta, arrays

    def save_model(self, parcel: bytes) -> None:
        """Save the model as it was received."""
        RunStore(self._folder, {}).save_model(parcel)

    @property
    def model(self) -> bytes:
        """The model as it was received; empty: there is none yet."""
        return RunStore(self._folder, {}).model


def _seed_in(path: Path) -> int:
    return int.from_bytes(read(path, _SEED_BYTES, secret=True), "little")


def _stacked(states: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Stack the states of parties into few arrays; parties with equal shapes share one."""
    like: dict[tuple[object, ...], list[str]] = {}
    for name, state in states.items():
        shape = tuple((key, state[key].shape, state[key].dtype.str) for key in sorted(state))
        like.setdefault(shape, []).append(name)
    arrays: dict[str, Array] = {}
    for number, names in enumerate(like.values()):
        arrays[f"{number}|names"] = np.array(names)
        for key in states[names[0]]:
            arrays[f"{number}|{key}"] = np.stack([states[name][key] for name in names])
    return arrays


def _taken_apart(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Split stacked arrays into the parties' states; the inverse of `_stacked`."""
    states = {}
    for number in sorted({key.partition("|")[0] for key in arrays}):
        part = part_of(arrays, f"{number}|")
        names = part.pop("names")
        for row, name in enumerate(names):
            states[str(name)] = {key: value[row] for key, value in part.items()}
    return states


def rows_by_user(parts: Iterable[Array]) -> Array:
    """Stack the rows of all parties' users."""
    return np.concatenate(list(parts))
