"""Contexts and peer access: states and codes."""

import re
import shutil

TWO = "p100-pcie-x2"
EIGHT_PCIE = "rtx4090-x8"


def test_peer_access_goes_one_way_at_a_time(run):
    code = """
a, b = contexts()
say = lambda *codes: print(*codes, end="; ")
say(code("cuCtxDisablePeerAccess", b), code("cuCtxEnablePeerAccess", b, 0), code("cuCtxEnablePeerAccess", b, 0))
say(code("cuCtxEnablePeerAccess", a, 0), code("cuCtxEnablePeerAccess", b, 1))
ok("cuCtxSetCurrent", b)
say(code("cuCtxDisablePeerAccess", a), code("cuCtxEnablePeerAccess", a, 0), code("cuCtxDisablePeerAccess", a))
say(ok("cuDeviceCanAccessPeer", 0, 1), ok("cuDeviceCanAccessPeer", 1, 1), code("cuDeviceCanAccessPeer", 0, 2))
"""
    assert run(TWO, code) == "705 0 704; 201 1; 705 0 0; 1 0 101;"


def test_peer_access_that_the_driver_does_not_grant(run):
    code = "a, b, *_ = contexts()\nprint(ok('cuDeviceCanAccessPeer', 0, 1), code('cuCtxEnablePeerAccess', b, 0))\n"

    assert run(EIGHT_PCIE, code) == "0 217"
    assert run(TWO, code, "p2p-status:pair=0-1") == "0 217"


def test_a_gpu_maps_eight_peers_unless_they_are_on_nvlink(run, activate, tmp_path):
    """Sixteen GPUs, with NVSwitch between them and without."""
    code = """
made = contexts()
codes = [code("cuCtxEnablePeerAccess", other, 0) for other in made[1:]]
print(codes.count(0), codes.count(711), code("cuCtxDisablePeerAccess", made[1]),
      code("cuCtxEnablePeerAccess", made[-1], 0))
"""
    assert run("dgx2-v100", code) == "15 0 0 704"

    own = tmp_path / "machine"
    shutil.copytree(activate("dgx2-v100"), own, symlinks=True)
    text = (own / "machine.txt").read_text()
    (own / "machine.txt").write_text(re.sub(r"(\.p2p\.\d+\.2) = 0", r"\1 = 5", text))

    assert run("dgx2-v100", code, GPUCHECK_SIMULATOR=str(own)) == "8 7 0 0"


def test_copies_follow_peer_access(run):
    """Direct where the GPU that copies may use the other's memory, else through the host."""
    code = """
a, b = contexts()
size = 64 * MIB
here, there = alloc(a, size), alloc(b, size)
gate = Gate()
def rates():
    def write(stream): ok("cuMemcpyPeerAsync", there, b, here, a, size, stream)
    return [round(size / timed(gate, [(one, write)])[0] / 1e6, 1) for one in (a, b)]
print(rates())
ok("cuCtxSetCurrent", a); ok("cuCtxEnablePeerAccess", b, 0)
print(rates())
ok("cuCtxSetCurrent", b); ok("cuCtxEnablePeerAccess", a, 0)
print(rates())
"""
    off, one_way, both = (eval(line) for line in run(TWO, code).splitlines())  # noqa: S307 - lists of numbers

    assert off[0] == off[1] < both[0] == both[1]
    assert one_way == [both[0], off[1]]


def test_a_kernel_without_peer_access_ends_its_context(run):
    """700 from then on, in that context alone, until the primary context is reset."""
    code = """
a, b = contexts()
here, there = alloc(a, MIB), alloc(b, MIB)
ok("cuCtxSetCurrent", a)
codes = [launch("fill", there, 1, 10), code("cuMemAlloc", 8), code("cuCtxSynchronize")]
print(*codes, code("cuMemcpyDtoD", here, here, 8))
ok("cuCtxSetCurrent", b)
print(code("cuMemAlloc", 8), launch("fill", there, 1, MIB), code("cuStreamCreate", 0))
ok("cuDevicePrimaryCtxReset", 0)
ok("cuCtxSetCurrent", a)
print(code("cuMemAlloc", 8), code("cuMemFree", here))
"""
    assert run(TWO, code).split("\n") == ["700 700 700 700", "0 700 700", "0 1"]


def test_a_context_is_that_of_the_thread(run):
    code = """
ok("cuInit", 0)
print(code("cuMemAlloc", 8), code("cuCtxSetCurrent", cu.CUcontext(0x1234)))
a, b = contexts()
print(int(ok("cuCtxGetCurrent")) == int(a))
import threading
def other(): print(int(ok("cuCtxGetCurrent")), code("cuMemAlloc", 8))
thread = threading.Thread(target=other); thread.start(); thread.join()
ok("cuDevicePrimaryCtxRelease", 0)
print(code("cuMemAlloc", 8), code("cuDevicePrimaryCtxRelease", 0))
"""
    assert run(TWO, code).split("\n") == ["201 201", "True", "0 201", "709 201"]


def test_nothing_works_before_cu_init(run):
    code = """
print(code("cuDeviceGetCount"), code("cuDeviceGet", 0), code("cuMemAlloc", 8), code("cuCtxSetCurrent", 0),
      code("cuStreamSynchronize", 0), code("cuInit", 5), ok("cuDriverGetVersion"))
"""
    assert run(TWO, code) == "3 3 3 3 3 1 13000"
