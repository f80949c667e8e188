"""Write a directory of results atomically."""

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from gpucheck.cli._shared.output import MODES, STDOUT, Problem, not_written, refuse_unwritable
from gpucheck.processes.atomic import PRIVATE, sync_folder, write_atomic


def refuse_folder(output: Path | None, names: Collection[str]) -> None:
    """Raise Problem for a directory that cannot be written, or that contains other than the named files."""
    if output is None or output == STDOUT:
        raise Problem("--format all writes a directory with a file for each format. Name the directory with -o DIR.")
    if output.exists() and not output.is_dir():
        raise Problem(f"{output}: is a file, and --format all writes a directory. Choose another path with -o.")
    if output.is_dir():
        other = sorted(entry.name for entry in output.iterdir() if entry.name not in names)
        if other:
            raise Problem(
                f"{output}: contains {other[0]}, which gpucheck did not write, and the directory is replaced. "
                "Choose a new directory with -o."
            )
    refuse_unwritable(output.resolve())


def write_folder(files: Mapping[str, str], output: Path) -> None:
    """Write the files to a temporary directory and rename it; an earlier directory of gpucheck is replaced.

    Raises Problem if the directory cannot be written; an earlier one is then unchanged.
    """
    refuse_folder(output, files)
    target = output.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            for name, text in files.items():
                write_atomic(staged / name, text.encode(), mode=MODES.get(Path(name).suffix, PRIVATE))
            umask = os.umask(0o077)
            os.umask(umask)
            staged.chmod(0o755 & ~umask)
            _take_place(staged, target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
    except OSError as error:
        raise not_written(output, error) from error


def _take_place(staged: Path, target: Path) -> None:
    """Rename to a new or empty directory; a full one is renamed first, and restored if that fails."""
    if not target.exists() or not any(target.iterdir()):
        staged.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    target.rename(aside)
    try:
        staged.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)
