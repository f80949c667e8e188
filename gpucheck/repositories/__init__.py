"""Package repositories as they are: read their indexes, verify signatures, and compare a plan with what they hold.

Reads indexes only and downloads no package. Works the same on an index that was saved before.
"""

from gpucheck.repositories.comparison import check_plans
from gpucheck.repositories.report import RepositoryReport

__all__ = ["RepositoryReport", "check_plans"]
