"""List the tests that no run has tried, by reason; fail if a reason is not one of those allowed.

A test that is skipped in one environment and tried in another has been tried. The arguments are
pytest's junit files, one for each environment.
"""

import ast
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Iterator

ALLOWED = re.compile(
    # What no command can install.
    r"\bcard\b|\bcuda\b|\bml-10m\b|no addresses of version 6"
    # What .ci/run tries to get, or a machine may hold; it goes on without.
    r"|needs chromium|needs axe-core|tcpdump is not installed|the published sets are not here"
    # A test of a contract that says nothing about some members.
    r"|got empty parameter set",
    re.IGNORECASE,
)


def cases(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each test's name with the reason why it was skipped, which is empty if it was not."""
    for file in files:
        for case in ElementTree.parse(file).iter("testcase"):  # noqa: S314 - pytest wrote it
            skipped = case.find("skipped")
            name = f"{case.get('classname')}.{case.get('name')}".strip(".")
            yield name, "" if skipped is None else reason(skipped)


def reason(skipped: ElementTree.Element) -> str:
    """Give the words that the test skipped itself with."""
    if skipped.get("message") != "collection skipped":
        return skipped.get("message", "")
    # A whole file: the text is a printed tuple of file, line and "Skipped: reason".
    return str(ast.literal_eval(skipped.text or "")[-1]).removeprefix("Skipped: ")


def untried(files: Iterable[str]) -> dict[str, set[str]]:
    """Group the tests that were skipped wherever they were met, by reason."""
    found = list(cases(files))
    tried = {name for name, why in found if not why}
    reasons = defaultdict(set)
    for name, why in found:
        # The name of a file that was skipped whole is where the names of its tests begin.
        if why and name not in tried and not any(one.startswith(f"{name}.") for one in tried):
            reasons[why].add(name)
    return reasons


def main(files: list[str]) -> int:
    """Print the list. Returns the exit code."""
    reasons = untried(files)
    refused = [why for why in reasons if not ALLOWED.search(why)]
    lines = [f"{len(names):6}  {why}" for why, names in sorted(reasons.items())]
    print("Skipped in every environment:", *(lines or ["  none"]), sep="\n")  # noqa: T201
    for why in refused:
        print(f"error: nothing tries {sorted(reasons[why])[0]}: {why}", file=sys.stderr)  # noqa: T201
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
