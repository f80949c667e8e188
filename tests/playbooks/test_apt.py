"""What apt downloaded for us is taken away once it is installed, and nothing else of its cache."""

import pytest

from tests.playbooks.modules import shared

apt = shared("apt")

PACKAGES = {"libnccl2": "2.29.3-1+cuda12.9", "nvidia-x": "3:580.178.04-1", "bash": "5.1-6"}


@pytest.fixture
def archives(tmp_path):
    names = [
        "libnccl2_2.29.3-1+cuda12.9_amd64.deb",
        "libnccl2_2.28.1-1+cuda12.9_amd64.deb",
        "nvidia-x_3%3a580.178.04-1_all.deb",
        "bash_5.1-6_amd64.deb",
        "lock",
    ]
    for name in names:
        (tmp_path / name).touch()
    return tmp_path


def test_archives_of_what_came_with_us_go_in_their_installed_version(archives):
    """Another version may be what somebody wants to go back to."""
    apt.clean({"libnccl2", "nvidia-x", "gone"}, PACKAGES, str(archives))

    left = sorted(path.name for path in archives.iterdir())
    assert left == ["bash_5.1-6_amd64.deb", "libnccl2_2.28.1-1+cuda12.9_amd64.deb", "lock"]


def test_a_cache_that_is_not_there_or_read_only_stops_nothing(archives, tmp_path, monkeypatch):
    apt.clean({"libnccl2"}, PACKAGES, str(tmp_path / "none"))

    def unlink(path):
        raise PermissionError(path)

    monkeypatch.setattr(apt.os, "unlink", unlink)
    apt.clean({"libnccl2"}, PACKAGES, str(archives))
