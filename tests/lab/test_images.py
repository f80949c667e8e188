"""Images are built once for what they are made of, on the real systems where a registry answers."""

import subprocess
import urllib.request
from pathlib import Path

import pytest

from gpucheck.lab import images
from gpucheck.lab.images import (
    AptSource,
    Recipe,
    certificates,
    ensure_images,
    private_certificates,
    pulled,
    recipes,
)
from gpucheck.lab.model import LABEL
from tests.lab.fake_docker import FakeContainer, FakeNetwork, fake_docker

ROOT = Path(__file__).parents[2]
CONTEXT = ROOT / "images/lab"
BASE = "gpucheck-lab/base:0123"


@pytest.fixture
def offline(monkeypatch):
    """No registry; making the base is only written down."""
    made = []
    monkeypatch.setattr(images, "registry_answers", lambda: False)
    monkeypatch.setattr(images, "bootstrap", lambda _client, tag, _source: made.append(tag))
    monkeypatch.setattr(images, "read_sources", lambda: [AptSource("http://m.example/debian", "bookworm")])
    return made


def test_without_a_registry_everything_is_made_from_debians_archive(offline):
    engine = fake_docker()

    flavour, made = ensure_images(engine, ROOT, None)

    assert flavour == "posing"
    assert len(offline) == 1
    built = [line for line in engine.asked if line.startswith("build")]
    assert sorted(built) == sorted(f"build {tag}" for tag in made.values())


def test_what_is_built_is_not_built_again(offline):
    engine = fake_docker()
    ensure_images(engine, ROOT, None)
    engine.asked.clear()

    ensure_images(engine, ROOT, None)

    assert engine.asked == ["images gpucheck-lab/*"]
    assert len(offline) == 1


def test_images_that_were_replaced_go_unless_a_lab_runs_on_them(offline):
    stale, used = "gpucheck-lab/apt-host:old", "gpucheck-lab/dnf-host:old"
    running = FakeContainer("other-dnf", {LABEL: "other"}, image=used)
    engine = fake_docker(containers=(running,), tags=(stale, used))

    ensure_images(engine, ROOT, None)

    assert stale not in engine.tags
    assert used in engine.tags


def test_a_registry_that_answers_gives_the_real_systems(offline, monkeypatch):
    monkeypatch.setattr(images, "registry_answers", lambda: True)
    monkeypatch.setattr(images, "pulled", lambda _client: True)
    monkeypatch.setattr(images, "private_certificates", lambda: b"")

    flavour, _ = ensure_images(fake_docker(), ROOT, None)

    assert flavour == "real"
    assert offline == []


def test_a_registry_that_answers_and_does_not_deliver_is_said(capsys):
    assert pulled(fake_docker()) is False
    assert "cannot pull rockylinux:9" in capsys.readouterr().err


def test_a_lab_keeps_the_base_that_its_hosts_have(offline, monkeypatch):
    """A registry that answers today, and images from it, do not replace hosts of yesterday."""
    engine = fake_docker(tags=tuple(recipe.tag(CONTEXT) for recipe in recipes("real", BASE)))
    assert ensure_images(engine, ROOT, None)[0] == "real"
    monkeypatch.setattr(images, "registry_answers", lambda: pytest.fail("asked"))

    flavour, _ = ensure_images(engine, ROOT, "posing")

    assert flavour == "posing"


def test_a_changed_file_is_another_image(tmp_path):
    """The mirror does not depend on what only hosts hold."""
    subprocess.run(["cp", "-a", f"{CONTEXT}/.", str(tmp_path)], check=True)
    host, mirror = recipes("posing", BASE)[0], recipes("posing", BASE)[2]
    before = host.tag(tmp_path), mirror.tag(tmp_path)
    assert host.tag(CONTEXT) == before[0]

    (tmp_path / "rootfs/etc/motd").write_text("hello\n")

    assert host.tag(tmp_path) != before[0]
    assert mirror.tag(tmp_path) == before[1]


def test_the_private_ca_is_served_only_while_building():
    engine = fake_docker(networks=(FakeNetwork("bridge", "127.0.0.0/8", gateway="127.0.0.1"),))

    with certificates(engine, b"PEM") as url, urllib.request.urlopen(url) as answer:  # noqa: S310 - our own http
        assert answer.read() == b"PEM"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)  # noqa: S310 - our own http


def test_the_private_ca_is_what_the_environment_names(tmp_path, monkeypatch):
    (tmp_path / "ca.pem").write_bytes(b"-----OURS-----")
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "ca.pem"))

    assert private_certificates().endswith(b"-----OURS-----")


def test_a_folder_is_served_at_a_steady_port_and_at_another_when_that_is_taken(tmp_path):
    """The address is part of what the builder compares before it uses a cached layer."""
    engine = fake_docker(networks=(FakeNetwork("bridge", "127.0.0.0/8", gateway="127.0.0.1"),))
    (tmp_path / "wheel").write_text("w")
    with images.served(engine, tmp_path) as url:
        port = int(url.rpartition(":")[2])
        with images.served(engine, tmp_path, port) as other:
            assert other != url
            assert urllib.request.urlopen(f"{other}/wheel").read() == b"w"  # noqa: S310 - our own http
    with images.served(engine, tmp_path, port) as again:
        assert again == url


def test_a_change_of_what_one_host_alone_has_makes_another_image(tmp_path):
    (tmp_path / "debian-host").mkdir()
    (tmp_path / "Dockerfile.debian-host").write_text("FROM scratch\n")
    recipe = Recipe("debian-host", "Dockerfile.debian-host", None, "base")
    before = recipe.tag(tmp_path)

    (tmp_path / "debian-host/boot").write_text("#!/bin/sh\n")

    assert recipe.tag(tmp_path) != before
