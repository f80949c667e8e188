"""Scan built images: find each one in the engine, run the scanner, list pending updates, write the results."""

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpucheck.images.build import proxies
from gpucheck.images.scan import SCHEMA, ImageScan, Policy, ScanReport, evaluate
from gpucheck.images.scanners import Scan, ScanError, find_scanner, scan
from gpucheck.images.updates import Update, pending
from gpucheck.images.versions import LABEL, Versions
from gpucheck.knowledge import causes
from gpucheck.lab.errors import LabError
from gpucheck.lab.system import say
from gpucheck.model import Verdict, with_actions, worst
from gpucheck.processes.atomic import SHARED, write_atomic

if TYPE_CHECKING:
    from docker import DockerClient

FOLDER = "build/images"


def scan_images(
    client: "DockerClient", root: Path, versions: Versions, policy: Policy, names: Sequence[str], program: str | None
) -> ScanReport:
    """Scan the images of these variants, of all built ones without names. Raises LabError if one is not built."""
    tags = {name: tag for name in names or versions.variants if (tag := tag_of(client, name))}
    missing = [name for name in names if name not in tags]
    if missing or not tags:
        what = f"no image of {', '.join(missing)} is built" if missing else "no image is built"
        raise LabError(f"{what} in this Docker engine\ndo: gpucheck image build {' '.join(missing)}".rstrip())
    images = tuple(_scan(client, root, versions, policy, name, tag, program) for name, tag in tags.items())
    verdict = worst((image.verdict for image in images), strict=True)
    return ScanReport(schema_=SCHEMA, policy=policy, verdict=verdict, images=images)


def tag_of(client: "DockerClient", name: str) -> str | None:
    """Return the tag of a variant's newest image. Derived images inherit its label, but are called otherwise."""
    found = client.images.list(filters={"label": f"{LABEL}={name}"})
    newest = sorted(found, key=lambda image: str(image.attrs.get("Created", "")), reverse=True)
    return next((tag for image in newest for tag in image.tags if tag.startswith("gpucheck/")), None)


def _scan(
    client: "DockerClient", root: Path, versions: Versions, policy: Policy, name: str, tag: str, program: str | None
) -> ImageScan:
    started = time.monotonic()
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    result: Scan | ScanError
    try:
        kind, path = find_scanner(program)
        say(f"scanning {tag} with {path}")
        result = scan(kind, path, tag, folder / f"{name}.{kind}.json", folder / f"{name}.sarif")
    except ScanError as error:
        result = error
    updates: Sequence[Update] | str
    try:
        updates = pending(client, tag, proxies())
    except LabError as error:
        updates = error.message
    now = datetime.now(timezone.utc)
    findings = with_actions(tuple(evaluate(name, versions.variant(name), policy, result, updates, now)), causes())
    image = ImageScan(
        variant=name,
        tag=tag,
        scan=result if isinstance(result, Scan) else None,
        pending=None if isinstance(updates, str) else tuple(map(str, updates)),
        # An image that was not scanned is no better than one with a warning: UNKNOWN outranks WARN here.
        verdict=worst((one.verdict for one in findings), strict=True),
        counts={v.value: sum(one.verdict is v for one in findings) for v in Verdict},
        findings=findings,
        seconds=round(time.monotonic() - started, 3),
    )
    content = msgspec.json.format(msgspec.json.encode(image), indent=2) + b"\n"
    write_atomic(folder / f"{name}.scan.json", content, mode=SHARED)
    return image
