"""From a set back to the wish that names it and nothing else."""

from gpucheck.stack.rules.options import NEWEST
from gpucheck.stack.types import StackSet


def exact_wish(stack: StackSet) -> dict[str, str]:
    """The wish values that name exactly this set."""
    revision = f"-{stack.driver.revision}" if stack.driver.revision else ""
    return {
        "driver": f"{stack.driver.version}{revision}",
        "kernel_module": stack.driver.kernel_module,
        "cuda": stack.cuda or "none",
        "cudnn": stack.cudnn or "none",
        "nccl": stack.nccl or "none",
        "container_toolkit": stack.container_toolkit or "none",
        "dcgm": stack.dcgm or "none",
        "gdrcopy": "auto" if stack.gdrcopy == NEWEST else stack.gdrcopy or "none",
        "torch": f"{stack.torch.version}+{stack.torch.build}" if stack.torch else "none",
        "tensorflow": stack.tensorflow.version if stack.tensorflow else "none",
        "source": stack.source or "auto",
        # Chosen before, so its place in the order of preference no longer matters.
        "end_of_life_os": "allow",
    }
