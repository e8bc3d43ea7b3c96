"""The report: one HTML file that needs nothing else, from results or from their JSON.

Names are imported when they are first used: whoever makes results needs no pages.
"""

from typing import TYPE_CHECKING

from fedmmf.registry import lazy_names

if TYPE_CHECKING:
    from fedmmf.reports.page import write_report
    from fedmmf.reports.reading import Run, read_run

__all__ = ["Run", "read_run", "write_report"]
__getattr__ = lazy_names(
    {"fedmmf.reports.page": ["write_report"], "fedmmf.reports.reading": ["Run", "read_run"]}
)
