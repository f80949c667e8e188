"""The torch engine's own logic on CPU tensors: only torch.cuda is a stand-in, so this proves no CUDA call."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from gpucheck.measure.engines.cuda.queue import Gate  # noqa: E402
from gpucheck.measure.engines.torch.engine import TorchEngine  # noqa: E402
from gpucheck.measure.engines.torch.lanes import Streams  # noqa: E402
from gpucheck.measure.engines.torch.runtime import error_code, ordinal  # noqa: E402
from gpucheck.measure.running.execute import execute  # noqa: E402
from gpucheck.measure.running.integrity import verify  # noqa: E402
from gpucheck.measure.values import HOST, Device, Flow, Region, Step  # noqa: E402

MIB = 1 << 20


class Stream:
    def __init__(self, device=None):
        self.device = device
        self.cuda_stream = 0

    def wait_event(self, event):
        pass


class Event:
    """Time stands still but for the copies: each record is a millisecond after the one before."""

    now = 0.0

    def __init__(self, enable_timing=False):
        self.at = 0.0

    def record(self, stream):
        Event.now += 1.0
        self.at = Event.now

    def query(self):
        return False

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at - self.at


class FakeTorch:
    """torch, with a cuda of two devices whose memory is the host's."""

    def __init__(self):
        self.cuda = SimpleNamespace(
            Stream=Stream,
            Event=Event,
            stream=lambda stream: nullcontext(),
            device=lambda device: nullcontext(),
            synchronize=lambda device: None,
            _sleep=lambda cycles: None,
        )

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def empty(*shape, pin_memory=False, **rest):
        return torch.empty(*shape, **rest)


@pytest.fixture
def engine():
    made = TorchEngine()
    made.torch = FakeTorch()
    made.cuda = [torch.device("cpu")] * 2
    made.began, made.streams = 0.0, Streams(made.torch)
    made.sources = [torch.zeros(MIB // 8, dtype=torch.int64) for _ in range(2)]
    made.destinations = [torch.zeros(MIB // 8, dtype=torch.int64) for _ in range(2)]
    made.pinned = [torch.zeros(MIB // 16, dtype=torch.int64) for _ in range(2)]
    made.gate = Gate(Stream())
    return made


@pytest.mark.parametrize("method", ["ce-write", "sm-write", "staged"])
def test_every_method_delivers_every_word(engine, method):
    """A kernel's row copy leaves gaps, which are filled before anything is compared."""
    step = Step(
        operation="integrity",
        purpose="integrity",
        flows=(Flow(src=0, dst=1, method=method), Flow(src=1, dst=HOST)),
        regions=(Region(offset=0, size=4096), Region(offset=4096, size=MIB // 2)),
        rounds=2,
        devices=2,
    )
    (check,) = verify(engine, step)

    assert (check.bad_rounds, check.bytes_verified) == (0, 2 * (4096 + MIB // 2))


def test_one_wrong_word_is_counted_and_placed(engine):
    region = Region(offset=0, size=MIB)
    engine.fill(0, 12345, region)
    engine.copy([Flow(src=0, dst=1)], region, 1)
    engine.destinations[1][1000] ^= 1
    seen = engine.compare(1, 12345, region)

    assert (seen.mismatches, seen.first, seen.last) == (1, 1000, 1000)
    assert engine.words(1, Region(offset=8000, size=8))[0] == seen.sample[0].got


def test_a_row_copy_is_timed_for_what_it_moved(engine):
    times = [engine.time([Flow(src=0, dst=1, method=method)], MIB, [4])[0] for method in ("ce-write", "sm-write")]

    assert times[1] == pytest.approx(times[0] * 128 / 127)


def test_host_copies_and_latency_have_numbers(engine):
    step = Step(operation="bandwidth", purpose="x", flows=(Flow(src=HOST, dst=0),), size=MIB // 2, samples=(3, 3))

    assert execute(engine, step).timings[0].samples == 3
    assert engine.latency(Flow(src=0, dst=1), 10) > 0


class OutOfMemory(RuntimeError):
    pass


def test_buffers_are_halved_until_they_fit_or_do_not_fit_at_all(engine, monkeypatch):
    free = 16 * MIB

    def zeros(words, **rest):
        if words * 8 > free:
            raise OutOfMemory
        return torch.zeros(words, **rest)

    engine.torch.cuda.OutOfMemoryError = OutOfMemory
    engine.torch.cuda.empty_cache = lambda: None
    monkeypatch.setattr(engine.torch, "zeros", zeros, raising=False)

    note = "buffers shrunk from 64 to 16 MiB: a GPU has too little free memory"
    assert engine._allocate(64 * MIB) == (16 * MIB, (note,))
    free = 0
    with pytest.raises(OutOfMemory):
        engine._allocate(64 * MIB)


def test_devices_are_found_by_bus_id_and_never_by_number():
    shown = [
        SimpleNamespace(pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0, uuid="b"),
        SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0, uuid="a"),
    ]
    cuda = SimpleNamespace(device_count=lambda: 2, get_device_properties=lambda ordinal: shown[ordinal])
    fake = SimpleNamespace(cuda=cuda)

    assert ordinal(fake, Device(index=0, name="x", bus_id="0000:1b:00.0"), None) == 1
    with pytest.raises(LookupError, match="CUDA_VISIBLE_DEVICES"):
        ordinal(fake, Device(index=2, name="x", bus_id="0000:5b:00.0"), None)


def test_a_build_that_tells_no_bus_id_is_helped_by_the_runtime():
    def by_bus_id(answer, bus_id):
        if bus_id != b"0000:1b:00.0":
            return 10  # cudaErrorInvalidDevice
        answer._obj.value = 1
        return 0

    cuda = SimpleNamespace(device_count=lambda: 2, get_device_properties=lambda number: SimpleNamespace(name="x"))
    fake, runtime = SimpleNamespace(cuda=cuda), SimpleNamespace(cudaDeviceGetByPCIBusId=by_bus_id)

    assert ordinal(fake, Device(index=0, name="x", bus_id="0000:1b:00.0"), runtime) == 1
    with pytest.raises(LookupError, match="not among the 2"):
        ordinal(fake, Device(index=2, name="x", bus_id="0000:5b:00.0"), runtime)


def test_sixteen_gpus_all_to_all_need_no_stream_twice():
    """torch has 32 streams a device and then hands out the same again; one more is the gate's."""
    made = []
    fake = SimpleNamespace(cuda=SimpleNamespace(Stream=lambda device: made.append(device) or Stream(device)))
    streams = Streams(fake)
    for _ in range(3):
        streams.begin()
        taken = [streams.take(end) for a in range(16) for b in range(16) if a != b for end in (a, b)]
        assert len(set(map(id, taken))) == len(taken)

    assert max(made.count(device) for device in range(16)) + 1 <= 32


PEER = "peer access is not supported between these two devices"


def runtime_texts(number):
    return {217: PEER, 719: "unspecified launch failure"}.get(number, "unrecognized error code").encode()


def with_code(code):
    """What torch 2.8 and later raise."""
    error = torch.AcceleratorError(f"CUDA error: {PEER}")
    error.error_code = code
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (with_code(217), 217),
        (RuntimeError(f"CUDA error: {PEER}\nCUDA kernel errors might be asynchronously reported"), 217),
        (RuntimeError("CUDA error: unspecified launch failure"), 719),
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 217.00 MiB"), 2),
        (RuntimeError(f"while copying: {PEER}"), None),
        (RuntimeError("The size of tensor a (217) must match the size of tensor b (719)"), None),
        (KeyError("217"), None),
    ],
)
def test_the_code_of_a_cuda_error_is_read_and_never_found_in_a_text(error, code):
    assert error_code(torch, SimpleNamespace(cudaGetErrorString=runtime_texts), error) == code


def test_a_text_without_a_runtime_to_look_it_up_in_has_no_code():
    assert error_code(torch, None, RuntimeError(f"CUDA error: {PEER}")) is None
