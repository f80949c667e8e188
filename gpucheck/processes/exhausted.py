"""Is an error one of a resource of the host that is used up, or of a limit? It is then no result about the hardware."""

import errno
import os
import re
import resource
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
# Of a rank with torch on CPUs: intra-op threads are limited to one, the rest is communication and watchdogs.
THREADS_OF_RANK = 24
ADDRESS_SPACE_OF_RANK = 4 << 30  # bytes; torch for CPUs maps 0.7 GB when it is imported, and more for its threads
THREADS = re.compile(r"^Threads:\s*(\d+)", re.MULTILINE)

# Of open, write, mmap, fork and clone.
ERRNOS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.EAGAIN),
    *(errno.EMFILE, errno.ENFILE),
)
# As strerror(3), Python, the loader, torch's allocator for CPUs and OpenMP put it. "error return without exception set"
# is how Python 3.11 ends an import of torch for which memory runs out in the compiler.
WORDS = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|\bMemoryError|[Cc]annot allocate memory"
    r"|can't allocate memory|failed to map segment from shared object|can't start new thread"
    r"|Resource temporarily unavailable|Thread creation failed|Too many open files|std::bad_alloc"
    r"|No usable temporary directory|SystemError: error return without exception set"
)


def exhausted(error: BaseException | str) -> bool:
    """Return whether the host had no room for what was done. error: the exception, or a message of a program."""
    if isinstance(error, str):
        return WORDS.search(error) is not None
    if isinstance(error, OSError) and error.errno in ERRNOS:
        return True
    return isinstance(error, MemoryError) or exhausted(f"{type(error).__name__}: {error}")


def limit_in_force(ranks: int) -> str | None:
    """Return a line of evidence if a limit leaves so many ranks no memory or no threads, None without one.

    Native code that gets none may crash or wait for ever without a message.
    """
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and space < ADDRESS_SPACE_OF_RANK:
        return f"a process may map {space / 1e6:.0f} MB (ulimit -v): {os.strerror(errno.ENOMEM)}"
    return _too_few_threads(ranks)


def _too_few_threads(ranks: int) -> str | None:
    """Root has no such limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() == 0 or limit == resource.RLIM_INFINITY:
        return None
    used = 0
    for process in PROC.glob("[0-9]*"):
        with suppress(OSError, AttributeError):  # it has ended
            if process.stat().st_uid == os.geteuid():
                used += int(THREADS.search((process / "status").read_text())[1])  # type: ignore[index]
    if used + ranks * THREADS_OF_RANK <= limit:
        return None
    used_up = f"{used} of {limit} processes and threads of user {os.geteuid()} are used (ulimit -u)"
    return f"{used_up}: {os.strerror(errno.EAGAIN)}"
