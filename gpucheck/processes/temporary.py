"""Private temporary directories, which a later run removes if this one is killed."""

import fcntl
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from gpucheck.processes.trust import distrust

PREFIX = "gpucheck-"
MARKER = ".gpucheck-run"  # without it a directory is not a run's, whatever its name is
ELSEWHERE = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - made there by mkdtemp, with mode 0700
# The address of a socket has 107 characters, and multiprocessing makes one 32 characters below TMPDIR.
LONGEST_TMPDIR = 75
# Before each attempt to remove a directory.
PAUSES_S = (0.0, 0.02, 0.1, 0.3)
# Where a child's libraries keep what they compile, and load it from again.
COMPILED = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "PYTORCH_KERNEL_CACHE_PATH")
# Kept below HOME between runs, for compiling takes minutes: moved only if another user could have written there.
KEPT = {"CUDA_CACHE_PATH": ".nv/ComputeCache", "CUPY_CACHE_DIR": ".cupy/kernel_cache"}


def _remove(folder: Path) -> None:
    """Remove the directory. A killed child may write for a moment; what a stuck one writes is left to a later run."""
    for pause in PAUSES_S:
        time.sleep(pause)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """A private folder, removed with all that is in it at the end of the block. Raises OSError if there is no place."""
    base = _base()
    _remove_leftovers(base)
    folder, lock = _make(base)
    try:
        made = folder / name
        made.mkdir(mode=0o700)
        yield made
    finally:
        _remove(folder)
        os.close(lock)


def private_environment(folder: Path, caller: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which a child's libraries write below this directory and load no code of another user."""
    temporary = str(folder) if len(str(folder)) <= LONGEST_TMPDIR else None
    variables = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary) if temporary else {}
    variables |= {name: str(folder / "compiled" / name.lower()) for name in COMPILED}
    for name, default in KEPT.items():
        chosen = Path(caller.get(name) or Path(caller.get("HOME") or "/nonexistent") / default)
        if _is_foreign(chosen):
            variables[name] = str(folder / "compiled" / name.lower())
    for name, path in variables.items():
        if name not in ("TMPDIR", "TMP", "TEMP"):
            Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
    return variables


def _is_foreign(path: Path) -> bool:
    """Whether another user could have written there, or could make it first. Of no path: there is nothing to load."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        return distrust(path, own=path != Path("/")) is not None
    except OSError:
        return True


def _make(base: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        with suppress(FileNotFoundError):  # another run took it for a leftover before it was locked
            lock = os.open(folder / MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with suppress(OSError):  # a file system without locks: then no run removes it as a leftover either
                fcntl.flock(lock, fcntl.LOCK_EX)
            if (folder / MARKER).exists():
                return folder, lock
            os.close(lock)


def _base() -> Path:
    """TMPDIR, unless other users could replace our directory there; then the system's own place."""
    chosen = Path(tempfile.gettempdir())
    reasons: list[str] = []
    for base in dict.fromkeys((chosen, *ELSEWHERE)):
        try:
            reason = distrust(base, own=False)
        except OSError as error:
            reason = f"{base}: {error.strerror or error}"
        if reason is None and os.access(base, os.W_OK | os.X_OK):
            if reasons:
                line = f"gpucheck: {chosen} is not used for temporary files: {reasons[0]}; {base} is used\n"
                sys.stderr.write(line)
            return base
        reasons.append(reason or f"{base} cannot be written")
    raise OSError(f"no place for temporary files: {'; '.join(reasons)}. Set TMPDIR to a directory of your own.")


def _remove_leftovers(base: Path) -> None:
    """Remove directories of runs that were killed: their lock is free, whichever process has their number now."""
    for folder in base.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, no directory of a run, in use, or removed by another run
            seen = folder.lstat()
            if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
                continue
            lock = os.open(folder / MARKER, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
