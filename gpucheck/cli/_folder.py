"""A folder of results that appears complete or not at all."""

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from gpucheck.cli._output import MODES, STDOUT, Problem, not_written, refuse_unwritable
from gpucheck.processes.atomic import PRIVATE, sync_folder, write_atomic


def refuse_folder(output: Path | None, names: Collection[str]) -> None:
    """Raises Problem for a folder that could not be written, or that holds anything but the named files."""
    if output is None or output == STDOUT:
        raise Problem("--format all writes a folder with a file for each format. Name the folder with -o DIR.")
    if output.exists() and not output.is_dir():
        raise Problem(f"{output}: is a file, and --format all writes a folder. Choose another place with -o.")
    if output.is_dir():
        other = sorted(entry.name for entry in output.iterdir() if entry.name not in names)
        if other:
            raise Problem(
                f"{output}: holds {other[0]}, which is none of our files, and the folder is replaced as a whole. "
                "Choose a new folder with -o."
            )
    refuse_unwritable(output.resolve())


def write_folder(files: Mapping[str, str], output: Path) -> None:
    """Write the files beside the folder and give them its name at once; an earlier folder of ours is replaced.

    Raises Problem when the folder cannot be written; what was there before is then untouched.
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
    """A new or empty folder is taken at once. A full one steps aside first, and comes back if that fails."""
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
