"""The wheel for one kind of machine: the wheel for all, with the simulator's compiled libraries."""

import base64
import hashlib
import zipfile
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from release.vendored import GLIBC

FOLDER = "gpucheck/simulator/libraries"


def platform_wheel(pure: Path, machine: str, libraries: Iterable[tuple[str, bytes]], folder: Path, date: int) -> Path:
    """Write the wheel for a machine into folder: PEP 427, tag manylinux_2_28_x86_64 or the like (PEP 600)."""
    tag = f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{machine}"
    with zipfile.ZipFile(pure) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    files |= {f"{FOLDER}/{name}": content for name, content in libraries}
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    about = record.replace("RECORD", "WHEEL")
    text = files[about].decode().replace("Tag: py3-none-any", f"Tag: {tag}")
    files[about] = text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").encode()
    rows = [f"{name},{_digest(files[name])},{len(files[name])}" for name in files if name != record]
    files[record] = "\n".join((*rows, f"{record},,", "")).encode()
    made = folder / pure.name.replace("py3-none-any", tag)
    when = datetime.fromtimestamp(date, timezone.utc)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, (when.year, when.month, when.day, when.hour, when.minute, when.second))
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(info, content)
    return made


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
