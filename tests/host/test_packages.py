"""Package managers and systemd, played by small programs on PATH that say what the real ones say."""

import pytest

from gpucheck.host.system import read_packages, read_services
from gpucheck.model import PackageVersion

UBUNTU = {"ID": "ubuntu", "ID_LIKE": "debian"}
ROCKY = {"ID": "rocky", "ID_LIKE": "rhel centos fedora"}


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a program on PATH, the only one there; it also writes down how it was called."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def program(name, output, status=0, error=""):
        path = tmp_path / name
        (tmp_path / f"{name}.output").write_text(output)
        (tmp_path / f"{name}.error").write_text(error)
        path.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n/bin/cat {path}.error >&2\n'
            f"/bin/cat {path}.output\nexit {status}\n"
        )
        path.chmod(0o755)
        return tmp_path / "calls"

    return program


def test_dpkg_is_asked_once_for_all(program, tmp_path):
    """Exit status 1 only says that some name is unknown; a removed package with left-over settings is not installed."""
    calls = program(
        "dpkg-query",
        "hi \tamd64\tlibnccl2\t2.29.3-1+cuda12.9\n"
        "ii \tamd64\tnvidia-utils-580\t580.178.04-1ubuntu1\n"
        "rc \tamd64\tcuda-toolkit-13-0\t13.0.2-1\n",
        status=1,
    )
    seen = read_packages(UBUNTU, tmp_path, ["nvidia-utils-580", "libnccl2", "cuda-toolkit-13-0", "absent"])

    assert seen == (
        PackageVersion(name="libnccl2", version="2.29.3-1+cuda12.9", held=True),
        PackageVersion(name="nvidia-utils-580", version="580.178.04-1ubuntu1"),
    )
    assert len(calls.read_text().split("--showformat=")) == 2


def test_rpm_gives_epochs_and_locks(program, tmp_path):
    """versionlock.list holds patterns, its exclusions (!) hold nothing."""
    (tmp_path / "etc/dnf/plugins").mkdir(parents=True)
    (tmp_path / "etc/dnf/plugins/versionlock.list").write_text(
        "# Added lock on Fri Nov 20\nnvidia-driver-cuda-3:580.178.04-1.el9.*\n!libnccl-0:2.32.3-1+cuda13.4.*\n"
    )
    program(
        "rpm",
        "nvidia-driver-cuda\t3\t580.178.04-1.el9\tx86_64\n"
        "package absent is not installed\n"
        "libnccl\t0\t2.30.7-1+cuda13.0\tx86_64\n",
        status=1,
    )

    assert read_packages(ROCKY, tmp_path, ["libnccl", "nvidia-driver-cuda", "absent"]) == (
        PackageVersion(name="libnccl", version="2.30.7-1+cuda13.0"),
        PackageVersion(name="nvidia-driver-cuda", version="3:580.178.04-1.el9", held=True),
    )


@pytest.mark.parametrize("release", [UBUNTU, ROCKY], ids=["dpkg", "rpm"])
def test_no_package_manager_is_not_no_package(monkeypatch, tmp_path, release):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert read_packages(release, tmp_path, ["libnccl2"]) is None


def test_package_database_that_cannot_be_read(program, tmp_path):
    """dpkg-query exits with 2; rpm may call every package not installed, and only its error output shows the reason."""
    program("dpkg-query", "", status=2)
    program(
        "rpm",
        "package libnccl is not installed\n",
        status=1,
        error="error: cannot open Packages index using sqlite - Operation not permitted (1)\n"
        "error: cannot open Packages database in /var/lib/rpm\n",
    )

    assert read_packages(UBUNTU, tmp_path, ["libnccl2"]) is None
    assert read_packages(ROCKY, tmp_path, ["libnccl"]) is None


def test_names_that_are_options_or_patterns_are_not_passed_on(program, tmp_path):
    calls = program("dpkg-query", "")
    read_packages(UBUNTU, tmp_path, ["--admindir=/tmp", "lib*", ""])

    assert not calls.exists()


def test_services_in_the_order_asked(program):
    """One block for each unit, separated by an empty line."""
    program(
        "systemctl",
        "LoadState=loaded\nActiveState=active\n\nLoadState=not-found\nActiveState=inactive\n\n"
        "LoadState=loaded\nActiveState=failed\n",
    )

    assert read_services(["nvidia-persistenced", "absent", "nvidia-fabricmanager"]) == {
        "nvidia-persistenced": "active",
        "absent": "not-found",
        "nvidia-fabricmanager": "failed",
    }


def test_system_that_was_not_booted_with_systemd(program):
    program("systemctl", "", status=1)

    assert read_services(["nvidia-persistenced", "nvidia-fabricmanager"]) == {
        "nvidia-persistenced": None,
        "nvidia-fabricmanager": None,
    }
    assert read_services(["nvidia-persistenced"]) == {"nvidia-persistenced": None}


def test_system_without_systemctl(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert read_services(["nvidia-persistenced"]) == {"nvidia-persistenced": None}
    assert read_services([]) == {}
