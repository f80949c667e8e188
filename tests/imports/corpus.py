"""Pastes of real machines with their right reading: tests/data/topo/*.yml, one machine a file.

raw is the paste, in which ``\\e`` stands for ESC when raw_escapes is set; everything else is the answer.
"""

from pathlib import Path
from typing import Any

from tests.shared import from_yaml

FOLDER = Path(__file__).parent.parent / "data" / "topo"
CASES: list[dict[str, Any]] = [from_yaml(path) for path in sorted(FOLDER.glob("*.yml"))]


def raw(case: dict[str, Any]) -> str:
    text: str = case["raw"]
    return text.replace("\\e", "\x1b") if case["raw_escapes"] else text


def by_id(case_id: str) -> str:
    return raw(next(case for case in CASES if case["id"] == case_id))


def today(cls: str | None) -> str | None:
    """Drivers before 2017 called SYS SOC."""
    return "SYS" if cls == "SOC" else cls


HGX = by_id("topo-h100x8-pix-sys-10nic")
MESH = by_id("topo-v100sxm2x8-1nic")
PAIR = by_id("topo-3090x2-nv4-am4")
