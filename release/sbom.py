"""The software bill of materials of a release, CycloneDX 1.6: every wheel in the packages, with licence and hash.

https://cyclonedx.org/docs/1.6/json/
"""

import json
import re
import uuid
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from release.archives import sha256
from release.python import metadata


def sbom(own: Path, wheels: Iterable[Path], date: int) -> bytes:
    """own: gpucheck's wheel. wheels: what it needs, for any Python and machine."""
    rows: dict[str, dict[str, Any]] = {}
    for wheel in sorted(wheels, key=lambda path: path.name):
        row = rows.setdefault(_purl(wheel), _component(wheel, "library"))
        row["hashes"].append({"alg": "SHA-256", "content": sha256(wheel)})
        row["properties"].append({"name": "gpucheck:wheel", "value": wheel.name})
    main = _component(own, "application")
    main["hashes"].append({"alg": "SHA-256", "content": sha256(own)})
    components = [rows[key] for key in sorted(rows)]
    content: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(date, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": main,
        },
        "components": components,
    }
    identity = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return json.dumps({**content, "serialNumber": f"urn:uuid:{identity}"}, indent=2, sort_keys=True).encode() + b"\n"


def _component(wheel: Path, kind: str) -> dict[str, Any]:
    fields = metadata(wheel)
    licence = fields["License-Expression"] or fields["License"] or ""
    row: dict[str, Any] = {"type": kind, "bom-ref": _purl(wheel), "name": fields["Name"], "version": fields["Version"]}
    row |= {"purl": _purl(wheel), "hashes": [], "properties": []}
    if fields["License-Expression"]:
        row["licenses"] = [{"expression": licence}]
    elif licence and "\n" not in licence:
        row["licenses"] = [{"license": {"name": licence}}]
    return row


def _purl(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
