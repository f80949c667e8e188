"""From what hosts collected to the signed directory."""

import fcntl
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from gpucheck.bundle import contents, publisher, wheels
from gpucheck.bundle.contents import BundledSystem, BundleError, Manifest, OwnWheel, Verified
from gpucheck.bundle.folder import described, inventory
from gpucheck.bundle.publisher import CollectedPackage, Collection, file_digests, read_collected, regular_file
from gpucheck.bundle.signing import Signer, index_apt, index_dnf, signer
from gpucheck.processes.gnupg import homes
from gpucheck.stack.lock import Lock, read_lock_file
from gpucheck.stack.plan import Plan, plan


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """What is trusted in addition to the pinned keys: key files of this host, and packages (patterns) as they come."""

    keys: tuple[Path, ...] = ()
    unverified: tuple[str, ...] = ()


NO_OTHERS = Trust()


def make(
    target: Path,
    lock_file: Path,
    collected: Path,
    wheel: OwnWheel,
    key: str,
    say: Callable[[str], None],
    trust: Trust = NO_OTHERS,
) -> Manifest:
    """Make the bundle atomically. Raises BundleError and LockError. ``say``: called with the text of each step."""
    refuse_other_folder(target)
    lock = read_lock_file(lock_file)
    answers = [read_collected(path) for path in sorted(collected.glob("*.json"))]
    if not answers:
        raise BundleError(f"{collected}: contains no collected packages")
    plans = [_group_plan(lock, answer.group) for answer in answers]
    collections = [(p, answer, collected / answer.group) for p, answer in zip(plans, answers, strict=True)]
    target.parent.mkdir(parents=True, exist_ok=True)
    with _staging(target) as staged, signer(key) as signing:
        systems = {}
        for name in sorted({contents.system_of(plan) for plan in plans}):
            some = [one for one in collections if contents.system_of(one[0]) == name]
            systems[name] = _system(name, some, staged, signing, say, trust)
        shutil.copy(lock_file, staged / contents.LOCK)
        signing.public(staged / contents.KEY)
        groups = {p.group: contents.bundled_group(p, systems[contents.system_of(p)].versions) for p in plans}
        own = described(next(staged.glob(f"*/wheels/{wheel.name}"))).sha256
        manifest = Manifest(
            made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            key=signing.fingerprint,
            simulated=any(host.simulated for name in groups for host in lock.groups[name].hosts.values()),
            wheel=msgspec.structs.replace(wheel, sha256=own),
            groups=dict(sorted(groups.items())),
            systems=systems,
            files=inventory(staged),
        )
        (staged / contents.MANIFEST).write_bytes(contents.write_manifest(manifest))
        signing.detached(staged / contents.MANIFEST, staged / contents.SIGNATURE)
    return manifest


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A directory that takes the place of the target when the block ends well; the lock of the target is held.

    What killed runs have left is removed first. Raises BundleError if another run makes this bundle.
    """
    old, name = target.with_name(f".{target.name}.old"), re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target.with_name(f".{target.name}.lock"), flags, 0o600), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BundleError(f"{target}: another run makes this bundle. Wait for it, or set BUNDLE.") from None
        if old.is_dir() and not target.exists():
            old.rename(target)  # killed between the two renames below
        for left in [path for path in target.parent.iterdir() if name.fullmatch(path.name) or path == old]:
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            yield Path(folder)
            Path(folder).chmod(0o755)
            if target.exists():
                target.rename(old)
            Path(folder).rename(target)
        shutil.rmtree(old, ignore_errors=True)


def refuse_other_folder(target: Path) -> None:
    """Raise BundleError if the bundle would replace something that is not a bundle."""
    if target.is_dir() and any(target.iterdir()) and not (target / contents.MANIFEST).is_file():
        raise BundleError(f"{target}: contains other files and is not a bundle. Set BUNDLE to a new directory")
    if target.exists() and not target.is_dir():
        raise BundleError(f"{target}: is a file, and a bundle is a directory. Set BUNDLE to a new directory")


def _group_plan(lock: Lock, group: str) -> Plan:
    found = plan(lock, group=group)
    if not isinstance(found, Plan):
        raise BundleError(f"group {group}: rejected: {found.conflicts[0].because}. Run make plan.")
    return found


def _system(
    name: str,
    collections: list[Collection],
    staged: Path,
    signing: Signer,
    say: Callable[[str], None],
    trust: Trust,
) -> BundledSystem:
    manager, answers = collections[0][0].package_manager, [answer for _, answer, _ in collections]
    packages, wheel_folder = staged / name / "packages", staged / name / "wheels"
    packages.mkdir(parents=True)
    versions: dict[str, set[str]] = {}
    modules: dict[str, Path] = {}
    for _, answer, source in collections:
        for package in answer.packages:
            _take(regular_file(source / "packages", package.file), packages / package.file, package)
            versions.setdefault(package.name, set()).add(package.version)
        modules |= {module: regular_file(source, module) for module in answer.modules}
    say(f"{name}: checking the packages against the signed indexes of their publishers")
    verified = verify_packages(collections, packages, trust)
    say(f"{name}: {sum(map(len, versions.values()))} packages; writing and signing their list")
    if manager == "apt":
        index_apt(packages, signing)
    else:
        index_dnf(packages, signing, modules.values())
    for answer in answers:
        say(f"{name}: downloading the wheels for Python {answer.python.version}")
        lock = wheels.download(answer.requirements, answer.torch, answer.python, answer.pip_args, wheel_folder)
        shutil.copy(lock, staged / contents.PIP_LOCK)
    return BundledSystem(
        package_manager=manager,
        packages=f"{name}/packages",
        wheels=f"{name}/wheels",
        python=answers[0].python.version,
        versions={package: tuple(sorted(versions[package])) for package in sorted(versions)},
        not_offered=tuple(sorted({left for answer in answers for left in answer.not_offered})),
        verified=verified,
    )


def verify_packages(collections: Sequence[Collection], packages: Path, trust: Trust) -> Verified:
    """What vouches for each package. packages: the directory that holds them.

    Raises BundleError for one without a trusted signature, unless it is accepted.
    The digests of the rows are those of the files: they were compared when the files were taken.
    """
    by_key: Counter[str] = Counter()
    unverified: set[str] = set()
    with homes() as home:
        keys, repositories = publisher.keyring(home, collections, trust.keys)
        found = [row for _, answer, folder in collections for row in publisher.published(keys, folder, answer.metadata)]
    vouching = publisher.vouching(found, repositories, publisher.own_packages(plan for plan, _, _ in collections))
    rows = {package.sha256: package for _, answer, _ in collections for package in answer.packages}
    for package in rows.values():
        vouched = next((vouching[one] for one in file_digests(packages / package.file) if one in vouching), None)
        if vouched is None:
            unverified.add(package.name)
            continue
        key, row = vouched
        if (row.name, row.version, row.arch) != (package.name, package.version.removeprefix("0:"), package.arch):
            raise BundleError(
                f"{package.file}: the collecting host calls it {package.name} {package.version} {package.arch}, "
                f"its publisher {row.name} {row.version} {row.arch}. Do not trust that host until you know why."
            )
        by_key[key] += 1
    refused = sorted(name for name in unverified if not any(fnmatchcase(name, one) for one in trust.unverified))
    if refused:
        raise BundleError(
            f"{len(refused)} packages are not in an index signed by a trusted key: {contents.few(refused)}. A key "
            "counts for its own repository. Add the keyring of their publisher on this host to bundle_trusted_keys, "
            "or set bundle_accept_unverified."
        )
    return Verified(by_key=dict(sorted(by_key.items())), unverified=tuple(sorted(unverified)))


def _take(source: Path, target: Path, package: CollectedPackage) -> None:
    if source.stat().st_size != package.bytes or described(source).sha256 != package.sha256:
        raise BundleError(f"{source}: differs from what the host collected. Run make bundle again.")
    # A second host of the same system may bring the same file.
    if target.exists() and described(target).sha256 != package.sha256:
        raise BundleError(
            f"{package.file}: two hosts collected different packages of that name. Look at their sources."
        )
    if not target.exists():
        shutil.move(source, target)
