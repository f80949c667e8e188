"""The private directory of one run: its file names, and the values that every run of ranks exchanges in them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

import gpucheck
from gpucheck.processes.temporary import temporary_folder

PACKAGE = Path(gpucheck.__file__).parent
LINE_BYTES = 256
Options = TypeVar("Options")


class RankSpec(msgspec.Struct, Generic[Options], frozen=True, kw_only=True):
    """Configuration of one rank.

    rank: over all hosts. local_rank: on this host. processes: ranks over all hosts.
    supervisor_pid: the process that started the rank; the rank never outlives it. options: the same for all ranks.
    """

    rank: int
    local_rank: int
    processes: int
    supervisor_pid: int
    options: Options


class RankError(msgspec.Struct, frozen=True, kw_only=True):
    """The exception that ended a rank.

    missing: the module that was not found. frames: innermost first. raised: time.monotonic(). kind: the program's own
    classification, empty if it has none.
    """

    type: str
    message: str
    missing: str | None = None
    frames: tuple[str, ...] = ()
    raised: float = 0.0
    kind: str = ""


class RunDirectory(NamedTuple):
    """Files of one run on one host. The directory has mode 0700 and is removed when the run ends."""

    path: Path

    @property
    def store(self) -> Path:
        """The rendezvous on one host: a file needs no port, so no port can be taken or left open."""
        return self.path / "store"

    def spec(self, rank: int) -> Path:
        return self.path / f"spec-{rank}.json"

    def pid(self, rank: int) -> Path:
        """Process id of a rank, written when its stack can be requested."""
        return self.path / f"pid-{rank}"

    def progress(self, rank: int) -> Path:
        """Where the rank is: one line of the program's own form, overwritten in place (see ``ProgressFile``)."""
        return self.path / f"progress-{rank}.json"

    def stack(self, rank: int) -> Path:
        """Where faulthandler writes the stacks of the rank, on SIGUSR1 or on a crash."""
        return self.path / f"stack-{rank}.txt"

    def error(self, rank: int) -> Path:
        return self.path / f"error-{rank}.json"

    def report(self, rank: int) -> Path:
        """Report of a rank that finished; written atomically."""
        return self.path / f"report-{rank}.json"

    @property
    def part(self) -> Path:
        """What this host's first rank has so far, as in its report; written atomically."""
        return self.path / "part.json"

    def shared_report(self, rank: int) -> Path:
        """Report of a rank on another host, fetched by a rank of this host."""
        return self.path / f"shared-report-{rank}.json"

    def shared_reports(self) -> Iterator[bytes]:
        """Reports of the ranks on other hosts."""
        for file in sorted(self.path.glob("shared-report-*.json")):
            yield file.read_bytes()

    def with_real_paths(self, text: str) -> str:
        """Return the text with the path of the package in place of the link to it, which is removed with the run."""
        return text.replace(str(self.path / PACKAGE.name), str(PACKAGE))


@contextmanager
def run_directory(name: str) -> Iterator[RunDirectory]:
    """Create the directory of one run and remove it, with its files, at the end of the block.

    It is the working directory of the ranks, and a link makes gpucheck, and nothing else, importable from it: a data.py
    or random.py in the working directory of the caller would be imported otherwise. Raises OSError if it cannot be
    created.
    """
    with temporary_folder(name) as path:
        (path / PACKAGE.name).symlink_to(PACKAGE)
        yield RunDirectory(path)


class ProgressFile:
    """One line that a rank overwrites in place.

    A pipe would need a reader that keeps up, and a log would grow with the steps. A write in place costs about two
    microseconds and outlives a SIGKILL, because the page cache does.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: bytes) -> None:
        """Replace the line. At most LINE_BYTES - 1 bytes are kept."""
        os.pwrite(self._file, line[: LINE_BYTES - 1].ljust(LINE_BYTES - 1) + b"\n", 0)


def read_progress(path: Path) -> bytes:
    """Return the line, stripped; empty before the first write."""
    try:
        return path.read_bytes().strip()
    except FileNotFoundError:
        return b""
