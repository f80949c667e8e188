"""Package files that stay on the host for a rollback, because repositories remove what they replace.

current has the files of the set that is installed, previous those of the set before it; a file of both is one with two
names. They come from the package manager's cache, where its signatures were verified.
"""

import contextlib
import glob
import os
import shutil

from . import host_plan, origin, record
from .place import stored

FOLDER = "/var/lib/gpucheck/packages"
CURRENT, PREVIOUS = "current", "previous"
# apt keeps a file after it has installed it; dnf does where it is asked to.
CACHES = ("/var/cache/apt/archives/*.deb", "/var/cache/dnf/*/packages/*.rpm")


def named(path):
    """(name, version without an epoch) of a package file, by its name."""
    file, kind = os.path.splitext(os.path.basename(path))
    if kind == ".rpm":
        name, version, release = file.rpartition(".")[0].rsplit("-", 2)
        return name, f"{version}-{release}"
    # apt writes the colon of an epoch as %3a.
    name, version, _ = file.split("_")
    return name, without_epoch(version.replace("%3a", ":"))


def name_of(word):
    """The package's name in a spec: ``name=version``, a name, or a path."""
    return named(word)[0] if word.startswith("/") else word.split("=")[0]


def without_epoch(version):
    """A version as it is in a file's name."""
    return version.rpartition(":")[2]


def files(*patterns):
    """{(name, version): path} of the package files that fit."""
    found = {}
    for path in [path for pattern in patterns for path in sorted(glob.glob(pattern, recursive=True))]:
        with contextlib.suppress(ValueError):
            found[named(path)] = path
    return found


def folder_files(name):
    return files(os.path.join(FOLDER, name, "*"))


def keep(names, packages, other_set, most_bytes):
    """Keep the files of the packages that are installed now, and of the set before; remove all others of this folder.

    names: of packages that gpucheck installed. packages: {name: version} installed. other_set: whether the set is
    another than at the last call. most_bytes: the largest files go first beyond it. Raises OSError.
    """
    current, previous, cached = folder_files(CURRENT), folder_files(PREVIOUS), files(*CACHES)
    there = {(name, without_epoch(packages[name])) for name in set(names) & set(packages)}
    before = current if other_set else previous
    fresh = {key: path for key, path in cached.items() if key in there}
    pool = joined(fresh, previous, current)
    room = shutil.disk_usage(os.path.dirname(FOLDER))
    most_bytes = min(most_bytes, (room.free + total([*current.values(), *previous.values()])) // 3)
    wanted = {CURRENT: {key: pool[key] for key in there & set(pool)}, PREVIOUS: dict(before)}
    every = joined(*wanted.values())
    for key in sorted(every, key=lambda key: -os.path.getsize(every[key])):
        if total(every.values()) <= most_bytes:
            break
        del every[key]
    new = FOLDER + ".new"
    shutil.rmtree(new, ignore_errors=True)
    for part, rows in wanted.items():
        os.makedirs(os.path.join(new, part), 0o755)
        for key in set(rows) & set(every):
            place(rows[key], os.path.join(new, part, os.path.basename(rows[key])))
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.rename(new, FOLDER)
    for path in fresh.values():
        # Space that stays taken is no reason to fail a host that is as planned.
        with contextlib.suppress(OSError):
            os.unlink(path)


def joined(*rows):
    """One dictionary of all, in which the last one counts."""
    return dict(pair for row in rows for pair in row.items())


def place(source, target):
    """Give a file another name; its content is copied only from another file system. Raises OSError."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def total(paths):
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in map(os.stat, paths)}.values())


def of_plan(plan):
    """{(name, version): path} of the files that are kept for this plan, the installed one or the one before it."""
    if host_plan.recorded_plan() == plan:
        return folder_files(CURRENT)
    return folder_files(PREVIOUS) if stored(record.PREVIOUS) == plan else {}


def path_for(row, there):
    """The kept file of a planned package, None without one. A package without a version has that of its set."""
    fitting = [path for (name, version), path in there.items() if name == row["name"] and fits(row, version)]
    return fitting[0] if fitting else None


def fits(row, version):
    return row["version"] is None or without_epoch(row["version"]) == version


def in_place_of(specs, plan, packages):
    """The specs of a transaction, with the files that are kept for this plan in place of names.

    With the first such file come those of everything else of NVIDIA's in that set, as no repository may have it.
    """
    there = of_plan(plan) if specs else {}
    rows = [row for name in plan["components"] for row in host_plan.component(plan, name)[0]]
    paths = {row["spec"]: path for row, path in ((row, path_for(row, there)) for row in rows) if path}
    if not set(paths) & set(specs):
        return specs
    names = {row["name"] for row in rows}
    along = [
        path
        for (name, version), path in sorted(there.items())
        if name not in names and origin.NAMES.search(name) and without_epoch(packages.get(name, "")) != version
    ]
    return [paths.get(spec, spec) for spec in specs] + along
