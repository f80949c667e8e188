"""What an error says about the host: a resource is used up, or not."""

import errno
import resource

import pytest

from gpucheck.processes.exhausted import exhausted, limit_in_force


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "x"),
        OSError(errno.EDQUOT, "x"),
        OSError(errno.EMFILE, "x"),
        BlockingIOError(errno.EAGAIN, "x"),
        MemoryError(),
        SystemError("error return without exception set"),
        RuntimeError("can't start new thread"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0: No space left on device"),
        "OSError: [Errno 27] File too large",
        "ImportError: libtorch_cpu.so: failed to map segment from shared object",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_a_used_up_resource_is_known(error):
    assert exhausted(error)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        FileNotFoundError(errno.ENOENT, "x"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "NCCL WARN Cuda failure 'peer access is not supported'",
    ],
)
def test_a_fault_of_hardware_is_not_one(error):
    assert not exhausted(error)


@pytest.mark.parametrize(("limit", "named"), [(600_000_000, True), (resource.RLIM_INFINITY, False), (1 << 40, False)])
def test_a_limit_of_the_address_space_is_named(monkeypatch, limit, named):
    limits = {resource.RLIMIT_AS: (limit, limit)}
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits.get(kind, unlimited))

    line = limit_in_force(2)

    assert (line is not None) == named
    assert line is None or exhausted(line)
