"""Every fault has a name and a summary; what each does is held by the fault matrix."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpucheck import simulator
from gpucheck.simulator.faults import texts, xid_line
from gpucheck.simulator.faults.nvml import CALLS
from gpucheck.simulator.machine import UPTIME_S
from gpucheck.simulator.nvml.library import all_exports, exports
from tests.shared import END_S, sampled
from tests.simulator.helpers import DRIVER, code_of, handle, library_of, python, write


def test_every_fault_has_a_name_of_its_own_and_a_summary():
    names = [fault.name for fault in simulator.all_faults()]

    assert len(names) == len(set(names)) > 70
    assert all(fault.summary for fault in simulator.all_faults())


def test_rejected_fault_leaves_no_machine_behind(activate, monkeypatch, tmp_path):
    """A second try must fail as the first did, not find a half-made directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        with pytest.raises(ValueError, match="width is missing"):
            activate("p100-pcie-x2", ["pcie-width:gpu=0"])

    assert list((tmp_path / "gpucheck/machines").iterdir()) == []


def test_age_and_count_place_the_lines_in_the_log(tmp_path):
    """The log is in order of time, the newest line last, as many seconds before now as it was said."""
    folder = write(tmp_path, faults=("xid:gpu=0,code=79,age=5", "xid:gpu=1,code=31,age=100,count=3"))
    log = (folder / "root/dev/kmsg").read_text().splitlines()
    heads = [line.partition(";")[0].split(",") for line in log]

    assert [sum("Xid" in line and f": {code}," in line for line in log) for code in (79, 31)] == [1, 3]
    assert "Xid (PCI:0000:04:00): 79," in log[-1]
    assert int(heads[-1][2]) == (UPTIME_S - 5) * 10**6
    assert [int(head[1]) for head in heads] == list(range(len(heads)))
    assert [int(head[2]) for head in heads] == sorted(int(head[2]) for head in heads)


def test_every_xid_has_a_line_in_the_drivers_form():
    for code in texts().xid:
        line = xid_line("0000:19:00.0", code)

        assert re.fullmatch(rf"NVRM: Xid \(PCI:0000:19:00\): {code}, \S.*", line)
        assert "{" not in line


NO_PERMISSION = 4


# ---- nvml-refuse ----


@pytest.fixture
def every_call(tmp_path, cache):
    """The library with NVML started, its machine, a code of its own for each function, and the handles of both GPUs."""
    names = [one.name for one in exports(DRIVER) if not one.name.startswith(("nvmlInit", "nvmlErrorString"))]
    codes = {name: 1000 + place for place, name in enumerate(names)}
    machine = tmp_path / "machine"
    with library_of(machine, cache) as library:
        assert library.nvmlInit_v2() == 0
        yield library, machine, codes, [handle(library, index) for index in range(2)]
        write(machine)
        assert library.nvmlShutdown() == 0


def test_every_function_refuses_with_the_code_that_it_is_given(every_call):
    library, machine, codes, gpus = every_call
    write(machine, faults=[f"nvml-refuse:call={name},code={code}" for name, code in codes.items()])

    assert {name: getattr(library, name)(gpus[0], None, None, None, None) for name in codes} == codes


def test_every_question_about_a_gpu_refuses_for_that_gpu_alone(every_call):
    """But those that look a GPU up by what it is called: they have no handle yet."""
    library, machine, codes, gpus = every_call
    of_gpu = {one.name for one in all_exports() if one.of_gpu and "GetHandleBy" not in one.name}
    chosen = {name: code for name, code in codes.items() if name in of_gpu}
    assert len(chosen) > 200
    write(machine, faults=[f"nvml-refuse:call={name},code={code},gpu=1" for name, code in chosen.items()])

    answers = [{name: getattr(library, name)(gpu, None, None, None, None) for name in chosen} for gpu in gpus]
    assert answers[1] == chosen
    assert not [name for name, code in answers[0].items() if code >= min(chosen.values())]


def test_a_name_without_its_version_means_every_version(nvml):
    gpu, _ = nvml("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetMemoryInfo,code=4")

    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, gpu) == NO_PERMISSION
    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, gpu, pynvml.nvmlMemory_v2) == NO_PERMISSION


# ---- nvml-slow ----


def test_the_first_handle_of_each_gpu_takes_long(activate):
    """Not the second of the same GPU, and the first again after NVML was shut down."""
    activate("p100-pcie-x2", ["nvml-slow:seconds=0.2"])
    for _ in range(2):
        pynvml.nvmlInit()
        took = []
        for index in (0, 1) * 4:
            clock = time.monotonic()
            pynvml.nvmlDeviceGetHandleByIndex(index)
            took.append(time.monotonic() - clock)
        pynvml.nvmlShutdown()
        assert min(took[:2]) >= 0.2
        assert max(min(took[2::2]), min(took[3::2])) < 0.2


def hanging(machine: Path, code: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "LD_LIBRARY_PATH": str(machine / "lib")}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def kernel_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(("how", "letter"), [("sleeping", "S"), ("uninterruptible", "D")])
def test_hang_is_where_it_was_ordered_and_looks_as_ordered(activate, how, letter):
    """Asleep, SIGTERM ends it; in the kernel, only SIGKILL, and nothing is left behind."""
    machine = activate("p100-pcie-x2", [f"nvml-hang:call=nvmlDeviceGetCount,state={how}"])
    process = hanging(machine, "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetCount()")
    deadline = time.monotonic() + END_S
    loaded = Path(f"/proc/{process.pid}/maps")
    while time.monotonic() < deadline and not (
        "libnvidia-ml" in loaded.read_text() and kernel_state(process.pid) == letter
    ):
        time.sleep(0.02)
    assert kernel_state(process.pid) == letter

    process.send_signal(signal.SIGTERM)
    if how == "uninterruptible":
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.kill()
    assert process.wait(END_S) == (-signal.SIGTERM if how == "sleeping" else -signal.SIGKILL)


def test_crash_is_an_abort_of_the_caller(activate):
    machine = activate("p100-pcie-x2", ["nvml-crash:call=nvmlDeviceGetUUID"])
    code = "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))"

    assert hanging(machine, code).wait(END_S) == -signal.SIGABRT


@pytest.mark.parametrize(("branch", "answer"), [(450, "NVMLLibraryMismatchError"), (550, "[]")])
def test_the_binding_meets_a_missing_function(activate, branch, answer):
    """In a process of its own, as the loader keeps the library that this one has."""
    machine = activate("p100-pcie-x2", [f"nvml-release:branch={branch}"])
    program = (
        "import pynvml; pynvml.nvmlInit(); gpu = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
        "try: print(pynvml.nvmlDeviceGetComputeRunningProcesses(gpu))\n"
        "except Exception as error: print(type(error).__name__)\n"
    )

    assert python(program, LD_LIBRARY_PATH=str(machine / "lib")) == answer


def test_a_library_that_a_package_will_bring_is_not_changed(tmp_path):
    with pytest.raises(ValueError, match="comes with a package that is not installed yet"):
        write(tmp_path, driver=None, faults=["nvml-release:branch=470"])


PID = 4711
# Where in a struct the text is and how much room it has there, and the struct's version.
IN_STRUCT = {
    "nvmlDeviceGetPciInfo_v3": (36, 32, 0),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": (36, 32, 0),
    "nvmlDeviceGetPciInfoExt": (32, 32, 0x01000040),
    "nvmlSystemGetDriverBranch": (4, 80, 0x01000054),
}
NEWEST = {"nvmlDeviceGetPciInfo": "_v3", "nvmlDeviceGetNvLinkRemotePciInfo": "_v2"}
WHICH = {"nvmlSystemGetProcessName": PID, "nvmlDeviceGetNvLinkRemotePciInfo": 0}


def room(call: str) -> int:
    return IN_STRUCT.get(call + NEWEST.get(call, ""), (0, 96, 0))[1]


def text_of(library: Any, call: str, gpu: Any) -> bytes:
    """What the function leaves in its buffer, as C sees it."""
    arguments: tuple[Any, ...] = () if call.startswith("nvmlSystem") else (gpu,)
    arguments += (WHICH[call],) if call in WHICH else ()
    function = call + NEWEST.get(call, "")
    place, length, version = IN_STRUCT.get(function, (0, 96, 0))
    out = ctypes.create_string_buffer(version.to_bytes(4, "little"), 96)
    assert getattr(library, function)(*arguments, out, length) == 0, call
    return out.raw[place : place + length].partition(b"\0")[0]


@pytest.mark.parametrize("call", sampled(CALLS, (0, 3)))
def test_a_text_is_not_utf8_empty_or_garbage(activate, call):
    """Of the GPU that is named, and of no other call."""
    healthy, texts = b"", {}
    of_gpu = not call.startswith("nvmlSystem")
    for kind in (None, "latin1", "empty", "garbage"):
        faults = [f"busy-gpu:gpu=0,pid={PID}"]
        faults += [f"nvml-text:call={call},kind={kind}" + (",gpu=0" if of_gpu else "")] if kind else []
        library = ctypes.CDLL(str(activate("a100-pcie-x2-nvlink", faults) / "lib/libnvidia-ml.so.1"))
        assert library.nvmlInit_v2() == 0
        gpus = [handle(library, index) for index in range(2)]
        shown = {name: text_of(library, name, gpus[0]) for name in CALLS}
        others = text_of(library, call, gpus[1])
        library.nvmlShutdown()
        if kind is None:
            healthy, texts = others, shown
            continue
        assert {name for name in CALLS if shown[name] != texts[name]} == {call}
        assert others == (healthy if of_gpu else shown[call])
        noise = (b"\xff\x01" * 48)[: room(call) - 1]
        assert shown[call] == {"latin1": b"\xe9" + texts[call][1:], "empty": b"", "garbage": noise}[kind]
        if kind != "empty":
            with pytest.raises(UnicodeDecodeError):
                shown[call].decode()
