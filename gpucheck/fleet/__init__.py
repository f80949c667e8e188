"""Merge the reports of many hosts: one row per host, none dropped, and what only a comparison of hosts shows."""

from gpucheck.fleet.merge import merge
from gpucheck.fleet.read import read_file, read_reports, read_stream, report_files, rows_of

__all__ = ["merge", "read_file", "read_reports", "read_stream", "report_files", "rows_of"]
