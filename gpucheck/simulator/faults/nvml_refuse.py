"""One NVML call, or one field value, answers with a return code instead."""

import pynvml

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.nvml.library import called

ENTRY_POINTS = ("nvmlInit", "nvmlInitWithFlags")
FIELD = "NVML_FI_DEV_"
MOST_CODE = 0x7FFFFFFF


def _apply(machine: Machine, call: str, code: int, gpu: int | None = None) -> None:
    """call: a function, or a field by its name or number. gpu: only the questions about that one."""
    if not 0 < code <= MOST_CODE:
        raise ValueError(f"code={code}: a return code of NVML is 1 to {MOST_CODE}; 0 is success")
    key = field_key(call) or _function_key(call, gpu)
    if gpu is None:
        machine.nvml[f"call.{key}"] = str(code)
    else:
        machine.gpu(gpu).nvml[f"call.{key}"] = str(code)


def field_key(call: str) -> str | None:
    """``field.94`` for 94 and for NVML_FI_DEV_PCIE_REPLAY_COUNTER. Raises ValueError for a field that NVML has not."""
    if call.isascii() and call.isdigit():
        return f"field.{int(call)}"
    if not call.startswith(FIELD):
        return None
    number: int | None = getattr(pynvml, call, None)
    if number is None:
        raise ValueError(f"call={call}: nvidia-ml-py knows no such field. Give its number instead.")
    return f"field.{number}"


def _function_key(call: str, gpu: int | None) -> str:
    found = called(call)
    if call == "nvmlErrorString":
        raise ValueError(f"call={call}: returns a text and no code, so it cannot fail with one")
    if gpu is not None and not any(one.of_gpu for one in found):
        raise ValueError(f"gpu={gpu}: {call} is a question about no GPU")
    return "nvmlInit" if call in ENTRY_POINTS else call


FAULT = Fault(
    "nvml-refuse", "an NVML call or field value answers with a return code instead, of one GPU or of all", _apply
)
