"""Answers of the NVML library: none, an error, text that is no text, functions that are missing."""

import re

import pynvml

from gpucheck.simulator.faults import check_choice, fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.nvml.library import all_exports, base_name, called

OUTCOMES = {"sleeping": "hang", "uninterruptible": "hang-uninterruptible"}
ENTRY_POINTS = ("nvmlInit", "nvmlInitWithFlags")
FIELD = "NVML_FI_DEV_"
MOST_CODE = 0x7FFFFFFF
KINDS = ("latin1", "empty", "garbage")
CALLS = (
    *("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion"),
    *("nvmlDeviceGetBoardPartNumber", "nvmlDeviceGetInforomImageVersion"),
    *("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfoExt", "nvmlDeviceGetNvLinkRemotePciInfo"),
    *("nvmlSystemGetDriverVersion", "nvmlSystemGetDriverBranch", "nvmlSystemGetNVMLVersion"),
    "nvmlSystemGetProcessName",
)


@fault("an NVML call crashes the process that makes it")
def nvml_crash(machine: Machine, call: str = "nvmlDeviceGetName") -> None:
    called(call)
    machine.nvml[f"call.{call}"] = "crash"


@fault("an NVML call never returns")
def nvml_hang(machine: Machine, call: str = "nvmlDeviceGetName", state: str = "sleeping") -> None:
    """A wedged driver: one NVML call never returns.

    sleeping: SIGTERM ends it. uninterruptible: the kernel shows it as D, and only SIGKILL does.
    """
    called(call)
    check_choice("state", state, OUTCOMES)
    machine.nvml[f"call.{call}"] = OUTCOMES[state]


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
    called(call)
    if call == "nvmlErrorString":
        raise ValueError(f"call={call}: returns a text and no code, so it cannot fail with one")
    _refuse_gpu(call, gpu)
    return "nvmlInit" if call in ENTRY_POINTS else call


def _refuse_gpu(call: str, gpu: int | None) -> None:
    of_gpu = any(one.of_gpu for one in called(call))
    if gpu is not None and not of_gpu:
        raise ValueError(f"gpu={gpu}: {call} is a question about no GPU")


@fault("an NVML call or field value answers with a return code instead, of one GPU or of all")
def nvml_refuse(machine: Machine, call: str, code: int, gpu: int | None = None) -> None:
    """call: a function, or a field by its name or number. gpu: only the questions about that one."""
    if not 0 < code <= MOST_CODE:
        raise ValueError(f"code={code}: a return code of NVML is 1 to {MOST_CODE}; 0 is success")
    key = field_key(call) or _function_key(call, gpu)
    (machine if gpu is None else machine.gpu(gpu)).nvml[f"call.{key}"] = str(code)


# Of branches without a recorded library (495, 510, 515, 560 and later), what NVIDIA's Python bindings look up.
@fault("the NVML library exports only what an older driver branch had (340 to 550: recorded from real libraries)")
def nvml_release(machine: Machine, branch: int) -> None:
    """An NVML library of an older driver: it lacks the functions that came later. nvml/exports.txt lists them.

    branch: as in 535.261.03. The version that the library and the kernel module report stays the machine's own.
    """
    own = int(machine.profile.driver.version.partition(".")[0])
    oldest = min(one.first for one in all_exports())
    if not oldest <= branch < own:
        raise ValueError(f"branch={branch}: {oldest} to {own - 1}; profile {machine.profile.name} has {own}")
    if machine.driver.installed_version is None:
        raise ValueError("this machine's NVML library comes with a package that is not installed yet")
    machine.release = str(branch)


@fault("NVML takes this long to initialise each GPU")
def nvml_slow(machine: Machine, seconds: str = "3") -> None:
    """The first question about each GPU takes long: it is initialised then, and without persistence every time.

    Per GPU, in the call that hands out its handle; 0.5 is half a second.
    """
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", seconds) or float(seconds) == 0:
        raise ValueError(f"seconds={seconds}: more than 0, such as 3 or 0.5")
    machine.nvml["init.seconds"] = seconds


@fault("an NVML call answers a text that is not UTF-8, empty, or garbage, of one GPU or of all")
def nvml_text(machine: Machine, call: str, kind: str = "latin1", gpu: int | None = None) -> None:
    """An NVML call writes something that is no text, as drivers have done with the names of GPUs and processes.

    latin1: not UTF-8. empty: no letter. garbage: bytes that are no letters, up to the end of the buffer.
    """
    called(call)
    if base_name(call) not in CALLS:
        raise ValueError(f"call={call}: answers no text. These do: {', '.join(CALLS)}")
    check_choice("kind", kind, KINDS)
    _refuse_gpu(call, gpu)
    (machine if gpu is None else machine.gpu(gpu)).nvml[f"text.{call}"] = kind
