"""The private folder of a transfer: a name that is taken is not used, and what a killed run left is removed."""

import os
import subprocess
import time

import pytest
import yaml

from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.stubs import mode

(SCRIPT,) = [
    task["vars"]["transfer_script"]
    for task in yaml.safe_load((PLAYBOOKS / "tasks/transfer_folder.yml").read_text())
    if "vars" in task
]


@pytest.fixture
def create(tmp_path):
    """Create a folder of this name next to others: its path, and whether that worked."""

    def run(name="gpucheck-transfer-1"):
        path = tmp_path / name
        done = subprocess.run(["sh", "-euc", SCRIPT, "transfer", path], capture_output=True, check=False)
        return path, done.returncode == 0

    return run


def test_it_is_private_and_new(create):
    path, made = create()

    assert made
    assert mode(path) == 0o700
    assert not create()[1]


def test_what_a_killed_run_left_is_removed_and_nothing_else(create, tmp_path):
    old = time.time() - 2 * 86400
    for name in ("gpucheck-transfer-old", "gpucheck-transfer-new", "other"):
        (tmp_path / name / "packages").mkdir(parents=True)
    (tmp_path / "gpucheck-transfer-link").symlink_to(tmp_path / "other")
    for name in ("gpucheck-transfer-old", "other"):
        os.utime(tmp_path / name, (old, old))

    create()

    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["gpucheck-transfer-1", "gpucheck-transfer-link", "gpucheck-transfer-new", "other"]
    assert (tmp_path / "other/packages").is_dir()
