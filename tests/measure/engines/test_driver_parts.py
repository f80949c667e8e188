"""The parts of the driver engine on a fake CUDA driver: peer access, the gate, errors in words, and the kernels."""

import ctypes
import platform
import subprocess
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from cuda.bindings import driver

from gpucheck.measure.engines.driver import calls as opening
from gpucheck.measure.engines.driver import engine as gates
from gpucheck.measure.engines.driver.calls import REASONS, Calls, CudaError, MissingCall, missing, not_opened
from gpucheck.measure.engines.driver.engine import Gate, Lane, SpinGate
from gpucheck.measure.engines.driver.gpu import PTX, Peers, imported
from gpucheck.measure.values import MIB, NotShared, NotTimed
from gpucheck.model import Confidential, NvmlReading
from tests.shared import END_S, sampled

MOST_PEERS = 8  # of a GPU without NVSwitch
ARCHITECTURES = ("60", "70", "75", "80", "86", "89", "90", "100", "103", "120", "121")


class Driver:
    """Calls on a machine of so many GPUs without NVSwitch. word: what all streams wait for."""

    names = SimpleNamespace(
        CU_MEMHOSTALLOC_PORTABLE=1,
        CU_MEMHOSTALLOC_DEVICEMAP=2,
        CUstreamWaitValue_flags=SimpleNamespace(CU_STREAM_WAIT_VALUE_GEQ=0),
    )

    def __init__(self, offered=lambda a, b: True, fails=None):
        self.offered, self.fails = offered, fails or {}
        self.mapped: dict[int, set[int]] = {}
        self.log: list[tuple] = []
        self.current = None
        self.word = ctypes.c_uint32(7)

    def gpu(self, number):
        return SimpleNamespace(device=number, context=number, use=lambda: setattr(self, "current", number))

    def __call__(self, name, *arguments):
        self.log.append((name, *arguments))
        if name in self.fails:
            raise CudaError(name, self.fails[name])
        return getattr(self, name, lambda *a: None)(*arguments)

    def cuDeviceCanAccessPeer(self, a, b):
        return int(self.offered(a, b))

    def cuCtxEnablePeerAccess(self, peer, flags):
        mapped = self.mapped.setdefault(self.current, set())
        if len(mapped) == MOST_PEERS:
            raise CudaError("cuCtxEnablePeerAccess", 711)
        mapped.add(peer)

    def cuCtxDisablePeerAccess(self, peer):
        self.mapped[self.current].remove(peer)

    def cuMemHostAlloc(self, size, flags):
        return ctypes.addressof(self.word)

    def cuMemHostGetDevicePointer(self, address, flags):
        return address

    def seconds(self, start, end):
        return 0.25


def peers(driver, count):
    return Peers(driver, [driver.gpu(number) for number in range(count)])


def test_peer_access_is_enabled_in_both_directions_and_for_nothing_else():
    driver = Driver()
    access = peers(driver, 4)
    access.only([(0, 1)])

    assert driver.mapped == {0: {1}, 1: {0}}
    access.only([(2, 1)])
    assert driver.mapped == {0: set(), 1: {2}, 2: {1}}
    access.only([])
    assert not any(driver.mapped.values())


def test_twelve_gpus_without_nvswitch_reach_every_pair_one_step_after_the_other():
    """A GPU maps eight peers: what one step enabled, the next one gives back before it enables its own."""
    driver = Driver()
    access = peers(driver, 12)
    for a in range(12):
        for b in range(a):
            access.only([(a, b)])
            assert access.enabled == {(a, b), (b, a)}


@pytest.mark.parametrize(("call", "code"), [("cuCtxEnablePeerAccess", 704), ("cuCtxDisablePeerAccess", 705)])
def test_access_that_is_as_wanted_already_is_no_error(call, code):
    driver = Driver()
    access = peers(driver, 2)
    if call == "cuCtxDisablePeerAccess":
        access.only([(0, 1)])
    driver.fails = {call: code}
    access.only([(0, 1)] if call == "cuCtxEnablePeerAccess" else [])

    assert access.enabled == ({(0, 1), (1, 0)} if call == "cuCtxEnablePeerAccess" else set())


def lane(driver, queue):
    return Lane(driver.gpu(0), SimpleNamespace(stream="stream", start="start", end="end"), queue)


def test_every_lane_waits_for_the_word_before_its_first_event():
    driver, seen = Driver(), []
    gate = Gate(driver)
    lanes = [lane(driver, lambda: seen.append(driver.word.value)) for _ in range(2)]

    assert gate.timed(lanes, [2, 3]) == (0.25, 0.25)
    assert seen == [0] * 5, "the word is shut while copies are queued"
    assert driver.word.value == 1
    order = [entry[0] for entry in driver.log if entry[0] in ("cuStreamWaitValue32", "cuEventRecord")]
    assert order == ["cuStreamWaitValue32", "cuEventRecord", "cuEventRecord"] * 2


def test_a_queue_that_is_full_opens_the_gate_by_the_timer_and_gives_no_number():
    """The driver blocks the caller until there is room, and there is none before the gate opens."""
    driver = Driver()
    waited = threading.Event()

    def blocked():
        while driver.word.value == 0:
            waited.wait(0.005)

    with pytest.raises(NotTimed, match="the launch queue did not take 1 copy immediately"):
        Gate(driver, patience_s=0.05).timed([lane(driver, blocked)], [1])


def test_a_process_without_a_processor_is_given_time_to_queue(monkeypatch):
    """Its clock stands still: the gate stays shut until everything is queued."""
    driver, stopped = Driver(), time.monotonic()
    monkeypatch.setattr(gates, "waited_s", lambda pid: time.monotonic() - stopped)

    assert Gate(driver, patience_s=0.02).timed([lane(driver, lambda: time.sleep(0.1))], [1]) == (0.25,)


def test_a_kernel_that_ended_before_everything_was_queued_gives_no_number():
    driver, launched = Driver(), []

    class Spinning:
        def use(self): ...

        def new_line(self):
            return SimpleNamespace(stream="gate", end="opened")

        def launch(self, kernel, threads, spin_ns, line):
            launched.append((kernel, spin_ns, line.stream))

    slow = lane(driver, lambda: time.sleep(0.11))._replace(gpu=Spinning())

    with pytest.raises(NotTimed, match="the launch queue did not take 1 copy immediately"):
        SpinGate(driver).timed([slow], [1])
    assert [kernel for kernel, *_ in launched] == ["spin", "spin"]
    assert launched[1][1] == 100_000_000, "the second waits for longer, and never for more than 0.1 s"
    assert SpinGate(driver).timed([slow._replace(queue=lambda: None)], [1]) == (0.25,)


def test_an_error_while_queueing_opens_the_gate():
    driver = Driver()

    def refused():
        raise CudaError("cuMemcpyPeerAsync", 217)

    with pytest.raises(CudaError, match="217"):
        Gate(driver).timed([lane(driver, refused)], [1])
    assert driver.word.value == 1


@pytest.mark.parametrize("code", REASONS)
def test_every_reason_says_what_is_wrong_and_what_to_do(code):
    error = not_opened(CudaError("cuDevicePrimaryCtxRetain", code), "GPU 0 (0000:1b:00.0)")

    assert str(error).startswith("GPU 0 (0000:1b:00.0): ")
    assert f"CUDA error {code}" in str(error)
    assert "cuDevicePrimaryCtxRetain" in str(error)
    assert error.finding.code == REASONS[code]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (Confidential(enabled=True, ready=False), "measure.gpus-not-attested"),
        (Confidential(enabled=True, ready=True), "measure.cuda-fabric-not-ready"),
        (Confidential(enabled=True, ready=None), "measure.cuda-fabric-not-ready"),
        (Confidential(enabled=False, ready=None), "measure.cuda-fabric-not-ready"),
        (None, "measure.cuda-fabric-not-ready"),
    ],
)
def test_not_ready_is_the_fabric_unless_confidential_computing_is_not_ready(state, code, monkeypatch):
    reading = NvmlReading(driver_version="580.1", nvml_version=None, cuda_version=None, gpus=(), confidential=state)
    monkeypatch.setattr(opening, "query_child", lambda *_, **__: reading)
    error = not_opened(CudaError("cuInit", 802), "")

    assert error.finding.code == code


@pytest.mark.parametrize("code", [100, 304, 999])
def test_a_missing_uvm_device_is_named_and_an_unknown_code_keeps_its_number(tmp_path, code):
    without = not_opened(CudaError("cuInit", code), "", uvm=tmp_path / "nvidia-uvm")
    (tmp_path / "nvidia-uvm").touch()
    error = not_opened(CudaError("cuInit", 999), "", uvm=tmp_path / "nvidia-uvm")

    assert without.finding.code == "measure.uvm-missing"
    assert "CUDA error 999" in str(error)
    assert error.finding.code == "measure.cuda-not-started"


def test_no_libcuda_and_an_old_one_are_told_apart():
    absent, old = missing(MissingCall("cuInit"), None, "13.5.0"), missing(MissingCall("cuNew"), "11.4", "13.5.0")

    assert absent.finding.code == "measure.libcuda-missing"
    assert old.finding.code == "measure.driver-call-missing"
    assert old.finding.values == {"call": "cuNew", "driver_cuda": "11.4", "bindings": "13.5.0"}


def test_events_of_a_driver_without_the_newer_call_are_read_by_the_older_one(monkeypatch):
    """cuda-bindings 13 asks for the version of CUDA 12.8, which drivers before 570 do not have."""

    def old(target, start, end):
        ctypes.cast(target, ctypes.POINTER(ctypes.c_float))[0] = end - start
        return 0

    def not_found(start, end):
        raise RuntimeError("function cuEventElapsedTime is not found")

    calls = Calls()
    calls.names = SimpleNamespace(cuEventElapsedTime=not_found)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(cuEventElapsedTime=old))
    old.argtypes = None

    assert (calls.seconds(2, 5), calls.seconds(1, 2)) == (3e-3, 1e-3)


def test_a_call_returns_what_comes_beside_the_status():
    calls = Calls()
    calls.names = SimpleNamespace(one=lambda: (0, 5), two=lambda: (0, 1, 2), none=lambda: (0,), bad=lambda: (2, None))

    assert (calls("one"), calls("two"), calls("none")) == (5, [1, 2], None)
    with pytest.raises(CudaError, match=r"CUDA error 2 \(cudaErrorMemoryAllocation\) from bad"):
        calls("bad")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheel with ptxas is of x86-64")
@pytest.mark.parametrize("architecture", sampled(ARCHITECTURES, (0, 6, 9)))
def test_ptxas_assembles_the_kernels_without_a_warning(tmp_path, architecture):
    """Form only: no GPU is there to run them."""
    spec = find_spec("nvidia.cuda_nvcc")
    assert spec is not None, "ptxas is in nvidia-cuda-nvcc-cu12, which pip install -e '.[dev]' installs"
    folder = Path(next(iter(spec.submodule_search_locations or ())))
    done = subprocess.run(
        [folder / "bin/ptxas", f"-arch=sm_{architecture}", "-o", tmp_path / "out.cubin", PTX],
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


RELEASED_BY = {
    "cuMemCreate": ("cuMemRelease", 1),
    "cuMemImportFromShareableHandle": ("cuMemRelease", 2),
    "cuMemAddressReserve": ("cuMemAddressFree", 4096),
    "cuMemMap": ("cuMemUnmap", 4096),
}
ANSWERS = {"cuMemGetAllocationGranularity": MIB, "cuMemExportToShareableHandle": driver.CUmemFabricHandle()}


class Sharing:
    """The calls of fabric memory, of which one may fail. left: what was made and not released."""

    def __init__(self, fails, code):
        self.names, self.fails, self.code = driver, fails, code
        self.left: list[tuple] = []

    def __call__(self, name, *arguments):
        if name == self.fails:
            raise CudaError(name, self.code)
        if name in RELEASED_BY:
            self.left.append(RELEASED_BY[name])
            return RELEASED_BY[name][1]
        if name in ("cuMemRelease", "cuMemAddressFree", "cuMemUnmap"):
            assert self.left.pop() == (name, arguments[0])
        return ANSWERS.get(name)


@pytest.mark.parametrize("fails", [*RELEASED_BY, "cuMemExportToShareableHandle", "cuMemSetAccess", "cuMemcpyAsync"])
@pytest.mark.parametrize(("code", "error"), [(800, NotShared), (2, CudaError), (1, CudaError)])
def test_shared_memory_is_released_whatever_fails(fails, code, error):
    """A rejected call is a driver that shares no memory; too little memory and a call that is wrong are not."""
    calls, gpus = Sharing(fails, code), [SimpleNamespace(device=number) for number in (0, 1)]

    def copy():
        with imported(calls, *gpus, 5):
            assert len(calls.left) == len(RELEASED_BY)
            calls("cuMemcpyAsync")

    with pytest.raises(CudaError if fails == "cuMemcpyAsync" else error):
        copy()
    assert calls.left == []
