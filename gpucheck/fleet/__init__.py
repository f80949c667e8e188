"""Many hosts' reports as one: a row a host, nothing dropped."""

from gpucheck.fleet.merge import merge, read_reports

__all__ = ["merge", "read_reports"]
