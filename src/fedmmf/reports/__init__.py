"""The report: one HTML file that needs nothing else, from the JSON that commands print."""

from fedmmf.reports.page import write_report
from fedmmf.reports.reading import read_run

__all__ = ["read_run", "write_report"]
