"""Find causes and fixes for observations. Pure functions; no GPU needed."""

from gpucheck.diagnose.combine import together
from gpucheck.diagnose.healthy import Doubtful, doubtful
from gpucheck.diagnose.judge import diagnose
from gpucheck.diagnose.read import MAX_BYTES, read
from gpucheck.knowledge.strict import InputProblem as ObservationProblem

__all__ = ["MAX_BYTES", "Doubtful", "ObservationProblem", "diagnose", "doubtful", "read", "together"]
