"""What a report is held against: what the site expects of its hosts, and what the host was in an earlier report.

Pure functions of reports: nothing here touches a machine.
"""

from gpucheck.comparison import baseline, evaluation
from gpucheck.comparison.baseline import compare, not_comparable
from gpucheck.comparison.counters import NAME as BASELINE
from gpucheck.comparison.evaluation import judge
from gpucheck.comparison.expectations import MAX_BYTES, Expectations, read
from gpucheck.comparison.findings import NAME as EXPECTATIONS

ABOUT = {EXPECTATIONS: evaluation.__doc__ or "", BASELINE: baseline.__doc__ or ""}
"""What findings are named, and how they are decided, in the form of a check's docstring."""
OPTION = {EXPECTATIONS: "--expect FILE", BASELINE: "--baseline REPORT"}

__all__ = ["ABOUT", "MAX_BYTES", "OPTION", "Expectations", "compare", "judge", "not_comparable", "read"]
