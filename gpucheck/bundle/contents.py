"""bundle.json: what a bundle holds, for which groups, and the digest of every file in it."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import msgspec

from gpucheck.printable import of_printable
from gpucheck.stack.facts import HostFacts, find_os, normal_arch
from gpucheck.stack.lock import Lock
from gpucheck.stack.plan import Plan
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import Conflict, Fact, Refusal, TorchChoice

MANIFEST = "bundle.json"
SIGNATURE = "bundle.json.asc"
KEY = "key.asc"
LOCK = "stack.lock.yml"
# Versions and hashes of what pip installs next to torch; it came with gpucheck's wheel.
PIP_LOCK = "requirements.lock"
MIB, GIB = 2**20, 2**30


class BundleError(Exception):
    """A bundle cannot be made or used. The message states what, where, why and what to do."""


class BundleDamaged(BundleError):
    """A bundle is not as it was signed."""


# A plain file name: no separator, no leading dot or dash, no control character, nothing that a program takes for an
# option, and short enough for every file system.
PlainName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+~^%:-]{0,249}\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
# As isoformat writes UTC: as text, later is greater.
Moment = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\+00:00\Z")]


class BundledFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file: hex SHA-256 and size in bytes."""

    sha256: Digest
    bytes: Annotated[int, msgspec.Meta(ge=0)]


class BundledGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of the lock that can be provisioned. packages: planned name -> version, None = the newest then.

    headers: those of the planned kernel headers that are in it.
    """

    system: str
    stack: StackSet
    packages: dict[str, str | None]
    headers: tuple[str, ...]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What vouches for the packages. by_key: fingerprint -> how many; unverified: names that no trusted key signed."""

    by_key: dict[str, int] = {}
    unverified: tuple[str, ...] = ()


class BundledSystem(msgspec.Struct, frozen=True, kw_only=True):
    """What all groups of one operating system share. packages and wheels: directories of the bundle.

    versions: every package that is in it, with its versions. python: the version that the wheels are for.
    """

    package_manager: Literal["apt", "dnf"]
    packages: str
    wheels: str
    python: str
    versions: dict[str, tuple[str, ...]]
    not_offered: tuple[str, ...]
    verified: Verified = Verified()


class OwnWheel(msgspec.Struct, frozen=True, kw_only=True):
    """gpucheck's wheel: its file name, the digest of its sources, the oldest Python it runs on, its own SHA-256."""

    name: PlainName
    digest: str
    python_minimum: str
    sha256: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """The outside contract ``gpucheck.bundle/1``. key: fingerprint of what signed it; files: by path in the bundle.

    simulated: one of its hosts has simulated hardware, so its packages may be stubs.
    """

    schema_: Literal["gpucheck.bundle/1"] = "gpucheck.bundle/1"
    made: Moment
    key: str
    simulated: bool
    wheel: OwnWheel
    groups: dict[PlainName, BundledGroup]
    systems: dict[PlainName, BundledSystem]
    files: dict[str, BundledFile]


def write_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON; equal manifests give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=2) + b"\n"


def read_manifest(content: bytes, name: str) -> Manifest:
    """The manifest in JSON text. Raises BundleError naming ``name``."""
    try:
        return msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(
            f"{name}: this is not a manifest of a bundle: {error}. Make a new bundle: make bundle"
        ) from error


@of_printable
def manifest_text(manifest: Manifest) -> str:
    """What is in it, for whom, how large, and who signed it."""
    mark = " SIMULATED" if manifest.simulated else ""
    total = sum(file.bytes for file in manifest.files.values())
    lines = [
        f"bundle of {manifest.made}, {size(total)}, {len(manifest.files)} files{mark}",
        f"signed by {manifest.key}",
    ]
    for name, system in manifest.systems.items():
        count = sum(map(len, system.versions.values()))
        packages, wheels = (
            [file.bytes for path, file in manifest.files.items() if path.startswith(f"{folder}/")]
            for folder in (system.packages, system.wheels)
        )
        lines.append(
            f"{name}: {count} {system.package_manager} packages ({size(sum(packages))}), "
            f"{len(wheels)} wheels for Python {system.python} ({size(sum(wheels))})"
        )
        lines += [f"  for group {group}" for group, row in manifest.groups.items() if row.system == name]
        lines += [f"  {n} verified with key {key}" for key, n in system.verified.by_key.items()]
        if system.verified.unverified:
            names = ", ".join(system.verified.unverified)
            lines.append(f"  unverified, accepted by bundle_accept_unverified: {names}")
        if system.not_offered:
            lines.append(f"  no source offered {', '.join(system.not_offered)}: hosts need to have it already")
    return "\n".join(lines)


def size(count: int) -> str:
    """``4.2 GiB`` or ``0.3 MiB``."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.1f} MiB"


# Where a host keeps its share of the bundle; the roles know the same place.
HOST_FOLDER = "/var/lib/gpucheck/bundle"
NAME = "gpucheck-bundle"
# What the roles install in addition to the plan if a host lacks it.
TOOLS = {"apt": ("python3-venv", "python3-apt"), "dnf": ("python3-dnf-plugin-versionlock",)}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What one host collects for a group by its plan. wanted: with versions; optional: where a source offers them."""

    group: str
    host: str
    wanted: tuple[str, ...]
    optional: tuple[str, ...]
    repositories: tuple[dict[str, str | None], ...]


def chosen_groups(lock: Lock, patterns: Sequence[str]) -> list[str]:
    """The groups of a lock that the patterns (``rocky-*``) mean, all of them without any. Raises BundleError."""
    if not lock.groups:
        raise BundleError("the lock has no group of hosts, so there is nothing to bundle. Run make plan to see why.")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in lock.groups):
            raise BundleError(f"GROUPS: no group {pattern!r} in the lock. It has: {', '.join(lock.groups)}.")
    return [name for name in lock.groups if not patterns or any(fnmatchcase(name, p) for p in patterns)]


def system_of(plan: Plan) -> str:
    """``rocky-9-x86_64``: hosts that share packages and wheels."""
    return f"{plan.os['id']}-{plan.os['version']}-{plan.arch}"


def system_of_host(facts: HostFacts) -> str:
    """The same for a host that was read. Raises UnknownInput."""
    system = find_os(f"{facts.os.id}-{facts.os.version}")
    return f"{system.os_id}-{system.version}-{normal_arch(facts.arch)}"


def order(plan: Plan, host: str) -> Order:
    """What belongs into the bundle for a group. plan: of the whole group; host: who collects it."""
    return Order(
        group=plan.group,
        host=host,
        wanted=tuple(package["spec"] for package in planned(plan)),
        # A host may have its headers already, so headers missing in the source are no reason to stop here.
        optional=(*for_kernels(plan), *plan.compilers, *plan.python.get("packages", ()), *TOOLS[plan.package_manager]),
        repositories=sources(plan),
    )


def sources(plan: Plan) -> tuple[dict[str, str | None], ...]:
    """The repositories that packages of a plan are collected from, that of DKMS included."""
    dkms = plan.dkms_source["repository"] if plan.dkms_source and not plan.prerequisites else None
    return (*plan.repositories, *([dkms] if dkms else []))


def collector(plan: Plan, answering: Mapping[str, str]) -> str:
    """The first host of a group that answers, else one of the same system. Raises BundleError.

    plan: of the group; answering: host -> system.
    """
    system = system_of(plan)
    for host in (*plan.hosts, *answering):
        if answering.get(host) == system:
            return host
    raise BundleError(
        f"group {plan.group}: no host with {system} responds, but one must collect the packages. Start one, add "
        "a host that reaches the sources to group collectors of the inventory, or choose other groups with GROUPS."
    )


def planned(plan: Plan) -> list[dict[str, Any]]:
    return [package for component in plan.components.values() for package in component["packages"]]


def bundled_group(plan: Plan, versions: dict[str, tuple[str, ...]]) -> BundledGroup:
    """The group's entry of the manifest. versions: what was collected. Raises BundleError where one is missing."""
    packages = {package["name"]: package["version"] for package in planned(plan)}
    missing = [
        name for name, version in packages.items() if name not in versions or version not in {None, *versions[name]}
    ]
    if missing:
        raise BundleError(
            f"group {plan.group}: {', '.join(missing)} was planned but not collected. The package manager chose "
            "another version or package: check the sources of the host that collected."
        )
    headers = tuple(name for name in for_kernels(plan) if has_spec(versions, name))
    return BundledGroup(system=system_of(plan), stack=plan.stack, packages=packages, headers=headers)


def for_kernels(plan: Plan) -> tuple[str, ...]:
    """Packages for the kernels of the lock: headers that DKMS builds with, or modules that the distribution built."""
    return (*plan.headers, *(plan.kernel_modules["packages"] if plan.kernel_modules else ()))


def has_spec(versions: dict[str, tuple[str, ...]], spec: str) -> bool:
    """Whether a package ``name`` or ``name-version.arch``, as header packages are planned, was collected."""
    return spec in versions or any(
        spec.startswith(f"{name}-{version}") for name, several in versions.items() for version in several
    )


def bundled_plan(plan: Plan, manifest: Manifest, name: str) -> Plan | Refusal:
    """The plan with the bundle as its one source, or why this bundle does not serve it. name: the bundle's folder."""
    group = manifest.groups.get(plan.group)
    if group is None:
        held = f"the bundle {name} holds {', '.join(manifest.groups)}"
        because = f"the bundle {name} was not made for group {plan.group}"
        advice = f"make a bundle with GROUPS={plan.group}, or leave these hosts out (LIMIT)"
        return _refused(plan, held, because, advice)
    differing = _differences(plan, group)
    if differing:
        planned_, there = (few([pair[side] for pair in differing], "; ") for side in (0, 1))
        held = f"the bundle {name} was made for {there}"
        because = f"the lock and the bundle {name} are out of step: the plan has {planned_}"
        advice = f"copy {name}/stack.lock.yml over your lock, or make a new bundle from your lock (make bundle)"
        return _refused(plan, held, because, advice)
    repository = _repository(manifest.systems[group.system], manifest.key)
    # What would only bring further sources has no use there.
    return msgspec.structs.replace(
        plan,
        repositories=(repository,),
        prerequisites=(),
        dkms_source=None,
        # The bundle has no later kernel, and so no package that follows one.
        header_metapackage=None,
        kernel_modules={**plan.kernel_modules, "flavors": False} if plan.kernel_modules else None,
    )


def _differences(plan: Plan, group: BundledGroup) -> list[tuple[str, str]]:
    def words(packages: Mapping[str, str | None], torch: TorchChoice | None) -> list[str]:
        rows = [f"{name} {packages[name] or '(newest)'}" if name in packages else f"no {name}" for name in names]
        return [*rows, f"torch {torch.version}+{torch.build}" if torch else "no torch"]

    packages = {package["name"]: package["version"] for package in planned(plan)}
    names = sorted({*packages, *group.packages})
    pairs = zip(words(packages, plan.stack.torch), words(group.packages, group.stack.torch), strict=True)
    return [(here, there) for here, there in pairs if here != there]


def few(words: Sequence[str], separator: str = ", ", most: int = 3) -> str:
    """The first of them, and how many more there are."""
    return separator.join([*words[:most], *([f"and {len(words) - most} more"] if len(words) > most else [])])


def _refused(plan: Plan, held: str, because: str, try_: str) -> Refusal:
    between = (Fact(f"{', '.join(plan.hosts)}: planned as group {plan.group}", "the lock"), Fact(held, "bundle.json"))
    return Refusal(conflicts=(Conflict(between=between, because=because, source="bundle.json", try_=try_),))


def _repository(system: BundledSystem, key: str) -> dict[str, str | None]:
    """The bundle's packages as they lie on the host. Its metadata is signed, and vouches for every package."""
    apt = system.package_manager == "apt"
    url = f"file:{HOST_FOLDER}/packages" if apt else f"file://{HOST_FOLDER}/packages"
    row: dict[str, str | None] = {"name": NAME, "kind": system.package_manager, "url": url}
    row |= {"key_url": f"file://{HOST_FOLDER}/key.asc", "key_fingerprint": key}
    own = {"suite": "./", "keyring": f"/usr/share/keyrings/{NAME}.gpg"} if apt else {"signed": "metadata"}
    return row | own


def host_files(manifest: Manifest, group: str) -> dict[str, str]:
    """What a host of a group gets: path on the host, below its directory -> path in the bundle."""
    system = manifest.systems[manifest.groups[group].system]
    places = {system.packages: "packages", system.wheels: "wheels"}
    pairs = ((path, *pair) for path in manifest.files for pair in places.items())
    found = {f"{place}{path.removeprefix(old)}": path for path, old, place in pairs if path.startswith(f"{old}/")}
    return {KEY: KEY, **found}
