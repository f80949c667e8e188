"""docs/status.md claims no more than the repository holds."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "status.md").read_text(encoding="utf-8")
AMOUNTS = {
    "tests/data/perf": "*.yml",
    "tests/data/pastes": "*.yml",
    "tests/data/captures": "*.xml.gz",
    "tests/data/topo": "*.yml",
    "tests/data/nccl": "*.yml",
    "tests/data/nvml_exports": "*.txt",
    "tests/data/foreign_nvml": "*.json.gz",
    "tests/data/repositories": "*.tsv",
    "tests/data/repositories/indexes": "*.xml",
    "tests/data/rpmvercmp.tsv": "*.tsv",
}


def amount(folder):
    """Files, or the lines of tables without their header."""
    if folder.endswith(".tsv"):
        files = [ROOT / folder]
    elif folder.endswith("indexes"):
        return sum(path.name in ("repomd.xml", "InRelease") for path in (ROOT / folder).rglob("*"))
    else:
        files = sorted((ROOT / folder).glob(AMOUNTS[folder]))
    if not all(path.suffix == ".tsv" for path in files):
        return len(files)
    return sum(len(path.read_text(encoding="utf-8").splitlines()) - 1 for path in files)


@pytest.mark.parametrize("folder", AMOUNTS)
def test_stated_amount_is_there(folder):
    (stated,) = re.findall(rf"\| (\d+) \w+ \| `{folder}` \|", PAGE)

    assert 0 < int(stated) <= amount(folder)


def test_every_amount_of_the_page_is_checked():
    assert set(re.findall(r"\| \d+ \w+ \| `([\w/.]+)` \|", PAGE)) == set(AMOUNTS)


def test_real_gpu_column_says_never_until_there_is_a_result():
    """A result of make test-gpu is the moment to write which GPU, and when."""
    table = PAGE.partition("| feature |")[2].partition("\n\n")[0].splitlines()[2:]
    seen = [row for row in table if not row.endswith((" never |", " never loaded |"))]
    results = list((ROOT / "bench" / "results").glob("gpu-*.json"))

    assert bool(results) != ("No part of gpucheck has been run on a real GPU" in PAGE)
    assert results or [row.split("|")[1].strip() for row in seen] == [
        "`diagnose`, `explain`",
        "`stack check-repositories`",
    ]
