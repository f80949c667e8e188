"""Write a file that appears complete or not at all, and that a loss of power does not empty."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# What only its owner and group read: reports and recordings name hosts, processes and users.
PRIVATE = 0o640
# What other users read too: locks, plans, metrics for a collector.
SHARED = 0o644
# Errors of file systems that cannot synchronize a directory.
CANNOT = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


def write_atomic(path: Path, content: bytes, *, mode: int = PRIVATE, durable: bool = True) -> None:
    """Write the file. mode, durable: as in `replacing`, and so are the errors."""
    with replacing(path, mode=mode, durable=durable) as file:
        file.write(content)


@contextmanager
def replacing(path: Path, *, mode: int = PRIVATE, durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a file that takes its name when the block ends well; an earlier file, or a link, is replaced then.

    mode: of the new file, less what the umask takes. durable: it is on the disk when the block has ended; a file that
    can be made again does not wait for that. Raises OSError; what was there is then untouched and nothing is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.parent / f".gpucheck.{os.urandom(8).hex()}"
    # The kernel takes the umask off; a name that exists, a planted link too, is rejected.
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names in the directory survive a loss of power, where its file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in CANNOT:
            raise
    finally:
        os.close(handle)
