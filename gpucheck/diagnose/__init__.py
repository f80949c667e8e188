"""From what was observed to cause and remedy: pure functions, no GPU needed."""

from gpucheck.diagnose._nodes import ObservationProblem
from gpucheck.diagnose.combine import together
from gpucheck.diagnose.judge import diagnose
from gpucheck.diagnose.read import MAX_BYTES, read

__all__ = ["MAX_BYTES", "ObservationProblem", "diagnose", "read", "together"]
