"""Evaluate a vulnerability scan of an image by the policy of the checkout (images/scan.yml). No scan is no pass."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Literal

import msgspec

from gpucheck.foreign.documents import DocumentProblem, parse
from gpucheck.images._finding import finding
from gpucheck.images.scanners import INSTALL, SEVERITIES, Scan, ScanError, Vulnerability
from gpucheck.images.updates import Update, counted
from gpucheck.images.versions import Variant, VersionsError
from gpucheck.model import Finding, Verdict

FILE = "images/scan.yml"
SCHEMA = "gpucheck.image-scan/1"
WORDS = 3
# TensorFlow's package without CUDA has another name.
DISTRIBUTIONS = {"torch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu")}
TODAYS = "a scan with a database of today"


class Accepted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding that passes until a day. package, variants: None for all."""

    id: str
    reason: str
    expires: date
    package: str | None = None
    variants: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.reason.split()) < WORDS:
            raise ValueError(f"{self.id}: reason: state in a sentence why it may pass")

    def covers(self, found: Vulnerability, variant: str) -> bool:
        """Return whether this is about the vulnerability in that variant, whatever the day."""
        here = self.variants is None or variant in self.variants
        return here and found.id == self.id and self.package in (None, found.package)


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"schema_": "schema"}):
    """images/scan.yml. only_fixable: a vulnerability without a fix passes."""

    schema_: Literal["gpucheck.scan-policy/1"]
    severities: tuple[Literal["CRITICAL", "HIGH", "MEDIUM", "LOW", "NEGLIGIBLE", "UNKNOWN"], ...]
    only_fixable: bool
    database_days: int
    exceptions: tuple[Accepted, ...] = ()

    def __post_init__(self) -> None:
        if not self.severities:
            raise ValueError("severities: is empty, so nothing would fail")
        if self.database_days < 1:
            raise ValueError("database_days: must be 1 or more")


class ImageScan(msgspec.Struct, frozen=True, kw_only=True):
    """One image. scan: None if it was not scanned. pending: package updates that it lacks, None if unknown."""

    variant: str
    tag: str
    scan: Scan | None
    pending: tuple[str, ...] | None
    verdict: Verdict
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    seconds: float


class ScanReport(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """The result of `gpucheck image scan`."""

    schema_: str
    policy: Policy
    verdict: Verdict
    images: tuple[ImageScan, ...]


def read_policy(root: Path) -> Policy:
    """Return the policy of a checkout. Raises VersionsError with file, line and key."""
    path = root / FILE
    try:
        return parse(path.read_text(encoding="utf-8"), str(path), Policy, trusted=True)
    except OSError as error:
        raise VersionsError(f"{path}: cannot be read: {error.strerror}. Run this from a checkout.") from error
    except DocumentProblem as error:
        raise VersionsError(f"{error}. Correct it, then scan again.") from error


def evaluate(
    name: str,
    variant: Variant,
    policy: Policy,
    result: Scan | ScanError,
    pending: Sequence[Update] | str,
    now: datetime,
) -> Iterator[Finding]:
    """Yield the findings about one image. pending: its package updates, or why they are unknown."""
    if isinstance(result, ScanError):
        yield finding(
            Verdict.UNKNOWN,
            str(result),
            TODAYS,
            why="the image was not scanned, so its known vulnerabilities are unknown",
            fix=result.hint,
            evidence=result.output,
        )
    else:
        yield from _blind(variant, policy, result, now)
        yield from _vulnerable(name, policy, result, now.date())
    yield _updates(name, pending)


def _blind(variant: Variant, policy: Policy, result: Scan, now: datetime) -> Iterator[Finding]:
    """Yield what the scanner could not see: no such image passes."""
    by = f"{result.scanner} {result.version or '(unknown version)'}"
    unseen = "absent vulnerabilities prove nothing about packages that the scanner does not know"
    if result.os is None:
        yield _unknown(f"{by} recognized no operating system in the image", unseen, INSTALL)
    elif not result.supported:
        why = "the vendor of this system no longer states vulnerabilities, so the scanner has no data about it"
        yield _unknown(f"{result.os} is out of support", why, "put a newer base into images/versions.yml")
    names = DISTRIBUTIONS[variant.framework]
    if result.python is not None and not set(names) & set(result.python):
        yield _unknown(f"{by} found no {variant.framework} in the image's Python packages", unseen, INSTALL)
    refresh = "let the scanner download its database (trivy image --download-db-only, grype db update), then scan again"
    if result.database is None:
        yield _unknown(f"{by}: date of its database unknown", "an old database has no new vulnerabilities", refresh)
    elif (age := (now - result.database).days) > policy.database_days:
        seen = f"{by}: its database is of {result.database:%Y-%m-%d}, {age} days old"
        yield _unknown(seen, f"vulnerabilities of the last {age} days are missing in it", refresh)


def _unknown(seen: str, why: str, fix: str) -> Finding:
    return finding(Verdict.UNKNOWN, seen, TODAYS, why=why, fix=fix)


def _vulnerable(name: str, policy: Policy, result: Scan, today: date) -> Iterator[Finding]:
    """Yield the vulnerabilities that fail, those that an exception lets pass, and exceptions that have expired."""
    failing: list[Vulnerability] = []
    passing: list[str] = []
    late = [one for one in policy.exceptions if one.expires < today]
    for found in sorted(set(result.vulnerabilities), key=_order):
        if found.severity not in policy.severities or (policy.only_fixable and found.fixed is None):
            continue
        valid = (one for one in policy.exceptions if one not in late and one.covers(found, name))
        if one := next(valid, None):
            passing.append(f"{found}; accepted until {one.expires}: {one.reason}")
        else:
            failing.append(found)
    used = [one for one in late if any(one.covers(found, name) for found in failing)]
    wanted = f"no vulnerability of severity {' or '.join(policy.severities)}{' with a fix' * policy.only_fixable}"
    total = len(set(result.vulnerabilities))
    ignored = (f"{result.scanner} ignored {result.ignored} more by its own rules",) if result.ignored else ()
    if failing:
        expired = tuple(f"the exception for {one.id} expired on {one.expires} ({FILE})" for one in used)
        yield finding(
            Verdict.FAIL,
            f"{_counted(failing)} of {total} vulnerabilities in {name}",
            wanted,
            why="the image has packages with known vulnerabilities" + " that have a fix" * policy.only_fixable,
            fix=_remedy(name, failing),
            evidence=(*expired, *map(str, failing), *ignored),
        )
    else:
        accepted = f", {len(passing)} accepted" if passing else ""
        yield finding(
            Verdict.PASS,
            f"{total} vulnerabilities, none that fails{accepted}",
            wanted,
            evidence=(*passing, *ignored),
        )
    for one in late:
        if one not in used and (one.variants is None or name in one.variants):
            yield finding(
                Verdict.WARN,
                f"the exception for {one.id} expired on {one.expires}",
                "exceptions that hold",
                why="no finding needs it any more",
                fix=f"remove it from {FILE}",
            )


def _order(found: Vulnerability) -> tuple[int, str, str]:
    return SEVERITIES.index(found.severity), found.package, found.id


def _counted(found: Sequence[Vulnerability]) -> str:
    counts = Counter(one.severity for one in found)
    return ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity])


def _remedy(name: str, found: Sequence[Vulnerability]) -> str:
    fixes = []
    if any(not one.python for one in found):
        fixes.append(f"gpucheck image build --fresh {name} installs the updates of the base")
    if any(one.python for one in found):
        fixes.append("for Python packages raise the version in constraints.txt, then gpucheck image versions --update")
    return "; ".join([*fixes, f"or accept one in {FILE} with a reason and a last day"])


def _updates(name: str, pending: Sequence[Update] | str) -> Finding:
    wanted = "no security update pending in the archive of the image's packages"
    if isinstance(pending, str):
        what, _, hint = pending.partition("\ndo: ")
        first, *rest = what.splitlines()
        return finding(
            Verdict.UNKNOWN,
            first,
            wanted,
            why="the package archive of the image did not respond",
            fix=hint or "check that a container reaches its package archive, then scan again",
            evidence=tuple(line.strip(" |") for line in rest),
        )
    seen = counted(pending)
    if not any(update.security for update in pending):
        return finding(Verdict.PASS, seen, wanted, evidence=tuple(map(str, pending)))
    return finding(
        Verdict.WARN,
        seen,
        wanted,
        why="the archive has fixes that the image lacks, whether a scanner knows them or not",
        fix=f"gpucheck image build --fresh {name}",
        evidence=tuple(map(str, pending)),
    )
