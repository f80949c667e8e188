"""Where made machines and compiled libraries are kept, and how they get there whole."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """``$XDG_CACHE_HOME/gpucheck/<kind>``, by default below ~/.cache, made if needed.

    Where that cannot be written, a folder of this user's own below the temporary directory.
    Raises OSError when neither can be used.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path(os.environ.get("HOME") or "/nonexistent") / ".cache")
    folder = Path(base) / "gpucheck" / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _temporary_folder() / kind
    return folder if os.access(folder, os.W_OK) else _temporary_folder() / kind


def _temporary_folder() -> Path:
    """Code is loaded from here: refuse a folder that somebody else made first."""
    folder = Path(tempfile.gettempdir()) / f"gpucheck-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    seen = folder.lstat()
    if seen.st_uid != os.getuid() or seen.st_mode & 0o022:
        raise OSError(f"{folder}: not ours alone, so nothing is run from it. Set XDG_CACHE_HOME to a writable folder.")
    return folder


def publish(target: Path, make: Callable[[Path], object]) -> None:
    """Fill a fresh folder beside ``target``, then rename it: readers see all or nothing, and of two makers one wins."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        make(partial)
        partial.chmod(0o755)
        partial.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
