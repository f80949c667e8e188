"""Faults of the machine as a program that copies meets them."""

import pytest

from gpucheck import simulator
from gpucheck.simulator.activation import STAND_INS
from tests.test_docs import ROOT

TWO = "p100-pcie-x2"
PAIR = """
a, b = contexts()
meet(a, b)
size = 256 * 1024
words = size // 8
here, there = alloc(a, size), alloc(b, size)
def fill(key):
    ok("cuCtxSetCurrent", a); assert launch("fill", here, key, words) == 0
def copy(): return code("cuMemcpyPeerAsync", there, b, here, a, size, 0) or code("cuCtxSynchronize")
"""


def test_staged_copies_arrive_whatever_the_pair_does(run):
    code = (
        PAIR.replace("meet(a, b)\n", "") + "fill(1)\nprint(copy(), read(there, 2) == [word_at(1, 0), word_at(1, 1)])\n"
    )

    assert run(TWO, code, "p2p-corrupt:pair=0-1") == "0 True"
    assert run(TWO, code, "p2p-error:pair=0-1") == "0 True"


def test_a_translating_iommu_loses_data_that_passes_the_root(run):
    code = PAIR + "fill(1)\nprint(copy(), read(there, 1))\n"

    assert run("p100-pcie-x2-sys", code, "iommu-translating") == "0 [0]"


def test_an_error_that_is_no_sticky_one_comes_from_the_copy(run):
    code = PAIR + (
        "print(copy(), copy(), code('cuMemAlloc', 8), launch('copy', there, here, 8), launch('fill', here, 1, 8))\n"
    )
    assert run(TWO, code, "p2p-error:pair=0-1,code=217") == "217 217 0 217 0"


@pytest.mark.parametrize("number", [220, 719])
def test_a_sticky_error_comes_when_the_copy_runs_and_stays(run, number):
    code = PAIR + (
        "ok('cuCtxSetCurrent', a)\nend = ok('cuEventCreate', 0)\n"
        "print(code('cuMemcpyPeerAsync', there, b, here, a, size, 0), code('cuEventRecord', end, 0),"
        " code('cuEventSynchronize', end), code('cuStreamQuery', 0), code('cuMemAlloc', 8),"
        " code('cuMemcpyPeerAsync', there, b, here, a, size, 0))\n"
        "ok('cuCtxSetCurrent', b)\nprint(code('cuMemAlloc', 8))\n"
    )
    assert run(TWO, code, f"p2p-error:pair=0-1,code={number}").split() == ["0", "0", *[str(number)] * 4, "0"]


def test_a_stuck_copy_never_ends_and_the_other_gpu_works_on(run):
    code = PAIR + (
        "import threading, os\n"
        "ok('cuCtxSetCurrent', a)\nstream = ok('cuStreamCreate', 1)\n"
        "print(code('cuMemcpyPeerAsync', there, b, here, a, size, stream), code('cuStreamQuery', stream))\n"
        "ok('cuCtxSetCurrent', b)\n"
        "print(launch('fill', there, 1, words), code('cuStreamQuery', stream))\n"
        "done = threading.Event()\n"
        "def wait(): ok('cuCtxSetCurrent', a); code('cuStreamSynchronize', stream); done.set()\n"
        "threading.Thread(target=wait, daemon=True).start()\n"
        "print(done.wait(0.5), code('cuStreamQuery', stream), flush=True)\n"
        "os._exit(0)\n"
    )
    assert run(TWO, code, "p2p-stuck:pair=0-1").split("\n") == ["0 600", "0 600", "False 600"]


NOISE = PAIR.replace("256 * 1024", "16 << 20") + (
    "import statistics\n"
    "def queue(stream): ok('cuMemcpyPeerAsync', there, b, here, a, size, stream)\n"
    "gate = Gate()\n"
    "ms = [timed(gate, [(a, queue)])[0] for _ in range(200)]\n"
    "print(statistics.stdev(ms) / statistics.mean(ms), hash(tuple(ms)))\n"
)


def test_noise_is_as_large_as_asked_and_never_zero(run):
    """A healthy machine has the spread of a quiet GPU: a spread of zero would look like perfect knowledge."""
    assert 0.03 < float(run(TWO, NOISE, "copy-noise:percent=5").split()[0]) < 0.07
    assert 0.0005 < float(run(TWO, NOISE, spread=True).split()[0]) < 0.002


def test_noise_follows_its_seed(run):
    first, again, other = (run(TWO, NOISE, f"copy-noise:percent=5,seed={seed}") for seed in (7, 7, 8))

    assert first == again
    assert first != other


def test_faults_can_change_while_a_program_runs(run, tmp_path):
    """Rates at the next copy; a GPU that is lost ends its context."""
    machine = tmp_path / "own"
    simulator.make(simulator.load(TWO), machine, (), STAND_INS)
    code = PAIR + (
        "from pathlib import Path\n"
        "import os\n"
        "from tests.simulator.helpers import switch\n"
        "gate = Gate()\n"
        "def queue(stream): ok('cuMemcpyPeerAsync', there, b, here, a, size, stream)\n"
        "fast = timed(gate, [(a, queue)])[0]\n"
        "machine = Path(os.environ['GPUCHECK_SIMULATOR'])\n"
        f"switch(machine, '{TWO}', ['p2p-slow:pair=0-1,percent=50'])\n"
        "print(round(timed(gate, [(a, queue)])[0] / fast, 1))\n"
        f"switch(machine, '{TWO}', ['gpu-lost:gpu=0'])\n"
        "print(copy())\n"
        "ok('cuCtxSetCurrent', a)\n"
    )
    code = code.rsplit("ok('cuCtxSetCurrent', a)\n", 1)[0]
    code += "ok('cuCtxSetCurrent', a)\nprint(code('cuCtxSynchronize'), code('cuMemAlloc', 8))\n"
    code += "ok('cuCtxSetCurrent', b)\nprint(code('cuMemAlloc', 8))\n"

    places = {"GPUCHECK_SIMULATOR": machine, "LD_LIBRARY_PATH": machine / "lib", "PYTHONPATH": ROOT}
    shown = run(TWO, code, **{name: str(path) for name, path in places.items()}).split()

    assert shown[0] in ("1.9", "2.0")
    assert shown[2:] == ["999", "999", "0"]
