"""Compare a report with the site's expectations, or with an earlier report of the same host.

Pure functions of reports: no access to the host.
"""

from gpucheck.against import _baseline, _expected
from gpucheck.against._baseline import compare, not_comparable
from gpucheck.against._counters import NAME as BASELINE
from gpucheck.against._expectations import MAX_BYTES, Expectations, read
from gpucheck.against._expected import judge
from gpucheck.against._stated import NAME as EXPECTATIONS

ABOUT = {EXPECTATIONS: _expected.__doc__ or "", BASELINE: _baseline.__doc__ or ""}
"""What findings are named, and how they are decided, in the form of a check's docstring."""
OPTION = {EXPECTATIONS: "--expect FILE", BASELINE: "--baseline REPORT"}

__all__ = ["ABOUT", "MAX_BYTES", "OPTION", "Expectations", "compare", "judge", "not_comparable", "read"]
