"""Compare plans with what their repositories hold: names, versions, dependencies, systems."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from typing import Any, Literal

import msgspec

from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import is_recorded
from gpucheck.repositories.fetching import Fetch, without_credentials
from gpucheck.repositories.index import Catalog, Index, Kind, Package, Relation, UnusableIndex, newest_first, rpm_parts
from gpucheck.repositories.reading import ARCHITECTURES, Row, read_index, systems_of
from gpucheck.stack.components import BY_NAME
from gpucheck.stack.plan import Plan
from gpucheck.stack.rdma import LIBRARIES

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

    @property
    def because(self) -> str:
        """Return why it is missing, with the nearest, as sentences."""
        nearest = f" Nearest: {', '.join(self.nearest)}." if self.nearest else ""
        return f"{self.why}.{nearest}"


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
    reasons += [f"{one.spec}: {one.because} {one.fix}." for one in packages if one.state == "missing"]
    reasons += [f"{row.of} requires {row.requires}: {row.why}." for row in dependencies]
    unread = any(row.state == "unreachable" for row in repositories) or any(one.state == "unknown" for one in packages)
    verdict: Literal["pass", "fail", "unknown"] = "fail" if reasons else "unknown" if unread else "pass"
    names = tuple(row.name for row in repositories)
    rows: dict[str, Any] = {"packages": packages, "dependencies": dependencies}
    return Group(
        group=name, verdict=verdict, reasons=tuple(reasons), repositories=names, download_bytes=download_bytes, **rows
    )


def verdict_of(groups: Sequence[Group]) -> Literal["pass", "fail", "unknown"]:
    verdicts = {group.verdict for group in groups}
    return "fail" if "fail" in verdicts else "unknown" if "unknown" in verdicts or not groups else "pass"


def to_text(report: RepositoryReport) -> str:
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
            lines += [f"  missing   {one.spec}", f"{'':12}{one.because}", f"{'':12}Fix: {one.fix}."]
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


NEAREST = 3
# What decides what is read of a repository, and how it is verified.
READ_BY = ("kind", "url", "key_url", "key_fingerprint", "suite", "components", "signed")
# Names that are compared with a missing one, which takes a second for every 20,000.
MOST_LOOKED_AT = 20_000
PCI_TOOLS = "pciutils"


def check_plans(plans: Sequence[Plan], fetch: Fetch, now: datetime) -> RepositoryReport:
    """Compare plans with their repositories; an index that several plans use is read once. now: with a time zone."""
    read: dict[tuple[str | None, ...], tuple[Repository, Index | None]] = {}
    groups = []
    for plan in plans:
        found = []
        for row in _rows(plan):
            # Two repositories may have one address: suites of one archive, or one that is signed in one group alone.
            key = (*(row.get(field) for field in READ_BY), plan.arch)
            if key not in read:
                read[key] = _read(row, plan.arch, fetch, now)
            found.append((row, *read[key]))
        groups.append(_compare(plan, found))
    repositories = tuple(row for row, _ in read.values())
    return RepositoryReport(verdict=verdict_of(groups), repositories=repositories, groups=tuple(groups))


def _rows(plan: Plan) -> list[Row]:
    extra = plan.dkms_source["repository"] if plan.dkms_source else None
    return [*plan.repositories, *([extra] if extra else [])]


def _read(row: Row, arch: str, fetch: Fetch, now: datetime) -> tuple[Repository, Index | None]:
    name, url = row["name"] or "", without_credentials(row["url"] or "")
    try:
        index = read_index(row, arch, fetch, now)
    except UnusableIndex as error:
        state: Any = "rejected" if error.rejected else "unreachable"
        return Repository(name=name, url=url, state=state, why=str(error), fix=error.do), None
    described = Repository(
        name=name, url=url, state="read", packages=len(index), made=index.made or None, signed_by=index.signed_by
    )
    return described, index


def _compare(plan: Plan, found: Sequence[tuple[Row, Repository, Index | None]]) -> Group:
    kind: Kind = plan.package_manager
    arch = ARCHITECTURES[kind][plan.arch]
    catalog = Catalog(kind, [index for _, _, index in found if index is not None], arch)
    unread = [state.name for _, state, index in found if index is None]
    mirrors = {str(row["name"]): index for row, _, index in found if index is not None and not _is_nvidias(row)}
    wanted = [(name, one) for name, component in plan.components.items() for one in component["packages"]]
    of_the_system = {PCI_TOOLS, *packages().fabric.subnet_manager.of_the_system}.union(*LIBRARIES.values())
    rows, chosen = [], []
    for component, one in wanted:
        why = "the hosts' own sources hold it (repositories: managed); make plan asks them" if plan.sources else ""
        if plan.archive and plan.stack.source in BY_NAME[component].in_archive:
            why = f"the archive of {plan.archive['suite']} holds it, among the hosts' own sources; make plan asks them"
        if why:
            rows.append(Planned(component=component, spec=one["spec"], state="unknown", why=why))
            continue
        package = _present(catalog, one, kind)
        if package is None and one["name"] in of_the_system:
            # From the system's own repositories, which are not read here.
            continue
        if package is None:
            rows.append(_missing(component, one, catalog, plan, unread, mirrors))
        else:
            chosen.append(package)
            rows.append(Planned(component=component, spec=one["spec"], state="present", size=package.size))
    try:
        problems, brought = _dependencies(chosen, catalog)
    except UnusableIndex as error:
        problems, brought = [], []
        name, why = "dependencies", str(error)
        rows.append(Planned(component=name, spec=name, state="unknown", why=why, fix=error.do))
    size = sum(package.size for package in (*chosen, *brought))
    return compared(plan.group, [state for _, state, _ in found], tuple(rows), tuple(problems), size)


def _version(one: Mapping[str, Any]) -> str:
    """The version that the package manager is asked for, empty for any."""
    rest = one["spec"][len(one["name"]) :]
    return rest[1:] if rest else ""


def _present(catalog: Catalog, one: Mapping[str, Any], kind: Kind) -> Package | None:
    rows = catalog.packages.get(one["name"], [])
    version = _version(one)
    if not version:
        newest = newest_first({row.version for row in rows}, kind)
        return next((row for row in rows if row.version == newest[0]), None)
    return next((row for row in rows if _same(row.version, version, kind)), None)


def _same(version: str, requested: str, kind: Kind) -> bool:
    """dnf takes any epoch if none is requested; apt compares the complete version."""
    if kind == "apt" or ":" in requested:
        return version == requested or (kind == "dnf" and rpm_parts(version) == rpm_parts(requested))
    return rpm_parts(version)[1:] == rpm_parts(requested)[1:]


def _missing(
    component: str,
    one: Mapping[str, Any],
    catalog: Catalog,
    plan: Plan,
    unread: Sequence[str],
    mirrors: Mapping[str, Index],
) -> Planned:
    kind: Kind = plan.package_manager
    name, requested = one["name"], _version(one)
    versions = {row.version for row in catalog.packages.get(name, ())}
    nearest = _nearest(requested, versions, kind) if versions else _names_like(name, catalog)
    if unread and not versions:
        why = f"not in what was read; {', '.join(unread)} could not be read"
        return Planned(component=component, spec=one["spec"], state="unknown", why=why)
    holding = [mirror for mirror, index in mirrors.items() if name in index.packages or not versions]
    why, fix = _why(name, requested, versions, plan, catalog, holding)
    return Planned(component=component, spec=one["spec"], state="missing", why=why, fix=fix, nearest=nearest)


def _why(
    name: str, requested: str, versions: set[str], plan: Plan, catalog: Catalog, mirrored: Sequence[str]
) -> tuple[str, str]:
    kind: Kind = plan.package_manager
    folder, arch = _folder(plan), plan.arch
    tag = f"el{plan.os['version'].partition('.')[0]}"
    systems = systems_of(one for rows in catalog.packages.values() for one in rows)
    if kind == "dnf" and systems and tag not in systems:
        return (
            f"the repositories are built for {', '.join(sorted(systems))}, and the hosts are {tag}",
            "Correct the url",
        )
    behind = bool(requested and versions) and all(catalog.compare(one, requested) < 0 for one in versions)
    known = is_recorded(folder, arch, name, requested or None)
    what = f"no repository has {'this version of ' if versions else ''}{name}"
    if mirrored and (known or behind):
        seen = "NVIDIA's repository has had it" if known else "what it has is older"
        which = f"{' and '.join(mirrored)} {'is a mirror' if len(mirrored) == 1 else 'are mirrors'}"
        return f"{what}; {which}, and {seen}: the mirror is behind", "Synchronize the mirror"
    if known:
        return f"{what}, where public records show it: it was withdrawn", "State another version in stack.yml"
    part = "the nearest version" if versions else "another version of the component"
    return what, f"State {part} in stack.yml, and report the wrong name or version to the project"


def _folder(plan: Plan) -> str:
    system = plan.os
    version = system["version"]
    if system["family"] == "debian":
        return f"{system['id']}{version.replace('.', '')}"
    return f"rhel{version.partition('.')[0]}"


def _is_nvidias(row: Row) -> bool:
    tables = packages().repositories
    url = row["url"] or ""
    own = (tables.cuda_url, tables.container_toolkit.apt_url, tables.container_toolkit.dnf_url)
    return url.startswith(tuple(one.partition("{")[0] for one in own)) or row["name"] == "gpucheck-epel"


def _nearest(requested: str, versions: set[str], kind: Kind) -> tuple[str, ...]:
    """The versions most like the planned one: its other revisions first, then its branch; each the newest first."""
    ordered = newest_first(versions, kind)

    def unlike(version: str) -> int:
        one, other = (text.rpartition(":")[2] for text in (version, requested))
        if one.partition("-")[0] == other.partition("-")[0]:
            return 0
        return 1 if one.partition(".")[0] == other.partition(".")[0] else 2

    return tuple(sorted(ordered, key=unlike)[:NEAREST])


def _names_like(name: str, catalog: Catalog) -> tuple[str, ...]:
    return tuple(get_close_matches(name, list(islice(catalog.packages, MOST_LOOKED_AT)), NEAREST, 0.75))


def _dependencies(chosen: Sequence[Package], catalog: Catalog) -> tuple[list[Dependency], list[Package]]:
    """Return what cannot be satisfied, and the further packages that are brought along.

    A name that no index of the plan has comes from the system's own repositories, and is not decided here.
    """
    planned = {package.name: package for package in chosen}
    problems, brought, queue = [], dict[str, Package](), list(chosen)
    offered: dict[str, list[str]] = {}
    for package in chosen:
        _offer(package, offered)
    while queue:
        package = queue.pop()
        for alternatives in package.requires:
            if any(catalog.fits(one, want) for want in alternatives for one in offered.get(want.name, ())):
                continue
            problem = _contradiction(package, alternatives, planned)
            candidates = [one for relation in alternatives for one in catalog.candidates(relation)]
            if problem is None and candidates:
                best = newest_first({one.version for one in candidates}, catalog.kind)[0]
                new = next(one for one in candidates if one.version == best)
                if new.name not in planned and new.name not in brought:
                    brought[new.name] = new
                    _offer(new, offered)
                    queue.append(new)
            elif problem is not None:
                problems.append(problem)
            elif any(catalog.knows(relation.name) for relation in alternatives):
                problems.append(_nothing(package, alternatives, catalog))
    return problems, list(brought.values())


def _offer(package: Package, offered: dict[str, list[str]]) -> None:
    """Add what a package satisfies: name -> versions, empty for none."""
    offered.setdefault(package.name, []).append(package.version)
    for one in package.provides:
        offered.setdefault(one.name, []).append(one.version)


def _contradiction(
    package: Package, alternatives: Iterable[Relation], planned: Mapping[str, Package]
) -> Dependency | None:
    """What the plan installs in a version that satisfies none of the alternatives, if it installs all of them."""
    if any(relation.name not in planned for relation in alternatives):
        return None
    names = [planned[relation.name] for relation in alternatives]
    why = f"the plan installs {', '.join(f'{one.name} {one.version}' for one in names)}"
    return _dependency(package, alternatives, why)


def _nothing(package: Package, alternatives: Iterable[Relation], catalog: Catalog) -> Dependency:
    there = {row.version for relation in alternatives for row in catalog.packages.get(relation.name, ())}
    versions = newest_first(there, catalog.kind)[:NEAREST]
    why = f"the repositories have {', '.join(versions)}" if versions else "no repository provides that version"
    return _dependency(package, alternatives, why)


def _dependency(package: Package, alternatives: Iterable[Relation], why: str) -> Dependency:
    return Dependency(of=f"{package.name} {package.version}", requires=" or ".join(map(str, alternatives)), why=why)
