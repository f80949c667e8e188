"""Updates of the base's packages: listed, installed by --fresh, kept by later builds, never guessed."""

import docker.errors
import pytest

from gpucheck.images import build as building
from gpucheck.images.build import Options, build
from gpucheck.lab.errors import LabError
from tests.images.fake_builds import fake_engine

UPDATES = b"""Inst zlib1g [1:1.2.13] (1:1.2.14 Debian:12.15/oldstable [amd64])
Inst libssl3 [3.0.15-1] (3.0.17-1 Debian-Security:12/oldstable-security [amd64])
Conf libssl3 (3.0.17-1 Debian-Security:12/oldstable-security [amd64])
"""


def test_a_fresh_build_installs_what_is_pending_and_later_ones_keep_it(checkout, capsys):
    engine = fake_engine()
    build(engine, checkout, "torch-cpu", Options())
    engine.updates = UPDATES

    assert build(engine, checkout, "torch-cpu", Options(fresh=True)).built
    said = capsys.readouterr().err
    assert "2 package updates pending, 1 of them security fixes" in said
    assert said.index("libssl3 3.0.15-1 -> 3.0.17-1 (Debian-Security:12") < said.index("zlib1g 1:1.2.13 -> 1:1.2.14")
    fresh = engine.calls[-1]
    assert fresh["buildargs"]["UPDATES"] == fresh["labels"]["gpucheck.images.updates"]

    # Another gpucheck, without --fresh: not the older packages that the builder's cache holds for no state at all.
    (checkout / ".cache/images/gpucheck_cluster-0.1.0-py3-none-any.whl").write_bytes(b"changed")
    build(engine, checkout, "torch-cpu", Options())
    assert engine.calls[-1]["buildargs"]["UPDATES"] == fresh["buildargs"]["UPDATES"]


def test_a_fresh_build_without_updates_is_no_build(checkout):
    engine = fake_engine()
    build(engine, checkout, "torch-cpu", Options())

    assert build(engine, checkout, "torch-cpu", Options(fresh=True)).built is False


def test_a_first_fresh_build_takes_nothing_older_from_the_builders_cache(checkout):
    engine = fake_engine()
    build(engine, checkout, "torch-cpu", Options(fresh=True))

    assert engine.calls[-1]["buildargs"]["UPDATES"].startswith("first-")


def test_updates_that_cannot_be_asked_for_are_unknown_and_not_none(checkout):
    engine = fake_engine()
    build(engine, checkout, "torch-cpu", Options())
    engine.updates = docker.errors.ContainerError(None, 100, "sh", "i", b"E: Failed to fetch http://a.example\n")

    with pytest.raises(LabError, match=r"(?s)Failed to fetch.*whether updates are pending is unknown"):
        build(engine, checkout, "torch-cpu", Options(fresh=True))


def test_a_base_that_moved_is_said_with_its_digest(checkout, monkeypatch, capsys):
    monkeypatch.setattr(building, "registry_answers", lambda: True)
    engine = fake_engine()

    build(engine, checkout, "torch-cpu", Options(fresh=True))

    assert "the base ubuntu:24.04 changed: its digest is now sha256:new" in capsys.readouterr().err
