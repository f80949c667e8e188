"""The result of comparing plans with repositories: ``gpucheck.repositories/1``."""

from collections.abc import Sequence
from typing import Literal

import msgspec

SCHEMA = "gpucheck.repositories/1"


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """One repository that plans use.

    state: read; rejected, it was read and is not acceptable; or unreachable, nothing is known of what it holds.
    packages: versions listed; made: ISO 8601 time of the index, None if it states none; signed_by: fingerprint.
    """

    name: str
    url: str
    state: Literal["read", "rejected", "unreachable"]
    why: str = ""
    fix: str = ""
    packages: int = 0
    made: str | None = None
    signed_by: str | None = None


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One package of a plan. state: present, missing, or unknown because no repository of the plan could be read.

    nearest: versions of it that exist, or names like it; size: bytes to download.
    """

    component: str
    spec: str
    state: Literal["present", "missing", "unknown"]
    why: str = ""
    fix: str = ""
    nearest: tuple[str, ...] = ()
    size: int = 0


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency of a planned package that cannot be satisfied. of: the package and its version."""

    of: str
    requires: str
    why: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One plan compared. verdict: fail if its packages cannot be installed; reasons: why, one sentence each.

    repositories: names of those it uses; download_bytes: of the planned packages and what they bring from these.
    """

    group: str
    verdict: Literal["pass", "fail", "unknown"]
    reasons: tuple[str, ...]
    repositories: tuple[str, ...]
    packages: tuple[Planned, ...]
    dependencies: tuple[Dependency, ...]
    download_bytes: int


class RepositoryReport(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """All plans and repositories. verdict: fail for anything missing or rejected, unknown if something was not read."""

    schema_: str = SCHEMA
    verdict: Literal["pass", "fail", "unknown"]
    repositories: tuple[Repository, ...]
    groups: tuple[Group, ...]


def compared(
    name: str,
    repositories: Sequence[Repository],
    packages: tuple[Planned, ...],
    dependencies: tuple[Dependency, ...],
    download_bytes: int,
) -> Group:
    """Return a group with its verdict, the worst of what it is made of."""
    reasons = [f"{row.name} {row.url}: {row.why}. {row.fix}." for row in repositories if row.state == "rejected"]
    for one in packages:
        if one.state == "missing":
            nearest = f" Nearest: {', '.join(one.nearest)}." if one.nearest else ""
            reasons.append(f"{one.spec}: {one.why}.{nearest} {one.fix}.")
    reasons += [f"{row.of} requires {row.requires}: {row.why}." for row in dependencies]
    unread = any(row.state == "unreachable" for row in repositories) or any(one.state == "unknown" for one in packages)
    return Group(
        group=name,
        verdict="fail" if reasons else "unknown" if unread else "pass",
        reasons=tuple(reasons),
        repositories=tuple(row.name for row in repositories),
        packages=packages,
        dependencies=dependencies,
        download_bytes=download_bytes,
    )


def verdict_of(groups: Sequence[Group]) -> Literal["pass", "fail", "unknown"]:
    """Return the worst of all: fail, unknown, pass. Nothing compared is unknown."""
    verdicts = {group.verdict for group in groups}
    return "fail" if "fail" in verdicts else "unknown" if "unknown" in verdicts or not groups else "pass"


def to_text(report: RepositoryReport) -> str:
    """Return the report for a terminal."""
    lines = ["Repositories"]
    for row in report.repositories:
        lines.append(f"  {row.state:<12}{row.name}  {row.url}")
        if row.state == "read":
            signed = f"signed by {row.signed_by}" if row.signed_by else "index not signed, only its packages are"
            lines.append(f"{'':14}{row.packages} packages, made {row.made or 'at an unknown time'}, {signed}")
        else:
            lines += [f"{'':14}{row.why}.", f"{'':14}Fix: {row.fix}."]
    for group in report.groups:
        lines += ["", *_group_lines(group)]
    return "\n".join(lines)


def _group_lines(group: Group) -> list[str]:
    present = sum(one.state == "present" for one in group.packages)
    lines = [f"{group.group}: {present} of {len(group.packages)} planned packages are there"]
    if group.download_bytes:
        lines[0] += f", download at least {_size(group.download_bytes)}"
    for one in group.packages:
        if one.state == "missing":
            nearest = f" Nearest: {', '.join(one.nearest)}." if one.nearest else ""
            lines += [f"  missing   {one.spec}", f"{'':12}{one.why}.{nearest}", f"{'':12}Fix: {one.fix}."]
    for row in group.dependencies:
        lines += [f"  conflict  {row.of} requires {row.requires}", f"{'':12}{row.why}."]
    # They share their reason: what could not be read.
    unknown = [one for one in group.packages if one.state == "unknown"]
    if unknown:
        lines += [f"  unknown   {len(unknown)} package{'s' * (len(unknown) > 1)}: {unknown[0].why}"]
        lines += [f"{'':12}{one.spec}" for one in unknown]
    return lines


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
