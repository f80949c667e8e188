"""Package repositories as they are: read their indexes, verify signatures, and compare a plan with what they hold.

Reads indexes only and downloads no package. Works the same on an index that was saved before.
"""

from gpucheck.repositories.comparison import check_plans

__all__ = ["check_plans"]
