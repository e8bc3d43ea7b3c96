"""Attacks that are tried one by one: each is told of, and kept as soon as it is done.

An audit that ends early goes on from what it kept: masks are fitted again, which takes seconds,
and no attack is tried twice.
"""

from collections.abc import Callable
from typing import Any

from fedmmf.arrays import Array
from fedmmf.attacks import AttackResult
from fedmmf.data import Ratings
from fedmmf.errors import CheckpointError
from fedmmf.progress import Report, quiet
from fedmmf.settings import Settings
from fedmmf.settings.groups import Scope, marked
from fedmmf.storage import checkpoints
from fedmmf.storage.checkpoints import Checkpoint

KIND = "audit"
_TEXTS = ("name", "knows", "outputs", "measure", "seed")
_ARRAYS = ("users", "success", "baseline")


class Trials:
    """The attacks of one audit.

    Args:
        total: number of steps, all attacks among them.
        progress: called at every step.
        kept: where results are kept; None: nowhere.
    """

    def __init__(
        self, total: int, progress: Report = quiet, kept: "KeptResults | None" = None
    ) -> None:
        self._begun, self._total, self._progress = 0, total, progress
        self._kept = kept

    def tell(self, what: str) -> None:
        """Report that a step begins, and so that all before it are done."""
        self._progress(what, self._begun, self._total)
        self._begun += 1

    def once(self, name: str, target: str, run: Callable[[], AttackResult]) -> AttackResult:
        """Try an attack on a target, unless its result was kept."""
        self.tell(f"attack {name} on {target}")
        if self._kept is None:
            return run()
        key = f"{name} on {target}"
        if key not in self._kept.results:
            self._kept.add(key, run())
        return self._kept.results[key]


class KeptResults:
    """Results of the attacks that are done, in a checkpoint.

    Args:
        kept: the checkpoint; results in its file are taken over.
        ratings: that are audited.
        settings: of the audited run.
        sample: how many users are attacked at most.

    Raises:
        CheckpointError: the file is of another audit, or damaged.
    """

    def __init__(self, kept: Checkpoint, ratings: Ratings, settings: Settings, sample: int) -> None:
        self._checkpoint, self.results = kept, dict[str, AttackResult]()
        chosen = settings.to_dict().items()
        only_where = marked(Scope.ONLY_WHERE)
        self._about = {
            "kind": KIND,
            "settings": {name: value for name, value in chosen if name not in only_where},
            "ratings": ratings.fingerprint,
            "sample": sample,
        }
        if kept.path is not None and kept.path.exists():
            self._take_over()

    def _take_over(self) -> None:
        path = self._checkpoint.path
        if path is None:
            return
        arrays, meta = checkpoints.load(path, KIND)
        texts = meta.pop("results", {})
        if meta != self._about:
            raise CheckpointError(
                f"{path} belongs to an audit with other settings or ratings; delete it or name "
                "another file"
            )
        try:
            self.results = {key: _result(key, about, arrays) for key, about in texts.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path} must hold results of attacks; it is damaged ({error}). Delete it, and the "
                "audit begins anew"
            ) from None

    def add(self, key: str, result: AttackResult) -> None:
        """Keep a result, in the file too where there is one."""
        self.results[key] = result
        arrays = {
            f"{name}/{key}": getattr(one, name)
            for key, one in self.results.items()
            for name in _ARRAYS
        }
        texts = {
            key: {name: getattr(one, name) for name in _TEXTS} for key, one in self.results.items()
        }
        self._checkpoint.hold(arrays, {**self._about, "results": texts}, f"attack {key}")
        if self._checkpoint.path is not None:
            self._checkpoint.write()

    def finish(self) -> None:
        """Say that all attacks are done: what follows may fail without losing them."""
        self._checkpoint.is_finished = True


def _result(key: str, about: dict[str, Any], arrays: dict[str, Array]) -> AttackResult:
    """Read one result; its arrays have to fit together."""
    found = {name: arrays[f"{name}/{key}"] for name in _ARRAYS}
    shapes = {array.shape for array in found.values()}
    if len(shapes) != 1 or any(array.dtype.kind not in "iuf" for array in found.values()):
        raise ValueError(f"the arrays of {key!r} do not fit together")
    texts = {name: about[name] for name in _TEXTS}
    return AttackResult(**texts, **found)  # type: ignore[arg-type]
