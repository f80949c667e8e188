"""Down removes the lab's things and nobody else's; status says what is there."""

import json
import os
from dataclasses import replace

import pytest

import gpucheck
from gpucheck.cli import main
from gpucheck.lab import lifecycle
from gpucheck.lab.containers import create
from gpucheck.lab.lifecycle import down, mirror_stamp, status
from gpucheck.lab.model import LABEL, LABEL_FLAVOUR, MIRROR, checkout, make_lab
from gpucheck.lab.system import LabError, LabUsageError
from tests.cli.documents import follows
from tests.lab.fake_docker import FakeContainer, FakeNetwork, fake_docker

OURS = {LABEL: "unit"}


@pytest.fixture
def engine(monkeypatch):
    fake = fake_docker(
        networks=(FakeNetwork("unit", "10.99.7.0/24", OURS), FakeNetwork("shop", "10.99.8.0/24")),
        containers=(
            FakeContainer("unit-apt", {**OURS, LABEL_FLAVOUR: "posing"}),
            FakeContainer("unit-mirror", OURS),
            FakeContainer("shop-db"),
            FakeContainer("other-apt", {LABEL: "other"}),
        ),
        tags=("gpucheck-lab/base:1", "gpucheck-lab/apt-host:1"),
    )
    monkeypatch.setattr(lifecycle, "reachable", lambda: fake)
    return fake


def test_down_leaves_what_is_not_the_labs(engine, tmp_path):
    folder = tmp_path / ".lab/unit"
    folder.mkdir(parents=True)

    down("unit", tmp_path, images=False)

    assert {c.name for c in engine.container_list if not c.removed} == {"shop-db", "other-apt"}
    assert {n.name for n in engine.network_list if not n.removed} == {"shop"}
    assert engine.tags == ["gpucheck-lab/base:1", "gpucheck-lab/apt-host:1"]
    assert not folder.exists()


def test_down_keeps_images_that_another_lab_runs_on(engine, tmp_path):
    with pytest.raises(LabError, match="the lab other runs on them"):
        down("unit", tmp_path, images=True)
    assert engine.tags


def test_down_removes_the_images_when_asked(engine, tmp_path):
    engine.container_list = [c for c in engine.container_list if c.name != "other-apt"]

    removed = down("unit", tmp_path, images=True)

    assert engine.tags == []
    assert removed[-1] == "image gpucheck-lab/base:1"


def test_status_of_a_part_of_a_lab(engine, tmp_path):
    seen = status("unit", tmp_path)

    assert seen["state"] == "partial"
    assert [row["name"] for row in seen["containers"]] == ["unit-apt", "unit-mirror"]
    assert seen["inventory"] is None


def test_a_container_name_that_somebody_has_is_refused(engine):
    lab = make_lab("shop", "10.99.9.0/24")

    with pytest.raises(
        LabUsageError, match=r"a container named shop-db is there, and no lab made it \(image busybox:1\)"
    ):
        create(engine, lab, replace(MIRROR, name="db"), image="y", labels={})


def test_a_mirror_is_made_again_for_a_checkout_that_was_made_again(tmp_path):
    """Its container still has the wheels of the removed one, an empty folder by now."""
    lab, wheels = make_lab("unit", "10.99.7.0/24"), tmp_path / "wheels"
    wheels.mkdir()
    first = mirror_stamp(lab, "image", wheels)
    assert mirror_stamp(lab, "image", wheels) == first
    mounted = os.open(wheels, os.O_RDONLY)
    wheels.rmdir()
    wheels.mkdir()

    assert mirror_stamp(lab, "image", wheels) != first
    os.close(mounted)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["up", "--subnet", "nonsense"], 64, "no IPv4 subnet"),
        (["up", "--name", "No"], 64, "lower-case"),
        (["up", "--bare-metal", "--light", "2"], 64, "--bare-metal cannot be combined with --light"),
        (["down", "--name", "../x"], 64, "lower-case"),
    ],
)
def test_wrong_usage_is_one_message(words, code, says, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["lab", *words])

    assert ended.value.code == code
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


def test_status_without_an_engine_is_json_all_the_same(monkeypatch, capsys):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")

    with pytest.raises(SystemExit) as ended:
        main(["lab", "status", "--name", "nobody", "--format", "json"])

    assert not ended.value.code
    seen = json.loads(capsys.readouterr().out)
    assert (seen["schema"], seen["state"], seen["engine"]) == ("gpucheck.lab/1", "down", False)
    follows("lab", seen)


def test_the_lab_needs_a_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(gpucheck, "__file__", str(tmp_path / "site-packages/gpucheck/__init__.py"))

    with pytest.raises(LabError, match="clone the repository"):
        checkout()
