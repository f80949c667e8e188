"""The Debian host of the lab before an engine is asked: where its packages come from, and how Ansible reaches it."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from gpucheck.lab import images
from gpucheck.lab.images import AptSource, Recipe
from gpucheck.lab.model import Lab
from gpucheck.lab.system import LabError
from tests.lab import real_packages

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machine(monkeypatch):
    """The apt sources of the machine that the lab runs on."""
    monkeypatch.delenv("GPUCHECK_LAB_ARCHIVE", raising=False)
    return lambda *rows: monkeypatch.setattr(images, "read_sources", lambda: [AptSource(*row) for row in rows])


def test_the_host_gets_its_packages_from_where_this_machine_does(machine):
    machine(("http://m.example/debian", "bookworm"), ("http://s.example/sec/debian-security", "bookworm-security"))

    said = real_packages.sources().decode()

    assert "URIs: http://m.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n" in said
    assert "URIs: http://s.example/sec/debian-security\nSuites: bookworm-security\nComponents: main\n" in said


def test_a_machine_without_a_debian_archive_is_told_how_to_name_one(machine):
    machine(("http://m.example/ubuntu", "jammy"))

    with pytest.raises(LabError, match="GPUCHECK_LAB_ARCHIVE"):
        real_packages.sources()


def test_ansible_reaches_the_host_and_pip_stays_on_it():
    group = real_packages.inventory(Lab("some", IPv4Network("10.9.8.0/24"), ROOT))["gpu"]

    assert group["children"] == {
        "gpu_debian": {"hosts": {"lab-debian": {"ansible_host": "10.9.8.13", "gpucheck_python": "python3"}}}
    }
    assert group["vars"]["gpucheck_pip_args"] == ["--no-index", "--find-links", "/srv/wheels"]


def test_a_change_of_what_the_host_alone_has_makes_another_image(tmp_path):
    (tmp_path / "debian-host").mkdir()
    (tmp_path / "Dockerfile.debian-host").write_text("FROM scratch\n")
    recipe = Recipe(real_packages.HOST.image, "Dockerfile.debian-host", None, "base")
    before = recipe.tag(tmp_path)

    (tmp_path / "debian-host/boot").write_text("#!/bin/sh\n")

    assert recipe.tag(tmp_path) != before
