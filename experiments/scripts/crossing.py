"""Print, as JSON, which files of fedmmf four calls of its API cross; `structure.py` runs it.

A call crosses a file when a Python function of that file begins to run during the call, in any
thread. Comprehensions and generators count as functions; the code of a module itself does not, and
every call is made once before it is traced, so imports are left out. Compiled kernels are no Python
functions; the functions that call them are. A package is a folder with such a file.

The calls use the defaults of `FedMMF` but for 4 factors and 3 rounds, on 60 synthetic users.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import fedmmf
from fedmmf import FedMMF, Settings
from fedmmf.audit.run import audit
from fedmmf.data.synthetic import synthetic

HOME = Path(fedmmf.__file__).parent
CHOSEN: dict[str, Any] = {"factors": 4, "rounds": 3, "seed": 0}


def crossed(call: Callable[[], Any]) -> list[str]:
    """Return the files of fedmmf in which a function began to run, sorted."""
    call()
    seen = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    inside = [Path(file) for file in seen if Path(file).is_relative_to(HOME)]
    return sorted(file.relative_to(HOME).as_posix() for file in inside)


def main() -> None:
    """Trace the four calls."""
    ratings, _ = synthetic(60, 90, 1800, seed=3).split(test=0.2, seed=0)
    fitted, user = FedMMF(**CHOSEN).fit(ratings), ratings.user_ids[0]
    calls = {
        "fit": lambda: FedMMF(**CHOSEN).fit(ratings),
        "fit(real=True)": lambda: FedMMF(**CHOSEN).fit(ratings, real=True),
        "recommend": lambda: fitted.recommend(user, 5),
        "audit": lambda: audit(ratings, Settings(**CHOSEN)),
    }
    print(json.dumps({name: crossed(call) for name, call in calls.items()}))


main()
