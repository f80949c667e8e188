"""Load profiles, by name from ``profiles/`` or from a file.

Loading is strict: an unknown key, a bus id on the wrong bus or a link to nowhere is an error with file, key and reason.
"""

from pathlib import Path

import msgspec

from gpucheck.foreign.documents import parse
from gpucheck.simulator.data import HERE, read, unknown
from gpucheck.simulator.files import is_file, profile_text
from gpucheck.simulator.machine.profile import Profile
from gpucheck.simulator.machine.validation import check


def profile_names() -> tuple[str, ...]:
    """Return the names of all profiles, sorted."""
    return tuple(sorted(path.stem for path in (HERE / "profiles").glob("*.yml")))


def load(name: str) -> Profile:
    """Return a profile by its name or file, validated.

    Raises LookupError for an unknown name, ValueError for a broken file, OSError for one that cannot be read.
    """
    if is_file(name):
        own = parse(profile_text(name), name, Profile)
        check(own, Path(name))
        return msgspec.structs.replace(own, name=own.name or Path(name).stem)
    if name not in profile_names():
        raise LookupError(unknown("profile", name, profile_names()))
    path = HERE / "profiles" / f"{name}.yml"
    profile = msgspec.structs.replace(read(path, Profile), name=name)
    check(profile, path)
    return profile
