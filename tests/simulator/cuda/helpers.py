"""What the programs of these tests share. Not imported: it stands before each of them."""

import ctypes

from cuda.bindings import driver as cu

MIB = 1 << 20
STRIDE, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
PTX = """
.version 5.0
.target sm_60
.address_size 64
// .entry hidden(.param .u64 a) is a comment
.visible .entry fill(.param .u64 p, .param .u64 key, .param .u64 n) { ret; }
.visible .entry poison(.param .u64 p, .param .u64 value, .param .u64 n) { ret; }
.visible .entry compare(.param .u64 p, .param .u64 key, .param .u64 n, .param .u64 note, .param .u64 cap) { ret; }
.visible .entry copy(.param .u64 dst, .param .u64 src, .param .u64 n) { ret; }
.visible .entry chain(.param .u64 p, .param .u64 stride, .param .u64 n) { ret; }
.visible .entry chase(.param .u64 p, .param .u64 steps, .param .u64 out) { ret; }
.visible .entry other(.param .u64 p) { ret; }
"""


def code(name, *arguments):
    """What a call returns as its status."""
    return int(getattr(cu, name)(*arguments)[0])


def ok(name, *arguments):
    """What a call that succeeds returns in addition to its status."""
    status, *values = getattr(cu, name)(*arguments)
    assert int(status) == 0, f"{name}: {status!r}"
    return values[0] if len(values) == 1 else values or None


def word_at(key, index):
    """Word of a pattern, as the kernel `fill` writes it."""
    word = (key + index * STRIDE) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def contexts():
    """The primary context of every GPU; the first is current."""
    ok("cuInit", 0)
    made = [ok("cuDevicePrimaryCtxRetain", n) for n in range(ok("cuDeviceGetCount"))]
    ok("cuCtxSetCurrent", made[0])
    return made


def alloc(context, size):
    """Memory of a GPU, which becomes the current one."""
    ok("cuCtxSetCurrent", context)
    return int(ok("cuMemAlloc", size))


def meet(*made):
    """Peer access between all of them, both ways."""
    for one in made:
        ok("cuCtxSetCurrent", one)
        for other in made:
            if other is not one:
                ok("cuCtxEnablePeerAccess", other, 0)


def read(address, count):
    """Words of a GPU's memory."""
    words = (ctypes.c_uint64 * count)()
    ok("cuMemcpyDtoH", words, address, count * 8)
    return list(words)


def launch(name, *values, stream=0, wait=True):
    """Run a kernel in the current context; its status, or that of waiting for it."""
    module = ok("cuModuleLoadData", PTX.encode() + b"\0")
    kernel = ok("cuModuleGetFunction", module, name.encode())
    types = (ctypes.c_uint64,) * len(values)
    status = code("cuLaunchKernel", kernel, 64, 1, 1, 256, 1, 1, 0, stream, (values, types), 0)
    return status or (code("cuCtxSynchronize") if wait else 0)


class Gate:
    """A word of pinned memory that streams wait for."""

    def __init__(self):
        self.address = int(ok("cuMemHostAlloc", 64, 1))
        self.word = ctypes.c_uint32.from_address(self.address)
        self.word.value = 0

    def hold(self, stream):
        """Everything that is queued on the stream from now on waits."""
        ok("cuStreamWaitValue32", stream, self.address, 1, 0)

    def open(self):
        """Let all of it go."""
        self.word.value = 1


def timed(gate, lanes):
    """Milliseconds of each lane, all together. A lane: its context, and a function that queues on a stream."""
    ends = []
    for context, queue in lanes:
        ok("cuCtxSetCurrent", context)
        stream, start, end = ok("cuStreamCreate", 1), ok("cuEventCreate", 0), ok("cuEventCreate", 0)
        gate.hold(stream)
        ok("cuEventRecord", start, stream)
        queue(stream)
        ok("cuEventRecord", end, stream)
        ends.append((context, start, end))
    gate.open()
    answers = []
    for context, start, end in ends:
        ok("cuCtxSetCurrent", context)
        ok("cuEventSynchronize", end)
        answers.append(ok("cuEventElapsedTime", start, end))
    gate.word.value = 0
    return answers
