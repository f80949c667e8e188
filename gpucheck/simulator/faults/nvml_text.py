"""An NVML call writes something that is no text, as drivers have done with the names of GPUs and processes."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.nvml.library import base_name, called

KINDS = ("latin1", "empty", "garbage")
CALLS = (
    *("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion"),
    *("nvmlDeviceGetBoardPartNumber", "nvmlDeviceGetInforomImageVersion"),
    *("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfoExt", "nvmlDeviceGetNvLinkRemotePciInfo"),
    *("nvmlSystemGetDriverVersion", "nvmlSystemGetDriverBranch", "nvmlSystemGetNVMLVersion"),
    "nvmlSystemGetProcessName",
)


def _apply(machine: Machine, call: str, kind: str = "latin1", gpu: int | None = None) -> None:
    """latin1: not UTF-8. empty: no letter. garbage: bytes that are no letters, up to the end of the buffer."""
    found = called(call)
    if base_name(call) not in CALLS:
        raise ValueError(f"call={call}: answers no text. These do: {', '.join(CALLS)}")
    check_choice("kind", kind, KINDS)
    if gpu is None:
        machine.nvml[f"text.{call}"] = kind
    elif any(one.of_gpu for one in found):
        machine.gpu(gpu).nvml[f"text.{call}"] = kind
    else:
        raise ValueError(f"gpu={gpu}: {call} is a question about no GPU")


FAULT = Fault(
    "nvml-text", "an NVML call answers a text that is not UTF-8, empty, or garbage, of one GPU or of all", _apply
)
