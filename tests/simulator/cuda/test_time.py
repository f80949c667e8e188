"""Simulated time: streams, events, gates, full queues."""

import json
from itertools import combinations, permutations

import msgspec
import pytest

from gpucheck import simulator
from gpucheck.host import live_source
from gpucheck.measure.values import Setup
from gpucheck.model.copies import HOST, Flow
from gpucheck.model.device import Device
from gpucheck.simulator.cuda.copies import MeasurementFault, describe
from gpucheck.topology.build import cpu_of
from tests.measure.formulas import FormulaEngine
from tests.shared import sampled

TWO = "p100-pcie-x2"
READY = """
a, b = contexts()
meet(a, b)
size = 64 * MIB
here, there = alloc(a, size), alloc(b, size)
ok("cuCtxSetCurrent", a)
stream, start, end = ok("cuStreamCreate", 1), ok("cuEventCreate", 0), ok("cuEventCreate", 0)
def copy(stream, size=size):
    ok("cuMemcpyPeerAsync", there, b, here, a, size, stream)
"""


def test_the_clock_does_not_wait(run):
    """A thousand copies of 64 MiB would take five seconds. One of few bytes takes what a call does, 2 us."""
    code = READY + (
        "import time\n"
        "began = time.perf_counter()\n"
        "ms = timed(Gate(), [(a, lambda s: [copy(s) for _ in range(1000)])])[0]\n"
        "small = timed(Gate(), [(a, lambda s: [copy(s, 16) for _ in range(100)])])[0] * 10\n"
        "print(ms > 4000, time.perf_counter() - began < 1, 2.0 < small < 2.2)\n"
    )
    assert run(TWO, code) == "True True True"


def test_events(run):
    code = READY + (
        "print(code('cuEventElapsedTime', start, end), code('cuEventQuery', start))\n"
        "ok('cuEventRecord', start, stream); copy(stream); ok('cuEventRecord', end, stream)\n"
        "print(ok('cuEventSynchronize', end), round(ok('cuEventElapsedTime', start, end), 2))\n"
        "untimed = ok('cuEventCreate', 2); ok('cuEventRecord', untimed, stream)\n"
        "ok('cuCtxSetCurrent', b); foreign = ok('cuEventCreate', 0)\n"
        "print(code('cuEventElapsedTime', start, untimed), code('cuEventRecord', foreign, stream))\n"
        "ok('cuEventRecord', foreign, 0)\n"
        "print(code('cuEventElapsedTime', start, foreign), ok('cuEventDestroy', end), code('cuEventQuery', end))\n"
    )
    lines = run(TWO, code).splitlines()

    assert lines[0] == "400 0"
    assert lines[1].startswith("None ")
    assert lines[2:] == ["400 400", "400 None 400"]


def test_a_gate_holds_every_stream_until_the_host_opens_it(run):
    code = READY + (
        "gate = Gate()\n"
        "gate.hold(stream); copy(stream); ok('cuEventRecord', end, stream)\n"
        "waits = ok('cuStreamCreate', 1); ok('cuStreamWaitEvent', waits, end, 0)\n"
        "print(code('cuStreamQuery', stream), code('cuEventQuery', end), code('cuStreamQuery', waits))\n"
        "gate.open()\n"
        "print(code('cuStreamQuery', waits), code('cuEventQuery', end), code('cuStreamQuery', stream))\n"
        "wait = lambda address: code('cuStreamWaitValue32', stream, address, 1, 0)\n"
        "print(wait(4096), wait(gate.address + 2))\n"
    )
    assert run(TWO, code).split("\n") == ["600 600 600", "0 0 0", "1 1"]


def test_a_full_queue_blocks_the_call_until_the_gate_opens(run):
    """Another thread can open it: no call holds the interpreter."""
    code = READY + (
        "import threading, time\n"
        "gate = Gate(); gate.hold(stream)\n"
        "opened = []\n"
        "def late(): opened.append(queued); gate.open()\n"
        "threading.Timer(0.5, late).start()\n"
        "began = time.perf_counter()\n"
        "for queued in range(100): copy(stream)\n"
        "print(opened, time.perf_counter() - began > 0.4, code('cuStreamSynchronize', stream))\n"
    )
    assert run(TWO, code, GPUCHECK_CUDA_QUEUE="64") == "[63] True 0"


def test_the_legacy_stream_waits_for_the_others_and_they_for_it(run):
    code = """
a, _ = contexts()
device = alloc(a, 64)
gate, plain, free = Gate(), ok("cuStreamCreate", 0), ok("cuStreamCreate", 1)
gate.hold(plain)
def poison(place, value, stream):
    launch("poison", device + 8 * place, value, 1, stream=stream, wait=False)
poison(0, 1, plain)
poison(0, 2, 0)
after = ok("cuStreamCreate", 0)
poison(1, 3, after)
poison(2, 4, free)
print(code("cuStreamQuery", 0), code("cuStreamQuery", after), code("cuStreamQuery", free))
gate.open()
ok("cuCtxSynchronize")
print(read(device, 3))
"""
    assert run(TWO, code).split("\n") == ["600 600 0", "[2, 3, 4]"]


def test_a_wait_is_for_the_recording_of_its_time(run):
    """Whatever the event is used for afterwards, and when it is destroyed."""
    code = READY + (
        "gate, first, second = Gate(), ok('cuStreamCreate', 1), ok('cuStreamCreate', 1)\n"
        "gate.hold(stream); ok('cuEventRecord', end, stream); ok('cuStreamWaitEvent', first, end, 0)\n"
        "ok('cuEventRecord', end, second); ok('cuStreamWaitEvent', second, end, 0)\n"
        "print(code('cuStreamQuery', second), code('cuEventQuery', end), code('cuStreamQuery', first))\n"
        "ok('cuEventDestroy', end); gate.open()\n"
        "print(code('cuStreamQuery', first), code('cuStreamQuery', stream))\n"
    )
    assert run(TWO, code).split("\n") == ["0 0 600", "0 0"]


def test_events_are_half_a_microsecond_apart_or_a_multiple_of_it(run):
    """A copy of some bytes lasts 2.9 us on this machine: single ones read 2.5 or 3, many of them what they took."""
    code = """
context, = contexts()[:1]
here, there, events = alloc(context, MIB), alloc(context, MIB), [ok("cuEventCreate", 0) for _ in range(40)]
for event in events:
    ok("cuMemcpyDtoDAsync", there, here, 100_000, 0)
    ok("cuEventRecord", event, 0)
ok("cuCtxSynchronize")
steps = [ok("cuEventElapsedTime", a, b) * 2000 for a, b in zip(events, events[1:])]
print(max(abs(step - round(step)) for step in steps) < 1e-3, len(set(map(round, steps))) > 1)
"""
    assert run("p100-pcie-x2", code) == "True True"


SIZE = 16 << 20
PROFILES = ("hgx-h100-x8", "p100-pcie-x2-sys", "rtx4090-x8", "dgx1-v100", "a100-pcie-x8", "mixed-x4", "gb200-x4")
MOST = 3000  # copies of the fastest flow
LANES = """
import json
steps = json.loads('''STEPS''')
made = contexts()
size = 16 * MIB
buffers = [(alloc(one, size), alloc(one, size)) for one in made]
ok("cuCtxSetCurrent", made[0])
pinned = int(ok("cuMemHostAlloc", size, 1))
for one, a in enumerate(made):
    ok("cuCtxSetCurrent", a)
    for other, b in enumerate(made):
        if one != other and ok("cuDeviceCanAccessPeer", one, other):
            ok("cuCtxEnablePeerAccess", b, 0)
def lane(src, dst, method, count):
    def queue(stream):
        for _ in range(count):
            if src < 0:
                ok("cuMemcpyHtoDAsync", buffers[dst][1], pinned, size, stream)
            elif dst < 0:
                ok("cuMemcpyDtoHAsync", pinned, buffers[src][0], size, stream)
            else:
                ok("cuMemcpyPeerAsync", buffers[dst][1], made[dst], buffers[src][0], made[src], size, stream)
    return made[dst if src < 0 or method == "ce-read" else src], queue
gate = Gate()
print(json.dumps([timed(gate, [lane(*one) for one in step]) for step in steps]))
"""


def described(machine):
    """The rates of the activated machine, from what NVML and sysfs report, as of any other."""
    host = live_source(isolated=False, deadline_s=20, health=False)
    reading, pci = host.read("nvml").nvml, host.read("pci").pci
    stated = json.loads((machine / "surroundings.json").read_text()).get("measurement", [])
    faults = msgspec.convert(stated, tuple[MeasurementFault, ...])
    return describe(reading, pci, reading.gpus, faults, cpu_of(host)), reading


def steps_of(count, *, direct):
    """Flows one by one, both ways, all around, and from and to the host."""
    pairs = list(combinations(range(count), 2))
    some = pairs if len(pairs) <= 6 else pairs[:: len(pairs) // 6]
    steps = [(Flow(src=a, dst=b),) for a, b in some] if direct else []
    steps += [(Flow(src=a, dst=b), Flow(src=b, dst=a, method="ce-read")) for a, b in some] if direct else []
    steps += [tuple(Flow(src=a, dst=(a + step) % count) for a in range(count)) for step in (1, count // 2) if direct]
    steps += [tuple(Flow(src=a, dst=b) for a, b in permutations(range(min(count, 4)), 2))] if direct else []
    steps += [tuple(Flow(src=HOST, dst=a) for a in range(count)), tuple(Flow(src=a, dst=HOST) for a in range(count))]
    return [*steps, (Flow(src=0, dst=0),), (Flow(src=HOST, dst=0), Flow(src=0, dst=HOST))]


def agree(run, profile, faults, machine):
    """Each flow's rate in each step, within 1 %."""
    about, reading = described(machine)
    engine = FormulaEngine(about)
    devices = tuple(Device(index=gpu.index, name=gpu.name) for gpu in reading.gpus)
    engine.open(Setup(engine="driver", devices=devices, buffer_bytes=SIZE, parent_pid=0))
    direct = all(status in ("OK", None, "X") for row in reading.p2p["read"] for status in row)
    wanted, asked = [], []
    for flows in steps_of(len(devices), direct=direct):
        once = engine.time(flows, SIZE, [1] * len(flows))
        counts = [max(1, round(MOST * min(once) / seconds)) for seconds in once]
        wanted.append(engine.time(flows, SIZE, counts))
        asked.append([(f.src, f.dst, f.method, count) for f, count in zip(flows, counts, strict=True)])
    code = LANES.replace("STEPS", json.dumps(asked))
    answers = json.loads(run(profile, code, *faults, CUDA_DEVICE_ORDER="PCI_BUS_ID", GPUCHECK_CUDA_QUEUE="1000000"))
    for flows, expected, got in zip(asked, wanted, answers, strict=True):
        assert [ms / 1e3 for ms in got] == pytest.approx(list(expected), rel=0.01), flows


@pytest.mark.parametrize("profile", sampled(PROFILES, (1, 4)))
def test_rates_are_those_of_the_machine(run, activate, profile):
    agree(run, profile, (), activate(profile))


@pytest.mark.parametrize(
    ("profile", "fault"),
    sampled(
        [
            ("p100-pcie-x2", "p2p-slow:pair=0-1,percent=30"),
            ("p100-pcie-x2", "p2p-slow-direction:pair=1-0,percent=50"),
            ("p100-pcie-x2", "p2p-half-duplex:pair=0-1"),
            ("a100-pcie-x8", "acs-redirect"),
            ("p100-pcie-x2", "pcie-width:gpu=1,width=4"),
            ("p100-pcie-x2", "pcie-gen:gpu=0,gen=1"),
            ("dgx1-v100", "nvlink-down:gpu=2,link=3"),
        ],
        (1, 4),
    ),
)
def test_rates_follow_faults(run, activate, profile, fault):
    agree(run, profile, (fault,), activate(profile, (fault,)))


@pytest.mark.parametrize(
    "profile",
    sampled([name for name in simulator.profile_names() if name != "no-gpu"], lambda number, _: number % 5 == 0),
)
def test_cuda_txt_is_what_a_reading_comes_to(activate, profile):
    """It is written without NVML, so it may not differ from what NVML says about the same machine."""
    machine = activate(profile)
    about, reading = described(machine)
    lines = dict(line.split(" = ", 1) for line in (machine / "cuda.txt").read_text().splitlines()[1:])

    for gpu, rate, links in zip(reading.gpus, about.host_gb_s, about.to_host, strict=True):
        assert (float(lines[f"host.{gpu.index}.gb_s"]), lines[f"host.{gpu.index}.links"].split()) == (rate, [*links])
    for link in about.links:
        prefix = f"pair.{link.src}.{link.dst}"
        assert float(lines[f"{prefix}.gb_s"]) == pytest.approx(link.gb_s)
        assert float(lines[f"{prefix}.staged_gb_s"]) == pytest.approx(link.staged_gb_s)
        assert lines[f"{prefix}.links"].split() == list(link.resources)
        assert lines.get(f"{prefix}.damage") == link.damage
