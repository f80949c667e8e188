"""Captures of real machines (nvidia-smi -q -x), read without gpucheck: tests/data/captures/SOURCE.md."""

import gzip
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path(__file__).parent / "data" / "captures"
NAMES = sorted(path.name.removesuffix(".xml.gz") for path in FOLDER.glob("*.xml.gz"))


@cache
def text(name: str) -> str:
    return gzip.decompress((FOLDER / f"{name}.xml.gz").read_bytes()).decode()


@cache
def gpus(name: str) -> list[ElementTree.Element]:
    """The <gpu> elements, in the driver's order."""
    return ElementTree.fromstring(text(name)).findall("gpu")  # noqa: S314 - files of this repository
