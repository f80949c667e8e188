"""Compare a report with the expectations of your site, or with an earlier report of the same host.

Pure functions of reports; no access to a host.
"""

from gpucheck.comparison import baseline, expectations
from gpucheck.comparison.baseline import compare, not_comparable
from gpucheck.comparison.expectations import MAX_BYTES, Expectations, evaluate, read
from gpucheck.comparison.expectations import NAME as EXPECTATIONS
from gpucheck.comparison.rates import NAME as BASELINE

ABOUT = {EXPECTATIONS: expectations.__doc__ or "", BASELINE: baseline.__doc__ or ""}
"""What findings are named, and how they are decided, in the form of a check's docstring."""
OPTION = {EXPECTATIONS: "--expect FILE", BASELINE: "--baseline REPORT"}

__all__ = ["ABOUT", "MAX_BYTES", "OPTION", "Expectations", "compare", "evaluate", "not_comparable", "read"]
