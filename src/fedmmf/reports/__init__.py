"""The report: one HTML file that needs nothing else, from results or from their JSON."""

from fedmmf.reports.page import write_report
from fedmmf.reports.reading import Run, read_run

__all__ = ["Run", "read_run", "write_report"]
