"""Find causes and fixes for observations. Pure functions; no GPU needed."""

from gpucheck.checks._healthy import Doubtful, doubtful
from gpucheck.diagnose.judge import diagnose

__all__ = ["Doubtful", "diagnose", "doubtful"]
