"""Rows for the tables from NVIDIA's own lists: releases.json of all drivers, redistrib_*.json of one release.

Shape of releases.json: branch -> type and driver_info, a list of releases, Windows' among them. Of redistrib_*.json:
release_label, release_date and release_product, then components with their versions; of a driver the component
cuda_compat states its CUDA in cuda_variant, of cuDNN the component cudnn states its CUDA majors there.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gpucheck.foreign import UnreadableInput, read_text
from gpucheck.foreign.documents import DocumentProblem, load
from gpucheck.knowledge import _load, tables
from gpucheck.knowledge._load import FOLDER, merged, merged_table
from gpucheck.knowledge.tables import Branch, CudaTable, CudnnTable, DriverTable, Toolkit

Rows = dict[str, dict[str, Any]]
MOST_BYTES = 4 << 20
"""Of one list: releases.json has some 200 kB, a redistrib file of CUDA 100 kB."""
MOST_ROWS = 2000
# As they are in the tables.
TYPES = {"lts branch": "LTS", "production branch": "PB", "new feature branch": "NFB"}
TABLES: dict[str, type[DriverTable] | type[CudaTable] | type[CudnnTable]] = {
    "drivers.yml": DriverTable,
    "cuda.yml": CudaTable,
    "cudnn.yml": CudnnTable,
}
# Their keys with one row for each release or branch.
LISTS = ("branches", "toolkits", "releases")
Number = Annotated[str, msgspec.Meta(pattern=r"^\d{1,4}(\.\d{1,5}){1,3}$")]
Date = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\d$")]


class ReleaseListError(ValueError):
    """A list cannot be used. The message names it and what is wrong, in one line."""


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One release of releases.json."""

    release_version: Number
    release_date: Date


class ReleasedBranch(msgspec.Struct, frozen=True, kw_only=True):
    """One branch of releases.json."""

    type: Annotated[str, msgspec.Meta(max_length=80)]
    driver_info: Annotated[tuple[Release, ...], msgspec.Meta(max_length=MOST_ROWS)]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One component of a redistrib file."""

    version: Number | None = None
    cuda_variant: tuple[Annotated[str, msgspec.Meta(pattern=r"^\d+(\.\d+)?$")], ...] = ()


class Redistributed(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a redistrib file, and the components that something is read of."""

    release_label: Number
    release_date: Date
    release_product: Literal["nvidia-driver", "cuda", "cudnn"]
    cuda_compat: Part = Part()
    nvidia_driver: Part = Part()
    cudnn: Part = Part()


def read_list(content: bytes, name: str) -> Rows:
    """Return what a list adds to the tables that are in use: rows by name of the table. Raises ReleaseListError."""
    try:
        raw = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        if "release_label" in raw:
            return _redistributed(msgspec.json.decode(content, type=Redistributed))
        found = {key: msgspec.json.decode(value, type=ReleasedBranch) for key, value in raw.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReleaseListError(f"{name}: neither NVIDIA's releases.json nor a redistrib_*.json: {error}") from None
    wrong = next((key for key in found if not re.fullmatch(r"\d{1,4}", key)), None if found else "nothing")
    if wrong is not None:
        raise ReleaseListError(f"{name}: not NVIDIA's releases.json: it holds {wrong[:40]!r} in place of branches")
    rows = [row for key, value in found.items() if (row := _branch(key, value))]
    return {"drivers.yml": {"branches": sorted(rows, key=lambda row: int(row["branch"]))}} if rows else {}


def with_rows(existing: Rows, added: Rows) -> Rows:
    """Return a site's rows with more of them, each of which the tables accept. Raises ReleaseListError."""
    found = {**existing, **{name: merged(existing.get(name, {}), rows) for name, rows in added.items()}}
    try:
        for name in added:
            msgspec.convert(merged_table(_shipped(name), found[name]), TABLES[name])
    except msgspec.ValidationError as error:
        raise ReleaseListError(f"{', '.join(added)}: the rows do not fit the tables: {error}") from None
    return found


def newer_rows(name: str, rows: dict[str, Any]) -> dict[str, Any]:
    """Return the rows that are newer than what is shipped: an update of gpucheck can have overtaken the others."""
    shipped = _shipped(name)
    have = {str(row.get("branch") or row["version"]): row for key in LISTS for row in shipped.get(key, ())}

    def overtaken(row: dict[str, Any]) -> bool:
        known = have.get(str(row.get("branch") or row["version"]), {})
        newest = known.get("last") or known.get("version")
        stated = row.get("last") or row.get("version")
        return bool(newest and stated and _numbers(newest) >= _numbers(stated))

    return {key: [row for row in value if not overtaken(row)] if key in LISTS else value for key, value in rows.items()}


def changes(added: Rows) -> Iterator[str]:
    for row in added.get("drivers.yml", {}).get("branches", ()):
        new = [row.get("last"), row.get("type"), "native_cuda" in row and f"CUDA {row['native_cuda']}"]
        yield f"driver branch {row['branch']}: {', '.join(filter(None, new))}"
    for row in added.get("cuda.yml", {}).get("toolkits", ()):
        yield f"CUDA {row['version']}, driver {row.get('driver_full', 'not known')}"
    yield from (f"cuDNN {row['version']}" for row in added.get("cudnn.yml", {}).get("releases", ()))


def new_branches(added: Rows) -> list[str]:
    """Return the newest versions of drivers whose CUDA version no table has: their redistrib files state it."""
    return [row["last"] for row in added.get("drivers.yml", {}).get("branches", ()) if "state" in row]


def _shipped(name: str) -> dict[str, Any]:
    from gpucheck.foreign.documents import parse

    path = FOLDER / name
    found: dict[str, Any] = parse(path.read_text(encoding="utf-8"), str(path), dict, trusted=True)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _known(branch: str) -> Branch | None:
    return next((row for row in tables.drivers().branches if row.branch == branch), None)


def _branch(branch: str, found: ReleasedBranch) -> dict[str, Any] | None:
    """Return what a branch of releases.json adds; None for nothing, and for old branches that no table has."""
    # Windows' releases have numbers of their own.
    linux = sorted(
        (row for row in found.driver_info if row.release_version.startswith(f"{branch}.")),
        key=lambda row: _numbers(row.release_version),
    )
    if not linux:
        return None
    return _driver(branch, linux[-1].release_version, TYPES.get(found.type), linux[0])


def _driver(branch: str, version: str, kind: str | None, first: Release) -> dict[str, Any] | None:
    known = _known(branch)
    if known is None:
        newest = max(tables.drivers().branches, key=lambda row: int(row.branch))
        if int(branch) < int(newest.branch):
            return None
        return {
            "branch": branch,
            **({"type": kind} if kind else {}),
            "state": "supported",
            "released": first.release_date,
            "first": first.release_version,
            "last": version,
            "architectures": list(newest.architectures),
            "kernel_modules": list(newest.kernel_modules),
            "confidence": f"version and type from NVIDIA; architectures and modules carried over from {newest.branch}",
        }
    later = known.last is None or _numbers(version) > _numbers(known.last)
    row = {**({"last": version} if later else {}), **({"type": kind} if kind and kind != known.type else {})}
    return {"branch": branch, **row} if row else None


def _redistributed(found: Redistributed) -> Rows:
    if found.release_product == "cudnn":
        return _cudnn(found)
    if found.release_product == "cuda":
        return _cuda(found)
    branch = found.release_label.partition(".")[0]
    first = Release(release_version=found.release_label, release_date=found.release_date)
    row = _driver(branch, found.release_label, None, first) or {"branch": branch}
    known = _known(branch)
    cuda = found.cuda_compat.cuda_variant[-1] if found.cuda_compat.cuda_variant else None
    if cuda and (known.native_cuda if known else None) != cuda:
        row["native_cuda"] = cuda
    return {"drivers.yml": {"branches": [row]}} if len(row) > 1 else {}


def _cuda(found: Redistributed) -> Rows:
    """Return the toolkit, with the GPUs of the newest one of its major; a new major has other ones."""
    version = found.release_label
    major, minor = version.partition(".")[0], ".".join(version.split(".")[:2])
    same: Mapping[str, Toolkit] = {
        row.version: row for row in tables.cuda().toolkits if row.version.partition(".")[0] == major
    }
    if not same:
        raise ReleaseListError(f"CUDA {version}: a new major, whose GPUs and drivers are in no list: update gpucheck")
    if version in same:
        return {}
    # With it came: of the file itself until 13.3, then the driver branch that has its CUDA version.
    branch = next((row for row in tables.drivers().branches if row.native_cuda == minor and row.last), None)
    driver = found.nvidia_driver.version or (branch.last if branch else None)
    like = max(same.values(), key=lambda row: _numbers(row.version))
    row = {
        "version": version,
        **({"driver_branch": driver.partition(".")[0], "driver_full": driver} if driver else {}),
        "driver_minor": like.driver_minor,
        "min_cc": like.min_cc,
        "max_cc": like.max_cc,
        "date": found.release_date,
        "confidence": f"version from NVIDIA; GPUs carried over from {like.version}",
    }
    return {"cuda.yml": {"toolkits": [row]}}


def _cudnn(found: Redistributed) -> Rows:
    """Return the release, with the range of GPUs of the nearest older one, which auto does not choose."""
    version, majors = found.cudnn.version, [int(one) for one in found.cudnn.cuda_variant if one.isdigit()]
    if version is None or not majors:
        raise ReleaseListError(f"cuDNN {found.release_label}: its list states no version or no CUDA of cudnn")
    releases = tables.cudnn().releases
    older = [row for row in releases if _numbers(row.version) < _numbers(version)]
    if any(row.version == version for row in releases) or not older:
        return {}
    like = max(older, key=lambda row: _numbers(row.version))
    row = {
        "version": version,
        "cuda_majors": majors,
        **({"min_cc": like.min_cc} if like.min_cc else {}),
        **({"max_cc": like.max_cc} if like.max_cc else {}),
        "basis": f"carried over from {like.version}",
        "date": found.release_date,
    }
    return {"cudnn.yml": {"releases": [row]}}


MOST_TABLE_BYTES = 16 << 20
# The first line of a file that gpucheck wrote, and may write again.
MADE = "# Made by gpucheck stack tables --update, which replaces it: keep your own rows in another directory.\n"


class SiteTableError(Exception):
    """A file of --knowledge-dir cannot be used. The message names it."""


def use_site_tables(folder: Path) -> tuple[str, ...]:
    """Take the rows of a directory from now on; returns the names of its tables. Raises SiteTableError.

    Call it before any table is read: each is parsed once per process.
    """
    found = {}
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise SiteTableError(f"{folder}: {error.strerror}") from None
    known = sorted(path.name for path in _load.FOLDER.glob("*.yml"))
    for name in names:
        if name not in known:
            raise SiteTableError(f"{folder / name}: no such table. Known: {', '.join(known)}")
        found[name] = site_rows(folder / name)
    _load.use(folder, found)
    return tuple(found)


def own_folder() -> Path:
    """The user's directory, which is used if it exists and no other is named."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    try:
        data = named if named.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError:  # a user without a home directory
        data = Path("/nonexistent")
    return (data if data.is_absolute() else Path("/nonexistent")) / "gpucheck" / "knowledge"


def is_there(folder: Path) -> bool:
    """Whether a directory exists, as far as this user can find out."""
    try:
        return folder.is_dir()
    except OSError:
        return False


def made_text(name: str, rows: dict[str, Any]) -> str:
    """Rows as the text of a table; equal rows give equal text."""
    import yaml

    schema = f"gpucheck.knowledge.{Path(name).stem}/1"
    body: str = yaml.safe_dump({"schema": schema, **rows}, sort_keys=False, width=120)
    return MADE + body


def site_rows(path: Path) -> dict[str, Any]:
    """Return the rows of one file. Raises SiteTableError."""
    try:
        rows = load(read_text(path, MOST_TABLE_BYTES, "Name another directory"))
    except (DocumentProblem, UnreadableInput) as problem:
        raise SiteTableError(f"{path}: {problem}") from None
    if not isinstance(rows, dict):
        raise SiteTableError(f"{path}: must be 'key: value' lines as in the shipped table")
    if path.name in TABLES and made_here(path):
        return newer_rows(path.name, rows)
    return rows


def made_here(path: Path) -> bool:
    """Whether gpucheck wrote a file of rows."""
    with path.open(encoding="utf-8") as file:
        return file.readline() == MADE
