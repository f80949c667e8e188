"""Faults of the machine as a program that copies meets them."""

import pytest

from gpucheck import simulator
from gpucheck.simulator.activation import STAND_INS

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


@pytest.mark.parametrize(("kind", "wrong"), [("zeros", 0), ("untouched", 0xAAAAAAAAAAAAAAAA)])
def test_data_that_does_not_arrive(run, kind, wrong):
    code = PAIR + (
        "fill(1)\n"
        "ok('cuCtxSetCurrent', b); launch('poison', there, 0xAAAAAAAAAAAAAAAA, words); ok('cuCtxSetCurrent', a)\n"
        "assert copy() == 0\nprint(read(there, words)[::999])\n"
    )

    words = eval(run(TWO, code, f"p2p-corrupt:pair=0-1,kind={kind}"))  # noqa: S307 - a list of numbers

    assert set(words) == {wrong}


@pytest.mark.parametrize("first", [0, 1, 4096, 8191])
def test_flipped_bits_are_counted_from_the_beginning_of_the_copy(run, first):
    """Also where it begins or ends inside a piece of memory, and after a second copy of the same."""
    code = PAIR + (
        f"fill(1)\nfirst, count = {first}, words - {first} - 3\n"
        "for _ in range(2):\n"
        "    ok('cuMemcpyPeerAsync', there + first * 8, b, here + first * 8, a, count * 8, 0)\n"
        "    ok('cuCtxSynchronize')\n"
        "print([i for i, w in enumerate(read(there + first * 8, count)) if w != word_at(1, first + i)])\n"
    )
    count = 32768 - first - 3

    assert eval(run(TWO, code, "p2p-corrupt:pair=0-1,kind=bit-flip")) == list(range(100, count, 4096))  # noqa: S307


def test_shifted_data(run):
    code = PAIR + (
        "fill(1)\nassert copy() == 0\n"
        "print(all(w == word_at(1, (i + 512) % words) for i, w in enumerate(read(there, words))))\n"
    )
    assert run(TWO, code, "p2p-corrupt:pair=0-1,kind=shifted") == "True"


def test_stale_data_is_that_of_the_copy_before(run):
    code = PAIR + (
        "for key in (1, 2, 3):\n"
        "    fill(key); assert copy() == 0\n"
        "    print([known for known in (1, 2, 3) if read(there + 8000, 1) == [word_at(known, 1000)]], end=' ')\n"
    )
    assert run(TWO, code, "p2p-corrupt:pair=0-1,kind=stale") == "[1] [1] [2]"


def test_data_of_another_pair(run):
    """That of a copy from another GPU; before there is one, what its buffer holds."""
    code = """
made = contexts()
meet(*made[:4])
size = 256 * 1024
buffers = [(alloc(one, size), alloc(one, size)) for one in made]
for place, one in enumerate(made):
    ok("cuCtxSetCurrent", one); assert launch("fill", buffers[place][0], place, size // 8) == 0
def copy(a, b):
    ok("cuCtxSetCurrent", made[a])
    ok("cuMemcpyPeerAsync", buffers[b][1], made[b], buffers[a][0], made[a], size, 0); ok("cuCtxSynchronize")
    return [key for key in range(len(made)) if read(buffers[b][1] + 80, 1) == [word_at(key, 10)]]
print(copy(0, 1), copy(2, 3), copy(0, 1), copy(1, 0))
"""
    first, *others = run("dgx1-v100", code, "p2p-corrupt:pair=0-1,kind=other-pair").split()

    assert first not in ("[0]", "[]")
    assert others == ["[2]", "[2]", "[2]"]


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


@pytest.mark.parametrize("number", [214, 220, 700, 719, 999])
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
        "from gpucheck import simulator\n"
        "gate = Gate()\n"
        "def queue(stream): ok('cuMemcpyPeerAsync', there, b, here, a, size, stream)\n"
        "fast = timed(gate, [(a, queue)])[0]\n"
        "machine = Path(os.environ['GPUCHECK_SIMULATOR'])\n"
        "simulator.switch(machine, ['p2p-slow:pair=0-1,percent=50'])\n"
        "print(round(timed(gate, [(a, queue)])[0] / fast, 1))\n"
        "simulator.switch(machine, ['gpu-lost:gpu=0'])\n"
        "print(copy())\n"
        "ok('cuCtxSetCurrent', a)\n"
    )
    code = code.rsplit("ok('cuCtxSetCurrent', a)\n", 1)[0]
    code += "ok('cuCtxSetCurrent', a)\nprint(code('cuCtxSynchronize'), code('cuMemAlloc', 8))\n"
    code += "ok('cuCtxSetCurrent', b)\nprint(code('cuMemAlloc', 8))\n"

    shown = run(TWO, code, GPUCHECK_SIMULATOR=str(machine), LD_LIBRARY_PATH=str(machine / "lib")).split()

    assert shown[0] in ("1.9", "2.0")
    assert shown[2:] == ["999", "999", "0"]
