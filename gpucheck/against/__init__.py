"""What a report is held against: what the site expects of its hosts, and what the host was in an earlier report.

Pure functions of reports: nothing here touches a machine.
"""

from gpucheck.against._baseline import compare, not_comparable
from gpucheck.against._expectations import MAX_BYTES, Expectations, read
from gpucheck.against._expected import judge

__all__ = ["MAX_BYTES", "Expectations", "compare", "judge", "not_comparable", "read"]
