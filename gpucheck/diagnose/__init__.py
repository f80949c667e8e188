"""Find causes and fixes for observations. Pure functions; no GPU needed."""

from gpucheck.diagnose.healthy import Doubtful, doubtful
from gpucheck.diagnose.judge import diagnose

__all__ = ["Doubtful", "diagnose", "doubtful"]
