"""Download the locked wheels of an image once with the pip of this host, with its index, CA and proxies."""

from pathlib import Path

from gpucheck.images.fill import lock_path
from gpucheck.lab.model import fingerprint
from gpucheck.lab.system import LabError, run, say
from gpucheck.lab.wheelhouse import pip


def ensure_wheels(root: Path, name: str, python: str, places: list[str]) -> Path:
    """Return the directory with every wheel of a variant's lock. places: pip options that name sources of wheels.

    Raises LabError that names the wheel missing from the index.
    """
    folder = root / ".cache/images" / f"{name}-py{python.replace('.', '')}"
    folder.mkdir(parents=True, exist_ok=True)
    locks = [lock_path(root, name), lock_path(root, "tools")]
    stamp, stamp_file = fingerprint([*locks, python]), folder / "wheels.stamp"
    if stamp_file.exists() and stamp_file.read_text() == stamp:
        return folder
    stamp_file.unlink(missing_ok=True)
    say(f"downloading the wheels of {name} for Python {python}")
    for lock in locks:
        words = pip("download", "--no-deps", "--only-binary=:all:", "--find-links", folder, "--dest", folder)
        hint = (
            "the index lacks a wheel of the lock, or cannot be reached: name another with --index URL or --find-links "
            "DIR (pip config list shows the settings of pip)"
        )
        # The Python that runs pip evaluates markers in the lock, so it downloads for its own platform only.
        run(
            [*words, "--python-version", python, *places, "--requirement", lock],
            what=f"downloading the wheels of {name}",
            hint=hint,
        )
    stamp_file.write_text(stamp)
    return folder


def index_options(indexes: tuple[str, ...], find_links: tuple[str, ...]) -> list[str]:
    """Return options of both pip and uv. Raises LabError for a missing directory."""
    for place in find_links:
        if "://" not in place and not Path(place).is_dir():
            raise LabError(f"--find-links {place}: no such directory\ndo: name a directory of wheels, or its URL")
    options = [word for index in indexes for word in ("--extra-index-url", index)]
    return options + [word for place in find_links for word in ("--find-links", place)]
