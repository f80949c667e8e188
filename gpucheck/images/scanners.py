"""Run a vulnerability scanner, Trivy or Grype, on an image of this engine, and read its result.

Result formats: Trivy's JSON report of schema 2 (github.com/aquasecurity/trivy, integration/testdata/*.json.golden) and
its `version --format json`; Grype's JSON (github.com/anchore/grype, grype/presenter/json). Keys that are not used here
may be missing.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from gpucheck.processes.temporary import temporary_folder

SECONDS = 1800
# The first one on PATH is used.
KINDS = ("trivy", "grype")
SEVERITIES = ("CRITICAL", "HIGH", "MEDIUM", "LOW", "NEGLIGIBLE", "UNKNOWN")
PYTHON = ("python-pkg", "python")
INSTALL = (
    "install trivy (docs/integrations/containers/images.yml has a version with its checksum) or grype, or name one "
    "with --scanner PROGRAM"
)
TAIL = 6


class ScanError(Exception):
    """The image was not scanned. The message states why; hint: what to do."""

    def __init__(self, message: str, hint: str, output: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.output = tuple(line for line in output.strip().splitlines() if line.strip())[-TAIL:]


class Vulnerability(msgspec.Struct, frozen=True, kw_only=True):
    """A known vulnerability of one installed package. fixed: the version without it, None if there is none yet.

    python: the package is from Python's environment, not from the operating system.
    """

    id: str
    package: str
    installed: str
    fixed: str | None = None
    severity: str = "UNKNOWN"
    python: bool = False

    def __str__(self) -> str:
        fixed = f"fixed in {self.fixed}" if self.fixed else "no fix yet"
        return f"{self.severity} {self.id}: {self.package} {self.installed}, {fixed}"


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scanner. database: date of its data, None if unknown. os: None if it did not recognize it.

    supported: False if the vendor of the operating system no longer states vulnerabilities. python: the names of the
    Python packages that it found, None where the format does not list them. ignored: findings that the scanner's own
    configuration suppressed. files: its result, and SARIF.
    """

    scanner: str
    version: str | None
    database: datetime | None
    os: str | None
    vulnerabilities: tuple[Vulnerability, ...]
    supported: bool = True
    python: tuple[str, ...] | None = None
    ignored: int = 0
    files: tuple[str, ...] = ()


def find_scanner(given: str | None) -> tuple[str, Path]:
    """Return kind and path of the given program, or of the first scanner on PATH. Raises ScanError if there is none."""
    for name in (given,) if given else KINDS:
        found = shutil.which(name)
        if found:
            kind = next((kind for kind in KINDS if kind in Path(name).name), None)
            if kind is None:
                raise ScanError(f"{name} is neither trivy nor grype, so its result cannot be read", INSTALL)
            return kind, Path(found).absolute()
    raise ScanError(f"there is no scanner: {given or ' and '.join(KINDS)} cannot be found", INSTALL)


def scan(kind: str, program: Path, tag: str, result: Path, sarif: Path) -> Scan:
    """Scan an image and write the scanner's result and SARIF. Raises ScanError if there is no complete result."""
    for old in (result, sarif):
        old.unlink(missing_ok=True)
    if kind == "trivy":
        severities = ",".join(name for name in SEVERITIES if name != "NEGLIGIBLE")
        # Its own lists of exceptions have no expiry date: images/scan.yml is the only one.
        all_of_them = ["--severity", severities, "--ignore-unfixed=false", "--ignorefile", os.devnull]
        what = ["--image-src", "docker", "--scanners", "vuln", "--list-all-pkgs", *all_of_them, "--exit-code", "0"]
        _run([program, "image", "--quiet", *what, "--format", "json", "--output", result, tag])
        status = _json(_run([program, "version", "--format", "json"]), "trivy version")
        found = read_trivy(_json(_text(result), str(result)), status)
        _run([program, "convert", "--quiet", "--format", "sarif", "--output", sarif, result])
    else:
        _run([program, "--quiet", "--output", f"json={result}", "--output", f"sarif={sarif}", f"docker:{tag}"])
        found = read_grype(_json(_text(result), str(result)))
    return msgspec.structs.replace(found, files=tuple(str(path) for path in (result, sarif) if path.exists()))


def _run(words: list[str | Path]) -> str:
    """Run a scanner where no configuration file is; returns stdout. Raises ScanError."""
    name = Path(words[0]).name
    hint = "check that the scanner reaches its database and the Docker engine: run the command by hand"
    command = " ".join(map(str, words))
    with temporary_folder("scan") as folder:
        try:
            done = subprocess.run(
                words, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=SECONDS, cwd=folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise ScanError(f"{name} ran for more than {SECONDS // 60} minutes", hint, command) from error
        except OSError as error:
            raise ScanError(f"{name} cannot be run: {error.strerror}", hint, command) from error
    if done.returncode:
        raise ScanError(f"{name} exited {done.returncode}", hint, f"{command}\n{done.stderr or done.stdout}")
    return done.stdout


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ScanError(f"the scanner wrote no result: {path}: {error.strerror}", "run the scanner by hand") from error


def _json(text: str, name: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ScanError(f"{name}: not JSON: {error}", "run the scanner by hand", text[:300]) from error
    if not isinstance(found, dict):
        raise ScanError(f"{name}: a {type(found).__name__}, not an object", "use a current version of the scanner")
    return found


def read_trivy(report: Mapping[str, Any], status: Mapping[str, Any]) -> Scan:
    """Return the values of Trivy's report and of its version document. Raises ScanError for another schema."""
    if report.get("SchemaVersion") != 2:
        raise ScanError(
            f"trivy's result has the schema {report.get('SchemaVersion')!r}; this gpucheck reads 2",
            "use a version of trivy between 0.20 and the pinned one",
        )
    results = [part for part in _rows(report, "Results") if part.get("Class") in ("os-pkgs", "lang-pkgs")]
    python = [part for part in results if part.get("Type") in PYTHON]
    system = _part(_part(report, "Metadata"), "OS")
    return Scan(
        scanner="trivy",
        version=_word(status.get("Version")) or _word(_part(report, "Trivy").get("Version")),
        database=_time(_part(status, "VulnerabilityDB").get("UpdatedAt")),
        os=_system(system.get("Family"), system.get("Name")) if _any(results, "os-pkgs") else None,
        supported=system.get("EOSL") is not True,
        python=tuple(sorted({_normal(row.get("Name")) for part in python for row in _rows(part, "Packages")})),
        vulnerabilities=tuple(
            Vulnerability(
                id=_word(row.get("VulnerabilityID")) or "no id",
                package=_word(row.get("PkgName")) or "unknown package",
                installed=_word(row.get("InstalledVersion")) or "unknown version",
                fixed=_word(row.get("FixedVersion")),
                severity=_severity(row.get("Severity")),
                python=part in python,
            )
            for part in results
            for row in _rows(part, "Vulnerabilities")
        ),
        ignored=sum(len(_rows(part, "ExperimentalModifiedFindings")) for part in results),
    )


def read_grype(report: Mapping[str, Any]) -> Scan:
    """Return the values of Grype's report. Raises ScanError without a list of matches."""
    if not isinstance(report.get("matches"), list):
        raise ScanError("grype's result has no list of matches", "use a current version of grype")
    descriptor = _part(report, "descriptor")
    database = _part(descriptor, "db")
    system = _part(report, "distro")
    found = []
    for row in _rows(report, "matches"):
        about, package = _part(row, "vulnerability"), _part(row, "artifact")
        versions = _part(about, "fix").get("versions")
        fixed = ", ".join(filter(None, map(_word, versions))) if isinstance(versions, list) else ""
        found.append(
            Vulnerability(
                id=_word(about.get("id")) or "no id",
                package=_word(package.get("name")) or "unknown package",
                installed=_word(package.get("version")) or "unknown version",
                fixed=fixed or None,
                severity=_severity(about.get("severity")),
                python=package.get("type") in PYTHON,
            )
        )
    return Scan(
        scanner="grype",
        version=_word(descriptor.get("version")),
        # Since its database's version 6 the date is in "status".
        database=_time(_part(database, "status").get("built") or database.get("built")),
        os=_system(system.get("name"), system.get("version")),
        vulnerabilities=tuple(found),
        ignored=len(_rows(report, "ignoredMatches")),
    )


def _part(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key)
    return found if isinstance(found, dict) else {}


def _rows(values: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = values.get(key)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _any(results: list[Mapping[str, Any]], kind: str) -> bool:
    return any(part.get("Class") == kind for part in results)


def _word(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _normal(name: object) -> str:
    return str(name).lower().replace("_", "-").replace(".", "-")


def _system(name: object, version: object) -> str | None:
    return " ".join(filter(None, (_word(name), _word(version)))) or None


def _severity(value: object) -> str:
    word = str(value).upper()
    return word if word in SEVERITIES else "UNKNOWN"


def _time(value: object) -> datetime | None:
    """Return an RFC 3339 time in UTC; None for another text, or for Go's empty time of the year 1."""
    try:
        # Go writes nanoseconds.
        found = msgspec.convert(value, datetime)
    except (msgspec.ValidationError, ValueError):
        return None
    if found.tzinfo is None or found.year < 2000:
        return None
    return found.astimezone(timezone.utc)
