"""The recordings of the real folders: every line has its source, and the table that plans read is made from them."""

import re

import pytest

from gpucheck.knowledge.packages import packages
from tests.stack import recordings


@pytest.mark.parametrize("folder", sorted(packages().repositories.keys))
def test_the_key_of_a_folder_is_the_one_that_documents_show(folder):
    key = packages().repositories.keys[folder]
    rows = [row for row in recordings.document("keys") if row["folder"] == folder]

    assert {row["file"] for row in rows if row["file"]} <= {key.file}
    assert {row["fingerprint"] for row in rows if row["fingerprint"]} <= {key.fingerprint}


def test_the_table_of_plans_is_made_from_the_recordings():
    """python -m tests.stack.recordings"""
    assert recordings.TABLE.read_text(encoding="utf-8") == recordings.table_text()


def test_the_recordings_cite_a_source_for_every_line():
    for folder, rows in recordings.sightings().items():
        for row in rows:
            assert re.fullmatch(r"id \d+|[\w.-]+/[\w.-]+[:#].+", row.source), (folder, row)
            assert row.arch in ("x86_64", "sbsa")
            assert row.kind in ("listing", "lock", "installer", "log")
            assert re.fullmatch(r"(\d{4}-\d\d-\d\d)?", row.seen)
