"""What a site keeps on disk, for its owner alone: ratings, masks, p_u, and where each party is.

Parties are kept in files of some dozens each, and written before their answers leave, so that a
site that is killed at any moment has never said more than it remembers.
"""

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fedmmf import checkpoint
from fedmmf.arrays import Array
from fedmmf.errors import CheckpointError
from fedmmf.federation.store import RunStore
from fedmmf.identity.files import OWNER_ONLY, create, read
from fedmmf.party import Party
from fedmmf.solvers.contract import Public, part_of

_PER_FILE = 64
_SEED_BYTES = 16


class SiteStore:
    """Files in a site's own folder.

    Args:
        folder: for this site's owner alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def holdings(self) -> Path:
        """The ratings."""
        return self._folder / "holdings.npz"

    @property
    def seed(self) -> int:
        """Where this site's masks start from; secret, and the same in every start."""
        path = self._folder / "seed"
        if not path.exists():
            create(path, secrets.token_bytes(_SEED_BYTES), OWNER_ONLY)
        return int.from_bytes(read(path, _SEED_BYTES, secret=True), "little")

    # Parties in the middle of a run

    def save(self, parties: Mapping[str, Party], changed: Iterable[str]) -> None:
        """Keep parties that have answered something; whoever shares a file is written along."""
        names = sorted(parties)
        places = {names.index(name) // _PER_FILE for name in changed}
        for place in places:
            group = names[place * _PER_FILE : (place + 1) * _PER_FILE]
            states = {name: parties[name].state() for name in group if parties[name].invitation}
            arrays = {
                f"{name}|{key}": value
                for name, state in states.items()
                for key, value in state.items()
            }
            checkpoint.save(self._folder / f"parties-{place:05}.npz", arrays, {"kind": "parties"})

    def restore(self, parties: Mapping[str, Party]) -> int:
        """Bring parties back to where they were; return how many that were."""
        n_restored = 0
        for path in sorted(self._folder.glob("parties-*.npz")):
            arrays, _ = checkpoint.load(path, "parties")
            for name in {key.partition("|")[0] for key in arrays}:
                if name not in parties:
                    raise CheckpointError(
                        f"{path} has a party {name} that the ratings do not have. Start the site "
                        "with the ratings that training began with"
                    )
                parties[name].restore(part_of(arrays, f"{name}|"))
                n_restored += 1
        return n_restored

    # After training

    def save_result(self, public: Public, solver: str, users: Mapping[str, Array]) -> None:
        """Keep the final factors, and what was found for the users."""
        arrays = {"parameters": public.parameters, "item_rows": public.item_rows, **users}
        meta = {"kind": "result", "rank": public.rank, "solver": solver}
        checkpoint.save(self._folder / "result.npz", arrays, meta)

    def result(self) -> tuple[Public, str, dict[str, Array]] | None:
        """What `save_result` kept; None: training is not done."""
        path = self._folder / "result.npz"
        if not path.exists():
            return None
        arrays, meta = checkpoint.load(path, "result")
        public = Public(int(meta["rank"]), arrays.pop("parameters"), arrays.pop("item_rows"))
        return public, str(meta["solver"]), arrays

    def save_model(self, parcel: bytes) -> None:
        """Keep the model as it came."""
        RunStore(self._folder, {}).save_model(parcel)

    @property
    def model(self) -> bytes:
        """The model as it came; empty: not yet."""
        return RunStore(self._folder, {}).model


def rows_by_user(parts: Iterable[Array]) -> Array:
    """Rows of all parties' users, one below the other."""
    return np.concatenate(list(parts))
