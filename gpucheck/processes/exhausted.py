"""Is an error one of a resource of the host that is used up, or of a limit? It is then no result about the hardware."""

import errno
import re

# Of open, write, mmap, fork and clone.
ERRNOS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.EAGAIN),
    *(errno.EMFILE, errno.ENFILE),
)
# As strerror(3), Python, the loader, torch's allocator for CPUs and OpenMP put it.
WORDS = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|\bMemoryError|[Cc]annot allocate memory"
    r"|can't allocate memory|failed to map segment from shared object|can't start new thread"
    r"|Resource temporarily unavailable|Thread creation failed|Too many open files|std::bad_alloc"
    r"|No usable temporary directory"
)


def exhausted(error: BaseException | str) -> bool:
    """Return whether the host had no room for what was done. error: the exception, or a message of a program."""
    if isinstance(error, str):
        return WORDS.search(error) is not None
    if isinstance(error, OSError) and error.errno in ERRNOS:
        return True
    return isinstance(error, MemoryError) or exhausted(f"{type(error).__name__}: {error}")
