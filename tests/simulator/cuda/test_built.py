"""How the library is built: without a memory error, and complete."""

import re
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.simulator import compiler
from tests.shared import sampled
from tests.simulator.helpers import SANITIZED, exported, run_sanitized, sanitizer

HELPERS = Path(__file__).with_name("helpers.py")
EVERYTHING = """
a, b = contexts()
meet(a, b)
size = 3 * MIB + 8
here, there = alloc(a, size), alloc(b, size)
pinned = int(ok("cuMemHostAlloc", 2 * size, 0))
gate = Gate()
for place, context in ((here, a), (there, b)):
    ok("cuCtxSetCurrent", context)
    assert launch("fill", place, 3, size // 8) == 0
for offset in (0, 8, 65536):
    ok("cuMemcpyPeerAsync", there + offset, b, here, a, size - offset, 0)
    ok("cuMemcpyDtoH", pinned + offset, there, size)
    ok("cuMemcpyHtoD", here, pinned + offset, size)
    ok("cuMemcpyDtoD", here + offset, here, size - offset)
note = alloc(b, 19 * 8)
assert launch("compare", there, 4, size // 8, note, 8) == 0
assert launch("chain", there, 8, 100) == 0 and launch("chase", there, 100, note) == 0
ok("cuCtxSetCurrent", a)
streams = [ok("cuStreamCreate", 1) for _ in range(20)]
event = ok("cuEventCreate", 0)
for stream in streams:
    gate.hold(stream)
    for _ in range(100):
        ok("cuMemcpyPeerAsync", there, b, here, a, size, stream)
    ok("cuEventRecord", event, stream)
    ok("cuStreamWaitEvent", streams[0], event, 0)
ok("cuEventDestroy", event)
for stream in streams[1:]:
    ok("cuStreamDestroy", stream)
gate.open()
ok("cuCtxSynchronize")
assert launch("poison", 4096, 1, 8) == 700
ok("cuDevicePrimaryCtxReset", 0)
ok("cuDevicePrimaryCtxRelease", 0)
ok("cuDevicePrimaryCtxRelease", 1)
print("done")
"""
HOSTILE = """
import ctypes
lib = ctypes.CDLL("libcuda.so.1")
NAMES = '''FUNCTIONS'''.split()
null = [ctypes.c_void_p(0)] * 11
for name in NAMES:
    getattr(lib, name)(*null)
lib.cuInit(0)
for name in NAMES:
    getattr(lib, name)(*null)
context = ctypes.c_void_p()
lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
lib.cuCtxSetCurrent(context)
for name in NAMES:
    if "Release" not in name and "SetCurrent" not in name:
        getattr(lib, name)(*null)
print("done")
"""


def functions():
    """Every function that the library has."""
    table = (compiler.CUDA / "entries.h").read_text(encoding="utf-8")
    return set(re.findall(r"^ENTRY\(\w+, \d+, (\w+)\)", table, re.MULTILINE))


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """Runs a program on the library with the address and undefined-behaviour sanitizers."""
    runtime, folder = sanitizer(), tmp_path_factory.mktemp("sanitized")
    compiler.compile_cuda_library(folder, SANITIZED).rename(folder / "libcuda.so.1")
    return lambda code: run_sanitized(runtime, folder, code)


def test_library_has_no_memory_error(activate, sanitized):
    activate("p100-pcie-x2")
    sanitized(HELPERS.read_text(encoding="utf-8") + EVERYTHING)


@pytest.mark.parametrize("kind", sampled(["stale", "other-pair", "shifted", "bit-flip"], (2,)))
def test_damage_has_no_memory_error(activate, sanitized, kind):
    activate("p100-pcie-x2", [f"p2p-corrupt:pair=0-1,kind={kind}"])
    sanitized(HELPERS.read_text(encoding="utf-8") + EVERYTHING)


def test_no_function_trusts_its_arguments(activate, sanitized):
    """Null pointers in every place, before and after cuInit and with a context: a code, and no crash."""
    activate("p100-pcie-x2")
    sanitized(HOSTILE.replace("FUNCTIONS", " ".join(sorted(functions()))))


def test_library_exports_its_functions_and_nothing_else(tmp_path):
    library = simulator.build_cuda_library(tmp_path, "580.178.04")

    assert exported(library) == functions()


def test_page_lists_every_function():
    table = (compiler.CUDA / "entries.h").read_text(encoding="utf-8")
    page = (Path(__file__).parents[3] / "docs/simulator.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|") and "`cu" in line]

    assert set(re.findall(r"`(cu\w+)`", " ".join(rows))) == set(re.findall(r"^ENTRY\((\w+),", table, re.MULTILINE))
